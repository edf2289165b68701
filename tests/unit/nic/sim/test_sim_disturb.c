/* SPDX-License-Identifier: BSD-3-Clause */
/** What links and pairs do to packets by chance. Counts are exact: they follow from the seed. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

enum { MANY = 30000, PERCENT = SIM_CERTAIN / 100 };

TestSuite(sim_disturb, .init = sim_fixture_init, .fini = sim_fixture_fini);

struct seen {
	unsigned came, intact, twice, late; /* late: after one with a larger number */
	unsigned longest_gap;
};

static struct sim_link *up_of(unsigned e)
{
	return sim_uplink(sim_fixture.ends[e].host, 0);
}

static void take_all(struct seen *seen, uint8_t *times, uint64_t *highest, unsigned *gap)
{
	uint64_t seq;
	bool intact;
	while (sim_fixture_take(1, &seq, &intact)) {
		seen->came++;
		seen->intact += intact;
		if (!intact || seq >= MANY)
			continue;
		seen->twice += times[seq]++ > 0;
		if (seq < *highest) {
			seen->late++;
			continue;
		}
		*gap = (unsigned)(seq - *highest);
		*highest = seq;
		if (*gap > seen->longest_gap + 1)
			seen->longest_gap = *gap - 1;
	}
}

/* MANY packets of 64 bytes from host 0 to host 1. */
static struct seen stream(uint32_t at_1)
{
	static uint8_t times[MANY];
	struct seen seen = {0};
	uint64_t highest = 0;
	unsigned gap = 0;
	memset(times, 0, sizeof times);
	for (unsigned i = 0; i < MANY;) {
		for (unsigned n = 0; n < 100; n++, i++)
			cr_assert_eq(sim_fixture_send(0, at_1, i, 64), 0);
		sim_fixture_run(1100);
		take_all(&seen, times, &highest, &gap);
	}
	sim_fixture_run(10000000);
	take_all(&seen, times, &highest, &gap);
	return seen;
}

static struct seen stream_with(const struct sim_disturbance *what)
{
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_link_disturb(up_of(0), what), 0);
	return stream(at_1);
}

/* Every packet is accounted for. */
static struct sim_stats balanced(void)
{
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	uint64_t ends = s.arrived + s.in_flight;
	for (unsigned i = 0; i < SIM_DROP_N; i++)
		ends += s.dropped[i];
	cr_assert_eq(s.sent + s.duplicated, ends);
	return s;
}

static bool near(uint64_t n, uint64_t expected, unsigned percent)
{
	return n * 100 >= expected * (100 - percent) && n * 100 <= expected * (100 + percent);
}

Test(sim_disturb, none_without_a_reason)
{
	const struct sim_disturbance none = {0};
	struct seen seen = stream_with(&none);
	cr_assert(seen.came == MANY && seen.intact == MANY && !seen.twice && !seen.late);
	cr_assert_eq(balanced().arrived, MANY);
}

Test(sim_disturb, loss)
{
	const struct sim_disturbance loss = {.loss = PERCENT};
	struct seen seen = stream_with(&loss);
	struct sim_stats s = balanced();
	cr_assert_eq(seen.came + s.dropped[SIM_DROP_LOSS], MANY);
	cr_assert(near(s.dropped[SIM_DROP_LOSS], MANY / 100, 20));
	cr_assert_eq(s.dropped[SIM_DROP_LOSS], 331);
	cr_assert_leq(seen.longest_gap, 3);
}

/* Bursts of 20 on average, one begins after 2000: a hundredth is lost, in few places. */
Test(sim_disturb, bursts_of_loss)
{
	const struct sim_disturbance bursts = {.burst_begin = SIM_CERTAIN / 2000, .burst_end = SIM_CERTAIN / 20};
	struct seen seen = stream_with(&bursts);
	struct sim_stats s = balanced();
	cr_assert(near(s.dropped[SIM_DROP_LOSS], MANY / 100, 30), "%llu", (unsigned long long)s.dropped[SIM_DROP_LOSS]);
	cr_assert_eq(s.dropped[SIM_DROP_LOSS], 243);
	cr_assert_eq(seen.longest_gap, 44);
	sim_fixture_fini();
	/* In a burst only a half of them is lost. */
	sim_fixture_init();
	struct sim_disturbance half = bursts;
	half.burst_loss = SIM_CERTAIN / 2;
	stream_with(&half);
	struct sim_stats h = balanced();
	cr_assert(near(h.dropped[SIM_DROP_LOSS], s.dropped[SIM_DROP_LOSS] / 2, 20));
}

