/* SPDX-License-Identifier: BSD-3-Clause */
/** Element-wise operators and their derivatives. Any thread. */
#include "space.h"

enum far_status ops_broadcast(const char *op, const struct far_tensor *a, const struct far_tensor *b, unsigned *ndim,
			      uint64_t *shape, struct far_err *err)
{
	char text_a[OPS_TEXT];
	char text_b[OPS_TEXT];
	*ndim = a->ndim > b->ndim ? a->ndim : b->ndim;
	for (unsigned k = 0; k < *ndim; k++) {
		unsigned from_end = *ndim - k;
		uint64_t size_a = from_end <= a->ndim ? a->shape[a->ndim - from_end] : 1;
		uint64_t size_b = from_end <= b->ndim ? b->shape[b->ndim - from_end] : 1;
		if (size_a != size_b && size_a != 1 && size_b != 1)
			return ops_fail(err, FAR_INVALID, "%s: a %s and b %s do not broadcast: axis %u of the result",
					op, ops_text(a, text_a), ops_text(b, text_b), k);
		shape[k] = size_a == 1 ? size_b : size_a;
	}
	return FAR_OK;
}

static void run(ops_map_kernel *kernel, double p, const struct far_tensor *out, const struct far_tensor *const *in,
		unsigned n)
{
	unsigned all = (1u << out->ndim) - 1;
	struct ops_space space = ops_space(out->ndim, out->shape, all);
	struct ops_operand to = ops_operand(out, out->ndim, out->shape, all);
	struct ops_operand from[3];
	struct ops_operand *every[4] = {&to};
	for (unsigned i = 0; i < n; i++) {
		from[i] = ops_operand(in[i], out->ndim, out->shape, all);
		every[i + 1] = &from[i];
	}
	ops_space_fold(&space, every, n + 1);
	ops_map(kernel, p, &space, &to, from, n);
}

/* ---- two operands ---- */

static enum far_status two(const char *op, ops_map_kernel *const *kernels, enum far_dtype result,
			   const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			   struct far_err *err)
{
	char text[OPS_TEXT];
	uint64_t shape[FAR_DIMS_MAX];
	unsigned ndim;
	TRY(ops_check(op, "a", a, err));
	TRY(ops_check_like(op, "b", b, "a", a, err));
	ops_map_kernel *kernel = kernels[ops_arithmetic((enum far_dtype)a->dtype)];
	if (!kernel)
		return ops_fail(err, FAR_UNSUPPORTED, "%s: not supported on %s: a is %s", op,
				ops_dtype_name((enum far_dtype)a->dtype), ops_text(a, text));
	TRY(ops_broadcast(op, a, b, &ndim, shape, err));
	TRY(ops_output(op, "out", out, result ? result : (enum far_dtype)a->dtype, ndim, shape, err));
	TRY(ops_apart(op, "out", out, "a", a, true, err));
	TRY(ops_apart(op, "out", out, "b", b, true, err));
	if (ops_wanted(out))
		run(kernel, 0, out, (const struct far_tensor *[]){a, b}, 2);
	return FAR_OK;
}

#define TWO(name, map)                                                                                                 \
	enum far_status far_op_##name(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,  \
				      struct far_err *err)                                                             \
	{                                                                                                              \
		return two(#name, ops_kernels()->map, FAR_DTYPE_NONE, a, b, out, err);                                 \
	}
TWO(add, map[OPS_ADD])
TWO(sub, map[OPS_SUB])
TWO(mul, map[OPS_MUL])
TWO(div, map[OPS_DIV])
TWO(min, map[OPS_MIN])
TWO(max, map[OPS_MAX])

#define COMPARE(name, which)                                                                                           \
	enum far_status far_op_##name(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,  \
				      struct far_err *err)                                                             \
	{                                                                                                              \
		return two(#name, ops_kernels()->compare[which], FAR_BOOL, a, b, out, err);                            \
	}
COMPARE(eq, OPS_EQ)
COMPARE(ne, OPS_NE)
COMPARE(lt, OPS_LT)
COMPARE(le, OPS_LE)
COMPARE(gt, OPS_GT)
COMPARE(ge, OPS_GE)

/* A derivative: kernel(grad, operands) over `n` operands. `swap`: the operands are exchanged for the derivative by b.
 */
struct derivative {
	enum ops_map map;
	unsigned n; /* 1: of grad alone */
	bool swap;
};

/* grad, first, second: what a map of three inputs sees. */
static void derive(const struct derivative *d, const struct far_tensor *grad, const struct far_tensor *a,
		   const struct far_tensor *b, struct far_tensor *out)
{
	const struct far_tensor *in[3] = {grad, d->swap ? b : a, d->swap ? a : b};
	struct ops_sum sum = {ops_kernel(d->map, (enum far_dtype)grad->dtype), 1, 1};
	ops_sum(&sum, out, in, d->n, grad->ndim, grad->shape, ops_repeated(out, grad->ndim, grad->shape));
}

static enum far_status two_backward(const char *op, const struct derivative *of_a, const struct derivative *of_b,
				    const struct far_tensor *grad, const struct far_tensor *a,
				    const struct far_tensor *b, struct far_tensor *da, struct far_tensor *db,
				    struct far_err *err)
{
	uint64_t shape[FAR_DIMS_MAX];
	unsigned ndim;
	TRY(ops_check_float(op, "a", a, err));
	TRY(ops_check_like(op, "b", b, "a", a, err));
	TRY(ops_broadcast(op, a, b, &ndim, shape, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)a->dtype, ndim, shape, err));
	struct far_tensor *outs[2] = {da, db};
	const struct far_tensor *ins[3] = {grad, a, b};
	static const char *const out_names[2] = {"da", "db"};
	static const char *const in_names[3] = {"grad", "a", "b"};
	for (unsigned i = 0; i < 2; i++) {
		TRY(ops_gradient(op, out_names[i], outs[i], i ? b : a, err));
		for (unsigned k = 0; k < 3; k++)
			TRY(ops_apart(op, out_names[i], outs[i], in_names[k], ins[k], false, err));
	}
	if (ops_wanted(da) && db)
		TRY(ops_apart(op, "db", db, "da", da, false, err));
	if (ops_wanted(da))
		derive(of_a, grad, a, b, da);
	if (ops_wanted(db))
		derive(of_b, grad, a, b, db);
	return FAR_OK;
}

