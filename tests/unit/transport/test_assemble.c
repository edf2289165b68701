/* SPDX-License-Identifier: BSD-3-Clause */
/** Larger messages that go up when all of their bytes have come, whatever is missing in front of them.
 * The test's thread. */
#include "transport/assemble.h"
#include "transport/audit.h"
#include "transport/queue.h"
#include "transport/wire.h"
#include "transport_fixture.h"
#include "transport_states.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* ---- built by hand ---- */

/* Bytes [10 part, 10 part + 10) of a message of thirty that begins with packet `first`. */
static void put_part(struct packet *k, uint32_t number, uint32_t first, uint32_t part, unsigned flags)
{
	put_head(k, WIRE_MESSAGE, RIGHT);
	put_data(k, BEGINNING, number);
	k->head.first = le32_of(first);
	k->head.offset = le32_of(10 * part);
	k->head.flags = (uint8_t)flags;
}

static void next(struct packet *k, struct expect want, const char *what)
{
	sent = 0;
	run(k, &want, what);
}

static void next_part(uint32_t number, uint32_t first, uint32_t part, unsigned flags, struct expect want,
		      const char *what)
{
	struct packet k;
	put_part(&k, number, first, part, flags);
	next(&k, want, what);
}

static void next_whole(uint32_t number, unsigned got, const char *what)
{
	struct packet k;
	put_head(&k, WIRE_MESSAGE, RIGHT);
	put_data(&k, WHOLE, number);
	next(&k, (struct expect){.got = got}, what);
}

static const struct expect kept = {.sent = SENT(ACK)}, up = {.sent = SENT(ACK), .got = 1},
			   again = {.sent = SENT(ACK), .counter = DUPLICATE},
			   broken = {.counter = MALFORMED, .downs = 1};

static const uint8_t orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

/* The packet that is due is missing. Expect the message behind it with the last of its three packets, in whatever order
 * they come; and none of them to be taken again, before that packet comes and after. */
Test(transport_assemble, any_order)
{
	for (unsigned k = 0; k < 6; k++) {
		char what[32];
		snprintf(what, sizeof what, "order %u", k);
		enter(UP);
		uint32_t due = peer->rx_next, first = due + 1;
		for (unsigned i = 0; i < 3; i++)
			next_part(first + orders[k][i], first, orders[k][i], WIRE_UNORDERED, i == 2 ? up : kept, what);
		cr_assert_eq(peer->early_n, 3);
		cr_assert_eq(transport_ack_bits(peer), 7);
		for (unsigned i = 0; i < 3; i++)
			next_part(first + i, first, i, i ? WIRE_UNORDERED : 0, again, what);
		next_whole(due, 1, what);
		cr_assert_eq(peer->rx_next, due + 4);
		cr_assert_eq(peer->early_n, 0);
		for (unsigned i = 0; i < 3; i++)
			next_part(first + i, first, i, WIRE_UNORDERED, again, what);
		leave(what);
	}
}

/* Expect one mark to be enough, and no mark to keep the message until its turn. */
Test(transport_assemble, flags)
{
	for (unsigned bits = 0; bits < 8; bits++) {
		char what[32];
		snprintf(what, sizeof what, "flags %u", bits);
		enter(UP);
		uint32_t due = peer->rx_next, first = due + 1;
		for (unsigned i = 0; i < 3; i++)
			next_part(first + i, first, i, bits >> i & 1 ? WIRE_UNORDERED : 0, bits && i == 2 ? up : kept,
				  what);
		next_whole(due, bits ? 1 : 2, what);
		cr_assert_eq(peer->rx_next, due + 4);
		leave(what);
	}
}

/* A message in one packet, too large to be a small one. */
Test(transport_assemble, one_packet)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	for (unsigned i = 3; i > 0; i--) {
		put_head(&k, WIRE_MESSAGE, RIGHT);
		put_data(&k, WHOLE, due + i);
		k.head.flags = WIRE_UNORDERED;
		next(&k, up, "early");
		next(&k, again, "the same");
	}
	k.head.packet = k.head.first = le32_of(due);
	next(&k, (struct expect){.got = 1}, "due");
	cr_assert_eq(peer->rx_next, due + 4);
	leave("one packet");
}

