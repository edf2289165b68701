/* SPDX-License-Identifier: BSD-3-Clause */
/** Histograms: buckets and quantiles. The test's thread. */
#include "perf/hist.h"
#include <criterion/criterion.h>

static struct hist h; /* zero at the start of each test: Criterion forks */

Test(hist, empty_has_no_quantile)
{
	cr_assert_eq(hist_quantile(&h, 0.5), 0);
	cr_assert_eq(hist_quantile(&h, 1), 0);
}

Test(hist, buckets_are_in_order_and_without_gaps)
{
	uint32_t last = hist_bucket(0);
	cr_assert_eq(last, 0);
	for (uint64_t v = 1; v < 1 << 20; v++) {
		uint32_t b = hist_bucket(v);
		cr_assert(b == last || b == last + 1, "value %lu falls from bucket %u to %u", (unsigned long)v, last,
			  b);
		last = b;
	}
}

Test(hist, boundaries_of_the_buckets)
{
	static const struct {
		uint64_t value;
		uint32_t bucket;
	} table[] = {{0, 0},
		     {255, 255},
		     {256, 256},
		     {511, 511},
		     {512, 512},
		     {513, 512},
		     {514, 513},
		     {1023, 767},
		     {1024, 768},
		     {1027, 768},
		     {1028, 769},
		     {(UINT64_C(1) << HIST_MAX_BITS) - 1, HIST_BUCKETS - 1},
		     {UINT64_C(1) << HIST_MAX_BITS, HIST_BUCKETS - 1},
		     {UINT64_MAX, HIST_BUCKETS - 1}};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++)
		cr_assert_eq(hist_bucket(table[i].value), table[i].bucket, "value %lu", (unsigned long)table[i].value);
}

Test(hist, small_values_are_exact)
{
	for (uint64_t v = 1; v <= 100; v++)
		hist_record(&h, v);
	cr_assert_eq(hist_quantile(&h, 0), 1);
	cr_assert_eq(hist_quantile(&h, 0.5), 50);
	cr_assert_eq(hist_quantile(&h, 0.9), 90);
	cr_assert_eq(hist_quantile(&h, 0.99), 99);
	cr_assert_eq(hist_quantile(&h, 0.999), 100);
	cr_assert_eq(hist_quantile(&h, 1), 100);
}

Test(hist, large_values_are_near)
{
	for (uint64_t v = 1000; v < (UINT64_C(1) << HIST_MAX_BITS) / 7; v = v * 7 + 13) {
		hist_reset(&h);
		hist_record(&h, v);
		hist_record(&h, v);
		hist_record(&h, UINT64_C(1) << HIST_MAX_BITS);
		double got = (double)hist_quantile(&h, 0.5), error = got / (double)v - 1;
		cr_assert(error < 1.0 / 256 && error > -1.0 / 256, "%lu became %.0f", (unsigned long)v, got);
	}
}

Test(hist, the_maximum_is_exact_and_bounds_every_quantile)
{
	hist_record(&h, 1000003);
	cr_assert_eq(hist_quantile(&h, 1), 1000003);
	hist_record(&h, UINT64_MAX);
	cr_assert_eq(hist_quantile(&h, 1), UINT64_MAX);
	hist_reset(&h);
	for (int i = 0; i < 1000; i++)
		hist_record(&h, 1024);
	cr_assert_leq(hist_quantile(&h, 0.5), 1024);
}

Test(hist, merge_adds)
{
	static struct hist other;
	for (uint64_t v = 1; v <= 50; v++)
		hist_record(&h, v);
	for (uint64_t v = 51; v <= 100; v++)
		hist_record(&other, v);
	hist_merge(&h, &other);
	cr_assert_eq(h.count, 100);
	cr_assert_eq(h.max, 100);
	cr_assert_eq(hist_quantile(&h, 0.9), 90);
	cr_assert_eq(other.count, 50);
}
