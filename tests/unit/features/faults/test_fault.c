/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that fail or are late on purpose: "Set F, receive X. Expect Y.". The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/packet.h"
#include "core/session.h"
#include "features/faults/fault.h"
#include "rref_fixture.h"

static struct faults faults;
static struct fault settings[FAR_FAULT_COUNT];

static void setup(void)
{
	memset(&faults, 0, sizeof faults);
	shard_setup();
	shard->config.faults = &faults;
}

TestSuite(fault, .init = setup, .fini = shard_teardown);

static void set(enum far_fault_kind kind, unsigned fail_sends, uint64_t delay_ns, uint64_t messages)
{
	settings[kind] = (struct fault){
		.fail_sends = fail_sends, .delay_ns = delay_ns, .left = messages ? messages : UINT64_MAX};
	faults.of[kind] = &settings[kind];
	fault_apply(shard);
}

static void clear(enum far_fault_kind kind)
{
	faults.of[kind] = NULL;
	fault_apply(shard);
}

static void expect_sent(enum packet_type type)
{
	union packet_head h;
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.type, type);
}

/* ---- calls ---- */

/* Expect INJECTED, executed NO, and no packet; and all as ever when it is cleared. */
Test(fault, call_fails)
{
	struct result r = {0}, s = {0};
	set(FAR_FAULT_CALL, 1, 0, 0);
	cr_assert_eq(call(&r, FAR_FOREVER, "x", 1), 0);
	cr_assert_eq(r.n, 0u, "not inside of the call");
	cr_assert_eq(shard->counters.calls_waiting, 1u, "a shutdown waits for it");
	advance(200000);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_INJECTED);
	cr_assert_eq(r.executed, FAR_EXECUTED_NO);
	cr_assert_eq(shard->counters.calls_waiting, 0u);
	cr_assert_eq(faults.failed[FAR_FAULT_CALL], 1u);
	expect_nothing();
	clear(FAR_FAULT_CALL);
	answer(called(&s, FAR_FOREVER), PACKET_REPLY, 0, 0, "");
	cr_assert_eq(s.status, FAR_OK);
}

/* Expect it to leave later, with less time left. */
Test(fault, call_is_late)
{
	struct result r = {0};
	union packet_head h;
	set(FAR_FAULT_CALL, 0, 5 * FAR_MS, 0);
	cr_assert_eq(call(&r, 20 * FAR_MS, "x", 1), 0);
	advance(4 * FAR_MS);
	expect_nothing();
	advance(2 * FAR_MS);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.type, PACKET_REQUEST);
	cr_assert_leq(h.request.time_left, 15 * FAR_MS);
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(faults.delayed[FAR_FAULT_CALL], 1u);
}

/* More than there are call slots. Expect them refused, those of other kinds not, and room again when some have gone. */
Test(fault, late_without_end)
{
	static struct result r, refused, other; /* a call of it is pending at the end */
	uint32_t held = 0;
	set(FAR_FAULT_CALL, 0, 5 * FAR_MS, 0);
	while (call(&r, 1 * FAR_MS, "x", 1) == 0)
		cr_assert_leq(++held, shard->calls_n);
	cr_assert_eq(held, shard->calls_n);
	cr_assert_eq(shard->counters.calls_waiting, held);
	cr_assert_eq(call(&refused, FAR_FOREVER, "x", 1), -EAGAIN);
	cr_assert_eq(faults.delayed[FAR_FAULT_CALL], held, "it is not counted");
	advance(2 * FAR_MS);
	cr_assert_eq(r.n, held);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(call(&other, FAR_FOREVER, "x", 1), 0);
	advance(6 * FAR_MS);
	expect_sent(PACKET_REQUEST);
}

/* Its time-out is shorter. Expect TIMEOUT then, executed NO. */
Test(fault, late_beyond_its_time)
{
	struct result r = {0};
	set(FAR_FAULT_CALL, 0, 50 * FAR_MS, 0);
	cr_assert_eq(call(&r, 5 * FAR_MS, "x", 1), 0);
	advance(4 * FAR_MS);
	cr_assert_eq(r.n, 0u);
	advance(2 * FAR_MS);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_NO);
	expect_nothing();
}

