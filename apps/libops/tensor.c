/* SPDX-License-Identifier: BSD-3-Clause */
/** Checks of tensors that a caller passed, and error texts. Any thread. */
#include "tensor.h"

#include <inttypes.h>
#include <stdarg.h>

enum far_status ops_fail(struct far_err *err, enum far_status status, const char *format, ...)
{
	if (!err)
		return status;
	memset(err, 0, sizeof *err);
	err->status = status;
	err->executed = FAR_EXECUTED_NO;
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return status;
}

static const struct {
	uint8_t size;
	const char *name;
} dtypes[FAR_DTYPE_COUNT] = {
#define DTYPE_ENTRY(name, bytes, text) [FAR_##name] = {bytes, text},
	FAR_DTYPE_LIST(DTYPE_ENTRY)
#undef DTYPE_ENTRY
};

size_t ops_size(enum far_dtype dtype)
{
	return dtypes[dtype].size;
}

const char *ops_dtype_name(enum far_dtype dtype)
{
	return dtypes[dtype].name;
}

bool ops_is_half(enum far_dtype dtype)
{
	return dtype == FAR_BF16 || dtype == FAR_F16;
}

bool ops_is_float(enum far_dtype dtype)
{
	return dtype == FAR_F32 || dtype == FAR_F64 || ops_is_half(dtype);
}

enum far_dtype ops_arithmetic(enum far_dtype dtype)
{
	return ops_is_half(dtype) ? FAR_F32 : dtype;
}

static const char *shape_text(const char *prefix, unsigned ndim, const uint64_t *shape, char text[OPS_TEXT])
{
	size_t at = (size_t)snprintf(text, OPS_TEXT, "%s[", prefix);
	for (unsigned k = 0; k < ndim; k++)
		at += (size_t)snprintf(text + at, OPS_TEXT - at, "%s%" PRIu64, k ? "," : "", shape[k]);
	snprintf(text + at, OPS_TEXT - at, "]");
	return text;
}

const char *ops_text(const struct far_tensor *t, char text[OPS_TEXT])
{
	return shape_text(dtypes[t->dtype].name, t->ndim, t->shape, text);
}

uint64_t ops_count(const struct far_tensor *t)
{
	uint64_t count = 1;
	for (unsigned k = 0; k < t->ndim; k++)
		count *= t->shape[k];
	return count;
}

int64_t ops_stride(const struct far_tensor *t, unsigned k)
{
	if (t->strides)
		return t->strides[k];
	int64_t stride = 1;
	for (unsigned l = k + 1; l < t->ndim; l++)
		stride *= (int64_t)t->shape[l];
	return stride;
}

bool ops_is_dense(const struct far_tensor *t)
{
	if (!t->strides || ops_count(t) == 0)
		return true;
	int64_t stride = 1;
	for (unsigned k = t->ndim; k-- > 0;) {
		if (t->shape[k] != 1 && t->strides[k] != stride)
			return false;
		stride *= (int64_t)t->shape[k];
	}
	return true;
}

static bool shape_equals(const struct far_tensor *t, unsigned ndim, const uint64_t *shape)
{
	if (t->ndim != ndim)
		return false;
	for (unsigned k = 0; k < ndim; k++)
		if (t->shape[k] != shape[k])
			return false;
	return true;
}

bool ops_same_shape(const struct far_tensor *a, const struct far_tensor *b)
{
	return shape_equals(a, b->ndim, b->shape);
}

/** Whether the bytes of a shape fit PTRDIFF_MAX, dimensions of 0 counted as 1: then so do all partial products. */
static bool shape_fits(enum far_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	uint64_t bytes = dtypes[dtype].size;
	for (unsigned k = 0; k < ndim; k++)
		if (__builtin_mul_overflow(bytes, shape[k] ? shape[k] : 1, &bytes) || bytes > PTRDIFF_MAX)
			return false;
	return true;
}

/** Bytes before and after the first element that a view spans. False: beyond PTRDIFF_MAX. */
static bool extent(const struct far_tensor *t, uint64_t *before, uint64_t *after)
{
	uint64_t size = dtypes[t->dtype].size;
	*before = 0;
	*after = size;
	for (unsigned k = 0; k < t->ndim; k++) {
		int64_t stride = ops_stride(t, k);
		uint64_t length = stride < 0 ? 0 - (uint64_t)stride : (uint64_t)stride;
		uint64_t *to = stride < 0 ? before : after;
		if (__builtin_mul_overflow(length, t->shape[k] - 1, &length) ||
		    __builtin_mul_overflow(length, size, &length) || __builtin_add_overflow(*to, length, to) ||
		    *to > PTRDIFF_MAX)
			return false;
	}
	return true;
}

