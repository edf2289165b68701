/* SPDX-License-Identifier: BSD-3-Clause */
/** Typed calls: arguments, results, deadlines, buffers. The test's thread, and fibers of agents that it steps. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static const struct far_to w1 = {1, -1};

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::echo(Any a) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
		{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 3};
	agents_begin(2, &opts);
}

TestSuite(api_rpc, .init = setup, .fini = agents_end);

static void sync_calls(void)
{
	struct far_val out;
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(i), NULL, &out, &err), FAR_OK, "%s",
			     err.text);
		cr_assert_eq(out.u.i, 2 * i);
	}
	cr_assert_eq(far_rpc_sync_to(agents[0], w1, "t::twice", FAR_ARGS(FAR_KW("a", 7)), NULL, &out, &err), FAR_OK);
	cr_assert_eq(out.u.i, 14);
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(3), NULL, NULL, &err), FAR_OK,
		     "no result wanted");
	cr_assert_eq(far_rpc_sync(agents[0], "w0", "t::twice", FAR_ARGS(5), NULL, &out, &err), FAR_OK, "to itself");
	cr_assert_eq(out.u.i, 10);
}

Test(api_rpc, calls_that_are_waited_for)
{
	agents_run(0, sync_calls);
	cr_assert_eq(far_rpc_sync(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_WOULD_DEADLOCK);
}

/* Expect each refused here, named, and nothing sent. */
Test(api_rpc, what_cannot_be_sent)
{
	struct far_future *f = NULL;
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	cr_assert_eq(far_rpc_async(agents[0], "w9", "t::twice", FAR_ARGS(1), NULL, &f, &err), FAR_UNKNOWN_WORKER);
	cr_assert(strstr(err.text, "w9"), "%s", err.text);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::none", FAR_ARGS(1), NULL, &f, &err), FAR_NO_FUNCTION);
	cr_assert(strstr(err.text, "t::none"), "%s", err.text);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS("text"), NULL, &f, &err), FAR_BAD_ARGS);
	cr_assert(strstr(err.text, "t::twice"), "%s", err.text);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", NULL, 0, NULL, &f, &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(1, 2), NULL, &f, &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(FAR_KW("b", 7)), NULL, &f, &err),
		     FAR_BAD_ARGS);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(1), NULL, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "`out`, for the future, must not be NULL"), "%s", err.text);
	cr_assert_eq(far_rpc_async_to(agents[0], (struct far_to){1, 3}, "t::twice", FAR_ARGS(1), NULL, &f, &err),
		     FAR_INVALID);
	cr_assert_null(f);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
}

/* Expect the deadline of a call in its error. */
Test(api_rpc, deadlines)
{
	struct far_future *f;
	const struct far_call_opts opts = {.timeout_ns = 3 * FAR_MS};
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::never", NULL, 0, &opts, &f, &err), FAR_OK);
	agents_pass(2 * FAR_MS);
	for (unsigned i = 0; i < 100; i++)
		agents_turn();
	cr_assert_not(far_future_done(f));
	agents_pass(FAR_MS);
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), FAR_TIMEOUT);
	cr_assert(strstr(err.text, "time-out of 3 ms"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_MAYBE);
	far_future_free(f);
}

static uint8_t large[FAR_MSG_EAGER_MAX + 1000], back[sizeof large];

static void large_calls(void)
{
	const struct far_call_opts opts = {.recv_buf = {back, sizeof back}};
	struct far_val out, v = far_bytes(large, sizeof large);
	cr_assert_eq(far_rpc_sync_to(agents[0], w1, "t::echo", &v, 1, &opts, &out, &err), FAR_OK, "%s", err.text);
	cr_assert(out.u.s.data == back && out.u.s.len == sizeof large && !out.own);
	cr_assert_eq(memcmp(back, large, sizeof large), 0);
	far_val_fini(&out);
}

/* Arguments and a result beyond an eager message, into a buffer of the caller. */
Test(api_rpc, rendezvous_messages)
{
	for (size_t i = 0; i < sizeof large; i += 101)
		large[i] = (uint8_t)(i >> 8);
	agents_run(0, large_calls);
	struct far_future *f;
	struct far_val out, v = far_bytes(large, sizeof large);
	cr_assert_eq(far_rpc_async_to(agents[0], w1, "t::echo", &v, 1, NULL, &f, &err), FAR_OK, "%s", err.text);
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert(out.u.s.len == sizeof large && memcmp(out.u.s.data, large, sizeof large) == 0);
	far_val_fini(&out);
	far_future_free(f);
}
