/* SPDX-License-Identifier: BSD-3-Clause */
/** A queue of the dpdk driver on a device in memory: what is sent and received, room, frames that are not ours, sleep.
 * The test's thread. */
#include "dpdk_fake.h"
#include "readable.h"

TestSuite(dpdk_queue, .fini = fake_close);

static struct nic_pkt pkts[DPDK_BURST];

static void begin(void)
{
	p.args.class = DPDK_IFACE;
	fake_open(1);
	fake_dest(0);
}

static void flush(void)
{
	queue(0)->base.ops->flush(&queue(0)->base);
}

static unsigned free_mbufs(void)
{
	return rte_mempool_avail_count(p.pools[0]);
}

/* Expect the bytes where they lie in the frame, aligned, and its memory back at the next recv(). */
Test(dpdk_queue, what_is_sent_is_received)
{
	static const unsigned lens[] = {1, 32, 63, 1000, FAKE_BODY};
	begin();
	unsigned before = free_mbufs();
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(fake_send(FAKE_PEER, lens[i], (uint8_t)('a' + i), 0), 0);
	cr_assert_eq(rings[0].sent_n, 0u, "not before the flush");
	flush();
	cr_assert_eq(rings[0].sent_n, 5u);
	fake_deliver(0, 0);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 5u);
	for (unsigned i = 0; i < 5; i++) {
		cr_assert(fake_is(&pkts[i], lens[i], (uint8_t)('a' + i)), "%u", lens[i]);
		cr_assert_eq((uintptr_t)pkts[i].body % 64, (uintptr_t)DPDK_BODY_ALIGN);
	}
	cr_assert_eq(free_mbufs(), before - 5);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 0u);
	cr_assert_eq(free_mbufs(), before);
	const struct dpdk_counters *c = &queue(0)->counters;
	cr_assert(c->tx_packets == 5 && c->rx_packets == 5 && c->tx_bytes == 1096 + FAKE_BODY);
	cr_assert_eq(c->rx_bytes, c->tx_bytes);
}

/* A device that takes nothing. Expect as many packets to wait as may, urgent ones beyond them, and all of them to
 * leave in order. */
Test(dpdk_queue, room_is_bounded)
{
	struct nic_queue *q;
	begin();
	q = &queue(0)->base;
	rings[0].room = 0;
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	cr_assert_eq(q->ops->tx_room(q, FAKE_PEER), DPDK_TX_MAX);
	for (unsigned i = 0; i < DPDK_TX_MAX; i++)
		cr_assert_eq(fake_send(FAKE_PEER, 100, (uint8_t)i, 0), 0, "%u", i);
	cr_assert_eq(q->ops->tx_room(q, FAKE_PEER), 0u);
	cr_assert_eq(fake_send(FAKE_PEER, 100, 0, 0), -EAGAIN);
	for (unsigned i = 0; i < DPDK_TX_URGENT; i++)
		cr_assert_eq(fake_send(FAKE_PEER, 100, (uint8_t)i, NIC_PRIORITY_MAX), 0, "%u", i);
	cr_assert_eq(fake_send(FAKE_PEER, 100, 0, NIC_PRIORITY_MAX), -EAGAIN);
	cr_assert_neq(q->ops->deadline(q), UINT64_MAX, "it is to be tried again");
	for (unsigned n = 0; n < DPDK_TX_MAX + DPDK_TX_URGENT;) {
		rings[0].room = 30;
		flush();
		fake_deliver(0, 0);
		unsigned got = fake_receive(0, pkts, DPDK_BURST);
		cr_assert_gt(got, 0u);
		for (unsigned i = 0; i < got; i++, n++)
			cr_assert(fake_is(&pkts[i], 100, (uint8_t)(n < DPDK_TX_MAX ? n : n - DPDK_TX_MAX)), "%u", n);
	}
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
}

