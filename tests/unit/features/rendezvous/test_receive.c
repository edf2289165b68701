/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in fragments, received packet by packet, from peers that keep the rules and from others.
 * The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

TestSuite(rendezvous_receive, .init = setup, .fini = teardown);

/* Receive RENDEZVOUS and its fragments, some in the line of their head, some held. Expect the handler to run once. */
Test(rendezvous_receive, a_request_in_fragments)
{
	union packet_head h;
	announce(PACKET_REQUEST, MSG_ECHO, 3, 1, 7, 300);
	passes(1);
	expect_grant(1, 7, 300);
	put_data(1, 7, 0, bytes, 100);
	put_data(1, 7, 100, bytes + 100, 10);
	put_data(1, 7, 110, bytes + 110, 150);
	passes(1);
	cr_assert_eq(ran, 0u);
	cr_assert_gt(queue->in_held, 0u, "one fragment is copied in a pass");
	put_data(1, 7, 260, bytes + 260, 40);
	passes(4);
	cr_assert_eq(ran, 1u);
	cr_assert_eq(queue->in_held, 0u);
	/* The echo is too long for one packet too. */
	const struct fake_packet *p;
	while ((p = fake_queue_sent(queue, &h)) && h.type == PACKET_CREDIT)
		;
	cr_assert_not_null(p);
	cr_assert_eq(h.type, PACKET_RENDEZVOUS);
	memcpy(&h, fake_body(p), sizeof h);
	cr_assert_eq(h.type, PACKET_REPLY);
	cr_assert_eq(h.reply.slot, 3u);
	cr_assert_eq(h.reply.generation, 103u);
}

/* A request in fragments, a small call meanwhile. Expect the small one served first. */
Test(rendezvous_receive, small_requests_go_in_between)
{
	announce(PACKET_REQUEST, MSG_SILENT, 3, 0, 1, 4000);
	passes(1);
	expect_grant(0, 1, 4000);
	for (unsigned i = 0; i < 4; i++)
		put_data(0, 1, i * 1000u, bytes + i * 1000u, 1000);
	put_request(MSG_ECHO, 9, "s", 1);
	passes(1);
	expect_reply(9, "s", 1);
	cr_assert_eq(ran, 1u);
	passes(4);
	cr_assert_eq(ran, 2u);
}

/* A message of many windows. Expect one grant, of all of it, and an acknowledgement for every FAR_RENDEZVOUS_BATCH. */
Test(rendezvous_receive, granted_once)
{
	static uint8_t chunk[FAR_CHUNK_BYTES];
	union packet_head h;
	uint64_t total = 3 * FAR_RENDEZVOUS_PACKETS * FAR_CHUNK_BYTES;
	unsigned credits = 0;
	announce(PACKET_ONEWAY, MSG_SILENT, 0, 0, 1, total);
	passes(1);
	expect_grant(0, 1, total);
	for (uint64_t at = 0; at < total; at += sizeof chunk) {
		put_data(0, 1, at, chunk, sizeof chunk);
		passes(1);
		for (const struct fake_packet *p; (p = fake_queue_sent(queue, &h)); credits++) {
			struct packet_acked acked;
			cr_assert_eq(h.type, PACKET_CREDIT);
			memcpy(&acked, fake_body(p), sizeof acked);
			cr_assert_eq(acked.packets, 1 + at / sizeof chunk + 1, "it acknowledges what was copied");
		}
	}
	cr_assert_eq(ran, 1u);
	cr_assert_eq(credits, 3 * FAR_RENDEZVOUS_PACKETS / FAR_RENDEZVOUS_BATCH);
}

