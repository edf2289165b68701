/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that the other side reads where they lie: announced, read in the order of the grants, gone on with in
 * packets whatever fails; their memory let go of when nobody may read or write it any more. The test's thread. */
#include "fake_bulk.h"
#include "onesided_fixture.h"
#include "transport/grant.h"
#include "transport/message.h"
#include "transport/onesided.h"
#include "transport/port.h"
#include "transport/read.h"
#include "transport/wire.h"

#include <errno.h>

enum { SHORT = 100000 };

TestSuite(transport_read, .init = begin, .fini = fixture_fini);

static uint64_t len_mixed(uint64_t seq)
{
	static const uint32_t lens[] = {32, LONG / 4, 0, 1000, 3000, SHORT, 200, 2 * 1304 + 64, 5000, 2863, 2864, 2865};
	return lens[seq % (sizeof lens / sizeof *lens)] + seq % 7;
}

/* As the engine does at a connection's end, or to end it. */
static void leave(void)
{
	fixture.ends[0].q->ops->detach(fixture.ends[0].q, at_0);
	fixture.ends[1].q->ops->detach(fixture.ends[1].q, at_1);
}

/* Until an end has `n` messages, which are whole. */
static void until_got(unsigned end, unsigned n)
{
	for (unsigned i = 0; i < 5000 && fixture.ends[end].got < n; i++)
		fixture_turn();
	cr_assert(fixture.ends[end].got == n && !fixture.ends[end].bad);
}

Test(transport_read, read_where_it_lies)
{
	fixture_two(&at_0, &at_1);
	uint64_t sent = fixture.fabric.sent;
	cr_assert(fixture_stream(0, at_0, 1, 5, len_long, 3000));
	sent = fixture.fabric.sent - sent;
	cr_assert(fake_bulk.exposes == 5 && fake_bulk.refused == 0);
	cr_assert_geq(fake_bulk.reads, 5);
	cr_assert_geq(fake_bulk.bytes, 5 * (LONG - 1400 - TRANSPORT_TAIL_BYTES));
	cr_assert_lt(sent, 200, "%lu packets", (unsigned long)sent);
	nothing_left();
	cr_assert_eq(fake_bulk.withdrawn, 5);
}

Test(transport_read, both_ways)
{
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 8; i++) {
		cr_assert_eq(fixture_send(0, at_0, i, LONG), 0);
		cr_assert_eq(fixture_send(1, at_1, i, LONG), 0);
	}
	until_got(0, 8);
	until_got(1, 8);
	cr_assert_eq(fake_bulk.exposes, 16);
	nothing_left();
}

/* Each read of a message is the one that fails. */
Test(transport_read, half_way)
{
	unsigned fell = 0;
	for (unsigned at = 1; at <= 12; at++) {
		begin();
		fake_bulk.fail_at = at;
		fake_bulk.late = at % 3;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 2, len_long, 3000), "read %u", at);
		fell += fake_bulk.bytes < 2 * (LONG - 1400 - TRANSPORT_TAIL_BYTES);
		nothing_left();
		fixture_fini();
	}
	cr_assert_geq(fell, 4);
}

Test(transport_read, out_of_order)
{
	fake_bulk.backwards = true;
	fake_bulk.late = 5;
	fixture_two(&at_0, &at_1);
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(fixture_send(0, at_0, i, LONG), 0);
	until_got(1, 4);
	nothing_left();
}

/* Two reads of one message are under way; `*second` is of the later bytes. */
static struct fake_bulk_op *two_reads(struct fake_bulk_op **second)
{
	struct transport_grants *g = &transport_of(1)->grants;
	fake_bulk.hold = true;
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	for (unsigned i = 0; i < 100 && fake_bulk.reads == 0; i++)
		fixture_turn();
	g->rtt_ns = FIXTURE_MS; /* as if the path had been found to be long */
	g->rtt_at = fixture.now;
	g->rate = UINT64_C(10000000000);
	g->due = true;
	fixture_turn();
	cr_assert_eq(fake_bulk.reads, 2);
	struct fake_bulk_op *ops[2];
	unsigned n = 0;
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++)
		if (fake_bulk.op[i].state == FAKE_READING)
			ops[n++] = &fake_bulk.op[i];
	cr_assert_eq(n, 2);
	bool swapped = ops[0]->addr > ops[1]->addr;
	fake_bulk.hold = false;
	*second = ops[!swapped];
	return ops[swapped];
}

