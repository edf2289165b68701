/* SPDX-License-Identifier: BSD-3-Clause */
/** Medians and the noise of repeated measurements. The test's thread. */
#include "perf/perf.h"
#include <criterion/criterion.h>
#include <math.h>

Test(perf_median, middle_value_or_mean_of_the_two)
{
	cr_assert_float_eq(perf_median(NULL, 0), 0, 0);
	cr_assert_float_eq(perf_median((double[]){7}, 1), 7, 0);
	cr_assert_float_eq(perf_median((double[]){9, 1}, 2), 5, 0);
	cr_assert_float_eq(perf_median((double[]){9, 1, 3}, 3), 3, 0);
}

Test(perf_median, noise_leaves_out_a_fifth_at_each_end)
{
	cr_assert_float_eq(perf_noise((double[]){90, 100, 130}, 3), 0.4, 1e-12);
	cr_assert_float_eq(perf_noise((double[]){1, 95, 100, 105, 10000}, 5), 0.1, 1e-12);
	cr_assert_float_eq(perf_noise((double[]){9000, 110, 100, 90, 100, 105, 1}, 7), 0.2, 1e-12);
	cr_assert_float_eq(perf_noise((double[]){4, 4, 4}, 3), 0, 0);
}

/* No claim that such a figure is exact. */
Test(perf_median, few_values_have_no_noise)
{
	cr_assert(isnan(perf_noise((double[]){100, 100}, 2)));
	cr_assert(isnan(perf_noise((double[]){100}, 1)));
	cr_assert(isnan(perf_noise(NULL, 0)));
	cr_assert(isnan(perf_noise((double[]){0, 0, 0}, 3)));
	cr_assert_str_eq(perf_noise_text(perf_noise((double[]){100}, 1)).text, "-");
	cr_assert_str_eq(perf_noise_text(0.1234).text, "12.3 %");
	cr_assert_str_eq(perf_noise_text(0).text, "0.0 %");
}
