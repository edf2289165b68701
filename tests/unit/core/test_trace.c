/* SPDX-License-Identifier: BSD-3-Clause */
/** The ring of rare events: order, the oldest that is left, several writers.
 * The test's thread, and threads that it starts. */
#include "core/trace.h"

#include <criterion/criterion.h>
#include <farcall/status.h>
#include <pthread.h>
#include <string.h>

static struct shard_trace ring;

static void add(uint64_t at)
{
	trace_add(&ring, &(struct trace_event){.at = at,
					       .kind = TRACE_CALL_FAILED,
					       .status = FAR_TIMEOUT,
					       .typed = at & 1,
					       .function = (uint16_t)(at * 3),
					       .worker = (uint32_t)at * 70001});
}

static void check(const struct trace_event *e, uint64_t at)
{
	cr_assert_eq(e->at, at);
	cr_assert_eq(e->kind, TRACE_CALL_FAILED);
	cr_assert_eq(e->status, FAR_TIMEOUT);
	cr_assert_eq(e->typed, at & 1);
	cr_assert_eq(e->function, (uint16_t)(at * 3));
	cr_assert_eq(e->worker, (uint32_t)at * 70001);
}

Test(core_trace, keeps_the_last)
{
	struct trace_event e[TRACE_EVENTS + 1];
	cr_assert_eq(trace_read(&ring, e, TRACE_EVENTS), 0);
	add(1);
	cr_assert_eq(trace_read(&ring, e, TRACE_EVENTS), 1);
	check(e, 1);
	for (uint64_t at = 2; at <= 1000; at++)
		add(at);
	cr_assert_eq(trace_read(&ring, e, TRACE_EVENTS + 1), TRACE_EVENTS);
	for (uint32_t i = 0; i < TRACE_EVENTS; i++)
		check(&e[i], 1000 - TRACE_EVENTS + 1 + i);
	cr_assert_eq(trace_read(&ring, e, 3), 3);
	check(&e[0], 998);
	check(&e[2], 1000);
	cr_assert_str_eq(trace_kind_text(TRACE_CALL_FAILED), "call failed");
	cr_assert_str_eq(trace_kind_text(TRACE_KINDS), "?");
}

static void *write_some(void *arg)
{
	for (uint64_t i = 1; i <= 50; i++)
		add(*(const uint64_t *)arg + i);
	return NULL;
}

Test(core_trace, several_writers_lose_nothing)
{
	struct trace_event e[TRACE_EVENTS];
	pthread_t thread[4];
	uint64_t from[4] = {100, 200, 300, 400};
	bool seen[512] = {false};
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pthread_create(&thread[i], NULL, write_some, &from[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(thread[i], NULL);
	cr_assert_eq(trace_read(&ring, e, TRACE_EVENTS), 200);
	for (int i = 0; i < 200; i++) {
		check(&e[i], e[i].at);
		cr_assert(!seen[e[i].at]);
		seen[e[i].at] = true;
	}
}
