/* SPDX-License-Identifier: BSD-3-Clause */
/** The chain of contexts: which handler, fiber and request a thread is in. The test's thread, and one that it starts.
 */
#include "core/context.h"
#include "core/fiber.h"

#include <criterion/criterion.h>
#include <pthread.h>

static char memory[2];
#define SHARD_A ((struct shard *)(void *)&memory[0])
#define SHARD_B ((struct shard *)(void *)&memory[1])

static void teardown(void)
{
	shard_context_set(NULL);
}

TestSuite(core_context, .fini = teardown);

static void push(struct shard_context *c)
{
	c->outer = shard_context_top();
	shard_context_set(c);
}

Test(core_context, nothing_runs)
{
	struct shard_context scope = {0};
	cr_assert_null(shard_in_handler());
	cr_assert_null(shard_in_fiber());
	cr_assert_null(shard_request());
	cr_assert_not(shard_serving());
	push(&scope); /* a scope of an application thread */
	cr_assert_null(shard_in_handler());
	cr_assert_null(shard_in_fiber());
	cr_assert_null(shard_request());
	cr_assert_not(shard_serving());
}

Test(core_context, an_inline_handler_is_found_through_scopes)
{
	struct shard_context holder = {.shard = SHARD_A, .handler = "t::add"}, scope = {0};
	push(&holder);
	push(&scope);
	cr_assert_str_eq(shard_in_handler(), "t::add");
	cr_assert_null(shard_in_fiber());
	cr_assert_null(shard_request());
	cr_assert(shard_serving());
}

Test(core_context, a_fiber_hides_the_handler_outside_of_it)
{
	struct fiber fiber = {.shard = SHARD_A};
	struct shard_context holder = {.shard = SHARD_A, .handler = "outside"}, in = {.fiber = &fiber}, scope = {0};
	push(&holder);
	push(&in);
	push(&scope);
	cr_assert_null(shard_in_handler(), "it may wait");
	cr_assert_eq(shard_in_fiber(), &fiber);
	cr_assert_eq(shard_request(), &fiber.req);
	cr_assert(shard_serving());
}

/* The fiber runs a callback. Expect that callback to forbid a wait, and the fiber's request to be no longer there. */
Test(core_context, a_handler_inside_a_fiber_hides_the_fiber)
{
	struct fiber fiber = {.shard = SHARD_A};
	struct shard_context in = {.fiber = &fiber}, callback = {.shard = SHARD_B, .handler = "a completion callback"};
	push(&in);
	push(&callback);
	cr_assert_str_eq(shard_in_handler(), "a completion callback");
	cr_assert_null(shard_in_fiber());
	cr_assert_null(shard_request());
	/* The same in one context. */
	shard_context_set(&in);
	in.handler = "a completion callback";
	cr_assert_str_eq(shard_in_handler(), "a completion callback");
	cr_assert_null(shard_in_fiber());
	cr_assert_null(shard_request());
}

Test(core_context, the_request_of_a_blocking_handler)
{
	struct far_req req = {0};
	struct shard_context blocking = {.req = &req}, scope = {0};
	push(&blocking);
	push(&scope);
	cr_assert_eq(shard_request(), &req);
	cr_assert_null(shard_in_handler());
	cr_assert_null(shard_in_fiber());
	cr_assert(shard_serving());
}

Test(core_context, every_shard_of_the_chain_is_held)
{
	struct shard_context outer = {.shard = SHARD_A}, scope = {0};
	cr_assert_not(shard_held(SHARD_A));
	push(&outer);
	push(&scope);
	cr_assert(shard_held(SHARD_A));
	cr_assert_not(shard_held(SHARD_B));
}

static void *another(void *mark)
{
	*(uintptr_t *)mark = shard_thread_mark();
	return shard_context_top();
}

Test(core_context, each_thread_has_a_chain_and_a_mark_of_its_own)
{
	struct shard_context holder = {.shard = SHARD_A};
	uintptr_t mark = 0;
	void *top = &mark;
	pthread_t t;
	push(&holder);
	cr_assert_eq(pthread_create(&t, NULL, another, &mark), 0);
	cr_assert_eq(pthread_join(t, &top), 0);
	cr_assert_null(top);
	cr_assert_neq(mark, 0u);
	cr_assert_neq(mark, shard_thread_mark());
	cr_assert_eq(shard_thread_mark(), shard_thread_mark());
}
