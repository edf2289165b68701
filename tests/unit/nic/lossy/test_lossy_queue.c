/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations of the lossy driver over a connected one, with what it refuses and what it counts.
 * The test's thread. */
#include "lossy_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(lossy_queue, .fini = lossy_pair_teardown);

static int reserve(uint64_t len, struct nic_tx *tx)
{
	return lossy_pair.q->ops->tx_reserve(lossy_pair.q, lossy_pair.peer, len, tx);
}

static struct nic_stats stats_of(const struct nic_port *port)
{
	struct nic_stats s;
	port->ops->stats(port, &s);
	return s;
}

Test(lossy_queue, attached_peers_of_ours_only)
{
	struct nic_tx tx;
	lossy_pair_open("over=shm", 0);
	const struct nic_queue_ops *ops = lossy_pair.q->ops;
	cr_assert_eq(ops->attach(lossy_pair.q, UINT32_MAX), -EINVAL);
	cr_assert_eq(ops->attach(lossy_pair.q, lossy_pair.peer + 1), -EINVAL);
	/* The other end's number of the connection is there to be listened to. */
	cr_assert_eq(lossy_pair.to_q->ops->attach(lossy_pair.to_q, 0), -EINVAL);
	cr_assert_eq(lossy_pair.to_q->ops->tx_room(lossy_pair.to_q, 0), 0u);
	ops->detach(lossy_pair.q, lossy_pair.peer + 1);
	ops->detach(lossy_pair.q, UINT32_MAX);
	cr_assert_gt(ops->tx_room(lossy_pair.q, lossy_pair.peer), 0u);
	ops->detach(lossy_pair.q, lossy_pair.peer);
	cr_assert_eq(reserve(10, &tx), -EPIPE);
	cr_assert_eq(ops->tx_room(lossy_pair.q, lossy_pair.peer), 0u);
}

Test(lossy_queue, bodies_are_bounded)
{
	struct nic_tx tx;
	lossy_pair_open("over=shm,bytes=1400", 0);
	cr_assert_eq(reserve(1401, &tx), -EMSGSIZE);
	cr_assert_eq(reserve(1400, &tx), 0);
	cr_assert_eq(tx.priority, 0);
	lossy_pair.q->ops->tx_cancel(lossy_pair.q, &tx);
	cr_assert_eq(lossy_pair.q->ops->tx_bytes_max(lossy_pair.q, lossy_pair.peer), 1400u);
}

Test(lossy_queue, both_ends_count)
{
	uint32_t number;
	bool whole;
	struct nic_tx tx;
	lossy_pair_open("over=shm", 0);
	uint32_t room = lossy_pair.q->ops->tx_room(lossy_pair.q, lossy_pair.peer);
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_eq(lossy_pair_send(i), 0);
	cr_assert_eq(reserve(50, &tx), 0);
	lossy_pair.q->ops->tx_cancel(lossy_pair.q, &tx);
	struct nic_stats sent = stats_of(lossy_pair.from);
	cr_assert(sent.tx_packets == 5 && sent.tx_bytes == 5 * LEN && sent.tx_dropped == 0 && sent.rx_packets == 0);
	for (uint32_t i = 0; i < 5; i++)
		cr_assert(lossy_pair_take(&number, &whole) && number == i && whole);
	cr_assert_not(lossy_pair_take(&number, &whole));
	struct nic_stats got = stats_of(lossy_pair.to);
	cr_assert(got.rx_packets == 5 && got.rx_bytes == 5 * LEN && got.rx_malformed == 0 && got.tx_packets == 0);
	cr_assert_leq(lossy_pair.q->ops->tx_room(lossy_pair.q, lossy_pair.peer), room);
}

/* A burst of the connected driver below is bounded: each of its bodies is given back by the next recv(). */
Test(lossy_queue, bursts_are_bounded)
{
	struct nic_pkt pkts[2 * LOSSY_BURST_MAX];
	unsigned got = 0, bursts = 0;
	lossy_pair_open("over=shm", 0);
	for (unsigned round = 0; round < 20; round++) {
		for (uint32_t i = 0; i < LOSSY_BURST_MAX + 10; i++) {
			struct nic_tx tx;
			cr_assert_eq(reserve(2000, &tx), 0, "round %u: the bodies come back", round);
			memset(tx.body, (int)i, 2000);
			cr_assert_eq(lossy_pair.q->ops->tx_commit(lossy_pair.q, &tx), 0);
		}
		lossy_pair.q->ops->flush(lossy_pair.q);
		for (unsigned n; (n = lossy_pair.to_q->ops->recv(lossy_pair.to_q, pkts, 2 * LOSSY_BURST_MAX)); bursts++)
			for (unsigned i = 0; i < n; i++, got++) {
				cr_assert_leq(n, LOSSY_BURST_MAX);
				cr_assert(pkts[i].peer == NIC_PEER_NONE && pkts[i].cookie == 0);
				cr_assert_eq(pkts[i].body[1999], (uint8_t)(got % (LOSSY_BURST_MAX + 10)));
			}
	}
	cr_assert_eq(got, 20 * (LOSSY_BURST_MAX + 10));
	cr_assert_geq(bursts, 40u);
}

/* The line below belongs to the caller between reserve and commit of a small packet: nothing else is sent then. */
Test(lossy_queue, a_small_packet_is_not_overtaken_while_it_is_open)
{
	struct nic_tx tx;
	struct nic_pkt pkt;
	uint32_t number;
	bool whole;
	lossy_pair_open("over=shm,delay=1:1us", 0);
	const struct lossy_queue *q = (const struct lossy_queue *)lossy_pair.q;
	cr_assert_eq(lossy_pair_send(1), 0);
	cr_assert_eq(q->held_n, 1u);
	cr_assert_eq(reserve(4, &tx), 0);
	while (lossy_now() < q->due)
		;
	cr_assert_eq(lossy_pair.q->ops->recv(lossy_pair.q, &pkt, 1), 0u);
	cr_assert(q->held_n == 1 && !lossy_pair_take(&number, &whole));
	lossy_pair.q->ops->tx_cancel(lossy_pair.q, &tx);
	cr_assert_eq(lossy_pair.q->ops->recv(lossy_pair.q, &pkt, 1), 0u);
	cr_assert(q->held_n == 0 && lossy_pair_take(&number, &whole) && number == 1 && whole);
}

Test(lossy_queue, its_deadline_is_the_earlier_one)
{
	lossy_pair_open("over=shm", 0);
	struct lossy_queue *q = (struct lossy_queue *)lossy_pair.q;
	cr_assert_eq(lossy_pair.q->ops->deadline(lossy_pair.q), UINT64_MAX);
	lossy_hold(q, lossy_pair.peer, lossy_slot_fill(q, "x", 1, 0), 1, 12345, 0);
	cr_assert_eq(lossy_pair.q->ops->deadline(lossy_pair.q), 12345u);
}
