/* SPDX-License-Identifier: BSD-3-Clause */
/** Variables and tapes: what requires a gradient, errors, references, pools. The test's thread. */
#include "tape_fixture.h"

/* ---- what requires a gradient ---- */

CASE(tape, requires_grad)
{
	struct far_var *x = vector(1, 2);
	struct far_var *constant = far_tape_input(tape, far_var_tensor(x));
	struct far_var *y = far_tape_exp(tape, constant);
	struct far_var *z = far_tape_mul(tape, y, x);
	cr_assert(!far_var_requires_grad(constant) && far_var_is_leaf(constant));
	cr_assert(!far_var_requires_grad(y) && far_var_is_leaf(y));
	cr_assert(far_var_requires_grad(z) && !far_var_is_leaf(z));
	cr_assert(far_tape_record(tape, false));
	cr_assert(!far_var_requires_grad(far_tape_mul(tape, y, x)));
	cr_assert(!far_tape_record(tape, true));
	cr_assert(!far_var_requires_grad(far_tape_detach(tape, z)));
	cr_assert_eq(far_var_tensor(far_tape_detach(tape, z))->data, far_var_tensor(z)->data);
}

CASE(tape, index_has_no_gradient)
{
	struct far_var *x = vector(1, 2), *index;
	struct far_var *most = far_tape_max_axis(tape, x, 0, false, &index);
	cr_assert(far_var_requires_grad(most) && !far_var_requires_grad(index));
	cr_assert_eq(*(int64_t *)far_var_tensor(index)->data, 1);
	OK(backward(most, false));
	expect_gradient(x, 0, 1);
}

CASE(tape, leaves_are_checked)
{
	struct far_var *var;
	struct far_tensor t = SHAPE(FAR_I32, 2);
	FAILS(FAR_UNSUPPORTED, "i32[2] cannot require a gradient", far_var_new(pool, &t, true, &var, &err));
	t.dtype = 99;
	FAILS(FAR_INVALID, "dtype 99", far_var_new(pool, &t, false, &var, &err));
	t.dtype = FAR_F32;
	FAILS(FAR_INVALID, "f32[2] has no memory", far_var_borrow(pool, &t, false, NULL, NULL, &var, &err));
	t.shape[0] = UINT64_MAX / 8;
	FAILS(FAR_TOO_LARGE, "too large", far_var_new(pool, &t, false, &var, &err));
	FAILS(FAR_INVALID, "NULL", far_var_new(pool, NULL, false, &var, &err));
}

static void count_release(void *user)
{
	++*(int *)user;
}

CASE(tape, borrowed_memory_is_released_once)
{
	double values[2] = {3, 4};
	int released = 0;
	struct far_tensor t = SHAPE(FAR_F64, 2);
	struct far_var *x;
	t.data = values;
	OK(far_var_borrow(pool, &t, true, count_release, &released, &x, &err));
	struct far_var *root = sum_of(far_tape_mul(tape, x, x));
	far_var_free(x);
	cr_assert_eq(released, 0);
	OK(backward(root, false));
	cr_assert_eq(released, 0);
	struct far_gradient g;
	cr_assert(far_grads_get(grads, x, &g));
	cr_assert_eq(((double *)g.values.data)[1], 8);
	far_grads_clear(grads);
	far_tape_reset(tape);
	cr_assert_eq(released, 1);
}

/* ---- errors stay on the tape ---- */

CASE(tape, first_error_stays)
{
	struct far_var *x = vector(1, 2);
	struct far_var *w = leaf(SHAPE(FAR_F64, 3));
	struct far_var *bad = far_tape_add(tape, x, w);
	cr_assert_null(bad);
	cr_assert_null(far_tape_exp(tape, bad));
	cr_assert_null(far_tape_exp(tape, x));
	cr_assert_null(far_tape_input(tape, far_var_tensor(x)));
	FAILS(FAR_INVALID, "add: ", far_tape_status(tape, &err));
	far_tape_reset(tape);
	OK(far_tape_status(tape, &err));
	cr_assert_not_null(far_tape_exp(tape, x));
	cr_assert_null(far_tape_transpose(tape, NULL, 0, 1));
	FAILS(FAR_INVALID, "transpose: x is NULL", far_tape_status(tape, &err));
	far_tape_reset(tape);
	cr_assert_null(far_tape_reshape(tape, NULL, 9, (uint64_t[9]){0}));
	FAILS(FAR_INVALID, "9 dimensions", far_tape_status(tape, &err));
}

