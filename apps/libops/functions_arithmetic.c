/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * far::add, sub, mul, div, min and max of tensors and scalars, and element-wise functions of one tensor. Inline on a
 * shard. Shard thread.
 *
 * dtype of the result of two tensors (symmetric):
 *
 *         bool  u8   i8   i16  i32  i64  u64  f32  f64
 *   bool  bool  u8   i8   i16  i32  i64  u64  f32  f64
 *   u8          u8   i16  i16  i32  i64  u64  f32  f64
 *   i8               i8   i16  i32  i64  f64  f32  f64
 *   i16                   i16  i32  i64  f64  f32  f64
 *   i32                        i32  i64  f64  f32  f64
 *   i64                             i64  f64  f32  f64
 *   u64                                  u64  f32  f64
 *   f32                                       f32  f64
 *   f64                                            f64
 *
 * bf16 or f16 with bool or an integer: unchanged; with each other: f32; with f32 or f64: that one. This is torch's
 * table, but for u64 with signed types, which torch refuses; here it is f64, as in numpy.
 *
 * bf16 and f16 are computed in f32, and the result is rounded once, to nearest, ties to even.
 *
 * add and sub take an optional scalar alpha: a + alpha * b, a - alpha * b. A float alpha needs a floating-point result.
 *
 * Tensor and scalar: the tensor's dtype; but f32 for an integral or bool tensor with a float, i64 for a bool tensor
 * with an int. An int out of the range of the dtype is an error. Two scalars: float if one is a float, else int, with
 * bools as 0 and 1.
 *
 * A result that must have a fraction (div, sigmoid, tanh, exp, log, sqrt) is f32, or float, where it would be an
 * integer or bool.
 *
 * Integers wrap around. min and max return NaN if an element is NaN. Two bool tensors: add and max are "or", mul and
 * min are "and", sub is an error. Shapes broadcast as in numpy.
 */
#include "functions.h"

#include <inttypes.h>

/* One function: its name, kernel, and what its result is. */
struct arithmetic {
	const char *name;
	enum ops_map map;
	bool fraction; /* the result is floating-point */
};

/* An operand over the result's space, and its scalar if it is one. */
struct operand {
	struct far_tensor t;
	struct ops_operand of;
	union {
		float f;
		double d;
		int64_t i;
	} scalar;
};

enum far_dtype ops_promote(enum far_dtype a, enum far_dtype b)
{
	/* The higher rank wins, except for the pairs below, where neither dtype holds the other. */
	static const uint8_t rank[FAR_DTYPE_COUNT] = {
		[FAR_BOOL] = 1, [FAR_U8] = 2,  [FAR_I8] = 3,   [FAR_I16] = 4,  [FAR_I32] = 5, [FAR_I64] = 6,
		[FAR_U64] = 7,  [FAR_F16] = 8, [FAR_BF16] = 9, [FAR_F32] = 10, [FAR_F64] = 11};
	enum far_dtype low = rank[a] < rank[b] ? a : b;
	enum far_dtype high = rank[a] < rank[b] ? b : a;
	if (low == FAR_U8 && high == FAR_I8)
		return FAR_I16;
	if (high == FAR_U64 && rank[low] >= rank[FAR_I8] && low != FAR_U64)
		return FAR_F64;
	if (low == FAR_F16 && high == FAR_BF16)
		return FAR_F32;
	return high;
}

/* ---- blocks ---- */

/** A block of an operand in dtype `in`. `blocks`: two. */
static const void *block_of(const struct ops_space *space, const struct operand *o, enum far_dtype in, uint64_t at,
			    size_t n, union ops_block *blocks)
{
	const void *from = ops_read(space, &o->of, 0, at, n, &blocks[0]);
	enum far_dtype is = ops_arithmetic(o->of.dtype);
	if (is == in)
		return from;
	ops_convert(in, &blocks[1], is, from, n);
	return &blocks[1];
}

/* out = kernel(a, b), or kernel(a, alpha * b), or kernel(a), computed in dtype `in`. */
struct job {
	ops_map_kernel *kernel;
	enum far_dtype in;
	struct operand *a, *b, *alpha; /* b, alpha: NULL: none */
};

static void over_space(const struct job *job, const struct far_tensor *out, struct ops_space *space,
		       struct ops_operand *to)
{
	unsigned all = (1u << out->ndim) - 1;
	struct operand *in[3] = {job->a, job->b, job->alpha};
	struct ops_operand *every[4] = {to};
	unsigned n = 1;
	*space = ops_space(out->ndim, out->shape, all);
	*to = ops_operand(out, out->ndim, out->shape, all);
	for (unsigned i = 0; i < 3; i++)
		if (in[i]) {
			in[i]->of = ops_operand(&in[i]->t, out->ndim, out->shape, all);
			every[n++] = &in[i]->of;
		}
	ops_space_fold(space, every, n);
}

