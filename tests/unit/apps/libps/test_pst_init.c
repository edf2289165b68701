/* SPDX-License-Identifier: BSD-3-Clause */
/** Initial values of rows depend on seed, key and element. The test's thread. */
#include "apps/libps/pst_init.h"
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

TestSuite(pst_init);

Test(pst_init, values_depend_on_seed_key_and_element_alone)
{
	struct pst_init init = {.kind = PST_INIT_UNIFORM, .a = -1, .b = 1, .seed = 3}, other = init;
	other.seed = 4;
	float a[32], b[32], c[32], d[7];
	pst_init_row(&init, 99, a, 32);
	pst_init_row(&init, 99, b, 32);
	pst_init_row(&init, 99, d, 7);
	cr_assert_eq(memcmp(a, b, sizeof a), 0);
	cr_assert_eq(memcmp(a, d, sizeof d), 0, "a shorter row begins in the same manner");
	pst_init_row(&init, 98, c, 32);
	pst_init_row(&other, 99, b, 32);
	for (int i = 0; i < 32; i++)
		cr_assert(a[i] < c[i] || a[i] > c[i]);
	for (int i = 0; i < 32; i++)
		cr_assert(a[i] < b[i] || a[i] > b[i]);
}

/* Saved models rest on these. */
Test(pst_init, values_are_those_of_earlier_versions)
{
	struct pst_init uniform = {.kind = PST_INIT_UNIFORM, .a = -0.5f, .b = 0.5f, .seed = 42};
	struct pst_init normal = {.kind = PST_INIT_NORMAL, .a = 0, .b = 1, .seed = 42};
	float u[2], n[2];
	pst_init_row(&uniform, 7, u, 2);
	pst_init_row(&normal, 7, n, 2);
	uint32_t bits[4];
	memcpy(bits, u, 8);
	memcpy(bits + 2, n, 8);
	static const uint32_t want[4] = {0xbe33d2f0u, 0xbe95a12eu, 0xbee93180u, 0xbf5071d0u};
	for (int i = 0; i < 4; i++)
		cr_assert_eq(bits[i], want[i], "%d: 0x%08x", i, bits[i]);
}

Test(pst_init, uniform_values_fill_their_range)
{
	struct pst_init init = {.kind = PST_INIT_UNIFORM, .a = 2, .b = 3, .seed = 1};
	unsigned bucket[10] = {0};
	for (uint64_t key = 0; key < 10000; key++) {
		float x[10];
		pst_init_row(&init, key, x, 10);
		for (int i = 0; i < 10; i++) {
			cr_assert(x[i] >= 2 && x[i] <= 3);
			unsigned at = (unsigned)((x[i] - 2) * 10);
			bucket[at < 10 ? at : 9]++;
		}
	}
	for (int i = 0; i < 10; i++)
		cr_assert(bucket[i] > 9500 && bucket[i] < 10500, "%u", bucket[i]);
}

/* The function that pst_init_normal inverts is erfc's. */
Test(pst_init, normal_values_are_normal)
{
	for (double p = 1e-10; p < 0.5; p *= 1.07) {
		double x = pst_init_normal(p), back = 0.5 * erfc(-x / sqrt(2));
		cr_assert(fabs(back - p) <= 1e-13 * 50 * p, "%g: %g", p, back);
		cr_assert(fabs(pst_init_normal(1 - p) + pst_init_normal(1 - (1 - p))) < 1e-12);
	}
	struct pst_init init = {.kind = PST_INIT_NORMAL, .a = 1, .b = 2, .seed = 6};
	double sum = 0, squares = 0, fourth = 0;
	for (uint64_t key = 0; key < 20000; key++) {
		float x[10];
		pst_init_row(&init, key, x, 10);
		for (int i = 0; i < 10; i++) {
			double z = ((double)x[i] - 1) / 2;
			sum += z;
			squares += z * z;
			fourth += z * z * z * z;
		}
	}
	cr_assert(fabs(sum / 200000) < 0.01);
	cr_assert(fabs(squares / 200000 - 1) < 0.02);
	cr_assert(fabs(fourth / 200000 - 3) < 0.15);
}

Test(pst_init, bad_ranges_are_refused)
{
	struct far_err err;
	struct pst_init bad[] = {
		{.kind = PST_INITS},
		{.kind = PST_INIT_CONSTANT, .a = NAN},
		{.kind = PST_INIT_UNIFORM, .a = 1, .b = 0},
		{.kind = PST_INIT_UNIFORM, .a = -3e38f, .b = 3e38f},
		{.kind = PST_INIT_NORMAL, .a = 0, .b = -1},
		{.kind = PST_INIT_NORMAL, .a = 0, .b = INFINITY},
	};
	for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_assert_eq(pst_init_check(&bad[i], &err), FAR_INVALID, "%u", i);
	struct pst_init good = {.kind = PST_INIT_CONSTANT, .a = 1, .b = NAN};
	cr_assert_eq(pst_init_check(&good, &err), FAR_OK);
}
