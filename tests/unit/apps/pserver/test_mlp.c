/* SPDX-License-Identifier: BSD-3-Clause */
/** The output of the perceptron and its gradient, against differences. The test's thread. */
#include "apps/pserver/mlp.h"
#include <criterion/criterion.h>

#define INPUTS 2
#define UNITS  3

/* The second unit is inactive for the input of the tests. */
static float rows[UNITS * MLP_ROW(INPUTS)] = {0.5f,  -0.25f, 0.1f, 2.0f, -1.0f, 0.0f,
					      -0.5f, 3.0f,   0.2f, 0.8f, 0.0f,  -1.0f};
static float x[INPUTS] = {0.6f, 0.4f};
static const struct mlp mlp = {INPUTS, UNITS, rows};

Test(mlp, the_output_is_the_sum_of_active_units)
{
	float active[UNITS];
	cr_assert_float_eq(mlp_output(&mlp, x, active), 2.0 * 0.3 - 0.44, 1e-6);
	cr_assert_float_eq(active[0], 0.3f, 1e-6);
	cr_assert_eq(active[1], 0.0f);
	cr_assert_float_eq(active[2], 0.44f, 1e-6);
}

static void check(float *at, float gradient, float slope)
{
	const float step = 0.01f, before = *at;
	float active[UNITS];
	*at = before + step;
	double above = mlp_output(&mlp, x, active);
	*at = before - step;
	double below = mlp_output(&mlp, x, active);
	*at = before;
	cr_assert_float_eq((double)slope * (above - below) / (2.0 * step), gradient, 1e-4);
}

Test(mlp, the_gradient_is_that_of_differences)
{
	const float slope = 0.7f;
	float active[UNITS], grads[UNITS * MLP_ROW(INPUTS)] = {0}, grad_x[INPUTS] = {5.0f, 5.0f};
	mlp_output(&mlp, x, active);
	mlp_gradient(&mlp, x, active, slope, grads, grad_x);
	for (size_t i = 0; i < UNITS * MLP_ROW(INPUTS); i++)
		check(&rows[i], grads[i], slope);
	for (size_t i = 0; i < INPUTS; i++)
		check(&x[i], grad_x[i], slope);
}
