/* SPDX-License-Identifier: BSD-3-Clause */
/** What interceptors see of calls at the caller: each call once out and once in, and fields both ways. The test's
 * thread, which steps two agents. */
#include "agents_fixture.h"
#include "handlers.h"

#include <farcall/intercept.h>
#include <string.h>

enum { TYPE = 300 };

static unsigned ids[2], outs, ins, order_n;
static char order[16];
static bool refuses;
static enum far_status ended;
static enum far_call_mode mode;
static char function[64];
static size_t args_n;

static enum far_status call_out(const struct far_call_info *call, struct far_tlv_out *out, void **cookie,
				struct far_err *e, void *user)
{
	outs++;
	order[order_n++ % 16] = user ? 'b' : 'a';
	mode = call->mode;
	args_n = call->args_n;
	snprintf(function, sizeof function, "%s", call->function ? call->function : "");
	cr_assert(call->agent == agents[0] && call->from.worker == 0 && call->to.worker == 1 && !*cookie);
	*cookie = user ? &ids[1] : &ids[0];
	if (user && refuses) {
		snprintf(e->text, sizeof e->text, "not today");
		return FAR_DENIED;
	}
	return user ? FAR_OK : far_tlv_put(out, TYPE, "field", 5);
}

static void reply_in(const struct far_call_info *call, const struct far_tlv_in *in, const struct far_err *e,
		     void *cookie, void *user)
{
	ins++;
	order[order_n++ % 16] = user ? 'B' : 'A';
	cr_assert_eq(cookie, user ? &ids[1] : &ids[0]);
	ended = e ? e->status : FAR_OK;
}

static const struct far_interceptor
	first = {.name = "first", .tlv_first = TYPE, .tlv_last = TYPE, .call_out = call_out, .reply_in = reply_in},
	second = {.name = "second", .user = &ids[1], .call_out = call_out, .reply_in = reply_in};

static void setup(void)
{
	static const struct far_function functions[] = {
		{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
		{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL}};
	const struct far_opts opts = {.functions = functions, .functions_n = 2};
	agents_begin(2, &opts);
	struct far_interceptor a = first, b = second;
	a.agent = b.agent = agents[0];
	cr_assert_eq(far_interceptor_add(&a, &ids[0], &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_interceptor_add(&b, &ids[1], &err), FAR_OK, "%s", err.text);
	outs = ins = order_n = 0;
}

TestSuite(intercept_caller, .init = setup, .fini = agents_end);

static void expect_order(const char *want)
{
	cr_assert(order_n == strlen(want) && memcmp(order, want, order_n) == 0, "%.*s", (int)order_n, order);
	order_n = 0;
}

/* Expect them called in the order of their numbers, on the way back too, with what each has kept. */
Test(intercept_caller, each_call_once_out_and_once_in)
{
	struct far_future *f;
	struct far_val out;
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &f, &err), FAR_OK, "%s", err.text);
	expect_order("ab");
	cr_assert(mode == FAR_CALL_ASYNC && args_n == 1);
	cr_assert_str_eq(function, "t::twice");
	agents_until(f);
	expect_order("AB");
	cr_assert_eq(ended, FAR_OK);
	cr_assert_eq(far_future_value(f, &out, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(out.u.i, 8);
	far_future_free(f);
}

/* The second one refuses. Expect the call to fail with its error, unsent, and the first one to see that end. */
Test(intercept_caller, a_refusal_sends_nothing)
{
	struct far_future *f = NULL;
	uint64_t sent = atomic_load(&agents[0]->shards[0]->counters.calls_sent);
	refuses = true;
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &f, &err), FAR_DENIED);
	cr_assert(strstr(err.text, "not today"), "%s", err.text);
	cr_assert_eq(err.executed, FAR_EXECUTED_NO);
	cr_assert_null(f);
	expect_order("abA");
	cr_assert_eq(ended, FAR_DENIED);
	cr_assert_eq(atomic_load(&agents[0]->shards[0]->counters.calls_sent), sent);
	refuses = false;
}

/* A call that ends by its deadline, and one that is cancelled. */
Test(intercept_caller, calls_that_end_early)
{
	struct far_future *f;
	const struct far_call_opts opts = {.timeout_ns = FAR_MS};
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::never", NULL, 0, &opts, &f, &err), FAR_OK, "%s", err.text);
	agents_pass(2 * FAR_MS);
	agents_until(f);
	expect_order("abAB");
	cr_assert_eq(ended, FAR_TIMEOUT);
	far_future_free(f);
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::never", NULL, 0, NULL, &f, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_future_cancel(f, &err), FAR_OK);
	agents_until(f);
	expect_order("abAB");
	cr_assert_eq(ended, FAR_CANCELLED);
	far_future_free(f);
}

static void on_reply(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	*(enum far_status *)user = status;
}

/* Messages, and one-way ones, which end when they were handed over. */
Test(intercept_caller, messages)
{
	enum far_status status = FAR_PENDING;
	cr_assert_eq(far_msg_oneway(agents[0], (struct far_to){1, -1}, 5, "x", 1, NULL, &err), FAR_OK, "%s", err.text);
	expect_order("abAB");
	cr_assert_eq(mode, FAR_CALL_ONEWAY);
	cr_assert_eq(far_msg_send(agents[0], (struct far_to){1, -1}, 5, "x", 1, NULL, on_reply, &status, &err), FAR_OK);
	for (unsigned i = 0; i < 20000 && status == FAR_PENDING; i++)
		agents_turn();
	expect_order("abAB");
	cr_assert(mode == FAR_CALL_MESSAGE && args_n == 0 && !function[0]);
	cr_assert(status == FAR_NO_FUNCTION && ended == FAR_NO_FUNCTION);
}

/* Removed while a call is under way. Expect that call seen to its end, and the next one not. */
Test(intercept_caller, removed_meanwhile)
{
	struct far_future *f;
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &f, &err), FAR_OK);
	cr_assert_eq(far_interceptor_remove(ids[1], &err), FAR_OK);
	agents_until(f);
	far_future_free(f);
	expect_order("abAB");
	cr_assert_eq(far_rpc_async(agents[0], "w1", "t::twice", FAR_ARGS(4), NULL, &f, &err), FAR_OK);
	agents_until(f);
	far_future_free(f);
	expect_order("aA");
}
