/* SPDX-License-Identifier: BSD-3-Clause */
/** Workspaces, and copies of operands in them. Any thread. */
#include "work.h"

#define ALIGNMENT 64

void *ops_take(struct ops_arena *arena, uint64_t count, size_t size)
{
	size_t bytes;
	char *memory = arena->base ? arena->base + arena->used : NULL;
	if (__builtin_mul_overflow(count, size, &bytes) || bytes > SIZE_MAX - ALIGNMENT ||
	    __builtin_add_overflow(arena->used, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, &arena->used))
		arena->used = SIZE_MAX;
	return memory;
}

enum far_status ops_work(const char *op, struct far_op_work *work, size_t need, struct ops_arena *arena,
			 struct far_err *err)
{
	*arena = (struct ops_arena){0};
	if (!work)
		return ops_fail(err, FAR_INVALID, "%s: work is NULL", op);
	if (need > PTRDIFF_MAX - ALIGNMENT)
		return ops_fail(err, FAR_TOO_LARGE, "%s: the workspace has more than %td bytes", op, PTRDIFF_MAX);
	need += ALIGNMENT;
	if (!work->data) {
		work->bytes = need;
		return FAR_OK;
	}
	if (work->bytes < need)
		return ops_fail(err, FAR_RESOURCE, "%s: the workspace has %zu bytes, this call needs %zu", op,
				work->bytes, need);
	arena->base = (char *)work->data + (ALIGNMENT - (uintptr_t)work->data % ALIGNMENT) % ALIGNMENT;
	return FAR_OK;
}

void ops_source_plan(struct ops_source *source, struct ops_arena *arena, const struct far_tensor *from, bool dense)
{
	source->from = from;
	source->copy = NULL;
	if (from && (ops_is_half((enum far_dtype)from->dtype) || (dense && !ops_is_dense(from))))
		source->copy = ops_take(arena, ops_count(from), ops_size(ops_arithmetic((enum far_dtype)from->dtype)));
}

void ops_source_load(struct ops_source *source)
{
	const struct far_tensor *from = source->from;
	if (!from)
		return;
	source->t = *from;
	if (!source->copy)
		return;
	source->t = ops_dense(ops_arithmetic((enum far_dtype)from->dtype), source->copy, from->ndim, from->shape);
	ops_copy(from, &source->t);
}

void ops_sink_plan(struct ops_sink *sink, struct ops_arena *arena, const struct far_tensor *to)
{
	sink->to = to;
	sink->data = to ? to->data : NULL;
	if (to && ops_is_half((enum far_dtype)to->dtype))
		sink->data = ops_take(arena, ops_count(to), sizeof(float));
}

void ops_sink_zero(const struct ops_sink *sink)
{
	if (ops_wanted(sink->to))
		memset(sink->data, 0, ops_count(sink->to) * ops_size(ops_arithmetic((enum far_dtype)sink->to->dtype)));
}

void ops_sink_store(const struct ops_sink *sink)
{
	if (!ops_wanted(sink->to) || sink->data == sink->to->data)
		return;
	struct far_tensor t = ops_dense(FAR_F32, sink->data, sink->to->ndim, sink->to->shape);
	ops_copy(&t, sink->to);
}

/* ---- products ---- */

static uint64_t blocked(uint64_t n, uint64_t block, uint64_t unit)
{
	return ((n < block ? n : block) + unit - 1) / unit * unit;
}

void *ops_gemm_plan(struct ops_arena *arena, enum far_dtype dtype, uint64_t m, uint64_t n, uint64_t k)
{
	const struct ops_gemm *gemm = ops_gemm();
	size_t size = ops_size(ops_arithmetic(dtype));
	uint64_t depth = k < OPS_GEMM_K ? k : OPS_GEMM_K;
	return ops_take(
		arena, depth * (blocked(m, OPS_GEMM_M, gemm->rows) + blocked(n, OPS_GEMM_N, gemm->column_bytes / size)),
		size);
}

void ops_multiply(enum far_dtype dtype, const struct ops_product *product, void *work)
{
	const struct ops_blas *blas = ops_blas();
	if (product->m == 0 || product->n == 0)
		return;
	if (product->k == 0) {
		for (size_t i = 0; i < product->m && !product->accumulate; i++)
			memset((char *)product->c + (ptrdiff_t)i * product->c_row * (ptrdiff_t)ops_size(dtype), 0,
			       product->n * ops_size(dtype));
		return;
	}
	if (blas && ops_blas_multiply(blas, dtype, product))
		return;
	if (dtype == FAR_F64)
		ops_gemm()->f64(product, work);
	else
		ops_gemm()->f32(product, work);
}

void ops_fill_rows(enum far_dtype dtype, void *c, uint64_t m, uint64_t n, const struct far_tensor *row)
{
	int64_t strides[2] = {0, ops_stride(row, 0)};
	struct far_tensor from = *row;
	from.ndim = 2;
	from.strides = strides;
	from.shape[0] = m;
	from.shape[1] = n;
	struct far_tensor to = ops_dense(dtype, c, 2, from.shape);
	if (m > 0 && n > 0)
		ops_copy(&from, &to);
}
