/* SPDX-License-Identifier: BSD-3-Clause */
/** Fibers of the process itself. The test's thread. */
#include "core/fiber_pool.h"
#include "core/idle.h"
#include "core/session.h"
#include "core/spawn.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>

enum { FIBERS = 2 };

static struct far_future *gate;
static unsigned begun, ended;
static int result;
static uint64_t left_seen;

static void waits(void *arg)
{
	begun++;
	cr_assert_eq(shard_in_fiber() != NULL, true);
	cr_assert_null(shard_in_handler(), "it may wait");
	left_seen = far_req_time_left_ns(shard_request());
	result = shard_wait(shard, arg, TIME_NEVER);
	ended++;
}

static void setup(void)
{
	shard_setup();
	gate = future_alloc(NULL);
	begun = ended = 0;
}

static void teardown(void)
{
	buf_unref(&gate->head);
	shard_teardown();
}

TestSuite(core_spawn, .init = setup, .fini = teardown);

static void pool(void)
{
	cr_assert_eq(fiber_pool_add(shard, FIBERS, (size_t)64 << 10, NULL), FAR_OK);
}

static void open_gate(void)
{
	struct completion o = {.status = FAR_OK};
	future_complete(gate, &o);
	passes(2);
}

Test(core_spawn, it_runs_until_it_waits)
{
	pool();
	cr_assert_eq(fiber_spawn(shard, waits, gate), 0);
	cr_assert(begun == 1 && ended == 0, "at once, up to its wait");
	cr_assert_eq(left_seen, FAR_FOREVER, "it has no deadline");
	open_gate();
	cr_assert_eq(ended, 1u);
	cr_assert_eq(result, 0);
	expect_nothing(); /* nobody awaits an answer */
	cr_assert_eq(shard->oneways_n, 0u);
}

Test(core_spawn, one_more_than_there_are_is_refused)
{
	cr_assert_eq(fiber_spawn(shard, waits, gate), -EAGAIN, "without a pool");
	pool();
	for (unsigned i = 0; i < FIBERS; i++)
		cr_assert_eq(fiber_spawn(shard, waits, gate), 0);
	cr_assert_eq(fiber_spawn(shard, waits, gate), -EAGAIN);
	cr_assert_eq(begun, FIBERS);
	open_gate();
	cr_assert_eq(ended, FIBERS);
	cr_assert_eq(fiber_spawn(shard, waits, gate), 0, "they are free again");
	cr_assert_eq(ended, FIBERS + 1, "a future that is done is no wait");
}

Test(core_spawn, the_end_of_the_shard_cancels_its_wait)
{
	pool();
	cr_assert_eq(fiber_spawn(shard, waits, gate), 0);
	session_close_all(shard);
	cr_assert_eq(fiber_end_all(shard, now_ns + 1), 0u);
	cr_assert_eq(ended, 1u);
	cr_assert_eq(result, -ECANCELED);
	cr_assert_eq(fiber_spawn(shard, waits, gate), -EAGAIN, "the shard has stopped");
	open_gate();
}
