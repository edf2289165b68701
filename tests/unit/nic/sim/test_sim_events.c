/* SPDX-License-Identifier: BSD-3-Clause */
/** The event queue of the simulator, also against its definition. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

static char order[64];

static void note(void *ctx)
{
	strcat(order, ctx);
}

static void *said(const char *text)
{
	return (void *)(uintptr_t)text;
}

static void begin(void)
{
	order[0] = '\0';
}

TestSuite(sim_events, .init = begin);

Test(sim_events, run_by_time_then_by_insertion)
{
	struct sim *sim = sim_fixture_world(0);
	uint64_t t = sim_now(sim);
	cr_assert_eq(t, SIM_START_NS);
	cr_assert_eq(sim_next(sim), TIME_NEVER);
	sim_at(sim, t + 20, note, said("d"));
	sim_at(sim, t + 10, note, said("b"));
	sim_at(sim, t + 20, note, said("e"));
	sim_at(sim, 5, note, said("a")); /* past: now */
	sim_at(sim, t + 10, note, said("c"));
	cr_assert_eq(sim_next(sim), t);
	cr_assert(sim_run_until(sim, t + 19));
	cr_assert_str_eq(order, "abc");
	cr_assert_eq(sim_now(sim), t + 19);
	cr_assert_eq(clock_now(sim_clock(sim)), t + 19);
	cr_assert(sim_step(sim));
	cr_assert_eq(sim_now(sim), t + 20);
	cr_assert_str_eq(order, "abcd");
	cr_assert(sim_step(sim));
	cr_assert_not(sim_step(sim));
	cr_assert_str_eq(order, "abcde");
	sim_destroy(sim);
}

struct chain {
	struct sim *sim;
	unsigned left;
};

static void again(void *ctx)
{
	struct chain *c = ctx;
	if (c->left--)
		sim_at(c->sim, sim_now(c->sim), again, c);
}

/* An event that is scheduled for now runs after those that were scheduled before. */
Test(sim_events, of_one_moment_wait_their_turn)
{
	struct sim *sim = sim_fixture_world(0);
	struct chain c = {sim, 3};
	sim_at(sim, 0, again, &c);
	sim_at(sim, 0, note, said("x"));
	cr_assert(sim_step(sim));
	cr_assert(sim_step(sim));
	cr_assert_str_eq(order, "x");
	cr_assert_eq(c.left, 2);
	cr_assert(sim_run_until(sim, sim_now(sim)));
	cr_assert_eq(c.left, UINT32_MAX);
	sim_destroy(sim);
}

Test(sim_events, cancelled_ones_do_not_happen)
{
	struct sim *sim = sim_fixture_world(0);
	sim_event events[100];
	struct sim_stats stats;
	for (unsigned i = 0; i < 100; i++)
		events[i] = sim_at(sim, sim_now(sim) + i * 37 % 100, note, said(i % 10 == 7 ? "y" : "n"));
	for (unsigned i = 0; i < 100; i++)
		if (i % 10 != 7)
			cr_assert(sim_cancel(sim, events[i]));
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(sim_cancel(sim, i % 10 == 7 ? 0 : events[i]), false);
	cr_assert(sim_run_until(sim, sim_now(sim) + 1000));
	cr_assert_str_eq(order, "yyyyyyyyyy");
	/* The slots are used again: an old handle is nobody's. */
	sim_event now = sim_at(sim, 0, note, said("z"));
	for (unsigned i = 0; i < 100; i++)
		cr_assert_not(sim_cancel(sim, events[i]));
	cr_assert(sim_cancel(sim, now));
	sim_stats(sim, &stats);
	cr_assert_eq(stats.events, 10);
	cr_assert_eq(stats.events_pending, 0);
	cr_assert_eq(stats.events_pending_max, 100);
	sim_destroy(sim);
}

struct timed {
	struct sim *sim;
	uint64_t when, number;
};
static uint64_t last_when, last_number, happened;

static void in_order(void *ctx)
{
	struct timed *t = ctx;
	cr_assert_eq(sim_now(t->sim), t->when);
	cr_assert(t->when > last_when || (t->when == last_when && t->number > last_number));
	last_when = t->when;
	last_number = t->number;
	happened++;
}