CASE(tape, errors_of_callers)
{
	struct far_err mine = {.status = FAR_DENIED, .text = "mine"};
	far_tape_fail(tape, &mine);
	far_tape_reshape(tape, NULL, 9, NULL);
	FAILS(FAR_DENIED, "mine", far_tape_status(tape, &err));
}

CASE(tape, outs_are_null_after_an_error)
{
	struct far_var *x = vector(1, 2), *index = x;
	cr_assert_null(far_tape_max_axis(tape, x, 5, false, &index));
	cr_assert_null(index);
}

/* ---- the graph does not depend on the tape ---- */

CASE(tape, graph_outlives_the_tape)
{
	struct far_var *x = vector(1, 2);
	struct far_var *y = far_var_ref(far_tape_mul(tape, x, x));
	far_tape_reset(tape);
	struct far_tape *other;
	OK(far_tape_new(pool, &other, &err));
	struct far_var *root = far_tape_sum(other, y, NULL, 0, false);
	far_var_free(y);
	OK(backward(root, false));
	expect_gradient(x, 2, 4);
	far_tape_free(other);
}

/* Several nodes are freed with the last variable. */
CASE(tape, branches_are_freed)
{
	struct far_var *x = vector(1, 2);
	struct far_var *a = far_tape_mul(tape, far_tape_exp(tape, x), far_tape_tanh(tape, x));
	struct far_var *b = far_tape_mul(tape, far_tape_neg(tape, a), far_tape_sigmoid(tape, x));
	far_var_ref(b);
	far_tape_reset(tape);
	far_var_free(b);
}

/* Freed without recursion, and followed without recursion. */
CASE(tape, long_chain)
{
	struct far_var *x = vector(1, 2);
	struct far_var *y = x;
	for (int i = 0; i < 200000; i++)
		y = far_tape_neg(tape, y);
	OK(far_tape_status(tape, &err));
	struct far_var *root = far_var_ref(sum_of(y));
	far_tape_reset(tape);
	OK(backward(root, true));
	expect_gradient(x, 1, 1);
	far_var_free(root);
}

/* 2^60 paths, 60 nodes. */
CASE(tape, many_paths)
{
	struct far_var *x = vector(1, 2);
	struct far_var *y = x;
	for (int i = 0; i < 60; i++)
		y = far_tape_add(tape, y, y);
	OK(backward(sum_of(y), false));
	expect_gradient(x, 0x1p60, 0x1p60);
}

CASE(tape, leaf_without_a_path)
{
	struct far_var *x = vector(1, 2), *unused = vector(1, 2);
	struct far_gradient g;
	far_tape_exp(tape, unused);
	OK(backward(sum_of(x), false));
	cr_assert(!far_grads_get(grads, unused, &g));
	cr_assert_eq(far_grads_count(grads), 1);
}

/* A gradient that two inputs share is not changed by a sum into one of them, whichever comes first. */
CASE(tape, shared_gradients_are_apart)
{
	for (int order = 0; order < 2; order++) {
		struct far_var *x = vector(1, 2), *y = vector(3, 4);
		struct far_var *both = far_tape_add(tape, x, y);
		struct far_var *other = far_tape_scale(tape, x, 5);
		struct far_var *root =
			sum_of(order ? far_tape_add(tape, both, other) : far_tape_add(tape, other, both));
		OK(backward(root, true));
		expect_gradient(x, 6, 6);
		expect_gradient(y, 1, 1);
		OK(backward(root, false));
		expect_gradient(x, 12, 12);
		expect_gradient(y, 2, 2);
	}
}

/* A leaf that gets the same shared gradient twice does not change what others share. */
CASE(tape, gradient_shared_by_four)
{
	struct far_var *x = vector(1, 2), *y = vector(3, 4), *z = vector(5, 6);
	OK(backward(sum_of(far_tape_add(tape, far_tape_add(tape, x, y), far_tape_add(tape, x, z))), false));
	expect_gradient(x, 2, 2);
	expect_gradient(y, 1, 1);
	expect_gradient(z, 1, 1);
}

