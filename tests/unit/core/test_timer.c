/* SPDX-License-Identifier: BSD-3-Clause */
/** The timer wheel, also against a list. The test's thread. */
#include "core/timer.h"

#include <criterion/criterion.h>
#include <string.h>

#define TICK (UINT64_C(1) << TIMER_TICK_SHIFT)
#define TURN (TICK * TIMER_BUCKETS)

enum { N = 2000 };
static struct timer_wheel wheel;
static struct timer timers[N];
static unsigned fired[N], fired_n;
static uint64_t now;
static void (*on_fire)(unsigned i);

static void due(void *ctx, struct timer *t)
{
	unsigned i = (unsigned)(t - timers);
	cr_assert_eq(ctx, &wheel);
	cr_assert_leq(t->at, now, "early");
	fired[i]++;
	fired_n++;
	if (on_fire)
		on_fire(i);
}

static void run_to(uint64_t at)
{
	now = at;
	timer_run(&wheel, now, due, &wheel);
}

static void setup(void)
{
	memset(&wheel, 0, sizeof wheel);
	now = UINT64_C(1000000000);
	wheel.tick = now >> TIMER_TICK_SHIFT;
}

TestSuite(timer, .init = setup);

Test(timer, empty)
{
	cr_assert_eq(timer_next(&wheel), UINT64_MAX);
	run_to(now + 10 * TURN);
	cr_assert_eq(fired_n, 0u);
}

Test(timer, fires_once_at_its_time)
{
	static const uint64_t after[] = {0,        1,        100,  TICK - 1, TICK,        TICK + 1,
					 5 * TICK, TURN - 1, TURN, TURN + 1, 7 * TURN + 3};
	uint64_t start = now;
	for (unsigned i = 0; i < sizeof after / sizeof *after; i++) {
		timer_arm(&wheel, &timers[i], now + after[i]);
		cr_assert_eq(timer_next(&wheel), start + after[i]);
		if (after[i])
			run_to(start + after[i] - 1);
		cr_assert_eq(fired[i], 0u, "%u", i);
		run_to(start + after[i]);
		cr_assert_eq(fired[i], 1u, "%u", i);
		cr_assert_eq(wheel.armed_n, 0u);
		run_to(now + 3 * TURN);
		cr_assert_eq(fired[i], 1u);
		start = now;
	}
}

Test(timer, one_armed_in_the_past_fires_at_the_next_run)
{
	run_to(now + 20 * TICK);
	timer_arm(&wheel, &timers[0], now - 15 * TICK);
	timer_arm(&wheel, &timers[1], 0);
	run_to(now);
	cr_assert_eq(fired[0], 1u);
	cr_assert_eq(fired[1], 1u);
}

Test(timer, far_ones_wait_their_turns)
{
	timer_arm(&wheel, &timers[0], now + UINT64_C(3600) * 1000000000);
	timer_arm(&wheel, &timers[1], UINT64_MAX - 1);
	uint64_t at = timers[0].at;
	for (uint64_t t = now, end = now + 4 * TURN; t < end; t += TURN / 3)
		run_to(t);
	cr_assert_eq(fired_n, 0u);
	cr_assert_eq(timer_next(&wheel), at);
	run_to(at - 1);
	cr_assert_eq(fired_n, 0u);
	run_to(at);
	cr_assert_eq(fired[0], 1u);
	cr_assert_eq(fired[1], 0u);
	cr_assert_eq(wheel.armed_n, 1u);
}

Test(timer, disarmed_never_fires)
{
	timer_arm(&wheel, &timers[0], now + 10);
	timer_arm(&wheel, &timers[1], now + 10);
	timer_arm(&wheel, &timers[2], now + 10);
	timer_disarm(&wheel, &timers[1]);
	timer_disarm(&wheel, &timers[1]);
	timer_disarm(&wheel, &timers[3]);
	run_to(now + TURN);
	cr_assert_eq(fired[0] + fired[2], 2u);
	cr_assert_eq(fired[1], 0u);
}

