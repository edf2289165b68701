/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Calls on the thread that holds a shard, outside of fibers, as the fast path takes them: each guard that it leaves at
 * (api/fast.h, core/fast.h, api/site.h). The test's thread, in tasks of agents that it steps.
 */
#include "agents_fixture.h"
#include "core/session.h"
#include "core/shard.h"
#include "handlers.h"
#include "on_shard.h"

#include <farcall/intercept.h>
#include <string.h>

enum { ECHO = 1, NEVER = 2, WAIT = 3, N = 3 };

static const struct far_to w1 = {1, -1};
static unsigned done_n, never_n;
static enum far_status status;
static struct far_err why;
static uint8_t reply[64];
static size_t reply_len;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void never(struct far_req *req, const void *data, size_t len, void *user)
{
	static struct far_deferred *d;
	never_n++;
	far_defer(req, &d);
}

/* Waits on the thread of the shard, which it must not. */
static void wait_in_handler(struct far_req *req, const void *data, size_t len, void *user)
{
	struct far_agent *a = far_req_agent(req);
	const struct far_to w0 = {0, -1};
	struct far_worker w;
	struct far_callee *c;
	struct far_val v = far_int(1);
	char text[8];
	size_t n;
	unsigned refused = far_msg_call(a, w0, ECHO, "x", 1, NULL, text, sizeof text, &n, NULL) == FAR_WOULD_DEADLOCK;
	refused += far_rpc_sync_to(a, w0, "t::twice", &v, 1, NULL, NULL, NULL) == FAR_WOULD_DEADLOCK;
	cr_assert_eq(far_worker_find(a, "w0", &w, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_callee_find(&w, "t::twice", &c, &err), FAR_OK, "%s", err.text);
	refused += far_callee_rpc_sync(c, &v, 1, NULL, NULL, NULL) == FAR_WOULD_DEADLOCK;
	far_callee_free(c);
	far_reply(req, &refused, sizeof refused);
}

static const struct far_function functions[] = {
	{"t::twice(int a) -> int", FAR_KIND_INLINE, handler_twice, NULL},
	{"t::sum(Tensor a) -> Tensor", FAR_KIND_INLINE, add_all, NULL},
	{"t::never() -> int", FAR_KIND_FIBER, handler_never, NULL},
};

static void setup(void)
{
	static const struct far_msg_handler handlers[] = {{.id = ECHO, .kind = FAR_KIND_INLINE, .fn = echo},
							  {.id = NEVER, .kind = FAR_KIND_INLINE, .fn = never},
							  {.id = WAIT, .kind = FAR_KIND_INLINE, .fn = wait_in_handler}};
	const struct far_opts opts = {.messages = handlers, .messages_n = 3, .functions = functions, .functions_n = 3};
	agents_begin(N, &opts);
	warm_up(N);
	done_n = never_n = 0;
}

TestSuite(api_fast_callers, .init = setup, .fini = agents_end);

static void on_done(enum far_status s, const void *data, size_t len, const struct far_err *e, void *user)
{
	done_n++;
	status = s;
	reply_len = len;
	if (e)
		why = *e;
	else if (len)
		memcpy(reply, data, len < sizeof reply ? len : sizeof reply);
}

static void until_done(unsigned n)
{
	for (unsigned left = 20000; left && done_n < n; left--)
		agents_turn();
	cr_assert_eq(done_n, n);
}

static struct session *session_to(unsigned worker)
{
	struct shard *s = agents[0]->shards[0];
	return &s->sessions[session_index(s, worker, 0)];
}

static uint64_t sent_by(unsigned agent)
{
	return atomic_load(&agents[agent]->shards[0]->counters.calls_sent);
}

static enum far_status send_to(struct far_to to, uint16_t id, const void *data, size_t len,
			       const struct far_call_opts *opts)
{
	return far_msg_send(agents[0], to, id, data, len, opts, on_done, NULL, &err);
}

static enum far_status send(uint16_t id, const void *data, size_t len)
{
	return send_to(w1, id, data, len, NULL);
}

/* ---- messages ---- */

static uint8_t long_text[48];

static void send_each(void)
{
	cr_assert_not_null(session_to(1)->lane, "without a lane this test shows nothing");
	cr_assert_eq(send(ECHO, "line", 5), FAR_OK);
	cr_assert_eq(send(ECHO, long_text, sizeof long_text), FAR_OK, "longer than a line");
}

Test(api_fast_callers, bodies_of_a_line_and_longer)
{
	for (size_t i = 0; i < sizeof long_text; i++)
		long_text[i] = (uint8_t)(i + 1);
	on_shard(0, send_each);
	until_done(2);
	cr_assert(status == FAR_OK && reply_len == sizeof long_text && memcmp(reply, long_text, sizeof long_text) == 0);
}

/* Expect each refused as by the general code, and nothing sent. */
static void send_wrong(void)
{
	uint64_t sent = sent_by(0);
	cr_assert_eq(far_msg_send(agents[0], w1, ECHO, "x", 1, NULL, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(send(FAR_MSG_HANDLERS_MAX, "x", 1), FAR_INVALID);
	cr_assert_eq(send_to((struct far_to){N, -1}, ECHO, "x", 1, NULL), FAR_UNKNOWN_WORKER);
	cr_assert_eq(send_to((struct far_to){-1, -1}, ECHO, "x", 1, NULL), FAR_UNKNOWN_WORKER);
	cr_assert_eq(send_to((struct far_to){1, 1}, ECHO, "x", 1, NULL), FAR_INVALID);
	cr_assert_eq(send_to((struct far_to){1, -2}, ECHO, "x", 1, NULL), FAR_INVALID);
	cr_assert_eq(sent_by(0), sent);
}

Test(api_fast_callers, wrong_destinations_and_ids)
{
	on_shard(0, send_wrong);
}

static const struct far_call_opts soon = {.timeout_ns = 3 * FAR_MS};

static void send_never_soon(void)
{
	cr_assert_eq(send_to(w1, NEVER, "x", 1, &soon), FAR_OK);
}

static void send_never(void)
{
	cr_assert_eq(send(NEVER, "x", 1), FAR_OK);
}

static void turns(unsigned n)
{
	while (n--)
		agents_turn();
}

/* Expect the deadline of a call's options, and a short default one, kept to: neither earlier nor later. */
static void expect_timeout(void (*fn)(void))
{
	on_shard(0, fn);
	turns(100);
	cr_assert(done_n == 0 && never_n == 1);
	agents_pass(2 * FAR_MS);
	turns(10);
	cr_assert_eq(done_n, 0u);
	agents_pass(FAR_MS);
	turns(100);
	cr_assert(done_n == 1 && status == FAR_TIMEOUT && why.executed == FAR_EXECUTED_MAYBE);
}

Test(api_fast_callers, options_have_a_deadline)
{
	expect_timeout(send_never_soon);
}

Test(api_fast_callers, a_short_default_deadline)
{
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], 3 * FAR_MS), FAR_OK);
	expect_timeout(send_never);
}

