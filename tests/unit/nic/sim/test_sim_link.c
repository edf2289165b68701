/* SPDX-License-Identifier: BSD-3-Clause */
/** A link and the queue in front of it: what a packet costs in time and memory, and the path MTU. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_link, .init = sim_fixture_init, .fini = sim_fixture_fini);

Test(sim_link, bytes_on_the_wire)
{
	cr_assert_eq(sim_wire_bytes(1472, 1500), 1538);
	cr_assert_eq(sim_wire_bytes(18, 1500), 84);
	cr_assert_eq(sim_wire_bytes(0, 1500), 84); /* the shortest frame */
	cr_assert_eq(sim_wire_bytes(19, 1500), 85);
	cr_assert_eq(sim_wire_bytes(8972, 9000), 9038);
	/* Fragments of 1480 and 1 bytes behind the IP header. */
	cr_assert_eq(sim_wire_bytes(1473, 1500), 1538 + 84);
	cr_assert_eq(sim_wire_bytes(2 * 1480 - 8, 1500), 2 * 1538);
	cr_assert_eq(sim_wire_bytes(2 * 1480 - 7, 1500), 2 * 1538 + 84);
}

Test(sim_link, a_pair_costs_serialisation_and_delay)
{
	sim_fixture.config.topology.kind = SIM_PAIR;
	sim_fixture.config.topology.host = sim_fixture_shape(UINT64_C(10000000000), 700);
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 1000), 0);
	/* 1066 bytes at 0.8 ns. */
	cr_assert_eq(sim_fixture_until_arrival(1), 852 + 700);
	/* To itself it is the same cable. */
	uint32_t self = sim_fixture_dest(1, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(1, self, 2, 1472), 0);
	cr_assert_eq(sim_fixture_until_arrival(1), 1230 + 700);
	cr_assert_eq(sim_downlink(sim_fixture.ends[0].host, 0), sim_uplink(sim_fixture.ends[1].host, 0));
	cr_assert_null(sim_downlink(sim_fixture.ends[0].host, 1));
}

Test(sim_link, without_a_rate_only_delay_counts)
{
	sim_fixture.config.topology.kind = SIM_PAIR;
	sim_fixture.config.topology.host = sim_fixture_shape(0, 250);
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	for (unsigned i = 0; i < 100; i++)
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1472), 0);
	cr_assert_eq(sim_fixture_until_arrival(1), 250);
	sim_fixture_run(0);
	cr_assert_eq(sim_fixture_drain(1), 99);
}

/* A busy link runs at its rate, to the nanosecond: what the division leaves is carried on. */
Test(sim_link, a_busy_link_keeps_its_rate)
{
	enum { PACKETS = 500 };
	sim_fixture.config.topology.kind = SIM_PAIR;
	sim_fixture.config.topology.host = sim_fixture_shape(UINT64_C(100000000000), 0);
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	uint64_t begin = sim_now(sim_fixture.sim), seq;
	bool intact;
	for (unsigned i = 0; i < PACKETS; i++)
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1472), 0);
	for (unsigned i = 0; i < PACKETS; i++) {
		while (!sim_fixture_take(1, &seq, &intact))
			cr_assert(sim_step(sim_fixture.sim));
		cr_assert_eq(seq, i);
		cr_assert_eq(sim_now(sim_fixture.sim) - begin, (i + 1) * UINT64_C(12304) / 100);
	}
	struct sim_link_stats stats = sim_fixture_stats(sim_uplink(sim_fixture.ends[0].host, 0));
	cr_assert_eq(stats.packets, PACKETS);
	cr_assert_eq(stats.bytes, PACKETS * 1472);
	cr_assert_eq(stats.wire_bytes, PACKETS * 1538);
	cr_assert_eq(stats.busy_ns, PACKETS * UINT64_C(12304) / 100);
	cr_assert_eq(stats.queue_packets_max, PACKETS - 1);
	cr_assert_eq(stats.queue_bytes_max, (PACKETS - 1) * 1538);
	/* It shrank evenly from that to nothing. */
	cr_assert(stats.queue_bytes_mean > (PACKETS - 2) * 1538 / 2 && stats.queue_bytes_mean < PACKETS * 1538 / 2);
	cr_assert_eq(stats.queue_bytes, 0);
}

