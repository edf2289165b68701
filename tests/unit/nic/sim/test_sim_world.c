/* SPDX-License-Identifier: BSD-3-Clause */
/** Worlds: what they are made of, and that they do not know of each other. The test's thread. */
#include "nic/sim/sim_world.h"
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_world, .init = sim_fixture_init, .fini = sim_fixture_fini);

static void hash_of(char out[SHA256_TEXT_BYTES])
{
	sim_trace_hash(sim_fixture.sim, out);
}

Test(sim_world, worlds_that_make_no_sense_are_refused)
{
	struct sim_config config;
	struct nic_err err;
#define REFUSED(change, word)                                                                                          \
	do {                                                                                                           \
		sim_config_init(&config, 1);                                                                           \
		change;                                                                                                \
		err.text[0] = '\0';                                                                                    \
		cr_assert_null(sim_create(&config, &err));                                                             \
		cr_assert(strstr(err.text, word), "%s", err.text);                                                     \
	} while (0)
	REFUSED(config.topology.host.mtu = 100, "mtu");
	REFUSED(config.topology.host.mtu = 70000, "mtu");
	REFUSED(config.topology.host.rate_bps = UINT64_MAX, "Tb/s");
	REFUSED(config.topology.rails = 5, "rails");
	REFUSED(config.topology.priorities = 9, "priorities");
	REFUSED(config.topology.kind = (enum sim_topology_kind)3, "topology");
	REFUSED((config.topology.kind = SIM_LEAF_SPINE, config.topology.leaves = 0), "leaves");
	REFUSED((config.topology.kind = SIM_LEAF_SPINE, config.topology.spines = 65), "spines");
	REFUSED((config.topology.kind = SIM_LEAF_SPINE, config.topology.fabric.mtu = 0), "fabric");
	REFUSED(config.topology.buffer_bytes = UINT64_MAX, "buffer_bytes");
	REFUSED(config.events_max = UINT32_MAX, "events_max");
	struct sim *sim = sim_fixture_world(0);
	struct sim_host_config host;
#define HOST_REFUSED(change, word)                                                                                     \
	do {                                                                                                           \
		sim_host_config_init(&host);                                                                           \
		change;                                                                                                \
		err.text[0] = '\0';                                                                                    \
		cr_assert_null(sim_host_add(sim, &host, &err));                                                        \
		cr_assert(strstr(err.text, word), "%s", err.text);                                                     \
	} while (0)
	HOST_REFUSED(host.leaf = 1, "leaf");
	HOST_REFUSED(host.clock_skew_ppb = 100000000, "skew");
	HOST_REFUSED(host.clock_offset_ns = -(int64_t)SIM_START_NS, "offset");
	HOST_REFUSED(host.nic.queues_max = 17, "queues");
	HOST_REFUSED(host.nic.rx_slots = 0, "receive ring");
	HOST_REFUSED(host.nic.tx_slots = 0, "transmit ring");
	HOST_REFUSED(host.nic.body_align = 48, "aligned");
	HOST_REFUSED(host.nic.peers_max = 0, "address handles");
	HOST_REFUSED(memset(host.name, 'x', sizeof host.name), "name");
	cr_assert_eq(sim_hosts(sim), 0);
	cr_assert_null(sim_host(sim, 0));
	sim_destroy(sim);
}

static void traffic(unsigned step)
{
	for (unsigned i = 0; i < 4; i++)
		cr_assert_eq(sim_fixture_send(i, 0, step * 4 + i, 64 + step % 1000), 0);
	sim_fixture_run(500 + step % 7 * 100);
	for (unsigned i = 0; step % 5 == 0 && i < 4; i++)
		sim_fixture_drain(i);
}

static void lossy_world(uint64_t seed)
{
	const struct sim_disturbance some = {.loss = SIM_CERTAIN / 10, .duplicate = SIM_CERTAIN / 10};
	sim_fixture_init();
	sim_fixture.config.seed = seed;
	sim_fixture_open(4);
	for (unsigned i = 0; i < 4; i++) {
		cr_assert_eq(sim_fixture_dest(i, 0, (i + 1) % 4, 0), 0);
		cr_assert_eq(sim_link_disturb(sim_uplink(sim_fixture.ends[i].host, 0), &some), 0);
	}
}

Test(sim_world, worlds_do_not_know_of_each_other)
{
	char alone[2][SHA256_TEXT_BYTES], beside[2][SHA256_TEXT_BYTES];
	static struct sim_fixture worlds[2];
	for (unsigned w = 0; w < 2; w++) {
		lossy_world(w + 1);
		for (unsigned step = 0; step < 500; step++)
			traffic(step);
		hash_of(alone[w]);
		sim_fixture_fini();
	}
	for (unsigned w = 0; w < 2; w++) {
		lossy_world(w + 1);
		worlds[w] = sim_fixture;
	}
	for (unsigned step = 0; step < 500; step++)
		for (unsigned w = 0; w < 2; w++) {
			sim_fixture = worlds[w];
			traffic(step);
			worlds[w] = sim_fixture;
		}
	for (unsigned w = 0; w < 2; w++) {
		sim_fixture = worlds[w];
		hash_of(beside[w]);
		sim_fixture_fini();
		cr_assert_str_eq(alone[w], beside[w]);
	}
	cr_assert_str_neq(alone[0], alone[1]);
}

Test(sim_world, the_first_reason_is_kept)
{
	struct sim *sim = sim_fixture_world(0);
	cr_assert_null(sim_failure(sim));
	sim_fail(sim, "packet %u", 7u);
	sim_fail(sim, "later");
	cr_assert_str_eq(sim_failure(sim), "packet 7");
	cr_assert_not(sim_run_until(sim, sim_now(sim) + 1));
	sim_destroy(sim);
	sim_destroy(NULL);
}

/* Zeros of a configuration are its defaults. */
Test(sim_world, defaults)
{
	struct sim_config config;
	struct nic_err err = {""};
	sim_config_init(&config, 42);
	config.topology.rails = config.topology.priorities = config.topology.alpha_percent = 0;
	struct sim *sim = sim_create(&config, &err);
	cr_assert(sim, "%s", err.text);
	cr_assert(sim_now(sim) == SIM_START_NS && clock_now(sim_clock(sim)) == SIM_START_NS && sim_seed(sim) == 42);
	cr_assert(sim->config.topology.rails == 1 && sim->config.topology.priorities == 1 &&
		  sim->config.topology.alpha_percent == 100);
	cr_assert(sim->config.events_max == 4000000 && sim->config.packet_bytes_max == UINT64_C(4) << 30);
	sim_destroy(sim);
}

Test(sim_world, each_reason_has_its_text)
{
	for (unsigned i = 0; i < SIM_DROP_N; i++)
		for (unsigned k = 0; k < i; k++)
			cr_assert_str_neq(sim_drop_text((enum sim_drop)i), sim_drop_text((enum sim_drop)k));
	cr_assert_str_eq(sim_drop_text(SIM_DROP_LOSS), "loss");
	cr_assert_str_eq(sim_drop_text(SIM_DROP_N), "none");
}
