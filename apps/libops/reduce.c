/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums, means, smallest and largest elements along axes. Any thread. */
#include "space.h"

#include <inttypes.h>

/** The bits of `axes[0, n)`; all for n 0. */
static enum far_status axes_of(const char *op, const struct far_tensor *x, const int *axes, size_t n, unsigned *dims,
			       struct far_err *err)
{
	char text[OPS_TEXT];
	*dims = n ? 0 : (1u << x->ndim) - 1;
	for (size_t i = 0; i < n; i++) {
		TRY(ops_check_axis(op, "x", axes[i], x, err));
		if (*dims & 1u << axes[i])
			return ops_fail(err, FAR_INVALID, "%s: axis %d of x %s is given twice", op, axes[i],
					ops_text(x, text));
		*dims |= 1u << axes[i];
	}
	return FAR_OK;
}

/** The shape without the reduced dimensions, or with ones in their stead. */
static unsigned reduced_shape(const struct far_tensor *x, unsigned dims, bool keep, uint64_t *shape)
{
	unsigned ndim = 0;
	for (unsigned k = 0; k < x->ndim; k++)
		if (!(dims & 1u << k))
			shape[ndim++] = x->shape[k];
		else if (keep)
			shape[ndim++] = 1;
	return ndim;
}

static double reduced_count(const struct far_tensor *x, unsigned dims)
{
	return (double)ops_space(x->ndim, x->shape, dims).count;
}

static enum far_status sum(const char *op, bool mean, const struct far_tensor *x, const int *axes, size_t n, bool keep,
			   struct far_tensor *out, struct far_err *err)
{
	uint64_t shape[FAR_DIMS_MAX];
	unsigned dims;
	TRY(ops_check_float(op, "x", x, err));
	TRY(axes_of(op, x, axes, n, &dims, err));
	unsigned ndim = reduced_shape(x, dims, keep, shape);
	TRY(ops_output(op, "out", out, (enum far_dtype)x->dtype, ndim, shape, err));
	TRY(ops_apart(op, "out", out, "x", x, false, err));
	struct ops_sum how = {NULL, 0, mean ? reduced_count(x, dims) : 1};
	if (ops_wanted(out))
		ops_sum(&how, out, &x, 1, x->ndim, x->shape, dims);
	return FAR_OK;
}

enum far_status far_op_sum(const struct far_tensor *x, const int *axes, size_t n, bool keep, struct far_tensor *out,
			   struct far_err *err)
{
	return sum("sum", false, x, axes, n, keep, out, err);
}

enum far_status far_op_mean(const struct far_tensor *x, const int *axes, size_t n, bool keep, struct far_tensor *out,
			    struct far_err *err)
{
	return sum("mean", true, x, axes, n, keep, out, err);
}

/** `t`, of the shape reduced_shape(), with all dimensions of `x`: the reduced ones with size 1. `strides` is its own.
 */
static struct far_tensor with_reduced(const struct far_tensor *t, const struct far_tensor *x, unsigned dims, bool keep,
				      int64_t *strides)
{
	struct far_tensor all = *t;
	unsigned from = 0;
	all.ndim = x->ndim;
	all.strides = strides;
	for (unsigned k = 0; k < x->ndim; k++) {
		bool reduced = dims & 1u << k;
		all.shape[k] = reduced ? 1 : x->shape[k];
		strides[k] = reduced ? 0 : ops_stride(t, from);
		from += !reduced || keep;
	}
	return all;
}

static enum far_status sum_backward(const char *op, bool mean, const struct far_tensor *grad,
				    const struct far_tensor *x, const int *axes, size_t n, bool keep,
				    struct far_tensor *dx, struct far_err *err)
{
	uint64_t shape[FAR_DIMS_MAX];
	int64_t strides[FAR_DIMS_MAX];
	unsigned dims;
	TRY(ops_check_float(op, "x", x, err));
	TRY(axes_of(op, x, axes, n, &dims, err));
	unsigned ndim = reduced_shape(x, dims, keep, shape);
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, ndim, shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	if (!ops_wanted(dx))
		return FAR_OK;
	struct far_tensor all = with_reduced(grad, x, dims, keep, strides);
	const struct far_tensor *in = &all;
	struct ops_sum how = {ops_kernel(OPS_SCALE, (enum far_dtype)x->dtype), 1, 1};
	if (mean)
		how.p = 1 / reduced_count(x, dims);
	ops_sum(&how, dx, &in, 1, x->ndim, x->shape, 0);
	return FAR_OK;
}

enum far_status far_op_sum_backward(const struct far_tensor *grad, const struct far_tensor *x, const int *axes,
				    size_t n, bool keep, struct far_tensor *dx, struct far_err *err)
{
	return sum_backward("sum_backward", false, grad, x, axes, n, keep, dx, err);
}

