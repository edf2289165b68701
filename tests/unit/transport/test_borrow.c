/* SPDX-License-Identifier: BSD-3-Clause */
/** Larger messages that are sent from the caller's memory while tx_commit() runs: with a peer that takes them
 * meanwhile, with one that does not, in a bad network, and when the connection ends on the way. The memory is
 * overwritten as soon as tx_commit() has returned. The test's thread. */
#include "transport/queue.h"
#include "transport/rings.h"
#include "transport/send.h"
#include "transport_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { LONG = 1 << 20, SHORTEST = FAR_BORROW_BYTES_MIN };

static uint32_t at_0, at_1;
static alignas(64) uint8_t memory[LONG];
static bool committing, takes;            /* end 1 receives while end 0 commits */
static unsigned polls, dies_at, takes_at; /* of end 0, while it commits */

static struct transport_queue *queue_of(unsigned e)
{
	return (struct transport_queue *)fixture.ends[e].q;
}

static struct transport_peer *peer_of(unsigned e)
{
	return queue_of(e)->peers[e ? at_1 : at_0];
}

static void on_poll(unsigned port)
{
	if (!committing || port != 0)
		return;
	polls++;
	if (polls == dies_at)
		transport_peer_dead(queue_of(0), peer_of(0), -EPROTO);
	if (takes && polls >= takes_at)
		fixture_take(1, 0);
}

static void begin(void)
{
	fixture_init();
	fixture.fabric.polled = on_poll;
	committing = takes = false;
	polls = dies_at = takes_at = 0;
}

TestSuite(transport_borrow, .init = begin, .fini = fixture_fini);

static int borrow(uint64_t seq, uint64_t len)
{
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx;
	int error = q->ops->tx_borrow(q, at_0, memory, len, &tx);
	if (error)
		return error;
	cr_assert(tx.body == memory && tx.body_len == len);
	fixture_fill(&tx, seq, len);
	tx.order = NIC_ORDER_ALL;
	committing = true;
	polls = 0;
	error = q->ops->tx_commit(q, &tx);
	committing = false;
	memset(memory, 0xff, sizeof memory);
	return error;
}

static bool came(unsigned n, unsigned turns)
{
	for (; turns && fixture.ends[1].got < n && !fixture.ends[1].bad; turns--)
		fixture_turn();
	return fixture.ends[1].got == n && !fixture.ends[1].bad;
}

/* Nothing of it waits for the next flush. */
static bool all_sent(void)
{
	return !peer_of(0)->rings || !peer_of(0)->rings->bulk_next;
}

Test(transport_borrow, a_peer_that_takes_it)
{
	fixture_two(&at_0, &at_1);
	takes = true;
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert(all_sent());
	cr_assert_gt(polls, 2u);
	cr_assert_gt(fixture.fabric.referred, LONG / 1400 / 2);
	cr_assert(came(1, 1000));
	for (unsigned i = 1; i < 5; i++)
		cr_assert_eq(borrow(i, LONG - 1000 * i), 0);
	cr_assert(came(5, 1000));
	for (unsigned i = 0; i < 100; i++)
		fixture_turn();
	cr_assert_eq(peer_of(0)->out_bytes, 0u);
}

/* It is acknowledged to the end, and freed, while it is committed. */
Test(transport_borrow, acknowledged_meanwhile)
{
	fixture_two(&at_0, &at_1);
	peer_of(1)->ack_every = 1;
	takes = true;
	uint64_t len = SHORTEST + 1304 - SHORTEST % 1304; /* full packets */
	cr_assert_eq(borrow(0, len), 0);
	cr_assert_lt(peer_of(0)->next - peer_of(0)->una, len / 1304 / 2, "of the packets, which are copied");
	cr_assert_eq(borrow(1, len), 0);
	cr_assert(came(2, 1000));
}

Test(transport_borrow, a_peer_that_is_silent)
{
	fixture_two(&at_0, &at_1);
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert(!all_sent());
	cr_assert_geq(polls, 100u);
	cr_assert_leq(polls, 10000u);
	cr_assert_eq(borrow(1, SHORTEST), 0);
	cr_assert(came(2, 20000));
}

/* The peer is late, when some of the end is copied: the rest leaves from the caller's memory still. */
Test(transport_borrow, a_peer_that_is_late)
{
	fixture_two(&at_0, &at_1);
	takes = true;
	takes_at = 1034;
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert_gt(polls, takes_at);
	cr_assert(!all_sent());
	cr_assert_gt(peer_of(0)->rings->bulk_next->done, LONG / 2);
	cr_assert_eq(borrow(1, SHORTEST), 0);
	cr_assert(came(2, 1000));
}

/* What was lost is sent again, from the copy. */
Test(transport_borrow, bad_network)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		fixture.fabric.seed = seed;
		fixture.fabric.drop = fixture.fabric.overtake = seed % 2 ? 5 : 50;
		fixture.fabric.repeat = 10;
		fixture.fabric.damage = seed > 4 ? 0 : 10;
		fixture.fabric.loopback[0] = fixture.fabric.loopback[1] = seed > 4;
		fixture.fabric.plain = seed % 4 == 0;
		fixture.fabric.full_every = seed % 3 == 0 ? 7 : 0;
		fixture_two(&at_0, &at_1);
		for (unsigned i = 0; i < 12; i++) {
			takes = i % 3 != 2;
			cr_assert_eq(borrow(i, SHORTEST + (uint64_t)i * 70001), 0);
			if (i % 4 == 3)
				cr_assert(came(i + 1, 200000), "seed %d", (int)seed);
		}
		cr_assert(fixture.ends[0].downs + fixture.ends[1].downs == 0, "seed %d", (int)seed);
		fixture_fini();
		begin();
	}
}

