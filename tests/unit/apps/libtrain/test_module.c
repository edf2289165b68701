/* SPDX-License-Identifier: BSD-3-Clause */
/** Modules: results and derivatives, names, initial values, training and use. The test's thread. */
#define BEGIN begin
#include "train_fixture.h"

#include <farcall/module.h>

static struct far_init init;

static void begin(void)
{
	setup();
	init = (struct far_init){.dtype = FAR_F64, .seed = 7};
}

static struct far_var *run(struct far_module *m, struct far_var *x)
{
	struct far_var *y = far_module_forward(m, tape, x);
	OK(far_tape_status(tape, &err));
	return y;
}

static void expect_shape(struct far_var *y, unsigned ndim, const uint64_t *shape)
{
	cr_assert_eq(far_var_tensor(y)->ndim, ndim);
	for (unsigned k = 0; k < ndim; k++)
		cr_assert_eq(far_var_tensor(y)->shape[k], shape[k]);
}
#define EXPECT_SHAPE(y, ...)                                                                                           \
	expect_shape(y, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (const uint64_t[]){__VA_ARGS__})

/* The gradient of every parameter and of the input against central differences. */
static void check(struct far_module *m, struct far_var *x)
{
	struct far_var *vars[16];
	double got[512];
	size_t n = far_module_parameters(m, vars, 15);
	cr_assert_leq(n, 15);
	if (far_var_requires_grad(x))
		vars[n++] = x;
	far_tape_reset(tape);
	struct far_var *y = run(m, x);
	struct far_var *root = sum_of(far_tape_mul(tape, y, y));
	OK(far_grads_backward(grads, &root, 1, NULL, &err));
	for (size_t v = 0; v < n; v++) {
		gradient_of(vars[v], got);
		for (size_t i = 0; i < far_tensor_count(far_var_tensor(vars[v])); i++) {
			double *at = f64_of(vars[v]) + i, before = *at, loss[2];
			for (int k = 0; k < 2; k++) {
				*at = before + (k ? -1e-5 : 1e-5);
				far_tape_reset(tape);
				y = run(m, x);
				loss[k] = far_var_scalar(sum_of(far_tape_mul(tape, y, y)));
			}
			*at = before;
			double wanted = (loss[0] - loss[1]) / 2e-5;
			cr_assert(fabs(got[i] - wanted) <= 1e-6 * (1 + fabs(wanted)),
				  "%s: variable %zu, element %zu: %.10g instead of %.10g", far_module_kind(m), v, i,
				  got[i], wanted);
		}
	}
	far_grads_clear(grads);
}

/* ---- layers ---- */

CASE(module, linear)
{
	struct far_module *m;
	OK(far_module_linear(pool, &init, 4, 3, true, &m, &err));
	struct far_var *x = leaf(SHAPE(FAR_F64, 2, 4));
	struct far_var *y = run(m, x);
	EXPECT_SHAPE(y, 2, 3);
	const double *w = f64_of(far_module_parameter(m, "weight")), *b = f64_of(far_module_parameter(m, "bias"));
	for (int i = 0; i < 2; i++)
		for (int j = 0; j < 3; j++) {
			double sum = b[j];
			for (int k = 0; k < 4; k++)
				sum += f64_of(x)[i * 4 + k] * w[j * 4 + k];
			cr_assert_float_eq(f64_of(y)[i * 3 + j], sum, 1e-12);
		}
	check(m, x);
	far_module_free(m);
	OK(far_module_linear(pool, &init, 4, 3, false, &m, &err));
	cr_assert_null(far_module_parameter(m, "bias"));
	check(m, x);
	far_module_free(m);
}

CASE(module, conv2d_and_flatten)
{
	struct far_module *parts[3], *m;
	struct far_op_conv conv = {.stride = {1, 2}, .padding = {1, 0}, .groups = 2};
	OK(far_module_conv2d(pool, &init, 4, 2, (uint64_t[]){3, 2}, &conv, true, &parts[0], &err));
	OK(far_module_map(pool, FAR_MODULE_TANH, &parts[1], &err));
	OK(far_module_map(pool, FAR_MODULE_FLATTEN, &parts[2], &err));
	OK(far_module_sequential(pool, parts, 3, &m, &err));
	struct far_var *x = leaf(SHAPE(FAR_F64, 2, 4, 3, 4));
	EXPECT_SHAPE(run(m, x), 2, 2 * 3 * 2);
	expect_shape(far_module_parameter(m, "0.weight"), 4, (uint64_t[]){2, 2, 3, 2});
	check(m, x);
	far_module_free(m);
	FAILS(FAR_INVALID, "3 groups do not divide 4 channels",
	      far_module_conv2d(pool, &init, 4, 3, (uint64_t[]){1, 1}, &(struct far_op_conv){.groups = 3}, true, &m,
				&err));
}