/* A part of it came in turn, and was granted bytes; between its packets one of another message is missing. Expect it
 * whole at once, whichever comes last, and its grants to end. */
Test(transport_assemble, begun)
{
	for (unsigned k = 0; k < 6; k++) {
		char what[32];
		snprintf(what, sizeof what, "order %u", k);
		enter(UP);
		uint32_t due = peer->rx_next;
		for (unsigned i = 0; i < 3; i++) {
			unsigned part = orders[k][i];
			struct expect want = i == 2 ? up : kept;
			if (part == 0) /* in order: not acknowledged at once, except for a grant */
				want.sent = 0;
			next_part(due + part + (part > 0), due, part, WIRE_UNORDERED, want, what);
			if (part == 0 && i < 2)
				cr_assert_eq(peer->begun_n, 1, "%s", what);
		}
		cr_assert_eq(peer->begun_n + queue->grants.n, 0, "%s", what);
		cr_assert_eq(queue->grants.out, 0, "%s", what);
		cr_assert_eq(peer->rx_next, due + 1);
		next_whole(due + 1, 1, what);
		cr_assert_eq(peer->rx_next, due + 4);
		leave(what);
	}
}

/* The path has become narrower: the packet that is due comes in pieces. */
Test(transport_assemble, pieces)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	next_part(due + 3, due, 2, WIRE_UNORDERED, kept, "the end");
	next_part(due + 2, due, 1, WIRE_UNORDERED, kept, "the middle");
	put_part(&k, due, due, 0, WIRE_FRAGMENT | WIRE_MORE);
	k.len -= 4;
	next(&k, kept, "a piece");
	put_part(&k, due, due, 0, WIRE_FRAGMENT);
	k.head.offset = le32_of(6);
	k.len -= 6;
	next(&k, up, "the last piece");
	next_whole(due + 1, 1, "what was missing");
	cr_assert_eq(peer->rx_next, due + 4);
	leave("pieces");
}

/* As many bytes as the message has, which are not all of them. */
Test(transport_assemble, not_covered)
{
	static const struct {
		uint32_t at[3], offset[3];
	} cases[] = {
		{{1, 2, 3}, {0, 5, 20}},  /* a byte twice */
		{{1, 2, 3}, {0, 20, 10}}, /* not in the order of their numbers */
		{{1, 2, 3}, {0, 20, 20}}, {{1, 2, 3}, {0, 10, 10}}, {{1, 2, 3}, {0, 11, 20}}, {{1, 2, 4}, {0, 10, 19}},
	};
	for (unsigned c = 0; c < sizeof cases / sizeof *cases; c++)
		for (unsigned k = 0; k < 6; k++) {
			char what[32];
			struct packet p;
			snprintf(what, sizeof what, "case %u, order %u", c, k);
			enter(UP);
			uint32_t due = peer->rx_next;
			for (unsigned i = 0; i < 3; i++) {
				unsigned part = orders[k][i];
				put_part(&p, due + cases[c].at[part], due + 1, 0, WIRE_UNORDERED);
				p.head.offset = le32_of(cases[c].offset[part]);
				next(&p, i == 2 ? broken : kept, what);
			}
			leave(what);
		}
}

/* Marks that do not go together. */
Test(transport_assemble, malformed)
{
	static const struct {
		uint32_t number, part;
		unsigned flags;
	} cases[] = {
		{2, 1, WIRE_UNORDERED | WIRE_FRAGMENT},
		{1, 0, WIRE_UNORDERED | WIRE_FRAGMENT},
		{2, 1, WIRE_UNORDERED | WIRE_BATCH},
		{1, 0, WIRE_UNORDERED | WIRE_BATCH},
		{1, 1, WIRE_UNORDERED},
		{2, 0, WIRE_UNORDERED},
		{2, 3, WIRE_UNORDERED},
	};
	for (unsigned c = 0; c < 2 * sizeof cases / sizeof *cases; c++) {
		char what[32];
		unsigned early = c % 2;
		snprintf(what, sizeof what, "case %u", c);
		enter(UP);
		uint32_t first = peer->rx_next + early;
		next_part(first + cases[c / 2].number - 1, first, cases[c / 2].part, cases[c / 2].flags, broken, what);
		leave(what);
	}
}

