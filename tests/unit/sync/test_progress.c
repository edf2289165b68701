/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "sync/future.h"
#include "sync/progress.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>

static struct driver driver;

static void setup(void)
{
	memset(&driver, 0, sizeof driver);
}

TestSuite(progress, .init = setup);

Test(progress, one_holder_at_a_time)
{
	cr_assert(driver_try(&driver));
	cr_assert_not(driver_try(&driver));
	driver_release(&driver);
	cr_assert(driver_try(&driver));
	driver_release(&driver);
	cr_assert_eq(atomic_load(&driver.epoch), 2u);
}

Test(progress, giving_back_nudges_one_sleeper)
{
	_Atomic uint32_t a = 0, b = 0;
	cr_assert(driver_try(&driver));
	int at_a = driver_sleeper_add(&driver, &a), at_b = driver_sleeper_add(&driver, &b);
	cr_assert_geq(at_a, 0);
	cr_assert_geq(at_b, 0);
	cr_assert_neq(at_a, at_b);
	driver_release(&driver);
	cr_assert_eq((a != 0) + (b != 0), 1);
	driver_sleeper_remove(&driver, at_a);
	driver_sleeper_remove(&driver, at_b);
	cr_assert_eq(atomic_load(&driver.sleepers_n), 0u);
}

Test(progress, who_does_not_need_the_token_passes_the_nudge_on)
{
	_Atomic uint32_t a = 0, b = 0;
	cr_assert(driver_try(&driver));
	int at_a = driver_sleeper_add(&driver, &a), at_b = driver_sleeper_add(&driver, &b);
	driver_release(&driver);
	uint32_t before = b;
	driver_sleeper_remove(&driver, at_a);
	cr_assert_neq(atomic_load(&b), before);
	driver_sleeper_remove(&driver, at_b);
}

Test(progress, places_are_bounded_and_come_back)
{
	_Atomic uint32_t words[FAR_SLEEPERS_MAX + 1];
	memset(words, 0, sizeof words);
	for (unsigned i = 0; i < FAR_SLEEPERS_MAX; i++)
		cr_assert_geq(driver_sleeper_add(&driver, &words[i]), 0);
	cr_assert_eq(driver_sleeper_add(&driver, &words[FAR_SLEEPERS_MAX]), -1);
	driver_sleeper_remove(&driver, -1);
	driver_sleeper_remove(&driver, 5);
	cr_assert_eq(driver_sleeper_add(&driver, &words[FAR_SLEEPERS_MAX]), 5);
}

Test(progress, parking_on_a_free_token_returns_at_once)
{
	driver_park(&driver);
	cr_assert_eq(atomic_load(&driver.parked), 0u);
}

static void *park(void *arg)
{
	driver_park(arg);
	return NULL;
}

Test(progress, giving_back_ends_a_park, .timeout = 60)
{
	for (int round = 0; round < 200; round++) {
		pthread_t t;
		cr_assert(driver_try(&driver));
		pthread_create(&t, NULL, park, &driver);
		if (round & 1)
			while (!atomic_load(&driver.parked))
				sched_yield();
		driver_release(&driver);
		pthread_join(t, NULL);
	}
}

Test(progress, unpark_ends_a_park_while_the_token_is_held, .timeout = 60)
{
	pthread_t t;
	cr_assert(driver_try(&driver));
	pthread_create(&t, NULL, park, &driver);
	while (!atomic_load(&driver.parked))
		sched_yield();
	driver_unpark(&driver);
	pthread_join(t, NULL);
	driver_release(&driver);
}

enum { THREADS = 4, TURNS = 20000 };
static uint64_t guarded;

static void *take_turns(void *arg)
{
	for (int i = 0; i < TURNS; i++) {
		while (!driver_try(&driver))
			sched_yield();
		guarded++;
		driver_release(&driver);
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
	cr_assert_eq(atomic_load(&driver.epoch), (uint32_t)THREADS * TURNS);
}
