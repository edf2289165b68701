/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls: what the caller does with answers, deadlines and credits. The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "shard_fixture.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_call, .init = shard_setup, .fini = shard_teardown);

Test(core_call, call_and_reply)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	cr_assert_eq(h.request.handler, MSG_ECHO);
	cr_assert_eq(h.request.time_left, FAR_SEC);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 1u);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(r.len, 4u);
	cr_assert_eq(memcmp(r.bytes, "fine", 4), 0);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	cr_assert_eq(shard->counters.calls_completed, 1u);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
}

Test(core_call, call_and_error)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	union packet_head a = {.error = {.type = PACKET_ERROR,
					 .executed = FAR_EXECUTED_YES,
					 .status = FAR_REMOTE,
					 .slot = h.call.slot,
					 .generation = h.call.generation,
					 .code = -5}};
	put(NIC_PEER, a, "why", 3);
	passes(1);
	cr_assert_eq(r.status, FAR_REMOTE);
	cr_assert_eq(r.executed, FAR_EXECUTED_YES);
	cr_assert_eq(r.code, -5);
	cr_assert_eq(r.origin, PEER);
	cr_assert_eq(shard->counters.calls_failed, 1u);
}

/* Receive ERROR with a status, an executed or a text that cannot be. Expect an error all the same. */
Test(core_call, errors_that_make_no_sense)
{
	static const uint16_t statuses[] = {FAR_OK, FAR_STATUS_COUNT, UINT16_MAX};
	static char long_text[5000];
	memset(long_text, 'x', sizeof long_text);
	for (size_t i = 0; i < 3; i++) {
		static struct result r;
		union packet_head h = called(&r, FAR_SEC);
		union packet_head a = {.error = {.type = PACKET_ERROR,
						 .executed = 3,
						 .status = statuses[i],
						 .slot = h.call.slot,
						 .generation = h.call.generation}};
		put(NIC_PEER, a, long_text, sizeof long_text);
		passes(1);
		cr_assert_eq(r.n, 1u);
		cr_assert_eq(r.status, FAR_PROTOCOL);
		cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
		cr_assert_lt(r.len, (size_t)FAR_ERR_TEXT_MAX);
	}
}

/* Receive answers for a wrong generation, a wrong slot, from a wrong worker, for a free slot. Expect them counted, and
 * the call still open. */
Test(core_call, answers_out_of_place)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC), bad = h;
	bad.type = PACKET_REPLY;
	bad.call.generation++;
	put(NIC_PEER, bad, NULL, 0);
	bad = h;
	bad.type = PACKET_REPLY;
	put(NIC_OTHER, bad, NULL, 0);
	bad.call.slot = h.call.slot + 1;
	put(NIC_PEER, bad, NULL, 0);
	bad.call.slot = FAR_CALLS_MAX;
	put(NIC_PEER, bad, NULL, 0);
	bad.call.slot = UINT32_MAX;
	put(NIC_PEER, bad, NULL, 0);
	passes(1);
	cr_assert_eq(dropped(), 5u);
	cr_assert_eq(r.n, 0u);
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(r.n, 1u);
	answer(h, PACKET_REPLY, 0, 0, "");
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.n, 1u, "once");
	cr_assert_eq(dropped(), 7u);
}