/* Against the definition, with many events of few times, and a third of them cancelled. */
Test(sim_events, any_number_of_them_keep_the_order)
{
	enum { MANY = 20000 };
	static struct timed timed[MANY];
	static sim_event events[MANY];
	struct sim *sim = sim_fixture_world(0);
	struct sim_random r;
	uint64_t cancelled = 0;
	sim_random_init(&r, 1, "test", 0);
	last_when = last_number = happened = 0;
	for (uint64_t i = 0; i < MANY; i++) {
		timed[i] = (struct timed){sim, sim_now(sim) + 1 + sim_random_below(&r, 500), i};
		events[i] = sim_at(sim, timed[i].when, in_order, &timed[i]);
		if (sim_random_below(&r, 3) == 0)
			cancelled += sim_cancel(sim, events[sim_random_below(&r, i + 1)]);
	}
	cr_assert(cancelled > MANY / 5);
	cr_assert(sim_run_until(sim, sim_now(sim) + 500));
	cr_assert_eq(happened + cancelled, MANY);
	sim_destroy(sim);
}

Test(sim_events, too_many_end_the_run_with_a_reason)
{
	struct sim *sim = sim_fixture_world(10);
	for (unsigned i = 0; i < 10; i++)
		cr_assert(sim_at(sim, 0, note, said("a")));
	cr_assert_null(sim_failure(sim));
	cr_assert_eq(sim_at(sim, 0, note, said("b")), 0);
	cr_assert(strstr(sim_failure(sim), "events_max"));
	cr_assert_not(sim_step(sim));
	cr_assert_not(sim_run_until(sim, TIME_NEVER));
	cr_assert_str_eq(order, "");
	sim_destroy(sim);
}

Test(sim_events, of_a_host_wait_for_the_end_of_a_pause)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_host *host = sim_fixture_host(sim, 0, 0);
	uint64_t t = sim_now(sim);
	sim_host_at(host, t + 10, note, said("a"));
	sim_event b = sim_host_at(host, t + 20, note, said("b"));
	sim_host_at(host, t + 21, note, said("c"));
	sim_at(sim, t + 25, note, said("w"));
	sim_host_at(host, t + 50, note, said("e"));
	sim_host_pause(host);
	cr_assert(sim_run_until(sim, t + 30));
	cr_assert_eq(sim_now(sim), t + 30);
	cr_assert_str_eq(order, "w");
	cr_assert(sim_cancel(sim, b));
	sim_host_resume(host);
	sim_at(sim, t, note, said("d"));
	cr_assert(sim_run_until(sim, t + 30));
	cr_assert_str_eq(order, "wacd");
	cr_assert(sim_run_until(sim, t + 100));
	cr_assert_str_eq(order, "wacde");
	/* Only the host's event is there, and it is paused: nothing happens, and time passes. */
	sim_host_pause(host);
	sim_host_at(host, t + 110, note, said("f"));
	sim_at(sim, t + 300, note, said("g"));
	cr_assert(sim_run_until(sim, t + 200));
	cr_assert_eq(sim_now(sim), t + 200);
	cr_assert_str_eq(order, "wacde");
	cr_assert(sim_step(sim));
	cr_assert_str_eq(order, "wacdeg");
	cr_assert_not(sim_step(sim));
	sim_destroy(sim);
}

Test(sim_events, of_a_host_end_with_a_crash)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_host *host = sim_fixture_host(sim, 0, 0), *other = sim_fixture_host(sim, 0, 0);
	struct sim_stats stats;
	uint64_t t = sim_now(sim);
	for (unsigned i = 0; i < 20; i++) {
		sim_host_at(host, t + i, note, said("n"));
		if (i % 5 == 0)
			sim_host_at(other, t + i, note, said("y"));
	}
	sim_host_pause(host);
	cr_assert(sim_run_until(sim, t + 9));
	sim_host_crash(host);
	sim_host_crash(host);
	sim_host_resume(host);
	cr_assert_eq(sim_host_state(host), SIM_CRASHED);
	cr_assert_eq(sim_host_at(host, t, note, said("n")), 0);
	cr_assert_null(sim_failure(sim));
	sim_host_restart(host);
	cr_assert_eq(sim_host_state(host), SIM_RUNNING);
	cr_assert_eq(sim_host_incarnation(host), 1);
	sim_host_at(host, t + 30, note, said("z"));
	cr_assert(sim_run_until(sim, t + 100));
	cr_assert_str_eq(order, "yyyyz");
	sim_stats(sim, &stats);
	cr_assert_eq(stats.events_pending, 0);
	sim_destroy(sim);
}
