/* SPDX-License-Identifier: BSD-3-Clause */
/** The table of built-in functions; far::zeros, ones and identity. Handlers run inline on a shard. */
#include "builtin/builtin.h"

#include "builtin/elementwise.h"
#include "builtin/nonzero.h"

#include <farcall/rpc.h>
#include <inttypes.h>

static enum far_status bad_dimension(struct far_req *req, const char *name, int64_t d)
{
	return far_fail(req, FAR_BAD_ARGS, 0, "%s: dimension %" PRId64 " of the shape is negative", name, d);
}

/** Reads the shape argument into `out`. False: the request was answered with an error; `*status` is the result of that.
 */
static bool read_shape(struct far_req *req, const char *name, const struct far_val *v, struct far_tensor *out,
		       enum far_status *status)
{
	/* Copied before the check: the caller may write the tensor's memory meanwhile. */
	int64_t dims[FAR_DIMS_MAX];
	size_t ndim = 1;
	if (v->type == FAR_TYPE_INT) {
		dims[0] = v->u.i;
	} else {
		const struct far_tensor *t = &v->u.t;
		if (t->dtype != FAR_I64 || t->ndim != 1) {
			*status = far_fail(req, FAR_BAD_ARGS, 0,
					   "%s: the shape is a tensor of dtype %s with ndim %u, wanted an int or dtype "
					   "i64 with ndim 1",
					   name, far_dtype_name((enum far_dtype)t->dtype), t->ndim);
			return false;
		}
		ndim = t->shape[0];
		if (ndim > FAR_DIMS_MAX) {
			*status =
				far_fail(req, FAR_BAD_ARGS, 0, "%s: a shape of %zu dimensions, at most %d are possible",
					 name, ndim, FAR_DIMS_MAX);
			return false;
		}
		if (ndim > 0)
			memcpy(dims, t->data, ndim * sizeof dims[0]);
	}
	for (size_t k = 0; k < ndim; k++) {
		if (dims[k] < 0) {
			*status = bad_dimension(req, name, dims[k]);
			return false;
		}
		out->shape[k] = (uint64_t)dims[k];
	}
	out->dtype = FAR_F32;
	out->ndim = (uint8_t)ndim;
	if (far_tensor_bytes(out) == SIZE_MAX) {
		*status = far_fail(req, FAR_BAD_ARGS, 0, "%s: the number of elements of the shape overflows", name);
		return false;
	}
	return true;
}

static enum far_status filled(struct far_req *req, const char *name, const struct far_val *v, float value)
{
	struct far_tensor t;
	enum far_status status;
	void *data;
	if (!read_shape(req, name, v, &t, &status))
		return status;
	status = far_return_tensor(req, FAR_F32, t.ndim, t.shape, &data);
	if (status != FAR_OK)
		return status;
	float *out = data;
	size_t n = far_tensor_count(&t);
	for (size_t i = 0; i < n; i++)
		out[i] = value;
	return FAR_OK;
}

static enum far_status call_zeros(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	return filled(req, "far::zeros", &args[0], 0.0f);
}

static enum far_status call_ones(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	return filled(req, "far::ones", &args[0], 1.0f);
}

static enum far_status call_identity(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	return far_return(req, &args[0]);
}

/* Never written; not const because the user pointer of a registration is not. */
static struct elementwise_function elementwise[ELEMENTWISE_OPS] = {
	[ELEMENTWISE_ADD] = {"far::add", ELEMENTWISE_ADD}, [ELEMENTWISE_SUB] = {"far::sub", ELEMENTWISE_SUB},
	[ELEMENTWISE_MUL] = {"far::mul", ELEMENTWISE_MUL}, [ELEMENTWISE_MIN] = {"far::min", ELEMENTWISE_MIN},
	[ELEMENTWISE_MAX] = {"far::max", ELEMENTWISE_MAX},
};

#define ELEMENTWISE_ALPHA(name, op)                                                                                    \
	{                                                                                                              \
		"far::" name "(Tensor|Scalar a, Tensor|Scalar b, Scalar alpha) -> Tensor|Scalar", FAR_KIND_INLINE,     \
			elementwise_call, &elementwise[op]                                                             \
	}

/* alpha is a parameter of an overload, not a default: the usual call does not send it. */
#define ELEMENTWISE(name, op)                                                                                          \
	{                                                                                                              \
		"far::" name "(Tensor|Scalar a, Tensor|Scalar b) -> Tensor|Scalar", FAR_KIND_INLINE, elementwise_call, \
			&elementwise[op]                                                                               \
	}

const struct far_function builtin_functions[] = {
	ELEMENTWISE("add", ELEMENTWISE_ADD),
	ELEMENTWISE("sub", ELEMENTWISE_SUB),
	ELEMENTWISE("mul", ELEMENTWISE_MUL),
	ELEMENTWISE("min", ELEMENTWISE_MIN),
	ELEMENTWISE("max", ELEMENTWISE_MAX),
	ELEMENTWISE_ALPHA("add", ELEMENTWISE_ADD),
	ELEMENTWISE_ALPHA("sub", ELEMENTWISE_SUB),
	{"far::zeros(Tensor|int shape) -> Tensor", FAR_KIND_INLINE, call_zeros, NULL},
	{"far::ones(Tensor|int shape) -> Tensor", FAR_KIND_INLINE, call_ones, NULL},
	{"far::nonzero(Tensor x) -> Tensor", FAR_KIND_INLINE, nonzero_call, NULL},
	{"far::identity(Any x) -> Any", FAR_KIND_INLINE, call_identity, NULL},
};
const size_t builtin_functions_n = sizeof builtin_functions / sizeof builtin_functions[0];
