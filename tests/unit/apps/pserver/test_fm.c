/* SPDX-License-Identifier: BSD-3-Clause */
/** The margin of the factorisation machine and its gradient, against sums over pairs and differences. The test's
 * thread. */
#include "apps/pserver/fm.h"
#include "apps/pserver/planted.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#define COLUMNS 5
#define DIM     3

static struct dataset d;
static float w[COLUMNS + 1], v[COLUMNS * DIM], sum[DIM];
static const uint32_t place[COLUMNS] = {3, 1, 5, 2, 4};
static struct fm fm = {.place = place, .dim = DIM, .w = w, .v = v};

static float next(uint64_t *state)
{
	return (float)(planted_next(state) >> 40) * 0x1p-23f - 1.0f;
}

static void setup(void)
{
	uint64_t state = 4;
	dataset_init(&d);
	dataset_row(&d, 1);
	for (uint64_t key = 0; key < COLUMNS; key++)
		dataset_entry(&d, 100 * key, next(&state));
	dataset_row(&d, 0); /* without entries */
	for (size_t i = 0; i <= COLUMNS; i++)
		w[i] = next(&state);
	for (size_t i = 0; i < COLUMNS * DIM; i++)
		v[i] = next(&state);
}

static void teardown(void)
{
	dataset_free(&d);
}

TestSuite(fm, .init = setup, .fini = teardown);

static double factors(size_t a, size_t b)
{
	double product = 0.0;
	for (size_t f = 0; f < DIM; f++)
		product += (double)v[(a - 1) * DIM + f] * v[(b - 1) * DIM + f];
	return product;
}

Test(fm, the_margin_is_the_sum_over_features_and_pairs)
{
	double want = w[0];
	for (size_t i = 0; i < COLUMNS; i++) {
		want += (double)w[place[i]] * d.value[i];
		for (size_t k = 0; k < i; k++)
			want += factors(place[i], place[k]) * d.value[i] * d.value[k];
	}
	cr_assert_float_eq(fm_margin(&fm, &d, 0, sum), want, 1e-5);
	cr_assert_eq(fm_margin(&fm, &d, 1, sum), (double)w[0]);
}

Test(fm, without_places_a_column_follows_the_bias)
{
	const struct fm plain = {.dim = 0, .w = w};
	double want = w[0];
	for (size_t i = 0; i < COLUMNS; i++)
		want += (double)w[i + 1] * d.value[i];
	cr_assert_float_eq(fm_margin(&plain, &d, 0, NULL), want, 1e-6);
}

/* What the gradient is checked against: slope * margin + <outer, sum>. */
static double objective(const float *outer)
{
	double all = 0.7 * fm_margin(&fm, &d, 0, sum);
	for (size_t f = 0; f < DIM; f++)
		all += (double)outer[f] * sum[f];
	return all;
}

static void check(float *at, float gradient, const float *outer)
{
	const float step = 0.01f, before = *at;
	*at = before + step;
	double above = objective(outer);
	*at = before - step;
	double below = objective(outer);
	*at = before;
	cr_assert_float_eq((above - below) / (2.0 * step), gradient, 1e-3);
}

Test(fm, the_gradient_is_that_of_differences)
{
	const float outer[DIM] = {0.3f, -0.2f, 0.1f};
	float gw[COLUMNS + 1] = {0}, gv[COLUMNS * DIM] = {0};
	fm_margin(&fm, &d, 0, sum);
	fm_gradient(&fm, &d, 0, &(struct fm_slope){sum, 0.7f, outer}, gw, gv);
	for (size_t i = 0; i <= COLUMNS; i++)
		check(&w[i], gw[i], outer);
	for (size_t i = 0; i < COLUMNS * DIM; i++)
		check(&v[i], gv[i], outer);
}