/* The default deadline is one that the fast path takes. Expect it kept to, however many calls were young before. */
Test(api_fast_callers, a_default_deadline)
{
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], 100 * FAR_MS), FAR_OK);
	on_shard(0, send_never);
	on_shard(0, send_each);
	until_done(2);
	agents_pass(98 * FAR_MS);
	turns(500);
	cr_assert_eq(done_n, 2u);
	agents_pass(FAR_MS + FAR_MS / 2);
	turns(500);
	cr_assert(done_n == 3 && status == FAR_TIMEOUT);
}

/* Expect an interceptor to see each call. */
Test(api_fast_callers, interceptors_see_the_calls)
{
	unsigned id;
	const struct far_interceptor interceptor = {.name = "t", .call_out = see};
	cr_assert_eq(far_interceptor_add(&interceptor, &id, &err), FAR_OK, "%s", err.text);
	/* Agents of the fixture are in no list of the process: this notes the interceptor. */
	cr_assert_eq(far_set_rpc_timeout_ns(agents[0], far_rpc_timeout_ns(agents[0])), FAR_OK);
	seen_n = 0;
	on_shard(0, send_each);
	until_done(2);
	cr_assert_eq(seen_n, 2u, "%u", seen_n);
	cr_assert_eq(far_interceptor_remove(id, &err), FAR_OK);
}

