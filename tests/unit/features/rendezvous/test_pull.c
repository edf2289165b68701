/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that the receiver copies from the sender's memory: both ends, their memory in this process, packet by
 * packet; peers that lie, and ends in every phase. The test's thread. */
#include "base/rref.h"
#include "core/call_cancel.h"
#include "core/packet.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

enum { BIG = 3 * FAR_CHUNK_BYTES + 100 };

static uint8_t big[BIG], copy[BIG];
static uint32_t call_no;

static void setup_pull(void)
{
	setup();
	fake_queue_pulls(queue);
	for (unsigned i = 0; i < BIG; i++)
		big[i] = (uint8_t)(i * 5 + i / 256);
	memset(copy, 0, sizeof copy);
	call_no = 10;
}

TestSuite(rendezvous_pull, .init = setup_pull, .fini = teardown);

/* ---- sending ---- */

static struct rendezvous_out *message(const size_t *lens, unsigned n)
{
	struct rendezvous_out *o = rendezvous_out_new();
	cr_assert_not_null(o);
	for (unsigned i = 0; i < n; i++) {
		o->parts[i] = (struct far_part){lens[i] ? big + o->total : NULL, lens[i]};
		o->total += lens[i];
	}
	o->parts_n = n;
	o->released = true;
	o->release = on_release;
	return o;
}

static struct rendezvous_out *one_part(size_t len)
{
	return message(&len, 1);
}

/* An announcement. */
struct large {
	uint32_t lane, epoch;
	uint64_t total, offer;
};

/* The next RENDEZVOUS. Returns the parts that it offers. */
static unsigned announced(struct large *large, struct packet_part *parts)
{
	union packet_head h;
	struct packet_announced a = {.parts_n = 0};
	const struct fake_packet *p = sent(&h, PACKET_RENDEZVOUS);
	cr_assert_leq(p->body_len, sizeof a);
	memcpy(&a, fake_body(p), p->body_len);
	cr_assert_eq(p->body_len, packet_announced_bytes(a.parts_n));
	*large = (struct large){h.rendezvous.lane, h.rendezvous.epoch, h.rendezvous.total, a.offer};
	memcpy(parts, a.parts, a.parts_n * sizeof *parts);
	return a.parts_n;
}

static struct packet_offer offer_of(const struct large *a)
{
	struct packet_offer found;
	memcpy(&found, (const void *)(uintptr_t)a->offer, sizeof found);
	return found;
}

static void put_pulled(const struct large *a, uint64_t total, uint64_t units)
{
	struct packet_acked body = {units};
	union packet_head h = {.grant = {.type = PACKET_GRANT,
					 .flags = PACKET_PULLED,
					 .lane = a->lane,
					 .epoch = a->epoch,
					 .granted = total}};
	put(NIC_PEER, h, &body, sizeof body);
}

Test(rendezvous_pull, an_offered_call)
{
	static struct result r;
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	cr_assert_eq(call_with(&r, FAR_SEC, one_part(BIG)), 0);
	passes(2);
	cr_assert_eq(announced(&a, parts), 1u);
	cr_assert_eq(parts[0].at, (uint64_t)(uintptr_t)big);
	cr_assert_eq(parts[0].len, (uint64_t)BIG);
	cr_assert_eq(a.total, (uint64_t)BIG);
	struct packet_offer found = offer_of(&a);
	cr_assert_eq(found.from, rref_incarnation(SELF, shard->config.incarnation));
	cr_assert_eq(found.to, shard->sessions[PEER].incarnation);
	cr_assert_eq(found.tag, packet_offer_tag(a.lane, a.epoch, 0, 0));
	cr_assert_eq(released, 0);
	put_pulled(&a, BIG, 1);
	passes(1);
	cr_assert_eq(released, 1);
	cr_assert_eq(shard->calls[0].state, CALL_SENT);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	put_pulled(&a, BIG, 1); /* a second one is of no lane */
	passes(1);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	expect_nothing();
}

