/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages over a link: sizes, loss, windows, memory, acknowledgements. */
#include "link_bench.h"

#include "base/limits.h"

#include <criterion/criterion.h>
#include <errno.h>

static uint32_t at_0, at_1; /* 0's name for 1, and the other way round */

static uint64_t small(uint64_t seq)
{
	return seq % 33;
}

static uint64_t mixed(uint64_t seq)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return x % 10 == 0 ? x % 70000 : x % 7 == 0 ? x % 3000 : x % 129;
}

Test(link_data, small_messages)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 1000, small, 10000));
	cr_assert(bench_stream(1, at_1, 0, 1000, small, 10000));
	bench_fini();
}

Test(link_data, mixed_messages)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert(bench_stream(0, at_0, 1, 2000, mixed, 100000));
	bench_fini();
}

Test(link_data, everything_happens)
{
	for (uint64_t seed = 1; seed <= 20; seed++) {
		bench_init();
		bench.fabric.seed = seed;
		bench.fabric.drop = bench.fabric.repeat = bench.fabric.overtake = bench.fabric.damage = 50;
		bench.fabric.misalign = (unsigned)(seed * 5 % 64);
		bench_two(&at_0, &at_1);
		cr_assert(bench_stream(0, at_0, 1, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(bench_stream(1, at_1, 0, 500, mixed, 1000000), "seed %d", (int)seed);
		cr_assert(bench.ends[0].downs + bench.ends[1].downs == 0, "seed %d", (int)seed);
		bench_fini();
	}
}

/* Every length around the limits of a line, of a slot, and of a fragment; bodies of all sizes up to the largest. */
Test(link_data, sizes)
{
	static const uint64_t around[] = {0, 32, 64, 128, 1304, 2608, 3912, 65536};
	bench_init();
	bench_two(&at_0, &at_1);
	uint64_t seq = 0;
	for (unsigned i = 0; i < sizeof around / sizeof *around; i++)
		for (uint64_t len = around[i] < 3 ? 0 : around[i] - 3; len <= around[i] + 3; len++, seq++) {
			cr_assert_eq(bench_send(0, at_0, seq, len), 0);
			for (unsigned turn = 0; turn < 100 && bench.ends[1].got == seq; turn++)
				bench_turn();
			cr_assert(bench.ends[1].got == seq + 1 && !bench.ends[1].bad, "%llu bytes",
				  (unsigned long long)len);
		}
	bench_fini();
}

Test(link_data, largest)
{
	bench_init();
	bench_two(&at_0, &at_1);
	cr_assert_eq(bench_send(0, at_0, 0, (UINT64_C(16) << 20) + 1), -EMSGSIZE);
	cr_assert_eq(bench_send(0, at_0, 0, UINT64_MAX), -EMSGSIZE);
	cr_assert_eq(bench_send(0, at_0, 0, UINT64_C(16) << 20), 0);
	cr_assert_eq(bench_send(0, at_0, 1, 3), 0);
	for (unsigned turn = 0; turn < 20000 && bench.ends[1].got < 2; turn++)
		bench_turn();
	cr_assert(bench.ends[1].got == 2 && !bench.ends[1].bad);
	bench_fini();
}
