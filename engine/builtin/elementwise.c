/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers of far::add, sub, mul, min and max: types, shapes, blocks. Inline on a shard. */
#include "builtin/elementwise.h"

#include "base/must.h"

#include <farcall/rpc.h>
#include <inttypes.h>

/* Elements converted or repeated at a time, on the stack: fits the first-level cache. */
#define BLOCK 256

/* Bytes of a shape's text, "[2,3]", with its NUL: dimensions of up to 20 digits. */
#define SHAPE_TEXT (FAR_DIMS_MAX * 21 + 3)

/* One operand. */
struct operand {
	const void *data; /* elements, or the only one */
	enum far_dtype dtype;
	bool one; /* one element, used for all */
	union {
		float f;
		double d;
		int64_t i;
		uint8_t u;
	} scalar; /* `data` of an argument that is not a tensor */
};

/* A block of any dtype. */
union block {
	double align;
	char bytes[BLOCK * 8];
};

static const char *shape_text(const struct far_tensor *t, char *buf, size_t len)
{
	size_t at = (size_t)snprintf(buf, len, "[");
	for (unsigned k = 0; k < t->ndim; k++)
		at += (size_t)snprintf(buf + at, len - at, "%s%" PRIu64, k ? "," : "", t->shape[k]);
	snprintf(buf + at, len - at, "]");
	return buf;
}

static bool is_half(enum far_dtype dtype)
{
	return dtype == FAR_BF16 || dtype == FAR_F16;
}

/** The dtype of the arithmetic for a result of `dtype`. */
static enum far_dtype computed_in(enum far_dtype dtype)
{
	return is_half(dtype) ? FAR_F32 : dtype;
}

/** Elements [at, at + n) of operand `o` as `dtype`: in the tensor, or converted in `block`. */
static const void *operand_block(const struct operand *o, enum far_dtype dtype, size_t at, size_t n, union block *block)
{
	size_t element = far_dtype_size(dtype);
	if (o->one) {
		/* Filled once, by the first block, which is the longest. */
		if (at > 0)
			return block;
		if (o->dtype == dtype)
			memcpy(block, o->data, element);
		else
			elementwise_convert(dtype, block, o->dtype, o->data, 1);
		for (size_t done = 1; done < n; done *= 2)
			memcpy(block->bytes + done * element, block->bytes,
			       (done < n - done ? done : n - done) * element);
		return block;
	}
	const char *from = (const char *)o->data + at * far_dtype_size(o->dtype);
	if (o->dtype == dtype)
		return from;
	elementwise_convert(dtype, block, o->dtype, from, n);
	return block;
}

/* The computation dst = op(a, alpha * b). */
struct job {
	elementwise_kernel *kernel; /* for computed_in(dtype) */
	enum far_dtype dtype;       /* of the result */
	struct operand a, b;
	const struct operand *alpha; /* as computed_in(dtype); NULL: 1 */
	size_t count;
};

static void run(const struct job *job, void *dst)
{
	union block block_a, block_b, block_alpha, product, block_dst;
	enum far_dtype in = computed_in(job->dtype);
	size_t element = far_dtype_size(job->dtype);
	for (size_t at = 0; at < job->count; at += BLOCK) {
		size_t n = job->count - at < BLOCK ? job->count - at : BLOCK;
		const void *a = operand_block(&job->a, in, at, n, &block_a);
		const void *b = operand_block(&job->b, in, at, n, &block_b);
		void *to = (char *)dst + at * element;
		if (job->alpha) {
			const void *alpha = operand_block(job->alpha, in, at, n, &block_alpha);
			elementwise_kernels[ELEMENTWISE_MUL][in](&product, alpha, b, n);
			b = &product;
		}
		if (in == job->dtype) {
			job->kernel(to, a, b, n);
			continue;
		}
		job->kernel(&block_dst, a, b, n);
		elementwise_convert(job->dtype, to, in, &block_dst, n);
	}
}

/* ---- two scalars ---- */

static double as_float(const struct far_val *v)
{
	if (v->type == FAR_TYPE_FLOAT)
		return v->u.f;
	return v->type == FAR_TYPE_BOOL ? (double)v->u.b : (double)v->u.i;
}

static int64_t as_int(const struct far_val *v)
{
	return v->type == FAR_TYPE_BOOL ? (int64_t)v->u.b : v->u.i;
}

