/* SPDX-License-Identifier: BSD-3-Clause */
/** Queues: rings, held packets, alignment, what waits for the wire, and sleep. The test's thread. */
#include "readable.h"
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_queue, .init = sim_fixture_init, .fini = sim_fixture_fini);

static struct sim_host_stats stats_of(unsigned e)
{
	struct sim_host_stats stats;
	sim_host_stats(sim_fixture.ends[e].host, &stats);
	return stats;
}

static void send_many(unsigned from, uint32_t place, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		cr_assert_eq(sim_fixture_send(from, place, i, 64), 0);
	sim_fixture_run(1000000);
}

Test(sim_queue, a_receive_ring_overflows)
{
	sim_fixture.args = "rx=8";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	send_many(0, at_1, 20);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 12);
	cr_assert_eq(stats_of(1).rx_packets, 8);
	struct nic_stats port;
	sim_fixture.ends[1].port->ops->stats(sim_fixture.ends[1].port, &port);
	cr_assert(port.rx_missed == 12 && port.rx_packets == 8);
	/* The oldest are kept, and what is in hand keeps its slot until the next recv(). */
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_pkt pkts[16];
	cr_assert_eq(q->ops->recv(q, pkts, 5), 5);
	send_many(0, at_1, 20);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 32);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 3);
	send_many(0, at_1, 20);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 5);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 0);
	cr_assert_eq(stats_of(1).rx_taken, 13);
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.sent, s.arrived + s.dropped[SIM_DROP_RING]);
}

Test(sim_queue, held_packets_keep_their_slots)
{
	sim_fixture.args = "rx=8,hold";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_pkt pkts[16], more[16];
	struct nic_caps caps;
	sim_fixture.ends[1].port->ops->caps(sim_fixture.ends[1].port, &caps);
	cr_assert(caps.zero_copy_rx);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, pkts, 16), 8);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, more, 16), 0);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 8);
	for (unsigned i = 0; i < 8; i++) {
		uint64_t seq;
		memcpy(&seq, pkts[i].body, 8);
		cr_assert(seq == i && pkts[i].cookie);
	}
	q->ops->release(q, NIC_PEER_NONE, pkts[3].cookie);
	q->ops->release(q, NIC_PEER_NONE, pkts[3].cookie); /* a mistake without effect */
	q->ops->release(q, NIC_PEER_NONE, 4711);
	q->ops->release(q, NIC_PEER_NONE, 0);
	send_many(0, at_1, 8);
	cr_assert_eq(q->ops->recv(q, more, 16), 1);
	/* Those that are still held at close are freed. */
}

Test(sim_queue, bodies_are_no_more_aligned_than_promised)
{
	static const char *const args[] = {"align=1", "align=2", "align=4", "align=32", "align=64"};
	static const unsigned aligns[] = {1, 2, 4, 32, 64};
	for (unsigned i = 0; i < 5; i++) {
		sim_fixture_init();
		sim_fixture.args = args[i];
		sim_fixture_open(2);
		uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
		struct nic_pkt pkt;
		for (unsigned len = 8; len < 80; len++) {
			uint64_t seq;
			bool intact;
			cr_assert_eq(sim_fixture_send(0, at_1, len, len), 0);
			sim_fixture_run(10000);
			cr_assert(sim_fixture_take(1, &seq, &intact) && intact && seq == len);
			cr_assert_eq(sim_fixture_send(0, at_1, len, len), 0);
			sim_fixture_run(10000);
			cr_assert_eq(sim_fixture.ends[1].q->ops->recv(sim_fixture.ends[1].q, &pkt, 1), 1);
			cr_assert_eq((uintptr_t)pkt.body % aligns[i], 0);
			cr_assert(aligns[i] == 64 || (uintptr_t)pkt.body % (2 * aligns[i]));
		}
		sim_fixture_fini();
	}
}

/* A committed packet waits until its last bit is on the wire. Expect the number of bytes that wait, and the time of the
 * next check. */
Test(sim_queue, says_what_waits_for_the_wire)
{
	sim_fixture.config.topology.host.rate_bps = UINT64_C(8000000000); /* a byte in a nanosecond */
	sim_fixture_open(2);
	struct nic_queue *q = sim_fixture.ends[0].q;
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 0);
	cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	for (unsigned i = 0; i < 5; i++)
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1000), 0);
	uint64_t begin = sim_now(sim_fixture.sim);
	for (unsigned left = 5; left > 0; left--) {
		unsigned wakes = sim_fixture.ends[0].wakes;
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000), left * 1000);
		cr_assert_eq(q->ops->deadline(q), UINT64_MAX, "no more than that wait");
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000 - 1), left * 1000);
		uint64_t when = q->ops->deadline(q);
		cr_assert_eq(when - begin, (6 - left) * 1066);
		sim_fixture_run(when - 1 - sim_now(sim_fixture.sim));
		cr_assert_eq(q->ops->tx_waiting(q, left * 1000 - 1), left * 1000);
		cr_assert_eq(sim_fixture.ends[0].wakes, wakes);
		sim_fixture_run(1);
		cr_assert_eq(sim_fixture.ends[0].wakes, wakes + 1);
		cr_assert_eq(q->ops->deadline(q), UINT64_MAX);
	}
	/* What is cancelled does not wait. */
	struct nic_tx tx;
	cr_assert_eq(q->ops->tx_reserve(q, at_1, 700, &tx), 0);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 700);
	q->ops->tx_cancel(q, &tx);
	cr_assert_eq(q->ops->tx_waiting(q, 0), 0);
}

Test(sim_queue, an_armed_queue_wakes)
{
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	cr_assert_null(q->ops->kick);
	q->ops->arm(q);
	cr_assert_not(sim_queue_is_woken(q));
	send_many(0, at_1, 1); /* before the first use of the descriptor */
	cr_assert(sim_queue_is_woken(q) && sim_queue_waiting(q) == 1);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_not(sim_queue_is_woken(q));
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	unsigned wakes = sim_fixture.ends[1].wakes;
	send_many(0, at_1, 1);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes + 1);
	q->ops->wake_clear(q);
	q->ops->disarm(q);
	send_many(0, at_1, 1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	q->ops->wake(q);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_eq(sim_fixture_drain(1), 3);
}

Test(sim_queue, without_wake_kicks_do)
{
	sim_fixture.args = "kick";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_queue *q = sim_fixture.ends[1].q;
	struct nic_caps caps;
	sim_fixture.ends[1].port->ops->caps(sim_fixture.ends[1].port, &caps);
	cr_assert(!caps.wake && q->ops->kick);
	q->ops->arm(q);
	send_many(0, at_1, 1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	sim_fixture.ends[0].q->ops->kick(sim_fixture.ends[0].q, at_1);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	sim_fixture_run(100000);
	cr_assert(is_readable(q->ops->wake_fd(q)));
	q->ops->wake_clear(q);
	cr_assert_eq(sim_fixture_drain(1), 1);
	/* One that the network loses. */
	sim_partition(sim_fixture.ends[0].host, sim_fixture.ends[1].host, true);
	sim_fixture.ends[0].q->ops->kick(sim_fixture.ends[0].q, at_1);
	sim_fixture_run(100000);
	cr_assert_not(is_readable(q->ops->wake_fd(q)));
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.sent, s.arrived + s.dropped[SIM_DROP_PARTITION]);
}