/* Cancelled, or its peer lost, while it is held back. Expect that, executed NO. The other's goes on. */
Test(fault, late_and_ended)
{
	struct result r[3] = {{0}};
	set(FAR_FAULT_CALL, 0, 5 * FAR_MS, 0);
	r[1].id = (struct call_id){1, 1}; /* of a call before */
	for (int i = 0; i < 3; i++)
		cr_assert_eq(call(&r[i], FAR_FOREVER, "x", 1), 0);
	cr_assert(call_cancel(shard, &r[1].id));
	cr_assert_eq(r[1].status, FAR_CANCELLED);
	cr_assert_eq(r[1].executed, FAR_EXECUTED_NO);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	for (int i = 0; i < 3; i += 2) {
		cr_assert_eq(r[i].status, FAR_PEER_LOST);
		cr_assert_eq(r[i].executed, FAR_EXECUTED_NO);
	}
	advance(10 * FAR_MS);
	cr_assert_eq(r[0].n + r[1].n + r[2].n, 3u, "each once");
	expect_nothing();
}

/* The shard ends while one is held back. Expect SHUTDOWN. */
Test(fault, late_at_the_end)
{
	static struct result r;
	set(FAR_FAULT_CALL, 0, 5 * FAR_MS, 0);
	cr_assert_eq(call(&r, FAR_FOREVER, "x", 1), 0);
	session_close_all(shard);
	cr_assert_eq(r.status, FAR_SHUTDOWN);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
}

/* For two messages only. Expect the third to go. */
Test(fault, so_many_messages)
{
	struct result r[3] = {{0}};
	set(FAR_FAULT_CALL, 1, 0, 2);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(call(&r[i], FAR_FOREVER, "x", 1), 0);
	union packet_head h;
	cr_assert_not_null(fake_queue_sent(queue, &h));
	answer(h, PACKET_REPLY, 0, 0, "");
	advance(FAR_MS);
	cr_assert_eq(r[0].status, FAR_INJECTED);
	cr_assert_eq(r[1].status, FAR_INJECTED);
	cr_assert_eq(r[2].status, FAR_OK);
}

/* Of another kind. Expect calls to go, as many as ever, and control messages beyond them. */
Test(fault, credits_hold)
{
	static struct result r[FAR_SESSION_CALLS_MAX], more;
	static union packet_head calls[FAR_SESSION_CALLS_MAX];
	struct rref_wire w = wire(PEER, 7, 8);
	add_function("t::known(rref a) -> int");
	set(FAR_FAULT_FETCH, 1, 0, 0);
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		calls[i] = called(&r[i], FAR_FOREVER);
	cr_assert_eq(call(&more, FAR_FOREVER, "x", 1), 0); /* waits; control messages do not */
	call_with(1, &w, 1);
	expect_control(NIC_PEER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	expect_control(NIC_PEER, RREF_DELETE, w.fork, FAR_OK);
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		answer(calls[i], PACKET_REPLY, 0, 0, "");
	union packet_head h;
	cr_assert_not_null(fake_queue_sent(queue, &h));
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(more.status, FAR_OK);
	passes(20);
	expect_empty();
}

/* Towards a worker whose session is not up. Expect the same; what goes waits for the session as ever. */
Test(fault, without_a_session)
{
	static struct result r[2];
	struct call_start start = {.worker = OTHER + 1,
				   .fn = MSG_ECHO,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = &r[0],
				   .data = "x",
				   .len = 1};
	set(FAR_FAULT_CALL, 1, 0, 1);
	cr_assert_eq(shard_call(shard, &start), 0);
	start.user = &r[1];
	cr_assert_eq(shard_call(shard, &start), 0);
	advance(FAR_MS);
	cr_assert_eq(r[0].status, FAR_INJECTED);
	cr_assert_eq(r[1].n, 0u);
	cr_assert_eq(shard->sessions[OTHER + 1].waiting_n, 1);
}

/* ---- answers ---- */

/* Expect INJECTED, executed YES; the handler has run. */
Test(fault, answer_fails)
{
	set(FAR_FAULT_REPLY, 1, 0, 0);
	put_request(MSG_ECHO, 1, "abcd", 4);
	passes(2);
	expect_error(1, FAR_INJECTED, FAR_EXECUTED_YES, "made to fail");
	cr_assert_eq(ran, 1u);
	put_request(MSG_FAIL, 2, "abcd", 4); /* an error is an answer too */
	passes(2);
	expect_error(2, FAR_INJECTED, FAR_EXECUTED_YES, "made to fail");
	clear(FAR_FAULT_REPLY);
	put_request(MSG_ECHO, 3, "abcd", 4);
	passes(1);
	expect_reply(3, "abcd", 4);
}

/* Expect it later, deferred ones and long ones likewise, and none twice. */
Test(fault, answer_is_late)
{
	set(FAR_FAULT_REPLY, 0, 5 * FAR_MS, 0);
	kept_n = 0;
	put_request(MSG_ECHO, 1, "abcd", 4);
	put_request(MSG_DEFER, 2, NULL, 0);
	passes(2);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 2u);
	advance(6 * FAR_MS);
	expect_reply(1, "abcd", 4);
	cr_assert_eq(far_deferred_reply(kept[0], "later", 5), FAR_OK);
	passes(2);
	expect_nothing();
	advance(6 * FAR_MS);
	expect_reply(2, "later", 5);
	expect_nothing();
	cr_assert_eq(faults.delayed[FAR_FAULT_REPLY], 2u);
}