CASE(module, embedding)
{
	struct far_module *m;
	struct far_gradient g;
	OK(far_module_embedding(pool, &init, 5, 3, true, &m, &err));
	struct far_var *index = zeros(SHAPE(FAR_I64, 2, 2), false);
	memcpy(far_var_tensor(index)->data, (int64_t[]){4, 0, 4, 2}, 4 * sizeof(int64_t));
	struct far_var *y = run(m, index);
	EXPECT_SHAPE(y, 2, 2, 3);
	cr_assert_eq(f64_of(y)[1], f64_of(far_module_parameter(m, "weight"))[4 * 3 + 1]);
	struct far_var *root = sum_of(y);
	OK(far_grads_backward(grads, &root, 1, NULL, &err));
	cr_assert(far_grads_get(grads, far_module_parameter(m, "weight"), &g));
	cr_assert_eq(g.index.shape[0], 4);
	far_grads_clear(grads);
	far_module_free(m);
	OK(far_module_embedding(pool, &init, 5, 3, false, &m, &err));
	check(m, index);
	far_module_free(m);
}

/* All steps at once are the steps one after the other, with the state between. */
static void recurrent(struct far_module *m, bool lstm)
{
	struct far_var *x = leaf(SHAPE(FAR_F64, 3, 2, 4)), *state[2] = {NULL, NULL};
	struct far_var *all = run(m, x);
	EXPECT_SHAPE(all, 3, 2, 5);
	for (uint64_t i = 0; i < 3; i++) {
		struct far_var *y = far_module_forward_state(m, tape, far_tape_slice(tape, x, 0, i, i + 1, 1), state);
		OK(far_tape_status(tape, &err));
		cr_assert_arr_eq(f64_of(y), f64_of(all) + i * 10, 10 * sizeof(double));
		cr_assert_arr_eq(f64_of(state[0]), f64_of(y), 10 * sizeof(double));
		cr_assert(lstm == (state[1] != NULL));
	}
	check(m, x);
	cr_assert_null(far_module_forward(m, tape, leaf(SHAPE(FAR_F64, 2, 5))));
	FAILS(FAR_INVALID, "x is f64[2,5], not [time,n,in]", far_tape_status(tape, &err));
	far_tape_reset(tape);
	far_module_free(m);
}

CASE(module, lstm_and_gru)
{
	struct far_module *m;
	for (int bias = 0; bias < 2; bias++) {
		OK(far_module_lstm(pool, &init, 4, 5, bias, &m, &err));
		expect_shape(far_module_parameter(m, "weight_ih_l0"), 2, (uint64_t[]){20, 4});
		recurrent(m, true);
		OK(far_module_gru(pool, &init, 4, 5, bias, &m, &err));
		expect_shape(far_module_parameter(m, "weight_hh_l0"), 2, (uint64_t[]){15, 5});
		recurrent(m, false);
	}
	OK(far_module_linear(pool, &init, 1, 1, true, &m, &err));
	struct far_var *state[2] = {NULL, NULL};
	cr_assert_null(far_module_forward_state(m, tape, leaf(SHAPE(FAR_F64, 1, 1)), state));
	FAILS(FAR_INVALID, "linear: the module has no state", far_tape_status(tape, &err));
	far_module_free(m);
}

CASE(module, layer_norm)
{
	struct far_module *m;
	OK(far_module_layer_norm(pool, &init, 6, 1e-5, &m, &err));
	struct far_var *x = leaf_in(SHAPE(FAR_F64, 2, 3, 6), -4, 9);
	struct far_var *y = run(m, x);
	for (int row = 0; row < 6; row++) {
		double mean = 0, squares = 0, variance = 0;
		for (int i = 0; i < 6; i++)
			mean += f64_of(x)[row * 6 + i] / 6;
		for (int i = 0; i < 6; i++)
			squares += pow(f64_of(x)[row * 6 + i] - mean, 2) / 6;
		variance = squares + 1e-5;
		for (int i = 0; i < 6; i++)
			cr_assert_float_eq(f64_of(y)[row * 6 + i], (f64_of(x)[row * 6 + i] - mean) / sqrt(variance),
					   1e-12);
	}
	for (int i = 0; i < 6; i++) {
		f64_of(far_module_parameter(m, "weight"))[i] = 0.5 + i;
		f64_of(far_module_parameter(m, "bias"))[i] = i - 2.5;
	}
	check(m, x);
	far_module_forward(m, tape, leaf(SHAPE(FAR_F64, 2, 5)));
	FAILS(FAR_INVALID, "x is f64[2,5], not [...,6]", far_tape_status(tape, &err));
	far_module_free(m);
}