/* However few packets there are to end it, time does; and a burst that is short of that is as it was. */
Test(sim_disturb, a_burst_ends_by_time)
{
	const struct sim_disturbance endless = {.burst_begin = SIM_CERTAIN, .burst_end = 0};
	struct sim_disturbance bursts = endless;
	uint64_t seq;
	bool intact;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_link_disturb(up_of(0), &endless), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 0, 64), 0);
	/* Begins with this packet; none begins any more. */
	sim_fixture_run(1000000);
	bursts.burst_begin = 1;
	bursts.burst_ns = 5000000;
	cr_assert_eq(sim_link_disturb(up_of(0), &bursts), 0);
	for (unsigned i = 1; i <= 3; i++) {
		cr_assert_eq(sim_fixture_send(0, at_1, i, 64), 0);
		sim_fixture_run(1000000);
	}
	cr_assert(!sim_fixture_take(1, &seq, &intact));
	sim_fixture_run(2000000);
	cr_assert_eq(sim_fixture_send(0, at_1, 4, 64), 0);
	sim_fixture_run(1000000);
	cr_assert(sim_fixture_take(1, &seq, &intact) && seq == 4);
	cr_assert_eq(balanced().dropped[SIM_DROP_LOSS], 4);
	sim_fixture_fini();
	sim_fixture_init();
	/* In a stream of 1.1 ms for a hundred packets that is long. */
	const struct sim_disturbance counted = {
		.burst_begin = SIM_CERTAIN / 2000, .burst_end = SIM_CERTAIN / 20, .burst_ns = 10000000};
	stream_with(&counted);
	cr_assert_eq(balanced().dropped[SIM_DROP_LOSS], 243);
}

Test(sim_disturb, duplicates)
{
	const struct sim_disturbance twice = {.duplicate = PERCENT};
	struct seen seen = stream_with(&twice);
	struct sim_stats s = balanced();
	cr_assert_eq(s.duplicated, 305);
	cr_assert_eq(seen.twice, s.duplicated);
	cr_assert_eq(seen.came, MANY + s.duplicated);
	cr_assert_eq(seen.intact, seen.came);
	cr_assert(near(s.duplicated, MANY / 100, 20));
}

Test(sim_disturb, reordering)
{
	const struct sim_disturbance late = {.reorder = PERCENT, .reorder_ns = 5000};
	struct seen seen = stream_with(&late);
	struct sim_stats s = balanced();
	cr_assert_eq(seen.intact, MANY);
	cr_assert(near(s.reordered, MANY / 100, 20));
	cr_assert_eq(s.reordered, 264);
	/* But for the few whose delay is shorter than the next frame. */
	cr_assert_leq(seen.late, s.reordered);
	cr_assert_gt(seen.late, s.reordered * 90 / 100);
}

Test(sim_disturb, corruption_and_cuts)
{
	const struct sim_disturbance broken = {.corrupt = PERCENT, .cut = PERCENT};
	struct seen seen = stream_with(&broken);
	struct sim_stats s = balanced();
	struct sim_link_stats link;
	sim_link_stats(up_of(0), &link);
	cr_assert_eq(seen.came, MANY);
	cr_assert_eq(link.corrupted, 297);
	cr_assert_eq(link.cut, 308);
	cr_assert_eq(s.corrupted, link.corrupted);
	cr_assert(near(link.corrupted, MANY / 100, 20) && near(link.cut, MANY / 100, 20));
	/* A cut one is intact as far as it goes, unless it is shorter than its number. */
	cr_assert_geq(MANY - seen.intact, link.corrupted);
	cr_assert_leq(MANY - seen.intact, link.corrupted + link.cut);
}

