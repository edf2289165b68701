/* SPDX-License-Identifier: BSD-3-Clause */
/** Small messages and packets of larger ones that are missing in front of them. The test's thread. */
#include "transport/audit.h"
#include "transport/peer.h"
#include "transport/queue.h"
#include "transport/rings.h"
#include "transport/wire.h"
#include "transport_fixture.h"
#include "transport_states.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static uint32_t loose_of(const struct transport_peer *p)
{
	return p->rings ? p->rings->unordered_n : 0;
}

enum { LONG = 9000, SEQS = 64 };

static uint32_t at_0, at_1;
static struct {
	uint64_t seqs[SEQS];
	unsigned n;
	bool bad;
} got;

/* What the hook does: packets of larger messages, and the so-manieth of small ones, are lost. */
static struct {
	bool large;
	unsigned small, smalls; /* from 1 on; 0: none is */
	unsigned loose, bound;  /* small ones that were sent, with the mark and without */
} losing;

static bool lose(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	struct wire_message h;
	memcpy(&h, bytes, sizeof h);
	if (from || h.kind != WIRE_MESSAGE)
		return true;
	if (le32_get(h.length) > FAR_TRANSPORT_SMALL_BYTES)
		return !losing.large;
	*(h.flags & WIRE_UNORDERED ? &losing.loose : &losing.bound) += 1;
	return h.flags & WIRE_RETRANSMIT || ++losing.smalls != losing.small;
}

static void commit(uint64_t seq, uint64_t len, enum nic_order order)
{
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_reserve(q, at_0, len, &tx), 0);
	fixture_fill(&tx, seq, len);
	tx.order = (uint8_t)order;
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
	q->ops->flush(q);
}

static void take(void)
{
	struct nic_queue *q = fixture.ends[1].q;
	struct nic_pkt pkts[16];
	unsigned n;
	while ((n = q->ops->recv(q, pkts, 16)))
		for (unsigned i = 0; i < n; i++) {
			uint64_t seq;
			memcpy(&seq, pkts[i].head, sizeof seq);
			got.bad |= !fixture_is(&pkts[i], seq) || got.n == SEQS;
			if (got.n < SEQS)
				got.seqs[got.n++] = seq;
			if (pkts[i].cookie)
				q->ops->release(q, pkts[i].peer, pkts[i].cookie);
		}
	q->ops->flush(q);
}

static void turn(void)
{
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	take();
	fixture_take(0, 0);
	fixture.now += 100000;
}

static struct transport_queue *receiving(void)
{
	return (struct transport_queue *)fixture.ends[1].q;
}

static void begin(uint32_t first_packet)
{
	fixture_init();
	fixture.first_packet = first_packet;
	fixture.fabric.crc = true;
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	memset(&got, 0, sizeof got);
	memset(&losing, 0, sizeof losing);
	fixture.fabric.hook = lose;
}

/* All come, each once, and nothing is left. */
static void end(unsigned n)
{
	for (unsigned i = 0; i < 2000 && got.n < n; i++)
		turn();
	for (unsigned i = 0; i < 100; i++)
		turn();
	cr_assert_eq(got.n, n);
	cr_assert(!got.bad);
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	cr_assert_eq(receiving()->peers[at_1]->early_n + loose_of(receiving()->peers[at_1]), 0);
	cr_assert_eq(receiving()->in_bytes, 0);
	fixture_fini();
}

/* All packets of a large message are lost. Expect small ones at once, in their order, and the large one when its
 * packets get through; whatever the numbers are. */
Test(transport_unordered, not_held_up)
{
	static const uint32_t firsts[] = {0, 1000, UINT32_MAX - 10, UINT32_MAX / 2 - 5};
	for (unsigned k = 0; k < sizeof firsts / sizeof *firsts; k++) {
		begin(firsts[k]);
		losing.large = true;
		commit(0, LONG, NIC_ORDER_NONE);
		for (unsigned i = 1; i <= 20; i++) {
			commit(i, i % 3 ? 30 : 900, NIC_ORDER_NONE);
			take();
			cr_assert_eq(got.n, i);
			cr_assert_eq(got.seqs[i - 1], i);
		}
		cr_assert_eq(losing.loose, 20);
		losing.large = false;
		end(21);
		cr_assert_eq(got.seqs[20], 0);
	}
}

