/* SPDX-License-Identifier: BSD-3-Clause */
/** Switches and the paths through them: what a packet costs, and which links it takes. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(sim_topology, .init = sim_fixture_init, .fini = sim_fixture_fini);

Test(sim_topology, a_star_stores_and_forwards)
{
	sim_fixture.config.topology.host = sim_fixture_shape(UINT64_C(100000000000), 500);
	sim_fixture.config.topology.switch_ns = 300;
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 1472), 0);
	/* 1538 bytes at 0.08 ns are 123.04 ns, twice. */
	cr_assert_eq(sim_fixture_until_arrival(1), 2 * 123 + 2 * 500 + 300);
}

Test(sim_topology, a_leaf_and_spine_way_has_four_links)
{
	sim_fixture.config.topology.kind = SIM_LEAF_SPINE;
	sim_fixture.config.topology.host = sim_fixture_shape(UINT64_C(100000000000), 500);
	sim_fixture.config.topology.fabric = sim_fixture_shape(UINT64_C(400000000000), 200);
	sim_fixture_open(4);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), at_2 = sim_fixture_dest(0, 0, 2, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 1, 1472), 0);
	cr_assert_eq(sim_fixture_until_arrival(1), 2 * 123 + 2 * 500 + 2 * 30 + 2 * 200);
	/* Within a leaf two. */
	cr_assert_eq(sim_fixture_send(0, at_2, 1, 1472), 0);
	cr_assert_eq(sim_fixture_until_arrival(2), 2 * 123 + 2 * 500);
}

static void fabric(unsigned spines, bool spray, unsigned hosts)
{
	sim_fixture.config.topology.kind = SIM_LEAF_SPINE;
	sim_fixture.config.topology.leaves = 2;
	sim_fixture.config.topology.spines = spines;
	sim_fixture.config.topology.spray = spray;
	sim_fixture.queues = 8;
	sim_fixture_open(hosts);
}

static uint64_t through(unsigned spine)
{
	return sim_fixture_stats(sim_fabric_link(sim_fixture.sim, 0, 0, spine, false)).packets;
}

Test(sim_topology, flows_are_spread_and_stay)
{
	fabric(4, false, 2);
	uint32_t places[64];
	for (unsigned i = 0; i < 64; i++)
		places[i] = sim_fixture_dest(0, i % 8, 1, i / 8);
	uint64_t before[4] = {0};
	unsigned flows[4] = {0};
	for (unsigned i = 0; i < 64; i++) {
		for (unsigned n = 0; n < 10; n++)
			cr_assert_eq(sim_fixture_send_from(0, i % 8, places[i], n, 64), 0);
		sim_fixture_run(100000);
		unsigned used = 0;
		for (unsigned s = 0; s < 4; s++) {
			uint64_t now = through(s);
			cr_assert(now == before[s] || now == before[s] + 10, "a flow has one way");
			used += now != before[s];
			flows[s] += now != before[s];
			before[s] = now;
		}
		cr_assert_eq(used, 1);
	}
	for (unsigned s = 0; s < 4; s++)
		cr_assert(flows[s] >= 8 && flows[s] <= 24, "%u of 64 at spine %u", flows[s], s);
	cr_assert_eq(sim_fixture_drain(1), 640);
	cr_assert_null(sim_fabric_link(sim_fixture.sim, 0, 0, 4, false));
	cr_assert_null(sim_fabric_link(sim_fixture.sim, 0, 2, 0, false));
	cr_assert_null(sim_fabric_link(sim_fixture.sim, 1, 0, 0, false));
}