Test(dpdk_queue, packets_that_cannot_be_sent)
{
	static struct nic_tx tx[1024];
	struct nic_queue *q;
	begin();
	q = &queue(0)->base;
	cr_assert_eq(q->ops->attach(q, FAKE_PEER), -EINVAL, "twice");
	cr_assert_eq(q->ops->attach(q, FAKE_PEER + 1), -EINVAL);
	cr_assert_eq(q->ops->attach(q, DPDK_DESTS_MAX), -EINVAL);
	cr_assert_eq(q->ops->tx_reserve(q, FAKE_PEER + 1, 1, tx), -EPIPE);
	cr_assert_eq(q->ops->tx_reserve(q, UINT32_MAX, 1, tx), -EPIPE);
	cr_assert_eq(q->ops->tx_bytes_max(q, FAKE_PEER), (uint64_t)FAKE_BODY);
	cr_assert_eq(q->ops->tx_reserve(q, FAKE_PEER, FAKE_BODY + 1, tx), -EMSGSIZE);
	unsigned n = 0, before = free_mbufs();
	while (n < 1024 && q->ops->tx_reserve(q, FAKE_PEER, 1, &tx[n]) == 0)
		n++;
	cr_assert_eq(n, DPDK_TX_MAX + DPDK_TX_URGENT, "those that are being written count");
	while (n > 0)
		q->ops->tx_cancel(q, &tx[--n]);
	cr_assert_eq(free_mbufs(), before);
	for (; rte_mempool_generic_get(p.pools[0], (void **)&rings[0].sent[n], 1, NULL) == 0; n++)
		rte_pktmbuf_reset(rings[0].sent[n]);
	cr_assert_eq(q->ops->tx_reserve(q, FAKE_PEER, 1, tx), -ENOBUFS);
	rings[0].sent_n = n;
	q->ops->detach(q, FAKE_PEER);
	cr_assert_eq(q->ops->tx_reserve(q, FAKE_PEER, 1, tx), -EPIPE);
}

/* Each of four frames is changed. Expect it dropped by its reason. */
Test(dpdk_queue, frames_that_are_not_ours)
{
	begin();
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(fake_send(FAKE_PEER, 64, 'x', 0), 0);
	flush();
	uint8_t *frames[5];
	for (unsigned i = 0; i < 5; i++)
		frames[i] = rte_pktmbuf_mtod(rings[0].sent[i], uint8_t *);
	frames[0][5] ^= 1;                   /* another card's */
	frames[1][FRAME_V4_BYTES + 9] ^= 1;  /* against the checksum */
	rings[0].sent[2]->nb_segs = 2;       /* larger than any of ours */
	frames[3][FRAME_V4_BYTES - 5] ^= 64; /* another port */
	fake_deliver(0, 0);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 1u);
	cr_assert(fake_is(&pkts[0], 64, 'x'));
	cr_assert_eq(queue(0)->counters.unexpected, 2u);
	cr_assert_eq(queue(0)->counters.malformed, 2u);
	queue(0)->rx[2]->nb_segs = 1;
}

/* No queue may enter the device. Expect frames to wait while it is paused, and to be dropped when there is no peer. */
Test(dpdk_queue, a_port_that_is_shut)
{
	begin();
	atomic_store(&p.shut, DPDK_PAUSED);
	cr_assert_eq(fake_send(FAKE_PEER, 64, 'x', 0), 0);
	flush();
	cr_assert(rings[0].sent_n == 0 && queue(0)->waiting == 1 && queue(0)->counters.dropped == 0);
	atomic_store(&p.shut, DPDK_OPEN);
	flush();
	cr_assert(rings[0].sent_n == 1 && queue(0)->waiting == 0);
	fake_deliver(0, 0);
	unsigned before = free_mbufs();
	atomic_store(&p.shut, DPDK_DOWN);
	cr_assert_eq(fake_send(FAKE_PEER, 64, 'x', 0), 0);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 0u, "what is there stays in the ring");
	cr_assert(rings[0].waiting_n == 1 && queue(0)->waiting == 0 && queue(0)->counters.dropped == 1);
	cr_assert_eq(free_mbufs(), before);
	atomic_store(&p.shut, DPDK_OPEN);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 1u);
}

