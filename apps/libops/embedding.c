/* SPDX-License-Identifier: BSD-3-Clause */
/** Embeddings and their sparse gradients. Any thread. */
#include "work.h"

#include <inttypes.h>

/* Indices of any shape, in row-major order. */
struct indices {
	struct ops_space space;
	struct ops_operand operand;
};

static struct indices indices_of(const struct far_tensor *t)
{
	unsigned all = (1u << t->ndim) - 1;
	struct indices x = {ops_space(t->ndim, t->shape, all), ops_operand(t, t->ndim, t->shape, all)};
	ops_space_fold(&x.space, (struct ops_operand *[]){&x.operand}, 1);
	return x;
}

static int64_t index_at(const struct indices *x, uint64_t i)
{
	const char *at = x->operand.data + ops_offset(&x->space, &x->operand, i) * x->operand.size;
	return x->operand.dtype == FAR_I64 ? *(const int64_t *)(const void *)at : *(const int32_t *)(const void *)at;
}

static enum far_status check_indices(const char *op, const struct far_tensor *index, uint64_t rows, struct far_err *err)
{
	char text[OPS_TEXT];
	TRY(ops_check_index(op, "index", index, err));
	struct indices all = indices_of(index);
	for (uint64_t i = 0; i < all.space.count; i++) {
		int64_t at = index_at(&all, i);
		if (at < 0 || (uint64_t)at >= rows)
			return ops_fail(err, FAR_INVALID,
					"%s: element %" PRIu64 " of index %s is %" PRId64 ", not in [0, %" PRIu64 ")",
					op, i, ops_text(index, text), at, rows);
	}
	return FAR_OK;
}

static enum far_status check_table(const char *op, const struct far_tensor *w, struct far_err *err)
{
	char text[OPS_TEXT];
	if (w->ndim != 2)
		return ops_fail(err, FAR_INVALID, "%s: w %s must be [rows,width]", op, ops_text(w, text));
	return FAR_OK;
}

/** The shape of `index` and the width. */
static enum far_status rows_shape(const char *op, const struct far_tensor *index, uint64_t width, uint64_t *shape,
				  struct far_err *err)
{
	char text[OPS_TEXT];
	if (index->ndim == FAR_DIMS_MAX)
		return ops_fail(err, FAR_INVALID, "%s: index %s has too many dimensions, the limit is %u", op,
				ops_text(index, text), FAR_DIMS_MAX - 1);
	memcpy(shape, index->shape, index->ndim * sizeof *shape);
	shape[index->ndim] = width;
	return FAR_OK;
}

/* A tensor as rows: all dimensions but the last are numbered in row-major order. */
struct rows {
	struct ops_space rows, width;
	struct ops_operand rows_of, width_of;
};

static struct rows rows_of(const struct far_tensor *t)
{
	unsigned last = 1u << (t->ndim - 1);
	struct rows r = {ops_space(t->ndim, t->shape, last - 1), ops_space(t->ndim, t->shape, last),
			 ops_operand(t, t->ndim, t->shape, last - 1), ops_operand(t, t->ndim, t->shape, last)};
	ops_space_fold(&r.rows, (struct ops_operand *[]){&r.rows_of}, 1);
	ops_space_fold(&r.width, (struct ops_operand *[]){&r.width_of}, 1);
	return r;
}

static int64_t row_base(const struct rows *r, uint64_t row)
{
	return ops_offset(&r->rows, &r->rows_of, row);
}

static size_t block_at(uint64_t width, uint64_t at)
{
	return width - at < OPS_BLOCK ? (size_t)(width - at) : OPS_BLOCK;
}

enum far_status far_op_embedding(const struct far_tensor *w, const struct far_tensor *index, struct far_tensor *out,
				 struct far_err *err)
{
	static const char op[] = "embedding";
	static const uint8_t as_integer[] = {[1] = FAR_I8, [2] = FAR_I16, [4] = FAR_I32, [8] = FAR_I64};
	uint64_t shape[FAR_DIMS_MAX];
	TRY(ops_check(op, "w", w, err));
	TRY(check_table(op, w, err));
	TRY(check_indices(op, index, w->shape[0], err));
	TRY(rows_shape(op, index, w->shape[1], shape, err));
	TRY(ops_output(op, "out", out, (enum far_dtype)w->dtype, index->ndim + 1u, shape, err));
	TRY(ops_apart(op, "out", out, "w", w, false, err));
	TRY(ops_apart(op, "out", out, "index", index, false, err));
	if (!ops_wanted(out))
		return FAR_OK;
	struct indices all = indices_of(index);
	struct rows table = rows_of(w);
	size_t size = table.width_of.size;
	char *to = out->data;
	table.width_of.dtype = (enum far_dtype)as_integer[size]; /* moved as they are */
	for (uint64_t i = 0; i < all.space.count; i++) {
		int64_t base = row_base(&table, (uint64_t)index_at(&all, i));
		if (table.width_of.direct) {
			memcpy(to, table.width_of.data + base * (int64_t)size, w->shape[1] * size);
			to += w->shape[1] * size;
			continue;
		}
		for (uint64_t at = 0; at < w->shape[1]; at += OPS_BLOCK) {
			union ops_block block;
			size_t n = block_at(w->shape[1], at);
			memcpy(to, ops_read(&table.width, &table.width_of, base, at, n, &block), n * size);
			to += n * size;
		}
	}
	return FAR_OK;
}