Test(rendezvous_receive, more_than_the_limit_is_refused)
{
	union packet_head h;
	shard->config.message_bytes_max = 100000;
	announce(PACKET_REQUEST, MSG_ECHO, 3, 0, 1, 100017);
	passes(1);
	sent(&h, PACKET_REFUSE);
	expect_error(3, FAR_TOO_LARGE, FAR_EXECUTED_NO, "100000");
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	announce(PACKET_REQUEST, 900, 4, 0, 2, 1000);
	passes(1);
	sent(&h, PACKET_REFUSE);
	expect_error(4, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "message 900");
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

Test(rendezvous_receive, without_memory_it_is_refused)
{
	union packet_head h;
	announce(PACKET_REQUEST, MSG_ECHO, 3, 0, 1, FAR_MSG_BYTES_MAX);
	announce(PACKET_ONEWAY, MSG_ECHO, 0, 1, 1, FAR_MSG_BYTES_MAX);
	passes(1);
	sent(&h, PACKET_REFUSE);
	expect_error(3, FAR_RESOURCE, FAR_EXECUTED_NO, "no memory");
	sent(&h, PACKET_REFUSE);
	expect_nothing();
	cr_assert_eq(shard->counters.oneways_dropped, 1u);
}

/* CANCEL, then ABORT, or ABORT alone, in the middle. Expect one CANCELLED and everything given back. */
Test(rendezvous_receive, given_up_in_the_middle)
{
	union packet_head h;
	for (uint32_t epoch = 1; epoch < 3; epoch++) {
		announce(PACKET_REQUEST, MSG_ECHO, 3, 0, epoch, 3000);
		passes(1);
		expect_grant(0, epoch, 3000);
		put_data(0, epoch, 0, bytes, 1000);
		put_data(0, epoch, 1000, bytes, 1000);
		if (epoch == 1)
			put_cancel(3);
		put_about(PACKET_ABORT, 0, epoch, 0, 0);
		put_cancel(3);
		passes(1);
		while (fake_queue_sent(queue, &h) && h.type == PACKET_CREDIT)
			;
		cr_assert_eq(h.type, PACKET_CANCELLED);
		cr_assert_eq(h.call.slot, 3u);
		passes(3);
		while (fake_queue_sent(queue, &h))
			cr_assert_eq(h.type, PACKET_CREDIT);
		cr_assert_eq(shard->counters.rendezvous_active, 0u);
		cr_assert_eq(queue->in_held, 0u);
	}
	cr_assert_eq(ran, 0u);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* CANCEL when every fragment has come, and not all are copied. Expect CANCELLED, and that it never runs. */
Test(rendezvous_receive, cancelled_before_it_is_put_together)
{
	union packet_head h;
	announce(PACKET_REQUEST, MSG_ECHO, 3, 0, 1, 3000);
	passes(1);
	expect_grant(0, 1, 3000);
	for (unsigned i = 0; i < 3; i++)
		put_data(0, 1, i * 1000u, bytes, 1000);
	put_cancel(3);
	announce(PACKET_REQUEST, MSG_SILENT, 4, 0, 2, 3000); /* in the same memory */
	passes(1);
	sent(&h, PACKET_CANCELLED);
	expect_grant(0, 2, 3000);
	passes(4);
	cr_assert_eq(ran, 0u);
	cr_assert_eq(queue->in_held, 0u);
	cr_assert_eq(shard->counters.rendezvous_active, 1u);
}

Test(rendezvous_receive, its_deadline_passes_in_the_middle)
{
	union packet_head h;
	announce_as(request(MSG_ECHO, 3, FAR_MS), PACKET_REQUEST, 0, 1, 3000);
	announce_as(request(MSG_ECHO, 0, FAR_MS), PACKET_ONEWAY, 1, 1, 3000);
	passes(1);
	expect_grant(0, 1, 3000);
	expect_grant(1, 1, 3000);
	put_data(0, 1, 0, bytes, 1000);
	passes(1);
	advance(2 * FAR_MS);
	unsigned refused = 0, cancelled = 0;
	while (fake_queue_sent(queue, &h)) {
		refused += h.type == PACKET_REFUSE;
		cancelled += h.type == PACKET_CANCELLED;
	}
	cr_assert_eq(refused, 2u);
	cr_assert_eq(cancelled, 1u);
	cr_assert_eq(shard->counters.oneways_dropped, 1u);
	/* What was under way already is dropped quietly, up to the last word. */
	put_data(0, 1, 1000, bytes, 1000);
	put_data(0, 1, 2000, bytes, 1000);
	put_about(PACKET_ABORT, 1, 1, 0, 0);
	passes(3);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	announce(PACKET_REQUEST, MSG_ECHO, 5, 0, 2, 3000);
	passes(1);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* More messages than have memory at a time. Expect those beyond to wait without a grant, and then to go on. */
Test(rendezvous_receive, lanes_wait_for_memory)
{
	union packet_head h;
	struct rendezvous_in *all = rendezvous_of(shard)->free;
	rendezvous_of(shard)->free = NULL;
	announce(PACKET_REQUEST, MSG_SILENT, 3, 0, 1, 100);
	announce(PACKET_REQUEST, MSG_SILENT, 4, 1, 1, 100);
	announce_as(request(MSG_SILENT, 5, FAR_MS), PACKET_REQUEST, 2, 1, 100);
	passes(3);
	expect_nothing();
	put_cancel(4);
	now_ns += 2 * FAR_MS;
	passes(1);
	sent(&h, PACKET_CANCELLED);
	sent(&h, PACKET_REFUSE);
	expect_error(5, FAR_TIMEOUT, FAR_EXECUTED_NO, "deadline");
	rendezvous_of(shard)->free = all;
	passes(1);
	expect_grant(0, 1, 100);
	put_data(0, 1, 0, bytes, 100);
	passes(2);
	cr_assert_eq(ran, 1u);
}

Test(rendezvous_receive, a_blocked_session_keeps_it_until_answers_go)
{
	union packet_head h;
	shard->sessions[PEER].eager_max = FAR_MSG_EAGER_MAX;
	queue->no_bulk = true;
	put_request(MSG_BIG, 1, NULL, 0);
	passes(1);
	cr_assert(shard->sessions[PEER].backpressured);
	announce(PACKET_REQUEST, MSG_FAIL, 3, 0, 1, 100);
	announce(PACKET_REQUEST, MSG_FAIL, 4, 1, 1, 100);
	put_data(0, 1, 0, bytes, 100);
	put_data(1, 1, 0, bytes, 100);
	passes(4);
	cr_assert_eq(ran, 1u);
	put_cancel(4);
	passes(1);
	queue->no_bulk = false;
	passes(3);
	cr_assert_eq(ran, 2u);
	unsigned cancelled = 0, errors = 0;
	while (fake_queue_sent(queue, &h)) {
		cancelled += h.type == PACKET_CANCELLED && h.call.slot == 4;
		errors += h.type == PACKET_ERROR && h.call.slot == 3;
	}
	cr_assert_eq(cancelled, 1u);
	cr_assert_eq(errors, 1u);
}

Test(rendezvous_receive, the_peer_dies_in_the_middle)
{
	announce(PACKET_REQUEST, MSG_ECHO, 3, 0, 1, 3000);
	announce_as(request(MSG_ECHO, 4, FAR_SEC), PACKET_REQUEST, 1, 1, 3000);
	put_data(0, 1, 0, bytes, 1000);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
	/* Another incarnation of it begins anew. */
	cr_assert(posted(MAIL_DETACHED));
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	announce(PACKET_REQUEST, MSG_ECHO, 3, 0, 1, 3000);
	passes(1);
	cr_assert_eq(shard->counters.rendezvous_active, 1u);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
}

/* All of it had arrived when the peer went. Expect it run. */
Test(rendezvous_receive, what_was_complete_counts_when_the_peer_dies)
{
	announce(PACKET_ONEWAY, MSG_SILENT, 0, 0, 1, 3000);
	for (unsigned i = 0; i < 3; i++)
		put_data(0, 1, i * 1000u, bytes, 1000);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(ran, 1u);
}

/* ---- rules ---- */

Test(rendezvous_receive, announcements_that_break_the_rules)
{
	union packet_head h = {.type = PACKET_RENDEZVOUS};
	announce(PACKET_REQUEST, MSG_ECHO, 1, FAR_RENDEZVOUS_LANES, 1, 100);
	expect_poisoned("a lane that does not exist");
	announce(PACKET_REQUEST, MSG_ECHO, 1, 0, 1, 0);
	expect_poisoned("nothing to be sent");
	announce(PACKET_REQUEST, MSG_ECHO, 1, 0, 1, UINT64_MAX);
	expect_poisoned("more than a message can have");
	announce((enum packet_type)0, MSG_ECHO, 1, 0, 1, 100);
	expect_poisoned("type 0");
	announce(PACKET_CANCEL, MSG_ECHO, 1, 0, 1, 100);
	expect_poisoned("a cancel");
	union packet_head typed = request(0, 1, UINT64_MAX);
	typed.flags = PACKET_TYPED;
	announce_as(typed, PACKET_ONEWAY, 0, 1, 100);
	expect_poisoned("a typed one-way");
	union packet_head unknown = request(MSG_ECHO, 1, UINT64_MAX);
	unknown.call.tlv_bytes = 8;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("fields that are not known");
	unknown.call.tlv_bytes = 0;
	unknown.flags = PACKET_TLV;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("the flag of such fields");
	unknown.flags = PACKET_RETRY;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("one that may be retransmitted");
	put(NIC_PEER, h, bytes, sizeof(union packet_head) - 1);
	expect_poisoned("a short announcement");
	put(NIC_PEER, h, bytes, sizeof(union packet_head) + 1);
	expect_poisoned("a long announcement");
	put(NIC_PEER, h, NULL, 0);
	expect_poisoned("an empty announcement");
	announce(PACKET_REQUEST, MSG_ECHO, 1, 0, 1, 100);
	announce(PACKET_REQUEST, MSG_ECHO, 2, 0, 2, 100);
	expect_poisoned("a lane that is taken");
	cr_assert_eq(ran, 0u);
}

Test(rendezvous_receive, fragments_that_break_the_rules)
{
	put_data(0, 1, 0, bytes, 10);
	expect_poisoned("before the announcement");
	announce(PACKET_REQUEST, MSG_SILENT, 1, 0, 1, 2 * FAR_CHUNK_BYTES);
	passes(1);
	put_data(FAR_RENDEZVOUS_LANES, 1, 0, bytes, 10);
	expect_poisoned("no such lane");
	put_data(1, 1, 0, bytes, 10);
	expect_poisoned("another lane");
	put_data(0, 2, 0, bytes, 10);
	expect_poisoned("another epoch");
	put_data(0, 1, 1, bytes, 10);
	expect_poisoned("a gap");
	put_data(0, 1, 0, bytes, 0);
	expect_poisoned("nothing");
	put_data(0, 1, 0, bytes, 10);
	put_data(0, 1, 0, bytes, 10);
	expect_poisoned("twice");
	announce(PACKET_REQUEST, MSG_SILENT, 2, 1, 1, 100);
	put_data(1, 1, 0, bytes, 101);
	expect_poisoned("beyond the end");
	struct rendezvous_in *all = rendezvous_of(shard)->free;
	rendezvous_of(shard)->free = NULL;
	announce(PACKET_REQUEST, MSG_SILENT, 3, 3, 1, 100);
	put_data(3, 1, 0, bytes, 10);
	expect_poisoned("before the grant");
	rendezvous_of(shard)->free = all;
	put_about(PACKET_ABORT, 2, 1, 0, 0);
	expect_poisoned("an abort of nothing");
	put_about(PACKET_ABORT, 0, 9, 0, 0);
	expect_poisoned("an abort of another epoch");
	put_about(PACKET_ABORT, FAR_RENDEZVOUS_LANES, 1, 0, 0);
	expect_poisoned("an abort of no lane");
}

/* More fragments than the window allows. Expect them refused, not kept. */
Test(rendezvous_receive, fragments_beyond_the_window)
{
	announce(PACKET_REQUEST, MSG_SILENT, 1, 0, 1, 100000);
	passes(1);
	for (unsigned i = 0; i <= FAR_RENDEZVOUS_PACKETS + 2; i++)
		put_data(0, 1, i * 100u, bytes, 100);
	expect_poisoned("one too many");
	cr_assert_leq(queue->in_held, FAR_RENDEZVOUS_PACKETS);
}
