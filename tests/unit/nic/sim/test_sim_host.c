/* SPDX-License-Identifier: BSD-3-Clause */
/** Hosts: their clocks, and what a pause, a crash and a restart do to their NICs. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_host, .init = sim_fixture_init, .fini = sim_fixture_fini);

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

Test(sim_host, a_hosts_clock_has_offset_and_skew)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_host *even = sim_fixture_host(sim, 0, 0);
	struct sim_host *fast = sim_fixture_host(sim, 5000, 100000);          /* 100 ppm */
	struct sim_host *slow = sim_fixture_host(sim, -500000000, -50000000); /* 5 % */
	cr_assert_eq(clock_now(sim_host_clock(fast)), SIM_START_NS + 5000);
	cr_assert_eq(clock_now(sim_host_clock(slow)), SIM_START_NS - 500000000);
	cr_assert(sim_run_until(sim, SIM_START_NS + UINT64_C(3600000000000)));
	cr_assert_eq(clock_now(sim_host_clock(even)), sim_now(sim));
	cr_assert_eq(clock_now(sim_host_clock(fast)), sim_now(sim) + 5000 + 360000000);
	cr_assert_eq(clock_now(sim_host_clock(slow)), sim_now(sim) - 500000000 - UINT64_C(180000000000));
	/* The way back: the first moment at which the clock shows as much. */
	struct sim_host *hosts[] = {even, fast, slow};
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(sim_host_when(hosts[i], TIME_NEVER), TIME_NEVER);
		cr_assert_eq(sim_host_when(hosts[i], TIME_NEVER - 1), TIME_NEVER);
		cr_assert_eq(sim_host_when(hosts[i], 0), SIM_START_NS);
		uint64_t before = 0;
		for (uint64_t local = UINT64_C(1800000000000); local < UINT64_C(1800000000000) + 200; local++) {
			uint64_t when = sim_host_when(hosts[i], local);
			cr_assert(when >= before);
			before = when;
			struct sim *other = sim_fixture_world(0);
			struct sim_host_config config;
			struct nic_err err;
			sim_host_config_init(&config);
			config.clock_offset_ns = i == 1 ? 5000 : i == 2 ? -500000000 : 0;
			config.clock_skew_ppb = i == 1 ? 100000 : i == 2 ? -50000000 : 0;
			struct sim_host *host = sim_host_add(other, &config, &err);
			cr_assert(sim_run_until(other, when - 1));
			cr_assert_lt(clock_now(sim_host_clock(host)), local);
			cr_assert(sim_run_until(other, when));
			cr_assert_geq(clock_now(sim_host_clock(host)), local);
			sim_destroy(other);
		}
	}
	sim_destroy(sim);
}

Test(sim_host, a_hosts_clock_jumps_changes_its_speed_and_stands_still)
{
	struct sim *sim = sim_fixture_world(0);
	struct sim_host *host = sim_fixture_host(sim, 0, 0);
	const struct clock_source *clock = sim_host_clock(host);
	sim_run_until(sim, SIM_START_NS + 1000);
	sim_host_set_clock(host, 500, 1000000000);
	cr_assert_eq(sim_host_skew(host), 1000000000);
	cr_assert_eq(clock_now(clock), SIM_START_NS + 1500);
	cr_assert_eq(sim_host_when(host, SIM_START_NS + 1200), SIM_START_NS + 1000, "the jump has passed it");
	cr_assert_eq(sim_host_when(host, SIM_START_NS + 1700), SIM_START_NS + 1100);
	sim_run_until(sim, SIM_START_NS + 2000);
	cr_assert_eq(clock_now(clock), SIM_START_NS + 3500);
	sim_host_set_clock(host, 0, SIM_CLOCK_STOPPED);
	cr_assert_eq(sim_host_when(host, SIM_START_NS + 3501), TIME_NEVER);
	sim_run_until(sim, SIM_START_NS + 9000);
	cr_assert_eq(clock_now(clock), SIM_START_NS + 3500);
	sim_host_set_clock(host, 0, -500000000);
	cr_assert_eq(sim_host_when(host, SIM_START_NS + 4000), SIM_START_NS + 9999, "a part of a ns is rounded up");
	sim_run_until(sim, SIM_START_NS + 10000);
	cr_assert_eq(clock_now(clock), SIM_START_NS + 4000);
	sim_destroy(sim);
}