/* Every byte can be hit, and what is corrupted differs from what was sent. */
Test(sim_disturb, corruption_reaches_every_byte)
{
	const struct sim_disturbance broken = {.corrupt = SIM_CERTAIN};
	bool hit[40] = {false};
	unsigned bits = 0;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_link_disturb(up_of(0), &broken), 0);
	for (unsigned n = 0; n < 2000; n++) {
		struct nic_pkt pkt;
		struct nic_tx tx;
		unsigned flips = 0;
		cr_assert_eq(sim_fixture.ends[0].q->ops->tx_reserve(sim_fixture.ends[0].q, at_1, sizeof hit, &tx), 0);
		memset(tx.body, 0x55, sizeof hit);
		cr_assert_eq(sim_fixture.ends[0].q->ops->tx_commit(sim_fixture.ends[0].q, &tx), 0);
		sim_fixture.ends[0].q->ops->flush(sim_fixture.ends[0].q);
		sim_fixture_run(10000);
		cr_assert_eq(sim_fixture.ends[1].q->ops->recv(sim_fixture.ends[1].q, &pkt, 1), 1);
		for (unsigned i = 0; i < sizeof hit; i++) {
			hit[i] |= pkt.body[i] != 0x55;
			flips += (unsigned)__builtin_popcount(pkt.body[i] ^ 0x55u);
		}
		cr_assert(flips >= 1 && flips <= 8);
		bits |= 1u << flips;
	}
	for (unsigned i = 0; i < sizeof hit; i++)
		cr_assert(hit[i]);
	cr_assert_eq(bits, 0x1fe, "from 1 to 8 of them");
	/* Of a packet without bytes nothing can be. */
	struct nic_tx tx;
	cr_assert_eq(sim_fixture.ends[0].q->ops->tx_reserve(sim_fixture.ends[0].q, at_1, 0, &tx), 0);
	cr_assert_eq(sim_fixture.ends[0].q->ops->tx_commit(sim_fixture.ends[0].q, &tx), 0);
	sim_fixture_run(10000);
	cr_assert_eq(sim_fixture_drain(1), 0, "before the flush");
	sim_fixture.ends[0].q->ops->flush(sim_fixture.ends[0].q);
	sim_fixture_run(10000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	cr_assert_eq(balanced().corrupted, 2000);
}

/* What is damaged at one link and repeated, delayed or dropped at the next leaves nothing behind. */
Test(sim_disturb, at_every_link_and_nothing_is_left)
{
	const struct sim_disturbance all = {.loss = 20 * PERCENT,
					    .duplicate = 50 * PERCENT,
					    .reorder = 50 * PERCENT,
					    .corrupt = 50 * PERCENT,
					    .cut = 50 * PERCENT};
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_link_disturb(up_of(0), &all), 0);
	cr_assert_eq(sim_link_disturb(sim_downlink(sim_fixture.ends[1].host, 0), &all), 0);
	cr_assert_eq(sim_pair_disturb(sim_fixture.ends[0].host, sim_fixture.ends[1].host, &all), 0);
	for (unsigned i = 0; i < 5000; i++) {
		cr_assert_eq(sim_fixture_send(0, at_1, i, 8 + i % 1465), 0);
		sim_fixture_run(1000);
		sim_fixture_drain(1);
	}
	sim_fixture_run(1000000);
	sim_fixture_drain(1);
	sim_fixture_drain(1); /* gives back what was in hand */
	struct sim_stats s = balanced();
	cr_assert_eq(s.in_flight, 0);
	cr_assert_eq(s.in_flight_bytes, 0);
	cr_assert_eq(s.packet_bytes, 0);
	cr_assert(s.packet_bytes_max > 2000 && s.packet_bytes_max < 1000000);
	cr_assert_eq(s.events_pending, 0);
	cr_assert_eq(sim_switch_bytes(sim_fixture.sim, 0, 0, NULL), 0);
}

