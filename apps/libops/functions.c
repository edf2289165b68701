/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The table of far::'s functions, and those that are one operator of this library. Inline on a shard; matmul on a
 * thread of the pool, because its time is not bounded by its message.
 */
#include "functions.h"

#include <farcall/version.h>
#include <inttypes.h>
#include <stdlib.h>

#define CAT_MAX 256 /* tensors of far::cat */

/* An operator: computes the result's shape and `work`, then the result (ops.h). */
typedef enum far_status operator(const struct far_val *args, size_t n, struct far_tensor *out, struct far_op_work *work,
				 struct far_err *err);

#define OPERATOR(name)                                                                                                 \
	static enum far_status name(const struct far_val *args, __attribute__((unused)) size_t n,                      \
				    struct far_tensor *out, __attribute__((unused)) struct far_op_work *work,          \
				    struct far_err *err)

static enum far_status refuse(struct far_req *req, const struct ops_host *host, const struct far_err *err)
{
	return host->fail(req, FAR_BAD_ARGS, 0, "far::%s", err->text);
}

/** Computes into the answer. */
static enum far_status answer(struct far_req *req, const struct ops_host *host, operator* op,
			      const struct far_val *args, size_t n)
{
	struct far_tensor out = {0};
	struct far_op_work work = {0};
	struct far_err err;
	if (op(args, n, &out, &work, &err) != FAR_OK)
		return refuse(req, host, &err);
	if (work.bytes > 0 && !(work.data = malloc(work.bytes)))
		return host->fail(req, FAR_RESOURCE, 0, "far::: no memory for %zu bytes of intermediate results",
				  work.bytes);
	enum far_status status = host->answer_tensor(req, (enum far_dtype)out.dtype, out.ndim, out.shape, &out.data);
	/* Shapes are checked, and they are the handler's own. */
	if (status == FAR_OK && ops_count(&out) > 0 && op(args, n, &out, &work, &err) != FAR_OK)
		memset(out.data, 0, (size_t)ops_count(&out) * ops_size((enum far_dtype)out.dtype));
	free(work.data);
	return status;
}

/** An axis counted from the end if it is negative. */
static int axis_of(const struct far_val *v, const struct far_tensor *t)
{
	int64_t axis = v->u.i < 0 ? v->u.i + t->ndim : v->u.i;
	return axis < 0 || axis > FAR_DIMS_MAX ? FAR_DIMS_MAX : (int)axis; /* refused by the operator */
}

/* ---- shapes ---- */

/**
 * Reads a shape: an int, or a tensor of i64 with one dimension. It is copied before it is checked. A dimension of -1
 * is allowed if `inferred` is not NULL, and is then its position; it is left as 1.
 */
static enum far_status shape_read(const char *op, const struct far_val *v, struct far_tensor *out, int *inferred,
				  struct far_err *err)
{
	int64_t dims[FAR_DIMS_MAX];
	const struct far_tensor *t = &v->u.t;
	size_t ndim = v->type == FAR_TYPE_INT ? 1 : t->shape[0];
	if (v->type != FAR_TYPE_INT && (t->dtype != FAR_I64 || t->ndim != 1))
		return ops_fail(err, FAR_INVALID,
				"%s: the shape is a tensor of dtype %s with ndim %u, wanted an int or dtype i64 with "
				"ndim 1",
				op, ops_dtype_name((enum far_dtype)t->dtype), t->ndim);
	if (ndim > FAR_DIMS_MAX)
		return ops_fail(err, FAR_INVALID, "%s: a shape of %zu dimensions, at most %d are possible", op, ndim,
				FAR_DIMS_MAX);
	if (ndim > 0)
		memcpy(dims, v->type == FAR_TYPE_INT ? (const void *)&v->u.i : t->data, ndim * sizeof dims[0]);
	uint64_t shape[FAR_DIMS_MAX];
	for (size_t k = 0; k < ndim; k++) {
		bool infer = inferred && dims[k] == -1 && *inferred < 0;
		if (infer)
			*inferred = (int)k;
		else if (dims[k] < 0)
			return ops_fail(err, FAR_INVALID, "%s: dimension %" PRId64 " of the shape is negative", op,
					dims[k]);
		shape[k] = infer ? 1 : (uint64_t)dims[k];
	}
	*out = (struct far_tensor){0};
	return ops_output(op, "the result", out, FAR_F32, (unsigned)ndim, shape, err);
}