Test(sim_topology, sprayed_packets_take_turns)
{
	fabric(4, true, 2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	for (unsigned n = 0; n < 400; n++)
		cr_assert_eq(sim_fixture_send(0, at_1, n, 64), 0);
	sim_fixture_run(1000000);
	for (unsigned s = 0; s < 4; s++)
		cr_assert_eq(through(s), 100);
}

/* A spine that goes takes only its own flows elsewhere, and gets them back. */
Test(sim_topology, flows_leave_a_spine_that_is_down)
{
	fabric(4, false, 2);
	uint32_t places[64];
	unsigned way[3][64];
	for (unsigned i = 0; i < 64; i++)
		places[i] = sim_fixture_dest(0, i % 8, 1, i / 8);
	for (unsigned round = 0; round < 3; round++) {
		/* Either half of the way counts. */
		sim_link_set_up(sim_fabric_link(sim_fixture.sim, 0, 1, 2, true), round != 1);
		for (unsigned i = 0; i < 64; i++) {
			uint64_t before[4];
			for (unsigned s = 0; s < 4; s++)
				before[s] = through(s);
			cr_assert_eq(sim_fixture_send_from(0, i % 8, places[i], i, 64), 0);
			sim_fixture_run(100000);
			for (unsigned s = 0; s < 4; s++)
				if (through(s) != before[s])
					way[round][i] = s;
		}
		cr_assert_eq(sim_fixture_drain(1), 64);
	}
	unsigned moved = 0;
	for (unsigned i = 0; i < 64; i++) {
		cr_assert_eq(way[0][i], way[2][i]);
		cr_assert_neq(way[1][i], 2);
		if (way[0][i] == 2)
			moved++;
		else
			cr_assert_eq(way[0][i], way[1][i]);
	}
	cr_assert_gt(moved, 5);
	/* None left: there is no way. */
	for (unsigned s = 0; s < 4; s++)
		sim_link_set_up(sim_fabric_link(sim_fixture.sim, 0, 0, s, false), false);
	cr_assert_eq(sim_fixture_send_from(0, 0, places[0], 1, 64), 0);
	sim_fixture_run(100000);
	struct sim_stats stats;
	sim_stats(sim_fixture.sim, &stats);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(stats.dropped[SIM_DROP_CARRIER], 1);
}

Test(sim_topology, rails_are_networks_of_their_own)
{
	sim_fixture.config.topology.rails = 2;
	sim_fixture_open(2);
	struct nic_err err = {""};
	struct nic_addr addr;
	unsigned host, rail;
	const struct nic_config config = {.queues = 1};
	struct nic_port *ports[2];
	for (unsigned i = 0; i < 2; i++) {
		cr_assert_eq(sim_port_open(sim_fixture.ends[i].host, 1, &config, &ports[i], &err), 0, "%s", err.text);
		cr_assert_str_eq(ports[i]->ops->name, "sim1");
	}
	ports[1]->ops->address(ports[1], &addr);
	cr_assert_str_eq(addr.driver, "sim1");
	cr_assert_eq(sim_address_host(&addr, &host, &rail), 0);
	cr_assert(host == 1 && rail == 1);
	cr_assert_eq(sim_fixture.ends[0].port->ops->reach(sim_fixture.ends[0].port, &addr, &err), -ENETUNREACH);
	cr_assert_eq(ports[0]->ops->reach(ports[0], &addr, &err), 0);
	struct nic_port *first = sim_fixture.ends[0].port;
	sim_fixture.ends[0].port = ports[0];
	struct nic_port *first_there = sim_fixture.ends[1].port;
	sim_fixture.ends[1].port = ports[1];
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0);
	cr_assert_eq(sim_fixture_send(0, at_1, 3, 100), 0);
	sim_fixture_run(10000);
	cr_assert_eq(sim_fixture_drain(1), 1);
	cr_assert_eq(sim_fixture_stats(sim_uplink(sim_fixture.ends[0].host, 1)).packets, 1);
	cr_assert_eq(sim_fixture_stats(sim_uplink(sim_fixture.ends[0].host, 0)).packets, 0);
	sim_link_set_up(sim_uplink(sim_fixture.ends[0].host, 1), false);
	cr_assert_eq(ports[0]->ops->reach(ports[0], &addr, &err), -ENETDOWN);
	for (unsigned i = 0; i < 2; i++)
		ports[i]->ops->close(ports[i]);
	sim_fixture.ends[0].port = first;
	sim_fixture.ends[1].port = first_there;
	cr_assert_eq(sim_port_open(sim_fixture.ends[0].host, 2, &config, ports, &err), -EINVAL);
}