/** Dtype and rank: what the text of a tensor needs. */
static enum far_status check_head(const char *op, const char *name, const struct far_tensor *t, struct far_err *err)
{
	if (!t)
		return ops_fail(err, FAR_INVALID, "%s: %s is NULL", op, name);
	if (t->dtype == FAR_DTYPE_NONE || t->dtype >= FAR_DTYPE_COUNT)
		return ops_fail(err, FAR_INVALID, "%s: %s has the unknown dtype %u", op, name, t->dtype);
	if (t->ndim > FAR_DIMS_MAX)
		return ops_fail(err, FAR_INVALID, "%s: %s has %u dimensions, the limit is %u", op, name, t->ndim,
				FAR_DIMS_MAX);
	if (t->domain != 0)
		return ops_fail(err, FAR_INVALID, "%s: %s is in memory domain %u; only host memory, 0, exists", op,
				name, t->domain);
	return FAR_OK;
}

enum far_status ops_check(const char *op, const char *name, const struct far_tensor *t, struct far_err *err)
{
	char text[OPS_TEXT];
	uint64_t before;
	uint64_t after;
	TRY(check_head(op, name, t, err));
	if (!shape_fits((enum far_dtype)t->dtype, t->ndim, t->shape))
		return ops_fail(err, FAR_TOO_LARGE, "%s: %s %s has more than %td bytes", op, name, ops_text(t, text),
				PTRDIFF_MAX);
	if (ops_count(t) == 0)
		return FAR_OK;
	if (!t->data)
		return ops_fail(err, FAR_INVALID, "%s: %s %s has no memory", op, name, ops_text(t, text));
	if ((uintptr_t)t->data % dtypes[t->dtype].size != 0)
		return ops_fail(err, FAR_INVALID, "%s: %s %s is at %p, not aligned to its elements", op, name,
				ops_text(t, text), t->data);
	if (t->strides && !extent(t, &before, &after))
		return ops_fail(err, FAR_TOO_LARGE, "%s: the strides of %s %s span more than %td bytes", op, name,
				ops_text(t, text), PTRDIFF_MAX);
	return FAR_OK;
}

enum far_status ops_check_float(const char *op, const char *name, const struct far_tensor *t, struct far_err *err)
{
	char text[OPS_TEXT];
	TRY(ops_check(op, name, t, err));
	if (!ops_is_float((enum far_dtype)t->dtype))
		return ops_fail(err, FAR_UNSUPPORTED, "%s: %s is %s; only f32, f64, bf16 and f16 are supported", op,
				name, ops_text(t, text));
	return FAR_OK;
}

enum far_status ops_check_like(const char *op, const char *name, const struct far_tensor *t, const char *like_name,
			       const struct far_tensor *like, struct far_err *err)
{
	char text[OPS_TEXT];
	char like_text[OPS_TEXT];
	TRY(ops_check(op, name, t, err));
	if (t->dtype != like->dtype)
		return ops_fail(err, FAR_INVALID, "%s: the dtypes of %s %s and %s %s differ; convert one", op,
				like_name, ops_text(like, like_text), name, ops_text(t, text));
	return FAR_OK;
}

enum far_status ops_check_shape(const char *op, const char *name, const struct far_tensor *t, enum far_dtype dtype,
				unsigned ndim, const uint64_t *shape, struct far_err *err)
{
	char text[OPS_TEXT];
	char wanted[OPS_TEXT];
	TRY(ops_check(op, name, t, err));
	if (t->dtype != dtype || !shape_equals(t, ndim, shape))
		return ops_fail(err, FAR_INVALID, "%s: %s is %s instead of %s", op, name, ops_text(t, text),
				shape_text(dtypes[dtype].name, ndim, shape, wanted));
	return FAR_OK;
}

