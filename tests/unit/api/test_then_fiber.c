/* SPDX-License-Identifier: BSD-3-Clause */
/** Continuations that may wait. The test's thread, and fibers of an agent that it steps. */
#include "agents_fixture.h"

#include <string.h>

static struct far_future *parent, *gate;
static unsigned ran;

static void setup(void)
{
	agents_begin(1, NULL);
	cr_assert_eq(far_future_create(&parent, &err), FAR_OK);
	cr_assert_eq(far_future_create(&gate, &err), FAR_OK);
	ran = 0;
}

static void teardown(void)
{
	far_future_free(parent);
	far_future_free(gate);
	agents_end();
}

TestSuite(api_then_fiber, .init = setup, .fini = teardown);

static void complete(struct far_future *f, int64_t i)
{
	struct far_val v = far_int(i);
	cr_assert_eq(far_future_set_value(f, &v, &err), FAR_OK);
}

static void turns(unsigned n)
{
	while (n--)
		agents_turn();
}

/* The sum of its parent and of another future, for which it waits. */
static enum far_status add_gate(struct far_future *p, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	ran++;
	enum far_status status = far_future_wait(user, 0, &v, e);
	if (status)
		return status;
	status = far_future_value(p, out, e);
	out->u.i += v.u.i;
	return status;
}

static struct far_future *then_fiber(void)
{
	struct far_future *child;
	cr_assert_eq(far_future_then_fiber(agents[0], parent, add_gate, gate, &child, &err), FAR_OK, "%s", err.text);
	return child;
}

Test(api_then_fiber, a_callback_may_wait)
{
	struct far_future *child = then_fiber();
	struct far_val out;
	turns(100);
	cr_assert_eq(ran, 0u);
	complete(parent, 40);
	turns(100);
	cr_assert(ran == 1 && !far_future_done(child), "it waits for the other one");
	complete(gate, 2);
	agents_until(child);
	cr_assert_eq(far_future_value(child, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 42);
	cr_assert_eq(far_future_set_value(child, NULL, &err), FAR_INVALID, "a child is not user-made");
	far_future_free(child);
}

/* The parent fails. Expect the callback to see that, and its error in the child. */
Test(api_then_fiber, errors_reach_the_child)
{
	struct far_future *child = then_fiber();
	complete(gate, 2);
	cr_assert_eq(far_future_set_error(parent, FAR_DENIED, 7, "no entry"), FAR_OK);
	agents_until(child);
	cr_assert_eq(ran, 1u);
	cr_assert_eq(far_future_value(child, NULL, &err), FAR_DENIED);
	cr_assert_str_eq(err.text, "no entry");
	cr_assert_eq(err.code, 7);
	far_future_free(child);
}

/* Every fiber waits for its parent. Expect the next one to fail at once, with the remedy, and others to go on. */
Test(api_then_fiber, no_fiber_is_free)
{
	struct far_future *child[AGENTS_FIBERS + 1];
	for (unsigned i = 0; i < AGENTS_FIBERS + 1; i++)
		child[i] = then_fiber();
	agents_until(child[AGENTS_FIBERS]);
	cr_assert_eq(far_future_value(child[AGENTS_FIBERS], NULL, &err), FAR_RESOURCE);
	cr_assert(strstr(err.text, "raise opts.fibers"), "%s", err.text);
	cr_assert_eq(ran, 0u);
	complete(parent, 1);
	complete(gate, 1);
	for (unsigned i = 0; i < AGENTS_FIBERS; i++) {
		agents_until(child[i]);
		cr_assert_eq(far_future_value(child[i], NULL, &err), FAR_OK, "%s", err.text);
	}
	cr_assert_eq(ran, AGENTS_FIBERS);
	for (unsigned i = 0; i < AGENTS_FIBERS + 1; i++)
		far_future_free(child[i]);
}

/* The agent ends before the parent is complete: with a fiber that waits, and before one was begun. */
Test(api_then_fiber, the_agent_ends_first)
{
	for (unsigned begun = 0; begun < 2; begun++) {
		struct far_future *child = then_fiber();
		if (begun)
			turns(100);
		cr_assert_eq(agent_destroy(agents[0]), 0);
		agents[0] = NULL;
		cr_assert(far_future_done(child));
		cr_assert_eq(far_future_value(child, NULL, &err), FAR_SHUTDOWN);
		cr_assert(strstr(err.text, "the agent was shut down before"), "%s", err.text);
		far_future_free(child);
		cr_assert_eq(ran, 0u);
		agents_end();
		agents_begin(1, NULL);
	}
}

/* A user-made parent that nobody can complete any more. Expect its end to reach the child: the fiber keeps no
 * reference. */
Test(api_then_fiber, a_parent_that_is_given_back)
{
	struct far_future *child = then_fiber();
	turns(100);
	far_future_free(parent);
	parent = NULL;
	complete(gate, 1);
	agents_until(child);
	cr_assert_eq(far_future_value(child, NULL, &err), FAR_CANCELLED);
	far_future_free(child);
}

Test(api_then_fiber, bad_input)
{
	struct far_future *child = NULL;
	cr_assert_eq(far_future_then_fiber(NULL, parent, add_gate, gate, &child, &err), FAR_INVALID);
	cr_assert_eq(far_future_then_fiber(agents[0], parent, NULL, gate, &child, &err), FAR_INVALID);
	cr_assert_eq(far_future_then_fiber(agents[0], parent, add_gate, gate, NULL, &err), FAR_INVALID);
	cr_assert_eq(far_future_then_fiber(agents[0], NULL, add_gate, gate, &child, &err), FAR_INVALID);
	cr_assert_null(child);
}