/* Several messages, which are small ones, and no packet that they are behind. */
Test(transport_assemble, batch_behind_none)
{
	for (unsigned early = 0; early < 2; early++) {
		struct packet k;
		enter(UP);
		put_head(&k, WIRE_MESSAGE, RIGHT);
		put_data(&k, WHOLE, peer->rx_next + early);
		k.head.flags = WIRE_UNORDERED | WIRE_BATCH;
		k.len = TRANSPORT_HEAD_BYTES + 64; /* ten bytes, and a second one without any */
		next(&k, broken, early ? "early" : "due");
		leave("batch");
	}
}

/* There is no memory for what is due, so what came early is given up, but for what went up. Expect the bytes of the
 * message that is begun to be missing again. */
Test(transport_assemble, memory)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	for (unsigned i = 0; i < 3; i++)
		next_part(due + 4 + i, due + 4, i, WIRE_UNORDERED, i == 2 ? up : kept, "one that goes up");
	next_part(due, due, 0, WIRE_UNORDERED, (struct expect){0}, "the beginning");
	next_part(due + 3, due, 2, WIRE_UNORDERED, kept, "the end");
	cr_assert_eq(peer->early_n, 4);
	transport_audit_paused = true;
	queue->in_bytes += FAR_TRANSPORT_IN_BYTES;
	put_head(&k, WIRE_MESSAGE, RIGHT);
	put_data(&k, WHOLE, due + 1);
	next(&k, (struct expect){.sent = SENT(ACK), .counter = NO_MEMORY}, "no memory");
	queue->in_bytes -= FAR_TRANSPORT_IN_BYTES;
	transport_audit_paused = false;
	cr_assert_eq(peer->early_n, 3);
	next_part(due + 2, due, 1, WIRE_UNORDERED, kept, "the middle");
	next_part(due + 3, due, 2, WIRE_UNORDERED, up, "the end again");
	next_part(due + 5, due + 4, 1, WIRE_UNORDERED, again, "of the one that went up");
	next_whole(due + 1, 1, "what was due");
	cr_assert_eq(peer->rx_next, due + 7);
	leave("memory");
}

/* A small one that waits for a packet of a larger one, as no sender of ours has it. */
Test(transport_assemble, waited_for)
{
	struct packet k;
	enter(UP);
	uint32_t due = peer->rx_next;
	put_head(&k, WIRE_MESSAGE, RIGHT);
	put_data(&k, WHOLE, due + 4);
	k.head.flags = WIRE_UNORDERED;
	k.head.offset = le32_of(1);
	next(&k, kept, "a small one");
	for (unsigned i = 0; i < 3; i++)
		next_part(due + 1 + i, due + 1, i, WIRE_UNORDERED,
			  i == 2 ? (struct expect){.sent = SENT(ACK), .got = 2} : kept, "a larger one");
	next_whole(due, 1, "what was due");
	cr_assert_eq(peer->rx_next, due + 5);
	leave("waited for");
}

/* ---- between two ends ---- */

enum { SEQS = 4000, LONG = 9000 };

static uint32_t at_0, at_1;
static uint8_t order_of[SEQS];
static uint32_t len_of[SEQS];
static uint32_t got_at[SEQS]; /* 0: it has not come; from 1 on in which turn of all */
static uint32_t got_n;
static bool losing_long;

static bool lose_long(void *ctx, unsigned from, unsigned to, unsigned q, uint8_t *bytes, uint32_t *len)
{
	struct wire_message h;
	memcpy(&h, bytes, sizeof h);
	return !losing_long || from || h.kind != WIRE_MESSAGE || le32_get(h.length) != LONG;
}