/* Frames of a port with a tag. Expect it added and removed, and frames with another one, or none, dropped. */
Test(dpdk_queue, tags)
{
	p.args.vlan = 42;
	begin();
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(fake_send(FAKE_PEER, 64, 'x', 0), 0);
	flush();
	for (unsigned i = 0; i < 4; i++) {
		uint8_t *at = rte_pktmbuf_mtod(rings[0].sent[i], uint8_t *) + 12;
		cr_assert(at[0] == 0x81 && at[1] == 0 && at[2] == 0 && at[3] == 42);
		at[3] = i == 1 ? 43 : at[3];
		at[0] = i == 2 ? 8 : at[0];
		at[2] = i == 3 ? 0xe0 : at[2]; /* with a priority */
	}
	fake_deliver(0, 0);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 2u);
	cr_assert(fake_is(&pkts[0], 64, 'x') && fake_is(&pkts[1], 64, 'x'));
	cr_assert_eq(queue(0)->counters.unexpected, 2u);
}

/* A packet of queue 1 arrives by the ring of queue 0. Expect it with queue 1, which is woken if it sleeps; what has no
 * room is counted. */
Test(dpdk_queue, packets_of_another_queue)
{
	p.args.class = DPDK_IFACE;
	fake_open(2);
	fake_dest(0);
	uint32_t peer = fake_dest(1);
	cr_assert_eq(dpdk_queues_forward(&p, &err), 0, "%s", err.text);
	struct nic_queue *other = &queue(1)->base;
	for (unsigned asleep = 0; asleep < 2; asleep++) {
		if (asleep)
			other->ops->arm(other);
		cr_assert_eq(fake_send(peer, 200, (uint8_t)('a' + asleep), 0), 0);
		flush();
		fake_deliver(0, 0);
		cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 0u);
		cr_assert_eq(is_readable(other->ops->wake_fd(other)), asleep);
		other->ops->wake_clear(other);
		other->ops->disarm(other);
		cr_assert_not(is_readable(other->ops->wake_fd(other)));
		cr_assert_eq(fake_receive(1, pkts, DPDK_BURST), 1u);
		cr_assert(fake_is(&pkts[0], 200, (uint8_t)('a' + asleep)));
	}
	for (unsigned i = 0; i < FORWARD_SLOTS + 2; i++) {
		cr_assert_eq(fake_send(peer, 8, 'x', 0), 0);
		flush();
		fake_deliver(0, 0);
		fake_receive(0, pkts, DPDK_BURST);
	}
	cr_assert_eq(queue(0)->counters.missed, 3u, "the last burst is still held");
}

/* One ring for two queues. Expect the one that finds it taken to come back later, and to be woken for that. */
Test(dpdk_queue, a_ring_that_is_shared)
{
	p.args.class = DPDK_IFACE;
	p.shares_ring = true;
	fake_open(2);
	fake_dest(0);
	cr_assert_eq(dpdk_queues_forward(&p, &err), 0, "%s", err.text);
	struct nic_queue *q = &queue(0)->base;
	cr_assert_eq(fake_send(FAKE_PEER, 64, 'x', 0), 0);
	flush();
	fake_deliver(0, 0);
	cr_assert(dpdk_enter(queue(1)));
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 0u);
	cr_assert_not(is_readable(q->ops->wake_fd(q)), "it does not sleep");
	q->ops->arm(q);
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 0u);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	q->ops->disarm(q);
	dpdk_leave(queue(1));
	cr_assert_eq(fake_receive(0, pkts, DPDK_BURST), 1u);
	cr_assert_eq(atomic_load(&p.ring_taken), 0u);
}
