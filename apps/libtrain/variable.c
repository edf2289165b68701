/* SPDX-License-Identifier: BSD-3-Clause */
/** Variables, and memory that tensors share. Any thread. */
#include "variable.h"

#include "compress.h"
#include "node.h"

#include <math.h>

/* ---- memory ---- */

#define STORE_HEADER 64 /* keeps the alignment of a block */
_Static_assert(sizeof(struct store) <= STORE_HEADER, "elements follow the struct");

static struct store *store_make(struct far_pool *pool, size_t bytes)
{
	struct store *store = bytes <= PTRDIFF_MAX / 2 ? pool_take(pool, STORE_HEADER + bytes) : NULL;
	if (!store)
		return NULL;
	atomic_init(&store->refs, 1);
	atomic_init(&store->version, 0);
	store->borrowed = false;
	store->release = NULL;
	store->user = NULL;
	return store;
}

/* `bytes` of memory behind the struct. NULL: no memory. */
static struct store *store_new(struct far_pool *pool, size_t bytes)
{
	struct store *store = store_make(pool, bytes);
	if (store)
		store->data = (char *)store + STORE_HEADER;
	return store;
}

static void store_ref(struct store *store)
{
	if (store)
		atomic_fetch_add_explicit(&store->refs, 1, memory_order_relaxed);
}

