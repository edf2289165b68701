/* SPDX-License-Identifier: BSD-3-Clause */
/* When a thread that polls a shard goes to sleep. */
#include "core/idle.h"
#include "core/timer.h"
#include "core/waiting.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>

static unsigned fired;

static void fire(struct shard *s, struct shard_timer *t)
{
	(void)s;
	(void)t;
	fired++;
}

/* Steps of an idler, each 100 ns after the last, until it is to sleep. */
static unsigned steps_to_sleep(void)
{
	struct idler idler = {0};
	unsigned n = 0;
	do {
		cr_assert_lt(n++, 100000);
		now_ns += 100;
	} while (!idler_step(shard, &idler, true));
	return n;
}

/* What the thread waits for may have ended in a timer: then it looks before it sleeps. */
Test(idle, no_sleep_right_after_a_timer, .init = shard_setup, .fini = shard_teardown)
{
	static struct shard_timer timer = {.fn = fire};
	unsigned n = steps_to_sleep();
	struct idler idler = {0};
	timer_arm(&shard->wheel, &timer.timer, now_ns + n * UINT64_C(100));
	for (unsigned i = 1; i <= n; i++) {
		now_ns += 100;
		cr_assert_not(idler_step(shard, &idler, true), "step %u of %u", i, n);
	}
	cr_assert_eq(fired, 1, "by the step that would have ended in sleep");
	unsigned more = 0;
	do {
		cr_assert_lt(more++, n);
		now_ns += 100;
	} while (!idler_step(shard, &idler, true));
	cr_assert_lt(more, n / 2, "it does not begin to wait anew");
}

Test(idle, going_to_sleep_looks_once_more, .init = shard_setup, .fini = shard_teardown)
{
	struct result r = {0};
	struct call_start start = {
		.worker = PEER, .fn = 1, .deadline = now_ns, .done = take_result, .user = &r, .data = "x", .len = 1};
	cr_assert_eq(waiting_submit(shard, &start), 0);
	shard_sleep(shard, TIME_NEVER);
	cr_assert_eq(r.n, 1u, "found by the look after arming");
	cr_assert_eq(queue->arms, 1u);
	cr_assert_not(queue->armed);
	cr_assert_eq(shard->counters.wakeups, 0u);
}

Test(idle, a_wake_ends_the_sleep, .init = shard_setup, .fini = shard_teardown, .timeout = 60)
{
	queue->base.ops->wake(&queue->base);
	shard_sleep(shard, TIME_NEVER);
	cr_assert_eq(shard->counters.wakeups, 1u);
	cr_assert_not(queue->armed);
	cr_assert_eq(atomic_load(&shard->progress.asleep), 0u);
}
