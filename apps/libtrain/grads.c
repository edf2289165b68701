/* SPDX-License-Identifier: BSD-3-Clause */
/** Gradients of leaves. Any thread. */
#include "grads.h"

#include "rows.h"

#include <pthread.h>

struct far_grads {
	struct far_pool *pool;
	pthread_mutex_t lock; /* of all below */
	struct grad_entry *table;
	size_t capacity; /* a power of two, at least twice `n` */
	size_t n;
	uint64_t bytes_copied;
};

#define CAPACITY_MIN 16

enum far_status far_grads_new(struct far_pool *pool, struct far_grads **out, struct far_err *err)
{
	struct far_grads *grads = pool_zero(pool, sizeof *grads);
	struct grad_entry *table = pool_zero(pool, CAPACITY_MIN * sizeof *table);
	if (!grads || !table) {
		pool_give(table);
		pool_give(grads);
		return fail_memory(err, "gradients", sizeof *grads + CAPACITY_MIN * sizeof *table);
	}
	grads->pool = pool;
	grads->table = table;
	grads->capacity = CAPACITY_MIN;
	pthread_mutex_init(&grads->lock, NULL);
	*out = grads;
	return FAR_OK;
}

static void clear(struct far_grads *grads)
{
	for (size_t i = 0; i < grads->capacity && grads->n > 0; i++) {
		struct grad_entry *entry = &grads->table[i];
		if (!entry->leaf)
			continue;
		gradient_drop(entry->gradient);
		pool_give(entry->gradient);
		far_var_free(entry->leaf);
		entry->leaf = NULL;
		grads->n--;
	}
}

void far_grads_clear(struct far_grads *grads)
{
	pthread_mutex_lock(&grads->lock);
	clear(grads);
	pthread_mutex_unlock(&grads->lock);
}

void far_grads_free(struct far_grads *grads)
{
	if (!grads)
		return;
	clear(grads);
	pthread_mutex_destroy(&grads->lock);
	pool_give(grads->table);
	pool_give(grads);
}

struct far_pool *grads_pool(const struct far_grads *grads)
{
	return grads->pool;
}

static struct grad_entry *find(struct grad_entry *table, size_t capacity, const struct far_var *leaf)
{
	size_t at = slot_of(leaf, capacity);
	while (table[at].leaf && table[at].leaf != leaf)
		at = (at + 1) & (capacity - 1);
	return &table[at];
}

static bool grow(struct far_grads *grads)
{
	size_t capacity = 2 * grads->capacity;
	struct grad_entry *table = pool_zero(grads->pool, capacity * sizeof *table);
	if (!table)
		return false;
	for (size_t i = 0; i < grads->capacity; i++)
		if (grads->table[i].leaf)
			*find(table, capacity, grads->table[i].leaf) = grads->table[i];
	pool_give(grads->table);
	grads->table = table;
	grads->capacity = capacity;
	return true;
}

/** The gradient of a leaf, made if it has none. NULL: no memory. */
static struct gradient *get_or_make(struct far_grads *grads, struct far_var *leaf)
{
	struct grad_entry *entry = find(grads->table, grads->capacity, leaf);
	if (entry->leaf)
		return entry->gradient;
	if (2 * (grads->n + 1) > grads->capacity) {
		if (!grow(grads))
			return NULL;
		entry = find(grads->table, grads->capacity, leaf);
	}
	entry->gradient = pool_zero(grads->pool, sizeof *entry->gradient);
	if (!entry->gradient)
		return NULL;
	entry->leaf = far_var_ref(leaf);
	grads->n++;
	return entry->gradient;
}

/** `seen`: the sum, for hooks; NULL: there are none. */
static enum far_status accumulate(struct far_grads *grads, struct far_var *leaf, struct gradient *g,
				  struct gradient *seen, struct far_err *err)
{
	struct gradient *sum = get_or_make(grads, leaf);
	if (!sum)
		return fail_memory(err, "gradients", sizeof *sum);
	TRY(gradient_add(grads->pool, &leaf->value.t, sum, g, err));
	if (!held_is_own(&sum->values))
		grads->bytes_copied += far_tensor_bytes(&sum->values.t);
	TRY(gradient_own(grads->pool, sum, err));
	if (!seen)
		return FAR_OK;
	held_set(&seen->values, &sum->values.t, sum->values.store);
	held_set(&seen->index, &sum->index.t, sum->index.store);
	return FAR_OK;
}

enum far_status grads_accumulate(struct far_grads *grads, struct far_var *leaf, struct gradient *g, struct far_err *err)
{
	struct gradient seen = {0};
	pthread_mutex_lock(&grads->lock);
	enum far_status status = accumulate(grads, leaf, g, leaf->hooks ? &seen : NULL, err);
	pthread_mutex_unlock(&grads->lock);
	/* Hooks may wait, and run without the lock. What is added meanwhile goes to a copy of the sum. */
	if (!status)
		status = hooks_run(leaf->hooks, FAR_HOOK_AFTER, 0, leaf, &seen, err);
	gradient_drop(&seen);
	return status;
}

