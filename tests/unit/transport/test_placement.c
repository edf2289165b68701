/* SPDX-License-Identifier: BSD-3-Clause */
/** Larger messages over a driver that sends them from where they lie, and writes them where they belong: with what
 * comes in between, in a bad network, and when the message ends on the way. The test's thread. */
#include "transport/placement.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

enum { PACKET = 1400, BODY = PACKET - 96, LONG = 1 << 20 };

static uint32_t at_0, at_1;

static uint64_t longer(uint64_t seq)
{
	uint64_t x = (seq + 1) * UINT64_C(0x9e3779b97f4a7c15) >> 20;
	return x % 3 == 0 ? 8192 + x % LONG : x % 3 == 1 ? x % 20000 : x % 129;
}

static uint64_t whole(uint64_t seq)
{
	return LONG;
}

static void begin(void)
{
	fixture_init();
}

TestSuite(transport_placement, .init = begin, .fini = fixture_fini);

static struct transport_queue *queue_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

Test(transport_placement, in_order)
{
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 1, whole, 100000));
	uint64_t packets = (LONG + BODY - 1) / BODY;
	cr_assert_eq(fixture.fabric.referred, LONG / BODY); /* the last one is short */
	/* All but the first, and those that arrive in one burst with it. */
	cr_assert_geq(fixture.fabric.placed, packets - TRANSPORT_BURST, "%d of %d", (int)fixture.fabric.placed,
		      (int)packets);
	cr_assert(!queue_of(1)->expected && !queue_of(1)->placed);
}

Test(transport_placement, a_driver_that_copies)
{
	fixture.fabric.plain = true;
	fixture_two(&at_0, &at_1);
	cr_assert(fixture_stream(0, at_0, 1, 3, whole, 100000));
	cr_assert_eq(fixture.fabric.placed, 0u);
}

/* Packets of other messages, of both directions, lie in places of the longest one. */
Test(transport_placement, among_others)
{
	fixture_two(&at_0, &at_1);
	uint64_t sent = 0, back = 0, n = 60;
	struct transport_end *to = &fixture.ends[1], *from = &fixture.ends[0];
	for (unsigned turns = 0; turns < 100000 && (to->got < n || from->got < n) && !to->bad && !from->bad; turns++) {
		if (sent < n && fixture_send(0, at_0, sent, longer(sent)) == 0)
			sent++;
		if (back < n && fixture_send(1, at_1, back, longer(back + 1)) == 0)
			back++;
		fixture_turn();
	}
	cr_assert(to->got == n && from->got == n && !to->bad && !from->bad);
	cr_assert_gt(fixture.fabric.placed, 0u);
}

Test(transport_placement, bad_network)
{
	for (uint64_t seed = 1; seed <= 16; seed++) {
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.overtake = seed % 2 ? 5 : 50;
		/* Between loopback addresses no checksum hides what was overwritten. */
		fixture.fabric.loopback[0] = fixture.fabric.loopback[1] = seed > 4;
		fixture.fabric.repeat = 10;
		fixture.fabric.damage = seed > 4 ? 0 : 10;
		fixture.fabric.misalign = (unsigned)(seed * 5 % 64);
		fixture.fabric.plain = seed % 4 == 0;
		fixture.fabric.full_every = seed % 3 == 0 ? 7 : 0;
		fixture_two(&at_0, &at_1);
		cr_assert(fixture_stream(0, at_0, 1, 60, longer, 1000000), "seed %d", (int)seed);
		cr_assert(fixture_stream(1, at_1, 0, 60, longer, 1000000), "seed %d", (int)seed);
		cr_assert(fixture.ends[0].downs + fixture.ends[1].downs == 0, "seed %d", (int)seed);
		cr_assert(seed % 4 == 0 ? !fixture.fabric.placed : fixture.fabric.placed > 0, "seed %d", (int)seed);
		fixture_fini();
		begin();
	}
}

static unsigned begun;

/* From then on the sender gets no acknowledgement, and no grant. */
static bool no_grants(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	return from != 1 || !begun;
}

/* The receiver lets go of the peer while packets of its message are expected, and takes what is left of them. */
Test(transport_placement, the_peer_is_dropped)
{
	begun = 0;
	fixture_two(&at_0, &at_1);
	fixture.fabric.hook = no_grants;
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	fixture.ends[0].q->ops->flush(fixture.ends[0].q);
	for (unsigned i = 0; i < 1000 && !queue_of(1)->expected; i++)
		fixture_turn();
	cr_assert_not_null(queue_of(1)->expected);
	begun = 1;
	struct nic_queue *q = fixture.ends[1].q;
	q->ops->detach(q, at_1);
	cr_assert_null(queue_of(1)->expected);
	uint64_t offered = fixture.fabric.offered;
	for (unsigned i = 0; i < 100; i++)
		fixture_turn();
	cr_assert_eq(fixture.fabric.offered, offered);
	cr_assert_eq(fixture.ends[1].got, 0u);
}

static uint8_t late[PACKET];
static uint32_t late_len, sent_n;

static bool one_is_late(void *ctx, unsigned from, unsigned to, unsigned queue, uint8_t *bytes, uint32_t *len)
{
	if (from != 0 || *len < PACKET || ++sent_n != 2)
		return true;
	memcpy(late, bytes, late_len = *len);
	return false;
}

/* A packet is sent again, acknowledged, and its memory used for a message of the peer before the flush: a driver that
 * sent it from there would send what is there now. */
Test(transport_placement, memory_of_what_is_sent_again)
{
	fixture_two(&at_0, &at_1);
	sent_n = 0;
	fixture.fabric.hook = one_is_late;
	struct nic_queue *q0 = fixture.ends[0].q, *q1 = fixture.ends[1].q;
	struct transport_stats before, after;
	transport_stats_read(fixture.ends[0].port, &before);
	/* All of it is unscheduled. */
	queue_of(0)->peers[at_0]->unscheduled_bytes = 100000;
	queue_of(1)->peers[at_1]->unscheduled_bytes = 100000;
	cr_assert(fixture_stream(1, at_1, 0, 1, longer, 100000)); /* so that the second one has other bytes */
	cr_assert_eq(fixture_send(0, at_0, 0, 20000), 0);
	q0->ops->flush(q0);
	fixture_take(1, 0); /* all but the late one: an ACK with bits */
	dgram_inject(&fixture.fabric, 1, 0, late, late_len);
	fixture_take(1, 0); /* the late one: an ACK of all */
	cr_assert_eq(fixture.ends[1].got, 1u);
	cr_assert_eq(fixture_send(1, at_1, 1, 20000), 0);
	q1->ops->flush(q1);
	fixture_take(0, 0);
	transport_stats_read(fixture.ends[0].port, &after);
	cr_assert_eq(after.resent, before.resent + 1);
	for (unsigned i = 0; i < 100 && fixture.ends[0].got < 2; i++)
		fixture_turn();
	cr_assert(fixture.ends[0].got == 2 && !fixture.ends[0].bad && !fixture.ends[1].bad);
}