static void run(const struct job *job, const struct far_tensor *out)
{
	union ops_block a[2], b[2], alpha[2], product, result;
	struct ops_space space;
	struct ops_operand to;
	over_space(job, out, &space, &to);
	for (uint64_t at = 0; at < space.count; at += OPS_BLOCK) {
		size_t n = space.count - at < OPS_BLOCK ? (size_t)(space.count - at) : OPS_BLOCK;
		const void *from[3] = {block_of(&space, job->a, job->in, at, n, a)};
		if (job->b)
			from[1] = block_of(&space, job->b, job->in, at, n, b);
		if (job->alpha) {
			const void *factors[3] = {block_of(&space, job->alpha, job->in, at, n, alpha), from[1]};
			ops_kernels()->map[OPS_MUL][job->in](&product, factors, 0, n);
			from[1] = &product;
		}
		void *target = ops_target(&to, 0, at, &result);
		job->kernel(target, from, 0, n);
		ops_write(&space, &to, 0, at, n, target);
	}
}

/* ---- scalars ---- */

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
	default:
		return true;
	}
}

/** Makes `o` the scalar `v` as an element of `dtype`, the dtype of the arithmetic. False: out of its range. */
static bool operand_scalar(struct operand *o, enum far_dtype dtype, const struct far_val *v)
{
	o->t = ops_dense(dtype, &o->scalar, 0, NULL);
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

static enum far_status two_scalars(struct far_req *req, const struct ops_host *host, const struct arithmetic *f,
				   const struct far_val *args, const struct far_val *alpha)
{
	struct far_val v;
	if (f->fraction || args[0].type == FAR_TYPE_FLOAT || args[1].type == FAR_TYPE_FLOAT ||
	    (alpha && alpha->type == FAR_TYPE_FLOAT)) {
		double a = as_float(&args[0]), b = as_float(&args[1]) * (alpha ? as_float(alpha) : 1.0), result;
		ops_kernels()->map[f->map][FAR_F64](&result, (const void *[3]){&a, &b}, 0, 1);
		v = far_float(result);
		return host->answer(req, &v);
	}
	int64_t a = as_int(&args[0]), result;
	int64_t b = (int64_t)((uint64_t)as_int(&args[1]) * (uint64_t)(alpha ? as_int(alpha) : 1));
	ops_kernels()->map[f->map][FAR_I64](&result, (const void *[3]){&a, &b}, 0, 1);
	v = far_int(result);
	return host->answer(req, &v);
}

/* ---- tensors ---- */

/** The dtype of a result of a tensor of `dtype` and scalar `v`. */
static enum far_dtype promote_scalar(enum far_dtype dtype, const struct far_val *v)
{
	if (v->type == FAR_TYPE_FLOAT && !ops_is_float(dtype))
		return FAR_F32;
	if (v->type == FAR_TYPE_INT && dtype == FAR_BOOL)
		return FAR_I64;
	return dtype;
}

static enum far_dtype dtype_of(const struct far_val *v)
{
	return (enum far_dtype)v->u.t.dtype;
}

static enum far_dtype result_dtype(const struct arithmetic *f, const struct far_val *args, size_t operands)
{
	enum far_dtype dtype;
	if (operands == 1)
		dtype = dtype_of(&args[0]);
	else if (args[0].type != FAR_TYPE_TENSOR)
		dtype = promote_scalar(dtype_of(&args[1]), &args[0]);
	else if (args[1].type != FAR_TYPE_TENSOR)
		dtype = promote_scalar(dtype_of(&args[0]), &args[1]);
	else
		dtype = ops_promote(dtype_of(&args[0]), dtype_of(&args[1]));
	return f->fraction && !ops_is_float(dtype) ? FAR_F32 : dtype;
}

static enum far_status no_kernel(struct far_req *req, const struct ops_host *host, const struct arithmetic *f,
				 enum far_dtype dtype)
{
	if (dtype == FAR_BOOL && f->map == OPS_SUB)
		return host->fail(req, FAR_BAD_ARGS, 0,
				  "%s: bool tensors have no difference, convert one to an integer dtype", f->name);
	return host->fail(req, FAR_BAD_ARGS, 0, "%s: not defined for dtype %s, convert the tensor to a float dtype",
			  f->name, ops_dtype_name(dtype));
}

/** Shape and operands of a result of `operands` arguments. Not OK: `err` has the reason. */
static enum far_status operands_of(const struct arithmetic *f, struct job *job, struct far_tensor *out,
				   const struct far_val *args, size_t operands, struct far_err *err)
{
	struct operand *to[2] = {job->a, job->b};
	for (size_t i = 0; i < operands; i++) {
		if (args[i].type == FAR_TYPE_TENSOR) {
			to[i]->t = args[i].u.t;
			TRY(ops_check(f->name, i ? "b" : "a", &to[i]->t, err));
		} else if (!operand_scalar(to[i], job->in, &args[i])) {
			return ops_fail(err, FAR_BAD_ARGS,
					"%s: argument %zu is the int %" PRId64
					", which the tensor's dtype %s cannot hold",
					f->name, i + 1, args[i].u.i, ops_dtype_name((enum far_dtype)out->dtype));
		}
	}
	const struct far_tensor *shaped = args[0].type == FAR_TYPE_TENSOR ? &job->a->t : &job->b->t;
	unsigned ndim = shaped->ndim;
	memcpy(out->shape, shaped->shape, sizeof out->shape);
	if (operands == 2)
		TRY(ops_broadcast(f->name, &job->a->t, &job->b->t, &ndim, out->shape, err));
	out->ndim = (uint8_t)ndim;
	return FAR_OK;
}

/** An answer of any dtypes and shapes. `operands`: 1 or 2; `alpha` NULL: 1. */
static __attribute__((noinline)) enum far_status answer(struct far_req *req, const struct ops_host *host,
							const struct arithmetic *f, const struct far_val *args,
							size_t operands, const struct far_val *alpha)
{
	struct operand a, b, factor;
	struct job job = {.a = &a, .b = operands == 2 ? &b : NULL, .alpha = alpha ? &factor : NULL};
	struct far_tensor out = {.dtype = (uint8_t)result_dtype(f, args, operands)};
	struct far_err err;
	enum far_dtype dtype = (enum far_dtype)out.dtype;
	job.in = ops_arithmetic(dtype);
	job.kernel = ops_kernels()->map[f->map][job.in];
	if (!job.kernel)
		return no_kernel(req, host, f, dtype);
	if (operands_of(f, &job, &out, args, operands, &err) != FAR_OK)
		return host->fail(req, FAR_BAD_ARGS, 0, "%s", err.text);
	if (alpha && !operand_scalar(&factor, job.in, alpha))
		return host->fail(req, FAR_BAD_ARGS, 0, "%s: alpha is %s, which the result's dtype %s cannot hold",
				  f->name, alpha->type == FAR_TYPE_FLOAT ? "a float" : "an int out of range",
				  ops_dtype_name(dtype));
	enum far_status status = host->answer_tensor(req, dtype, out.ndim, out.shape, &out.data);
	if (status == FAR_OK)
		run(&job, &out);
	return status;
}

static __attribute__((noinline)) enum far_status others(struct far_req *req, const struct ops_host *host,
							const struct arithmetic *f, const struct far_val *args,
							size_t n)
{
	const struct far_val *alpha = n == 3 ? &args[2] : NULL;
	if (args[0].type != FAR_TYPE_TENSOR && args[1].type != FAR_TYPE_TENSOR)
		return two_scalars(req, host, f, args, alpha);
	return answer(req, host, f, args, 2, alpha);
}

/** The usual answer first: of two tensors of the result's dtype and of one shape, dense as all of a message. */
static inline enum far_status two(struct far_req *req, const struct ops_host *host, const struct arithmetic *f,
				  const struct far_val *args, size_t n)
{
	const struct far_tensor *a = &args[0].u.t, *b = &args[1].u.t;
	void *out;
	if (args[0].type != FAR_TYPE_TENSOR || args[1].type != FAR_TYPE_TENSOR || n != 2 || a->dtype != b->dtype)
		return others(req, host, f, args, n);
	bool vectors = a->ndim == 1 && b->ndim == 1 && a->shape[0] == b->shape[0];
	ops_map_kernel *kernel = ops_kernels()->map[f->map][a->dtype]; /* NULL for half types */
	if (!kernel || !(vectors || ops_same_shape(a, b)) || (f->fraction && !ops_is_float((enum far_dtype)a->dtype)))
		return others(req, host, f, args, n);
	enum far_status status = host->answer_tensor(req, (enum far_dtype)a->dtype, a->ndim, a->shape, &out);
	if (status == FAR_OK)
		kernel(out, (const void *[]){a->data, b->data}, 0, vectors ? a->shape[0] : ops_count(a));
	return status;
}

#define TWO(name, map, fraction)                                                                                       \
	FUNCTION(name)                                                                                                 \
	{                                                                                                              \
		static const struct arithmetic f = {"far::" #name, map, fraction};                                     \
		return two(req, user, &f, args, n);                                                                    \
	}
TWO(add, OPS_ADD, false)
TWO(sub, OPS_SUB, false)
TWO(mul, OPS_MUL, false)
TWO(div, OPS_DIV, true)
TWO(min, OPS_MIN, false)
TWO(max, OPS_MAX, false)

#define ONE(name, map, fraction)                                                                                       \
	FUNCTION(name)                                                                                                 \
	{                                                                                                              \
		static const struct arithmetic f = {"far::" #name, map, fraction};                                     \
		return answer(req, user, &f, args, 1, NULL);                                                           \
	}
ONE(neg, OPS_NEG, false)
ONE(relu, OPS_RELU, false)
ONE(sigmoid, OPS_SIGMOID, true)
ONE(tanh, OPS_TANH, true)
ONE(exp, OPS_EXP, true)
ONE(log, OPS_LOG, true)
ONE(sqrt, OPS_SQRT, true)