/* A thread that holds the shard of an agent calls through another one. Expect the call to be that agent's, sent by its
 * own thread later. */
static void send_by_another(void)
{
	uint64_t sent[2] = {sent_by(0), sent_by(1)};
	cr_assert_eq(send_to((struct far_to){2, -1}, ECHO, "other", 6, NULL), FAR_OK);
	cr_assert(sent_by(0) == sent[0] && sent_by(1) == sent[1]);
}

Test(api_fast_callers, through_an_agent_whose_shard_is_not_held)
{
	on_shard(1, send_by_another);
	until_done(1);
	cr_assert(status == FAR_OK && strcmp((const char *)reply, "other") == 0);
}

/* ---- room ---- */

static unsigned begun;

static void send_until_full(void)
{
	const struct session *se = session_to(1);
	uint16_t max = se->calls_max; /* becomes 0 while calls wait */
	enum far_status s = FAR_OK;
	for (begun = 0; s == FAR_OK && begun < 2 * FAR_SESSION_CALLS_MAX; begun += s == FAR_OK) {
		s = send(ECHO, &begun, sizeof begun);
		cr_assert(se->calls_active <= max);
		cr_assert(se->lane->room <= LANE_LINES);
	}
}

/* More calls than the session has credits or the ring has lines. Expect none beyond, and a reply to each one begun. */
Test(api_fast_callers, no_more_calls_than_there_is_room_for)
{
	on_shard(0, send_until_full);
	cr_assert(begun > 0);
	until_done(begun);
	cr_assert_eq(status, FAR_OK);
}

/* The last credit is in use, and the ring has lines. Expect the call to wait, or to be refused. */
static void send_beyond_credits(void)
{
	struct session *se = session_to(1);
	cr_assert_eq(send(ECHO, "last", 5), FAR_OK);
	se->calls_max = se->calls_active;
	uint16_t active = se->calls_active;
	begun = 1 + (send(ECHO, "next", 5) == FAR_OK);
	cr_assert_eq(se->calls_active, active);
}

Test(api_fast_callers, no_credit)
{
	on_shard(0, send_beyond_credits);
	until_done(begun);
}

/* The shard has no free slot. Expect the general code to take another one, or to refuse the call. */
static void send_without_a_slot(void)
{
	struct shard *s = agents[0]->shards[0];
	struct call *freed = s->calls_free;
	s->calls_free = NULL;
	begun = send(ECHO, "slot", 5) == FAR_OK;
	struct call **end = &s->calls_free;
	while (*end)
		end = &(*end)->next;
	*end = freed;
}

Test(api_fast_callers, no_slot)
{
	on_shard(0, send_each);
	until_done(2);
	on_shard(0, send_without_a_slot);
	until_done(2 + begun);
}

/* ---- typed calls ---- */

static struct far_future *future[8];
static struct far_worker worker1;
static struct far_callee *callee;
static const float eight[8] = {1, 2, 3, 4, 5, 6, 7, 8};

static enum far_status call_sum(const struct far_val *v, size_t n, const struct far_call_opts *opts,
				struct far_future **out)
{
	return far_rpc_async_to(agents[0], w1, "t::sum", v, n, opts, out, &err);
}

static float take_sum(struct far_future *f)
{
	struct far_val v;
	agents_until(f);
	cr_assert_eq(far_future_value(f, &v, &err), FAR_OK, "%s", err.text);
	float got = *(const float *)far_val_tensor(&v)->data;
	far_val_fini(&v);
	far_future_free(f);
	return got;
}

