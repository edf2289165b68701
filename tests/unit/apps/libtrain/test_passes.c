/* SPDX-License-Identifier: BSD-3-Clause */
/** Passes: roots, several over a graph, gradients from elsewhere, several threads. */
#include "pass.h"
#include "tape_fixture.h"

#include <pthread.h>
#include <sched.h>

/* ---- roots ---- */

CASE(tape, roots_are_checked)
{
	struct far_var *x = vector(1, 2);
	struct far_var *y = far_tape_exp(tape, x);
	struct far_var *one = zeros(shaped(FAR_F64, 0, NULL), true);
	FAILS(FAR_INVALID, "no roots", far_grads_backward(grads, &y, 0, NULL, &err));
	FAILS(FAR_INVALID, "root 0 is f64[2], not a scalar", backward(y, false));
	FAILS(FAR_INVALID, "root 0 has no gradient function", backward(one, false));
	FAILS(FAR_INVALID, "root 0 requires no gradient", backward(far_tape_constant(tape, FAR_F64, 1), false));
	FAILS(FAR_INVALID, "root 1 is NULL",
	      far_grads_backward(grads, (struct far_var *[]){sum_of(y), NULL}, 2, NULL, &err));
	cr_assert_eq(far_grads_count(grads), 0);
}

CASE(tape, several_roots)
{
	struct far_var *x = vector(1, 2);
	struct far_var *a = sum_of(far_tape_mul(tape, x, x));
	struct far_var *b = far_tape_scale(tape, a, 10); /* depends on the other root */
	OK(far_grads_backward(grads, (struct far_var *[]){a, b, a}, 3, NULL, &err));
	expect_gradient(x, 24, 48);
}

/* ---- passes over the same graph ---- */

CASE(tape, gradients_accumulate_with_retain_graph)
{
	struct far_var *x = vector(1, 2);
	struct far_var *root = sum_of(far_tape_mul(tape, x, x));
	OK(backward(root, true));
	expect_gradient(x, 2, 4);
	OK(backward(root, true));
	expect_gradient(x, 4, 8);
	OK(backward(root, false));
	expect_gradient(x, 6, 12);
	FAILS(FAR_INVALID, "the graph of sum was freed by an earlier pass: set retain_graph", backward(root, false));
}

CASE(tape, freed_part_of_another_graph)
{
	struct far_var *x = vector(1, 2);
	struct far_var *shared = far_tape_exp(tape, x);
	OK(backward(sum_of(shared), false));
	FAILS(FAR_INVALID, "the graph of exp was freed", backward(sum_of(far_tape_neg(tape, shared)), false));
}

/* A value that a derivative needs was changed. */
CASE(tape, changed_values)
{
	struct far_var *x = vector(1, 2);
	struct far_tensor t;
	struct far_var *square = sum_of(far_tape_mul(tape, x, x));
	struct far_var *sum = sum_of(far_tape_add(tape, x, x));
	OK(far_var_edit(x, &t, &err));
	((double *)t.data)[0] = 5;
	FAILS(FAR_INVALID, "input 0 of mul was changed", backward(square, false));
	far_grads_clear(grads);
	OK(backward(sum, false)); /* the derivative of add reads no value */
	expect_gradient(x, 2, 2);
	far_grads_clear(grads);
	square = sum_of(far_tape_mul(tape, x, x));
	((double *)t.data)[0] = 7;
	OK(far_var_edit(x, &t, &err));
	struct far_backward_opts opts = {.allow_changed = true};
	OK(far_grads_backward(grads, &square, 1, &opts, &err));
	expect_gradient(x, 14, 4);
	FAILS(FAR_INVALID, "the result of sum is not a leaf", far_var_edit(square, &t, &err));
}

/* ---- what may compute on a fiber ---- */

static bool is_light(const struct far_var *root)
{
	struct pass p = {.pool = pool, .grads = grads};
	OK(pass_root(&p, root, &err));
	OK(pass_discover(&p, &err));
	bool light = pass_is_light(&p);
	pass_end(&p);
	return light;
}

static enum far_status hook(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	return FAR_OK;
}

static enum far_status negated(void *user, const struct far_tensor *const *in, size_t n, struct far_tensor *const *out,
			       size_t m, struct far_err *e)
{
	return far_op_neg(in[0], out[0], e);
}

CASE(passes, light_ones)
{
	struct far_var *small = leaf(SHAPE(FAR_F32, 32, 32)), *large = leaf(SHAPE(FAR_F32, 128, 128));
	struct far_var *x = sum_of(far_tape_mul(tape, small, small)), *chain = x;
	cr_assert(is_light(x));
	cr_assert(!is_light(sum_of(far_tape_mul(tape, large, large))));
	for (int i = 0; i < 600; i++)
		chain = far_tape_scale(tape, chain, 1);
	cr_assert(!is_light(chain), "many small ones");
}

CASE(passes, light_ones_run_no_code_of_the_application)
{
	static const struct far_tape_function function = {.name = "test::negated", .forward = negated};
	struct far_var *a = vector(1, 2), *b = vector(1, 2), *x = vector(1, 2), *y = sum_of(b), *own;
	cr_assert(is_light(sum_of(a)) && is_light(y));
	OK(far_var_hook(a, FAR_HOOK_AFTER, hook, NULL, &err));
	cr_assert(!is_light(sum_of(a)), "the hook of a leaf");
	OK(far_var_hook(y, FAR_HOOK_BEFORE, hook, NULL, &err));
	cr_assert(!is_light(y), "the hook of a node");
	OK(far_tape_apply(tape, &function, &x, 1, &own, 1));
	cr_assert(!is_light(sum_of(own)), "a function");
}

