/* SPDX-License-Identifier: BSD-3-Clause */
/** The driver `sim`: each port is a host's of one simulated world, whose time passes as somebody looks at the clock or
 * waits. nic_conformance.c includes it. Main thread of each process. */
#ifndef NIC_SIM_H
#define NIC_SIM_H

#include "nic/sim/sim.h"
#include "nic_over_link.h"

enum { SIM_WORLD_HOSTS = 1000, SIM_LOOK_NS = 5000, SIM_IDLE_NS = 20000 };

static struct sim *sim_world;
static struct nic_port_ops sim_driver;
static unsigned sim_open_ports;

static void sim_world_new(void)
{
	struct sim_config config;
	struct nic_err err = {""};
	sim_destroy(sim_world);
	sim_config_init(&config, 1);
	sim_world = sim_create(&config, &err);
	if (!sim_world) {
		fprintf(stderr, "%s\n", err.text);
		exit(2);
	}
}

static int sim_driver_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	struct sim_host_config host;
	/* Hosts are not used twice: what is on its way to an old port is no matter of the new one. */
	if (sim_hosts(sim_world) >= SIM_WORLD_HOSTS && sim_open_ports == 0) {
		sim_world_new();
		other_clock = sim_clock(sim_world);
	}
	sim_host_config_init(&host);
	struct sim_host *h = sim_host_add(sim_world, &host, err);
	int error = h ? sim_port_open(h, 0, config, out, err) : -ENOSPC;
	if (error)
		return error;
	(*out)->ops = &sim_driver; /* so that its end is noticed */
	sim_open_ports++;
	return 0;
}

static void sim_driver_close(struct nic_port *port)
{
	sim_open_ports--;
	sim_port_ops(0)->close(port);
}

static uint64_t sim_look(void)
{
	struct sim_stats stats;
	sim_stats(sim_world, &stats);
	sim_run_until(sim_world, sim_now(sim_world) + (stats.in_flight ? SIM_LOOK_NS : SIM_IDLE_NS));
	if (sim_failure(sim_world)) {
		fprintf(stderr, "%s\n", sim_failure(sim_world));
		exit(2);
	}
	return sim_now(sim_world);
}

static int sim_poll(struct pollfd *fds, nfds_t n, int timeout_ms)
{
	uint64_t until = sim_now(sim_world) + (uint64_t)timeout_ms * 1000000;
	for (;;) {
		int ready = poll(fds, n, 0);
		if (ready || sim_now(sim_world) >= until)
			return ready;
		uint64_t next = sim_next(sim_world);
		sim_run_until(sim_world, next < until ? next : until);
	}
}

static const struct nic_port_ops *sim_driver_begin(void)
{
	sim_world_new();
	sim_driver = *sim_port_ops(0);
	sim_driver.open = sim_driver_open;
	sim_driver.close = sim_driver_close;
	other_clock = sim_clock(sim_world);
	other_now = sim_look;
	other_poll = sim_poll;
	return &sim_driver;
}

#endif