Test(rendezvous_pull, what_is_offered)
{
	static struct result r[6];
	static const size_t some[] = {100, 0, FAR_CHUNK_BYTES, 0, 7, 9}, many[] = {9000, 9000, 9000, 9000, 9000};
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	cr_assert_eq(call_with(&r[0], FAR_SEC, message(some, 6)), 0);
	cr_assert_eq(call_with(&r[1], FAR_SEC, message(many, 5)), 0);
	cr_assert_eq(call_with(&r[2], FAR_SEC, one_part(FAR_PULL_BYTES_MIN - 1)), 0);
	cr_assert_eq(call_with(&r[3], FAR_SEC, one_part(FAR_PULL_BYTES_MIN)), 0);
	passes(2);
	cr_assert_eq(announced(&a, parts), 4u);
	for (unsigned i = 0, at = 0; i < 4; at += (unsigned)parts[i++].len)
		cr_assert_eq(parts[i].at, (uint64_t)(uintptr_t)(big + at));
	cr_assert_eq(parts[3].len, 9u);
	cr_assert_eq(announced(&a, parts), 0u, "more parts than an offer has");
	cr_assert_eq(a.offer, 0u);
	cr_assert_eq(announced(&a, parts), 0u, "too short");
	cr_assert_eq(announced(&a, parts), 1u);
}

/* Expect no offer to a peer that cannot pull, and none for which there is no bulk memory. */
Test(rendezvous_pull, a_peer_that_cannot)
{
	static struct result r[2];
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	for (unsigned i = 0; i < 2; i++) {
		queue->pulls = i;
		queue->no_bulk = i;
		cr_assert_eq(call_with(&r[i], FAR_SEC, one_part(BIG)), 0);
		passes(2);
		cr_assert_eq(announced(&a, parts), 0u);
	}
}

/* The receiver cannot after all: it grants. */
Test(rendezvous_pull, granted_instead)
{
	static struct result r;
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	union packet_head h;
	const struct fake_packet *p;
	uint64_t at = 0;
	cr_assert_eq(call_with(&r, FAR_SEC, one_part(FAR_PULL_BYTES_MIN)), 0);
	passes(2);
	announced(&a, parts);
	put_about(PACKET_GRANT, a.lane, a.epoch, a.total, 1);
	passes(3);
	while ((p = fake_queue_sent(queue, &h))) {
		cr_assert_eq(h.type, PACKET_DATA);
		cr_assert_eq(memcmp(fake_body(p), big + at, p->body_len), 0);
		at += p->body_len;
	}
	cr_assert_eq(at, a.total);
	cr_assert_eq(released, 1);
}

static struct rendezvous_out *watched_out;
static uint64_t tag_at_release;
static void on_release_watched(void *user)
{
	tag_at_release = atomic_load(&watched_out->offer.tag);
	released++;
}

/* Revoked, out of time, refused, session down: expect the offer withdrawn before the memory is released. */
Test(rendezvous_pull, withdrawn_before_it_is_released)
{
	static struct result r[4];
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	for (unsigned how = 0; how < 4; how++) {
		struct rendezvous_out *o = one_part(BIG);
		o->release = on_release_watched;
		watched_out = o;
		rendezvous_out_ref(o);
		cr_assert_eq(call_with(&r[how], how == 1 ? FAR_MS : FAR_FOREVER, o), 0);
		passes(2);
		while (fake_queue_sent(queue, &(union packet_head){.type = 0}) && queue->out_read < queue->out_n)
			;
		queue->out_read = queue->out_n - 1;
		announced(&a, parts);
		cr_assert_neq(offer_of(&a).tag, 0u);
		cr_assert_eq(released, (int)how);
		if (how == 0)
			rendezvous_out_revoke(o);
		if (how == 0)
			cr_assert_eq(offer_of(&a).tag, 0u, "the memory is the caller's again");
		if (how == 0)
			put_about(PACKET_GRANT, a.lane, a.epoch, a.total, how + 1);
		if (how == 1)
			advance(2 * FAR_MS);
		if (how == 2)
			put_about(PACKET_REFUSE, a.lane, a.epoch, 0, how + 1);
		if (how == 3)
			mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
		passes(2);
		tag_at_release = 1;
		rendezvous_out_unref(o);
		cr_assert_eq(released, (int)how + 1);
		cr_assert_eq(tag_at_release, 0u);
	}
}