CASE(module, dropout)
{
	struct far_module *parts[2], *m;
	OK(far_module_dropout(pool, &init, 0.25, &parts[0], &err));
	OK(far_module_dropout(pool, &init, 0.25, &parts[1], &err));
	OK(far_module_sequential(pool, parts, 1, &m, &err));
	struct far_var *x = leaf_in(SHAPE(FAR_F64, 4000), 1, 2);
	int zero = 0, differ = 0, differ_other = 0;
	struct far_var *a = run(m, x), *b = run(m, x), *c = run(parts[1], x);
	for (int i = 0; i < 4000; i++) {
		zero += f64_of(a)[i] == 0;
		differ += (f64_of(a)[i] == 0) != (f64_of(b)[i] == 0);
		differ_other += (f64_of(a)[i] == 0) != (f64_of(c)[i] == 0);
		cr_assert(f64_of(a)[i] == 0 || fabs(f64_of(a)[i] - f64_of(x)[i] / 0.75) < 1e-12);
	}
	/* Six standard deviations: 164; of each other they are independent: 1500 ± 183. */
	cr_assert(abs(zero - 1000) < 164 && abs(differ - 1500) < 184 && abs(differ_other - 1500) < 184);
	far_module_train(m, false);
	cr_assert(!far_module_training(parts[0]) && far_module_training(parts[1]));
	cr_assert_eq(run(m, x), x);
	far_module_free(m);
	far_module_free(parts[1]);
	FAILS(FAR_INVALID, "the probability 1.5", far_module_dropout(pool, &init, 1.5, &m, &err));
}

CASE(module, maps)
{
	struct far_module *m;
	double x0, y;
	struct far_var *x = leaf(SHAPE(FAR_F64, 3, 2, 2));
	x0 = f64_of(x)[0] = 0.5;
	f64_of(x)[1] = -0.5;
	OK(far_module_map(pool, FAR_MODULE_RELU, &m, &err));
	cr_assert(f64_of(run(m, x))[0] == x0 && f64_of(run(m, x))[1] == 0);
	cr_assert_str_eq(far_module_kind(m), "relu");
	far_module_free(m);
	OK(far_module_map(pool, FAR_MODULE_SIGMOID, &m, &err));
	y = f64_of(run(m, x))[0];
	cr_assert_float_eq(y, 1 / (1 + exp(-0.5)), 1e-12);
	far_module_free(m);
	OK(far_module_map(pool, FAR_MODULE_FLATTEN, &m, &err));
	EXPECT_SHAPE(run(m, x), 3, 4);
	far_module_free(m);
	FAILS(FAR_INVALID, "the map 4 is unknown", far_module_map(pool, (enum far_module_map)4, &m, &err));
}

/* ---- initial values ---- */

static void expect_uniform(struct far_var *var, double bound)
{
	size_t n = far_tensor_count(far_var_tensor(var));
	double sum = 0, squares = 0, most = 0;
	for (size_t i = 0; i < n; i++) {
		sum += f64_of(var)[i];
		squares += pow(f64_of(var)[i], 2);
		most = fmax(most, fabs(f64_of(var)[i]));
	}
	/* Six standard deviations of a mean of n, and of a mean of squares. */
	cr_assert_lt(fabs(sum / (double)n), 6 * bound / sqrt(3.0 * (double)n));
	cr_assert_lt(fabs(squares / (double)n - bound * bound / 3), 6 * bound * bound * 0.3 / sqrt((double)n));
	cr_assert(most <= bound && most > bound * (1 - 20 / (double)n)); /* fails once in e^20 */
}

CASE(module, initial_values)
{
	struct far_module *a, *b, *c;
	OK(far_module_linear(pool, &init, 100, 50, true, &a, &err));
	expect_uniform(far_module_parameter(a, "weight"), 0.1);
	cr_assert_eq(init.stream, 2);
	OK(far_module_linear(pool, &init, 100, 50, true, &b, &err));
	init.stream = 0;
	OK(far_module_linear(pool, &init, 100, 50, true, &c, &err));
	struct far_var *wa = far_module_parameter(a, "weight"), *wb = far_module_parameter(b, "weight");
	cr_assert_neq(f64_of(wa)[0], f64_of(wb)[0]);
	cr_assert_arr_eq(f64_of(wa), f64_of(far_module_parameter(c, "weight")), 5000 * sizeof(double));
	far_module_free(a), far_module_free(b), far_module_free(c);
	OK(far_module_embedding(pool, &init, 100, 50, false, &a, &err));
	double squares = 0;
	for (int i = 0; i < 5000; i++)
		squares += pow(f64_of(far_module_parameter(a, "weight"))[i], 2) / 5000;
	cr_assert_lt(fabs(squares - 1), 6 * sqrt(2.0 / 5000));
	far_module_free(a);
	OK(far_module_lstm(pool, &init, 30, 25, true, &a, &err));
	expect_uniform(far_module_parameter(a, "weight_ih_l0"), 0.2);
	expect_uniform(far_module_parameter(a, "bias_hh_l0"), 0.2);
	far_module_free(a);
	OK(far_module_conv2d(pool, &init, 8, 64, (uint64_t[]){3, 3}, NULL, true, &a, &err));
	expect_uniform(far_module_parameter(a, "weight"), 1 / sqrt(72));
	far_module_free(a);
	init.dtype = FAR_DTYPE_NONE;
	OK(far_module_linear(pool, &init, 1, 1, true, &a, &err));
	cr_assert_eq(far_var_tensor(far_module_parameter(a, "weight"))->dtype, FAR_F32);
	far_module_free(a);
	FAILS(FAR_INVALID, "linear: weight has a dimension of 0", far_module_linear(pool, &init, 0, 1, true, &a, &err));
	init.dtype = FAR_I32;
	FAILS(FAR_UNSUPPORTED, "cannot require", far_module_linear(pool, &init, 1, 1, true, &a, &err));
}

