/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that are read in the sender's memory: both ends, packet by packet; who holds each byte until when; peers
 * that lie; ends in every phase. The test's thread. */
#include "core/call_cancel.h"
#include "core/packet.h"
#include "core/request.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

enum { BIG = 3 * FAR_CHUNK_BYTES + 100, MSG_KEEP = 50 };

static _Alignas(64) uint8_t big[BIG + 8];
static uint32_t call_no;
static struct far_buf *reader; /* the reference that a handler of MSG_KEEP has */
static const uint8_t *seen;
static size_t seen_len;

/* As a fiber handler: it reads on after dispatch has returned. */
static void keep(struct far_req *req, const void *data, size_t len, void *user)
{
	seen = data;
	seen_len = len;
	if (shard->body && shard->body->buf && user)
		buf_ref(reader = shard->body->buf);
	far_reply(req, "ok", 2);
}

static int keeps = 1;

static void setup_refer(void)
{
	setup();
	fake_queue_refers(queue);
	for (unsigned i = 0; i < BIG; i++)
		big[i] = (uint8_t)(i * 5 + i / 256);
	call_no = 10;
	reader = NULL;
	seen = NULL;
	struct far_msg_handler kept_one = {MSG_KEEP, FAR_KIND_INLINE, keep, &keeps};
	struct far_msg_handler read_one = {MSG_KEEP + 1, FAR_KIND_INLINE, keep, NULL};
	cr_assert_eq(registry_add_message(&registry, &kept_one, NULL), FAR_OK);
	cr_assert_eq(registry_add_message(&registry, &read_one, NULL), FAR_OK);
}

static void teardown_refer(void)
{
	struct rendezvous_peer *p = shard->sessions[PEER].rendezvous;
	session_close_all(shard);
	cr_assert(!p || (!p->referred && !p->referred_n && !p->views_n));
	cr_assert_eq(queue->maps_n, 0u, "a mapping is held");
	teardown();
}

TestSuite(rendezvous_refer, .init = setup_refer, .fini = teardown_refer);

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

static struct packet_announced announced(union packet_head *h)
{
	struct packet_announced a = {.parts_n = 0};
	const struct fake_packet *p = sent(h, PACKET_RENDEZVOUS);
	cr_assert_leq(p->body_len, sizeof a);
	memcpy(&a, fake_body(p), p->body_len);
	return a;
}

static void put_end(const union packet_head *of, unsigned flags, uint64_t packets)
{
	struct packet_acked body = {packets};
	union packet_head h = {.grant = {.type = PACKET_GRANT,
					 .flags = (uint8_t)flags,
					 .lane = of->rendezvous.lane,
					 .epoch = of->rendezvous.epoch,
					 .granted = of->rendezvous.total}};
	put(NIC_PEER, h, &body, sizeof body);
}

/* A call of one part of `len` bytes, announced. */
static union packet_head send(struct result *r, uint64_t timeout, size_t len)
{
	union packet_head h;
	cr_assert_eq(call_with(r, timeout, one_part(len)), 0);
	passes(2);
	announced(&h);
	cr_assert_eq(h.flags, PACKET_REFERRED);
	return h;
}