/* Several in a packet. */
Test(transport_unordered, batches)
{
	begin(1);
	losing.large = true;
	commit(0, LONG, NIC_ORDER_NONE);
	struct nic_queue *q = fixture.ends[0].q;
	for (unsigned round = 0; round < 4; round++) {
		for (unsigned i = 1; i <= 5; i++) {
			struct nic_tx tx;
			cr_assert_eq(q->ops->tx_reserve(q, at_0, 30 + i, &tx), 0);
			fixture_fill(&tx, round * 5 + i, 30 + i);
			tx.order = NIC_ORDER_NONE;
			cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
		}
		q->ops->flush(q);
		take();
		cr_assert_eq(got.n, round * 5 + 5);
	}
	cr_assert_eq(losing.loose, 4);
	losing.large = false;
	end(21);
}

/* A small one is lost, too. Expect those behind it to wait for it, and for nothing else. */
Test(transport_unordered, behind_a_small_one)
{
	for (unsigned which = 1; which <= 4; which++) {
		begin(7);
		losing.large = true;
		losing.small = which;
		commit(0, LONG, NIC_ORDER_NONE);
		for (unsigned i = 1; i <= 6; i++)
			commit(i, 40, NIC_ORDER_NONE);
		take();
		cr_assert_eq(got.n, which - 1, "%u of %u", got.n, which);
		cr_assert_eq(loose_of(receiving()->peers[at_1]), 6 - which);
		for (unsigned i = 0; i < 500 && got.n < 6; i++)
			turn();
		for (unsigned i = 0; i < 6; i++)
			cr_assert_eq(got.seqs[i], i + 1);
		losing.large = false;
		end(7);
	}
}

/* What must not pass a larger message does not, and what is behind that neither. */
Test(transport_unordered, keeps_order)
{
	static const struct {
		enum nic_order large, small;
		bool passes;
	} cases[] = {
		{NIC_ORDER_NONE, NIC_ORDER_NONE, true},      {NIC_ORDER_NONE, NIC_ORDER_STREAM, true},
		{NIC_ORDER_NONE, NIC_ORDER_ALL, false},      {NIC_ORDER_STREAM, NIC_ORDER_NONE, true},
		{NIC_ORDER_STREAM, NIC_ORDER_STREAM, false}, {NIC_ORDER_ALL, NIC_ORDER_STREAM, false},
	};
	for (unsigned k = 0; k < sizeof cases / sizeof *cases; k++) {
		begin(7);
		losing.large = true;
		commit(0, 5000, cases[k].large);
		commit(1, 40, cases[k].small);
		commit(2, 40, NIC_ORDER_NONE);
		take();
		cr_assert_eq(got.n, cases[k].passes ? 2 : 0, "case %u: %u", k, got.n);
		losing.large = false;
		end(3);
		for (unsigned i = 0; i < 3 && !cases[k].passes; i++)
			cr_assert_eq(got.seqs[i], i, "case %u", k);
	}
}

/* No larger ones are out. Expect no mark, before the first and after all of them. */
Test(transport_unordered, only_beside_larger_ones)
{
	begin(7);
	for (unsigned i = 0; i < 5; i++)
		commit(i, 40, NIC_ORDER_NONE);
	commit(5, LONG, NIC_ORDER_NONE);
	for (unsigned i = 0; i < 100; i++)
		turn();
	for (unsigned i = 6; i < 10; i++)
		commit(i, 40, NIC_ORDER_NONE);
	cr_assert_eq(losing.loose, 0);
	cr_assert_eq(losing.bound, 9);
	end(10);
}

/* There is no memory for what is due, so what came early is given up. Expect nothing twice of what had gone up. */
Test(transport_unordered, memory)
{
	begin(7);
	losing.large = true;
	losing.small = 3;
	commit(0, LONG, NIC_ORDER_NONE);
	for (unsigned i = 1; i <= 5; i++)
		commit(i, 40, NIC_ORDER_NONE);
	take();
	cr_assert_eq(got.n, 2);
	struct transport_peer *p = receiving()->peers[at_1];
	cr_assert_eq(p->early_n, 4);
	cr_assert_eq(loose_of(p), 2);
	transport_audit_paused = true;
	receiving()->in_bytes += FAR_TRANSPORT_IN_BYTES;
	losing.large = false;
	for (unsigned i = 0; i < 500 && p->early_n != 2; i++)
		turn();
	cr_assert_eq(p->early_n, 2);
	cr_assert_eq(loose_of(p), 0);
	receiving()->in_bytes -= FAR_TRANSPORT_IN_BYTES;
	transport_audit_paused = false;
	end(6);
}

/* Everything that is kept goes with the peer. */
Test(transport_unordered, detached)
{
	begin(7);
	losing.large = true;
	losing.small = 3;
	commit(0, LONG, NIC_ORDER_NONE);
	for (unsigned i = 1; i <= 5; i++)
		commit(i, 20 * i, NIC_ORDER_NONE);
	struct nic_queue *q = fixture.ends[1].q;
	struct nic_pkt pkts[16];
	q->ops->recv(q, pkts, 1);
	q->ops->detach(q, at_1);
	for (unsigned i = 0; i < 4; i++)
		q->ops->recv(q, pkts, 16);
	cr_assert_eq(receiving()->in_bytes, 0);
	fixture_fini();
}

