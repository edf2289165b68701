/* SPDX-License-Identifier: BSD-3-Clause */
/** Flows of control and the pointers that interceptors keep in them. The test's thread, and one that it starts. */
#include "core/context.h"
#include "core/fiber.h"
#include "core/flow.h"
#include "memory/buf.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <string.h>

enum { ID = 2, PLAIN = 3 };

static int refs[2]; /* of the two things that are counted */
#define THING(i) (&refs[i])

static void ref(void *pointer, void *user)
{
	cr_assert_eq(user, refs);
	++*(int *)pointer;
}

static void unref(void *pointer, void *user)
{
	cr_assert_eq(user, refs);
	--*(int *)pointer;
}

static void setup(void)
{
	flow_define(ID, ref, unref, refs);
	memset(refs, 0, sizeof refs);
}

static void teardown(void)
{
	shard_context_set(NULL);
	flow_thread_end();
	cr_expect_eq(refs[0], 0, "a reference was kept");
	cr_expect_eq(refs[1], 0, "a reference was kept");
}

TestSuite(core_flow, .init = setup, .fini = teardown);

/* Stores a reference that the caller has: the flow's from then on. */
static void set(int i)
{
	refs[i]++;
	cr_assert_eq(flow_set(ID, THING(i)), FAR_OK);
}

Test(core_flow, a_thread_keeps_one_pointer_of_each)
{
	int plain;
	cr_assert(flow_used());
	cr_assert_null(flow_get(ID));
	set(0);
	cr_assert_eq(flow_set(PLAIN, &plain), FAR_OK);
	cr_assert_eq(flow_get(ID), THING(0));
	cr_assert_eq(flow_get(PLAIN), &plain);
	set(1);
	cr_assert_eq(refs[0], 0, "the one before was dropped");
	cr_assert_eq(refs[1], 1);
	cr_assert_eq(flow_set(ID, NULL), FAR_OK);
	cr_assert_eq(refs[1], 0);
	cr_assert_null(flow_get(ID));
	cr_assert_eq(flow_get(PLAIN), &plain);
	flow_set(PLAIN, NULL);
}

Test(core_flow, a_continuation_has_copies)
{
	struct flow captured;
	struct flow_frame frame;
	set(0);
	flow_capture(&captured);
	cr_assert_eq(refs[0], 2);
	set(1); /* the flow that captured goes on */
	cr_assert_eq(refs[0], 1);
	flow_enter(&frame, &captured);
	cr_assert_eq(flow_get(ID), THING(0));
	cr_assert_eq(refs[0], 2);
	set(1);
	cr_assert_eq(refs[0], 1);
	cr_assert_eq(refs[1], 2);
	flow_leave(&frame);
	cr_assert_eq(flow_get(ID), THING(1), "of the thread again");
	cr_assert_eq(refs[1], 1);
	flow_drop(&captured);
	cr_assert_eq(refs[0], 0);
	cr_assert_null(captured.pointer[ID]);
}

Test(core_flow, frames_nest)
{
	struct flow_frame outer, inner;
	flow_enter(&outer, NULL);
	cr_assert_null(flow_get(ID));
	set(0);
	flow_enter(&inner, NULL);
	cr_assert_null(flow_get(ID));
	set(1);
	flow_leave(&inner);
	cr_assert_eq(refs[1], 0);
	cr_assert_eq(flow_get(ID), THING(0));
	flow_leave(&outer);
}

/* A handler without a frame runs in a thread that has a flow. Expect it to keep nothing, and to see nothing of it. */
Test(core_flow, a_handler_without_a_frame_keeps_nothing)
{
	struct shard_context handler = {.handler = "t::add"};
	struct flow captured = {{&captured}};
	struct flow_frame frame;
	set(0);
	shard_context_set(&handler);
	cr_assert_null(flow_get(ID));
	cr_assert_eq(flow_set(ID, THING(1)), FAR_INVALID);
	flow_capture(&captured);
	cr_assert_null(captured.pointer[ID]);
	flow_enter(&frame, NULL);
	set(1);
	cr_assert_eq(flow_get(ID), THING(1));
	/* A callback within that handler is another flow. */
	struct shard_context callback = {.handler = "a completion callback", .outer = &handler};
	shard_context_set(&callback);
	cr_assert_null(flow_get(ID));
	cr_assert_eq(flow_set(ID, THING(0)), FAR_INVALID);
	shard_context_set(&handler);
	flow_leave(&frame);
	shard_context_set(NULL);
	cr_assert_eq(flow_get(ID), THING(0));
}

/* A fiber sets a pointer. Expect it in a frame of the fiber's own, which follows it to another thread and ends with it.
 */
static void *resumed(void *fiber)
{
	struct shard_context in = {.fiber = fiber};
	shard_context_set(&in);
	void *got = flow_get(ID);
	shard_context_set(NULL);
	return got;
}

Test(core_flow, a_fiber_takes_its_flow_along)
{
	static struct fiber fiber;
	struct shard_context in = {.fiber = &fiber};
	void *got = NULL;
	pthread_t t;
	set(0);
	shard_context_set(&in);
	cr_assert_null(flow_get(ID));
	set(1);
	cr_assert_eq(flow_get(ID), THING(1));
	shard_context_set(NULL);
	cr_assert_eq(flow_get(ID), THING(0));
	cr_assert_eq(pthread_create(&t, NULL, resumed, &fiber), 0);
	cr_assert_eq(pthread_join(t, &got), 0);
	cr_assert_eq(got, THING(1));
	flow_fiber_end(&fiber);
	cr_assert_null(fiber.frames);
	cr_assert_eq(refs[1], 0);
}
