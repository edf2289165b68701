/* SPDX-License-Identifier: BSD-3-Clause */
/** A host's NIC: steering, address handles, and a thousand of them. The test's thread. */
#include "sim_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <string.h>

TestSuite(sim_port, .init = sim_fixture_init, .fini = sim_fixture_fini);

static struct sim_host_stats stats_of(unsigned e)
{
	struct sim_host_stats stats;
	sim_host_stats(sim_fixture.ends[e].host, &stats);
	return stats;
}

Test(sim_port, queues_are_steered_by_number)
{
	sim_fixture.queues = 4;
	sim_fixture_open(2);
	for (unsigned i = 0; i < 4; i++)
		for (unsigned k = 0; k < 4; k++) {
			uint32_t place = sim_fixture_dest(0, i, 1, k);
			uint64_t seq;
			bool intact;
			cr_assert_eq(sim_fixture_send_from(0, i, place, i * 4 + k, 64), 0);
			sim_fixture_run(10000);
			cr_assert(sim_fixture_take_from(1, k, &seq, &intact));
			cr_assert_eq(seq, i * 4 + k);
		}
	cr_assert_eq(sim_fixture_drain(1), 0);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 4), NIC_PEER_NONE);
	cr_assert(strstr(sim_fixture.ends[0].text, "no queue 4"), "%s", sim_fixture.ends[0].text);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, NIC_ROUTE(1, 3)), NIC_PEER_NONE);
	/* A port that came back with fewer. */
	uint32_t place = sim_fixture_dest(0, 0, 1, 3);
	sim_fixture_port_close(1);
	sim_fixture.queues = 2;
	sim_fixture_port_open(1);
	cr_assert_eq(sim_fixture_send(0, place, 1, 64), 0);
	sim_fixture_run(10000);
	cr_assert_eq(stats_of(1).dropped[SIM_DROP_UNEXPECTED], 1);
}

Test(sim_port, a_hash_steers_paths)
{
	unsigned hits[4] = {0};
	sim_fixture.queues = 4;
	sim_fixture.args = "hash";
	sim_fixture_open(2);
	for (unsigned path = 0; path < 200; path++) {
		uint32_t place = sim_fixture_dest(0, 0, 1, NIC_ROUTE(2, path));
		uint64_t seq;
		bool intact;
		unsigned at = 4;
		for (unsigned n = 0; n < 3; n++) {
			cr_assert_eq(sim_fixture_send(0, place, path, 64), 0);
			sim_fixture_run(10000);
			for (unsigned q = 0; q < 4; q++)
				if (sim_fixture_take_from(1, q, &seq, &intact)) {
					cr_assert(n == 0 || q == at, "the same way every time");
					at = q;
				}
		}
		cr_assert_lt(at, 4);
		hits[at]++;
	}
	for (unsigned q = 0; q < 4; q++)
		cr_assert(hits[q] > 30 && hits[q] < 75);
}

Test(sim_port, places_are_numbered_from_the_lowest)
{
	sim_fixture.args = "peers=40";
	sim_fixture_open(2);
	struct nic_port *port = sim_fixture.ends[0].port;
	struct nic_queue *q = sim_fixture.ends[0].q;
	for (uint32_t i = 0; i < 40; i++)
		cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), i);
	struct nic_addr addr;
	struct nic_err err = {""};
	sim_fixture.ends[1].port->ops->address(sim_fixture.ends[1].port, &addr);
	cr_assert_eq(port->ops->connect(port, &(struct nic_connect){0, &addr, 0, NULL, 0, 0, NULL}, &err), -ENOSPC);
	cr_assert(strstr(err.text, "40"));
	const uint32_t dropped[] = {30, 7, 12};
	for (unsigned i = 0; i < 3; i++) {
		q->ops->detach(q, dropped[i]);
		port->ops->drop(port, dropped[i]);
	}
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 7);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 12);
	cr_assert_eq(sim_fixture_dest(0, 0, 1, 0), 30);
	cr_assert_eq(sim_fixture_send(0, 40, 0, 64), -EPIPE);
	cr_assert_eq(sim_fixture_send(0, NIC_PEER_NONE, 0, 64), -EPIPE);
}

static unsigned open_descriptors(void)
{
	unsigned n = 0;
	DIR *d = opendir("/proc/self/fd");
	cr_assert(d);
	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

/* Ports have no descriptors before the first use. */
Test(sim_port, a_thousand_hosts)
{
	enum { THOUSAND = 1000 };
	static struct nic_port *ports[THOUSAND];
	struct nic_err err = {""};
	const struct nic_config config = {.queues = 4};
	unsigned before = open_descriptors();
	sim_fixture_open(1);
	sim_fixture.host.hooks = (struct sim_hooks){0};
	for (unsigned i = 1; i < THOUSAND; i++)
		cr_assert(sim_host_add(sim_fixture.sim, &sim_fixture.host, &err), "%s", err.text);
	for (unsigned i = 1; i < THOUSAND; i++)
		cr_assert_eq(sim_port_open(sim_host(sim_fixture.sim, i), 0, &config, &ports[i], &err), 0, "%s",
			     err.text);
	/* All of them send to the first. */
	for (unsigned i = 1; i < THOUSAND; i++) {
		sim_fixture.ends[1] = (struct sim_end){.host = sim_host(sim_fixture.sim, i), .port = ports[i]};
		uint32_t place = sim_fixture_dest(1, 3, 0, 0);
		cr_assert_eq(sim_fixture_send_from(1, 3, place, i, 1000), 0);
	}
	sim_fixture.ends[1] = (struct sim_end){0};
	sim_fixture_run(1000000);
	cr_assert_eq(sim_fixture_drain(0), THOUSAND - 1);
	cr_assert_eq(open_descriptors(), before);
	for (unsigned i = 1; i < THOUSAND; i++)
		ports[i]->ops->close(ports[i]);
}