/* ---- built by hand ---- */

static void put_loose(struct packet *k, uint32_t number, uint32_t offset)
{
	put_head(k, WIRE_MESSAGE, RIGHT);
	put_data(k, WHOLE, number);
	k->head.flags = WIRE_UNORDERED;
	k->head.offset = le32_of(offset);
}

static void next(struct packet *k, struct expect want, const char *what)
{
	sent = 0;
	run(k, &want, what);
}

static const struct expect broken = {.counter = MALFORMED, .downs = 1};

Test(transport_unordered, receive)
{
	static const struct {
		uint32_t ahead, offset;
		struct expect expect;
	} cases[] = {
		{0, 1, {.got = 1}},
		{0, FAR_TRANSPORT_WINDOW, {.got = 1}},
		{0, 0, {.got = 1}}, /* no small one: behind none */
		{0, FAR_TRANSPORT_WINDOW + 1, {.counter = MALFORMED, .downs = 1}},
		{5, 6, {.got = 1}},
		{5, FAR_TRANSPORT_WINDOW, {.got = 1}},
		{5, 5, {.sent = SENT(ACK)}}, /* behind the one that is due */
		{5, 1, {.sent = SENT(ACK)}},
		{5, 0, {.sent = SENT(ACK), .got = 1}},
		{5, FAR_TRANSPORT_WINDOW + 1, {.counter = MALFORMED, .downs = 1}},
		{5, UINT32_MAX, {.counter = MALFORMED, .downs = 1}},
		{FAR_TRANSPORT_WINDOW - 1, FAR_TRANSPORT_WINDOW, {.got = 1}},
		{FAR_TRANSPORT_WINDOW, 1, {.counter = MALFORMED, .downs = 1}},
		{UINT32_MAX, 1, {.sent = SENT(ACK), .counter = DUPLICATE}},
	};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		char what[32];
		struct packet k;
		snprintf(what, sizeof what, "case %u", i);
		enter(UP);
		put_loose(&k, peer->rx_next + cases[i].ahead, cases[i].offset);
		run(&k, &cases[i].expect, what);
		leave(what);
	}
}

/* What cannot be. */
Test(transport_unordered, malformed)
{
	for (unsigned i = 0; i < 5; i++) {
		char what[32];
		struct packet k;
		snprintf(what, sizeof what, "case %u", i);
		enter(UP);
		put_loose(&k, peer->rx_next + 5, 6);
		if (i == 0)
			k.head.first = le32_of(peer->rx_next);
		else if (i == 1)
			k.head.flags |= WIRE_FRAGMENT;
		else if (i == 2)
			k.head.length = le32_of(30);
		else if (i == 3)
			k.head.length = le32_of(9);
		else
			k.head.flags |= WIRE_BATCH;
		run(&k, &broken, what);
		leave(what);
	}
}

/* One that went up comes again, before the one that is due and after it. Expect it to be taken once. */
Test(transport_unordered, duplicates)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	put_loose(&k, due + 1, 2);
	next(&k, (struct expect){.got = 1}, "the first");
	next(&k, (struct expect){.sent = SENT(ACK), .counter = DUPLICATE}, "the same");
	k.head.flags = 0;
	k.head.offset = le32_of(0);
	next(&k, (struct expect){.sent = SENT(ACK), .counter = DUPLICATE}, "the same without the mark");
	put_head(&k, WIRE_MESSAGE, RIGHT);
	put_data(&k, WHOLE, due);
	next(&k, (struct expect){.got = 1}, "what was due");
	cr_assert_eq(peer->rx_next, due + 2);
	put_loose(&k, due + 1, 2);
	next(&k, (struct expect){.sent = SENT(ACK), .counter = DUPLICATE}, "late");
	leave("late");
}

/* A packet that it may not pass is no small one, but a fragment. Expect it to wait for that packet's turn. */
Test(transport_unordered, behind_a_fragment)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	put_loose(&k, due + 1, 1);
	next(&k, (struct expect){.sent = SENT(ACK)}, "loose");
	put_head(&k, WIRE_MESSAGE, RIGHT);
	put_data(&k, BEGINNING, due);
	next(&k, (struct expect){.got = 1}, "the fragment");
	cr_assert_eq(peer->rx_next, due + 2);
	cr_assert_eq(loose_of(peer) + peer->early_n, 0);
	leave("fragment");
}
