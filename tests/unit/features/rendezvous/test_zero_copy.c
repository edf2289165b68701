/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages in fragments that are sent from where they lie, and put where they belong while they arrive: who owns each
 * byte when. The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rendezvous_fixture.h"

enum { BIG = 1 << 20, HEADER = 100 };

static uint8_t big[BIG + 2 * HEADER];

static void setup_zero_copy(void)
{
	setup();
	fake_queue_takes_zero_copy(queue);
	for (unsigned i = 0; i < sizeof big; i++)
		big[i] = (uint8_t)(i * 5 + i / 256);
}

static void teardown_zero_copy(void)
{
	session_close_all(shard);
	fake_queue_let_go(queue);
	zero_copy_reap(shard);
	cr_assert_null(rendezvous_of(shard)->zero_copy);
	teardown();
}

TestSuite(rendezvous_zero_copy, .init = setup_zero_copy, .fini = teardown_zero_copy);

/* ---- sending ---- */

static struct rendezvous_out *message(bool is_released)
{
	struct rendezvous_out *o = rendezvous_out_new();
	cr_assert_not_null(o);
	o->parts[0] = (struct far_part){big, HEADER};
	o->parts[1] = (struct far_part){NULL, 0};
	o->parts[2] = (struct far_part){big + HEADER, BIG};
	o->parts[3] = (struct far_part){big + HEADER + BIG, HEADER};
	o->parts_n = 4;
	o->total = sizeof big;
	o->released = is_released;
	o->release = on_release;
	return o;
}

static struct rendezvous_out *copied(void)
{
	void *at;
	struct rendezvous_out *o = rendezvous_out_alloc(sizeof big, &at);
	cr_assert_not_null(o);
	memcpy(at, big, sizeof big);
	o->release = on_release;
	return o;
}

static void send(struct result *r, struct rendezvous_out *o, uint64_t timeout)
{
	cr_assert_eq(call_with(r, timeout, o), 0);
	passes(2);
}

/* What was announced, wholly granted: its fragments, checked, and how many. `head`: of the announced message. */
static unsigned take_all(union packet_head *head)
{
	union packet_head h;
	const struct fake_packet *p = sent(&h, PACKET_RENDEZVOUS);
	uint64_t at = 0;
	unsigned n = 0;
	cr_assert_eq(p->body_len, sizeof *head);
	memcpy(head, fake_body(p), sizeof *head);
	put_about(PACKET_GRANT, 0, 1, sizeof big, 1);
	passes(10);
	while ((p = fake_queue_sent(queue, &h))) {
		cr_assert(h.type == PACKET_DATA && h.data.offset == at);
		cr_assert_eq(memcmp(fake_body(p), big + at, p->body_len), 0);
		at += p->body_len;
		n++;
	}
	cr_assert_eq(at, sizeof big);
	return n;
}

/* From where it lies; what is short is copied, and does not share a fragment with it. */
Test(rendezvous_zero_copy, released_when_nothing_reads_it)
{
	static struct result r;
	union packet_head h;
	send(&r, message(true), FAR_SEC);
	cr_assert_eq(take_all(&h), 2 + BIG / FAR_CHUNK_BYTES);
	cr_assert_eq(queue->zero_copy_n, BIG / FAR_CHUNK_BYTES);
	for (unsigned i = 0; i < queue->zero_copy_n; i++)
		cr_assert(queue->zero_copy[i].body == big + HEADER + i * FAR_CHUNK_BYTES);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
	passes(100);
	cr_assert_eq(released, 0, "it was released while it was read");
	while (queue->zero_copy_n > 1)
		buf_unref(queue->zero_copy[--queue->zero_copy_n].owner);
	passes(1);
	cr_assert_eq(released, 0);
	fake_queue_let_go(queue);
	passes(1);
	cr_assert_eq(released, 1);
}

/* However short it is, from the ring of those that other threads handed over, too. */
Test(rendezvous_zero_copy, shorter_than_what_goes_whole)
{
	static struct result r;
	union packet_head h;
	shard->sessions[PEER].eager_max = 2 * BIG;
	send(&r, message(true), FAR_SEC);
	take_all(&h);
	cr_assert_eq(queue->zero_copy_n, BIG / FAR_CHUNK_BYTES);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
}

/* A copy of ours stays by itself: the parts were released at once. */
Test(rendezvous_zero_copy, copies_stay)
{
	static struct result r;
	union packet_head h;
	struct rendezvous_out *o = copied();
	struct far_buf *copy = o->copy;
	send(&r, o, FAR_SEC);
	cr_assert_eq(take_all(&h), 1 + BIG / FAR_CHUNK_BYTES);
	cr_assert_eq(queue->zero_copy_n, BIG / FAR_CHUNK_BYTES);
	cr_assert_eq(released, 1);
	cr_assert(copy->refs == queue->zero_copy_n && memcmp(buf_data(copy), big, sizeof big) == 0);
	answer(h, PACKET_REPLY, 0, 0, "fine");
}

