/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions of the application, and hooks. The test's thread. */
#include "tape_fixture.h"

/* ---- functions ---- */

static enum far_status copy_forward(void *user, const struct far_tensor *const *in, size_t n,
				    struct far_tensor *const *out, size_t m, struct far_err *e)
{
	return far_op_neg(in[0], out[0], e);
}

CASE(tape, function_without_a_derivative)
{
	static const struct far_tape_function cut = {"geo::area", copy_forward, NULL, NULL};
	struct far_var *x = vector(1, 2), *y;
	OK(far_tape_apply(tape, &cut, &x, 1, &y, 1));
	cr_assert_eq(f64_of(y)[1], -2);
	FAILS(FAR_UNSUPPORTED, "geo::area has no derivative", backward(sum_of(y), false));
	far_grads_clear(grads);
	/* Without a gradient on the way it does not matter. */
	struct far_var *constant = far_tape_detach(tape, x);
	OK(far_tape_apply(tape, &cut, &constant, 1, &y, 1));
	OK(backward(sum_of(far_tape_mul(tape, y, x)), false));
	expect_gradient(x, -1, -2);
	struct far_var *many[17] = {x};
	cr_assert_eq(far_tape_apply(tape, &cut, many, 17, &y, 1), FAR_INVALID);
	FAILS(FAR_INVALID, "17 inputs", far_tape_status(tape, &err));
}

static enum far_status fail_backward(void *user, const struct far_tensor *const *g, size_t m,
				     const struct far_tensor *const *in, size_t n, const struct far_tensor *const *out,
				     struct far_tensor *const *dx, struct far_err *e)
{
	snprintf(e->text, sizeof e->text, "no luck");
	return FAR_REMOTE;
}

static enum far_status silent_forward(void *user, const struct far_tensor *const *in, size_t n,
				      struct far_tensor *const *out, size_t m, struct far_err *e)
{
	return FAR_DENIED;
}

static enum far_status silent_backward(void *user, const struct far_tensor *const *g, size_t m,
				       const struct far_tensor *const *in, size_t n,
				       const struct far_tensor *const *out, struct far_tensor *const *dx,
				       struct far_err *e)
{
	return FAR_DENIED;
}

/* Their callers learn the name, and may not want to know. */
CASE(tape, functions_that_fail_without_a_text)
{
	static const struct far_tape_function forward = {"test::forward", silent_forward, silent_backward, NULL};
	static const struct far_tape_function derivative = {"test::derivative", copy_forward, silent_backward, NULL};
	struct far_var *x = vector(1, 2), *y;
	cr_assert_eq(far_tape_apply(tape, &forward, &x, 1, &y, 1), FAR_DENIED);
	cr_assert_null(y);
	FAILS(FAR_DENIED, "test::forward: access denied", far_tape_status(tape, &err));
	far_tape_reset(tape);
	OK(far_tape_apply(tape, &derivative, &x, 1, &y, 1));
	struct far_var *root = sum_of(y);
	FAILS(FAR_DENIED, "test::derivative: access denied", backward(root, true));
	root = sum_of(y);
	cr_assert_eq(far_grads_backward(grads, &root, 1, NULL, NULL), FAR_DENIED);
}

CASE(tape, error_of_a_derivative_ends_the_pass)
{
	static const struct far_tape_function broken = {"test::broken", copy_forward, fail_backward, NULL};
	struct far_var *x = vector(1, 2), *y;
	OK(far_tape_apply(tape, &broken, &x, 1, &y, 1));
	FAILS(FAR_REMOTE, "no luck", backward(sum_of(y), false));
	/* Another pass works. */
	far_grads_clear(grads);
	OK(backward(sum_of(far_tape_exp(tape, far_tape_scale(tape, x, 0))), false));
	expect_gradient(x, 0, 0);
}

/* ---- hooks ---- */

static struct far_var *hooked[8];
static size_t hooked_n;

static enum far_status triple(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	double *d = g->values.data;
	hooked[hooked_n++] = var;
	d[0] *= 3, d[1] *= 3;
	return FAR_OK;
}

static enum far_status refuse(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	return FAR_DENIED;
}

static double seen_after[4];
static size_t seen_n;

static enum far_status after(void *user, struct far_var *var, struct far_gradient *g, struct far_err *e)
{
	seen_after[seen_n++] = *(double *)g->values.data;
	return FAR_OK;
}

CASE(tape, hooks)
{
	struct far_var *x = vector(1, 2);
	struct far_var *y = far_tape_scale(tape, x, 2);
	OK(far_var_hook(x, FAR_HOOK_BEFORE, triple, NULL, &err));
	OK(far_var_hook(y, FAR_HOOK_BEFORE, triple, NULL, &err));
	OK(far_var_hook(x, FAR_HOOK_AFTER, after, NULL, &err));
	struct far_var *root = sum_of(far_tape_add(tape, y, x));
	OK(backward(root, true));
	/* dy = 1, 3 after its hook; dx = 2 * 3 + 1, 21 after its hook, which sees the sum of both paths once. */
	expect_gradient(x, 21, 21);
	cr_assert(hooked_n == 2 && !hooked[0] && hooked[1] == x);
	OK(backward(root, false));
	expect_gradient(x, 42, 42);
	cr_assert(seen_n == 2 && seen_after[0] == 21 && seen_after[1] == 42);
	OK(far_var_hook(x, FAR_HOOK_BEFORE, refuse, NULL, &err));
	FAILS(FAR_DENIED, "hook: access denied", backward(sum_of(x), false));
	FAILS(FAR_INVALID, "not a leaf", far_var_hook(far_tape_exp(tape, x), FAR_HOOK_AFTER, after, NULL, &err));
	FAILS(FAR_INVALID, "requires no gradient",
	      far_var_hook(far_tape_detach(tape, x), FAR_HOOK_BEFORE, after, NULL, &err));
}