static enum far_status call_scalars(struct far_req *req, const struct far_val *args, const struct far_val *alpha,
				    enum elementwise_op op)
{
	struct far_val v;
	if (args[0].type == FAR_TYPE_FLOAT || args[1].type == FAR_TYPE_FLOAT ||
	    (alpha && alpha->type == FAR_TYPE_FLOAT)) {
		double a = as_float(&args[0]);
		double b = as_float(&args[1]) * (alpha ? as_float(alpha) : 1.0);
		double result;
		elementwise_kernels[op][FAR_F64](&result, &a, &b, 1);
		v = far_float(result);
		return far_return(req, &v);
	}
	int64_t a = as_int(&args[0]);
	int64_t b = (int64_t)((uint64_t)as_int(&args[1]) * (uint64_t)(alpha ? as_int(alpha) : 1));
	int64_t result;
	elementwise_kernels[op][FAR_I64](&result, &a, &b, 1);
	v = far_int(result);
	return far_return(req, &v);
}

/* ---- a tensor and a scalar ---- */

static bool dtype_holds(enum far_dtype dtype, int64_t i)
{
	switch (dtype) {
	case FAR_I8:
		return i >= INT8_MIN && i <= INT8_MAX;
	case FAR_I16:
		return i >= INT16_MIN && i <= INT16_MAX;
	case FAR_I32:
		return i >= INT32_MIN && i <= INT32_MAX;
	case FAR_U8:
		return i >= 0 && i <= UINT8_MAX;
	case FAR_U64:
		return i >= 0;
	case FAR_BOOL:
		return i == 0 || i == 1;
	case FAR_F32:
	case FAR_F64:
	case FAR_BF16:
	case FAR_F16:
	case FAR_I64:
	case FAR_DTYPE_NONE:
	case FAR_DTYPE_COUNT:
		break;
	}
	return true;
}

static bool is_float(enum far_dtype dtype)
{
	return dtype == FAR_F32 || dtype == FAR_F64 || is_half(dtype);
}

/** The dtype of a result of a tensor of `dtype` and scalar `v`. */
static enum far_dtype promote_scalar(enum far_dtype dtype, const struct far_val *v)
{
	if (v->type == FAR_TYPE_FLOAT && !is_float(dtype))
		return FAR_F32;
	if (v->type == FAR_TYPE_INT && dtype == FAR_BOOL)
		return FAR_I64;
	return dtype;
}

/** Makes `o` the scalar `v` as an element of `dtype`, the dtype of the arithmetic. False: out of its range. */
static bool operand_scalar(struct operand *o, enum far_dtype dtype, const struct far_val *v)
{
	o->dtype = dtype;
	o->one = true;
	o->data = &o->scalar;
	if (dtype == FAR_F64) {
		o->scalar.d = as_float(v);
		return true;
	}
	if (dtype == FAR_F32) {
		/* Directly from the integer: through a double it would be rounded twice. */
		o->scalar.f = v->type == FAR_TYPE_FLOAT ? (float)v->u.f : (float)as_int(v);
		return true;
	}
	int64_t i = as_int(v);
	if (v->type == FAR_TYPE_FLOAT || !dtype_holds(dtype, i))
		return false;
	o->scalar.i = i; /* little-endian: the low bytes are the narrower integer */
	return true;
}

static enum far_status no_kernel(struct far_req *req, const struct elementwise_function *f)
{
	return far_fail(req, FAR_BAD_ARGS, 0, "%s: bool tensors have no difference, convert one to an integer dtype",
			f->name);
}

/** Answers with the tensor of `job`, whose kernel and alpha are set here. */
static enum far_status finish(struct far_req *req, const struct elementwise_function *f, struct job *job,
			      const struct far_val *alpha, unsigned ndim, const uint64_t *shape)
{
	enum far_dtype in = computed_in(job->dtype);
	struct operand factor;
	void *out;
	job->kernel = elementwise_kernels[f->op][in];
	if (!job->kernel)
		return no_kernel(req, f);
	job->alpha = alpha ? &factor : NULL;
	if (alpha && !operand_scalar(&factor, in, alpha))
		return far_fail(req, FAR_BAD_ARGS, 0, "%s: alpha is %s, which the result's dtype %s cannot hold",
				f->name, alpha->type == FAR_TYPE_FLOAT ? "a float" : "an int out of range",
				far_dtype_name(job->dtype));
	enum far_status status = far_return_tensor(req, job->dtype, ndim, shape, &out);
	if (status == FAR_OK)
		run(job, out);
	return status;
}