Test(sim_link, a_full_transmit_ring_says_so_and_when)
{
	sim_fixture.config.topology.host = sim_fixture_shape(UINT64_C(1000000000), 0);
	sim_fixture.args = "tx=4";
	sim_fixture_open(2);
	struct nic_queue *q = sim_fixture.ends[0].q;
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct nic_caps caps;
	sim_fixture.ends[0].port->ops->caps(sim_fixture.ends[0].port, &caps);
	cr_assert_eq(caps.slots, 4);
	cr_assert_eq(q->ops->deadline(q), TIME_NEVER);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(q->ops->tx_room(q, at_1), 4 - i);
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1184), 0);
	}
	cr_assert_eq(q->ops->tx_room(q, at_1), 0);
	unsigned wakes = sim_fixture.ends[0].wakes;
	cr_assert_eq(sim_fixture_send(0, at_1, 5, 1184), -EAGAIN);
	/* 1250 bytes at 8 ns. */
	cr_assert_eq(q->ops->deadline(q), sim_now(sim_fixture.sim) + 10000);
	sim_fixture_run(9999);
	cr_assert_eq(sim_fixture_send(0, at_1, 5, 1184), -EAGAIN);
	cr_assert_eq(sim_fixture.ends[0].wakes, wakes);
	sim_fixture_run(1);
	cr_assert_eq(sim_fixture.ends[0].wakes, wakes + 1);
	cr_assert_eq(q->ops->tx_room(q, at_1), 1);
	cr_assert_eq(sim_fixture_send(0, at_1, 5, 1184), 0);
	cr_assert_eq(q->ops->deadline(q), TIME_NEVER);
	struct sim_host_stats stats;
	sim_host_stats(sim_fixture.ends[0].host, &stats);
	cr_assert_eq(stats.tx_full, 2);
	sim_fixture_run(1000000);
	cr_assert_eq(sim_fixture_drain(1), 5);
}

/* A host's queues take turns at its link. */
Test(sim_link, transmit_rings_take_turns)
{
	sim_fixture.queues = 3;
	sim_fixture.config.topology.kind = SIM_PAIR;
	sim_fixture_open(2);
	uint32_t places[3];
	for (unsigned i = 0; i < 3; i++)
		places[i] = sim_fixture_dest(0, i, 1, 0);
	for (unsigned n = 0; n < 30; n++)
		cr_assert_eq(sim_fixture_send_from(0, 0, places[0], n, 100), 0);
	for (unsigned n = 0; n < 5; n++) {
		cr_assert_eq(sim_fixture_send_from(0, 1, places[1], 100 + n, 100), 0);
		cr_assert_eq(sim_fixture_send_from(0, 2, places[2], 200 + n, 100), 0);
	}
	sim_fixture_run(1000000);
	uint64_t seq;
	bool intact;
	/* 0 went at once; then 1, 2, 0, 1, 2, 0 ... */
	for (unsigned n = 0; n < 40; n++) {
		cr_assert(sim_fixture_take(1, &seq, &intact));
		uint64_t want = n < 16 ? n % 3 * 100 + n / 3 : n - 10;
		cr_assert_eq(seq, want, "%u: %llu", n, (unsigned long long)seq);
	}
}

/* ---- switch queues ---- */

static void incast(unsigned senders, unsigned each, uint32_t len)
{
	for (unsigned s = 0; s < senders; s++) {
		uint32_t place = sim_fixture_dest(s + 1, 0, 0, 0);
		for (unsigned i = 0; i < each; i++)
			cr_assert_eq(sim_fixture_send(s + 1, place, s * 1000 + i, len), 0);
	}
}

Test(sim_link, a_ports_queue_is_bounded_to_the_byte)
{
	sim_fixture.config.topology.host.queue_bytes = 10 * 1538;
	sim_fixture.config.topology.buffer_bytes = 0;
	sim_fixture_open(4);
	incast(3, 10, 1472);
	sim_fixture_run(1000000);
	struct sim_link_stats stats = sim_fixture_stats(sim_downlink(sim_fixture.ends[0].host, 0));
	/* Three come in the time in which one leaves: fifteen until ten wait. Of the three that come as a frame ends,
	 * and so just before the next one begins, one finds room from then on, but for the first time. */
	cr_assert_eq(stats.queue_bytes_max, 10 * 1538);
	cr_assert_eq(stats.packets + stats.dropped[SIM_DROP_QUEUE], 30);
	cr_assert_eq(stats.packets, 15 + 4);
	cr_assert_eq(sim_fixture_drain(0), 15 + 4);
	cr_assert_eq(sim_switch_bytes(sim_fixture.sim, 0, 0, NULL), 0);
}

