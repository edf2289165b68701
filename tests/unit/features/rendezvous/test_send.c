/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in fragments, one-way messages, replies. The test's thread. */
#include "core/call.h"
#include "core/packet.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

static uint8_t got[TOTAL];

static void setup_out(void)
{
	setup();
	memset(got, 0, sizeof got);
}

TestSuite(rendezvous_send, .init = setup_out, .fini = teardown);

/* ---- sending ---- */

/* Takes an announcement; returns the head of its message. */
static union packet_head announced(struct packet_rendezvous *a)
{
	union packet_head h, message;
	const struct fake_packet *p = sent(&h, PACKET_RENDEZVOUS);
	*a = h.rendezvous;
	cr_assert_eq(p->body_len, sizeof message);
	memcpy(&message, fake_body(p), sizeof message);
	return message;
}

/* Takes `n` fragments, and expects no more. */
static void take_fragments(unsigned n)
{
	union packet_head h;
	while (n--)
		sent(&h, PACKET_DATA);
	expect_nothing();
}

/* Takes fragments until nothing more comes; returns where they end. */
static uint64_t take_data(const struct packet_rendezvous *a, uint64_t at)
{
	union packet_head h;
	const struct fake_packet *p;
	while ((p = fake_queue_sent(queue, &h))) {
		cr_assert_eq(h.type, PACKET_DATA);
		cr_assert_eq(h.data.lane, a->lane);
		cr_assert_eq(h.data.epoch, a->epoch);
		cr_assert_eq(h.data.offset, at);
		memcpy(got + at, fake_body(p), p->body_len);
		at += p->body_len;
	}
	return at;
}

Test(rendezvous_send, a_call_in_fragments)
{
	static struct result r;
	struct packet_rendezvous a;
	cr_assert_eq(call_large(&r, FAR_SEC, TOTAL), 0);
	passes(2);
	union packet_head h = announced(&a);
	cr_assert_eq(a.total, (uint64_t)TOTAL);
	cr_assert_eq(h.type, PACKET_REQUEST);
	expect_nothing();
	cr_assert_eq(released, 0);
	put_about(PACKET_GRANT, a.lane, a.epoch, TOTAL, 1);
	passes(3);
	cr_assert_eq(take_data(&a, 0), (uint64_t)TOTAL);
	cr_assert_eq(memcmp(got, bytes, TOTAL), 0);
	cr_assert_eq(released, 1);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.len, 4u);
}

Test(rendezvous_send, longer_than_the_peer_takes)
{
	static struct result r;
	shard->sessions[PEER].message_max = TOTAL - 1;
	cr_assert_eq(call_large(&r, FAR_SEC, TOTAL), -EMSGSIZE);
	cr_assert_eq(released, 1);
	expect_nothing();
	cr_assert_eq(call(&r, FAR_SEC, bytes, WHOLE + 1), -EMSGSIZE, "not in fragments, and too long for a packet");
}

/* The window of fragments: it stops, and goes on with what was acknowledged. */
Test(rendezvous_send, fragments_stay_within_the_window)
{
	static struct result r[6];
	struct packet_rendezvous a;
	union packet_head h;
	for (unsigned i = 0; i < 6; i++)
		cr_assert_eq(call_large(&r[i], FAR_FOREVER, i ? TOTAL : sizeof large_bytes), 0);
	passes(3);
	for (unsigned i = 0; i < FAR_RENDEZVOUS_LANES; i++) {
		announced(&a);
		cr_assert_eq(a.lane, i);
	}
	expect_nothing();
	put_about(PACKET_GRANT, 0, 1, sizeof large_bytes, 0);
	passes(20);
	take_fragments(FAR_RENDEZVOUS_PACKETS - FAR_RENDEZVOUS_LANES);
	/* REFUSE of one: its last word must wait for the window, too; its memory need not. */
	put_about(PACKET_REFUSE, 1, 1, 0, 0);
	passes(2);
	expect_nothing();
	cr_assert_eq(released, 1);
	put_about(PACKET_CREDIT, 0, 0, 0, 2);
	passes(20);
	sent(&h, PACKET_ABORT);
	cr_assert_eq(h.call.slot, 1u);
	sent(&h, PACKET_RENDEZVOUS); /* the next message has its lane */
	expect_nothing();
}

