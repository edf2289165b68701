/* SPDX-License-Identifier: BSD-3-Clause */
/** Copies, conversions, views and concatenation. Any thread. */
#include "work.h"

#include <inttypes.h>

/* ---- conversions ---- */

/* The nearest T, towards 0; NaN is 0. `above`: the first power of two past the largest T. */
#define SATURATE(name, T, least, most, above)                                                                          \
	static T name(double x)                                                                                        \
	{                                                                                                              \
		if (x != x)                                                                                            \
			return 0;                                                                                      \
		return x <= (double)(least) ? (least) : x >= (above) ? (most) : (T)x;                                  \
	}
SATURATE(to_i8, int8_t, INT8_MIN, INT8_MAX, 0x1p7)
SATURATE(to_i16, int16_t, INT16_MIN, INT16_MAX, 0x1p15)
SATURATE(to_i32, int32_t, INT32_MIN, INT32_MAX, 0x1p31)
SATURATE(to_i64, int64_t, INT64_MIN, INT64_MAX, 0x1p63)
SATURATE(to_u8, uint8_t, 0, UINT8_MAX, 0x1p8)
SATURATE(to_u64, uint64_t, 0, UINT64_MAX, 0x1p64)

/** f32 with the last bit set if bits were lost: rounding it again to fewer bits rounds `x` once. */
static float to_odd(double x)
{
	float f = (float)x;
	uint32_t bits;
	if ((double)f == x || x != x)
		return f;
	memcpy(&bits, &f, sizeof bits);
	if (!(bits & 1))
		bits += __builtin_fabs(x) > (double)__builtin_fabsf(f) ? 1 : UINT32_MAX;
	memcpy(&f, &bits, sizeof f);
	return f;
}

/** f64 with a low bit set if bits were lost. */
static double integer_to_odd(uint64_t magnitude, bool negative)
{
	if (magnitude >> 53)
		magnitude = (magnitude & ~0x7ffull) | (magnitude & 0x7ff ? 0x800 : 0);
	return negative ? -(double)magnitude : (double)magnitude;
}

/* `d`, `s`, `n`: parameters of the function. */
#define EACH(T, S, expr)                                                                                               \
	do {                                                                                                           \
		T *to_array = d;                                                                                       \
		const S *from_array = s;                                                                               \
		for (size_t i = 0; i < n; i++) {                                                                       \
			S x = from_array[i];                                                                           \
			to_array[i] = (T)(expr);                                                                       \
		}                                                                                                      \
	} while (0);                                                                                                   \
	return

#define FROM(name, S, i8, i16, i32, i64, u8, u64, half)                                                                \
	static void name(enum far_dtype to, void *d, const void *s, size_t n)                                          \
	{                                                                                                              \
		switch (to) {                                                                                          \
		case FAR_F32:                                                                                          \
			EACH(float, S, x);                                                                             \
		case FAR_F64:                                                                                          \
			EACH(double, S, x);                                                                            \
		case FAR_I8:                                                                                           \
			EACH(int8_t, S, i8(x));                                                                        \
		case FAR_I16:                                                                                          \
			EACH(int16_t, S, i16(x));                                                                      \
		case FAR_I32:                                                                                          \
			EACH(int32_t, S, i32(x));                                                                      \
		case FAR_I64:                                                                                          \
			EACH(int64_t, S, i64(x));                                                                      \
		case FAR_U8:                                                                                           \
			EACH(uint8_t, S, u8(x));                                                                       \
		case FAR_U64:                                                                                          \
			EACH(uint64_t, S, u64(x));                                                                     \
		case FAR_BOOL:                                                                                         \
			EACH(uint8_t, S, x != 0);                                                                      \
		case FAR_BF16:                                                                                         \
		case FAR_F16: /* an f32 that is rounded again */                                                       \
			EACH(float, S, half(x));                                                                       \
		case FAR_DTYPE_NONE:                                                                                   \
		case FAR_DTYPE_COUNT:                                                                                  \
			break;                                                                                         \
		}                                                                                                      \
	}

#define LOW_BITS(x)                 (x)
#define SIGNED_HALF(x)              to_odd(integer_to_odd((x) < 0 ? 0 - (uint64_t)(x) : (uint64_t)(x), (x) < 0))
#define UNSIGNED_HALF(x)            to_odd(integer_to_odd((x), false))
#define FROM_FLOAT(name, S)         FROM(name, S, to_i8, to_i16, to_i32, to_i64, to_u8, to_u64, to_odd)
#define FROM_INTEGER(name, S, half) FROM(name, S, LOW_BITS, LOW_BITS, LOW_BITS, LOW_BITS, LOW_BITS, LOW_BITS, half)
FROM_FLOAT(from_f32, float)
FROM_FLOAT(from_f64, double)
FROM_INTEGER(from_i8, int8_t, SIGNED_HALF)
FROM_INTEGER(from_i16, int16_t, SIGNED_HALF)
FROM_INTEGER(from_i32, int32_t, SIGNED_HALF)
FROM_INTEGER(from_i64, int64_t, SIGNED_HALF)
FROM_INTEGER(from_u8, uint8_t, UNSIGNED_HALF)
FROM_INTEGER(from_u64, uint64_t, UNSIGNED_HALF)
#define TRUTH(x) ((x) != 0)
FROM(from_bool, uint8_t, TRUTH, TRUTH, TRUTH, TRUTH, TRUTH, TRUTH, TRUTH)

