/* SPDX-License-Identifier: BSD-3-Clause */
/** Half-precision floats: conversion and rounding. The test's thread. */
#include "value/half.h"

#include <criterion/criterion.h>
#include <math.h>

static const enum far_dtype dtypes[2] = {FAR_BF16, FAR_F16};

Test(half, every_one_comes_back)
{
	for (int d = 0; d < 2; d++) {
		for (unsigned h = 0; h < 65536; h++) {
			float x = half_to_float(dtypes[d], (uint16_t)h);
			uint16_t back = half_from_float(dtypes[d], x);
			if (isnan(x))
				cr_assert(isnan(half_to_float(dtypes[d], back)), "%x", h);
			else
				cr_assert_eq(back, h, "%x", h);
		}
	}
}

Test(half, known_values)
{
	cr_expect_eq(half_to_float(FAR_F16, 0x3c00), 1.0f);
	cr_expect_eq(half_to_float(FAR_F16, 0xc000), -2.0f);
	cr_expect_eq(half_to_float(FAR_F16, 0x7bff), 65504.0f);
	cr_expect_eq(half_to_float(FAR_F16, 0x0001), 0x1p-24f);
	cr_expect_eq(half_to_float(FAR_F16, 0x0400), 0x1p-14f);
	cr_expect_eq(half_to_float(FAR_BF16, 0x3f80), 1.0f);
	cr_expect_eq(half_to_float(FAR_BF16, 0xc040), -3.0f);
	cr_expect(isinf(half_to_float(FAR_F16, 0x7c00)) && isinf(half_to_float(FAR_BF16, 0xff80)));
	cr_expect_eq(half_from_float(FAR_F16, 65520.0f), 0x7c00);
	cr_expect_eq(half_from_float(FAR_F16, 65519.0f), 0x7bff);
	cr_expect_eq(half_from_float(FAR_F16, -1e30f), 0xfc00);
	cr_expect_eq(half_from_float(FAR_F16, 0x1p-25f), 0, "a tie with 0");
	cr_expect_eq(half_from_float(FAR_F16, 0x1.8p-25f), 1);
	cr_expect_eq(half_from_float(FAR_F16, -0x1p-30f), 0x8000);
	cr_expect_eq(half_from_float(FAR_BF16, 3.4e38f), 0x7f80, "beyond the largest");
}

/* Between two neighbours the nearer one is taken, and of two equally near ones that with an even last bit. */
Test(half, rounds_to_nearest_even)
{
	for (int d = 0; d < 2; d++) {
		unsigned last = d == 0 ? 0x7f7f : 0x7bff;
		for (unsigned h = 0; h < last; h++) {
			double low = (double)half_to_float(dtypes[d], (uint16_t)h);
			double high = (double)half_to_float(dtypes[d], (uint16_t)(h + 1));
			float middle = (float)((low + high) / 2);
			cr_assert_eq((double)middle, (low + high) / 2, "f32 holds it");
			cr_assert_eq(half_from_float(dtypes[d], middle), h + (h & 1), "%x", h);
			cr_assert_eq(half_from_float(dtypes[d], -middle), 0x8000 | (h + (h & 1)), "%x", h);
			cr_assert_eq(half_from_float(dtypes[d], nextafterf(middle, 0)), h, "%x", h);
			cr_assert_eq(half_from_float(dtypes[d], nextafterf(middle, INFINITY)), h + 1, "%x", h);
		}
	}
}