static enum far_status filled(struct far_req *req, const struct ops_host *host, const char *op, const struct far_val *v,
			      double value)
{
	struct far_tensor out;
	struct far_err err;
	if (shape_read(op, v, &out, NULL, &err) != FAR_OK)
		return refuse(req, host, &err);
	enum far_status status = host->answer_tensor(req, FAR_F32, out.ndim, out.shape, &out.data);
	if (status == FAR_OK && ops_count(&out) > 0)
		far_op_fill(value, &out, NULL);
	return status;
}

static FUNCTION(zeros)
{
	return filled(req, user, "zeros", &args[0], 0);
}

static FUNCTION(ones)
{
	return filled(req, user, "ones", &args[0], 1);
}

typedef enum far_status generator(uint64_t seed, uint64_t stream, struct far_tensor *out, struct far_err *err);

static enum far_status generated(struct far_req *req, const struct ops_host *host, const char *op, generator *generate,
				 const struct far_val *args)
{
	struct far_tensor out;
	struct far_err err;
	if (shape_read(op, &args[0], &out, NULL, &err) != FAR_OK)
		return refuse(req, host, &err);
	enum far_status status = host->answer_tensor(req, FAR_F32, out.ndim, out.shape, &out.data);
	if (status == FAR_OK && ops_count(&out) > 0)
		generate((uint64_t)args[1].u.i, 0, &out, NULL);
	return status;
}

static FUNCTION(rand)
{
	return generated(req, user, "rand", far_op_rand, args);
}

static FUNCTION(randn)
{
	return generated(req, user, "randn", far_op_randn, args);
}

OPERATOR(reshape)
{
	const struct far_tensor *x = &args[0].u.t;
	struct far_tensor shape, view;
	int inferred = -1;
	if (out->dtype == FAR_DTYPE_NONE) {
		TRY(shape_read("reshape", &args[1], &shape, &inferred, err));
		uint64_t others = ops_count(&shape);
		if (inferred >= 0 && others > 0)
			shape.shape[inferred] = ops_count(x) / others;
		TRY(far_op_reshape(x, shape.ndim, shape.shape, &view, err));
		*out = view;
		out->data = NULL;
		return FAR_OK;
	}
	view = *out;
	view.data = x->data;
	return far_op_copy(&view, out, err);
}

OPERATOR(transpose)
{
	const struct far_tensor *x = &args[0].u.t;
	int64_t strides[FAR_DIMS_MAX];
	struct far_tensor view;
	TRY(far_op_transpose(x, axis_of(&args[1], x), axis_of(&args[2], x), strides, &view, err));
	return far_op_copy(&view, out, err);
}

/** A bound of a slice: counted from the end if negative, then limited to [0, size]. */
static uint64_t bound(int64_t at, uint64_t size)
{
	if (at < 0)
		return (uint64_t)-at > size ? 0 : size - (uint64_t)-at;
	return (uint64_t)at > size ? size : (uint64_t)at;
}

OPERATOR(slice)
{
	const struct far_tensor *x = &args[0].u.t;
	int64_t strides[FAR_DIMS_MAX], step = args[4].u.i;
	struct far_tensor view;
	int axis = axis_of(&args[1], x);
	TRY(ops_check("slice", "x", x, err));
	TRY(ops_check_axis("slice", "axis", axis, x, err));
	if (step < 1)
		return ops_fail(err, FAR_INVALID, "slice: step %" PRId64 " is not positive", step);
	uint64_t start = bound(args[2].u.i, x->shape[axis]), stop = bound(args[3].u.i, x->shape[axis]);
	TRY(far_op_slice(x, axis, start, stop < start ? start : stop, (uint64_t)step, strides, &view, err));
	return far_op_copy(&view, out, err);
}

