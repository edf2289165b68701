/* SPDX-License-Identifier: BSD-3-Clause */
/** SGD and Adagrad on the rows of a table. The test's thread. */
#include "apps/pserver/ps_optimizer.h"
#include <criterion/criterion.h>
#include <math.h>

TestSuite(ps_optimizer);

static const struct ps_rule sgd = {PS_SGD, 0.0f}, adagrad = {PS_ADAGRAD, PS_EPSILON};

static void table_of(struct ps_table *t, const struct ps_rule *r, unsigned dim)
{
	cr_assert_eq(ps_table_init(t, dim, ps_rule_state(r, dim), 1.0f, 0), 0);
}

Test(ps_optimizer, sgd_subtracts_and_keeps_nothing)
{
	struct ps_table t;
	float grads[4] = {1, 2, 3, 4};
	table_of(&t, &sgd, 2);
	cr_assert_eq(t.state, 0);
	float *rows[2] = {ps_table_row(&t, 5), ps_table_row(&t, 5)};
	ps_rule_apply(&sgd, &t, rows, grads, 2, 0.5f, 1.0f);
	cr_assert_float_eq(rows[0][0], 1.0f - 0.5f * (1 + 3), 1e-6);
	cr_assert_float_eq(rows[0][1], 1.0f - 0.5f * (2 + 4), 1e-6);
	ps_table_fini(&t);
}

/* Each coordinate by itself; a gradient of 0 changes nothing, the first time either. */
Test(ps_optimizer, adagrad_scales_each_coordinate)
{
	struct ps_table t;
	float grads[3] = {4, 0, -0.25f};
	table_of(&t, &adagrad, 3);
	float *row = ps_table_row(&t, 1), *other = ps_table_row(&t, 2);
	for (int i = 1; i <= 4; i++)
		ps_rule_apply(&adagrad, &t, &row, grads, 1, 0.1f, 1.0f);
	float steps = 1 + 1 / sqrtf(2) + 1 / sqrtf(3) + 0.5f;
	cr_assert_float_eq(row[0], 1 - 0.1f * steps, 1e-5);
	cr_assert_float_eq(row[1], 1.0f, 0.0);
	cr_assert_float_eq(row[2], 1 + 0.1f * steps, 1e-5);
	for (int d = 0; d < 9; d++)
		cr_assert_float_eq(other[d], d < 3 ? 1.0f : 0.0f, 0.0);
	ps_table_fini(&t);
}

/* A row named twice has one gradient, the sum; opposite ones leave it and its accumulators as they were. */
Test(ps_optimizer, adagrad_adds_the_gradients_of_a_row_first)
{
	struct ps_table t;
	float twice[2] = {3, -3}, once[2] = {3, 4};
	table_of(&t, &adagrad, 1);
	float *rows[2] = {ps_table_row(&t, 9), ps_table_row(&t, 9)};
	ps_rule_apply(&adagrad, &t, rows, twice, 2, 0.1f, 1.0f);
	cr_assert(rows[0][0] == 1.0f && rows[0][1] == 0.0f && rows[0][2] == 0.0f);
	ps_rule_apply(&adagrad, &t, rows, once, 2, 0.1f, 1.0f);
	cr_assert_float_eq(rows[0][0], 1 - 0.1f, 1e-6);
	cr_assert_float_eq(rows[0][1], 49.0f, 1e-4);
	ps_table_fini(&t);
}

/* The mean of two workers' parts, gathered and then settled, is one push of the mean. */
Test(ps_optimizer, parts_of_a_step_make_one_gradient)
{
	struct ps_table a, b;
	float one = 2, two = 6, mean = 4;
	table_of(&a, &adagrad, 1);
	table_of(&b, &adagrad, 1);
	float *x = ps_table_row(&a, 3), *y = ps_table_row(&b, 3);
	ps_rule_gather(&adagrad, &a, &x, &one, 1, 0.1f, 0.5f);
	ps_rule_gather(&adagrad, &a, &x, &two, 1, 0.1f, 0.5f);
	ps_rule_settle(&adagrad, &a, &x, 1, 0.1f);
	ps_rule_settle(&adagrad, &a, &x, 1, 0.1f);
	ps_rule_apply(&adagrad, &b, &y, &mean, 1, 0.1f, 1.0f);
	for (int d = 0; d < 3; d++)
		cr_assert_float_eq(x[d], y[d], 1e-6);
	ps_table_fini(&a);
	ps_table_fini(&b);
}