void ops_convert(enum far_dtype to, void *d, enum far_dtype from, const void *s, size_t n)
{
	static void (*const functions[FAR_DTYPE_COUNT])(enum far_dtype, void *, const void *, size_t) = {
		[FAR_F32] = from_f32, [FAR_F64] = from_f64, [FAR_I8] = from_i8,
		[FAR_I16] = from_i16, [FAR_I32] = from_i32, [FAR_I64] = from_i64,
		[FAR_U8] = from_u8,   [FAR_U64] = from_u64, [FAR_BOOL] = from_bool};
	functions[from](to, d, s, n);
}

void ops_copy(const struct far_tensor *x, const struct far_tensor *out)
{
	/* Elements of the same dtype are moved as integers, which keeps all bits of a NaN. */
	static const uint8_t as_integer[] = {[1] = FAR_I8, [2] = FAR_I16, [4] = FAR_I32, [8] = FAR_I64};
	unsigned all = (1u << x->ndim) - 1;
	bool same = x->dtype == out->dtype;
	struct ops_space space = ops_space(x->ndim, x->shape, all);
	struct ops_operand from = ops_operand(x, x->ndim, x->shape, all);
	struct ops_operand to = ops_operand(out, x->ndim, x->shape, all);
	ops_space_fold(&space, (struct ops_operand *[]){&from, &to}, 2);
	if (same)
		from.dtype = to.dtype = (enum far_dtype)as_integer[from.size];
	if (same && from.direct && to.direct) {
		if (space.count > 0)
			memcpy(to.data, from.data, space.count * from.size);
		return;
	}
	for (uint64_t at = 0; at < space.count; at += OPS_BLOCK) {
		union ops_block source, target;
		size_t n = space.count - at < OPS_BLOCK ? (size_t)(space.count - at) : OPS_BLOCK;
		const void *s = ops_read(&space, &from, 0, at, n, &source);
		void *d = ops_target(&to, 0, at, &target);
		if (same)
			memcpy(d, s, n * from.size);
		else
			ops_convert(to.dtype, d, ops_arithmetic(from.dtype), s, n);
		ops_write(&space, &to, 0, at, n, d);
	}
}

enum far_status far_op_copy(const struct far_tensor *x, struct far_tensor *out, struct far_err *err)
{
	TRY(ops_check("copy", "x", x, err));
	enum far_dtype dtype = (enum far_dtype)x->dtype;
	if (out && out->dtype != FAR_DTYPE_NONE && out->dtype < FAR_DTYPE_COUNT)
		dtype = (enum far_dtype)out->dtype;
	TRY(ops_output_view("copy", "out", out, dtype, x->ndim, x->shape, err));
	TRY(ops_apart("copy", "out", out, "x", x, false, err));
	if (ops_wanted(out))
		ops_copy(x, out);
	return FAR_OK;
}

enum far_status far_op_fill(double value, struct far_tensor *out, struct far_err *err)
{
	static const int64_t strides[FAR_DIMS_MAX];
	TRY(ops_check("fill", "out", out, err));
	TRY(ops_output_view("fill", "out", out, (enum far_dtype)out->dtype, out->ndim, out->shape, err));
	struct far_tensor x = ops_dense(FAR_F64, &value, out->ndim, out->shape);
	x.strides = strides;
	if (ops_wanted(out))
		ops_copy(&x, out);
	return FAR_OK;
}

/* ---- views ---- */

static enum far_status check_view(const char *op, const struct far_tensor *x, const int64_t *strides,
				  const struct far_tensor *out, struct far_err *err)
{
	TRY(ops_check(op, "x", x, err));
	if (!out || !strides)
		return ops_fail(err, FAR_INVALID, "%s: %s is NULL", op, out ? "strides" : "out");
	return FAR_OK;
}