OPERATOR(cat)
{
	const struct far_tensor *xs[CAT_MAX];
	size_t count = args[0].u.list.n;
	if (count == 0 || count > CAT_MAX)
		return ops_fail(err, FAR_INVALID, "cat: a list of %zu tensors, [1, %d] are possible", count, CAT_MAX);
	for (size_t i = 0; i < count; i++) {
		const struct far_val *v = &args[0].u.list.items[i];
		if (v->type != FAR_TYPE_TENSOR)
			return ops_fail(err, FAR_INVALID, "cat: item %zu of the list is no tensor", i);
		xs[i] = &v->u.t;
	}
	return far_op_cat(xs, count, axis_of(&args[1], xs[0]), out, err);
}

/* ---- reductions ---- */

typedef enum far_status reduction(const struct far_tensor *x, const int *axes, size_t n, bool keep,
				  struct far_tensor *out, struct far_err *err);

static enum far_status reduce(reduction *over, const struct far_val *args, size_t n, struct far_tensor *out,
			      struct far_err *err)
{
	const struct far_tensor *x = &args[0].u.t;
	int axis = n == 1 ? 0 : axis_of(&args[1], x);
	return over(x, &axis, n == 1 ? 0 : 1, n > 1 && args[2].u.b, out, err);
}

OPERATOR(sum)
{
	return reduce(far_op_sum, args, n, out, err);
}

OPERATOR(mean)
{
	return reduce(far_op_mean, args, n, out, err);
}

OPERATOR(amin)
{
	return far_op_min_axis(&args[0].u.t, axis_of(&args[1], &args[0].u.t), args[2].u.b, out, NULL, err);
}

OPERATOR(amax)
{
	return far_op_max_axis(&args[0].u.t, axis_of(&args[1], &args[0].u.t), args[2].u.b, out, NULL, err);
}

OPERATOR(softmax)
{
	return far_op_softmax(&args[0].u.t, axis_of(&args[1], &args[0].u.t), out, err);
}

OPERATOR(log_softmax)
{
	return far_op_log_softmax(&args[0].u.t, axis_of(&args[1], &args[0].u.t), out, err);
}

/* ---- products and rows ---- */

OPERATOR(matmul)
{
	return far_op_matmul(&args[0].u.t, &args[1].u.t, out, work, err);
}

/* The indexes are copied before they are checked: the caller can write those of the message. */
static FUNCTION(embedding)
{
	const struct ops_host *host = user;
	struct far_tensor index = args[1].u.t, out = {0};
	struct far_err err;
	if (ops_check_index("embedding", "index", &index, &err) != FAR_OK)
		return refuse(req, host, &err);
	size_t bytes = (size_t)ops_count(&index) * ops_size((enum far_dtype)index.dtype);
	void *own = malloc(bytes + 1);
	if (!own)
		return host->fail(req, FAR_RESOURCE, 0, "far::embedding: no memory for %zu bytes of indexes", bytes);
	if (bytes > 0)
		memcpy(own, index.data, bytes);
	index.data = own;
	enum far_status status = far_op_embedding(&args[0].u.t, &index, &out, &err);
	if (status != FAR_OK)
		status = refuse(req, host, &err);
	else
		status = host->answer_tensor(req, (enum far_dtype)out.dtype, out.ndim, out.shape, &out.data);
	if (out.data && status == FAR_OK && ops_count(&out) > 0)
		far_op_embedding(&args[0].u.t, &index, &out, NULL);
	free(own);
	return status;
}

/* ---- the table ---- */