/* ---- rows with the same index ---- */

struct entry {
	int64_t index;
	uint64_t row; /* in the gradient */
};

/** Sorts by index; entries with the same one keep their order. Returns `a` or `b`, which holds the result. */
static struct entry *sort(struct entry *a, struct entry *b, uint64_t n)
{
	for (uint64_t run = 1; run < n; run *= 2) {
		for (uint64_t at = 0; at < n; at += 2 * run) {
			uint64_t middle = at + run < n ? at + run : n;
			uint64_t end = middle + run < n ? middle + run : n;
			uint64_t l = at, r = middle;
			for (uint64_t to = at; to < end; to++)
				b[to] = r == end || (l < middle && a[l].index <= a[r].index) ? a[l++] : a[r++];
		}
		struct entry *other = a;
		a = b;
		b = other;
	}
	return a;
}

struct sums {
	struct entry *a, *b;
};

static void sums_plan(struct sums *s, struct ops_arena *arena, uint64_t n)
{
	s->a = ops_take(arena, n, sizeof *s->a);
	s->b = ops_take(arena, n, sizeof *s->b);
}

/**
 * Sums rows with the same index to rows of `to`: to the one with this index, or, with `unique`, to consecutive ones,
 * whose indices it then holds. Returns the number of different indices.
 */
static uint64_t sum_rows(const struct sums *s, const struct indices *index, const struct rows *from,
			 const struct rows *to, int64_t *unique)
{
	uint64_t n = index->space.count;
	uint64_t width = from->width.count;
	uint64_t found = 0;
	bool f64 = from->width_of.dtype == FAR_F64;
	for (uint64_t i = 0; i < n; i++)
		s->a[i] = (struct entry){index_at(index, i), i};
	const struct entry *sorted = sort(s->a, s->b, n);
	for (uint64_t first = 0, end; first < n; first = end, found++) {
		for (end = first + 1; end < n && sorted[end].index == sorted[first].index; end++)
			;
		int64_t target = row_base(to, unique ? found : (uint64_t)sorted[first].index);
		if (unique)
			unique[found] = sorted[first].index;
		for (uint64_t at = 0; at < width; at += OPS_BLOCK) {
			union ops_block block;
			double sums[OPS_BLOCK] = {0};
			size_t length = block_at(width, at);
			for (uint64_t i = first; i < end; i++) {
				const void *row = ops_read(&from->width, &from->width_of, row_base(from, sorted[i].row),
							   at, length, &block);
				if (f64)
					ops_kernels()->accumulate_f64(sums, row, length);
				else
					ops_kernels()->accumulate_f32(sums, row, length);
			}
			void *result = ops_target(&to->width_of, target, at, &block);
			for (size_t i = 0; i < length; i++)
				if (f64)
					((double *)result)[i] = sums[i];
				else
					((float *)result)[i] = (float)sums[i];
			ops_write(&to->width, &to->width_of, target, at, length, result);
		}
	}
	return found;
}

enum far_status far_op_embedding_backward(const struct far_tensor *grad, const struct far_tensor *w,
					  const struct far_tensor *index, struct far_tensor *dw,
					  struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "embedding_backward";
	struct ops_arena arena = {0};
	struct sums s;
	uint64_t shape[FAR_DIMS_MAX];
	TRY(ops_check_float(op, "w", w, err));
	TRY(check_table(op, w, err));
	TRY(check_indices(op, index, w->shape[0], err));
	TRY(rows_shape(op, index, w->shape[1], shape, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)w->dtype, index->ndim + 1u, shape, err));
	TRY(ops_output(op, "dw", dw, (enum far_dtype)w->dtype, 2, w->shape, err));
	TRY(ops_apart(op, "dw", dw, "grad", grad, false, err));
	TRY(ops_apart(op, "dw", dw, "index", index, false, err));
	sums_plan(&s, &arena, ops_count(index));
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base || !ops_wanted(dw))
		return FAR_OK;
	sums_plan(&s, &arena, ops_count(index));
	memset(dw->data, 0, ops_count(dw) * ops_size((enum far_dtype)dw->dtype));
	struct indices all = indices_of(index);
	struct rows from = rows_of(grad);
	struct rows to = rows_of(dw);
	sum_rows(&s, &all, &from, &to, NULL);
	return FAR_OK;
}