/* The deadline passes. Expect TIMEOUT, a CANCEL, and the slot kept until the peer's last word. */
Test(core_call, late_reply_after_the_deadline)
{
	static struct result r;
	union packet_head h = called(&r, FAR_MS), c;
	advance(FAR_MS - 1);
	cr_assert_eq(r.n, 0u);
	advance(1);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	cr_assert_not_null(fake_queue_sent(queue, &c));
	cr_assert_eq(c.type, PACKET_CANCEL);
	cr_assert_eq(c.call.slot, h.call.slot);
	cr_assert_eq(c.call.generation, h.call.generation);
	cr_assert_eq(shard->counters.calls_timed_out, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 1u);
	answer(h, PACKET_REPLY, 0, 0, "late");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(shard->counters.replies_late, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	answer(h, PACKET_REPLY, 0, 0, "later still");
	cr_assert_eq(dropped(), 1u);
}

/* The peer answers CANCELLED instead. Expect the slot free. */
Test(core_call, cancelled_after_the_deadline)
{
	static struct result r;
	union packet_head h = called(&r, 1);
	advance(1);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
}

/* Receive CANCELLED before our own timer. Expect TIMEOUT, no CANCEL. */
Test(core_call, the_callee_gives_up_first)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	advance(2 * FAR_SEC);
	cr_assert_eq(r.n, 1u);
	expect_nothing();
}

Test(core_call, deadlines_of_one_nanosecond_and_for_ever)
{
	struct result one, forever, distant;
	called(&one, 1);
	union packet_head h = called(&forever, FAR_FOREVER);
	cr_assert_eq(h.request.time_left, UINT64_MAX);
	union packet_head d = called(&distant, UINT64_C(1) << 60);
	advance(1);
	cr_assert_eq(one.n, 1u);
	for (int i = 0; i < 100; i++)
		advance(UINT64_C(3600) * FAR_SEC);
	cr_assert_eq(forever.n, 0u);
	cr_assert_eq(distant.n, 0u);
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(forever.status, FAR_OK);
	advance(UINT64_C(1) << 60);
	cr_assert_eq(distant.status, FAR_TIMEOUT);
	(void)d;
}

static unsigned ended_n;

static void ended_cancelled(void *user, const struct completion *o)
{
	ended_n++;
	cr_assert_eq(o->status, FAR_CANCELLED);
	cr_assert_eq(o->executed, FAR_EXECUTED_MAYBE);
}

/* As many calls are under way as there are credits, and one more waits. Expect the next refused until one is answered,
 * ended ones included. */
Test(core_call, credits)
{
	static struct result r[FAR_SESSION_CALLS_MAX + 1], one;
	union packet_head h[FAR_SESSION_CALLS_MAX];
	shard->config.limits.peer_waiting = 1;
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		h[i] = called(&r[i], i == 0 ? 1 : FAR_FOREVER);
	cr_assert_eq(call(&one, FAR_SEC, NULL, 0), 0);
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), -EAGAIN);
	advance(1);
	cr_assert_eq(r[0].status, FAR_TIMEOUT);
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), -EAGAIN, "its slot waits for the last word");
	answer(h[0], PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), 0);
	/* Another worker's credits are its own. */
	struct call_start start = {.worker = OTHER,
				   .fn = 1,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = &r[0]};
	cr_assert_eq(shard_call(shard, &start), 0);
}

/* Cancelled while SENT. Expect CANCEL once, the place kept until the last word, and a late reply counted. */
Test(core_call, cancelled_and_answered_late)
{
	static const enum packet_type words[] = {PACKET_REPLY, PACKET_ERROR, PACKET_CANCELLED};
	for (unsigned i = 0; i < 3; i++) {
		static struct result r;
		union packet_head h = called(&r, i == 1 ? FAR_FOREVER : FAR_SEC), cancel;
		uint64_t late = shard->counters.replies_late;
		cr_assert(call_cancel(shard, &r.id));
		cr_assert(r.n == 1 && r.status == FAR_CANCELLED && r.executed == FAR_EXECUTED_MAYBE);
		cr_assert_not_null(fake_queue_sent(queue, &cancel));
		cr_assert(cancel.type == PACKET_CANCEL && cancel.call.slot == h.call.slot &&
			  cancel.call.generation == h.call.generation);
		cr_assert_not(call_cancel(shard, &r.id), "it has ended");
		advance(2 * FAR_SEC);
		expect_nothing();
		cr_assert_eq(shard->sessions[PEER].calls_active, 1);
		answer(h, words[i], 0, 0, "late");
		cr_assert_eq(shard->counters.replies_late, late + 1);
		cr_assert_eq(shard->sessions[PEER].calls_active, 0);
		cr_assert_eq(r.n, 1u);
	}
	cr_assert_eq(dropped(), 0u);
}