/* The earlier one fails: nothing is said before the later one, which still writes, is over. */
Test(transport_read, reported_when_none_is_under_way)
{
	struct fake_bulk_op *first, *second;
	fixture_two(&at_0, &at_1);
	first = two_reads(&second);
	first->fails = true;
	second->late = 60;
	for (unsigned i = 0; i < 50; i++)
		fixture_turn();
	cr_assert(first->state == FAKE_FREE && second->state == FAKE_READING);
	cr_assert_eq(fixture.ends[1].got, 0);
	cr_assert_eq(transport_of(1)->grants.first->transfer, TRANSPORT_RX_READING);
	until_got(1, 1);
	nothing_left();
}

/* The later one is over first, and the earlier one fails: there is a gap. */
Test(transport_read, a_gap)
{
	struct fake_bulk_op *first, *second;
	fixture_two(&at_0, &at_1);
	first = two_reads(&second);
	first->fails = true;
	first->late = 10;
	until_got(1, 1);
	nothing_left();
}

Test(transport_read, cannot_read)
{
	static const struct {
		int error;
		unsigned n;
		bool reads;
	} cases[] = {{-ENOTCONN, 0, false}, {-EPIPE, 0, false},    {-EINVAL, 0, false}, {-ENOMEM, 0, false},
		     {-ENOMEM, 3, true},    {-ENOTCONN, 1, false}, {-EAGAIN, 2, true}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		begin();
		fake_bulk.read_error = cases[i].error;
		fake_bulk.read_errors = cases[i].n;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 1, len_long, 3000), "case %u", i);
		cr_assert_eq(fake_bulk.reads > 0, cases[i].reads, "case %u", i);
		nothing_left();
		fixture_fini();
	}
}

/* Of many messages one waits for memory that does not come. */
Test(transport_read, no_memory_for_long)
{
	fake_bulk.read_error = -ENOMEM;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 1, len_long, 3000));
	uint64_t from = fixture.now;
	cr_assert(fixture_stream(0, at_0, 1, 4, len_long, 3000));
	cr_assert_lt(fixture.now - from, 3 * FAR_TRANSPORT_ONESIDED_NS);
	fake_bulk.read_error = 0;
	fixture.now = from + FAR_TRANSPORT_ONESIDED_NS + FAR_TRANSPORT_UNREAD_NS;
	cr_assert(fixture_stream(0, at_0, 1, 1, len_long, 3000));
	cr_assert_gt(fake_bulk.reads, 0);
	nothing_left();
}

/* Connections end at any time: messages that are announced, requested, read. */
static void break_now(void)
{
	if (fixture.turns % 13 == 0)
		fake_bulk_break();
}

Test(transport_read, connections_break)
{
	fixture_two(&at_0, &at_1);
	fake_bulk.late = 2;
	fixture.before = break_now;
	cr_assert(fixture_stream(0, at_0, 1, 60, len_mixed, 30000));
	fixture.before = NULL;
	cr_assert_gt(fake_bulk.bytes, 0);
	nothing_left();
}

/* Packets are lost, repeated, overtaken and damaged, reads fail. */
Test(transport_read, bad_network)
{
	for (unsigned seed = 1; seed <= 4; seed++) {
		begin();
		fixture.fabric.crc = false;
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.overtake = 50;
		fixture.fabric.repeat = fixture.fabric.damage = 20;
		fake_bulk.fail_of = 100;
		fake_bulk.late = seed % 3;
		fake_bulk.seed = seed;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 150, len_mixed, 100000), "seed %u: %lu", seed,
			  (unsigned long)fixture.ends[1].got);
		cr_assert_gt(fake_bulk.bytes, 0);
		fixture.fabric.drop = fixture.fabric.overtake = fixture.fabric.repeat = fixture.fabric.damage = 0;
		nothing_left();
		fixture_fini();
	}
}

static void send_free(unsigned e, uint32_t peer, uint64_t seq, uint64_t len)
{
	struct nic_queue *q = fixture.ends[e].q;
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_reserve(q, peer, len, &tx), 0);
	fixture_fill(&tx, seq, len);
	tx.order = NIC_ORDER_NONE;
	cr_assert_eq(q->ops->tx_commit(q, &tx), 0);
}

/* Bytes under way of what a port exposed. */
static uint64_t under_way(unsigned port)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < FAKE_BULK_OPS; i++)
		for (unsigned k = 0; fake_bulk.op[i].state == FAKE_READING && k < FAKE_BULK_OPS; k++)
			if (fake_bulk.op[k].state == FAKE_BOUND && fake_bulk.op[k].q->port->index == port &&
			    fake_bulk.op[k].key == fake_bulk.op[i].key)
				bytes += fake_bulk.op[i].len;
	return bytes;
}