/* The deadline passes before it is announced, and while it is being sent. Expect executed NO in both. */
Test(rendezvous_send, time_outs)
{
	static struct result r[5];
	struct packet_rendezvous a;
	union packet_head h;
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(call_large(&r[i],
					i == 4   ? FAR_MS
					: i == 0 ? 2 * FAR_MS
						 : FAR_FOREVER,
					i ? TOTAL : sizeof large_bytes),
			     0);
	passes(1);
	for (unsigned i = 0; i < FAR_RENDEZVOUS_LANES; i++)
		announced(&a);
	advance(FAR_MS);
	cr_assert_eq(r[4].status, FAR_TIMEOUT);
	cr_assert_eq(r[4].executed, FAR_EXECUTED_NO);
	cr_assert_eq(released, 1);
	cr_assert_eq(shard->sessions[PEER].calls_active, 4, "nothing went out, so nothing comes back");
	expect_nothing();
	put_about(PACKET_GRANT, 0, 1, sizeof large_bytes, 1);
	passes(20);
	take_fragments(FAR_RENDEZVOUS_PACKETS - FAR_RENDEZVOUS_LANES + 1);
	advance(FAR_MS);
	cr_assert_eq(r[0].n, 1u);
	cr_assert_eq(r[0].status, FAR_TIMEOUT);
	cr_assert_eq(r[0].executed, FAR_EXECUTED_NO);
	cr_assert_eq(released, 2);
	sent(&h, PACKET_CANCEL);
	passes(1);
	expect_nothing();
	put_about(PACKET_GRANT, 0, 1, 4000, 2); /* crossed */
	passes(1);
	sent(&h, PACKET_ABORT);
	cr_assert_eq(shard->sessions[PEER].calls_active, 4, "CANCELLED is due");
	put(NIC_PEER,
	    (union packet_head){.call = {.type = PACKET_CANCELLED, .slot = 0, .generation = shard->calls[0].gen}}, NULL,
	    0);
	passes(1);
	cr_assert_eq(shard->sessions[PEER].calls_active, 3);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* The callee refuses: REFUSE and ERROR, in either order. */
Test(rendezvous_send, refused_by_the_callee)
{
	struct packet_rendezvous a;
	union packet_head h;
	for (unsigned order_of = 0; order_of < 2; order_of++) {
		static struct result r;
		cr_assert_eq(call_large(&r, FAR_SEC, TOTAL), 0);
		passes(1);
		union packet_head call_head = announced(&a);
		if (order_of)
			put_about(PACKET_REFUSE, a.lane, a.epoch, 0, 2 * order_of);
		put(NIC_PEER,
		    (union packet_head){.error = {.type = PACKET_ERROR,
						  .status = FAR_RESOURCE,
						  .slot = call_head.call.slot,
						  .generation = call_head.call.generation}},
		    "no", 2);
		if (!order_of)
			put_about(PACKET_REFUSE, a.lane, a.epoch, 0, 1);
		passes(2);
		cr_assert_eq(r.n, 1u);
		cr_assert_eq(r.status, FAR_RESOURCE);
		cr_assert_eq(released, (int)order_of + 1);
		sent(&h, PACKET_ABORT);
		expect_nothing();
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

Test(rendezvous_send, what_the_receiver_says_is_checked)
{
	static struct result r;
	struct packet_rendezvous a;
	cr_assert_eq(call_large(&r, FAR_SEC, sizeof large_bytes), 0);
	passes(1);
	announced(&a);
	put_about(PACKET_GRANT, FAR_RENDEZVOUS_LANES, 1, sizeof large_bytes, 0);
	expect_poisoned("a grant for no lane");
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes + 1, 0);
	expect_poisoned("more than there is");
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes - 1, 0);
	expect_poisoned("less than there is");
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes, 2);
	expect_poisoned("more packets than were sent");
	take_fragments(0);
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes, 1);
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes, 1);
	expect_poisoned("a second grant");
	put_about(PACKET_CREDIT, 0, 0, 0, 0);
	expect_poisoned("an acknowledgement taken back");
	put_about(PACKET_REFUSE, FAR_RENDEZVOUS_LANES, a.epoch, 0, 1);
	expect_poisoned("a refusal of no lane");
	put_about(PACKET_CREDIT, 0, 0, 1, 1);
	expect_poisoned("credit for what was not sent");
	put(NIC_PEER, (union packet_head){.type = PACKET_GRANT}, bytes, 7);
	expect_poisoned("a short body");
	put(NIC_PEER, (union packet_head){.type = PACKET_CREDIT}, bytes, 100);
	expect_poisoned("a long body");
	cr_assert_eq(released, 0);
}

