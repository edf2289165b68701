/* SPDX-License-Identifier: BSD-3-Clause */
/** Which rounds of a floor count. The test's thread. */
#include "perf/quiet.h"

#include <criterion/criterion.h>
#include <time.h>

#define MS UINT64_C(1000000)

static struct quiet q;

static void add(double line_ns, double ring_ns, uint64_t wall_ns, uint64_t cpu_ns)
{
	q.round[q.n++] = (struct quiet_round){line_ns, ring_ns, wall_ns, cpu_ns, wall_ns > cpu_ns};
}

/* The least medians are the floor, however slow the others were. */
Test(quiet, a_few_undisturbed_rounds_suffice)
{
	struct quiet_verdict v;
	for (int i = 0; i < 40; i++)
		add(194e6, 200e6, 10 * MS, 5 * MS);
	for (int i = 0; i < QUIET_ROUNDS_MIN; i++)
		add(290 + i, 310 + i, 10 * MS, 10 * MS);
	quiet_judge(&q, &v);
	cr_assert_float_eq(v.line_ns, 290, 1e-9);
	cr_assert_float_eq(v.ring_ns, 310, 1e-9);
	cr_assert_eq(v.quiet, QUIET_ROUNDS_MIN);
	cr_assert_float_eq(v.noise, 40.0 / 43, 1e-9);
	cr_assert_float_eq(v.lost, 200.0 / 430, 1e-9);
	cr_assert_eq(v.switches, 40u);
}

Test(quiet, steady)
{
	const double alike[] = {1054, 1070, 1040, 1062}, apart[] = {1054, 1070, 700, 1062};
	cr_assert(quiet_steady(alike, 4));
	cr_assert(!quiet_steady(apart, 4));
	cr_assert(quiet_steady(apart, 2));
	cr_assert(!quiet_steady(apart, 3));
}

/* Each sign of a disturbance by itself: the CPU was lost, one of the medians is far from the best, the ring is much
 * slower than the line. */
Test(quiet, disturbed_rounds)
{
	struct quiet_verdict v;
	add(290, 310, 10 * MS, 10 * MS);
	add(290, 310, 10 * MS, 9 * MS);
	add(400, 310, 10 * MS, 10 * MS);
	add(290, 400, 10 * MS, 10 * MS);
	quiet_judge(&q, &v);
	cr_assert_eq(v.quiet, 1u);
	q.n = 0;
	add(194e6, 400e6, 10 * MS, 10 * MS);
	add(194e6, 400e6, 10 * MS, 10 * MS);
	quiet_judge(&q, &v);
	cr_assert_eq(v.quiet, 0u);
}

Test(quiet, nothing_measured_is_no_floor)
{
	struct quiet_verdict v;
	quiet_judge(&q, &v);
	cr_assert_eq(v.quiet, 0u);
	cr_assert_float_eq(v.noise, 1, 1e-9);
}

/* A thread that sleeps has lost its CPU as far as a floor is concerned. */
Test(quiet, a_round_without_the_cpu)
{
	struct quiet_verdict v;
	quiet_begin(&q);
	quiet_round_begin(&q);
	nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
	quiet_round_end(&q, 290, 310);
	quiet_end(&q);
	quiet_judge(&q, &v);
	cr_assert_eq(v.quiet, 0u);
	cr_assert_gt(v.lost, 0.5);
}