/* A shorter one that comes later has the greater share of what is to be read next. */
Test(transport_read, shortest_first)
{
	uint32_t from_0, from_1, at;
	for (unsigned e = 0; e < 3; e++)
		end_open(e, 1);
	fixture_pair(0, 2, &from_0, &at);
	fixture_pair(1, 2, &from_1, &at);
	fake_bulk.hold = true;
	for (unsigned i = 1; i <= 2; i++)
		send_free(0, from_0, i, (13 + i) << 20);
	for (unsigned i = 0; i < 60 && transport_of(2)->grants.n < 2; i++)
		fixture_turn();
	cr_assert_eq(fixture_send(1, from_1, 0, 6 << 20), 0); /* what comes is checked to be this first */
	struct transport_grants *g = &transport_of(2)->grants;
	for (unsigned i = 0; i < 60 && g->n < 3; i++)
		fixture_turn();
	cr_assert_gt(under_way(0), 0);
	cr_assert_eq(g->n, 3);
	g->rtt_ns = FIXTURE_MS; /* as if the path had been found to hold 4 MB */
	g->rtt_at = fixture.now;
	g->rate = UINT64_C(2000000000);
	g->choose = g->due = true;
	fixture_turn();
	cr_assert_geq(under_way(1), 1900000);
	fake_bulk.hold = false;
	until_got(2, 3);
	nothing_left();
}

/* Its sender vanishes while it is read: the connection ends, the memory is held until the driver lets go of it. */
Test(transport_read, peer_dies_while_read)
{
	fixture.limit_ns = 500 * FIXTURE_MS;
	fixture_two(&at_0, &at_1);
	fake_bulk.hold = true;
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	for (unsigned i = 0; i < 100 && fake_bulk.reads == 0; i++)
		fixture_turn();
	cr_assert_gt(fake_bulk.reads, 0);
	fixture.fabric.drop = 1000;
	cr_assert(fixture_until(&fixture.ends[1].downs, 1, 20000));
	cr_assert(fixture_until(&fixture.ends[0].downs, 1, 20000));
	struct transport_onesided_table *o = &transport_of(1)->onesided;
	leave();
	cr_assert_gt(o->n, 0);
	for (unsigned i = 0; i < FAR_TRANSPORT_ONESIDED; i++) {
		cr_assert_null(o->entry[i].owner);
		cr_assert_null(o->reading[i].message);
		cr_assert(o->entry[i].state != TRANSPORT_ONESIDED_READING || atomic_load(&o->entry[i].buf->refs) >= 1);
	}
	cr_assert_eq(transport_of(1)->in_bytes, 0);
	fake_bulk.hold = false; /* the driver writes there now */
	settle();
	cr_assert(o->n == 0 && o->stray == 0 && fake_bulk_n() == 0 && transport_of(0)->onesided.n == 0);
	cr_assert_eq(fixture.ends[1].got, 0);
}

/* The port is closed with all of it under way. */
Test(transport_read, closed_while_read)
{
	fixture_two(&at_0, &at_1);
	fake_bulk.hold = true;
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(fixture_send(0, at_0, i, LONG), 0);
	for (unsigned i = 0; i < 100 && fake_bulk.reads < 3; i++)
		fixture_turn();
	cr_assert_gt(transport_of(1)->onesided.n, 0);
	cr_assert_gt(transport_of(0)->onesided.n, 0);
}

/* ---- who says what cannot be ---- */

static struct {
	bool (*alter)(uint8_t *bytes, uint32_t *len);
	unsigned from, times;
} altered;

static bool alter(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (altered.times && from == altered.from && altered.alter(bytes, len))
		altered.times--;
	return true;
}

static bool is_grant(const uint8_t *bytes, uint32_t len)
{
	return bytes[1] == WIRE_ACK && len > TRANSPORT_HEAD_BYTES;
}

static struct wire_grant *grant_of(uint8_t *bytes)
{
	return (struct wire_grant *)(void *)(bytes + TRANSPORT_HEAD_BYTES);
}

static bool is_here(const uint8_t *bytes, uint32_t len)
{
	return is_grant(bytes, len) && le32_get(grant_of((uint8_t *)(uintptr_t)bytes)->priority) & WIRE_READ_DONE;
}

static bool here_beyond(uint8_t *bytes, uint32_t *len)
{
	if (is_here(bytes, *len))
		grant_of(bytes)->offset = le32_of(LONG);
	return is_here(bytes, *len);
}

static bool here_of_packets(uint8_t *bytes, uint32_t *len)
{
	if (!is_grant(bytes, *len))
		return false;
	grant_of(bytes)->priority = le32_of(WIRE_READ_DONE);
	return true;
}

static bool is_first(const uint8_t *bytes)
{
	const struct wire_message *h = (const struct wire_message *)(const void *)bytes;
	return h->kind == WIRE_MESSAGE && le32_get(h->first) == le32_get(h->packet) && le32_get(h->length) == LONG;
}