/* A call that ends while its request is offered may run: expect executed MAYBE and CANCEL, and the slot kept. */
Test(rendezvous_pull, cancelled_while_it_is_offered)
{
	static struct result r[2];
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	union packet_head h;
	for (unsigned how = 0; how < 2; how++) { /* then it runs out of time */
		cr_assert_eq(call_with(&r[how], how ? FAR_MS : FAR_FOREVER, one_part(BIG)), 0);
		passes(2);
		announced(&a, parts);
		if (how)
			advance(2 * FAR_MS);
		else
			cr_assert(call_cancel(shard, &(struct call_id){1, shard->calls[0].gen}));
		cr_assert_eq(r[how].n, 1u);
		cr_assert_eq(r[how].status, how ? FAR_TIMEOUT : FAR_CANCELLED);
		cr_assert_eq(r[how].executed, FAR_EXECUTED_MAYBE);
		cr_assert_eq(released, (int)how + 1);
		sent(&h, PACKET_CANCEL);
		passes(1);
		sent(&h, PACKET_ABORT);
		put_pulled(&a, BIG, 2 * how + 1); /* crossed */
		passes(1);
		cr_assert_eq(shard->sessions[PEER].calls_active, 1);
		put(NIC_PEER,
		    (union packet_head){.reply = {.type = PACKET_REPLY, .slot = 0, .generation = shard->calls[0].gen}},
		    NULL, 0);
		passes(1);
		cr_assert_eq(shard->sessions[PEER].calls_active, 0);
		cr_assert_eq(r[how].n, 1u);
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* A revoked message is not offered: it never has a tag. */
Test(rendezvous_pull, revoked_before_it_is_announced)
{
	static struct result r;
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	struct rendezvous_out *o = one_part(BIG);
	rendezvous_out_revoke(o);
	cr_assert_eq(call_with(&r, FAR_SEC, o), 0);
	passes(2);
	cr_assert_eq(announced(&a, parts), 0u);
}

Test(rendezvous_pull, an_end_that_nobody_offered)
{
	static struct result r[2];
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	cr_assert_eq(call_with(&r[0], FAR_SEC, one_part(BIG)), 0);
	cr_assert_eq(call_with(&r[1], FAR_SEC, one_part(TOTAL)), 0);
	passes(2);
	announced(&a, parts);
	put_pulled(&a, BIG - 1, 1);
	expect_poisoned("less than the message");
	cr_assert_eq(announced(&a, parts), 0u);
	put_pulled(&a, TOTAL, 2);
	expect_poisoned("it was not offered");
	cr_assert_eq(released, 0);
}

/* ---- receiving ---- */

/* A message of the peer, in our own memory. */
struct offered {
	union packet_head h;
	struct packet_announced a;
};
static struct packet_offer their_offer;

static struct offered offered(enum packet_type type, unsigned lane, uint32_t epoch, uint64_t total)
{
	struct offered o = {.h.rendezvous = {.type = PACKET_RENDEZVOUS, .lane = lane, .epoch = epoch, .total = total},
			    .a = {.parts_n = 1, .offer = (uintptr_t)&their_offer}};
	o.a.parts[0] = (struct packet_part){(uintptr_t)big, total};
	o.a.head.type = (uint8_t)type;
	their_offer = (struct packet_offer){shard->sessions[PEER].incarnation,
					    rref_incarnation(SELF, shard->config.incarnation),
					    packet_offer_tag(lane, epoch, 0, 0)};
	return o;
}

static void put_offer(struct offered *o, union packet_head message)
{
	message.type = o->a.head.type;
	o->a.head = message;
	put(NIC_PEER, o->h, &o->a, packet_announced_bytes(o->a.parts_n));
}

static void offer_request(struct offered *o)
{
	put_offer(o, request(MSG_SILENT, ++call_no, UINT64_MAX));
}

static void expect_pulled(unsigned lane, uint32_t epoch, uint64_t total)
{
	union packet_head h;
	const struct fake_packet *p = sent(&h, PACKET_GRANT);
	cr_assert_eq(h.flags, PACKET_PULLED);
	cr_assert_eq(h.grant.lane, lane);
	cr_assert_eq(h.grant.epoch, epoch);
	cr_assert_eq(h.grant.granted, total);
	cr_assert_eq(p->body_len, sizeof(struct packet_acked));
}

/* One piece in a pass, the handler when all are there, with the bytes. */
Test(rendezvous_pull, a_request_piece_by_piece)
{
	struct offered o = offered(PACKET_REQUEST, 2, 7, BIG);
	put_offer(&o, request(MSG_ECHO, 3, UINT64_MAX));
	for (unsigned i = 1; i < 4; i++) {
		passes(1);
		cr_assert_eq(queue->pull_n, i);
		cr_assert_eq(ran, 0u);
		expect_nothing();
	}
	passes(1);
	cr_assert_eq(ran, 1u);
	cr_assert_geq(shard->counters.bytes_received, (uint64_t)BIG);
	expect_pulled(2, 7, BIG);
	passes(1);
	/* The echo lies in our memory: what was received is what was sent. */
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	cr_assert_eq(announced(&a, parts), 1u);
	cr_assert_eq(a.total, (uint64_t)BIG);
	cr_assert_eq(memcmp((const void *)(uintptr_t)parts[0].at, big, BIG), 0);
	cr_assert_eq(shard->sessions[PEER].rendezvous->packets_received, 1u);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

static void check_parts(const size_t *lens, unsigned n)
{
	struct offered o = offered(PACKET_REPLY, 0, 1, BIG);
	static struct result r;
	uint64_t at = 0;
	o.a.parts_n = n;
	for (unsigned i = 0; i < n; i++) {
		o.a.parts[i] = (struct packet_part){(uintptr_t)big + at, lens[i]};
		at += lens[i];
	}
	cr_assert_eq(at, (uint64_t)BIG);
	cr_assert_eq(call(&r, FAR_SEC, "?", 1), 0);
	passes(1);
	union packet_head h;
	sent(&h, PACKET_REQUEST);
	put_offer(&o, (union packet_head){.reply = {.slot = h.call.slot, .generation = h.call.generation}});
	passes(6);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(r.len, (size_t)BIG);
	cr_assert_eq(memcmp(r.bytes, big, sizeof r.bytes), 0);
	expect_pulled(0, 1, BIG);
}

Test(rendezvous_pull, a_reply_in_parts)
{
	check_parts((const size_t[]){1, FAR_CHUNK_BYTES - 1, 5, BIG - FAR_CHUNK_BYTES - 5}, 4);
}

/* Announcements that do not add up. */
Test(rendezvous_pull, offers_that_lie)
{
	for (unsigned how = 0; how < 7; how++) {
		struct offered o = offered(PACKET_REQUEST, 0, 1, BIG);
		size_t len = packet_announced_bytes(2);
		o.a.parts_n = 2;
		o.a.parts[0] = (struct packet_part){(uintptr_t)big, 100};
		o.a.parts[1] = (struct packet_part){(uintptr_t)big, BIG - 100};
		if (how == 0)
			o.a.parts[1].len--;
		else if (how == 1)
			o.a.parts[1].len++;
		else if (how == 2) /* the sum wraps */
			o.a.parts[0].len = UINT64_MAX - 49, o.a.parts[1].len = BIG + 50;
		else if (how == 3)
			o.a.parts[0].len = 0, o.a.parts[1].len = BIG;
		else if (how == 4)
			o.a.parts_n = FAR_PULL_PARTS_MAX + 1;
		else if (how == 5)
			len -= 1;
		else
			o.a.parts_n = 0;
		o.a.head = request(MSG_SILENT, 3, UINT64_MAX);
		put(NIC_PEER, o.h, &o.a, len);
		expect_poisoned("an offer that lies");
	}
	cr_assert_eq(queue->pull_n, 0u);
}

/* The memory is gone, or the offer is of something else: expect a grant of everything from the start. */
Test(rendezvous_pull, what_cannot_be_pulled_is_granted)
{
	for (uint32_t how = 0; how < 6; how++) {
		struct offered o = offered(PACKET_REQUEST, 0, how + 1, FAR_PULL_BYTES_MIN);
		queue->pull_error = how == 0 ? -EFAULT : how == 1 ? -EOPNOTSUPP : 0;
		if (how == 2)
			their_offer.tag = 0;
		if (how == 3)
			their_offer.tag += UINT64_C(1) << 32; /* the next message of the lane */
		if (how == 4)
			their_offer.from++;
		if (how == 5)
			their_offer.to++;
		offer_request(&o);
		passes(3);
		expect_grant(0, how + 1, FAR_PULL_BYTES_MIN);
		expect_nothing();
		cr_assert_eq(ran, how);
		put_data(0, how + 1, 0, big, FAR_PULL_BYTES_MIN);
		passes(2);
		cr_assert_eq(ran, how + 1);
		while (fake_queue_sent(queue, &(union packet_head){.type = 0}))
			;
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

static void withdraw_and_rewrite(void)
{
	if (queue->pull_n == 2) {
		their_offer.tag = 0;
		memset(big, 0xaa, sizeof big);
	}
}

/* Withdrawn in the middle: what was rewritten never runs. */
Test(rendezvous_pull, withdrawn_in_the_middle)
{
	struct offered o = offered(PACKET_REQUEST, 0, 1, BIG);
	union packet_head h;
	queue->pulled = withdraw_and_rewrite;
	offer_request(&o);
	passes(6);
	cr_assert_eq(queue->pull_n, 4u);
	cr_assert_eq(ran, 0u);
	expect_grant(0, 1, BIG);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	passes(1);
	sent(&h, PACKET_CANCELLED);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
}

static void gone_after_two(void)
{
	if (queue->pull_n == 2)
		queue->pull_error = -EFAULT;
}

/* Not to be had in the middle: expect all of it granted, and delivered from the first byte on. */
Test(rendezvous_pull, granted_in_the_middle)
{
	struct offered o = offered(PACKET_REQUEST, 0, 1, BIG);
	union packet_head h;
	queue->pulled = gone_after_two;
	put_offer(&o, request(MSG_ECHO, 3, UINT64_MAX));
	passes(3);
	expect_grant(0, 1, BIG);
	for (unsigned at = 0; at < BIG; at += FAR_CHUNK_BYTES) {
		cr_assert_eq(ran, 0u);
		put_data(0, 1, at, big + at, BIG - at < FAR_CHUNK_BYTES ? BIG - at : FAR_CHUNK_BYTES);
		passes(1);
	}
	passes(2);
	cr_assert_eq(ran, 1u);
	while (fake_queue_sent(queue, &h) && h.type == PACKET_CREDIT)
		;
	cr_assert_eq(h.type, PACKET_RENDEZVOUS);
	queue->out_read--;
	struct large a;
	struct packet_part parts[FAR_PULL_PARTS_MAX];
	cr_assert_eq(announced(&a, parts), 1u);
	cr_assert_eq(memcmp((const void *)(uintptr_t)parts[0].at, big, BIG), 0);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* Its end crosses the sender's ABORT; another ABORT, or one of another message, is an error. */
Test(rendezvous_pull, an_abort_that_crosses_the_end)
{
	struct offered o = offered(PACKET_REQUEST, 0, 1, FAR_PULL_BYTES_MIN);
	offer_request(&o);
	passes(2);
	cr_assert_eq(ran, 1u);
	expect_pulled(0, 1, FAR_PULL_BYTES_MIN);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	passes(1);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(shard->sessions[PEER].rendezvous->packets_received, 2u);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	expect_poisoned("a second ABORT");
	o = offered(PACKET_REQUEST, 0, 2, FAR_PULL_BYTES_MIN);
	offer_request(&o);
	passes(2);
	cr_assert_eq(ran, 2u);
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	expect_poisoned("an ABORT of an earlier message");
	put_data(0, 2, 0, big, 100);
	expect_poisoned("a fragment of a message that was pulled");
}

/* Given up while it is pulled: by the sender, its CANCEL, its deadline, and the end of its process. */
Test(rendezvous_pull, given_up_in_the_middle)
{
	union packet_head h;
	for (uint32_t how = 0; how < 4; how++) {
		struct offered o = offered(PACKET_REQUEST, 0, how + 1, BIG);
		unsigned before = queue->pull_n;
		put_offer(&o, request(MSG_SILENT, 3, how == 2 ? FAR_MS : UINT64_MAX));
		passes(2);
		cr_assert_eq(queue->pull_n, before + 2);
		if (how == 0)
			put_about(PACKET_ABORT, 0, how + 1, 0, 0);
		else if (how == 1)
			put_cancel(3);
		else if (how == 2)
			advance(2 * FAR_MS);
		queue->pull_error = how == 3 ? -EOPNOTSUPP : 0;
		if (how == 3)
			mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
		unsigned then = queue->pull_n;
		passes(4);
		cr_assert_leq(queue->pull_n, then + (how != 3), "nothing is read any more");
		cr_assert_eq(ran, 0u);
		cr_assert_eq(shard->counters.rendezvous_active, 0u);
		while (fake_queue_sent(queue, &h))
			cr_assert(h.type == PACKET_CANCELLED || h.type == PACKET_REFUSE || h.type == PACKET_CREDIT ||
				  (h.type == PACKET_GRANT && !h.flags)); /* it cannot pull */
		if (how == 1 || how == 2)
			put_about(PACKET_ABORT, 0, how + 1, 0, 0);
		passes(1);
		cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	}
}

/* Of several the shortest is read first, and the longest gets its turn. */
Test(rendezvous_pull, short_ones_first_and_none_starves)
{
	struct offered o = offered(PACKET_REQUEST, 0, 1, BIG);
	struct packet_offer first = their_offer;
	static struct packet_offer firsts_offer;
	firsts_offer = first;
	o.a.offer = (uintptr_t)&firsts_offer;
	offer_request(&o);
	passes(1);
	const struct rendezvous_lane *in = shard->sessions[PEER].rendezvous->in;
	for (uint32_t n = 0, epoch = 1; n < 60 && in[0].open; n++) {
		if (!in[1].open) { /* there is always a short one */
			struct offered s = offered(PACKET_REQUEST, 1, epoch++, FAR_PULL_BYTES_MIN);
			offer_request(&s);
		}
		passes(1);
		cr_assert(n || ran == 1, "the short one first");
	}
	cr_assert_not(in[0].open, "it starved");
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* A driver that cannot pull: an offer is an announcement. */
Test(rendezvous_pull, a_driver_without_it)
{
	struct offered o = offered(PACKET_REQUEST, 0, 1, FAR_PULL_BYTES_MIN);
	fake_queue_takes_zero_copy(queue);
	offer_request(&o);
	passes(1);
	expect_grant(0, 1, FAR_PULL_BYTES_MIN);
}