/* Borrowed memory may be revoked at any time. */
Test(rendezvous_zero_copy, what_may_be_revoked_is_copied)
{
	static struct result r;
	union packet_head h;
	struct rendezvous_out *o = message(false);
	send(&r, o, FAR_SEC);
	take_all(&h);
	cr_assert(queue->zero_copy_n == 0 && released == 1);
	answer(h, PACKET_REPLY, 0, 0, "fine");
}

Test(rendezvous_zero_copy, short_parts_are_gathered)
{
	static struct result r;
	union packet_head h;
	struct rendezvous_out *o = rendezvous_out_new();
	o->parts_n = FAR_PARTS_MAX;
	for (unsigned i = 0; i < FAR_PARTS_MAX; i++)
		o->parts[i] = (struct far_part){big + (size_t)i * 1000, 1000};
	o->total = (uint64_t)FAR_PARTS_MAX * 1000;
	o->released = true;
	o->release = on_release;
	send(&r, o, FAR_SEC);
	sent(&h, PACKET_RENDEZVOUS);
	put_about(PACKET_GRANT, 0, 1, FAR_PARTS_MAX * 1000, 1);
	passes(2);
	const struct fake_packet *p = sent(&h, PACKET_DATA);
	cr_assert(p->body_len == (uint64_t)FAR_PARTS_MAX * 1000 && memcmp(fake_body(p), big, p->body_len) == 0);
	cr_assert(queue->zero_copy_n == 0 && released == 1);
}

Test(rendezvous_zero_copy, no_room)
{
	static struct result r;
	union packet_head h;
	send(&r, message(true), FAR_SEC);
	sent(&h, PACKET_RENDEZVOUS);
	put_about(PACKET_GRANT, 0, 1, sizeof big, 1);
	passes(2);
	queue->no_bulk = true;
	passes(3);
	uint64_t at = 0;
	const struct fake_packet *p;
	while ((p = fake_queue_sent(queue, &h)))
		at += p->body_len;
	cr_assert(at > 0 && at < sizeof big);
	queue->no_bulk = false;
	passes(10);
	while ((p = fake_queue_sent(queue, &h))) {
		cr_assert_eq(h.data.offset, at);
		cr_assert_eq(memcmp(fake_body(p), big + at, p->body_len), 0);
		at += p->body_len;
	}
	cr_assert_eq(at, sizeof big);
}

/* Its deadline passes, its peer goes: it is the driver's until that reports it. */
Test(rendezvous_zero_copy, ended_early)
{
	for (unsigned way = 0; way < 2; way++) {
		static struct result r;
		union packet_head h;
		send(&r, message(true), FAR_SEC);
		sent(&h, PACKET_RENDEZVOUS);
		put_about(PACKET_GRANT, 0, 1 + way, sizeof big, shard->sessions[PEER].rendezvous->packets_sent);
		passes(5);
		while (fake_queue_sent(queue, &h))
			;
		cr_assert_gt(queue->zero_copy_n, 0u);
		if (way == 0) {
			now_ns += 2 * FAR_SEC;
			passes(200);
			while (fake_queue_sent(queue, &h))
				;
		} else {
			mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
		}
		cr_assert_eq(r.n, 1u);
		passes(10);
		cr_assert_eq(released, (int)way);
		fake_queue_let_go(queue);
		passes(1);
		cr_assert_eq(released, (int)way + 1);
	}
}

/* A device that never reports it: with its port's end. */
Test(rendezvous_zero_copy, left_behind)
{
	static struct result r;
	union packet_head h;
	send(&r, message(true), FAR_SEC);
	take_all(&h);
	session_close_all(shard);
	struct rendezvous_out *zero_copy = zero_copy_hand_to_agent(shard, NULL);
	cr_assert(zero_copy && !rendezvous_of(shard)->zero_copy && released == 0);
	fake_queue_let_go(queue);
	zero_copy_end(zero_copy);
	cr_assert_eq(released, 1);
}

/* ---- receiving ---- */

static union packet_head data_at(uint64_t offset)
{
	return (union packet_head){.data = {.type = PACKET_DATA, .lane = 0, .epoch = 7, .offset = offset}};
}

static bool place_at(uint64_t offset, uint64_t len)
{
	union packet_head h = data_at(offset);
	return fake_queue_place(queue, NIC_PEER, &h, big + offset, len);
}