enum far_status far_op_sparse_sum(const struct far_tensor *index, const struct far_tensor *rows, uint64_t table_rows,
				  struct far_tensor *unique_index, struct far_tensor *unique_rows, size_t *unique,
				  struct far_op_work *work, struct far_err *err)
{
	static const char op[] = "sparse_sum";
	struct ops_arena arena = {0};
	struct sums s;
	char text_index[OPS_TEXT];
	char text_rows[OPS_TEXT];
	TRY(ops_check_float(op, "rows", rows, err));
	TRY(check_indices(op, index, table_rows, err));
	bool fits = rows->ndim > 0 && ops_count(rows) == ops_count(index) * rows->shape[rows->ndim - 1];
	if (fits && rows->shape[rows->ndim - 1] == 0) /* no elements: the number of rows is not in their count */
		fits = rows_of(rows).rows.count == ops_count(index);
	if (!fits)
		return ops_fail(err, FAR_INVALID, "%s: index %s and rows %s: there is not one row for each index", op,
				ops_text(index, text_index), ops_text(rows, text_rows));
	if (!unique)
		return ops_fail(err, FAR_INVALID, "%s: unique is NULL", op);
	uint64_t shape[2] = {ops_count(index), rows->shape[rows->ndim - 1]};
	TRY(ops_output(op, "unique_index", unique_index, FAR_I64, 1, shape, err));
	TRY(ops_output(op, "unique_rows", unique_rows, (enum far_dtype)rows->dtype, 2, shape, err));
	TRY(ops_apart(op, "unique_index", unique_index, "index", index, false, err));
	TRY(ops_apart(op, "unique_index", unique_index, "rows", rows, false, err));
	TRY(ops_apart(op, "unique_rows", unique_rows, "index", index, false, err));
	TRY(ops_apart(op, "unique_rows", unique_rows, "rows", rows, false, err));
	TRY(ops_apart(op, "unique_rows", unique_rows, "unique_index", unique_index, false, err));
	sums_plan(&s, &arena, shape[0]);
	TRY(ops_work(op, work, arena.used, &arena, err));
	if (!arena.base)
		return FAR_OK;
	*unique = 0;
	if (!ops_wanted(unique_index) || (!ops_wanted(unique_rows) && ops_count(unique_rows) > 0))
		return FAR_OK;
	sums_plan(&s, &arena, shape[0]);
	struct indices all = indices_of(index);
	struct rows from = rows_of(rows);
	struct rows to = rows_of(unique_rows);
	*unique = (size_t)sum_rows(&s, &all, &from, &to, unique_index->data);
	return FAR_OK;
}

/* ---- bags ---- */

static enum far_status check_bags(const char *op, const struct far_tensor *index, const struct far_tensor *offsets,
				  enum far_op_bag mode, struct far_err *err)
{
	char text_index[OPS_TEXT];
	char text_offsets[OPS_TEXT];
	TRY(ops_check_index(op, "index", index, err));
	TRY(ops_check_index(op, "offsets", offsets, err));
	if (mode != FAR_OP_BAG_SUM && mode != FAR_OP_BAG_MEAN)
		return ops_fail(err, FAR_INVALID, "%s: there is no mode %d", op, (int)mode);
	if (index->ndim != 1 || offsets->ndim != 1)
		return ops_fail(err, FAR_INVALID, "%s: index %s must be [n] and offsets %s [bags]", op,
				ops_text(index, text_index), ops_text(offsets, text_offsets));
	struct indices all = indices_of(offsets);
	int64_t before = 0;
	for (uint64_t i = 0; i < all.space.count; i++) {
		int64_t at = index_at(&all, i);
		if (at < before || (i == 0 && at != 0) || (uint64_t)at > index->shape[0])
			return ops_fail(err, FAR_INVALID,
					"%s: offsets[%" PRIu64 "] is %" PRId64
					": they begin with 0, ascend, and are at most "
					"%" PRIu64 ", the number of indices",
					op, i, at, index->shape[0]);
		before = at;
	}
	if (all.space.count == 0 && index->shape[0] > 0)
		return ops_fail(err, FAR_INVALID, "%s: index %s is in no bag", op, ops_text(index, text_index));
	return FAR_OK;
}

/** End of a bag, in indices. */
static uint64_t bag_end(const struct indices *offsets, uint64_t bag, uint64_t n)
{
	return bag + 1 < offsets->space.count ? (uint64_t)index_at(offsets, bag + 1) : n;
}