static void store_unref(struct store *store)
{
	/* The last one sees the writes of all others before the memory is used again. */
	if (!store || atomic_fetch_sub_explicit(&store->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (store->release)
		store->release(store->user);
	pool_give(store);
}

void held_set(struct held *held, const struct far_tensor *t, struct store *store)
{
	held->t = *t;
	if (t->strides) {
		if (t->strides != held->strides)
			memcpy(held->strides, t->strides, t->ndim * sizeof *t->strides);
		held->t.strides = held->strides;
	}
	held->store = store;
	store_ref(store);
	held->version = store ? atomic_load_explicit(&store->version, memory_order_relaxed) : 0;
}

void held_shape(struct held *held, const struct far_tensor *t)
{
	static double zero; /* aligned for every dtype */
	held->t = *t;
	held->t.data = &zero;
	memset(held->strides, 0, sizeof held->strides);
	held->t.strides = held->strides;
	held->store = NULL;
}

bool held_new(struct held *held, struct far_pool *pool, enum far_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct far_tensor t = tensor_dense(dtype, NULL, ndim, shape);
	struct store *store = store_new(pool, far_tensor_bytes(&t));
	if (!store)
		return false;
	t.data = store->data;
	held_set(held, &t, store);
	store_unref(store);
	return true;
}

static void finish_value(void *value)
{
	far_val_fini(value);
}

bool held_take(struct held *held, struct far_pool *pool, struct far_val *value)
{
	struct store *store = store_make(pool, sizeof *value);
	if (!store)
		return false;
	struct far_val *own = (struct far_val *)(void *)((char *)store + STORE_HEADER);
	*own = *value;
	*value = far_none();
	store->data = own->u.t.data;
	store->release = finish_value;
	store->user = own;
	held_set(held, &own->u.t, store);
	store_unref(store);
	return true;
}

bool held_adopt(struct held *held, struct far_pool *pool, const struct far_tensor *t, void (*release)(void *user),
		void *user)
{
	struct store *store = store_make(pool, 0);
	if (!store)
		return false;
	store->data = t->data;
	store->release = release;
	store->user = user;
	held_set(held, t, store);
	store_unref(store);
	return true;
}

void held_move(struct held *to, struct held *from)
{
	*to = *from;
	if (from->t.strides)
		to->t.strides = to->strides;
	from->store = NULL;
	from->t.dtype = FAR_DTYPE_NONE;
}

void held_drop(struct held *held)
{
	store_unref(held->store);
	held->store = NULL;
	held->t.dtype = FAR_DTYPE_NONE;
}

bool held_is_own(const struct held *held)
{
	return held->store && !held->store->borrowed &&
	       atomic_load_explicit(&held->store->refs, memory_order_acquire) == 1 && tensor_is_dense(&held->t);
}

/* ---- tensors ---- */

bool tensor_is_float(const struct far_tensor *t)
{
	return t->dtype == FAR_F32 || t->dtype == FAR_F64 || t->dtype == FAR_BF16 || t->dtype == FAR_F16;
}

bool tensor_is_dense(const struct far_tensor *t)
{
	int64_t stride = 1;
	if (!t->strides || far_tensor_count(t) == 0)
		return true;
	for (unsigned k = t->ndim; k-- > 0; stride *= (int64_t)t->shape[k])
		if (t->shape[k] != 1 && t->strides[k] != stride)
			return false;
	return true;
}

bool tensor_same_shape(const struct far_tensor *a, const struct far_tensor *b)
{
	return a->ndim == b->ndim && memcmp(a->shape, b->shape, a->ndim * sizeof *a->shape) == 0;
}

struct far_tensor tensor_dense(enum far_dtype dtype, void *data, unsigned ndim, const uint64_t *shape)
{
	struct far_tensor t;
	memset(&t, 0, sizeof t);
	t.data = data;
	t.dtype = (uint8_t)dtype;
	t.ndim = (uint8_t)ndim;
	if (ndim > 0)
		memcpy(t.shape, shape, ndim * sizeof *shape);
	return t;
}

/* ---- variables ---- */

struct far_var *var_new(struct far_pool *pool, struct held *value)
{
	struct far_var *var = pool_zero(pool, sizeof *var);
	if (!var)
		return NULL;
	atomic_init(&var->refs, 1);
	var->pool = pool;
	held_move(&var->value, value);
	return var;
}

/** Is `t` a tensor that a leaf may hold. */
static enum far_status check_leaf(const struct far_tensor *t, bool requires_grad, struct far_err *err)
{
	char text[TENSOR_TEXT];
	if (!t)
		return fail(err, FAR_INVALID, "variable: the tensor is NULL");
	if (t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT || t->ndim > FAR_DIMS_MAX || t->domain != 0)
		return fail(err, FAR_INVALID, "variable: dtype %u, %u dimensions, memory domain %u: not a tensor",
			    t->dtype, t->ndim, t->domain);
	if (far_tensor_bytes(t) > PTRDIFF_MAX / 2)
		return fail(err, FAR_TOO_LARGE, "variable: %s is too large", tensor_text(t, text));
	if (requires_grad && !tensor_is_float(t))
		return fail(err, FAR_UNSUPPORTED,
			    "variable: %s cannot require a gradient: only f32, f64, bf16 and f16 can",
			    tensor_text(t, text));
	return FAR_OK;
}

static enum far_status leaf_new(struct far_pool *pool, struct held *value, bool requires_grad, struct far_var **out,
				struct far_err *err)
{
	struct far_var *var = var_new(pool, value);
	if (!var) {
		held_drop(value);
		return fail_memory(err, "variable", sizeof *var);
	}
	var->requires_grad = requires_grad;
	*out = var;
	return FAR_OK;
}

enum far_status far_var_new(struct far_pool *pool, const struct far_tensor *t, bool requires_grad, struct far_var **out,
			    struct far_err *err)
{
	struct held value = {0};
	TRY(check_leaf(t, requires_grad, err));
	if (!held_new(&value, pool, (enum far_dtype)t->dtype, t->ndim, t->shape))
		return fail_memory(err, "variable", far_tensor_bytes(t));
	enum far_status status = FAR_OK;
	if (t->data)
		status = far_op_copy(t, &value.t, err);
	else
		memset(value.t.data, 0, far_tensor_bytes(t));
	if (status) {
		held_drop(&value);
		return status;
	}
	return leaf_new(pool, &value, requires_grad, out, err);
}

enum far_status far_var_borrow(struct far_pool *pool, const struct far_tensor *t, bool requires_grad,
			       void (*release)(void *user), void *user, struct far_var **out, struct far_err *err)
{
	struct held value = {0};
	char text[TENSOR_TEXT];
	TRY(check_leaf(t, requires_grad, err));
	if (!t->data && far_tensor_count(t) > 0)
		return fail(err, FAR_INVALID, "variable: %s has no memory", tensor_text(t, text));
	struct store *store = store_make(pool, 0);
	if (!store)
		return fail_memory(err, "variable", sizeof *store);
	store->data = t->data;
	held_set(&value, t, store);
	store_unref(store);
	TRY(leaf_new(pool, &value, requires_grad, out, err));
	store->borrowed = true;
	store->release = release;
	store->user = user;
	return FAR_OK;
}

struct far_var *far_var_ref(struct far_var *var)
{
	if (var)
		atomic_fetch_add_explicit(&var->refs, 1, memory_order_relaxed);
	return var;
}

void far_var_free(struct far_var *var)
{
	if (!var || atomic_fetch_sub_explicit(&var->refs, 1, memory_order_acq_rel) != 1)
		return;
	held_drop(&var->value);
	hooks_free(var->hooks);
	far_compressor_free(var->compressor);
	struct node *node = var->node;
	pool_give(var);
	node_unref(node);
}

const struct far_tensor *far_var_tensor(const struct far_var *var)
{
	return &var->value.t;
}

bool far_var_requires_grad(const struct far_var *var)
{
	return var->requires_grad;
}

bool far_var_is_leaf(const struct far_var *var)
{
	return !var->node;
}

double far_var_scalar(const struct far_var *var)
{
	double value;
	if (!var || !tensor_is_float(&var->value.t) || far_tensor_count(&var->value.t) != 1)
		return NAN;
	struct far_tensor out = tensor_dense(FAR_F64, &value, var->value.t.ndim, var->value.t.shape);
	return far_op_copy(&var->value.t, &out, NULL) ? NAN : value;
}

enum far_status far_var_edit(struct far_var *var, struct far_tensor *out, struct far_err *err)
{
	if (var->node)
		return fail(err, FAR_INVALID, "variable: the result of %s is not a leaf and cannot be changed",
			    node_name(var->node));
	atomic_fetch_add_explicit(&var->value.store->version, 1, memory_order_relaxed);
	*out = var->value.t;
	return FAR_OK;
}

/* ---- hooks ---- */

void hooks_free(struct hook *hooks)
{
	while (hooks) {
		struct hook *next = hooks->next;
		pool_give(hooks);
		hooks = next;
	}
}

enum far_status far_var_hook(struct far_var *var, enum far_hook_when when, far_hook_fn *hook, void *user,
			     struct far_err *err)
{
	if (!var->requires_grad)
		return fail(err, FAR_INVALID, "hook: the variable requires no gradient");
	if (when == FAR_HOOK_AFTER && var->node)
		return fail(err, FAR_INVALID, "hook: the result of %s is not a leaf: its gradient is not kept",
			    node_name(var->node));
	struct hook *added = pool_zero(var->pool, sizeof *added);
	if (!added)
		return fail_memory(err, "hook", sizeof *added);
	struct hook **end = var->node ? node_hooks(var->node) : &var->hooks;
	while (*end)
		end = &(*end)->next;
	*added = (struct hook){NULL, when, var->output, hook, user};
	*end = added;
	return FAR_OK;
}
