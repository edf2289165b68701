/* SPDX-License-Identifier: BSD-3-Clause */
/** The flat table that `farcall perf ps` compares with. The test's thread. */
#include "perf/ps_flat.h"
#include <criterion/criterion.h>
#include <math.h>

#define ROWS 1000u
#define N    100u

static struct ps_flat flat;
static uint64_t keys[N];

static void open_flat(unsigned dim)
{
	cr_assert_eq(ps_flat_open(&flat, ROWS, dim * (uint32_t)sizeof(float)), 0);
	for (unsigned i = 0; i < N; i++)
		keys[i] = i * 7919 % ROWS;
	for (unsigned i = 0; i < ROWS * dim; i++)
		((float *)(void *)flat.at[0])[i] = (float)i;
}

static void pull(unsigned dim)
{
	float out[N * 128];
	open_flat(dim);
	ps_flat_pull(&flat, keys, N, dim * (uint32_t)sizeof(float), out);
	for (unsigned i = 0; i < N * dim; i++)
		cr_assert_eq(out[i], (float)(keys[i / dim] * dim + i % dim), "element %u", i);
	ps_flat_close(&flat);
	cr_assert_null(flat.at[0]);
}

Test(ps_flat, pulls_rows_of_a_line_and_of_more)
{
	pull(16);
	pull(128);
}

/* Adagrad with the default rate 0.01: the first step is the rate whatever the gradient, the second 1 / sqrt(2) of it.
 */
Test(ps_flat, pushes_apply_adagrad_to_the_rows_of_their_keys)
{
	static float grads[N * 16];
	float *rows;
	open_flat(16);
	rows = (float *)(void *)flat.at[0];
	for (unsigned i = 0; i < ROWS * 16; i++)
		rows[i] = 1;
	for (unsigned i = 0; i < N * 16; i++)
		grads[i] = (float)(1 + i % 5);
	ps_flat_push(&flat, keys, N, 64, grads);
	cr_assert_float_eq(rows[keys[3] * 16 + 5], 0.99, 1e-6);
	ps_flat_push(&flat, keys, N, 64, grads);
	cr_assert_float_eq(rows[keys[3] * 16 + 5], 0.99 - 0.01 / sqrt(2), 1e-6);
	unsigned changed = 0;
	for (unsigned i = 0; i < ROWS * 16; i++)
		changed += rows[i] < 1;
	cr_assert_eq(changed, N * 16);
	ps_flat_close(&flat);
}