Test(rendezvous_refer, held_until_nobody_reads_it)
{
	static struct result r;
	union packet_head h;
	static const size_t lens[] = {100, 0, FAR_CHUNK_BYTES, BIG - FAR_CHUNK_BYTES - 100};
	cr_assert_eq(call_with(&r, FAR_SEC, message(lens, 4)), 0);
	passes(2);
	struct packet_announced a = announced(&h);
	cr_assert_eq(h.flags, PACKET_REFERRED);
	cr_assert_eq(h.rendezvous.total, (uint64_t)BIG);
	cr_assert_eq(a.parts_n, 3u);
	cr_assert_eq(a.offer, 0u);
	cr_assert_eq(a.parts[1].at, (uint64_t)(uintptr_t)(big + 100));
	cr_assert_eq(a.parts[1].len, (uint64_t)FAR_CHUNK_BYTES);
	put_end(&h, PACKET_PULLED | PACKET_KEPT, 1);
	passes(2);
	cr_assert_eq(shard->calls[0].state, CALL_SENT);
	cr_assert_eq(shard->counters.rendezvous_active, 0u);
	cr_assert_null(shard->sessions[PEER].rendezvous->out[0].out, "the lane is free");
	put(NIC_PEER, (union packet_head){.reply = {.type = PACKET_REPLY, .generation = shard->calls[0].gen}}, NULL, 0);
	passes(2);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(released, 0, "it is still read");
	put_end(&h, PACKET_PULLED, 1);
	passes(1);
	cr_assert_eq(released, 1);
	put_end(&h, PACKET_PULLED, 1);
	passes(1);
	cr_assert_eq(released, 1);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

/* A receiver that copies it, or takes it in fragments after all. */
Test(rendezvous_refer, not_read_in_place)
{
	static struct result r[2];
	union packet_head h = send(&r[0], FAR_SEC, BIG);
	put_end(&h, PACKET_PULLED, 1);
	passes(1);
	cr_assert_eq(released, 1);
	h = send(&r[1], FAR_SEC, FAR_PULL_BYTES_MIN);
	put_about(PACKET_GRANT, h.rendezvous.lane, h.rendezvous.epoch, h.rendezvous.total, 2);
	passes(3);
	const struct fake_packet *p = sent(&h, PACKET_DATA);
	cr_assert_eq(memcmp(fake_body(p), big, p->body_len), 0);
	cr_assert_eq(released, 2);
}

/* Borrowed memory, memory that is not mapped, more parts than an announcement has: expect no reference. */
Test(rendezvous_refer, what_is_not_referred)
{
	static struct result r[3];
	static const size_t many[] = {9000, 9000, 9000, 9000, 9000};
	union packet_head h;
	struct rendezvous_out *o = one_part(BIG);
	o->released = false;
	cr_assert_eq(call_with(&r[0], FAR_SEC, o), 0);
	passes(2);
	cr_assert_eq(announced(&h).parts_n, 0u);
	cr_assert_eq(h.flags, 0);
	cr_assert_eq(call_with(&r[1], FAR_SEC, message(many, 5)), 0);
	passes(2);
	cr_assert_eq(announced(&h).parts_n, 0u);
	queue->refer_error = -EAGAIN;
	cr_assert_eq(call_with(&r[2], FAR_SEC, one_part(BIG)), 0);
	passes(2);
	cr_assert_eq(announced(&h).parts_n, 0u);
	cr_assert_eq(h.flags, 0);
}

/* No bulk memory for the parts: announced without them, and without the flag. */
Test(rendezvous_refer, no_room_for_the_references)
{
	static struct result r;
	union packet_head h;
	queue->no_bulk = true;
	cr_assert_eq(call_with(&r, FAR_MS, one_part(BIG)), 0);
	passes(2);
	cr_assert_eq(announced(&h).parts_n, 0u);
	cr_assert_eq(h.flags, 0);
	advance(2 * FAR_MS);
	passes(2);
	cr_assert_eq(released, 1, "the receiver never knew of the memory");
}

/* The call ends first: the receiver may read on. Expect the memory held until REFUSE, an end, or a grant. */
Test(rendezvous_refer, out_of_time_while_it_may_be_read)
{
	static struct result r[4];
	for (unsigned how = 0; how < 4; how++) {
		union packet_head got, h = send(&r[how], FAR_MS, BIG);
		advance(2 * FAR_MS);
		cr_assert_eq(r[how].status, FAR_TIMEOUT);
		cr_assert_eq(r[how].executed, FAR_EXECUTED_MAYBE);
		sent(&got, PACKET_CANCEL);
		passes(2);
		sent(&got, PACKET_ABORT);
		cr_assert_eq(released, (int)how);
		if (how == 0)
			put_end(&h, PACKET_PULLED | PACKET_KEPT, 2 * how + 1); /* it crossed the ABORT */
		passes(2);
		cr_assert_eq(released, (int)how);
		if (how == 2)
			put_about(PACKET_REFUSE, h.rendezvous.lane, h.rendezvous.epoch, 0, 2 * how + 2);
		else if (how == 3)
			put_about(PACKET_GRANT, h.rendezvous.lane, h.rendezvous.epoch, BIG, 2 * how + 2);
		else
			put_end(&h, PACKET_PULLED, 2 * how + 2);
		passes(2);
		cr_assert_eq(released, (int)how + 1);
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
}

Test(rendezvous_refer, the_session_ends_while_it_is_read)
{
	static struct result r[2];
	union packet_head h = send(&r[0], FAR_SEC, BIG);
	put_end(&h, PACKET_PULLED | PACKET_KEPT, 1);
	passes(1);
	send(&r[1], FAR_SEC, BIG);
	cr_assert_eq(released, 0);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(released, 2);
}

static unsigned ended[3], ended_n;

static void on_release_of(void *user)
{
	ended[ended_n++] = *(unsigned *)user;
}

/* Several messages of one lane are read: each ends by its own epoch. */
Test(rendezvous_refer, each_message_ends_by_itself)
{
	static struct result r[3];
	static unsigned names[3] = {0, 1, 2};
	union packet_head h[3];
	for (unsigned i = 0; i < 3; i++) {
		struct rendezvous_out *o = one_part(BIG);
		o->release = on_release_of;
		o->release_user = &names[i];
		cr_assert_eq(call_with(&r[i], FAR_FOREVER, o), 0);
		passes(2);
		announced(&h[i]);
		cr_assert_eq(h[i].rendezvous.lane, 0u);
		put_end(&h[i], PACKET_PULLED | PACKET_KEPT, i + 1);
		passes(1);
	}
	static const unsigned order_of_ends[] = {1, 0, 2};
	for (unsigned i = 0; i < 3; i++) {
		put_end(&h[order_of_ends[i]], PACKET_PULLED, 3);
		passes(1);
		cr_assert_eq(ended_n, i + 1);
		cr_assert_eq(ended[i], order_of_ends[i]);
	}
}

/* Expect no more than FAR_REFERRED_MAX held for one receiver: the next ones are not referred. */
Test(rendezvous_refer, a_receiver_that_keeps_all)
{
	static struct result r[FAR_REFERRED_MAX + 1];
	union packet_head h, first = {.type = 0};
	for (unsigned i = 0; i < FAR_REFERRED_MAX; i++) {
		h = send(&r[i], FAR_SEC, BIG);
		first = i ? first : h;
		put_end(&h, PACKET_PULLED | PACKET_KEPT, i + 1);
		passes(1);
	}
	cr_assert_eq(call_with(&r[FAR_REFERRED_MAX], FAR_FOREVER, one_part(BIG)), 0);
	passes(2);
	announced(&h);
	cr_assert_eq(h.flags, 0);
	put_end(&first, PACKET_PULLED, FAR_REFERRED_MAX);
	passes(1);
	cr_assert_eq(released, 1);
	cr_assert_eq(shard->sessions[PEER].rendezvous->referred_n, (unsigned)FAR_REFERRED_MAX - 1);
}

/* ---- receiving ---- */

struct referred {
	union packet_head h;
	struct packet_announced a;
};

static struct referred referred(uint16_t fn, unsigned lane, uint32_t epoch, uint64_t total)
{
	struct referred o = {.h.rendezvous = {.type = PACKET_RENDEZVOUS,
					      .flags = PACKET_REFERRED,
					      .lane = lane,
					      .epoch = epoch,
					      .total = total},
			     .a = {.parts_n = 1, .head = request(fn, ++call_no, UINT64_MAX)}};
	o.a.parts[0] = (struct packet_part){(uintptr_t)big, total};
	return o;
}

static void put_referred(const struct referred *o)
{
	put(NIC_PEER, o->h, &o->a, packet_announced_bytes(o->a.parts_n));
}

static void expect_end(unsigned flags, unsigned lane, uint32_t epoch)
{
	union packet_head h;
	sent(&h, PACKET_GRANT);
	cr_assert_eq(h.flags, flags);
	cr_assert_eq(h.grant.lane, lane);
	cr_assert_eq(h.grant.epoch, epoch);
	cr_assert_eq(h.grant.granted, (uint64_t)BIG);
}

Test(rendezvous_refer, a_handler_reads_in_place)
{
	struct referred o = referred(MSG_KEEP + 1, 2, 7, BIG);
	put_referred(&o);
	passes(1);
	cr_assert_eq((const void *)seen, (const void *)big);
	cr_assert_eq(seen_len, (size_t)BIG);
	expect_end(PACKET_PULLED | PACKET_KEPT, 2, 7);
	expect_reply(call_no, "ok", 2);
	passes(1);
	expect_end(PACKET_PULLED, 2, 7);
	cr_assert_eq(queue->maps_n, 0u);
	cr_assert_eq(shard->counters.bytes_by_reference, (uint64_t)BIG);
	expect_nothing();
}

/* A reader that goes on: expect the lane free for the next message, and the end once the reader has ended. */
Test(rendezvous_refer, a_handler_that_reads_on)
{
	struct far_buf *first;
	struct referred o = referred(MSG_KEEP, 0, 1, BIG);
	put_referred(&o);
	passes(3);
	expect_end(PACKET_PULLED | PACKET_KEPT, 0, 1);
	expect_reply(call_no, "ok", 2);
	first = reader;
	o = referred(MSG_KEEP, 0, 2, BIG);
	put_referred(&o);
	passes(3);
	expect_end(PACKET_PULLED | PACKET_KEPT, 0, 2);
	expect_reply(call_no, "ok", 2);
	expect_nothing();
	buf_unref(reader);
	passes(1);
	expect_end(PACKET_PULLED, 0, 2);
	cr_assert_eq(queue->maps_n, 1u);
	queue->no_slots = true; /* the ring is full: later */
	buf_unref(first);
	passes(2);
	cr_assert_eq(queue->maps_n, 1u);
	queue->no_slots = false;
	passes(1);
	expect_end(PACKET_PULLED, 0, 1);
	cr_assert_eq(queue->maps_n, 0u);
}

/* The session ends while a handler reads: the mapping stays until it has read. */
Test(rendezvous_refer, the_session_ends_while_a_handler_reads)
{
	struct referred o = referred(MSG_KEEP, 0, 1, BIG);
	put_referred(&o);
	passes(2);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(queue->maps_n, 1u);
	buf_unref(reader);
	cr_assert_eq(queue->maps_n, 0u);
}

/* Several parts, an engine's own message, a reply: copied from there, and the end said at once. */
Test(rendezvous_refer, what_is_copied)
{
	static struct result r;
	union packet_head h;
	struct referred o = referred(MSG_KEEP, 1, 1, BIG);
	o.a.parts_n = 2;
	o.a.parts[0].len = 1000;
	o.a.parts[1] = (struct packet_part){(uintptr_t)big + 1000, BIG - 1000};
	put_referred(&o);
	passes(5);
	cr_assert_eq(seen_len, (size_t)BIG);
	cr_assert_neq((const void *)seen, (const void *)big);
	cr_assert_eq(memcmp(seen, big, BIG), 0);
	buf_unref(reader);
	expect_end(PACKET_PULLED, 1, 1);
	expect_reply(call_no, "ok", 2);
	cr_assert_eq(call(&r, FAR_SEC, "?", 1), 0);
	passes(1);
	sent(&h, PACKET_REQUEST);
	o = referred(0, 1, 2, BIG);
	o.a.head = (union packet_head){.reply = {.type = PACKET_REPLY,
						 .function = MSG_KEEP,
						 .slot = h.call.slot,
						 .generation = h.call.generation}};
	put_referred(&o);
	passes(5);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.len, (size_t)BIG);
	cr_assert_eq(memcmp(r.bytes, big, sizeof r.bytes), 0);
	expect_end(PACKET_PULLED, 1, 2);
	cr_assert_eq(queue->maps_n, 0u);
	expect_nothing();
}

/* References that name nothing: granted from the start. No parts at all: the peer violates the protocol. */
Test(rendezvous_refer, references_that_lie)
{
	queue->refer_error = -EINVAL;
	struct referred o = referred(MSG_KEEP + 1, 0, 1, TOTAL);
	put_referred(&o);
	passes(2);
	expect_grant(0, 1, TOTAL);
	memcpy(bytes, big, TOTAL);
	put_data(0, 1, 0, bytes, TOTAL);
	passes(2);
	cr_assert_eq(seen_len, (size_t)TOTAL);
	expect_reply(call_no, "ok", 2);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	queue->refer_error = 0;
	o = referred(MSG_KEEP, 1, 1, BIG);
	o.a.parts_n = 0;
	put_referred(&o);
	expect_poisoned("references without parts");
	cr_assert_eq(queue->maps_n, 0u);
}

/* More than FAR_REFERRED_MAX that handlers read on: the next ones are copied. */
Test(rendezvous_refer, handlers_that_read_on)
{
	static struct far_buf *readers[FAR_REFERRED_MAX + 1];
	for (unsigned i = 0; i <= FAR_REFERRED_MAX; i++) {
		struct referred o = referred(MSG_KEEP, 0, i + 1, BIG);
		put_referred(&o);
		passes(6);
		readers[i] = reader;
		cr_assert_eq(seen == big, i < FAR_REFERRED_MAX);
	}
	cr_assert_eq(queue->maps_n, (unsigned)FAR_REFERRED_MAX);
	for (unsigned i = 0; i <= FAR_REFERRED_MAX; i++)
		buf_unref(readers[i]);
	passes(1);
	cr_assert_eq(queue->maps_n, 0u);
}

/* Given up while it waits for a record, and for its deadline: its sender is notified that nobody reads it. */
Test(rendezvous_refer, given_up_before_it_is_read)
{
	union packet_head h;
	struct rendezvous_in *others = rendezvous_of(shard)->free;
	rendezvous_of(shard)->free = NULL; /* as many messages arrive already */
	struct referred o = referred(MSG_KEEP, 0, 1, BIG);
	put_referred(&o);
	passes(1);
	expect_nothing();
	put_about(PACKET_ABORT, 0, 1, 0, 0);
	passes(1);
	sent(&h, PACKET_REFUSE);
	cr_assert_eq(h.lane.epoch, 1u);
	expect(&h, PACKET_CANCELLED, call_no);
	rendezvous_of(shard)->free = others;
	cr_assert_null(seen);
	expect_nothing();
}

/* ---- typed arguments in pieces ---- */

static _Alignas(64) uint8_t descriptors[VALUES_HEAD_BYTES];
static const void *small_seen, *large_seen;
enum { LARGE = BIG - 3 }; /* what follows lies at no multiple of 64 */

/* The first argument lies beside the descriptors, the second one is large, the third one lies behind it. */
static enum far_status read_three(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	small_seen = args[0].u.s.data;
	large_seen = args[1].u.s.data;
	seen_len = args[1].u.s.len;
	cr_assert_eq(memcmp(small_seen, "beside", 6), 0);
	cr_assert_eq(memcmp(args[2].u.s.data, "behind", 6), 0);
	return far_return_int(req, 1);
}

static bool is_big(const void *at, size_t len)
{
	return at == (const void *)big;
}

/* Announces the call in pieces. */
static struct referred in_pieces(unsigned lane, uint32_t epoch)
{
	static bool added;
	const struct far_function f = {"t::three(bytes a, bytes b, bytes c) -> int", FAR_KIND_INLINE, read_three, NULL,
				       0};
	struct far_val v[3] = {far_bytes("beside", 6), far_bytes(big, LARGE), far_bytes("behind", 6)};
	struct values_part part[VALUES_PARTS_MAX];
	struct values_plan plan;
	struct far_err err;
	if (!added)
		cr_assert_eq(registry_add(&registry, &f, NULL), FAR_OK);
	added = true;
	small_seen = large_seen = NULL;
	size_t size = values_size(v, 3, &plan, &err);
	unsigned n = values_split(v, 3, &plan, is_big, descriptors, part);
	cr_assert_eq(n, 3u);
	struct referred o = referred((uint16_t)registry_find(&registry, "t::three")->index, lane, epoch, size);
	o.a.head.flags = PACKET_TYPED;
	o.a.parts_n = n;
	for (unsigned i = 0; i < n; i++)
		o.a.parts[i] = (struct packet_part){(uintptr_t)part[i].at, part[i].len};
	return o;
}

/* Elements are read in place; what else there is, in a copy of the first piece that the sender cannot write. */
Test(rendezvous_refer, a_function_reads_large_arguments_in_place)
{
	struct referred o = in_pieces(1, 3);
	put_referred(&o);
	passes(2);
	cr_assert_eq(large_seen, (const void *)big);
	cr_assert_eq(seen_len, (size_t)LARGE);
	cr_assert_geq((uintptr_t)small_seen - (uintptr_t)descriptors, sizeof descriptors);
	cr_assert_eq(queue->maps_n, 0u, "the handler has returned");
	cr_assert_eq(shard->sessions[PEER].rendezvous->views_n, 0u);
}

/* A sender that leaves elements where no type is aligned: expect a copy, in which they are. */
Test(rendezvous_refer, elements_that_are_not_aligned)
{
	struct referred o = in_pieces(0, 1);
	o.a.parts[1].at += 8;
	put_referred(&o);
	passes(8);
	cr_assert_not_null(large_seen);
	cr_assert_eq((uintptr_t)large_seen % 64, 0u);
	cr_assert_eq(seen_len, (size_t)LARGE);
	cr_assert_eq(queue->maps_n, 0u);
}

/* Of an object, by its name: expect one piece. */
Test(rendezvous_refer, arguments_that_are_copied_to_one_piece)
{
	struct referred o = in_pieces(1, 3);
	o.a.head.flags |= PACKET_NAMED;
	put_referred(&o);
	passes(8);
	cr_assert_null(large_seen);
	cr_assert_eq(shard->sessions[PEER].rendezvous->views_n, 0u);
}

/* Expect a copy in one piece, a fragment in each pass, when the session shows requests. */
Test(rendezvous_refer, arguments_of_a_session_that_shows_them)
{
	struct referred o = in_pieces(0, 1);
	shard->sessions[PEER].backpressured = SESSION_SHOWN;
	put_referred(&o);
	passes(2);
	cr_assert_null(large_seen);
	passes(4);
	shard->sessions[PEER].backpressured = 0;
	cr_assert_not_null(large_seen);
	cr_assert_neq(large_seen, (const void *)big);
	cr_assert_eq(queue->maps_n, 0u);
}

/* The same at once, when it shows or holds them since the message was announced. */
Test(rendezvous_refer, arguments_of_a_session_that_is_backpressured)
{
	struct referred first = referred(MSG_KEEP + 1, 2, 7, BIG), o = in_pieces(0, 1);
	put_referred(&first);
	put_referred(&o);
	passes(1);
	cr_assert_eq((const void *)seen, (const void *)big, "the shorter one, of each pass one");
	cr_assert_null(large_seen);
	shard->sessions[PEER].backpressured = SESSION_BACKPRESSURED;
	passes(2);
	cr_assert_null(large_seen);
	shard->sessions[PEER].backpressured = SESSION_SHOWN;
	passes(2);
	shard->sessions[PEER].backpressured = 0;
	cr_assert_not_null(large_seen);
	cr_assert_neq(large_seen, (const void *)big);
	cr_assert_eq(queue->maps_n, 0u);
}