/* Gradients of leaves are dense, also those that arrive as views. */
CASE(tape, gradients_are_dense)
{
	struct far_var *x = leaf(SHAPE(FAR_F64, 2, 3)), *w = leaf(SHAPE(FAR_F64, 3, 2));
	struct far_gradient g;
	OK(backward(sum_of(far_tape_mul(tape, far_tape_transpose(tape, x, 0, 1), w)), false));
	cr_assert(far_grads_get(grads, x, &g));
	cr_assert_null(g.values.strides);
	cr_assert_eq(((double *)g.values.data)[1], f64_of(w)[2]);
}

static void *seen_data;

static enum far_status remember(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	seen_data = g->values.data;
	return FAR_OK;
}

/* A gradient that nothing else refers to is moved, not copied. */
CASE(tape, gradients_move)
{
	struct far_var *x = vector(1, 2);
	struct far_gradient g;
	OK(far_var_hook(x, FAR_HOOK_BEFORE, remember, NULL, &err));
	OK(backward(sum_of(far_tape_exp(tape, x)), false));
	cr_assert(far_grads_get(grads, x, &g));
	cr_assert_eq(g.values.data, seen_data);
}

/* ---- pools ---- */

/* Each allocation fails once; nothing leaks, and the error says so. */
CASE(tape, no_memory)
{
	size_t limit = 4096;
	bool succeeded = false;
	for (; limit < 1 << 20 && !succeeded; limit += 320) {
		struct far_pool *small;
		struct far_tape *t = NULL;
		struct far_grads *g = NULL;
		struct far_var *w = NULL;
		struct far_tensor shape = SHAPE(FAR_F64, 6, 5);
		struct far_pool_stats stats;
		OK(far_pool_new(limit, &small, &err));
		enum far_status status = far_tape_new(small, &t, &err);
		if (!status)
			status = far_grads_new(small, &g, &err);
		if (!status)
			status = far_var_new(small, &shape, true, &w, &err);
		if (!status) {
			struct far_var *y = far_tape_matmul(t, w, far_tape_transpose(t, w, 0, 1));
			y = far_tape_mul(t, far_tape_tanh(t, y), far_tape_slice(t, y, 0, 0, 1, 1));
			y = far_tape_sum(t, far_tape_reshape(t, far_tape_transpose(t, y, 0, 1), 1, (uint64_t[]){36}),
					 NULL, 0, 0);
			status = far_tape_status(t, &err);
			if (!status)
				status = far_grads_backward(g, &y, 1, NULL, &err);
		}
		if (status)
			cr_assert(status == FAR_RESOURCE && strstr(err.text, "no memory"), "%s", err.text);
		succeeded = !status;
		far_var_free(w);
		far_tape_free(t);
		far_grads_free(g);
		far_pool_get_stats(small, &stats);
		cr_assert_eq(stats.used_bytes, 0, "limit %zu: %zu bytes are in use", limit, stats.used_bytes);
		cr_assert_leq(stats.held_bytes, limit);
		far_pool_free(small);
	}
	cr_assert(succeeded);
	cr_assert_gt(limit, 6000);
}

/* Objects may outlive far_pool_free(). */
CASE(tape, pool_ends_with_its_last_object)
{
	struct far_pool *other;
	struct far_var *x;
	struct far_tensor t = SHAPE(FAR_F64, 1000);
	OK(far_pool_new(0, &other, &err));
	OK(far_var_new(other, &t, false, &x, &err));
	far_pool_free(other);
	cr_assert_eq(f64_of(x)[999], 0);
	far_var_free(x);
}

/* Sizes of all magnitudes are in a block that is large enough, and blocks are used again. */
CASE(tape, sizes_of_blocks)
{
	for (uint64_t n = 1; n < 1 << 21; n += 1 + n / 7) {
		struct far_tensor t = SHAPE(FAR_U8, n);
		struct far_var *x;
		struct far_pool_stats before, after_stats;
		OK(far_var_new(pool, &t, false, &x, &err));
		memset(far_var_tensor(x)->data, 1, n);
		far_var_free(x);
		far_pool_get_stats(pool, &before);
		OK(far_var_new(pool, &t, false, &x, &err));
		far_pool_get_stats(pool, &after_stats);
		cr_assert_eq(before.system_requests, after_stats.system_requests);
		cr_assert_leq(after_stats.used_bytes - before.used_bytes, n + n / 4 + 1024);
		far_var_free(x);
	}
}