/* The call is cancelled, or its session lost, while its answer is held back. Expect CANCELLED; nothing later. */
Test(fault, late_answer_of_nobody)
{
	set(FAR_FAULT_REPLY, 0, 5 * FAR_MS, 0);
	put_request(MSG_ECHO, 1, "abcd", 4);
	put_request(MSG_ECHO, 2, "abcd", 4);
	passes(2);
	put_cancel(1);
	passes(2);
	expect_sent(PACKET_CANCELLED);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	advance(6 * FAR_MS);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 0u);
}

/* Its caller's time passes first. Expect CANCELLED at that time. */
Test(fault, late_answer_beyond_the_deadline)
{
	set(FAR_FAULT_REPLY, 0, 50 * FAR_MS, 0);
	put(NIC_PEER, request(MSG_ECHO, 1, 5 * FAR_MS), "abcd", 4);
	passes(2);
	advance(6 * FAR_MS);
	expect_sent(PACKET_CANCELLED);
	advance(60 * FAR_MS);
	expect_nothing();
}

/* A result with references fails. Expect them given back. */
Test(fault, answer_with_references_fails)
{
	struct rref_wire w = wire(SELF, 7, 8);
	add_function("t::known(rref r) -> int");
	set(FAR_FAULT_REPLY, 1, 0, 0);
	call_with(1, &w, 1);
	passes(2);
	expect_error(1, FAR_INJECTED, FAR_EXECUTED_YES, "made to fail");
	cr_assert_eq(runs, 1u);
	expect_empty();
}

/* Making a value while answers fail. Expect the error, and the value there for who names it. */
Test(fault, made_but_the_answer_failed)
{
	set(FAR_FAULT_REPLY, 1, 0, 1);
	make(1, PEER, 7, 8, OUR_INCARNATION);
	passes(2);
	expect_error(1, FAR_INJECTED, FAR_EXECUTED_YES, "made to fail");
	fetch(NIC_OTHER, 2, PEER, 7);
	expect_seven(NIC_OTHER, 2);
	control(NIC_PEER, 3, RREF_FAILED, FAR_INJECTED, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_OK);
	control(NIC_PEER, 4, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 4, FAR_OK);
	expect_empty();
}

/* ---- making a value that ends early ---- */

static void on_made(void *user, const struct completion *o)
{
	struct rref_user *u = user;
	rref_known_end(shard, u, o);
	rref_make_failed(shard, u, o->status);
	rref_unref(&u->rref.base);
}