Test(sim_host, a_paused_host_is_still_and_its_nic_is_not)
{
	sim_fixture.args = "rx=8";
	sim_fixture_open(2);
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), at_0 = sim_fixture_dest(1, 0, 0, 0);
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(sim_fixture_send(1, at_0, i, 64), 0);
	sim_host_pause(sim_fixture.ends[1].host);
	cr_assert_eq(sim_host_state(sim_fixture.ends[1].host), SIM_PAUSED);
	unsigned wakes = sim_fixture.ends[1].wakes;
	send_many(0, at_1, 12);
	cr_assert_eq(sim_fixture_drain(0), 3);
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_fixture_send(1, at_0, 4, 64), -EAGAIN);
	cr_assert_eq(sim_fixture.ends[1].q->ops->tx_room(sim_fixture.ends[1].q, at_0), 0);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_RING], 4);
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes);
	sim_host_resume(sim_fixture.ends[1].host);
	cr_assert_eq(sim_fixture.ends[1].wakes, wakes + 1);
	cr_assert_eq(sim_fixture_drain(1), 8);
	cr_assert_eq(sim_fixture_send(1, at_0, 4, 64), 0);
	sim_fixture_run(100000);
	cr_assert_eq(sim_fixture_drain(0), 1);
}

Test(sim_host, a_crash_ends_rings_and_a_restart_begins_anew)
{
	sim_fixture.config.topology.host.rate_bps = 1000000000;
	sim_fixture_open(2);
	struct nic_err err = {""};
	struct nic_port *dead = sim_fixture.ends[1].port, *refused = NULL;
	struct nic_queue *dead_q = sim_fixture.ends[1].q;
	const struct nic_config config = {.queues = 1};
	uint32_t at_1 = sim_fixture_dest(0, 0, 1, 0), at_0 = sim_fixture_dest(1, 0, 0, 0);
	send_many(0, at_1, 3);
	for (unsigned i = 0; i < 10; i++)
		cr_assert_eq(sim_fixture_send(1, at_0, i, 1184), 0); /* 10 us each, and as much to come */
	sim_fixture_run(25000);
	struct nic_tx open;
	cr_assert_eq(dead_q->ops->tx_reserve(dead_q, at_0, 100, &open), 0);
	sim_host_crash(sim_fixture.ends[1].host);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_CRASHED], 8 + 3);
	/* Nothing comes of the old port. */
	struct nic_pkt pkt;
	cr_assert_eq(dead_q->ops->recv(dead_q, &pkt, 1), 0);
	cr_assert_eq(dead_q->ops->tx_commit(dead_q, &open), 0);
	cr_assert_eq(sim_fixture_send(1, at_0, 77, 64), 0);
	send_many(0, at_1, 5);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_CRASHED], 8 + 3 + 5);
	cr_assert_eq(sim_fixture_drain(0), 2);
	cr_assert_eq(sim_port_open(sim_fixture.ends[1].host, 0, &config, &refused, &err), -EPIPE);
	cr_assert(strstr(err.text, "crashed"));
	/* Under the same address, with the old port still to be closed. What is sent meanwhile nobody has. */
	sim_host_restart(sim_fixture.ends[1].host);
	cr_assert_eq(sim_host_incarnation(sim_fixture.ends[1].host), 1);
	send_many(0, at_1, 2);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_UNEXPECTED], 2);
	sim_fixture_port_open(1);
	send_many(0, at_1, 4);
	cr_assert_eq(dead_q->ops->recv(dead_q, &pkt, 1), 0);
	cr_assert_eq(sim_fixture_drain(1), 4);
	dead->ops->close(dead);
	at_0 = sim_fixture_dest(1, 0, 0, 0);
	send_many(1, at_0, 4);
	cr_assert_eq(sim_fixture_drain(0), 4);
	cr_assert_eq(sim_port_open(sim_fixture.ends[1].host, 0, &config, &refused, &err), -EBUSY);
	struct sim_stats s;
	sim_stats(sim_fixture.sim, &s);
	cr_assert_eq(s.in_flight, 0);
}