#define TWO_BACKWARD(name, map_a, n_a, swap_a, map_b, n_b, swap_b)                                                     \
	enum far_status far_op_##name##_backward(const struct far_tensor *grad, const struct far_tensor *a,            \
						 const struct far_tensor *b, struct far_tensor *da,                    \
						 struct far_tensor *db, struct far_err *err)                           \
	{                                                                                                              \
		static const struct derivative of_a = {map_a, n_a, swap_a};                                            \
		static const struct derivative of_b = {map_b, n_b, swap_b};                                            \
		return two_backward(#name "_backward", &of_a, &of_b, grad, a, b, da, db, err);                         \
	}
TWO_BACKWARD(add, OPS_SCALE, 1, false, OPS_SCALE, 1, false)
TWO_BACKWARD(sub, OPS_SCALE, 1, false, OPS_NEG, 1, false)
TWO_BACKWARD(mul, OPS_MUL, 2, true, OPS_MUL, 2, false)
TWO_BACKWARD(div, OPS_DIV, 2, true, OPS_DIV_DB, 3, false)
TWO_BACKWARD(min, OPS_MIN_D, 3, false, OPS_MIN_D, 3, true)
TWO_BACKWARD(max, OPS_MAX_D, 3, false, OPS_MAX_D, 3, true)

/* ---- one operand ---- */

static enum far_status one(const char *op, enum ops_map map, double p, const struct far_tensor *x,
			   struct far_tensor *out, struct far_err *err)
{
	char text[OPS_TEXT];
	TRY(ops_check(op, "x", x, err));
	ops_map_kernel *kernel = ops_kernel(map, (enum far_dtype)x->dtype);
	if (!kernel)
		return ops_fail(err, FAR_UNSUPPORTED, "%s: not supported on %s: x is %s", op,
				ops_dtype_name((enum far_dtype)x->dtype), ops_text(x, text));
	TRY(ops_output(op, "out", out, (enum far_dtype)x->dtype, x->ndim, x->shape, err));
	TRY(ops_apart(op, "out", out, "x", x, true, err));
	if (ops_wanted(out))
		run(kernel, p, out, &x, 1);
	return FAR_OK;
}

#define ONE(name, map)                                                                                                 \
	enum far_status far_op_##name(const struct far_tensor *x, struct far_tensor *out, struct far_err *err)         \
	{                                                                                                              \
		return one(#name, map, 0, x, out, err);                                                                \
	}
ONE(neg, OPS_NEG)
ONE(relu, OPS_RELU)
ONE(sigmoid, OPS_SIGMOID)
ONE(tanh, OPS_TANH)
ONE(exp, OPS_EXP)
ONE(log, OPS_LOG)
ONE(sqrt, OPS_SQRT)

enum far_status far_op_scale(const struct far_tensor *x, double factor, struct far_tensor *out, struct far_err *err)
{
	return one("scale", OPS_SCALE, factor, x, out, err);
}

enum far_status far_op_neg_backward(const struct far_tensor *grad, struct far_tensor *dx, struct far_err *err)
{
	TRY(ops_check_float("neg_backward", "grad", grad, err));
	return one("neg_backward", OPS_NEG, 0, grad, dx, err);
}

/** dx = map(grad, y). */
static enum far_status one_backward(const char *op, enum ops_map map, const struct far_tensor *grad, const char *name,
				    const struct far_tensor *y, struct far_tensor *dx, struct far_err *err)
{
	TRY(ops_check_float(op, name, y, err));
	TRY(ops_check_shape(op, "grad", grad, (enum far_dtype)y->dtype, y->ndim, y->shape, err));
	TRY(ops_output(op, "dx", dx, (enum far_dtype)y->dtype, y->ndim, y->shape, err));
	TRY(ops_apart(op, "dx", dx, "grad", grad, true, err));
	TRY(ops_apart(op, "dx", dx, name, y, true, err));
	if (ops_wanted(dx))
		run(ops_kernel(map, (enum far_dtype)y->dtype), 0, dx, (const struct far_tensor *[]){grad, y}, 2);
	return FAR_OK;
}

#define ONE_BACKWARD(name, map, with)                                                                                  \
	enum far_status far_op_##name##_backward(const struct far_tensor *grad, const struct far_tensor *with,         \
						 struct far_tensor *dx, struct far_err *err)                           \
	{                                                                                                              \
		return one_backward(#name "_backward", map, grad, #with, with, dx, err);                               \
	}
ONE_BACKWARD(relu, OPS_RELU_D, y)
ONE_BACKWARD(sigmoid, OPS_SIGMOID_D, y)
ONE_BACKWARD(tanh, OPS_TANH_D, y)
ONE_BACKWARD(exp, OPS_MUL, y)
ONE_BACKWARD(log, OPS_DIV, x)
ONE_BACKWARD(sqrt, OPS_SQRT_D, y)