/* The slot of an answered call is taken by another. Expect the id of the first to cancel nothing. */
Test(core_call, an_old_id_cancels_nothing)
{
	static struct result old, r;
	answer(called(&old, FAR_FOREVER), PACKET_REPLY, 0, 0, "old");
	union packet_head h = called(&r, FAR_FOREVER), cancel;
	cr_assert(old.id.slot == r.id.slot && old.id.gen != r.id.gen);
	cr_assert_not(call_cancel(shard, &old.id));
	cr_assert_eq(r.n, 0u);
	cr_assert(call_cancel(shard, &r.id));
	cr_assert_eq(r.status, FAR_CANCELLED);
	cr_assert_not_null(fake_queue_sent(queue, &cancel));
	answer(h, PACKET_CANCELLED, 0, 0, "");
}

/* Handed over and not taken when it is cancelled. Expect it found, and both words to the callee. */
Test(core_call, cancelled_in_the_submission_ring)
{
	struct far_future *f = future_alloc(NULL);
	union packet_head h, cancel;
	struct call_start start = {.worker = PEER,
				   .fn = MSG_ECHO,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = ended_cancelled,
				   .user = f,
				   .id = &f->call};
	ended_n = 0;
	cr_assert_eq(waiting_submit(shard, &start), 0);
	cr_assert_not(call_cancel_future(shard, f), "it has no slot yet");
	cr_assert_eq(call_submit_cancel(shard, f), 0);
	cr_assert_eq(ended_n, 0u);
	shard_take_cancels(shard);
	cr_assert_eq(ended_n, 1u);
	fake_queue_sent(queue, &h);
	fake_queue_sent(queue, &cancel);
	cr_assert(h.type == PACKET_REQUEST && cancel.type == PACKET_CANCEL && cancel.call.slot == h.call.slot);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(shard->sessions[PEER].calls_active, 0);
	cr_assert_eq(f->head.refs, 1u, "the note's reference went");
	buf_unref(&f->head);
}

