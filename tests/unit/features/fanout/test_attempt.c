/* SPDX-License-Identifier: BSD-3-Clause */
/** Queues of the attempts of a fan-out that wait for room. The test's thread. */
#include "features/fanout/attempt.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <stdlib.h>

enum { N = 12 };

static struct fanout *fo;

static void setup(void)
{
	shard_setup();
	fo = calloc(1, sizeof *fo + N * sizeof *fo->target);
	cr_assert_not_null(fo);
	fo->shard = shard;
	fo->n = N;
	for (uint32_t i = 0; i < N; i++) {
		struct fanout_target *t = &fo->target[i];
		t->to = (struct far_to){i % 2 ? PEER : OTHER, 0};
		t->hedge_to = (struct far_to){i % 2 ? OTHER : PEER, 0};
		t->attempt[1].second = 1;
	}
}

static void teardown(void)
{
	free(fo);
	shard_teardown();
}

TestSuite(fanout_attempt, .init = setup, .fini = teardown);

static uint32_t queue_of(uint32_t worker)
{
	return session_index(shard, worker, 0) % FANOUT_QUEUES;
}

/* The targets in the queue of a worker, in order; a hedge is negative, less 1. */
static unsigned queued(uint32_t worker, int *out)
{
	unsigned n = 0;
	for (uint16_t at = fo->queue_head[queue_of(worker)]; at; at = fanout_attempt_at(fo, at)->next) {
		const struct fanout_attempt *a = fanout_attempt_at(fo, at);
		out[n++] = (int)fanout_target_of(fo, a) * (a->second ? -1 : 1) - a->second;
	}
	return n;
}

Test(fanout_attempt, numbers_name_both_attempts_of_a_target)
{
	for (uint32_t i = 0; i < N; i++)
		for (unsigned second = 0; second < 2; second++) {
			const struct fanout_attempt *a = &fo->target[i].attempt[second];
			cr_assert_eq(fanout_target_of(fo, a), i);
			cr_assert_eq(fanout_target_with(a), &fo->target[i]);
			cr_assert_eq(fanout_attempt_at(fo, (uint16_t)(i * 2 + second + 1)), a);
			cr_assert_eq(fanout_attempt_to(a).worker,
				     second ? fo->target[i].hedge_to.worker : fo->target[i].to.worker);
		}
}

/* Expect each attempt in the queue of its own worker, in the order of arrival. */
Test(fanout_attempt, each_waits_for_its_worker)
{
	int got[N];
	for (uint32_t i = 0; i < 6; i++)
		fanout_enqueue(fo, &fo->target[i].attempt[0]);
	fanout_enqueue(fo, &fo->target[7].attempt[1]);
	cr_assert_eq(fo->waiting_n, 7u);
	cr_assert_eq(fo->target[3].attempt[0].state, ATTEMPT_WAITING);
	cr_assert_eq(queued(PEER, got), 3u);
	cr_assert(got[0] == 1 && got[1] == 3 && got[2] == 5);
	cr_assert_eq(queued(OTHER, got), 4u);
	cr_assert(got[0] == 0 && got[1] == 2 && got[2] == 4 && got[3] == -8);
}

/* Taken out at the head, in the middle and at the tail, and others added. Expect the rest in order. */
Test(fanout_attempt, taken_out_anywhere)
{
	int got[N];
	uint32_t q = queue_of(PEER);
	for (unsigned at = 0; at < 3; at++) {
		struct fanout_attempt *a[4];
		for (unsigned i = 0; i < 4; i++)
			a[i] = &fo->target[2 * i + 1].attempt[0];
		for (unsigned i = 0; i < 3; i++)
			fanout_enqueue(fo, a[i]);
		fanout_dequeue(fo, q, at ? a[at - 1] : NULL, a[at]);
		cr_assert_eq(fo->waiting_n, 2u);
		fanout_enqueue(fo, a[3]);
		fanout_enqueue(fo, a[at]); /* again, at the end */
		cr_assert_eq(queued(PEER, got), 4u);
		unsigned k = 0;
		for (unsigned i = 0; i < 4; i++)
			if (i != at)
				cr_assert_eq(got[k++], 2 * (int)i + 1, "without %u", at);
		cr_assert_eq(got[3], 2 * (int)at + 1);
		while (fo->queue_head[q])
			fanout_dequeue(fo, q, NULL, fanout_attempt_at(fo, fo->queue_head[q]));
		cr_assert(fo->waiting_n == 0 && fo->queue_head[q] == 0 && fo->queue_tail[q] == 0);
	}
}