/* The gradient as a hook sees it. */
static struct far_gradient gradient_view(const struct gradient *g)
{
	struct far_gradient view = {g->values.t, g->index.t};
	return view;
}

enum far_status hooks_run(const struct hook *hooks, enum far_hook_when when, unsigned output, struct far_var *var,
			  struct gradient *g, struct far_err *err)
{
	for (; hooks; hooks = hooks->next) {
		struct far_gradient view = gradient_view(g);
		if (hooks->when != when || hooks->output != output)
			continue;
		fail_clear(err);
		TRY(fail_named(err, hooks->run(hooks->user, var, &view, err), "hook"));
	}
	return FAR_OK;
}

bool far_grads_get(struct far_grads *grads, const struct far_var *var, struct far_gradient *out)
{
	pthread_mutex_lock(&grads->lock);
	const struct grad_entry *entry = find(grads->table, grads->capacity, var);
	bool found = entry->leaf && entry->gradient->set;
	if (found)
		*out = gradient_view(entry->gradient);
	pthread_mutex_unlock(&grads->lock);
	return found;
}

uint64_t grads_bytes_copied(struct far_grads *grads)
{
	pthread_mutex_lock(&grads->lock);
	uint64_t n = grads->bytes_copied;
	pthread_mutex_unlock(&grads->lock);
	return n;
}

size_t far_grads_count(struct far_grads *grads)
{
	pthread_mutex_lock(&grads->lock);
	size_t n = grads->n;
	pthread_mutex_unlock(&grads->lock);
	return n;
}

/** A copy of a tensor, converted and dense. */
static enum far_status copy_of(struct far_pool *pool, const struct far_tensor *t, enum far_dtype dtype,
			       struct held *out, struct far_err *err)
{
	if (!held_new(out, pool, dtype, t->ndim, t->shape))
		return fail_memory(err, "gradient", far_tensor_bytes(t));
	return far_op_copy(t, &out->t, err);
}

static enum far_status check_added(const struct far_tensor *of, const struct far_gradient *gradient,
				   struct far_err *err)
{
	char wanted[TENSOR_TEXT];
	char text[TENSOR_TEXT];
	char index_text[TENSOR_TEXT];
	const struct far_tensor *values = &gradient->values;
	const struct far_tensor *index = &gradient->index;
	if (values->dtype >= FAR_DTYPE_COUNT || values->ndim > FAR_DIMS_MAX || !tensor_is_float(values))
		return fail(err, FAR_INVALID, "gradient: the values have dtype %u and %u dimensions", values->dtype,
			    values->ndim);
	if (index->dtype == FAR_DTYPE_NONE) {
		if (!tensor_same_shape(values, of))
			return fail(err, FAR_INVALID, "gradient: %s does not fit the variable %s",
				    tensor_text(values, text), tensor_text(of, wanted));
		return FAR_OK;
	}
	if (of->ndim != 2 || values->ndim != 2 || index->ndim != 1 || values->shape[0] != index->shape[0] ||
	    values->shape[1] != of->shape[1] || (index->dtype != FAR_I64 && index->dtype != FAR_I32))
		return fail(err, FAR_INVALID, "gradient: rows %s with index %s do not fit the variable %s",
			    tensor_text(values, text),
			    index->ndim <= FAR_DIMS_MAX ? tensor_text(index, index_text) : "of too many dimensions",
			    tensor_text(of, wanted));
	return FAR_OK;
}

/** Are the indices of rows in the table. */
static enum far_status check_index(const struct far_tensor *index, uint64_t rows, struct far_err *err)
{
	const int64_t *at = index->data;
	for (uint64_t i = 0; i < index->shape[0]; i++)
		if (at[i] < 0 || (uint64_t)at[i] >= rows)
			return fail(err, FAR_INVALID, "gradient: index %lld is not in [0, %llu)", (long long)at[i],
				    (unsigned long long)rows);
	return FAR_OK;
}

enum far_status far_grads_add(struct far_grads *grads, struct far_var *var, const struct far_gradient *gradient,
			      struct far_err *err)
{
	const struct far_tensor *of = &var->value.t;
	struct gradient g = {0};
	struct far_err unwanted;
	if (!err)
		err = &unwanted; /* functions of the application get one */
	if (!var->requires_grad || var->node)
		return fail(err, FAR_INVALID, "gradient: the variable is not a leaf that requires one");
	TRY(check_added(of, gradient, err));
	enum far_status status = copy_of(grads->pool, &gradient->values, (enum far_dtype)of->dtype, &g.values, err);
	if (!status && gradient->index.dtype != FAR_DTYPE_NONE) {
		status = copy_of(grads->pool, &gradient->index, FAR_I64, &g.index, err);
		if (!status)
			status = check_index(&g.index.t, of->shape[0], err);
	}
	g.set = true;
	if (!status)
		status = grads_accumulate(grads, var, &g, err);
	gradient_drop(&g);
	return status;
}