enum far_status far_op_reshape(const struct far_tensor *x, unsigned ndim, const uint64_t *shape, struct far_tensor *out,
			       struct far_err *err)
{
	static const int64_t none[1];
	char text[OPS_TEXT];
	char wanted[OPS_TEXT];
	struct far_tensor question = {0};
	TRY(check_view("reshape", x, none, out, err));
	TRY(ops_output("reshape", "the new shape", &question, (enum far_dtype)x->dtype, ndim, shape, err));
	if (ops_count(&question) != ops_count(x))
		return ops_fail(err, FAR_INVALID, "reshape: x %s has %" PRIu64 " elements, %s has %" PRIu64,
				ops_text(x, text), ops_count(x), ops_text(&question, wanted), ops_count(&question));
	if (!ops_is_dense(x))
		return ops_fail(err, FAR_INVALID, "reshape: x %s is a view; make it dense with far_op_copy()",
				ops_text(x, text));
	question.data = x->data;
	*out = question;
	return FAR_OK;
}

enum far_status far_op_transpose(const struct far_tensor *x, int axis_a, int axis_b, int64_t strides[FAR_DIMS_MAX],
				 struct far_tensor *out, struct far_err *err)
{
	int64_t moved[FAR_DIMS_MAX];
	TRY(check_view("transpose", x, strides, out, err));
	TRY(ops_check_axis("transpose", "x", axis_a, x, err));
	TRY(ops_check_axis("transpose", "x", axis_b, x, err));
	struct far_tensor view = *x;
	for (unsigned k = 0; k < x->ndim; k++) {
		unsigned from = k == (unsigned)axis_a ? (unsigned)axis_b : k == (unsigned)axis_b ? (unsigned)axis_a : k;
		view.shape[k] = x->shape[from];
		moved[k] = ops_stride(x, from);
	}
	memcpy(strides, moved, x->ndim * sizeof *moved);
	view.strides = strides;
	*out = view;
	return FAR_OK;
}

static enum far_status check_slice(const char *op, const struct far_tensor *x, int axis, uint64_t start, uint64_t stop,
				   uint64_t step, struct far_err *err)
{
	char text[OPS_TEXT];
	TRY(ops_check_axis(op, "x", axis, x, err));
	if (start > stop || stop > x->shape[axis] || step < 1)
		return ops_fail(err, FAR_INVALID,
				"%s: %" PRIu64 ":%" PRIu64 ":%" PRIu64 " is no slice of axis %d of x %s", op, start,
				stop, step, axis, ops_text(x, text));
	return FAR_OK;
}

/** A checked slice. */
static struct far_tensor slice(const struct far_tensor *x, int axis, uint64_t start, uint64_t stop, uint64_t step,
			       int64_t *strides)
{
	struct far_tensor view = *x;
	int64_t moved[FAR_DIMS_MAX] = {0};
	uint64_t n = stop == start ? 0 : (stop - start - 1) / step + 1;
	for (unsigned k = 0; k < x->ndim; k++)
		moved[k] = ops_stride(x, k);
	view.shape[axis] = n;
	if (ops_count(&view) > 0) /* else there is no first element */
		view.data =
			(char *)x->data + (int64_t)start * moved[axis] * (int64_t)ops_size((enum far_dtype)x->dtype);
	moved[axis] = n > 1 ? moved[axis] * (int64_t)step : moved[axis];
	memcpy(strides, moved, x->ndim * sizeof *moved);
	view.strides = strides;
	return view;
}

enum far_status far_op_slice(const struct far_tensor *x, int axis, uint64_t start, uint64_t stop, uint64_t step,
			     int64_t strides[FAR_DIMS_MAX], struct far_tensor *out, struct far_err *err)
{
	TRY(check_view("slice", x, strides, out, err));
	TRY(check_slice("slice", x, axis, start, stop, step, err));
	*out = slice(x, axis, start, stop, step, strides);
	return FAR_OK;
}

enum far_status far_op_slice_backward(const struct far_tensor *grad, const struct far_tensor *x, int axis,
				      uint64_t start, uint64_t stop, uint64_t step, struct far_tensor *dx,
				      struct far_err *err)
{
	static const char op[] = "slice_backward";
	int64_t strides[FAR_DIMS_MAX];
	TRY(ops_check(op, "x", x, err));
	TRY(check_slice(op, x, axis, start, stop, step, err));
	struct far_tensor shape = slice(x, axis, start, stop, step, strides);
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)x->dtype, x->ndim, shape.shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, false, err));
	if (!ops_wanted(dx))
		return FAR_OK;
	memset(dx->data, 0, ops_count(dx) * ops_size((enum far_dtype)dx->dtype));
	struct far_tensor part = slice(dx, axis, start, stop, step, strides);
	if (ops_count(&part) > 0)
		ops_copy(grad, &part);
	return FAR_OK;
}

