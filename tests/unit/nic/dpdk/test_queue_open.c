/* SPDX-License-Identifier: BSD-3-Clause */
/** Queues of each class of device: their rings, operations and checksums, what their close leaves, and keeping them out
 * of the device. The test's thread, and a poller. */
#include "dpdk_fake.h"
#include "open_files.h"

#include <sched.h>

TestSuite(dpdk_queue_open, .fini = fake_close);

Test(dpdk_queue_open, a_device_of_its_own)
{
	p.args.class = DPDK_OWN;
	p.udp_sums = true;
	unsigned before;
	fake_open(2);
	before = open_files();
	cr_assert_eq(queue(0)->base.ops, &dpdk_timer_queue_ops);
	cr_assert(queue(1)->wake.timer >= 0 && queue(1)->wake.kick == -1);
	cr_assert(queue(1)->rx_first == 1 && queue(1)->rx_rings == 1 && queue(1)->tx_queues[0].ring == 1);
	cr_assert(queue(1)->sum == FRAME_SUM_PSEUDO && queue(1)->tx_flags & RTE_MBUF_F_TX_UDP_CKSUM);
	cr_assert_null(queue(1)->turn);
	dpdk_queue_close(queue(1));
	p.queues[1] = NULL;
	cr_assert_eq(before - open_files(), 3u, "epoll, event, timer");
}

/* One ring for all. */
Test(dpdk_queue_open, a_shared_ring)
{
	p.args.class = DPDK_OWN;
	p.shares_ring = true;
	fake_open(2);
	for (unsigned i = 0; i < 2; i++)
		cr_assert(queue(i)->rx_first == 0 && queue(i)->tx_queues[0].ring == 0 &&
			  queue(i)->turn == &p.ring_taken);
	cr_assert_eq(queue(1)->sum, FRAME_SUM_FULL);
}

/* Seven rings of an interface, three queues. Expect each ring polled by one queue. */
Test(dpdk_queue_open, rings_of_an_interface)
{
	bool polled[7] = {false};
	p.args.class = DPDK_IFACE;
	p.xdp_rings = 7;
	fake_open(3);
	cr_assert_eq(queue(0)->base.ops, &dpdk_queue_ops);
	cr_assert_eq(queue(0)->wake.timer, -1);
	for (unsigned i = 0; i < 3; i++)
		for (unsigned k = 0; k < queue(i)->rx_rings; k++) {
			unsigned ring = queue(i)->rx_first + k * queue(i)->rx_step;
			cr_assert(ring < 7 && !polled[ring], "%u", ring);
			polled[ring] = true;
		}
	for (unsigned i = 0; i < 7; i++)
		cr_assert(polled[i], "%u", i);
}

/* Bodies begin at the same place of a cache line, with a tag and without, wherever received frames begin. */
Test(dpdk_queue_open, bodies_are_aligned)
{
	p.args.class = DPDK_IFACE;
	for (unsigned vlan = 0; vlan < 2; vlan++)
		for (unsigned v6 = 0; v6 < 2; v6++) {
			p.args.vlan = vlan ? 42 : 0;
			p.rx_shift = v6 ? 34 : 54; /* so that there is no room to spare without a tag */
			fake_open(1);
			dpdk_queue_close(queue(0));
			p.head_len = v6 ? FRAME_V6_BYTES : FRAME_V4_BYTES;
			cr_assert_eq(dpdk_queue_open(&p, 0, &err), 0);
			cr_assert_eq((queue(0)->body_at + p.rx_shift) % 64, DPDK_BODY_ALIGN);
			cr_assert_geq(queue(0)->body_at,
				      RTE_PKTMBUF_HEADROOM + p.head_len + (vlan ? DPDK_TAG_BYTES : 0));
			cr_assert_eq(queue(0)->tag != 0, vlan);
			fake_close();
			p.queues_n = 0;
		}
}

/* Rings between the queues. Expect one for each pair, made once, and enough room for the largest body. */
Test(dpdk_queue_open, rings_between_queues)
{
	p.args.class = DPDK_IFACE;
	fake_open(3);
	struct forward_ring *l = dpdk_queue_forward_ring(queue(1), 2);
	cr_assert(l && l->slot_bytes - l->body_at >= FAKE_BODY && l->slot_bytes % 64 == 0);
	cr_assert_eq(queue(1)->forward_rings_n, 3u);
	cr_assert_eq(dpdk_queue_forward_ring(queue(1), 2), l);
	cr_assert_not(queue(0)->forwards_rx);
	cr_assert_eq(dpdk_queues_forward(&p, &err), 0, "%s", err.text);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert(queue(i)->forwards_rx);
		for (unsigned k = 0; k < 3; k++)
			cr_assert_eq(queue(i)->forward_rings[k] != NULL, i != k);
	}
	cr_assert_eq(queue(1)->forward_rings[2], l);
}

static _Atomic bool begun;

static void *leave_when_shut(void *arg)
{
	atomic_store(&begun, true);
	while (!atomic_load(&p.shut))
		;
	dpdk_leave(arg);
	return NULL;
}

/* A poller is in a burst. Expect dpdk_shut() to return when it has left, and no queue to enter any more. */
Test(dpdk_queue_open, kept_out_of_the_device)
{
	pthread_t t;
	p.args.class = DPDK_IFACE;
	fake_open(2);
	cr_assert(dpdk_enter(queue(1)));
	cr_assert_eq(pthread_create(&t, NULL, leave_when_shut, queue(1)), 0);
	while (!atomic_load(&begun))
		sched_yield();
	cr_assert_eq(dpdk_shut(&p, DPDK_PAUSED), 0);
	cr_assert_eq(atomic_load(&queue(1)->busy), 0u);
	pthread_join(t, NULL);
	cr_assert_not(dpdk_enter(queue(0)));
	cr_assert_not(dpdk_enter(queue(1)));
	cr_assert_eq(atomic_load(&queue(0)->busy), 0u);
	cr_assert_eq(dpdk_shut(&p, DPDK_OPEN), 0);
	cr_assert(dpdk_enter(queue(0)));
	dpdk_leave(queue(0));
}
