/* SPDX-License-Identifier: BSD-3-Clause */
/** Random numbers of the simulator. The test's thread. */
#include "nic/sim/sim.h"

#include <criterion/criterion.h>

/* splitmix64 and xoshiro256++ as published: the first numbers of the state 1, 2, 3, 4. */
Test(sim_random, xoshiro256pp)
{
	struct sim_random r = {{1, 2, 3, 4}};
	cr_assert_eq(sim_random_next(&r), UINT64_C(41943041));
	cr_assert_eq(sim_random_next(&r), UINT64_C(58720359));
	cr_assert_eq(sim_random_next(&r), UINT64_C(3588806011781223));
	cr_assert_eq(sim_random_next(&r), UINT64_C(3591011842654386));
}

Test(sim_random, streams_are_apart)
{
	struct sim_random a, b, c, d;
	sim_random_init(&a, 1, "one", 0);
	sim_random_init(&b, 1, "two", 0);
	sim_random_init(&c, 1, "one", 1);
	sim_random_init(&d, 1, "one", 0);
	for (unsigned i = 0; i < 1000; i++) {
		uint64_t x = sim_random_next(&a);
		cr_assert_neq(x, sim_random_next(&b));
		cr_assert_neq(x, sim_random_next(&c));
		cr_assert_eq(x, sim_random_next(&d));
	}
	unsigned hits[7] = {0};
	for (unsigned i = 0; i < 70000; i++)
		hits[sim_random_below(&a, 7)]++;
	for (unsigned i = 0; i < 7; i++)
		cr_assert(hits[i] > 9500 && hits[i] < 10500, "%u", hits[i]);
	cr_assert_eq(sim_random_below(&a, 1), 0);
}