enum far_status far_op_mean_backward(const struct far_tensor *grad, const struct far_tensor *x, const int *axes,
				     size_t n, bool keep, struct far_tensor *dx, struct far_err *err)
{
	return sum_backward("mean_backward", true, grad, x, axes, n, keep, dx, err);
}

enum far_status far_op_expand_backward(const struct far_tensor *grad, const struct far_tensor *x, struct far_tensor *dx,
				       struct far_err *err)
{
	static const char op[] = "expand_backward";
	char text_x[OPS_TEXT];
	char text_grad[OPS_TEXT];
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_like(op, "grad", grad, "x", x, err));
	bool fits = grad->ndim >= x->ndim;
	for (unsigned k = 0; k < x->ndim && fits; k++)
		fits = x->shape[k] == 1 || x->shape[k] == grad->shape[grad->ndim - x->ndim + k];
	if (!fits)
		return ops_fail(err, FAR_INVALID, "%s: x %s does not broadcast to grad %s", op, ops_text(x, text_x),
				ops_text(grad, text_grad));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	struct ops_sum how = {NULL, 0, 1};
	if (ops_wanted(dx))
		ops_sum(&how, dx, &grad, 1, grad->ndim, grad->shape, ops_repeated(dx, grad->ndim, grad->shape));
	return FAR_OK;
}

/* ---- the smallest and the largest element ---- */

/* Of a block: best[i] and index[i] become x[i] and `at` where x[i] is better. */
typedef void best_kernel(void *best, int64_t *index, const void *x, int64_t at, size_t n);

#define BEST(name, T, better)                                                                                          \
	static void name(void *best, int64_t *index, const void *values, int64_t at, size_t n)                         \
	{                                                                                                              \
		T *b = best;                                                                                           \
		const T *v = values;                                                                                   \
		for (size_t i = 0; i < n; i++) {                                                                       \
			T x = v[i];                                                                                    \
			T y = b[i];                                                                                    \
			bool take = better;                                                                            \
			b[i] = take ? x : y;                                                                           \
			index[i] = take ? at : index[i];                                                               \
		}                                                                                                      \
	}