#define ANSWERED_BY(name)                                                                                              \
	static FUNCTION(name)                                                                                          \
	{                                                                                                              \
		return answer(req, user, name, args, n);                                                               \
	}
ANSWERED_BY(reshape)
ANSWERED_BY(transpose)
ANSWERED_BY(slice)
ANSWERED_BY(cat)
ANSWERED_BY(sum)
ANSWERED_BY(mean)
ANSWERED_BY(amin)
ANSWERED_BY(amax)
ANSWERED_BY(softmax)
ANSWERED_BY(log_softmax)
ANSWERED_BY(matmul)

#define INLINE(name, text)                                                                                             \
	{                                                                                                              \
		.signature = "far::" text, .kind = FAR_KIND_INLINE, .fn = ops_call_##name                              \
	}
#define SCALARS "(Tensor|Scalar a, Tensor|Scalar b) -> Tensor|Scalar"
/* alpha is a parameter of an overload, not a default: the usual call does not send it. */
#define ALPHA "(Tensor|Scalar a, Tensor|Scalar b, Scalar alpha) -> Tensor|Scalar"

static const struct far_function functions[] = {
	INLINE(add, "add" SCALARS),
	INLINE(sub, "sub" SCALARS),
	INLINE(mul, "mul" SCALARS),
	INLINE(div, "div" SCALARS),
	INLINE(min, "min" SCALARS),
	INLINE(max, "max" SCALARS),
	INLINE(add, "add" ALPHA),
	INLINE(sub, "sub" ALPHA),
	INLINE(neg, "neg(Tensor x) -> Tensor"),
	INLINE(relu, "relu(Tensor x) -> Tensor"),
	INLINE(sigmoid, "sigmoid(Tensor x) -> Tensor"),
	INLINE(tanh, "tanh(Tensor x) -> Tensor"),
	INLINE(exp, "exp(Tensor x) -> Tensor"),
	INLINE(log, "log(Tensor x) -> Tensor"),
	INLINE(sqrt, "sqrt(Tensor x) -> Tensor"),
	INLINE(sum, "sum(Tensor x) -> Tensor"),
	INLINE(sum, "sum(Tensor x, int axis, bool keepdim=false) -> Tensor"),
	INLINE(mean, "mean(Tensor x) -> Tensor"),
	INLINE(mean, "mean(Tensor x, int axis, bool keepdim=false) -> Tensor"),
	INLINE(amin, "amin(Tensor x, int axis, bool keepdim=false) -> Tensor"),
	INLINE(amax, "amax(Tensor x, int axis, bool keepdim=false) -> Tensor"),
	INLINE(softmax, "softmax(Tensor x, int axis=-1) -> Tensor"),
	INLINE(log_softmax, "log_softmax(Tensor x, int axis=-1) -> Tensor"),
	{.signature = "far::matmul(Tensor a, Tensor b) -> Tensor", .kind = FAR_KIND_BLOCKING, .fn = ops_call_matmul},
	INLINE(embedding, "embedding(Tensor table, Tensor index) -> Tensor"),
	INLINE(zeros, "zeros(Tensor|int shape) -> Tensor"),
	INLINE(ones, "ones(Tensor|int shape) -> Tensor"),
	INLINE(rand, "rand(Tensor|int shape, int seed) -> Tensor"),
	INLINE(randn, "randn(Tensor|int shape, int seed) -> Tensor"),
	INLINE(reshape, "reshape(Tensor x, Tensor|int shape) -> Tensor"),
	INLINE(transpose, "transpose(Tensor x, int a, int b) -> Tensor"),
	INLINE(slice, "slice(Tensor x, int axis, int start, int stop, int step=1) -> Tensor"),
	INLINE(cat, "cat(List tensors, int axis=0) -> Tensor"),
	INLINE(nonzero, "nonzero(Tensor x) -> Tensor"),
};

const struct ops_module far_ops_module = {
	{OPS_MODULE_ABI, FAR_VERSION}, functions, sizeof functions / sizeof functions[0]};