/* One queue alone gets alpha / (1 + alpha) of the memory. */
Test(sim_link, a_shared_buffer_has_dynamic_thresholds)
{
	sim_fixture.config.topology.buffer_bytes = 100 * 1538;
	sim_fixture.config.topology.alpha_percent = 100;
	sim_fixture_open(12);
	incast(8, 50, 1472);
	sim_fixture_run(2000000);
	struct sim_link_stats one = sim_fixture_stats(sim_downlink(sim_fixture.ends[0].host, 0));
	uint64_t max;
	sim_switch_bytes(sim_fixture.sim, 0, 0, &max);
	cr_assert_gt(one.dropped[SIM_DROP_QUEUE], 0);
	/* The frame that is being sent is in the memory too. */
	cr_assert(one.queue_bytes_max >= 48 * 1538 && one.queue_bytes_max <= 50 * 1538, "%llu",
		  (unsigned long long)one.queue_bytes_max);
	cr_assert_leq(max, 51 * 1538);
	/* A second queue beside a full one gets half of what is left of its share. */
	for (unsigned s = 0; s < 8; s++) {
		uint32_t to_0 = sim_fixture_dest(s + 1, 0, 0, 0), to_9 = sim_fixture_dest(s + 1, 0, 9, 0);
		for (unsigned i = 0; i < 60; i++) {
			cr_assert_eq(sim_fixture_send(s + 1, to_0, i, 1472), 0);
			cr_assert_eq(sim_fixture_send(s + 1, to_9, i, 1472), 0);
		}
	}
	sim_fixture_run(2000000);
	struct sim_link_stats other = sim_fixture_stats(sim_downlink(sim_fixture.ends[9].host, 0));
	cr_assert(other.queue_bytes_max >= 31 * 1538 && other.queue_bytes_max <= 36 * 1538, "%llu",
		  (unsigned long long)other.queue_bytes_max);
	cr_assert_eq(sim_switch_bytes(sim_fixture.sim, 0, 0, &max), 0);
	cr_assert_leq(max, 100 * 1538);
}

Test(sim_link, a_large_alpha_gives_one_queue_nearly_all)
{
	sim_fixture.config.topology.buffer_bytes = 100 * 1538;
	sim_fixture.config.topology.alpha_percent = 1600;
	sim_fixture_open(9);
	incast(8, 50, 1472);
	sim_fixture_run(2000000);
	struct sim_link_stats one = sim_fixture_stats(sim_downlink(sim_fixture.ends[0].host, 0));
	cr_assert(one.queue_bytes_max >= 92 * 1538 && one.queue_bytes_max <= 95 * 1538, "%llu",
		  (unsigned long long)one.queue_bytes_max);
}

static unsigned by_first_byte(const uint8_t *body, uint32_t len)
{
	return len ? body[0] % 8 : 0;
}

/* Whatever waits, the most urgent goes first; within a priority, what came first. */
Test(sim_link, priorities_are_strict)
{
	sim_fixture.config.topology.priorities = 8;
	sim_fixture.priority_of = by_first_byte;
	sim_fixture_open(4);
	uint32_t places[3];
	uint64_t seq, number = 0, last[8] = {0}, taken = 0, before = 7;
	bool intact;
	for (unsigned s = 0; s < 3; s++)
		places[s] = sim_fixture_dest(s + 1, 0, 0, 0);
	/* So slow that all of it waits at the switch. */
	struct sim_shape slow = sim_fixture_shape(1000000000, 1000);
	cr_assert_eq(sim_link_reshape(sim_downlink(sim_fixture.ends[0].host, 0), &slow), 0);
	for (unsigned i = 0; i < 100; i++)
		for (unsigned s = 0; s < 3; s++, number++)
			cr_assert_eq(sim_fixture_send(s + 1, places[s], number * 8 + number * 5 % 8, 500), 0);
	sim_fixture_run(UINT64_C(10000000));
	cr_assert(sim_fixture_take(0, &seq, &intact)); /* it went before the others had come, as a few after it */
	for (unsigned early = 0; sim_fixture_take(0, &seq, &intact); taken++) {
		unsigned priority = seq % 8;
		cr_assert(intact);
		if (priority > before)
			cr_assert_leq(++early, 8);
		before = priority;
		cr_assert_geq(seq / 8 + 1, last[priority], "in order");
		last[priority] = seq / 8 + 1;
	}
	cr_assert_eq(taken, 299);
}