/* Twice with each of several forms: other counts, strides, none of a form, and a keyword. */
static void call_forms(void)
{
	struct far_val v = floats(eight, 2), kw = FAR_KW("a", v);
	for (unsigned i = 0; i < 2; i++) {
		v = floats(eight, 2);
		cr_assert_eq(call_sum(&v, 1, NULL, &future[4 * i]), FAR_OK, "%s", err.text);
		v.u.t.shape[0] = 3;
		cr_assert_eq(call_sum(&v, 1, NULL, &future[4 * i + 1]), FAR_OK, "%s", err.text);
		const int64_t strides[] = {2};
		v.u.t.strides = strides;
		cr_assert_eq(call_sum(&v, 1, NULL, &future[4 * i + 2]), FAR_OK, "%s", err.text);
		cr_assert_eq(call_sum(&kw, 1, NULL, &future[4 * i + 3]), FAR_OK, "%s", err.text);
	}
}

/* The first call teaches the function's number at the callee. */
static void learn_sum(void)
{
	struct far_val v = floats(eight, 1);
	cr_assert_eq(call_sum(&v, 1, NULL, &future[0]), FAR_OK, "%s", err.text);
}

Test(api_fast_callers, arguments_of_several_forms)
{
	for (unsigned round = 0; round < 2; round++) { /* in the first one the number is not known */
		on_shard(0, call_forms);
		for (unsigned i = 0; i < 2; i++) {
			cr_assert_eq(take_sum(future[4 * i]), 3);
			cr_assert_eq(take_sum(future[4 * i + 1]), 6);
			cr_assert_eq(take_sum(future[4 * i + 2]), 9);
			cr_assert_eq(take_sum(future[4 * i + 3]), 3);
		}
	}
}