Test(timer, a_long_pause_misses_nothing)
{
	for (unsigned i = 0; i < N; i++)
		timer_arm(&wheel, &timers[i], now + i * (TICK / 2) + 1);
	run_to(now + 50 * TURN);
	cr_assert_eq(fired_n, (unsigned)N);
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(fired[i], 1u);
}

static void disarm_the_neighbours(unsigned i)
{
	if (i % 2 == 0) {
		timer_disarm(&wheel, &timers[i + 1]);
		timer_disarm(&wheel, &timers[i]);
	} else {
		timer_disarm(&wheel, &timers[i - 1]);
	}
}

Test(timer, a_callback_may_disarm_one_that_is_due_too)
{
	on_fire = disarm_the_neighbours;
	for (unsigned i = 0; i < 100; i++)
		timer_arm(&wheel, &timers[i], now + 5);
	run_to(now + 5);
	for (unsigned i = 0; i < 100; i += 2)
		cr_assert_eq(fired[i] + fired[i + 1], 1u, "%u", i);
	cr_assert_eq(wheel.armed_n, 0u);
}

static void arm_again_at_once(unsigned i)
{
	if (fired[i] < 3)
		timer_arm(&wheel, &timers[i], timers[i].at + 1);
}

/* A callback may start a call whose deadline has passed: it must not wait for the wheel to come round. */
Test(timer, one_armed_by_a_callback_is_not_left_behind)
{
	on_fire = arm_again_at_once;
	timer_arm(&wheel, &timers[0], now + TICK);
	run_to(now + 10 * TICK);
	run_to(now + TICK);
	run_to(now + TICK);
	cr_assert_eq(fired[0], 3u);
	cr_assert_eq(wheel.armed_n, 0u);
}

Test(timer, against_a_list_of_times)
{
	uint64_t seed = 7;
	uint64_t at[N];
	bool armed[N] = {false};
	for (unsigned step = 0; step < 20000; step++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		unsigned i = (unsigned)(seed >> 33) % N;
		if (seed >> 62 == 0) {
			run_to(now + (seed >> 20) % (2 * TICK));
			for (unsigned k = 0; k < N; k++) {
				bool is_due = armed[k] && at[k] <= now;
				if (fired[k] != (is_due ? 1u : 0u))
					cr_assert_fail("timer %u at step %u", k, step);
				armed[k] = armed[k] && !is_due;
				fired[k] = 0;
			}
		} else if (armed[i]) {
			timer_disarm(&wheel, &timers[i]);
			armed[i] = false;
		} else {
			at[i] = now + (seed >> 8) % (3 * TURN);
			timer_arm(&wheel, &timers[i], at[i]);
			armed[i] = true;
		}
	}
}

/* Against a list: arms, disarms and runs at random, near and far, with jumps of the clock. */
Test(timer, as_a_list)
{
	uint64_t at[N], seed = 7;
	bool armed[N] = {false};
	for (unsigned round = 0; round < 100000; round++) {
		seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
		unsigned i = (unsigned)(seed >> 40) % (round % 3 ? 40 : N);
		unsigned scale = (unsigned)(seed >> 20) % 8;
		if (armed[i]) {
			timer_disarm(&wheel, &timers[i]);
			armed[i] = false;
		} else {
			at[i] = now + ((seed >> 30) & ((UINT64_C(1) << (13 + 5 * scale)) - 1));
			timer_arm(&wheel, &timers[i], at[i]);
			armed[i] = true;
		}
		uint64_t next = UINT64_MAX;
		if (round % 5 == 0)
			now += (seed >> 24) & ((UINT64_C(1) << (11 + 4 * (seed % 9))) - 1);
		memset(fired, 0, sizeof fired);
		timer_run(&wheel, now, due, &wheel);
		for (unsigned k = 0; k < N; k++) {
			bool due_now = armed[k] && at[k] <= now;
			cr_assert_eq(fired[k], due_now, "round %u, timer %u", round, k);
			armed[k] &= !due_now;
			if (armed[k] && at[k] < next)
				next = at[k];
		}
		cr_assert_eq(timer_next(&wheel), next, "round %u", round);
	}
}