static void announce_big(void)
{
	announce(PACKET_REQUEST, MSG_SILENT, 3, 0, 7, BIG);
	passes(1);
	expect_grant(0, 7, BIG);
}

Test(rendezvous_zero_copy, put_where_it_belongs)
{
	announce_big();
	uint8_t *memory = NULL;
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++)
		if (rendezvous_of(shard)->ins[i].peer)
			memory = rendezvous_of(shard)->ins[i].at;
	cr_assert(place_at(0, 400000));
	put_data(0, 7, 400000, big + 400000, 1000); /* another one, which was not */
	cr_assert(place_at(401000, BIG - 401000));
	cr_assert(queue->placed[0].where.at == memory && queue->placed[1].where.at == memory + 401000);
	passes(10);
	cr_assert_eq(ran, 1u);
	cr_assert_eq(memcmp(memory, big, BIG), 0); /* nobody else has taken it since */
	cr_assert_eq(queue->in_held, 0u);
}

/* No place for what no lane waits for, what was not granted, what has one or had one. */
Test(rendezvous_zero_copy, no_place)
{
	union packet_head h = data_at(0);
	cr_assert(!fake_queue_place(queue, NIC_PEER, &h, big, 1000), "nothing was announced");
	announce_big();
	struct {
		union packet_head h;
		uint64_t len;
		const char *what;
	} cases[] = {
		{data_at(BIG - 999), 1000, "beyond its end"},
		{data_at(BIG + 1), 1000, "behind it"},
		{data_at(0), BIG + 1, "longer than it"},
		{data_at(0), UINT64_MAX, "absurd"},
		{{.data = {.type = PACKET_DATA, .lane = 1, .epoch = 7}}, 1000, "another lane"},
		{{.data = {.type = PACKET_DATA, .lane = FAR_RENDEZVOUS_LANES, .epoch = 7}}, 1000, "no lane"},
		{{.data = {.type = PACKET_DATA, .lane = 0, .epoch = 6}}, 1000, "another epoch"},
		{{.request = {.type = PACKET_REQUEST, .slot = 0, .generation = 7}}, 1000, "no fragment"},
		{{.data = {.type = PACKET_DATA, .lane = 0, .epoch = 7, .offset = UINT64_C(1) << 32}}, 1000, "far away"},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++)
		cr_assert(!fake_queue_place(queue, NIC_PEER, &cases[i].h, big, cases[i].len), "%s", cases[i].what);
	h = data_at(0);
	cr_assert(!fake_queue_place(queue, NIC_OTHER, &h, big, 1000), "another peer");
	cr_assert(!fake_queue_place(queue, FAKE_PEERS + 1, &h, big, 1000), "no peer");
	struct rendezvous_lane *l = &shard->sessions[PEER].rendezvous->in[0];
	l->granted = false; /* as while it is pulled */
	cr_assert(!place_at(0, 1000), "before the grant");
	l->granted = true;
	cr_assert(place_at(0, 1000));
	cr_assert(!place_at(0, 1000), "twice");
	cr_assert(!place_at(999, 1000), "overlapping");
	cr_assert(place_at(1000, 1000));
	passes(5);
	cr_assert(!place_at(1000, 1000), "it has come");
	put_data(0, 7, 2000, big + 2000, 1000);
	passes(5);
	cr_assert(!place_at(2000, 1000), "it has come another way");
	put_data(0, 7, 3000, big + 3000, BIG - 3000);
	passes(10);
	cr_assert_eq(ran, 1u);
	cr_assert(!place_at(0, 1000), "it is whole");
}

/* Memory of the application's is not exposed: it may be taken back while a device writes. */
Test(rendezvous_zero_copy, not_into_placements)
{
	announce_big();
	for (unsigned i = 0; i < FAR_RENDEZVOUS_IN_MAX; i++)
		if (rendezvous_of(shard)->ins[i].peer) {
			buf_unref(rendezvous_of(shard)->ins[i].buf);
			rendezvous_of(shard)->ins[i].buf = NULL;
			rendezvous_of(shard)->ins[i].at = big;
		}
	cr_assert(!place_at(0, 1000));
}

/* Who keeps a fragment on its way into memory, and completes the message by another, would write to it later. */
Test(rendezvous_zero_copy, written_behind_our_back)
{
	announce_big();
	union packet_head h = data_at(0);
	struct nic_placement kept_place;
	cr_assert(queue->place(queue->place_ctx, NIC_PEER, (const uint8_t *)&h, 1000, &kept_place));
	put_data(0, 7, 0, big, 1000);
	put_data(0, 7, 1000, big + 1000, BIG - 1000);
	passes(10);
	cr_assert_eq(ran, 0u);
	expect_poisoned("the sender of it is to go");
	buf_unref(kept_place.owner);
}