#define BESTS(name, T)                                                                                                 \
	BEST(min_##name, T, x < y)                                                                                     \
	BEST(max_##name, T, x > y)
BESTS(i8, int8_t)
BESTS(i16, int16_t)
BESTS(i32, int32_t)
BESTS(i64, int64_t)
BESTS(u8, uint8_t)
BESTS(u64, uint64_t)
/* The first NaN wins, and stays. */
BEST(min_f32, float, x < y || (x != x && y == y))
BEST(max_f32, float, x > y || (x != x && y == y))
BEST(min_f64, double, x < y || (x != x && y == y))
BEST(max_f64, double, x > y || (x != x && y == y))
BEST(min_bool, uint8_t, !x && y)
BEST(max_bool, uint8_t, x && !y)

#define BEST_ROW(op)                                                                                                   \
	{                                                                                                              \
		[FAR_F32] = op##_f32, [FAR_F64] = op##_f64, [FAR_I8] = op##_i8, [FAR_I16] = op##_i16,                  \
		[FAR_I32] = op##_i32, [FAR_I64] = op##_i64, [FAR_U8] = op##_u8, [FAR_U64] = op##_u64,                  \
		[FAR_BOOL] = op##_bool,                                                                                \
	}
static best_kernel *const best_kernels[2][FAR_DTYPE_COUNT] = {BEST_ROW(min), BEST_ROW(max)};

/** A block of results at a time, along the axis. */
static void best_run(best_kernel *kernel, const struct far_tensor *x, int axis, const struct far_tensor *out,
		     struct far_tensor *index)
{
	unsigned along = 1u << axis;
	unsigned others = ((1u << x->ndim) - 1) & ~along;
	struct ops_space kept = ops_space(x->ndim, x->shape, others);
	struct ops_operand in = ops_operand(x, x->ndim, x->shape, others);
	struct ops_operand *operands[1] = {&in};
	struct ops_operand to = {.data = out->data,
				 .dtype = (enum far_dtype)out->dtype,
				 .size = (uint8_t)ops_size((enum far_dtype)out->dtype),
				 .direct = true};
	size_t size = ops_size(ops_arithmetic((enum far_dtype)x->dtype));
	ops_space_fold(&kept, operands, 1);
	for (uint64_t at = 0; at < kept.count; at += OPS_BLOCK) {
		union ops_block block, best;
		int64_t found[OPS_BLOCK] = {0};
		size_t n = kept.count - at < OPS_BLOCK ? (size_t)(kept.count - at) : OPS_BLOCK;
		memcpy(&best, ops_read(&kept, &in, 0, at, n, &block), n * size);
		for (uint64_t i = 1; i < x->shape[axis]; i++)
			kernel(&best, found,
			       ops_read(&kept, &in, (int64_t)i * ops_stride(x, (unsigned)axis), at, n, &block),
			       (int64_t)i, n);
		void *target = ops_target(&to, 0, at, &block);
		memcpy(target, &best, n * size);
		ops_write(&kept, &to, 0, at, n, target);
		if (ops_wanted(index))
			memcpy((int64_t *)index->data + at, found, n * sizeof *found);
	}
}

static enum far_status best(const char *op, bool largest, const struct far_tensor *x, int axis, bool keep,
			    struct far_tensor *out, struct far_tensor *index, struct far_err *err)
{
	char text[OPS_TEXT];
	uint64_t shape[FAR_DIMS_MAX];
	TRY(ops_check(op, "x", x, err));
	TRY(ops_check_axis(op, "x", axis, x, err));
	unsigned ndim = reduced_shape(x, 1u << axis, keep, shape);
	TRY(ops_output(op, "out", out, (enum far_dtype)x->dtype, ndim, shape, err));
	TRY(ops_apart(op, "out", out, "x", x, false, err));
	if (index) {
		TRY(ops_output(op, "index", index, FAR_I64, ndim, shape, err));
		TRY(ops_apart(op, "index", index, "x", x, false, err));
		TRY(ops_apart(op, "index", index, "out", out, false, err));
	}
	if (x->shape[axis] == 0 && reduced_count(x, ~(1u << axis)) > 0)
		return ops_fail(err, FAR_INVALID, "%s: axis %d of x %s has no elements", op, axis, ops_text(x, text));
	if (ops_wanted(out))
		best_run(best_kernels[largest][ops_arithmetic((enum far_dtype)x->dtype)], x, axis, out, index);
	return FAR_OK;
}

enum far_status far_op_min_axis(const struct far_tensor *x, int axis, bool keep, struct far_tensor *out,
				struct far_tensor *index, struct far_err *err)
{
	return best("min_axis", false, x, axis, keep, out, index, err);
}

enum far_status far_op_max_axis(const struct far_tensor *x, int axis, bool keep, struct far_tensor *out,
				struct far_tensor *index, struct far_err *err)
{
	return best("max_axis", true, x, axis, keep, out, index, err);
}

static enum far_status best_backward(const char *op, const struct far_tensor *grad, const struct far_tensor *x,
				     const struct far_tensor *index, int axis, bool keep, struct far_tensor *dx,
				     struct far_err *err)
{
	uint64_t shape[FAR_DIMS_MAX];
	TRY(ops_check_float(op, "x", x, err));
	TRY(ops_check_axis(op, "x", axis, x, err));
	unsigned ndim = reduced_shape(x, 1u << axis, keep, shape);
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, ndim, shape, err));
	TRY(ops_check_shape(op, "index", index, FAR_I64, ndim, shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	TRY(ops_apart(op, "dx", dx, "index", index, false, err));
	if (!ops_wanted(dx))
		return FAR_OK;
	unsigned all = (1u << ndim) - 1;
	struct ops_space space = ops_space(ndim, shape, all);
	struct ops_operand from = ops_operand(grad, ndim, shape, all);
	struct ops_operand where = ops_operand(index, ndim, shape, all);
	struct ops_operand *operands[2] = {&from, &where};
	ops_space_fold(&space, operands, 2);
	uint64_t length = x->shape[axis];
	uint64_t inner = 1;
	for (unsigned k = (unsigned)axis + 1; k < x->ndim; k++)
		inner *= x->shape[k];
	for (uint64_t i = 0; i < space.count; i++) {
		int64_t at = *(const int64_t *)(const void *)(where.data + ops_offset(&space, &where, i) * 8);
		if (at < 0 || (uint64_t)at >= length)
			return ops_fail(err, FAR_INVALID, "%s: index %" PRId64 " is not in [0, %" PRIu64 ")", op, at,
					length);
	}
	size_t size = from.size;
	memset(dx->data, 0, ops_count(dx) * size);
	for (uint64_t i = 0; i < space.count; i++) {
		uint64_t at = *(const uint64_t *)(const void *)(where.data + ops_offset(&space, &where, i) * 8);
		memcpy((char *)dx->data + ((i / inner * length + at) * inner + i % inner) * size,
		       from.data + ops_offset(&space, &from, i) * (int64_t)size, size);
	}
	return FAR_OK;
}

enum far_status far_op_min_axis_backward(const struct far_tensor *grad, const struct far_tensor *x,
					 const struct far_tensor *index, int axis, bool keep, struct far_tensor *dx,
					 struct far_err *err)
{
	return best_backward("min_axis_backward", grad, x, index, axis, keep, dx, err);
}

enum far_status far_op_max_axis_backward(const struct far_tensor *grad, const struct far_tensor *x,
					 const struct far_tensor *index, int axis, bool keep, struct far_tensor *dx,
					 struct far_err *err)
{
	return best_backward("max_axis_backward", grad, x, index, axis, keep, dx, err);
}