enum far_status ops_check_index(const char *op, const char *name, const struct far_tensor *t, struct far_err *err)
{
	char text[OPS_TEXT];
	TRY(ops_check(op, name, t, err));
	if (t->dtype != FAR_I32 && t->dtype != FAR_I64)
		return ops_fail(err, FAR_INVALID, "%s: %s is %s; it must be i32 or i64", op, name, ops_text(t, text));
	return FAR_OK;
}

enum far_status ops_check_axis(const char *op, const char *name, int axis, const struct far_tensor *t,
			       struct far_err *err)
{
	char text[OPS_TEXT];
	if (axis < 0 || axis >= t->ndim)
		return ops_fail(err, FAR_INVALID, "%s: axis %d is not in [0, %u), the axes of %s %s", op, axis, t->ndim,
				name, ops_text(t, text));
	return FAR_OK;
}

static enum far_status check_output(const char *op, const char *name, struct far_tensor *out, enum far_dtype dtype,
				    unsigned ndim, const uint64_t *shape, bool view, struct far_err *err)
{
	char text[OPS_TEXT];
	if (!out)
		return ops_fail(err, FAR_INVALID, "%s: %s is NULL", op, name);
	if (ndim > FAR_DIMS_MAX)
		return ops_fail(err, FAR_INVALID, "%s: %s has %u dimensions, the limit is %u", op, name, ndim,
				FAR_DIMS_MAX);
	if (!shape_fits(dtype, ndim, shape))
		return ops_fail(err, FAR_TOO_LARGE, "%s: %s %s has more than %td bytes", op, name,
				shape_text(dtypes[dtype].name, ndim, shape, text), PTRDIFF_MAX);
	if (out->dtype == FAR_DTYPE_NONE) {
		*out = ops_dense(dtype, NULL, ndim, shape);
		return FAR_OK;
	}
	TRY(ops_check_shape(op, name, out, dtype, ndim, shape, err));
	if (!view && !ops_is_dense(out))
		return ops_fail(err, FAR_INVALID, "%s: %s %s is a view; it must be dense", op, name,
				ops_text(out, text));
	if (view && out->strides)
		for (unsigned k = 0; k < ndim; k++)
			if (out->strides[k] == 0 && shape[k] > 1)
				return ops_fail(err, FAR_INVALID,
						"%s: %s %s has stride 0 along axis %u: its elements overlap", op, name,
						ops_text(out, text), k);
	if (ops_count(out) == 0)
		out->data = NULL;
	return FAR_OK;
}

enum far_status ops_output(const char *op, const char *name, struct far_tensor *out, enum far_dtype dtype,
			   unsigned ndim, const uint64_t *shape, struct far_err *err)
{
	return check_output(op, name, out, dtype, ndim, shape, false, err);
}

enum far_status ops_output_view(const char *op, const char *name, struct far_tensor *out, enum far_dtype dtype,
				unsigned ndim, const uint64_t *shape, struct far_err *err)
{
	return check_output(op, name, out, dtype, ndim, shape, true, err);
}

enum far_status ops_gradient(const char *op, const char *name, struct far_tensor *out, const struct far_tensor *like,
			     struct far_err *err)
{
	if (!out)
		return FAR_OK;
	return check_output(op, name, out, (enum far_dtype)like->dtype, like->ndim, like->shape, false, err);
}

enum far_status ops_apart(const char *op, const char *name, const struct far_tensor *out, const char *in_name,
			  const struct far_tensor *in, bool same, struct far_err *err)
{
	char text[OPS_TEXT];
	uint64_t out_before, out_after, in_before, in_after;
	if (!ops_wanted(out) || !in || !in->data || ops_count(in) == 0)
		return FAR_OK;
	extent(out, &out_before, &out_after);
	extent(in, &in_before, &in_after);
	uintptr_t out_data = (uintptr_t)out->data;
	uintptr_t in_data = (uintptr_t)in->data;
	if (out_data + out_after <= in_data - in_before || in_data + in_after <= out_data - out_before)
		return FAR_OK;
	if (same && out_data == in_data && out->dtype == in->dtype && ops_same_shape(out, in) && ops_is_dense(out) &&
	    ops_is_dense(in))
		return FAR_OK;
	return ops_fail(err, FAR_INVALID, "%s: the memory of %s %s overlaps that of %s", op, name, ops_text(out, text),
			in_name);
}

struct far_tensor ops_dense(enum far_dtype dtype, void *data, unsigned ndim, const uint64_t *shape)
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