static void begin(void)
{
	fixture_init();
	fixture.fabric.crc = true;
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	memset(got_at, 0, sizeof got_at);
	got_n = 0;
	losing_long = true;
	fixture.fabric.hook = lose_long;
}

static int commit(uint32_t seq, uint32_t len, enum nic_order order)
{
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, at_0, len, &tx);
	if (error)
		return error;
	fixture_fill(&tx, seq, len);
	tx.order = (uint8_t)order;
	order_of[seq] = (uint8_t)order;
	len_of[seq] = len;
	return q->ops->tx_commit(q, &tx);
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
			cr_assert_lt(seq, SEQS);
			cr_assert(fixture_is(&pkts[i], seq), "%u", (unsigned)seq);
			cr_assert_eq(got_at[seq], 0, "%u twice", (unsigned)seq);
			got_at[seq] = ++got_n;
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

static void end(uint32_t n)
{
	losing_long = false;
	for (unsigned i = 0; i < 20000 && got_n < n; i++)
		turn();
	for (unsigned i = 0; i < 100; i++)
		turn();
	cr_assert_eq(got_n, n);
	struct transport_queue *q = (struct transport_queue *)fixture.ends[1].q;
	cr_assert_eq(fixture.ends[0].downs + fixture.ends[1].downs, 0);
	cr_assert_eq(q->in_bytes, 0);
	cr_assert_eq(q->grants.n + q->peers[at_1]->early_n, 0);
	fixture_fini();
}

/* All packets of a long message are lost. Expect shorter ones, of several packets, to go up as their order allows. */
Test(transport_assemble, passes_a_long_one)
{
	for (unsigned order = NIC_ORDER_ALL; order <= NIC_ORDER_NONE; order++) {
		begin();
		cr_assert_eq(commit(0, LONG, NIC_ORDER_NONE), 0);
		cr_assert_eq(commit(1, 3000, (enum nic_order)order), 0);
		cr_assert_eq(commit(2, 4000, NIC_ORDER_NONE), 0);
		for (unsigned i = 0; i < 3; i++) {
			fixture.ends[0].q->ops->flush(fixture.ends[0].q);
			take();
			fixture_take(0, 0);
		}
		cr_assert_eq(got_at[0], 0);
		cr_assert_eq(got_at[1] != 0, order == NIC_ORDER_NONE);
		cr_assert_neq(got_at[2], 0);
		end(3);
	}
}

static bool same_row(uint32_t a, uint32_t b, enum nic_order order)
{
	if (order == NIC_ORDER_STREAM)
		return order_of[a] != NIC_ORDER_NONE;
	return len_of[a] <= 1000 && len_of[b] <= 1000 && order_of[a] == NIC_ORDER_NONE; /* small ones */
}

/* Packets are lost, repeated and overtake each other, of messages of all lengths and orders. Expect each once, and none
 * before one that it may not pass. */
Test(transport_assemble, everything_happens)
{
	for (uint64_t seed = 1; seed <= 8; seed++) {
		uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15);
		uint32_t n = 0;
		begin();
		losing_long = false;
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.repeat = 30;
		fixture.fabric.overtake = 200;
		while (n < SEQS / 8) {
			for (unsigned k = 0; k < 6 && n < SEQS / 8; k++) {
				x ^= x << 13;
				x ^= x >> 7;
				x ^= x << 17;
				uint32_t kind = (uint32_t)(x >> 20) % 10, len = (uint32_t)(x >> 32);
				len %= kind < 4 ? 1000 : kind < 9 ? 12000 : 60000;
				if (commit(n, len,
					   x % 9 == 0   ? NIC_ORDER_ALL
					   : x % 9 == 1 ? NIC_ORDER_STREAM
							: NIC_ORDER_NONE))
					break;
				n++;
			}
			turn();
		}
		end(n);
		for (uint32_t b = 0; b < n; b++)
			for (uint32_t a = 0; a < b; a++)
				if (order_of[b] == NIC_ORDER_ALL || same_row(a, b, (enum nic_order)order_of[b]))
					cr_assert_lt(got_at[a], got_at[b], "seed %u: %u passes %u", (unsigned)seed, b,
						     a);
	}
}