/* ---- gradients from elsewhere ---- */

CASE(tape, grads_add)
{
	double values[4] = {1, 2, 3, 4};
	int32_t rows[2] = {2, 0};
	struct far_var *x = vector(1, 2), *table = leaf(SHAPE(FAR_F64, 3, 2));
	struct far_gradient dense = {.values = SHAPE(FAR_F64, 2)}, sparse = {.values = SHAPE(FAR_F64, 2, 2)};
	double got[6];
	dense.values.data = values;
	sparse.values.data = values;
	sparse.index = SHAPE(FAR_I32, 2);
	sparse.index.data = rows;
	OK(far_grads_add(grads, x, &dense, &err));
	OK(far_grads_add(grads, x, &dense, &err));
	expect_gradient(x, 2, 4);
	OK(far_grads_add(grads, table, &sparse, &err));
	struct far_gradient g;
	cr_assert(far_grads_get(grads, table, &g));
	cr_assert_eq(g.index.dtype, FAR_I64);
	cr_assert_eq(g.index.shape[0], 2);
	/* A dense one makes it dense. */
	OK(backward(sum_of(table), false));
	gradient_of(table, got);
	cr_assert_arr_eq(got, ((double[]){4, 5, 1, 1, 2, 3}), sizeof got);
	FAILS(FAR_INVALID, "f64[2] does not fit the variable f64[3,2]", far_grads_add(grads, table, &dense, &err));
	FAILS(FAR_INVALID, "rows f64[2,2]", far_grads_add(grads, x, &sparse, &err));
	rows[0] = 3;
	FAILS(FAR_INVALID, "index 3 is not in [0, 3)", far_grads_add(grads, table, &sparse, &err));
	FAILS(FAR_INVALID, "not a leaf", far_grads_add(grads, far_tape_exp(tape, x), &dense, &err));
}

/* More leaves than the first table of a far_grads has slots. */
CASE(tape, many_leaves)
{
	struct far_var *x[100], *sum = NULL;
	for (int i = 0; i < 100; i++) {
		x[i] = vector(i, 1);
		sum = sum ? far_tape_add(tape, sum, far_tape_scale(tape, x[i], i)) : far_tape_scale(tape, x[i], i);
	}
	OK(backward(sum_of(sum), false));
	cr_assert_eq(far_grads_count(grads), 100);
	for (int i = 0; i < 100; i++)
		expect_gradient(x[i], i, i);
}

/* ---- threads: passes over the same parameters ---- */

#define THREADS 4
#define ROUNDS  50

static struct far_var *common;

static void *train_thread(void *user)
{
	struct far_tape *own;
	struct far_err e;
	for (int round = 0; round < ROUNDS; round++) {
		if (far_tape_new(pool, &own, &e))
			return &common;
		struct far_var *root = far_tape_sum(own, far_tape_mul(own, common, common), NULL, 0, false);
		if (far_grads_backward(user, &root, 1, NULL, &e))
			return &common;
		far_tape_free(own);
	}
	return NULL;
}

CASE(tape, threads)
{
	pthread_t threads[THREADS];
	common = vector(1, 2);
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, train_thread, grads), 0);
	for (int i = 0; i < THREADS; i++) {
		void *result;
		cr_assert_eq(pthread_join(threads[i], &result), 0);
		cr_assert_null(result);
	}
	expect_gradient(common, 2 * THREADS * ROUNDS, 4 * THREADS * ROUNDS);
}

/* ---- threads: passes over the same graph ---- */

static struct far_var *common_root;
static _Atomic int passes_done;

static void *retain_thread(void *user)
{
	const struct far_backward_opts opts = {.retain_graph = true};
	struct far_err e;
	for (int round = 0; round < ROUNDS; round++) {
		if (far_grads_backward(user, &common_root, 1, &opts, &e) == FAR_OK)
			passes_done++;
		else if (e.status != FAR_INVALID || !strstr(e.text, "was freed by an earlier pass"))
			return &common_root;
	}
	return NULL;
}

/* One pass frees what the others may be reading: each of them is whole, or fails. */
CASE(tape, threads_and_one_that_frees)
{
	pthread_t threads[THREADS];
	struct far_var *x = vector(1, 2);
	common_root = sum_of(far_tape_mul(tape, far_tape_exp(tape, far_tape_scale(tape, x, 0)), x));
	for (int i = 0; i < THREADS; i++)
		cr_assert_eq(pthread_create(&threads[i], NULL, retain_thread, grads), 0);
	while (passes_done < THREADS) /* they run */
		sched_yield();
	OK(backward(common_root, false));
	for (int i = 0; i < THREADS; i++) {
		void *result;
		cr_assert_eq(pthread_join(threads[i], &result), 0);
		cr_assert_null(result);
	}
	expect_gradient(x, passes_done + 1, passes_done + 1);
	FAILS(FAR_INVALID, "was freed", backward(common_root, false));
}
