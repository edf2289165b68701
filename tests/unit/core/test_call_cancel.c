/* SPDX-License-Identifier: BSD-3-Clause */
/** Cancels of calls, on the shard thread and from others. The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(core_call_cancel, .init = shard_setup, .fini = shard_teardown);

/* Cancelled while SENT. Expect CANCEL once, the place kept until the last word, and a late reply counted. */
Test(core_call_cancel, cancelled_and_answered_late)
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
Test(core_call_cancel, an_old_id_cancels_nothing)
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

static unsigned ended_n;

static void ended_cancelled(void *user, const struct completion *o)
{
	ended_n++;
	cr_assert_eq(o->status, FAR_CANCELLED);
	cr_assert_eq(o->executed, FAR_EXECUTED_MAYBE);
}

/* Handed over and not taken when it is cancelled. Expect it found, and both words to the callee. */
Test(core_call_cancel, cancelled_in_the_submission_ring)
{
	struct far_future *f = future_alloc_call(NULL);
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

static struct result future_result;

static void done_future(void *user, const struct completion *o)
{
	struct far_future *f = user;
	take_result(&future_result, o);
	buf_unref(&f->head);
}

/* The call lies in the submission ring behind a cell whose producer has claimed it and not filled it yet. Expect the
 * cancel to wait for the call. */
Test(core_call_cancel, a_cancel_waits_for_its_call_behind_a_producer)
{
	static struct result before; /* it ends with the session */
	union packet_head h;
	struct far_future *f = future_alloc_call(shard);
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
Test(core_call_cancel, a_cancel_is_left_at_the_end)
{
	struct far_future *f = future_alloc_call(shard);
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