enum far_status far_op_expand(const struct far_tensor *x, unsigned ndim, const uint64_t *shape,
			      int64_t strides[FAR_DIMS_MAX], struct far_tensor *out, struct far_err *err)
{
	char text[OPS_TEXT];
	char wanted[OPS_TEXT];
	struct far_tensor view = {0};
	int64_t moved[FAR_DIMS_MAX];
	TRY(check_view("expand", x, strides, out, err));
	TRY(ops_output("expand", "the new shape", &view, (enum far_dtype)x->dtype, ndim, shape, err));
	bool fits = ndim >= x->ndim;
	for (unsigned k = 0; k < ndim && fits; k++) {
		bool missing = k < ndim - x->ndim;
		uint64_t size = missing ? 1 : x->shape[k - (ndim - x->ndim)];
		fits = size == 1 || size == shape[k];
		moved[k] = size == 1 ? 0 : ops_stride(x, k - (ndim - x->ndim));
	}
	if (!fits)
		return ops_fail(err, FAR_INVALID, "expand: x %s does not broadcast to %s", ops_text(x, text),
				ops_text(&view, wanted));
	memcpy(strides, moved, ndim * sizeof *moved);
	view.data = x->data;
	view.strides = strides;
	*out = view;
	return FAR_OK;
}

/* ---- concatenation ---- */

/** The shape of the result of far_op_cat(). */
static enum far_status cat_shape(const char *op, const struct far_tensor *const *xs, size_t n, int axis,
				 uint64_t *shape, struct far_err *err)
{
	char text[OPS_TEXT];
	char first[OPS_TEXT];
	char name[32];
	if (n == 0 || !xs)
		return ops_fail(err, FAR_INVALID, "%s: there are no tensors", op);
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof name, "xs[%zu]", i);
		TRY(ops_check(op, name, xs[i], err));
		TRY(ops_check_axis(op, name, axis, xs[i], err));
		TRY(ops_check_like(op, name, xs[i], "xs[0]", xs[0], err));
		if (i == 0) {
			memcpy(shape, xs[0]->shape, sizeof xs[0]->shape);
			continue;
		}
		bool fits = xs[i]->ndim == xs[0]->ndim;
		for (unsigned k = 0; k < xs[0]->ndim && fits; k++)
			fits = k == (unsigned)axis || xs[i]->shape[k] == xs[0]->shape[k];
		if (!fits)
			return ops_fail(err, FAR_INVALID, "%s: xs[0] %s and %s %s differ beyond axis %d", op,
					ops_text(xs[0], first), name, ops_text(xs[i], text), axis);
		if (__builtin_add_overflow(shape[axis], xs[i]->shape[axis], &shape[axis]))
			return ops_fail(err, FAR_TOO_LARGE, "%s: more than 2^64 elements along axis %d", op, axis);
	}
	return FAR_OK;
}

enum far_status far_op_cat(const struct far_tensor *const *xs, size_t n, int axis, struct far_tensor *out,
			   struct far_err *err)
{
	uint64_t shape[FAR_DIMS_MAX];
	int64_t strides[FAR_DIMS_MAX];
	TRY(cat_shape("cat", xs, n, axis, shape, err));
	TRY(ops_output("cat", "out", out, (enum far_dtype)xs[0]->dtype, xs[0]->ndim, shape, err));
	for (size_t i = 0; i < n; i++)
		TRY(ops_apart("cat", "out", out, "an input", xs[i], false, err));
	uint64_t at = 0;
	for (size_t i = 0; i < n && ops_wanted(out); i++) {
		struct far_tensor part = slice(out, axis, at, at + xs[i]->shape[axis], 1, strides);
		if (ops_count(&part) > 0)
			ops_copy(xs[i], &part);
		at += xs[i]->shape[axis];
	}
	return FAR_OK;
}

enum far_status far_op_cat_backward(const struct far_tensor *grad, const struct far_tensor *const *xs, size_t n,
				    int axis, struct far_tensor *const *dxs, struct far_err *err)
{
	static const char op[] = "cat_backward";
	uint64_t shape[FAR_DIMS_MAX];
	int64_t strides[FAR_DIMS_MAX];
	char name[32];
	TRY(cat_shape(op, xs, n, axis, shape, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)xs[0]->dtype, xs[0]->ndim, shape, err));
	if (!dxs)
		return ops_fail(err, FAR_INVALID, "%s: dxs is NULL", op);
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof name, "dxs[%zu]", i);
		TRY(ops_gradient(op, name, dxs[i], xs[i], err));
		TRY(ops_apart(op, name, dxs[i], "grad", grad, false, err));
	}
	uint64_t at = 0;
	for (size_t i = 0; i < n; at += xs[i]->shape[axis], i++) {
		struct far_tensor part = slice(grad, axis, at, at + xs[i]->shape[axis], 1, strides);
		if (ops_wanted(dxs[i]))
			ops_copy(&part, dxs[i]);
	}
	return FAR_OK;
}
