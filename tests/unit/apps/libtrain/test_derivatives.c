/* SPDX-License-Identifier: BSD-3-Clause */
/** The derivative of every operator on the tape against central differences in f64. The test's thread. */
#include "train_fixture.h"

#define LEAVES_MAX   8
#define ELEMENTS_MAX 512

static struct far_var *leaves[LEAVES_MAX];
static size_t leaves_n;
static struct far_var *weights; /* of the result's elements in the loss */

/* Makes the operator's result of `leaves`. */
typedef struct far_var *build_fn(void);

static struct far_var *L(struct far_tensor t)
{
	return leaves[leaves_n++] = leaf(t);
}

static struct far_var *loss_of(build_fn *build)
{
	far_tape_reset(tape);
	struct far_var *y = build();
	OK(far_tape_status(tape, &err));
	if (!weights) {
		const struct far_tensor *t = far_var_tensor(y);
		weights = leaf_in(shaped(FAR_F64, t->ndim, t->shape), 0.5, 1.5);
	}
	struct far_var *loss = sum_of(far_tape_mul(tape, y, far_tape_detach(tape, weights)));
	OK(far_tape_status(tape, &err));
	return loss;
}

/** Sparse gradients are added up by index. */
static void any_gradient_of(struct far_var *var, double *out)
{
	struct far_gradient g;
	double rows[ELEMENTS_MAX];
	size_t n = far_tensor_count(far_var_tensor(var));
	cr_assert(far_grads_get(grads, var, &g));
	if (g.index.dtype == FAR_DTYPE_NONE) {
		gradient_of(var, out);
		return;
	}
	uint64_t width = g.values.shape[1];
	memset(out, 0, n * sizeof *out);
	read_f64(&g.values, rows);
	for (uint64_t i = 0; i < g.index.shape[0]; i++)
		for (uint64_t j = 0; j < width; j++)
			out[(uint64_t)((int64_t *)g.index.data)[i] * width + j] += rows[i * width + j];
}

static void check(build_fn *build)
{
	const double h = 1e-5;
	double got[ELEMENTS_MAX];
	struct far_var *root = loss_of(build);
	OK(far_grads_backward(grads, &root, 1, NULL, &err));
	for (size_t l = 0; l < leaves_n; l++) {
		size_t n = far_tensor_count(far_var_tensor(leaves[l]));
		cr_assert_leq(n, ELEMENTS_MAX);
		any_gradient_of(leaves[l], got);
		for (size_t i = 0; i < n; i++) {
			double *x = f64_of(leaves[l]) + i;
			double before = *x;
			*x = before + h;
			double above = far_var_scalar(loss_of(build));
			*x = before - h;
			double below = far_var_scalar(loss_of(build));
			*x = before;
			double wanted = (above - below) / (2 * h);
			cr_assert(fabs(got[i] - wanted) <= 1e-7 * (1 + fabs(wanted)),
				  "leaf %zu, element %zu: %.12g instead of %.12g", l, i, got[i], wanted);
		}
	}
}

/** `build` with the leaves that were made; then without them. */
static void check_and_forget(build_fn *build)
{
	check(build);
	far_grads_clear(grads);
	leaves_n = 0;
	weights = NULL;
}

/* ---- two operands, with broadcasting ---- */