enum far_status far_op_embedding_bag(const struct far_tensor *w, const struct far_tensor *index,
				     const struct far_tensor *offsets, enum far_op_bag mode, struct far_tensor *out,
				     struct far_err *err)
{
	static const char op[] = "embedding_bag";
	TRY(ops_check_float(op, "w", w, err));
	TRY(check_table(op, w, err));
	TRY(check_bags(op, index, offsets, mode, err));
	TRY(check_indices(op, index, w->shape[0], err));
	TRY(ops_output(op, "out", out, (enum far_dtype)w->dtype, 2, (const uint64_t[]){offsets->shape[0], w->shape[1]},
		       err));
	TRY(ops_apart(op, "out", out, "w", w, false, err));
	TRY(ops_apart(op, "out", out, "index", index, false, err));
	TRY(ops_apart(op, "out", out, "offsets", offsets, false, err));
	if (!ops_wanted(out))
		return FAR_OK;
	struct indices all = indices_of(index);
	struct indices bags = indices_of(offsets);
	struct rows table = rows_of(w);
	struct rows to = rows_of(out);
	bool f64 = w->dtype == FAR_F64;
	uint64_t first = 0;
	for (uint64_t bag = 0, end; bag < bags.space.count; bag++, first = end) {
		end = bag_end(&bags, bag, index->shape[0]);
		int64_t target = row_base(&to, bag);
		double divisor = mode == FAR_OP_BAG_MEAN && end > first ? (double)(end - first) : 1;
		for (uint64_t at = 0; at < w->shape[1]; at += OPS_BLOCK) {
			union ops_block block;
			double sums[OPS_BLOCK] = {0};
			size_t n = block_at(w->shape[1], at);
			for (uint64_t i = first; i < end; i++) {
				int64_t base = row_base(&table, (uint64_t)index_at(&all, i));
				const void *row = ops_read(&table.width, &table.width_of, base, at, n, &block);
				if (f64)
					ops_kernels()->accumulate_f64(sums, row, n);
				else
					ops_kernels()->accumulate_f32(sums, row, n);
			}
			void *result = ops_target(&to.width_of, target, at, &block);
			for (size_t i = 0; i < n; i++)
				if (f64)
					((double *)result)[i] = sums[i] / divisor;
				else
					((float *)result)[i] = (float)(sums[i] / divisor);
			ops_write(&to.width, &to.width_of, target, at, n, result);
		}
	}
	return FAR_OK;
}

enum far_status far_op_embedding_bag_backward(const struct far_tensor *grad, const struct far_tensor *index,
					      const struct far_tensor *offsets, enum far_op_bag mode,
					      struct far_tensor *rows, struct far_err *err)
{
	static const char op[] = "embedding_bag_backward";
	char text_grad[OPS_TEXT];
	char text_offsets[OPS_TEXT];
	TRY(ops_check_float(op, "grad", grad, err));
	TRY(check_bags(op, index, offsets, mode, err));
	if (grad->ndim != 2 || grad->shape[0] != offsets->shape[0])
		return ops_fail(err, FAR_INVALID, "%s: grad %s must be [bags,width] and offsets %s [bags]", op,
				ops_text(grad, text_grad), ops_text(offsets, text_offsets));
	TRY(ops_output(op, "rows", rows, (enum far_dtype)grad->dtype, 2,
		       (const uint64_t[]){index->shape[0], grad->shape[1]}, err));
	TRY(ops_apart(op, "rows", rows, "grad", grad, false, err));
	TRY(ops_apart(op, "rows", rows, "index", index, false, err));
	TRY(ops_apart(op, "rows", rows, "offsets", offsets, false, err));
	if (!ops_wanted(rows))
		return FAR_OK;
	struct indices bags = indices_of(offsets);
	struct rows from = rows_of(grad);
	struct rows to = rows_of(rows);
	ops_map_kernel *scale = ops_kernel(OPS_SCALE, (enum far_dtype)grad->dtype);
	uint64_t first = 0;
	for (uint64_t bag = 0, end; bag < bags.space.count; bag++, first = end) {
		end = bag_end(&bags, bag, index->shape[0]);
		double factor = mode == FAR_OP_BAG_MEAN ? 1 / (double)(end - first) : 1;
		for (uint64_t i = first; i < end; i++)
			for (uint64_t at = 0; at < grad->shape[1]; at += OPS_BLOCK) {
				union ops_block block, result;
				size_t n = block_at(grad->shape[1], at);
				const void *in =
					ops_read(&from.width, &from.width_of, row_base(&from, bag), at, n, &block);
				void *target = ops_target(&to.width_of, row_base(&to, i), at, &result);
				scale(target, &in, factor, n);
				ops_write(&to.width, &to.width_of, row_base(&to, i), at, n, target);
			}
	}
	return FAR_OK;
}
