/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The type far::Var: a variable on its way between workers. Any thread.
 *
 * Bytes, little-endian: u64 context, u64 id, i32 rank of the sender, u8 dtype, u8 ndim, u16 zero, u64 shape[ndim], the
 * elements.
 */
#include "wire.h"

#include <pthread.h>

struct head {
	uint64_t context, id;
	int32_t rank;
	uint8_t dtype, ndim;
	uint16_t zero;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of both below */
static struct far_pool *received;                        /* NULL without users */
static unsigned users;
static _Atomic uint64_t forwards;

uint64_t wire_forwards(void)
{
	return atomic_load_explicit(&forwards, memory_order_relaxed);
}

bool wire_start(void)
{
	pthread_mutex_lock(&lock);
	bool good = users > 0 || far_pool_new(0, &received, NULL) == FAR_OK;
	users += good;
	pthread_mutex_unlock(&lock);
	return good;
}

void wire_stop(void)
{
	pthread_mutex_lock(&lock);
	if (--users == 0) {
		far_pool_free(received);
		received = NULL;
	}
	pthread_mutex_unlock(&lock);
}

/** NULL: no memory, or no user any more. */
static void *take(size_t bytes)
{
	pthread_mutex_lock(&lock);
	void *block = received ? pool_take(received, bytes) : NULL;
	pthread_mutex_unlock(&lock);
	return block;
}

struct wire *wire_new(struct far_var *var)
{
	struct wire *w = pool_zero(var->pool, sizeof *w);
	if (!w)
		return NULL;
	atomic_init(&w->refs, 1);
	w->var = far_var_ref(var);
	w->t = var->value.t;
	w->answer_to = WIRE_ANYONE;
	return w;
}

void wire_unref(void *wire)
{
	struct wire *w = wire;
	if (atomic_fetch_sub_explicit(&w->refs, 1, memory_order_acq_rel) != 1)
		return;
	far_var_free(w->var);
	pool_give(w);
}

static size_t wire_size(const void *object, void *user)
{
	const struct wire *w = object;
	(void)user;
	return sizeof(struct head) + w->t.ndim * sizeof w->t.shape[0] + far_tensor_bytes(&w->t);
}

static void wire_encode(const void *object, void *dst, size_t len, void *user)
{
	struct wire *w = (struct wire *)(uintptr_t)object; /* its count alone changes */
	struct head head = {w->context, w->id, w->rank, w->t.dtype, w->t.ndim, 0};
	size_t shape_bytes = w->t.ndim * sizeof w->t.shape[0];
	char *at = dst;
	(void)user;
	(void)len;
	if (w->var)
		atomic_fetch_add_explicit(&w->copies, 1, memory_order_relaxed);
	else
		atomic_fetch_add_explicit(&forwards, 1, memory_order_relaxed);
	memcpy(at, &head, sizeof head);
	memcpy(at + sizeof head, w->t.shape, shape_bytes);
	struct far_tensor to =
		tensor_dense((enum far_dtype)w->t.dtype, at + sizeof head + shape_bytes, w->t.ndim, w->t.shape);
	if (far_tensor_count(&to) > 0)
		far_op_copy(&w->t, &to, NULL);
}

/** Is src[0, len) well-formed. Sets `t`, without data. */
static bool check(const struct head *head, const char *src, size_t len, struct far_tensor *t)
{
	uint64_t shape[FAR_DIMS_MAX];
	if (head->dtype == FAR_DTYPE_NONE || head->dtype >= FAR_DTYPE_COUNT || head->ndim > FAR_DIMS_MAX ||
	    head->zero || head->rank < 0 || len < sizeof *head + head->ndim * sizeof shape[0])
		return false;
	memcpy(shape, src + sizeof *head, head->ndim * sizeof shape[0]);
	*t = tensor_dense((enum far_dtype)head->dtype, NULL, head->ndim, shape);
	size_t bytes = far_tensor_bytes(t);
	if (bytes == SIZE_MAX || len != sizeof *head + head->ndim * sizeof shape[0] + bytes)
		return false;
	return head->id == 0 || tensor_is_float(t);
}

static enum far_status wire_decode(const void *src, size_t len, void **object, void *user)
{
	struct head head;
	struct far_tensor t;
	(void)user;
	if (len < sizeof head)
		return FAR_BAD_ARGS;
	memcpy(&head, src, sizeof head);
	if (!check(&head, src, len, &t))
		return FAR_BAD_ARGS;
	size_t bytes = far_tensor_bytes(&t);
	size_t data_at = (sizeof(struct wire) + 63) / 64 * 64;
	struct wire *w = bytes < SIZE_MAX - data_at ? take(data_at + bytes) : NULL;
	if (!w)
		return FAR_RESOURCE;
	memset(w, 0, sizeof *w);
	atomic_init(&w->refs, 1);
	w->context = head.context;
	w->id = head.id;
	w->rank = head.rank;
	w->answer_to = WIRE_ANYONE;
	w->forwards = wire_forwards();
	w->t = t;
	w->t.data = (char *)w + data_at;
	memcpy(w->t.data, (const char *)src + len - bytes, bytes);
	*object = w;
	return FAR_OK;
}

static void wire_destroy(void *object, void *user)
{
	(void)user;
	wire_unref(object);
}

const struct far_custom_type wire_type = {
	.name = "far::Var", .size = wire_size, .encode = wire_encode, .decode = wire_decode, .destroy = wire_destroy};

struct far_var *wire_var(struct far_pool *pool, struct wire *wire, bool requires_grad, struct far_err *err)
{
	struct far_var *var;
	if (far_var_borrow(pool, &wire->t, requires_grad, wire_unref, wire, &var, err))
		return NULL;
	atomic_fetch_add_explicit(&wire->refs, 1, memory_order_relaxed);
	return var;
}

struct wire *wire_of(const struct far_val *v)
{
	bool is = v->type == FAR_TYPE_CUSTOM && strcmp(v->u.custom.type->name, wire_type.name) == 0;
	return is ? v->u.custom.object : NULL;
}