Test(core_call, calls_that_cannot_be_sent)
{
	static struct result r;
	static char large[FAKE_BODY + 1];
	cr_assert_eq(call(&r, FAR_SEC, large, sizeof large), -EMSGSIZE);
	queue->no_bulk = true;
	cr_assert_eq(call(&r, FAR_SEC, large, 1000), -EAGAIN, "bulk memory comes back: back-pressure");
	queue->no_bulk = false;
	queue->no_slots = true;
	cr_assert_eq(call(&r, FAR_SEC, large, 1), -EAGAIN);
	queue->no_slots = false;
	queue->commit_error = -EAGAIN;
	cr_assert_eq(call(&r, FAR_SEC, large, 1000), -EAGAIN);
	cr_assert_eq(r.n, 0u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	expect_nothing();
}

/* ---- typed calls learn numbers ---- */

static int call_typed(struct result *r)
{
	uint8_t body[64];
	size_t len = two_ints(body, 1, 2);
	struct call_start start = {.worker = PEER,
				   .fn = (uint16_t)registry_find(&registry, "t::add")->index,
				   .typed = true,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = r,
				   .data = body,
				   .len = len};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

Test(core_call, the_first_reply_teaches_the_number)
{
	static struct result r;
	union packet_head h;
	struct packet_hash hash;
	const struct function *fn = registry_find(&registry, "t::add");
	cr_assert_eq(call_typed(&r), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_eq(h.flags, PACKET_TYPED | PACKET_HASHED);
	memcpy(&hash, (const uint8_t *)fake_body(p) + p->body_len - sizeof hash, sizeof hash);
	cr_assert_eq(hash.name, fn->signature.name_hash);
	cr_assert_eq(hash.signature, fn->signature.canonical_hash);
	answer(h, PACKET_REPLY, 321, PACKET_HASHED, "");
	cr_assert_eq(call_typed(&r), 0);
	p = fake_queue_sent(queue, &h);
	cr_assert_eq(h.flags, PACKET_TYPED);
	cr_assert_eq(h.request.handler, 321);
	answer(h, PACKET_REPLY, 0, 0, "");
}

/* Receive a number that cannot be. Expect it not learnt. */
Test(core_call, an_impossible_number_is_not_learnt)
{
	static struct result r;
	union packet_head h;
	cr_assert_eq(call_typed(&r), 0);
	fake_queue_sent(queue, &h);
	answer(h, PACKET_REPLY, FAR_FUNCTIONS_MAX, PACKET_HASHED, "");
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(call_typed(&r), 0);
	fake_queue_sent(queue, &h);
	cr_assert(h.flags & PACKET_HASHED);
	answer(h, PACKET_REPLY, 0, 0, "");
}

/* ---- cancels from other threads ---- */

static struct result future_result;

static void done_future(void *user, const struct completion *o)
{
	struct far_future *f = user;
	take_result(&future_result, o);
	buf_unref(&f->head);
}

/* The call lies in the submission ring behind a cell whose producer has claimed it and not filled it yet. Expect the
 * cancel to wait for the call. */
Test(core_call, a_cancel_waits_for_its_call_behind_a_producer)
{
	static struct result before; /* it ends with the session */
	union packet_head h;
	struct far_future *f = future_alloc(shard);
	cr_assert(waiting_reserve(shard, session_index(shard, PEER, 0)));
	uint32_t at = atomic_fetch_add(&shard->submit.tail, 1);
	struct submit_cell *cell = &shard->submit.cells[at & shard->submit.mask];
	struct call_start start = {.worker = PEER,
				   .fn = MSG_ECHO,
				   .deadline = TIME_NEVER,
				   .left = FAR_FOREVER,
				   .done = done_future,
				   .user = f,
				   .id = &f->call,
				   .data = "hi",
				   .len = 2};
	memset(&future_result, 0, sizeof future_result);
	memset(&before, 0, sizeof before);
	buf_ref(&f->head);
	cr_assert_eq(waiting_submit(shard, &start), 0);
	cr_assert_eq(call_submit_cancel(shard, f), 0);
	shard_take_cancels(shard);
	passes(200);
	cr_assert_eq(future_result.n, 0u);
	cell->worker = PEER;
	cell->fn = MSG_ECHO;
	cell->deadline = TIME_NEVER;
	cell->done = take_result;
	cell->user = &before;
	atomic_store(&cell->turn, (at & ~shard->submit.mask) + 1);
	passes(200);
	cr_assert_eq(future_result.n, 1u, "the cancel was lost");
	cr_assert_eq(future_result.status, FAR_CANCELLED);
	cr_assert_eq(before.n, 0u);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_not_null(fake_queue_sent(queue, &h));
		cr_assert_eq(h.type, i < 2 ? PACKET_REQUEST : PACKET_CANCEL);
	}
	expect_nothing();
	cr_assert_eq(f->head.refs, 1u);
	buf_unref(&f->head);
}

/* The shard ends while a cancel waits. */
Test(core_call, a_cancel_is_left_at_the_end)
{
	struct far_future *f = future_alloc(shard);
	atomic_fetch_add(&shard->submit.tail, 1);
	cr_assert_eq(call_submit_cancel(shard, f), 0);
	shard_take_cancels(shard);
	cr_assert_eq(call_submit_cancel(shard, f), 0);
	cr_assert_eq(f->head.refs, 3u);
	call_drop_cancels(shard);
	cr_assert_eq(f->head.refs, 1u);
	buf_unref(&f->head);
	atomic_fetch_sub(&shard->submit.tail, 1);
}