static enum far_status call_tensor_scalar(struct far_req *req, const struct far_val *args, const struct far_val *alpha,
					  const struct elementwise_function *f)
{
	unsigned scalar_at = args[0].type == FAR_TYPE_TENSOR ? 1 : 0;
	const struct far_tensor *t = &args[1 - scalar_at].u.t;
	const struct far_val *v = &args[scalar_at];
	struct job job;
	struct operand *tensor = scalar_at ? &job.a : &job.b;
	struct operand *scalar = scalar_at ? &job.b : &job.a;
	tensor->data = t->data;
	tensor->dtype = (enum far_dtype)t->dtype;
	tensor->one = false;
	job.dtype = promote_scalar(tensor->dtype, v);
	job.count = far_tensor_count(t);
	if (!elementwise_kernels[f->op][computed_in(job.dtype)])
		return no_kernel(req, f);
	if (!operand_scalar(scalar, computed_in(job.dtype), v))
		return far_fail(req, FAR_BAD_ARGS, 0,
				"%s: argument %u is the int %" PRId64 ", which the tensor's dtype %s cannot hold",
				f->name, scalar_at + 1, v->u.i, far_dtype_name(job.dtype));
	return finish(req, f, &job, alpha, t->ndim, t->shape);
}

/* ---- two tensors ---- */

static bool same_shape(const struct far_tensor *a, const struct far_tensor *b)
{
	if (a->ndim != b->ndim)
		return false;
	for (unsigned k = 0; k < a->ndim; k++)
		if (a->shape[k] != b->shape[k])
			return false;
	return true;
}

/** Writes the shape of `t`, with leading ones up to `ndim` dimensions. */
static void shape_extend(const struct far_tensor *t, unsigned ndim, uint64_t *shape)
{
	unsigned ones = ndim - t->ndim;
	for (unsigned k = 0; k < ndim; k++)
		shape[k] = k < ones ? 1 : t->shape[k - ones];
}

static enum far_status call_mixed(struct far_req *req, const struct far_tensor *a, const struct far_tensor *b,
				  const struct far_val *alpha, const struct elementwise_function *f)
{
	char text_a[SHAPE_TEXT];
	char text_b[SHAPE_TEXT];
	bool same = same_shape(a, b);
	bool one_a = !same && far_tensor_count(a) == 1;
	bool one_b = !same && !one_a && far_tensor_count(b) == 1;
	if (!same && !one_a && !one_b)
		return far_fail(req, FAR_BAD_ARGS, 0,
				"%s: shapes %s and %s differ: make them equal, or one a tensor of one element", f->name,
				shape_text(a, text_a, sizeof text_a), shape_text(b, text_b, sizeof text_b));
	const struct far_tensor *full = one_a ? b : a;
	uint64_t shape[FAR_DIMS_MAX];
	unsigned ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
	shape_extend(full, ndim, shape);
	struct job job = {.dtype = elementwise_promote((enum far_dtype)a->dtype, (enum far_dtype)b->dtype),
			  .a = {.data = a->data, .dtype = (enum far_dtype)a->dtype, .one = one_a},
			  .b = {.data = b->data, .dtype = (enum far_dtype)b->dtype, .one = one_b},
			  .count = far_tensor_count(full)};
	return finish(req, f, &job, alpha, ndim, shape);
}

static enum far_status call_tensors(struct far_req *req, const struct far_tensor *a, const struct far_tensor *b,
				    const struct elementwise_function *f)
{
	elementwise_kernel *kernel = elementwise_kernels[f->op][a->dtype];
	bool vectors = a->ndim == 1 && b->ndim == 1 && a->shape[0] == b->shape[0];
	if (unlikely(a->dtype != b->dtype || !kernel || !(vectors || same_shape(a, b))))
		return call_mixed(req, a, b, NULL, f);
	void *out;
	enum far_status status = far_return_tensor(req, (enum far_dtype)a->dtype, a->ndim, a->shape, &out);
	if (likely(status == FAR_OK))
		kernel(out, a->data, b->data, vectors ? a->shape[0] : far_tensor_count(a));
	return status;
}

static __attribute__((noinline)) enum far_status call_others(struct far_req *req, const struct far_val *args, size_t n,
							     const struct elementwise_function *f)
{
	const struct far_val *alpha = n == 3 ? &args[2] : NULL;
	bool tensor_a = args[0].type == FAR_TYPE_TENSOR;
	bool tensor_b = args[1].type == FAR_TYPE_TENSOR;
	if (tensor_a && tensor_b)
		return call_mixed(req, &args[0].u.t, &args[1].u.t, alpha, f);
	if (tensor_a || tensor_b)
		return call_tensor_scalar(req, args, alpha, f);
	return call_scalars(req, args, alpha, f->op);
}

enum far_status elementwise_call(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	debug_must(n == 2 || n == 3);
	if (likely(args[0].type == FAR_TYPE_TENSOR && args[1].type == FAR_TYPE_TENSOR && n == 2))
		return call_tensors(req, &args[0].u.t, &args[1].u.t, user);
	return call_others(req, args, n, user);
}