Test(rendezvous_send, no_bulk_memory_for_a_fragment)
{
	static struct result r;
	struct packet_rendezvous a;
	cr_assert_eq(call_large(&r, FAR_SEC, TOTAL), 0);
	passes(1);
	announced(&a);
	put_about(PACKET_GRANT, a.lane, a.epoch, TOTAL, 1);
	queue->no_bulk = true;
	passes(3);
	expect_nothing();
	cr_assert(shard->send_stalled, "it must look again by itself");
	queue->no_bulk = false;
	passes(1);
	cr_assert_eq(take_data(&a, 0), (uint64_t)TOTAL);
	cr_assert_not(shard->send_stalled);
}

/* Revoked memory is not read again. */
Test(rendezvous_send, revoked_in_the_middle)
{
	static struct result r;
	struct packet_rendezvous a;
	union packet_head h;
	struct rendezvous_out *o = large_message(sizeof large_bytes);
	struct call_start start = {.worker = PEER,
				   .deadline = TIME_NEVER,
				   .left = FAR_FOREVER,
				   .done = take_result,
				   .user = &r,
				   .len = sizeof large_bytes,
				   .ready = o->self};
	cr_assert_eq(shard_call(shard, &start), 0);
	passes(1);
	announced(&a);
	put_about(PACKET_GRANT, a.lane, a.epoch, sizeof large_bytes, 1);
	passes(20);
	take_fragments(FAR_RENDEZVOUS_PACKETS);
	rendezvous_out_revoke(o);
	rendezvous_out_revoke(o);
	rendezvous_out_unref(o);
	put_about(PACKET_CREDIT, 0, 0, 0, 2);
	passes(2);
	cr_assert_eq(released, 1);
	sent(&h, PACKET_ABORT);
	expect_nothing();
}

/* ---- replies ---- */

/* A long reply to our call. Expect it put together. */
Test(rendezvous_send, a_reply_in_fragments)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	announce_as((union packet_head){.call = {.slot = h.call.slot, .generation = h.call.generation}}, PACKET_REPLY,
		    0, 1, 400);
	passes(1);
	expect_grant(0, 1, 400);
	put_data(0, 1, 0, bytes, 300);
	passes(2);
	cr_assert_eq(r.n, 0u);
	put_data(0, 1, 300, bytes + 300, 100);
	passes(2);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.len, 400u);
	cr_assert_eq(memcmp(r.bytes, bytes, 400), 0);
}

/* The deadline passes while the reply arrives; a reply to a call that has ended; to one that never was. */
Test(rendezvous_send, replies_that_nobody_awaits)
{
	static struct result r, late;
	union packet_head p, h = called(&r, 2 * FAR_MS), gone = called(&late, FAR_MS);
	announce_as((union packet_head){.call = {.slot = h.call.slot, .generation = h.call.generation}}, PACKET_REPLY,
		    0, 1, 400);
	passes(1);
	expect_grant(0, 1, 400);
	put_data(0, 1, 0, bytes, 300);
	passes(1);
	advance(2 * FAR_MS);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_YES);
	unsigned cancels = 0, refused = 0;
	while (fake_queue_sent(queue, &p)) {
		cancels += p.type == PACKET_CANCEL;
		refused += p.type == PACKET_REFUSE;
	}
	cr_assert_eq(cancels, 1u, "of the other call");
	cr_assert_eq(refused, 1u);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	announce_as((union packet_head){.call = {.slot = gone.call.slot, .generation = gone.call.generation}},
		    PACKET_REPLY, 0, 2, 400);
	announce_as((union packet_head){.call = {.slot = 77, .generation = 1}}, PACKET_REPLY, 1, 1, 400);
	announce_as((union packet_head){.call = {.slot = UINT32_MAX, .generation = 1}}, PACKET_REPLY, 2, 1, 400);
	passes(1);
	for (refused = 0; fake_queue_sent(queue, &p);)
		refused += p.type == PACKET_REFUSE;
	cr_assert_eq(refused, 3u);
	cr_assert_eq(shard->counters.replies_late, 1u);
	cr_assert_eq(shard->sessions[PEER].calls_active, 0);
}