/* As far_remote() does. */
static struct rref_user *make_there(uint64_t timeout, union packet_head *h)
{
	struct rref_wire w = {.owner = INCARNATION_OF(PEER),
			      .id = rref_name(OUR_INCARNATION, 0, 0, 1),
			      .fork = rref_name(OUR_INCARNATION, 0, 0, 2),
			      .types = 4};
	struct rref_user *u = rref_new(shard, &w);
	struct far_buf *buf = buf_alloc(sizeof(struct rref_call));
	struct rref_call *c = buf_data(buf);
	cr_assert_not_null(u);
	rref_enter(&u->rref);
	rref_ref(&u->rref.base);
	*c = (struct rref_call){.done = on_made, .user = u, .buf = buf, .makes = u};
	struct call_start start = {.worker = PEER,
				   .fn = RREF_REMOTE,
				   .deadline = now_ns + timeout,
				   .left = timeout,
				   .done = rref_call_done,
				   .user = c,
				   .data = "x",
				   .len = 1};
	cr_assert_eq(shard_call(shard, &start), 0);
	cr_assert_not_null(fake_queue_sent(queue, h));
	cr_assert_eq(h->request.handler, RREF_REMOTE);
	return u;
}

static void expect_failed(enum far_status why)
{
	struct rref_op op;
	union packet_head h;
	cr_assert_eq(expect_controls(NIC_PEER, &op, &h), 1u);
	cr_assert_eq(op.kind, (uint32_t)RREF_FAILED);
	cr_assert_eq(op.status, (uint32_t)why);
	answer_controls(NIC_PEER, h, (const uint8_t[]){FAR_OK}, 1);
}

/* Its time-out passes, its last hold is given back. Expect FAILED at once, DELETE only when the owner has said its last
 * word: a large request may still wait here, and what is small passes it. */
Test(fault, deleted_behind_the_request)
{
	static const enum packet_type last_words[] = {PACKET_CANCELLED, PACKET_REPLY};
	for (int i = 0; i < 2; i++) {
		union packet_head h;
		struct rref_user *u = make_there(5 * FAR_MS, &h);
		advance(6 * FAR_MS);
		cr_assert(u->failed && u->known->status == FAR_TIMEOUT);
		expect_sent(PACKET_CANCEL);
		expect_failed(FAR_TIMEOUT);
		rref_unref(&u->rref.base); /* the application's */
		passes(4);
		expect_nothing();
		h.type = (uint8_t)last_words[i];
		h.reply.function = 0;
		h.flags = 0;
		put(NIC_PEER, h, NULL, 0);
		passes(2);
		expect_control(NIC_PEER, RREF_DELETE, rref_name(OUR_INCARNATION, 0, 0, 2), FAR_OK);
		expect_empty();
	}
}

/* The owner keeps the failure as long as the reference is held, for all workers that have it. */
Test(fault, deleted_when_given_back)
{
	union packet_head h;
	struct rref_user *u = make_there(5 * FAR_MS, &h);
	answer(h, PACKET_ERROR, FAR_NO_FUNCTION, 0, "no");
	passes(2);
	expect_failed(FAR_NO_FUNCTION);
	passes(4);
	expect_nothing();
	rref_unref(&u->rref.base);
	passes(2);
	expect_control(NIC_PEER, RREF_DELETE, rref_name(OUR_INCARNATION, 0, 0, 2), FAR_OK);
	expect_empty();
}

/* The owner is lost before its last word. Expect nothing said, nothing kept. */
Test(fault, failure_and_the_owner_lost)
{
	union packet_head h;
	struct rref_user *u = make_there(5 * FAR_MS, &h);
	advance(6 * FAR_MS);
	expect_sent(PACKET_CANCEL);
	expect_failed(FAR_TIMEOUT);
	rref_unref(&u->rref.base);
	passes(2);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	expect_empty();
	cr_assert_eq(shard->rrefs->unknown_n, 0u);
}
