/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums of gradients, dense and sparse. Any thread. */
#include "rows.h"

/** A workspace of the size that an operator needs. False: no memory. */
static bool work_take(struct far_pool *pool, struct far_op_work *work)
{
	work->data = pool_take(pool, work->bytes);
	return work->data != NULL;
}

enum far_status rows_to_dense(struct far_pool *pool, const char *name, struct gradient *g,
			      const struct far_tensor *table, struct far_err *err)
{
	struct far_op_work work = {0};
	struct held dense = {0};
	if (!held_new(&dense, pool, (enum far_dtype)table->dtype, table->ndim, table->shape))
		return fail_memory(err, name, far_tensor_bytes(table));
	enum far_status status = far_op_embedding_backward(&g->values.t, &dense.t, &g->index.t, &dense.t, &work, err);
	if (!status && !work_take(pool, &work))
		status = fail_memory(err, name, work.bytes);
	if (!status)
		status = far_op_embedding_backward(&g->values.t, &dense.t, &g->index.t, &dense.t, &work, err);
	pool_give(work.data);
	gradient_drop(g);
	if (status) {
		held_drop(&dense);
		return status;
	}
	held_move(&g->values, &dense);
	g->set = true;
	return FAR_OK;
}

enum far_status rows_sum(struct far_pool *pool, const struct far_tensor *index, const struct far_tensor *rows,
			 uint64_t table_rows, struct gradient *out, struct far_err *err)
{
	struct far_op_work work = {0};
	size_t unique = 0;
	memset(out, 0, sizeof *out);
	uint64_t n = far_tensor_count(index);
	if (!held_new(&out->index, pool, FAR_I64, 1, &n) ||
	    !held_new(&out->values, pool, (enum far_dtype)rows->dtype, rows->ndim, rows->shape)) {
		gradient_drop(out);
		return fail_memory(err, "sparse gradient", far_tensor_bytes(rows));
	}
	enum far_status status =
		far_op_sparse_sum(index, rows, table_rows, &out->index.t, &out->values.t, &unique, &work, err);
	if (!status && !work_take(pool, &work))
		status = fail_memory(err, "sparse gradient", work.bytes);
	if (!status)
		status = far_op_sparse_sum(index, rows, table_rows, &out->index.t, &out->values.t, &unique, &work, err);
	pool_give(work.data);
	if (status) {
		gradient_drop(out);
		return status;
	}
	out->index.t.shape[0] = unique;
	out->values.t.shape[0] = unique;
	out->set = true;
	return FAR_OK;
}

enum far_status gradient_own(struct far_pool *pool, struct gradient *g, struct far_err *err)
{
	struct held own = {0};
	if (held_is_own(&g->values))
		return FAR_OK;
	const struct far_tensor *t = &g->values.t;
	if (!held_new(&own, pool, (enum far_dtype)t->dtype, t->ndim, t->shape))
		return fail_memory(err, "gradient", far_tensor_bytes(t));
	far_op_copy(t, &own.t, NULL);
	held_drop(&g->values);
	held_move(&g->values, &own);
	return FAR_OK;
}

/** Rows of both, one after the other. */
static enum far_status join_rows(struct far_pool *pool, struct held *a, const struct held *b, struct far_err *err)
{
	struct held joined = {0};
	uint64_t shape[2] = {a->t.shape[0] + b->t.shape[0], a->t.shape[1]};
	if (!held_new(&joined, pool, (enum far_dtype)a->t.dtype, a->t.ndim, shape))
		return fail_memory(err, "sparse gradient", far_tensor_bytes(&a->t));
	enum far_status status = far_op_cat((const struct far_tensor *[]){&a->t, &b->t}, 2, 0, &joined.t, err);
	if (status) {
		held_drop(&joined);
		return status;
	}
	held_drop(a);
	held_move(a, &joined);
	return FAR_OK;
}

static enum far_status add_dense(struct far_pool *pool, struct gradient *into, struct gradient *g, struct far_err *err)
{
	if (!held_is_own(&into->values) && held_is_own(&g->values)) {
		struct gradient other = {0};
		gradient_move(&other, into);
		gradient_move(into, g);
		gradient_move(g, &other);
	}
	TRY(gradient_own(pool, into, err));
	return far_op_add(&into->values.t, &g->values.t, &into->values.t, err);
}

enum far_status gradient_add(struct far_pool *pool, const struct far_tensor *of, struct gradient *into,
			     struct gradient *g, struct far_err *err)
{
	if (!into->set) {
		gradient_move(into, g);
		return FAR_OK;
	}
	enum far_status status = FAR_OK;
	bool sparse_a = into->index.t.dtype != FAR_DTYPE_NONE;
	bool sparse_b = g->index.t.dtype != FAR_DTYPE_NONE;
	if (sparse_a && sparse_b) {
		status = join_rows(pool, &into->values, &g->values, err);
		if (!status)
			status = join_rows(pool, &into->index, &g->index, err);
	} else {
		if (sparse_a || sparse_b)
			status = rows_to_dense(pool, "gradient", sparse_a ? into : g, of, err);
		if (!status)
			status = add_dense(pool, into, g, err);
	}
	gradient_drop(g);
	return status;
}
