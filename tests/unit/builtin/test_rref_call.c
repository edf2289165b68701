/* SPDX-License-Identifier: BSD-3-Clause */
/** far::rref_call at the owner of a value: functions of each kind, a value that comes later or never, deadlines. The
 * test's thread, which steps the agents. */
#include "agents_fixture.h"
#include "handlers.h"

#include <string.h>

static struct far_deferred *making, *answering;

static enum far_status later(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_defer(req, user);
}

static uint64_t left_ns;

static enum far_status left(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	left_ns = far_req_time_left_ns(req);
	return far_return(req, &args[0]);
}

static struct far_rref *r; /* made by t::made at w1, which `making` answers */

static void turns(void)
{
	for (unsigned i = 0; i < 300; i++)
		agents_turn();
}

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::made() -> int", FAR_KIND_INLINE, later, &making},
		{"t::late(int a) -> int", FAR_KIND_INLINE, later, &answering},
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::on_fiber(int a) -> int", FAR_KIND_FIBER, handler_twice, NULL},
		{"t::never(int a) -> none", FAR_KIND_FIBER, handler_never, NULL},
		{"t::left(int a) -> int", FAR_KIND_FIBER, left, NULL}};
	agents_begin(2, &(struct far_opts){.functions = functions, .functions_n = 6});
	cr_assert_eq(far_remote(agents[0], "w1", "t::made", NULL, 0, NULL, &r, &err), FAR_OK, "%s", err.text);
	turns();
	cr_assert_not_null(making);
}

static void teardown(void)
{
	far_rref_free(r);
	agents_end();
}

TestSuite(builtin_rref_call, .init = setup, .fini = teardown);

static struct far_future *start(const char *function, uint64_t timeout_ns)
{
	const struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_future *f;
	cr_assert_eq(far_rref_call_async(r, function, NULL, 0, &opts, &f, &err), FAR_OK, "%s", err.text);
	turns();
	return f;
}

static void make(int64_t n)
{
	struct far_val v = far_int(n);
	cr_assert_eq(far_deferred_return(making, &v), FAR_OK);
	turns();
}

static void expect(struct far_future *f, int64_t n)
{
	struct far_val out;
	agents_until(f);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, n);
	far_future_free(f);
}

static void expect_error(struct far_future *f, enum far_status status, enum far_executed executed, const char *text)
{
	agents_until(f);
	cr_assert_eq(far_future_value(f, NULL, &err), status, "%s", err.text);
	cr_assert(strstr(err.text, text), "%s", err.text);
	cr_assert_eq(err.executed, executed, "%s", err.text);
	far_future_free(f);
}

/* Calls that come before the value wait for it. */
Test(builtin_rref_call, before_the_value)
{
	struct far_future *inline_one = start("t::twice", 0), *fiber = start("t::on_fiber", 0),
			  *none = start("t::none", 0);
	cr_assert(!far_future_done(inline_one) && !far_future_done(fiber) && !far_future_done(none));
	make(21);
	expect(inline_one, 42);
	expect(fiber, 42);
	expect_error(none, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "has no such function");
}

/* The value failed. Expect its error for each call that waits, and for those that come later; no function ran. */
Test(builtin_rref_call, a_value_that_failed)
{
	struct far_future *waits = start("t::twice", 0);
	cr_assert_eq(far_deferred_fail(making, FAR_REMOTE, 5, "it broke"), FAR_OK);
	expect_error(waits, FAR_REMOTE, FAR_EXECUTED_NO, "it broke");
	expect_error(start("t::on_fiber", 0), FAR_REMOTE, FAR_EXECUTED_NO, "it broke");
}

/* A function that answers later, inline and on a fiber that never does. */
Test(builtin_rref_call, answers_that_come_later)
{
	struct far_val v = far_int(5);
	make(21);
	struct far_future *f = start("t::late", 0);
	cr_assert_not(far_future_done(f));
	cr_assert_eq(far_deferred_return(answering, &v), FAR_OK);
	expect(f, 5);
	expect_error(start("t::never", FAR_MS), FAR_TIMEOUT, FAR_EXECUTED_MAYBE, "time-out of 1 ms");
}

/* The function has what is left of the call's time, after the wait for the value. */
Test(builtin_rref_call, deadlines)
{
	struct far_future *f = start("t::left", 10 * FAR_MS);
	agents_pass(4 * FAR_MS);
	make(3);
	expect(f, 3);
	cr_assert(left_ns > 3 * FAR_MS && left_ns <= 6 * FAR_MS, "%u us", (unsigned)(left_ns / 1000));
	expect(start("t::left", FAR_FOREVER), 3);
	cr_assert_eq(left_ns, FAR_FOREVER);
}

/* Requests as far_rref_call() does not make them: a value of another worker, and too many arguments. */
Test(builtin_rref_call, requests_that_are_wrong)
{
	struct far_val many[FAR_ARGS_MAX], other = far_int(1);
	struct far_rref *own;
	struct far_future *f;
	make(21);
	cr_assert_eq(far_rref_of(agents[0], &other, &own, &err), FAR_OK);
	turns();
	for (size_t i = 0; i < FAR_ARGS_MAX; i++)
		many[i] = far_int(1);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "far::rref_call", FAR_ARGS(own, "t::twice", far_list(NULL, 0)),
				   NULL, &f, &err),
		     FAR_OK, "%s", err.text);
	expect_error(f, FAR_INVALID, FAR_EXECUTED_NO,
		     "the value of the reference is not on this shard of worker \"w1\"");
	cr_assert_eq(far_rpc_async(agents[0], "w1", "far::rref_call",
				   FAR_ARGS(r, "t::twice", far_list(many, FAR_ARGS_MAX)), NULL, &f, &err),
		     FAR_OK, "%s", err.text);
	expect_error(f, FAR_BAD_ARGS, FAR_EXECUTED_NO, "17 arguments; 16 are the maximum, with the value");
	far_rref_free(own);
}
