/* SPDX-License-Identifier: BSD-3-Clause */
/** Buckets of latencies, the calls that are measured, and how often. The test's thread. */
#include "core/latency.h"

#include <criterion/criterion.h>

static struct latency l;

static void begin(uint32_t every)
{
	cr_assert(latency_init(&l, every, 1024));
}

static void end(void)
{
	latency_free(&l);
}

/* Expect each latency in the one bucket whose ends are around it, at most an eighth apart, up to the last bucket. */
Test(core_latency, buckets)
{
	for (unsigned i = 1; i < LATENCY_BUCKETS; i++)
		cr_assert_gt(latency_bucket_end(i), latency_bucket_end(i - 1), "bucket %u", i);
	for (unsigned power = 0; power < 40; power++)
		for (uint64_t part = 0; part < 64; part++) {
			uint64_t ns = (UINT64_C(1) << power) + (part << power >> 6);
			unsigned i = latency_bucket(ns);
			cr_assert_lt(ns, latency_bucket_end(i), "%llu", (unsigned long long)ns);
			cr_assert(i == 0 || ns >= latency_bucket_end(i - 1), "%llu", (unsigned long long)ns);
			cr_assert_leq((latency_bucket_end(i) - 1 - ns) * 8, ns, "%llu", (unsigned long long)ns);
		}
	cr_assert_eq(latency_bucket(0), 0);
	cr_assert_eq(latency_bucket(UINT64_MAX), LATENCY_BUCKETS - 1);
}

/* Expect powers of two to be ends of buckets: Prometheus' histogram counts what is below them. */
Test(core_latency, powers_are_ends)
{
	for (unsigned power = 4; power <= 40; power++)
		cr_assert_eq(latency_bucket_end(latency_bucket((UINT64_C(1) << power) - 1)), UINT64_C(1) << power,
			     "2^%u", power);
}

/* Two calls whose slots share a place: the second is not measured. Expect one measurement, with its time. */
Test(core_latency, one_place)
{
	begin(64);
	cr_assert(latency_begin(&l, 3, 100));
	cr_assert_not(latency_begin(&l, 3 + LATENCY_OPEN_MAX, 200));
	latency_end(&l, 3, 1100);
	cr_assert_eq(l.n, 1);
	cr_assert_eq(l.sum_ns, 1000);
	cr_assert_eq(l.bucket[latency_bucket(1000)], 1);
	cr_assert(latency_begin(&l, 3 + LATENCY_OPEN_MAX, 300));
	end();
}

/* Expect one call in 64 on average, each when every one is to be measured, and nearly none with 0. */
Test(core_latency, how_often)
{
	uint64_t calls = 0;
	begin(64);
	for (unsigned i = 0; i < 10000; i++)
		calls += (uint64_t)latency_next(&l) + 1;
	cr_assert(calls > 62 * 10000 && calls < 66 * 10000, "%llu calls", (unsigned long long)calls);
	end();
	begin(1);
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(latency_next(&l), 0u);
	end();
	begin(0);
	cr_assert_eq(latency_next(&l), (uint32_t)INT32_MAX);
	end();
}