/* The callee gives its reply up; a second answer comes while the first is under way. */
Test(rendezvous_send, replies_that_end_otherwise)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	announce_as((union packet_head){.call = {.slot = h.call.slot, .generation = h.call.generation}}, PACKET_REPLY,
		    0, 1, 400);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	passes(1);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_REMOTE);
	cr_assert_eq(r.executed, FAR_EXECUTED_YES);
	passes(1);
	while (fake_queue_sent(queue, &h))
		;
	h = called(&r, FAR_SEC);
	announce_as((union packet_head){.call = {.slot = h.call.slot, .generation = h.call.generation}}, PACKET_REPLY,
		    0, 2, 400);
	put_data(0, 2, 0, bytes, 300);
	answer(h, PACKET_REPLY, 0, 0, "second");
	cr_assert_eq(r.n, 1u);
	put_data(0, 2, 300, bytes, 100);
	passes(3);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
}

/* A handler's long answer and a deferred one; the caller gives one up before it was announced. */
Test(rendezvous_send, long_answers)
{
	union packet_head h;
	struct packet_rendezvous a;
	put_request(MSG_ALLOC, 1, NULL, 0);
	put_request(MSG_DEFER, 2, NULL, 0);
	passes(2);
	h = announced(&a);
	cr_assert_eq(h.call.slot, 1u);
	cr_assert_eq(h.type, PACKET_REPLY);
	cr_assert_eq(a.total, 1000u);
	cr_assert_eq(far_deferred_reply(kept[0], bytes, 500), FAR_OK);
	passes(2);
	h = announced(&a);
	cr_assert_eq(h.call.slot, 2u);
	cr_assert_eq(a.total, 500u);
	put_about(PACKET_GRANT, a.lane, a.epoch, 500, 2);
	passes(2);
	cr_assert_eq(take_data(&a, 0), 500u);
	cr_assert_eq(memcmp(got, bytes, 500), 0);
	for (uint32_t i = 3; i < 8; i++)
		put_request(MSG_ALLOC, i, NULL, 0);
	passes(2);
	for (unsigned i = 0; i < 3; i++)
		announced(&a);
	expect_nothing();
	put_cancel(7); /* waits for a lane */
	put_cancel(1); /* announced: its answer is on the way */
	passes(1);
	expect(&h, PACKET_CANCELLED, 7);
	expect_nothing();
	/* Too long for the caller. */
	shard->sessions[PEER].message_max = 999;
	put_request(MSG_DEFER, 9, NULL, 0);
	passes(1);
	cr_assert_eq(far_deferred_reply(kept[1], bytes, 1000), FAR_TOO_LARGE);
	passes(1);
	expect_error(9, FAR_TOO_LARGE, FAR_EXECUTED_YES, "max_message_bytes");
}

/* ---- one-way ---- */

/* A long one between small ones. Expect the order kept on both sides. */
Test(rendezvous_send, a_long_one_way_keeps_its_place)
{
	union packet_head h, one = request(MSG_SILENT, 0, UINT64_MAX);
	struct packet_rendezvous a;
	uint32_t tag = 5;
	struct rendezvous_out *o = large_message(TOTAL);
	struct call_start start = {.worker = PEER, .fn = MSG_ECHO, .deadline = TIME_NEVER, .len = TOTAL};
	atomic_fetch_add(&shard->oneways_queued[PEER], 1);
	oneway_enqueue(shard, PEER, 0, oneway_new(&start, o));
	rendezvous_out_unref(o);
	cr_assert_eq(oneway(1), 0);
	passes(2);
	announced(&a);
	expect_nothing();
	put_about(PACKET_GRANT, a.lane, a.epoch, TOTAL, 1);
	passes(1);
	sent(&h, PACKET_DATA);
	passes(1);
	sent(&h, PACKET_ONEWAY);
	cr_assert_eq(released, 1);
	/* Receiving: its fragments are there and not copied when the small one comes. */
	announce(PACKET_ONEWAY, MSG_SILENT, 0, 0, 1, 3000);
	for (unsigned i = 0; i < 3; i++)
		put_data(0, 1, i * 1000u, bytes, 1000);
	one.type = PACKET_ONEWAY;
	put(NIC_PEER, one, &tag, sizeof tag);
	passes(1);
	cr_assert_eq(ran, 2u);
	cr_assert_eq(order[1], 5u);
}