/* Which packets are lost does not depend on what else happens to them or to others. */
Test(sim_disturb, kinds_draw_from_streams_of_their_own)
{
	static bool lost[2][2000];
	for (unsigned round = 0; round < 2; round++) {
		sim_fixture_init();
		sim_fixture_open(3);
		uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), other = sim_fixture_dest(2, 0, 1, 0);
		struct sim_disturbance what = {.loss = 10 * PERCENT};
		if (round == 1) {
			what.duplicate = what.corrupt = what.reorder = what.cut = 20 * PERCENT;
			cr_assert_eq(sim_link_disturb(up_of(2), &what), 0);
		}
		cr_assert_eq(sim_link_disturb(up_of(0), &what), 0);
		for (unsigned i = 0; i < 2000; i++) {
			struct sim_link_stats before, after;
			sim_link_stats(up_of(0), &before);
			if (round == 1)
				cr_assert_eq(sim_fixture_send(2, other, i, 64), 0);
			cr_assert_eq(sim_fixture_send(0, at_1, i, 64), 0);
			sim_fixture_run(20000);
			sim_fixture_drain(1);
			sim_link_stats(up_of(0), &after);
			lost[round][i] = after.dropped[SIM_DROP_LOSS] != before.dropped[SIM_DROP_LOSS];
		}
		balanced();
		sim_fixture_fini();
	}
	cr_assert_arr_eq(lost[0], lost[1], sizeof lost[0]);
	unsigned n = 0;
	for (unsigned i = 0; i < 2000; i++)
		n += lost[0][i];
	cr_assert(near(n, 200, 20));
}

Test(sim_disturb, a_seed_of_its_own_gives_other_draws)
{
	unsigned came[3];
	for (unsigned round = 0; round < 3; round++) {
		sim_fixture_init();
		sim_fixture.config.seed = round == 2 ? 99 : 5;
		const struct sim_disturbance loss = {.loss = PERCENT};
		came[round] = stream_with(&loss).came;
		sim_fixture_fini();
	}
	cr_assert_eq(came[0], came[1]);
	cr_assert_neq(came[0], came[2]);
}

Test(sim_disturb, of_a_pair_is_one_way_and_of_no_one_else)
{
	const struct sim_disturbance all = {.loss = SIM_CERTAIN}, none = {0};
	sim_fixture_open(3);
	uint32_t to_1 = sim_fixture_dest(0, 0, 1, 0), to_2 = sim_fixture_dest(0, 0, 2, 0),
		 back = sim_fixture_dest(1, 0, 0, 0);
	cr_assert_eq(sim_pair_disturb(sim_fixture.ends[0].host, sim_fixture.ends[1].host, &all), 0);
	for (unsigned i = 0; i < 10; i++) {
		cr_assert_eq(sim_fixture_send(0, to_1, i, 64), 0);
		cr_assert_eq(sim_fixture_send(0, to_2, i, 64), 0);
		cr_assert_eq(sim_fixture_send(1, back, i, 64), 0);
	}
	sim_fixture_run(100000);
	cr_assert(sim_fixture_drain(1) == 0 && sim_fixture_drain(2) == 10 && sim_fixture_drain(0) == 10);
	cr_assert_eq(sim_pair_disturb(sim_fixture.ends[0].host, sim_fixture.ends[1].host, &none), 0);
	cr_assert_eq(sim_fixture_send(0, to_1, 1, 64), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	balanced();
}

Test(sim_disturb, partitions_are_of_one_direction)
{
	sim_fixture_open(4);
	uint32_t places[4][4];
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; k < 4; k++)
			places[i][k] = sim_fixture_dest(i, 0, k, 0);
	struct sim_host *h[4];
	for (unsigned i = 0; i < 4; i++)
		h[i] = sim_fixture.ends[i].host;
	const bool left[4] = {true, true, false, false};
	for (unsigned step = 0; step < 5; step++) {
		unsigned gets[4] = {4, 4, 4, 4};
		if (step == 1) {
			sim_partition(h[0], h[1], true);
			sim_partition(h[0], h[1], true);
			gets[1] = 3;
		} else if (step == 2) {
			sim_partition(h[0], h[1], false);
		} else if (step == 3) {
			sim_partition_sets(sim_fixture.sim, left, true);
			memcpy(gets, (unsigned[]){2, 2, 2, 2}, sizeof gets);
		} else if (step == 4) {
			sim_heal(sim_fixture.sim);
		}
		for (unsigned i = 0; i < 4; i++)
			for (unsigned k = 0; k < 4; k++)
				cr_assert_eq(sim_fixture_send(i, places[i][k], i, 64), 0);
		sim_fixture_run(100000);
		for (unsigned i = 0; i < 4; i++)
			cr_assert_eq(sim_fixture_drain(i), gets[i], "step %u", step);
	}
	cr_assert_eq(balanced().dropped[SIM_DROP_PARTITION], 1 + 8);
}

