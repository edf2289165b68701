/* SPDX-License-Identifier: BSD-3-Clause */
/** Leaves of two elements, their gradients, and local passes. The test's thread. */
#ifndef FAR_TESTS_TAPE_FIXTURE_H
#define FAR_TESTS_TAPE_FIXTURE_H

#include "train_fixture.h"

__attribute__((unused)) static struct far_var *vector(double a, double b)
{
	double values[2] = {a, b};
	struct far_tensor t = SHAPE(FAR_F64, 2);
	struct far_var *var;
	t.data = values;
	OK(far_var_new(pool, &t, true, &var, &err));
	return keep(var);
}

__attribute__((unused)) static void expect_gradient(struct far_var *var, double a, double b)
{
	double got[2];
	gradient_of(var, got);
	cr_assert(got[0] == a && got[1] == b, "(%g, %g) instead of (%g, %g)", got[0], got[1], a, b);
}

__attribute__((unused)) static enum far_status backward(struct far_var *root, bool retain)
{
	struct far_backward_opts opts = {.retain_graph = retain};
	return far_grads_backward(grads, &root, 1, &opts, &err);
}

#endif
