/* SPDX-License-Identifier: BSD-3-Clause */
/** Answers that find no memory or no slot, and the requests that are paused meanwhile. The test's thread. */
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_reply, .init = shard_setup, .fini = shard_teardown);

/* Receive a REQUEST whose answer finds no bulk memory. Expect it kept, later requests paused, and all in order. */
Test(core_reply, answers_wait_for_bulk_memory_and_requests_are_paused)
{
	union packet_head h;
	uint32_t tag;
	static char body[200];
	queue->no_bulk = true;
	for (tag = 0; tag < 2; tag++)
		put_request(MSG_BIG, tag, &tag, sizeof tag);
	for (; tag < 4; tag++)
		put_request(MSG_ECHO, tag, &tag, sizeof tag);
	memcpy(body, &tag, sizeof tag);
	put_request(MSG_ECHO, tag, body, sizeof body);
	passes(3);
	expect_nothing();
	cr_assert_eq(ran, 1u, "the first one blocks the session");
	cr_assert_eq(shard->sessions[PEER].paused_n, 4u);
	cr_assert_eq(queue->in_held, 0u, "a paused request is copied: the peer gets its memory back");
	queue->no_bulk = false;
	passes(3);
	for (tag = 0; tag < 2; tag++) {
		const struct fake_packet *p = expect(&h, PACKET_REPLY, tag);
		cr_assert_eq(p->body_len, FAKE_BODY / 4);
		cr_assert_eq(((const uint8_t *)fake_body(p))[100], tag);
	}
	for (; tag < 4; tag++)
		expect_reply(tag, &tag, sizeof tag);
	expect_reply(4, body, sizeof body);
	cr_assert_eq(order_n, 5u);
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_eq(order[i], i);
}

/* The same with an answer that was being written in place when the session got blocked. */
Test(core_reply, other_sessions_go_on_while_one_is_blocked)
{
	union packet_head h;
	queue->no_bulk = true;
	put_request(MSG_ALLOC, 1, NULL, 0);
	passes(1);
	cr_assert(shard->sessions[PEER].backpressured);
	put(NIC_OTHER, request(MSG_ECHO, 9, UINT64_MAX), "o", 1);
	passes(1);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_not_null(p);
	cr_assert_eq(p->peer, (uint32_t)NIC_OTHER);
	queue->no_bulk = false;
	passes(1);
	expect(&h, PACKET_REPLY, 1);
}

Test(core_reply, answers_to_our_calls_pass_a_blocked_session)
{
	static struct result r;
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	passes(1);
	union packet_head h = called(&r, FAR_SEC);
	answer(h, PACKET_REPLY, 0, 0, "yes");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
}

/* Receive CANCEL for a paused request. Expect CANCELLED, and that it never runs. */
Test(core_reply, cancel_while_paused)
{
	union packet_head h;
	static char body[100];
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	put_request(MSG_ECHO, 2, body, sizeof body);
	put_request(MSG_ECHO, 3, "c", 1);
	put_cancel(2);
	put_cancel(2);
	passes(1);
	expect(&h, PACKET_CANCELLED, 2);
	expect_nothing();
	queue->no_bulk = false;
	passes(2);
	expect(&h, PACKET_REPLY, 1);
	expect_reply(3, "c", 1);
	expect_nothing();
	cr_assert_eq(ran, 2u);
	cr_assert_eq(queue->in_held, 0u);
}

/* Receive CANCEL for a kept answer. Expect CANCELLED instead of it. */
Test(core_reply, cancel_of_a_kept_answer)
{
	union packet_head h;
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	put_cancel(1);
	passes(1);
	expect(&h, PACKET_CANCELLED, 1);
	passes(2);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 0u);
	cr_assert_not(shard->sessions[PEER].backpressured, "nothing waits any more");
}

/* A paused request's deadline passes. Expect TIMEOUT, not run. */
Test(core_reply, deadline_while_paused)
{
	union packet_head h;
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	put(NIC_PEER, request(MSG_ECHO, 2, FAR_MS), NULL, 0);
	passes(1);
	now_ns += 2 * FAR_MS;
	queue->no_bulk = false;
	passes(2);
	expect(&h, PACKET_REPLY, 1);
	expect_error(2, FAR_TIMEOUT, FAR_EXECUTED_NO, "before the handler");
	cr_assert_eq(ran, 1u);
}

/* More requests than credits while blocked. Expect the peer reported, nothing overwritten. */
Test(core_reply, pausing_is_bounded)
{
	queue->no_bulk = true;
	put_request(MSG_BIG, 0, NULL, 0);
	for (uint32_t i = 1; i <= FAR_SESSION_REQUESTS_MAX + 3; i++)
		put_request(MSG_ECHO, i, &i, sizeof i);
	passes(40);
	cr_assert_eq(shard->sessions[PEER].paused_n, (uint32_t)FAR_SESSION_REQUESTS_MAX);
	cr_assert_eq(dropped(), 3u);
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
}

/* A cancelled one's credit is the caller's again at once, and so must be its place. */
Test(core_reply, cancelled_ones_make_room)
{
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	passes(1);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < FAR_SESSION_CALLS_MAX - 1; i++)
			put_request(MSG_ECHO, 1000 * round + 2 + i, "0123456789012345678901234567890123456789", 40);
		passes(20);
		for (uint32_t i = round == 2 ? 100 : 0; i < FAR_SESSION_CALLS_MAX - 1; i++)
			put_cancel(1000 * round + 2 + i);
		passes(20);
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	union packet_head h;
	for (unsigned i = 0; i < 2 * (FAR_SESSION_CALLS_MAX - 1) + FAR_SESSION_CALLS_MAX - 101; i++) {
		cr_assert_not_null(fake_queue_sent(queue, &h));
		cr_assert_eq(h.type, PACKET_CANCELLED);
	}
	queue->no_bulk = false;
	passes(2);
	expect(&h, PACKET_REPLY, 1);
	for (uint32_t i = 0; i < 100; i++)
		expect_reply(2002 + i, "0123456789012345678901234567890123456789", 40);
	expect_nothing();
}

/* A small deferred answer while blocked waits its turn behind the kept one. */
Test(core_reply, deferred_answer_while_blocked)
{
	union packet_head h;
	put_request(MSG_DEFER, 1, NULL, 0);
	passes(1);
	queue->no_bulk = true;
	put_request(MSG_BIG, 2, NULL, 0);
	passes(1);
	far_deferred_reply(kept[0], "d", 1);
	passes(2);
	expect_nothing();
	queue->no_bulk = false;
	passes(1);
	expect(&h, PACKET_REPLY, 2);
	expect_reply(1, "d", 1);
}

Test(core_reply, an_error_text_is_cut_rather_than_kept)
{
	union packet_head h;
	queue->no_bulk = true;
	put_request(900, 3, NULL, 0);
	passes(1);
	const struct fake_packet *p = expect(&h, PACKET_ERROR, 3);
	cr_assert_eq(h.error.status, FAR_NO_FUNCTION);
	cr_assert_eq(p->body_len, (uint64_t)FAR_LINE_PAYLOAD);
}

/* The ring has no slot for an answer: only a peer that overdraws its credits brings this about. */
Test(core_reply, no_slot_for_an_answer)
{
	put_request(MSG_ECHO, 1, "a", 1);
	queue->no_slots = true;
	passes(1);
	queue->no_slots = false;
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(dropped(), 1u);
}

Test(core_reply, an_open_reservation_meets_a_full_ring)
{
	put_request(MSG_ALLOC, 1, NULL, 0);
	queue->commit_error = -11;
	passes(1);
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(queue->open_tx, 0u);
}
