/* SPDX-License-Identifier: BSD-3-Clause */
/** The progress token: one holder, sleepers, places. The test's thread, and threads that it starts. */
#include "base/clock.h"
#include "sync/future.h"
#include "sync/progress.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct progress progress;

static void setup(void)
{
	memset(&progress, 0, sizeof progress);
}

TestSuite(progress, .init = setup);

Test(progress, one_holder_at_a_time)
{
	cr_assert(progress_try(&progress));
	cr_assert_not(progress_try(&progress));
	progress_release(&progress);
	cr_assert(progress_try(&progress));
	progress_release(&progress);
	cr_assert_eq(atomic_load(&progress.epoch), 2u);
}

Test(progress, giving_back_wakes_one_sleeper)
{
	_Atomic uint32_t a = 0, b = 0;
	cr_assert(progress_try(&progress));
	int at_a = progress_sleeper_add(&progress, &a), at_b = progress_sleeper_add(&progress, &b);
	cr_assert_geq(at_a, 0);
	cr_assert_geq(at_b, 0);
	cr_assert_neq(at_a, at_b);
	progress_release(&progress);
	cr_assert_eq((a != 0) + (b != 0), 1);
	progress_sleeper_remove(&progress, at_a);
	progress_sleeper_remove(&progress, at_b);
	cr_assert_eq(atomic_load(&progress.sleepers_n), 0u);
}

Test(progress, who_does_not_need_the_token_passes_the_wake_on)
{
	_Atomic uint32_t a = 0, b = 0;
	cr_assert(progress_try(&progress));
	int at_a = progress_sleeper_add(&progress, &a), at_b = progress_sleeper_add(&progress, &b);
	progress_release(&progress);
	uint32_t before = b;
	progress_sleeper_remove(&progress, at_a);
	cr_assert_neq(atomic_load(&b), before);
	progress_sleeper_remove(&progress, at_b);
}

Test(progress, places_are_bounded_and_come_back)
{
	_Atomic uint32_t words[FAR_SLEEPERS_MAX + 1];
	memset(words, 0, sizeof words);
	for (unsigned i = 0; i < FAR_SLEEPERS_MAX; i++)
		cr_assert_geq(progress_sleeper_add(&progress, &words[i]), 0);
	cr_assert_eq(progress_sleeper_add(&progress, &words[FAR_SLEEPERS_MAX]), -1);
	progress_sleeper_remove(&progress, -1);
	progress_sleeper_remove(&progress, 5);
	cr_assert_eq(progress_sleeper_add(&progress, &words[FAR_SLEEPERS_MAX]), 5);
}

Test(progress, parking_on_a_free_token_returns_at_once)
{
	progress_park(&progress);
	cr_assert_eq(atomic_load(&progress.parked), 0u);
}

static void *park(void *arg)
{
	progress_park(arg);
	return NULL;
}

Test(progress, giving_back_ends_a_park, .timeout = 60)
{
	for (int round = 0; round < 200; round++) {
		pthread_t t;
		cr_assert(progress_try(&progress));
		pthread_create(&t, NULL, park, &progress);
		if (round & 1)
			while (!atomic_load(&progress.parked))
				sched_yield();
		progress_release(&progress);
		pthread_join(t, NULL);
	}
}

Test(progress, unpark_ends_a_park_while_the_token_is_held, .timeout = 60)
{
	pthread_t t;
	cr_assert(progress_try(&progress));
	pthread_create(&t, NULL, park, &progress);
	while (!atomic_load(&progress.parked))
		sched_yield();
	progress_unpark(&progress);
	pthread_join(t, NULL);
	progress_release(&progress);
}

enum { THREADS = 4, TURNS = 20000 };
static uint64_t guarded;

static void *take_turns(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		while (!progress_try(&progress))
			sched_yield();
		guarded++;
		progress_release(&progress);
	}
	return NULL;
}

Test(progress, the_token_excludes, .timeout = 60)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, take_turns, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	cr_assert_eq(guarded, (uint64_t)THREADS * TURNS);
	cr_assert_eq(atomic_load(&progress.epoch), (uint32_t)THREADS * TURNS);
}