/* The same with two priorities, by arrival times: an urgent packet passes all the bulk that waits. */
Test(sim_link, an_urgent_packet_waits_for_one_frame_at_most)
{
	for (unsigned priorities = 1; priorities <= 2; priorities++) {
		sim_fixture_init();
		sim_fixture.config.topology.priorities = priorities;
		sim_fixture.priority_of = by_first_byte;
		sim_fixture_open(4);
		uint32_t bulk_1 = sim_fixture_dest(1, 0, 0, 0), bulk_2 = sim_fixture_dest(2, 0, 0, 0),
			 urgent = sim_fixture_dest(3, 0, 0, 0);
		for (unsigned i = 0; i < 400; i++) {
			cr_assert_eq(sim_fixture_send(1, bulk_1, 8 * i, 1472), 0);
			cr_assert_eq(sim_fixture_send(2, bulk_2, 8 * i, 1472), 0);
		}
		sim_fixture_run(30000);
		sim_fixture_drain(0);
		cr_assert_eq(sim_fixture_send(3, urgent, 15, 8), 0);
		uint64_t seq = 0, begin = sim_now(sim_fixture.sim);
		bool intact;
		while (seq != 15)
			if (!sim_fixture_take(0, &seq, &intact))
				cr_assert(sim_step(sim_fixture.sim));
		uint64_t took = sim_now(sim_fixture.sim) - begin;
		if (priorities == 2)
			cr_assert_leq(took, 2 * 6 + 2 * 1000 + 124);
		else
			cr_assert_gt(took, 20000);
		sim_fixture_fini();
	}
}

/* ---- MTU ---- */

Test(sim_link, a_narrow_path_is_learned)
{
	sim_fixture_open(2);
	struct nic_queue *q = sim_fixture.ends[0].q;
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1472);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 1473), -EMSGSIZE);
	struct sim_shape narrow = sim_fixture_shape(UINT64_C(100000000000), 1000);
	narrow.mtu = 1400;
	struct sim_link *down = sim_downlink(sim_fixture.ends[1].host, 0);
	cr_assert_eq(sim_link_reshape(down, &narrow), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 2, 1373), 0);
	uint64_t took = 115 + 1000; /* 1439 bytes to the switch */
	sim_fixture_run(2 * took - 1);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1472);
	sim_fixture_run(1);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1372);
	cr_assert_eq(sim_fixture_stats(down).dropped[SIM_DROP_MTU], 1);
	cr_assert_eq(sim_fixture_send(0, at_1, 3, 1372), 0);
	/* What was numbered before goes on, in fragments. */
	cr_assert_eq(sim_fixture_send(0, at_1, 4, 1472), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(1), 2);
	cr_assert_eq(sim_fixture_stats(down).wire_bytes, sim_wire_bytes(1372, 1400) + sim_wire_bytes(1472, 1400));
	/* It does not sink below what a link may have cut its packets to; IP cuts those further. */
	narrow.mtu = 1000;
	cr_assert_eq(sim_link_reshape(down, &narrow), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 5, 1300), 0);
	sim_fixture_run(100000);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1024);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 6, 1024), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	narrow.mtu = 500;
	cr_assert_eq(sim_link_reshape(down, &narrow), -EINVAL);
}

Test(sim_link, a_narrow_path_may_be_silent)
{
	sim_fixture.config.topology.mtu_silent = true;
	sim_fixture_open(2);
	struct nic_queue *q = sim_fixture.ends[0].q;
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct sim_shape narrow = sim_fixture_shape(0, 1000);
	narrow.mtu = 1400;
	cr_assert_eq(sim_link_reshape(sim_downlink(sim_fixture.ends[1].host, 0), &narrow), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 2, 1400), 0);
	sim_fixture_run(1000000);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1472);
	cr_assert_eq(sim_fixture_drain(1), 0);
	/* One's own link is known. */
	cr_assert_eq(sim_link_reshape(sim_uplink(sim_fixture.ends[0].host, 0), &narrow), 0);
	cr_assert_eq(q->ops->tx_bytes_max(q, at_1), 1372);
}
