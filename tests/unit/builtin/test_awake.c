/* SPDX-License-Identifier: BSD-3-Clause */
/** far::keep_awake at the worker that serves it. The test's thread, which steps the agents. */
#include "agents_fixture.h"

#include <string.h>

static void setup(void)
{
	agents_begin(2, NULL);
}

TestSuite(awake, .init = setup, .fini = agents_end);

static enum far_status keep_awake(int64_t ns)
{
	return agents_call("far::keep_awake", FAR_ARGS(ns), NULL);
}

/* How long the shard that served it is to stay awake, from now on. */
static uint64_t left(void)
{
	uint64_t until = agents[1]->shards[0]->awake_until, now = clock_now(agents[1]->clock);
	return until > now ? until - now : 0;
}

Test(awake, for_the_time)
{
	cr_assert_eq(keep_awake(5 * FAR_MS), FAR_OK, "%s", err.text);
	cr_assert(left() > 4 * FAR_MS && left() <= 5 * FAR_MS);
}

/* A shorter time does not end a longer one, and times do not add up; the longest is FAR_KEEP_AWAKE_NS_MAX. */
Test(awake, the_longest_counts)
{
	cr_assert_eq(keep_awake(5 * FAR_MS), FAR_OK, "%s", err.text);
	cr_assert_eq(keep_awake(0), FAR_OK, "%s", err.text);
	cr_assert(left() > 4 * FAR_MS && left() <= 5 * FAR_MS);
	cr_assert_eq(keep_awake(INT64_MAX), FAR_OK, "%s", err.text);
	cr_assert(left() > 59 * FAR_SEC && left() <= FAR_KEEP_AWAKE_NS_MAX);
}

Test(awake, what_is_no_time)
{
	cr_assert_eq(keep_awake(-1), FAR_BAD_ARGS);
	cr_assert_str_eq(err.text, "-1 ns is no time");
	cr_assert_eq(err.executed, FAR_EXECUTED_YES);
}