/* Messages that arrive meanwhile are delivered by the next recv(), in order. */
Test(transport_borrow, messages_arrive_meanwhile)
{
	fixture_two(&at_0, &at_1);
	takes = true;
	for (unsigned i = 0; i < 20; i++)
		cr_assert_eq(fixture_send(1, at_1, i, i * 61 % 300), 0);
	cr_assert_eq(fixture_send(1, at_1, 20, 100000), 0);
	fixture.ends[1].q->ops->flush(fixture.ends[1].q);
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert(all_sent());
	cr_assert_eq(fixture.ends[0].got, 0u);
	cr_assert(came(1, 1000));
	for (unsigned i = 0; i < 1000 && fixture.ends[0].got < 21; i++)
		fixture_turn();
	cr_assert(fixture.ends[0].got == 21 && !fixture.ends[0].bad);
}

static void send_here(uint64_t seq, uint64_t len, struct nic_pkt *pkt)
{
	struct nic_queue *q = fixture.ends[0].q;
	cr_assert_eq(fixture_send(1, at_1, seq, len), 0);
	fixture.ends[1].q->ops->flush(fixture.ends[1].q);
	cr_assert_eq(q->ops->recv(q, pkt, 1), 1u);
	cr_assert(fixture_is(pkt, seq));
}

/* A handler sends while its request is read where it arrived: that memory stays. A small one is a copy. */
Test(transport_borrow, within_a_burst)
{
	struct nic_pkt pkt;
	fixture.fabric.misalign = 32; /* bodies behind our head are aligned */
	fixture_two(&at_0, &at_1);
	takes = true;
	send_here(0, 600, &pkt);
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert_eq(polls, 0u);
	cr_assert(!all_sent());
	cr_assert(fixture_is(&pkt, 0));
	cr_assert(came(1, 20000));
	send_here(1, 24, &pkt);
	cr_assert_eq(borrow(1, LONG), 0);
	cr_assert_gt(polls, 0u);
	cr_assert(all_sent());
	cr_assert(fixture_is(&pkt, 1));
	cr_assert(came(2, 1000));
	/* Of a burst a part was taken. */
	cr_assert_eq(fixture_send(1, at_1, 2, 100000), 0);
	fixture.ends[1].q->ops->flush(fixture.ends[1].q);
	fixture_turn();
	for (unsigned i = 3; i < 9; i++) {
		cr_assert_eq(fixture_send(1, at_1, i, 16), 0);
		fixture.ends[1].q->ops->flush(fixture.ends[1].q);
	}
	fixture.ends[0].got = 2;
	for (unsigned i = 0; i < 1000 && fixture.ends[0].got < 3; i++)
		fixture_turn();
	cr_assert_eq(borrow(2, LONG), 0);
	cr_assert(came(3, 20000));
	for (unsigned i = 0; i < 1000 && fixture.ends[0].got < 9; i++)
		fixture_turn();
	cr_assert(fixture.ends[0].got == 9 && !fixture.ends[0].bad);
}

Test(transport_borrow, the_connection_ends)
{
	fixture_two(&at_0, &at_1);
	takes = true;
	dies_at = 2;
	cr_assert_eq(borrow(0, LONG), 0);
	cr_assert_eq(polls, 2u);
	struct nic_queue *q = fixture.ends[0].q;
	q->ops->detach(q, at_0);
	cr_assert_eq(peer_of(0)->out_bytes, 0u);
	for (unsigned i = 0; i < 100; i++)
		fixture_turn();
	cr_assert_eq(fixture.ends[1].got, 0u);
}

Test(transport_borrow, refused)
{
	fixture_two(&at_0, &at_1);
	struct nic_queue *q = fixture.ends[0].q;
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_borrow(q, at_0, memory, SHORTEST - 1, &tx), -EOPNOTSUPP);
	cr_assert_eq(q->ops->tx_borrow(q, 99, memory, LONG, &tx), -EOPNOTSUPP);
	cr_assert_eq(q->ops->tx_borrow(q, at_0, memory, TRANSPORT_BODY_MAX + 1, &tx), -EMSGSIZE);
	peer_of(0)->bulk = true; /* a device may read it at any time */
	cr_assert_eq(q->ops->tx_borrow(q, at_0, memory, LONG, &tx), -EOPNOTSUPP);
	peer_of(0)->bulk = false;
	cr_assert_eq(q->ops->tx_borrow(q, at_0, memory, LONG, &tx), 0);
	q->ops->tx_cancel(q, &tx);
	cr_assert_eq(peer_of(0)->out_bytes, 0u);
	cr_assert_eq(fixture_send(0, at_0, 0, LONG), 0);
	cr_assert(came(1, 20000));
	uint32_t here, ignored;
	fixture_pair(0, 0, &here, &ignored);
	cr_assert_eq(q->ops->tx_borrow(q, here, memory, LONG, &tx), -EOPNOTSUPP);
}