static bool flag_first(uint8_t *bytes, uint32_t *len)
{
	if (is_first(bytes))
		bytes[3] = WIRE_EXPOSED;
	return is_first(bytes);
}

static bool cut_to_key(uint8_t *bytes, uint32_t *len)
{
	if (is_first(bytes))
		*len = TRANSPORT_HEAD_BYTES + sizeof(struct wire_key);
	return is_first(bytes);
}

static bool flag_later(uint8_t *bytes, uint32_t *len)
{
	const struct wire_message *h = (const struct wire_message *)(const void *)bytes;
	bool later = h->kind == WIRE_MESSAGE && le32_get(h->first) != le32_get(h->packet);
	if (later)
		bytes[3] = WIRE_EXPOSED;
	return later;
}

/* The key is wrong: that is no breach, as a driver may not know it any more. The message comes in packets. */
static bool wrong_key(uint8_t *bytes, uint32_t *len)
{
	if (is_first(bytes))
		bytes[*len - sizeof(struct wire_key) + 3] ^= 1;
	return is_first(bytes);
}

static bool wrong_addr(uint8_t *bytes, uint32_t *len)
{
	if (is_first(bytes))
		bytes[*len - 3] ^= 64;
	return is_first(bytes);
}

Test(transport_read, hostile)
{
	static const struct {
		bool (*alter)(uint8_t *bytes, uint32_t *len);
		unsigned from, without;
		bool no_expose;
		unsigned ends; /* 2: nobody's connection */
	} cases[] = {
		{here_beyond, 1, 0, false, 0},     {here_of_packets, 1, 0, true, 0}, {here_of_packets, 1, 3, false, 0},
		{flag_first, 0, 3, false, 1},      {cut_to_key, 0, 0, false, 1},     {flag_later, 0, 0, true, 1},
		{here_of_packets, 1, 1, false, 0}, {wrong_key, 0, 0, false, 2},      {wrong_addr, 0, 0, false, 2}};
	for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
		begin();
		fake_bulk.without = cases[i].without;
		fake_bulk.expose_error = cases[i].no_expose ? -ENOMEM : 0;
		fixture.fabric.hook = alter;
		altered.alter = cases[i].alter;
		altered.from = cases[i].from;
		altered.times = 1;
		fixture_two(&at_0, &at_1);
		cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
		for (unsigned k = 0;
		     k < 3000 && fixture.ends[1].got == 0 && !fixture.ends[0].downs && !fixture.ends[1].downs; k++)
			fixture_turn();
		cr_assert_eq(altered.times, 0, "case %u", i);
		if (cases[i].ends == 2) {
			cr_assert(fixture.ends[1].got == 1 && !fixture.ends[1].bad && fake_bulk.refused > 0, "case %u",
				  i);
			nothing_left();
		} else {
			cr_assert_eq(fixture.ends[cases[i].ends].downs, 1, "case %u", i);
			cr_assert_eq(fixture.ends[cases[i].ends].error, -EPROTO, "case %u", i);
			leave();
			settle();
			cr_assert(transport_of(0)->onesided.n == 0 && transport_of(1)->onesided.n == 0, "case %u", i);
		}
		fixture_fini();
	}
}

/* A forged grant lets the sender send packets while the message is read: two would write to its memory. */
static bool grant_forged(uint8_t *bytes, uint32_t *len)
{
	struct wire_message *h = (struct wire_message *)(void *)bytes;
	if (h->kind != WIRE_ACK || fake_bulk.reads == 0)
		return false;
	*grant_of(bytes) = (struct wire_grant){le32_of(le32_get(h->ack) - 1), le32_of(LONG / 2), le32_of(0)};
	*len = TRANSPORT_HEAD_BYTES + sizeof(struct wire_grant);
	return true;
}

Test(transport_read, packets_while_read)
{
	fixture_two(&at_0, &at_1);
	fake_bulk.hold = true;
	fixture.fabric.hook = alter;
	altered.alter = grant_forged;
	altered.from = 1;
	altered.times = 1;
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	for (unsigned k = 0; k < 100 && !fixture.ends[1].downs; k++)
		fixture_turn();
	cr_assert(fixture.ends[1].downs == 1 && fixture.ends[1].error == -EPROTO && fixture.ends[1].got == 0);
	fake_bulk.hold = false;
	for (unsigned i = 0; i < 3; i++) /* some complete before the engine hears of it */
		fixture_turn();
	leave();
	settle();
	cr_assert(transport_of(0)->onesided.n == 0 && transport_of(1)->onesided.n == 0 && fake_bulk_n() == 0);
}