#define TWO(name)                                                                                                      \
	static struct far_var *build_##name(void)                                                                      \
	{                                                                                                              \
		return far_tape_##name(tape, leaves[0], leaves[1]);                                                    \
	}                                                                                                              \
	CASE(derivatives, name)                                                                                        \
	{                                                                                                              \
		L(SHAPE(FAR_F64, 3, 4)), L(SHAPE(FAR_F64, 3, 4));                                                      \
		check_and_forget(build_##name);                                                                        \
		L(SHAPE(FAR_F64, 2, 3, 1)), L(SHAPE(FAR_F64, 3, 4));                                                   \
		check_and_forget(build_##name);                                                                        \
		leaves[leaves_n++] = leaf(shaped(FAR_F64, 0, NULL)), L(SHAPE(FAR_F64, 2, 2));                          \
		check_and_forget(build_##name);                                                                        \
	}
TWO(add)
TWO(sub)
TWO(mul)
TWO(min)
TWO(max)

static struct far_var *build_div(void)
{
	return far_tape_div(tape, leaves[0], leaves[1]);
}

CASE(derivatives, div)
{
	L(SHAPE(FAR_F64, 2, 3, 1)), leaves[leaves_n++] = leaf_in(SHAPE(FAR_F64, 3, 4), 0.5, 2);
	check_and_forget(build_div);
}

static struct far_var *build_square(void)
{
	return far_tape_mul(tape, leaves[0], leaves[0]);
}

CASE(derivatives, same_operand_twice)
{
	L(SHAPE(FAR_F64, 3, 4));
	check_and_forget(build_square);
}

/* To the bit as with two variables of the same values, whose derivatives are added. */
CASE(derivatives, square_is_a_product)
{
	static const enum far_dtype dtypes[] = {FAR_F32, FAR_F64, FAR_BF16};
	for (size_t i = 0; i < 3; i++) {
		struct far_var *x = leaf(SHAPE(dtypes[i], 37)), *other, *w = leaf(SHAPE(dtypes[i], 37));
		double square[37], product[37];
		OK(far_var_new(pool, far_var_tensor(x), true, &other, &err));
		keep(other);
		struct far_var *roots[] = {sum_of(far_tape_mul(tape, far_tape_mul(tape, x, x), w))};
		OK(far_grads_backward(grads, roots, 1, NULL, &err));
		gradient_of(x, square);
		far_grads_clear(grads);
		roots[0] = sum_of(far_tape_mul(tape, far_tape_mul(tape, x, other), w));
		OK(far_grads_backward(grads, roots, 1, NULL, &err));
		gradient_of(x, product);
		for (int k = 0; k < 37; k++)
			cr_assert(square[k] == 2 * product[k] && square[k] != 0);
		far_grads_clear(grads);
	}
}

/* ---- one operand ---- */

#define ONE(name, low, high)                                                                                           \
	static struct far_var *build_##name(void)                                                                      \
	{                                                                                                              \
		return far_tape_##name(tape, leaves[0]);                                                               \
	}                                                                                                              \
	CASE(derivatives, name)                                                                                        \
	{                                                                                                              \
		leaves[leaves_n++] = leaf_in(SHAPE(FAR_F64, 5, 7), low, high);                                         \
		check_and_forget(build_##name);                                                                        \
	}
ONE(neg, -1, 1)
ONE(relu, -1, 1)
ONE(sigmoid, -3, 3)
ONE(tanh, -2, 2)
ONE(exp, -2, 2)
ONE(log, 0.5, 3)
ONE(sqrt, 0.5, 3)

static struct far_var *build_scale(void)
{
	return far_tape_scale(tape, leaves[0], -2.5);
}

static struct far_var *build_dropout(void)
{
	return far_tape_dropout(tape, leaves[0], 0.4, 11, 3);
}

CASE(derivatives, scale_and_dropout)
{
	L(SHAPE(FAR_F64, 5, 7));
	check(build_scale);
	far_grads_clear(grads);
	check_and_forget(build_dropout);
}

/* ---- reductions ---- */

static int axes[2];
static size_t axes_n;
static bool keep_axes;

static struct far_var *build_sum(void)
{
	return far_tape_sum(tape, leaves[0], axes, axes_n, keep_axes);
}

static struct far_var *build_mean(void)
{
	return far_tape_mean(tape, leaves[0], axes, axes_n, keep_axes);
}

static struct far_var *build_min_axis(void)
{
	return far_tape_min_axis(tape, leaves[0], axes[0], keep_axes, NULL);
}

static struct far_var *build_max_axis(void)
{
	return far_tape_max_axis(tape, leaves[0], axes[0], keep_axes, NULL);
}

static struct far_var *build_softmax(void)
{
	return far_tape_softmax(tape, leaves[0], axes[0]);
}

static struct far_var *build_log_softmax(void)
{
	return far_tape_log_softmax(tape, leaves[0], axes[0]);
}

CASE(derivatives, reductions)
{
	static build_fn *const builds[] = {build_sum,      build_mean,    build_min_axis,
					   build_max_axis, build_softmax, build_log_softmax};
	for (size_t i = 0; i < sizeof builds / sizeof *builds; i++)
		for (int how = 0; how < 4; how++) {
			axes_n = how == 3 ? 0 : how == 2 ? 2 : 1;
			axes[0] = how == 1 ? 2 : 0;
			axes[1] = 1;
			keep_axes = how % 2;
			L(SHAPE(FAR_F64, 3, 2, 4));
			check_and_forget(builds[i]);
		}
}

/* ---- losses ---- */

static enum far_op_reduction reduction;
static struct far_var *targets;

static struct far_var *build_cross_entropy(void)
{
	return far_tape_cross_entropy(tape, leaves[0], targets, reduction);
}

static struct far_var *build_bce(void)
{
	return far_tape_bce_with_logits(tape, leaves[0], leaves[1], reduction);
}

static struct far_var *build_mse(void)
{
	return far_tape_mse(tape, leaves[0], leaves[1], reduction);
}

CASE(derivatives, losses)
{
	targets = zeros(SHAPE(FAR_I64, 5), false);
	for (int i = 0; i < 5; i++)
		((int64_t *)far_var_tensor(targets)->data)[i] = i * 2 % 3;
	for (reduction = FAR_OP_REDUCE_NONE; reduction <= FAR_OP_REDUCE_SUM; reduction++) {
		L(SHAPE(FAR_F64, 5, 3));
		check_and_forget(build_cross_entropy);
		L(SHAPE(FAR_F64, 5, 3)), L(SHAPE(FAR_F64, 5, 3));
		check(build_bce);
		far_grads_clear(grads);
		weights = NULL;
		check_and_forget(build_mse);
	}
}

/* ---- matrix products ---- */

static struct far_var *build_matmul(void)
{
	return far_tape_matmul(tape, leaves[0], leaves[1]);
}

static struct far_var *build_linear(void)
{
	return far_tape_linear(tape, leaves[0], leaves[1], leaves_n > 2 ? leaves[2] : NULL);
}

static struct far_op_conv conv;

static struct far_var *build_conv2d(void)
{
	return far_tape_conv2d(tape, leaves[0], leaves[1], leaves_n > 2 ? leaves[2] : NULL, &conv);
}

CASE(derivatives, matrices)
{
	L(SHAPE(FAR_F64, 2, 3, 4)), L(SHAPE(FAR_F64, 4, 5));
	check_and_forget(build_matmul);
	L(SHAPE(FAR_F64, 4)), L(SHAPE(FAR_F64, 4, 5));
	check_and_forget(build_matmul);
	L(SHAPE(FAR_F64, 2, 3, 4)), L(SHAPE(FAR_F64, 5, 4)), L(SHAPE(FAR_F64, 5));
	check_and_forget(build_linear);
	L(SHAPE(FAR_F64, 3, 4)), L(SHAPE(FAR_F64, 5, 4));
	check_and_forget(build_linear);
}

CASE(derivatives, conv2d)
{
	L(SHAPE(FAR_F64, 2, 2, 5, 4)), L(SHAPE(FAR_F64, 3, 2, 3, 2)), L(SHAPE(FAR_F64, 3));
	check_and_forget(build_conv2d);
	conv = (struct far_op_conv){{2, 1}, {1, 2}, {1, 2}, 2};
	L(SHAPE(FAR_F64, 1, 4, 5, 4)), L(SHAPE(FAR_F64, 2, 2, 3, 2));
	check_and_forget(build_conv2d);
}

/* ---- cells: both results, and each alone ---- */

static int which;

static struct far_var *build_lstm(void)
{
	struct far_cell cell = {leaves[3], leaves[4], leaves_n > 5 ? leaves[5] : NULL, leaves_n > 6 ? leaves[6] : NULL};
	struct far_var *c;
	struct far_var *h = far_tape_lstm_cell(tape, leaves[0], leaves[1], leaves[2], &cell, &c);
	return which == 0   ? h
	       : which == 1 ? c
	       : which == 2 ? far_tape_mul(tape, h, c) /* of one node, but not the same variable */
			    : far_tape_cat(tape, (struct far_var *[]){h, c}, 2, 1);
}

static struct far_var *build_gru(void)
{
	struct far_cell cell = {leaves[2], leaves[3], leaves_n > 4 ? leaves[4] : NULL, leaves_n > 5 ? leaves[5] : NULL};
	return far_tape_gru_cell(tape, leaves[0], leaves[1], &cell);
}

CASE(derivatives, cells)
{
	for (which = 0; which < 4; which++)
		for (int biases = 0; biases < 2; biases++) {
			L(SHAPE(FAR_F64, 2, 3)), L(SHAPE(FAR_F64, 2, 4)), L(SHAPE(FAR_F64, 2, 4));
			L(SHAPE(FAR_F64, 16, 3)), L(SHAPE(FAR_F64, 16, 4));
			if (biases)
				L(SHAPE(FAR_F64, 16)), L(SHAPE(FAR_F64, 16));
			check_and_forget(build_lstm);
			L(SHAPE(FAR_F64, 2, 3)), L(SHAPE(FAR_F64, 2, 4));
			L(SHAPE(FAR_F64, 12, 3)), L(SHAPE(FAR_F64, 12, 4));
			if (biases)
				L(SHAPE(FAR_F64, 12)), L(SHAPE(FAR_F64, 12));
			check_and_forget(build_gru);
		}
}

/* ---- embeddings ---- */

static struct far_var *indices, *offsets;
static bool sparse;
static enum far_op_bag bag;

static struct far_var *build_embedding(void)
{
	return far_tape_embedding(tape, leaves[0], indices, sparse);
}

static struct far_var *build_bag(void)
{
	return far_tape_embedding_bag(tape, leaves[0], indices, offsets, bag, sparse);
}

/** The table is used sparsely twice, and densely once. */
static struct far_var *build_mixed(void)
{
	struct far_var *a = far_tape_embedding(tape, leaves[0], indices, true);
	struct far_var *b = far_tape_embedding(tape, leaves[0], indices, true);
	struct far_var *all = far_tape_sum(tape, leaves[0], (int[]){0}, 1, true);
	if (which == 0)
		return far_tape_mul(tape, a, b);
	return far_tape_mul(tape, far_tape_mul(tape, a, b), all);
}

/** The table is no leaf: its gradient is dense. */
static struct far_var *build_scaled_table(void)
{
	return far_tape_embedding(tape, far_tape_scale(tape, leaves[0], 3), indices, true);
}

CASE(derivatives, embeddings)
{
	indices = zeros(SHAPE(FAR_I32, 6), false);
	offsets = zeros(SHAPE(FAR_I64, 4), false);
	memcpy(far_var_tensor(indices)->data, (int32_t[]){4, 0, 4, 2, 4, 0}, 6 * sizeof(int32_t));
	memcpy(far_var_tensor(offsets)->data, (int64_t[]){0, 1, 1, 4}, 4 * sizeof(int64_t));
	for (int how = 0; how < 2; how++) {
		sparse = how;
		L(SHAPE(FAR_F64, 5, 3));
		check_and_forget(build_embedding);
		for (bag = FAR_OP_BAG_SUM; bag <= FAR_OP_BAG_MEAN; bag++) {
			L(SHAPE(FAR_F64, 5, 3));
			check_and_forget(build_bag);
		}
	}
	for (which = 0; which < 2; which++) {
		L(SHAPE(FAR_F64, 5, 3));
		check_and_forget(build_mixed);
	}
	L(SHAPE(FAR_F64, 5, 3));
	check_and_forget(build_scaled_table);
}

/* ---- shapes ---- */

static struct far_var *build_reshape(void)
{
	return far_tape_reshape(tape, leaves[0], 2, (uint64_t[]){8, 3});
}

/** Of a view, and with a view as its gradient. */
static struct far_var *build_views(void)
{
	struct far_var *x = far_tape_transpose(tape, leaves[0], 0, 2);
	x = far_tape_reshape(tape, x, 2, (uint64_t[]){6, 4});
	x = far_tape_transpose(tape, x, 0, 1);
	return far_tape_add(tape, x, x);
}

static struct far_var *build_transpose(void)
{
	return far_tape_exp(tape, far_tape_transpose(tape, leaves[0], 0, 2));
}

static struct far_var *build_slice(void)
{
	return far_tape_mul(tape, far_tape_slice(tape, leaves[0], 1, 0, 3, 2),
			    far_tape_slice(tape, leaves[0], 1, 1, 3, 1));
}

static struct far_var *build_expand(void)
{
	return far_tape_expand(tape, leaves[0], 4, (uint64_t[]){2, 4, 3, 2});
}

static struct far_var *build_cast(void)
{
	return far_tape_cast(tape, leaves[0], FAR_F64);
}

static struct far_var *build_cat(void)
{
	return far_tape_cat(tape, leaves, 3, 1);
}

static struct far_var *build_long_cat(void)
{
	struct far_var *xs[40];
	for (int i = 0; i < 40; i++)
		xs[i] = i % 3 ? leaves[0] : far_tape_scale(tape, leaves[0], i);
	return far_tape_cat(tape, xs, 40, 1);
}

CASE(derivatives, shapes)
{
	static build_fn *const builds[] = {build_reshape, build_views, build_transpose, build_slice,
					   build_expand,  build_cast,  build_long_cat};
	for (size_t i = 0; i < sizeof builds / sizeof *builds; i++) {
		L(SHAPE(FAR_F64, 4, 3, 2));
		check_and_forget(builds[i]);
	}
	L(SHAPE(FAR_F64, 2, 3)), L(SHAPE(FAR_F64, 2, 1)), L(SHAPE(FAR_F64, 2, 2));
	check_and_forget(build_cat);
}

/* ---- functions of the application ---- */

/* a * b and a + b; `user` counts the derivatives. */
static enum far_status pair_forward(void *user, const struct far_tensor *const *in, size_t n,
				    struct far_tensor *const *out, size_t m, struct far_err *e)
{
	cr_assert_eq(n, 2);
	cr_assert_eq(m, 2);
	enum far_status status = far_op_mul(in[0], in[1], out[0], e);
	return status ? status : far_op_add(in[0], in[1], out[1], e);
}

static enum far_status pair_backward(void *user, const struct far_tensor *const *g, size_t m,
				     const struct far_tensor *const *in, size_t n, const struct far_tensor *const *out,
				     struct far_tensor *const *dx, struct far_err *e)
{
	int *count = user;
	++*count;
	for (size_t i = 0; i < 2; i++) {
		double *d = dx[i]->data;
		const double *other = in[1 - i]->data;
		for (size_t k = 0; k < far_tensor_count(dx[i]); k++) {
			cr_assert_eq(d[k], 0);
			d[k] = (g[0] ? ((const double *)g[0]->data)[k] * other[k] : 0) +
			       (g[1] ? ((const double *)g[1]->data)[k] : 0);
		}
	}
	return FAR_OK;
}

static int pair_runs;
static const struct far_tape_function pair = {"test::pair", pair_forward, pair_backward, &pair_runs};

static struct far_var *build_pair(void)
{
	struct far_var *outs[2];
	far_tape_apply(tape, &pair, leaves, 2, outs, 2);
	return which == 0 ? outs[0] : which == 1 ? outs[1] : far_tape_add(tape, outs[0], far_tape_exp(tape, outs[1]));
}

CASE(derivatives, functions)
{
	for (which = 0; which < 3; which++) {
		L(SHAPE(FAR_F64, 3, 2)), L(SHAPE(FAR_F64, 3, 2));
		check_and_forget(build_pair);
	}
	cr_assert_eq(pair_runs, 3);
}

/* ---- a graph with branches that meet again ---- */

static struct far_var *build_diamond(void)
{
	struct far_var *a = far_tape_tanh(tape, leaves[0]);
	struct far_var *b = far_tape_mul(tape, a, leaves[1]);
	struct far_var *c = far_tape_sub(tape, a, b);
	return far_tape_add(tape, far_tape_mul(tape, b, c), far_tape_sub(tape, a, leaves[0]));
}

CASE(derivatives, diamond)
{
	L(SHAPE(FAR_F64, 3, 4)), L(SHAPE(FAR_F64, 3, 4));
	check_and_forget(build_diamond);
}

/* ---- other dtypes: against f64 ---- */

static void compare_dtype(enum far_dtype dtype, double tolerance)
{
	double got[64], wanted[64];
	struct far_tensor edited;
	for (int pass = 0; pass < 2; pass++) {
		struct far_var *x, *w, *b;
		enum far_dtype use = pass ? FAR_F64 : dtype;
		if (pass == 0) {
			x = leaves[0] = leaf(SHAPE(dtype, 4, 3)), w = leaves[1] = leaf(SHAPE(dtype, 5, 3));
			b = leaves[2] = leaf(SHAPE(dtype, 5));
		} else {
			struct far_var *from[3] = {leaves[0], leaves[1], leaves[2]};
			for (int i = 0; i < 3; i++) {
				struct far_tensor t = *far_var_tensor(from[i]);
				t.dtype = (uint8_t)use;
				t.data = NULL;
				leaves[i] = zeros(t, true);
				OK(far_var_edit(leaves[i], &edited, &err));
				OK(far_op_copy(far_var_tensor(from[i]), &edited, &err));
			}
			x = leaves[0], w = leaves[1], b = leaves[2];
		}
		far_tape_reset(tape);
		struct far_var *y = far_tape_tanh(tape, far_tape_linear(tape, x, w, b));
		struct far_var *root = sum_of(far_tape_mul(tape, y, y));
		OK(far_tape_status(tape, &err));
		OK(far_grads_backward(grads, &root, 1, NULL, &err));
		gradient_of(w, pass ? wanted : got);
	}
	for (int i = 0; i < 15; i++)
		cr_assert(fabs(got[i] - wanted[i]) <= tolerance * (1 + fabs(wanted[i])), "%g instead of %g", got[i],
			  wanted[i]);
}

CASE(derivatives, dtypes)
{
	compare_dtype(FAR_F32, 1e-6);
	compare_dtype(FAR_BF16, 3e-2);
	compare_dtype(FAR_F16, 4e-3);
}

static struct far_var *build_through_bf16(void)
{
	return far_tape_cast(tape, far_tape_cast(tape, leaves[0], FAR_BF16), FAR_F64);
}

/* The gradient passes a conversion as it is, rounded. */
CASE(derivatives, conversion)
{
	double got[6];
	L(SHAPE(FAR_F64, 6));
	struct far_var *root = sum_of(build_through_bf16());
	OK(far_grads_backward(grads, &root, 1, NULL, &err));
	gradient_of(leaves[0], got);
	for (int i = 0; i < 6; i++)
		cr_assert_eq(got[i], 1);
}