/* ---- names and containers ---- */

static struct far_var *twice_forward(struct far_module *m, struct far_tape *t, struct far_var *x)
{
	struct far_var *y = far_module_forward(far_module_child(m, "inner"), t, x);
	return far_tape_mul(t, y, far_module_parameter(m, "gain"));
}

static void count(void *user)
{
	++*(int *)user;
}

static const struct far_module_class twice = {"test::Twice", twice_forward, count};

static char names[256];

static enum far_status append(void *user, const char *name, struct far_var *var)
{
	strcat(strcat(names, name), " ");
	cr_assert_eq(far_module_parameter(user, name), var);
	return FAR_OK;
}

CASE(module, names)
{
	struct far_module *inner, *outer, *m, *other;
	int destroyed = 0;
	struct far_var *vars[2], *gain = leaf(shaped(FAR_F64, 0, NULL));
	OK(far_module_new(pool, &twice, &destroyed, &outer, &err));
	OK(far_module_linear(pool, &init, 2, 2, true, &inner, &err));
	OK(far_module_add_parameter(outer, "gain", gain, &err));
	OK(far_module_add(outer, "inner", inner, &err));
	cr_assert_eq(far_module_user(outer), &destroyed);
	cr_assert_str_eq(far_module_kind(outer), "test::Twice");
	FAILS(FAR_INVALID, "the name \"gain\" is taken", far_module_add_parameter(outer, "gain", gain, &err));
	FAILS(FAR_INVALID, "\"a.b\" is not a name", far_module_add_parameter(outer, "a.b", gain, &err));
	FAILS(FAR_INVALID, "\"\" is not a name", far_module_add_parameter(outer, "", gain, &err));
	FAILS(FAR_INVALID, "not a dense leaf", far_module_add_parameter(outer, "x", far_tape_exp(tape, gain), &err));
	FAILS(FAR_INVALID, "inside another", far_module_add(outer, "again", inner, &err));
	FAILS(FAR_INVALID, "this one", far_module_add(outer, "self", outer, &err));
	OK(far_module_sequential(pool, &outer, 1, &m, &err));
	far_module_free(outer); /* is inside another: nothing happens */
	cr_assert_eq(destroyed, 0);
	OK(far_module_each(m, append, m));
	cr_assert_str_eq(names, "0.gain 0.inner.weight 0.inner.bias ");
	cr_assert_eq(far_module_parameters(m, vars, 2), 3);
	cr_assert(vars[0] == gain && vars[1] == far_module_parameter(m, "0.inner.weight"));
	cr_assert_null(far_module_parameter(m, "0.inner"));
	cr_assert_null(far_module_parameter(m, "0.inner.weight.x"));
	cr_assert_null(far_module_parameter(m, "1"));
	cr_assert_eq(far_module_child(m, "0.inner"), inner);
	check(m, leaf(SHAPE(FAR_F64, 2)));
	/* A failed sequence leaves its modules to the caller. */
	OK(far_module_linear(pool, &init, 2, 2, true, &other, &err));
	FAILS(FAR_INVALID, "cannot be added",
	      far_module_sequential(pool, (struct far_module *[]){other, inner}, 2, &outer, &err));
	far_module_free(other);
	far_module_free(m);
	cr_assert_eq(destroyed, 1);
}

CASE(module, depth)
{
	struct far_module *m, *outer;
	OK(far_module_linear(pool, &init, 2, 2, true, &m, &err));
	for (int i = 0; i < FAR_MODULE_DEPTH_MAX - 1; i++) {
		OK(far_module_sequential(pool, &m, 1, &outer, &err));
		m = outer;
	}
	cr_assert_null(far_module_parameter(m, "0.0.weight"));
	OK(far_module_each(m, append, m));
	FAILS(FAR_INVALID, "32 modules inside each other", far_module_sequential(pool, &m, 1, &outer, &err));
	far_module_free(m);
}