/* Expect each refused as by the general code, and nothing sent. */
static void call_wrong(void)
{
	uint64_t sent = sent_by(0);
	struct far_val v = floats(eight, 2), two[2] = {v, v}, no_data = v;
	no_data.u.t.data = NULL;
	cr_assert_eq(call_sum(&v, 1, NULL, NULL), FAR_INVALID);
	cr_assert_eq(call_sum(two, 2, NULL, &future[0]), FAR_BAD_ARGS);
	cr_assert_eq(call_sum(&v, 0, NULL, &future[0]), FAR_BAD_ARGS);
	cr_assert_neq(call_sum(&no_data, 1, NULL, &future[0]), FAR_OK);
	cr_assert_eq(far_rpc_async_to(agents[0], w1, "t::twice", &v, 1, NULL, &future[0], &err), FAR_BAD_ARGS);
	cr_assert_eq(far_rpc_async_to(agents[0], w1, NULL, &v, 1, NULL, &future[0], &err), FAR_NO_FUNCTION);
	cr_assert_eq(far_callee_rpc_async(NULL, &v, 1, NULL, &future[0], &err), FAR_INVALID);
	cr_assert_eq(far_callee_rpc_async(callee, &v, 1, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(sent_by(0), sent);
}

static void find_callee(void)
{
	cr_assert_eq(far_worker_find(agents[0], "w1", &worker1, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_callee_find(&worker1, "t::sum", &callee, &err), FAR_OK, "%s", err.text);
}

Test(api_fast_callers, wrong_typed_calls)
{
	find_callee();
	on_shard(0, learn_sum);
	cr_assert_eq(take_sum(future[0]), 1);
	on_shard(0, call_wrong);
	far_callee_free(callee);
}

static void call_never_soon(void)
{
	cr_assert_eq(far_rpc_async_to(agents[0], w1, "t::never", NULL, 0, &soon, &future[0], &err), FAR_OK);
}

static void call_callee_soon(void)
{
	cr_assert_eq(far_callee_rpc_async(callee, NULL, 0, &soon, &future[0], &err), FAR_OK);
}

static void expect_future_timeout(void)
{
	turns(100);
	cr_assert_not(far_future_done(future[0]));
	agents_pass(4 * FAR_MS);
	agents_until(future[0]);
	cr_assert_eq(far_future_value(future[0], NULL, &err), FAR_TIMEOUT);
	cr_assert(strstr(err.text, "time-out of 3 ms"), "%s", err.text);
	far_future_free(future[0]);
}

Test(api_fast_callers, typed_calls_with_options)
{
	cr_assert_eq(far_worker_find(agents[0], "w1", &worker1, &err), FAR_OK, "%s", err.text);
	cr_assert_eq(far_callee_find(&worker1, "t::never", &callee, &err), FAR_OK, "%s", err.text);
	on_shard(0, call_never_soon);
	expect_future_timeout();
	on_shard(0, call_callee_soon);
	expect_future_timeout();
	far_callee_free(callee);
}

/* ---- handles ---- */

static void call_callee_twice(void)
{
	struct far_val v = floats(eight, 3);
	for (unsigned i = 0; i < 2; i++)
		cr_assert_eq(far_callee_rpc_async(callee, &v, 1, NULL, &future[i], &err), FAR_OK, "%s", err.text);
}

static void call_callee_lost(void)
{
	uint64_t sent = sent_by(0);
	struct far_val v = floats(eight, 3);
	cr_assert_eq(far_callee_rpc_async(callee, &v, 1, NULL, &future[0], &err), FAR_PEER_LOST);
	cr_assert_eq(sent_by(0), sent);
}

/* The worker is replaced after calls by the handle. Expect no further one. */
Test(api_fast_callers, a_handle_of_another_incarnation)
{
	find_callee();
	for (unsigned round = 0; round < 2; round++) {
		on_shard(0, call_callee_twice);
		cr_assert_eq(take_sum(future[0]), 6);
		cr_assert_eq(take_sum(future[1]), 6);
	}
	struct ctl_member *m = (struct ctl_member *)(uintptr_t)&agents[0]->members[1];
	uint64_t was = atomic_fetch_add(&m->incarnation, 1);
	on_shard(0, call_callee_lost);
	atomic_store(&m->incarnation, was);
	far_callee_free(callee);
}

static enum far_status sum_of_floats(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_DENIED, 1, "the overload");
}

static void call_overloads(void)
{
	struct far_val v = floats(eight, 3);
	cr_assert_eq(far_callee_rpc_async(callee, &v, 1, NULL, &future[0], &err), FAR_OK, "%s", err.text);
	cr_assert_eq(call_sum(&v, 1, NULL, &future[1]), FAR_OK, "%s", err.text);
}

/* An overload that fits tensors of floats better is registered after calls by the name and by a handle. Expect both to
 * select as the general code does. */
Test(api_fast_callers, later_overloads)
{
	const struct far_function f = {"t::sum(Tensor<f32> a) -> Tensor", FAR_KIND_INLINE, sum_of_floats, NULL};
	find_callee();
	for (unsigned round = 0; round < 2; round++) {
		on_shard(0, call_overloads);
		cr_assert_eq(take_sum(future[0]), 6);
		cr_assert_eq(take_sum(future[1]), 6);
	}
	for (unsigned i = 0; i < N; i++)
		cr_assert_eq(far_register_function(agents[i], &f, &err), FAR_OK, "%s", err.text);
	on_shard(0, call_overloads);
	for (unsigned i = 0; i < 2; i++) {
		agents_until(future[i]);
		cr_assert_eq(far_future_value(future[i], NULL, &err), FAR_DENIED, "call %u", i);
		far_future_free(future[i]);
	}
	far_callee_free(callee);
}

/* ---- waits ---- */

static void send_wait(void)
{
	cr_assert_eq(send(WAIT, "x", 1), FAR_OK);
}

/* Expect each way to wait refused in a handler that runs on the thread of the shard. */
Test(api_fast_callers, handlers_on_the_shard_cannot_wait)
{
	unsigned refused;
	on_shard(0, send_wait);
	until_done(1);
	cr_assert(status == FAR_OK && reply_len == sizeof refused);
	memcpy(&refused, reply, sizeof refused);
	cr_assert_eq(refused, 3u);
}