Test(sim_disturb, a_link_can_be_cut_off)
{
	const struct sim_disturbance off = {.cut_off = true}, none = {0};
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_link_disturb(sim_downlink(sim_fixture.ends[1].host, 0), &off), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 64), 0);
	sim_fixture_run(10000);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_link_disturb(sim_downlink(sim_fixture.ends[1].host, 0), &none), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 64), 0);
	sim_fixture_run(10000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	cr_assert_eq(balanced().dropped[SIM_DROP_PARTITION], 1);
}

/* Fragments are lost one by one: of eleven times as many frames hardly a packet is whole. */
Test(sim_disturb, a_packet_in_fragments_needs_them_all)
{
	const struct sim_disturbance loss = {.loss = 10 * PERCENT};
	struct sim_shape narrow = {.rate_bps = UINT64_C(100000000000), .delay_ns = 1000, .mtu = 600};
	sim_fixture.config.topology.host.mtu = 9000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	struct sim_link *down = sim_downlink(sim_fixture.ends[1].host, 0);
	cr_assert_eq(sim_link_reshape(down, &narrow), 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 0, 5700), 0); /* it learns of it */
	sim_fixture_run(100000);
	cr_assert_eq(sim_link_disturb(down, &loss), 0);
	for (unsigned i = 0; i < 1000; i++) {
		cr_assert_eq(sim_fixture_send(0, at_1, i, 5700), 0);
		sim_fixture_run(10000);
	}
	unsigned came = sim_fixture_drain(1);
	/* 0.9 ^ 10 of them: 349. */
	cr_assert(near(came, 349, 15), "%u", came);
}

Test(sim_disturb, chances_above_certainty_are_refused)
{
	struct sim_disturbance what[8] = {
		{.loss = SIM_CERTAIN + 1},       {.burst_begin = SIM_CERTAIN + 1}, {.burst_end = SIM_CERTAIN + 1},
		{.burst_loss = SIM_CERTAIN + 1}, {.duplicate = SIM_CERTAIN + 1},   {.reorder = SIM_CERTAIN + 1},
		{.corrupt = SIM_CERTAIN + 1},    {.cut = SIM_CERTAIN + 1},
	};
	sim_fixture_open(2);
	for (unsigned i = 0; i < 8; i++) {
		cr_assert_eq(sim_link_disturb(up_of(0), &what[i]), -EINVAL);
		cr_assert_eq(sim_pair_disturb(sim_fixture.ends[0].host, sim_fixture.ends[1].host, &what[i]), -EINVAL);
	}
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(stream(at_1).intact, MANY);
}

/* ---- carrier ---- */

Test(sim_disturb, a_link_without_carrier_loses_what_waits)
{
	sim_fixture.config.topology.host.rate_bps = 1000000000;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(sim_fixture_send(0, at_1, i, 1184), 0); /* 10 us each */
	sim_fixture_run(35000);
	struct sim_link *up = up_of(0);
	sim_link_set_up(up, false);
	sim_link_set_up(up, false);
	cr_assert_not(sim_link_is_up(up));
	cr_assert_eq(sim_fixture.ends[0].carriers, 1);
	cr_assert_eq(sim_fixture_send(0, at_1, 10, 1184), 0);
	struct nic_queue *q = sim_fixture.ends[0].q;
	struct nic_caps caps;
	sim_fixture.ends[0].port->ops->caps(sim_fixture.ends[0].port, &caps);
	cr_assert_eq(q->ops->tx_room(q, at_1), caps.slots);
	sim_fixture_run(1000000);
	cr_assert_eq(sim_fixture_drain(1), 3);
	struct sim_stats s = balanced();
	cr_assert_eq(s.dropped[SIM_DROP_CARRIER], 8);
	struct nic_stats port;
	sim_fixture.ends[0].port->ops->stats(sim_fixture.ends[0].port, &port);
	cr_assert_eq(port.tx_dropped, 8);
	cr_assert_eq(port.tx_packets, 11);
	sim_link_set_up(up, true);
	cr_assert_eq(sim_fixture.ends[0].carriers, 2);
	cr_assert_eq(sim_fixture_send(0, at_1, 11, 1184), 0);
	sim_fixture_run(1000000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	balanced();
}
