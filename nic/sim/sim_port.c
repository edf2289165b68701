/* SPDX-License-Identifier: BSD-3-Clause */
/** Port operations of the simulated NIC. The thread that runs the world. */
#include "nic/sim/sim_port.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct nic_port_ops port_ops[SIM_RAILS_MAX];

const struct nic_port_ops *sim_port_ops(unsigned rail)
{
	return rail < SIM_RAILS_MAX ? &port_ops[rail] : NULL;
}

/* ---- opening and closing ---- */

static int sim_probe(const struct nic_config *config, struct nic_err *err)
{
	(void)config;
	(void)err;
	return 0;
}

static int sim_open(const struct nic_config *config, struct nic_port **out, struct nic_err *err)
{
	(void)config;
	(void)out;
	return sim_error(err, -EINVAL, "sim: it works in simulated worlds only; choose another driver");
}

static int config_check(const struct sim_host *host, uint32_t rail, const struct nic_config *config,
			const struct sim_nic *nic, struct nic_err *err)
{
	if (rail >= host->sim->config.topology.rails)
		return sim_error(err, -EINVAL, "sim: there is no rail %u; the world has %u", rail,
				 host->sim->config.topology.rails);
	if (!config->queues || config->queues > nic->queues_max)
		return sim_error(err, -EINVAL, "sim: %u queues; 1 to %u", config->queues, nic->queues_max);
	if (config->head_bytes)
		return sim_error(err, -EINVAL, "sim: packets have no heads; %u bytes were requested",
				 config->head_bytes);
	if (host->state == SIM_CRASHED)
		return sim_error(err, -EPIPE, "sim: %s has crashed; restart it first", host->config.name);
	if (host->rails[rail].port && !host->rails[rail].port->dead)
		return sim_error(err, -EBUSY, "sim: the NIC of %s at rail %u is open", host->config.name, rail);
	return 0;
}

int sim_port_open(struct sim_host *host, unsigned rail, const struct nic_config *config, struct nic_port **out,
		  struct nic_err *err)
{
	struct sim_nic nic = host->config.nic;
	int error = sim_args_parse(config->args, &nic, err);
	error = error ? error : config_check(host, rail, config, &nic, err);
	if (error)
		return error;
	struct sim_port *port = calloc(1, sizeof *port);
	must(port);
	uint32_t body_max = host->sim->config.topology.host.mtu - SIM_HEADERS;
	port->base.ops = &port_ops[rail];
	port->host = host;
	port->rail = rail;
	port->number = ++host->sim->ports_n;
	port->nic = nic;
	port->body_max = body_max < SIM_BODY_MAX ? body_max : SIM_BODY_MAX;
	port->pending_first = port->pending_last = SIM_NONE;
	port->event_fd = -1;
	port->queues_n = config->queues;
	for (uint32_t i = 0; i < port->queues_n; i++)
		port->queues[i] = sim_queue_new(port, i);
	host->rails[rail].port = port;
	host->open_ports++;
	*out = &port->base;
	return 0;
}

static void sim_close(struct nic_port *nic_port)
{
	struct sim_port *port = sim_port_of(nic_port);
	struct sim_rail *rail = &port->host->rails[port->rail];
	if (rail->port == port) /* not a port that was opened after a crash */
		rail->port = NULL;
	port->host->open_ports--;
	for (uint32_t i = 0; i < port->queues_n; i++)
		sim_queue_free(port->queues[i]);
	if (port->event_fd >= 0)
		close(port->event_fd);
	free(port->dests);
	free(port);
}

void sim_nic_crash(struct sim_host *host)
{
	for (uint32_t r = 0; r < SIM_RAILS_MAX; r++) {
		struct sim_port *port = host->rails[r].port;
		if (!port || port->dead)
			continue;
		port->dead = true;
		for (uint32_t i = 0; i < port->queues_n; i++)
			sim_queue_crash(port->queues[i]);
	}
}

/* ---- capabilities and counters ---- */

static void sim_caps(const struct nic_port *nic_port, struct nic_caps *out)
{
	const struct sim_port *port = sim_port_of(nic_port);
	*out = (struct nic_caps){
		.zero_copy_rx = port->nic.zero_copy,
		.wake = !port->nic.kick,
		.checksum = true,
		.steering = port->nic.hash ? NIC_STEER_HASH : NIC_STEER_QUEUE,
		.ip = NIC_IP_DRIVER,
		.headroom_bytes = 42,
		.body_align = port->nic.body_align,
		.body_bytes_max = port->body_max,
		.slots = port->nic.tx_slots,
		.rx_slots = port->nic.rx_slots,
		.peers_max = port->nic.peers_max,
		.queues_max = port->nic.queues_max,
	};
}

static uint64_t world_id(const struct sim *sim)
{
	return sim_mix(sim->config.seed + 1);
}

static void sim_address(const struct nic_port *nic_port, struct nic_addr *out)
{
	const struct sim_port *port = sim_port_of(nic_port);
	const struct sim_addr addr = {.world = world_id(port->host->sim),
				      .host = port->host->number,
				      .rail = (uint8_t)port->rail,
				      .queues = (uint8_t)port->queues_n,
				      .hash = port->nic.hash};
	memset(out, 0, sizeof *out);
	snprintf(out->driver, sizeof out->driver, "%s", port->base.ops->name);
	sim_addr_encode(&addr, out->blob);
	out->len = SIM_ADDR_BYTES;
}

static void sim_address_text(const struct nic_addr *addr, char *out, size_t cap)
{
	struct sim_addr a;
	if (sim_addr_decode(addr, &a))
		snprintf(out, cap, "%s host %u, queues 0 to %u", port_ops[a.rail].name, a.host, a.queues - 1u);
	else
		snprintf(out, cap, "sim (malformed)");
}

static int look_up(const struct sim_port *port, const struct nic_addr *addr, struct sim_addr *out, struct nic_err *err)
{
	const struct sim *sim = port->host->sim;
	if (!sim_addr_decode(addr, out))
		return sim_error(err, -EINVAL, "sim: malformed address");
	if (out->world != world_id(sim))
		return sim_error(err, -ENETUNREACH, "sim: host %u of another world", out->host);
	if (out->rail != port->rail)
		return sim_error(err, -ENETUNREACH, "sim: rail %u does not lead to rail %u", port->rail, out->rail);
	if (out->host >= sim->hosts_n)
		return sim_error(err, -EHOSTUNREACH, "sim: there is no host %u", out->host);
	return 0;
}

static int sim_reach(const struct nic_port *nic_port, const struct nic_addr *addr, struct nic_err *err)
{
	const struct sim_port *port = sim_port_of(nic_port);
	struct sim_addr a;
	int error = look_up(port, addr, &a, err);
	if (!error && !port->host->rails[port->rail].up->up)
		error = sim_error(err, -ENETDOWN, "sim: no carrier at rail %u of %s", port->rail,
				  port->host->config.name);
	return error;
}

static void sim_stats_of(const struct nic_port *nic_port, struct nic_stats *out)
{
	*out = sim_port_of(nic_port)->stats;
}

static struct nic_queue *sim_queue_at(struct nic_port *nic_port, unsigned i)
{
	struct sim_port *port = sim_port_of(nic_port);
	return i < port->queues_n ? &port->queues[i]->base : NULL;
}

static int sim_fd(const struct nic_port *nic_port)
{
	struct sim_port *port = sim_port_of(nic_port);
	return sim_fd_make(&port->event_fd, port->pending_first != SIM_NONE);
}

/* ---- address handles ---- */

/* Takes an address handle. SIM_NONE: none is free. */
static uint32_t place_new(struct sim_port *port)
{
	while (port->lowest_free < port->dests_n && port->dests[port->lowest_free].state != SIM_DEST_FREE)
		port->lowest_free++;
	if (port->lowest_free < port->dests_n)
		return port->lowest_free;
	if (port->dests_n == port->nic.peers_max)
		return SIM_NONE;
	if (port->dests_n == port->dests_cap) {
		port->dests_cap = port->dests_cap ? 2 * port->dests_cap : 16;
		port->dests = realloc(port->dests, port->dests_cap * sizeof *port->dests);
		must(port->dests);
	}
	memset(&port->dests[port->dests_n], 0, sizeof *port->dests);
	return port->dests_n++;
}

static void dest_free(struct sim_port *port, uint32_t i)
{
	port->dests[i].state = SIM_DEST_FREE;
	port->dests[i].attached = false;
	if (i < port->lowest_free)
		port->lowest_free = i;
}

static void dest_pending(struct sim_port *port, uint32_t i)
{
	port->dests[i].state = SIM_DEST_PENDING;
	port->dests[i].next = SIM_NONE;
	if (port->pending_first == SIM_NONE)
		port->pending_first = i;
	else
		port->dests[port->pending_last].next = i;
	port->pending_last = i;
	sim_fd_poke(port->event_fd);
	sim_host_wake(port->host);
}

static int sim_connect(struct nic_port *nic_port, const struct nic_connect *c, struct nic_err *err)
{
	struct sim_port *port = sim_port_of(nic_port);
	struct sim_addr a;
	if (c->queue >= port->queues_n)
		return sim_error(err, -EINVAL, "sim: there is no queue %u; the port has %u", c->queue, port->queues_n);
	int error = look_up(port, c->addr, &a, err);
	if (error)
		return error;
	uint32_t i = place_new(port);
	if (i == SIM_NONE)
		return sim_error(err, -ENOSPC, "sim: more than %u address handles", port->nic.peers_max);
	struct sim_dest *dest = &port->dests[i];
	dest->to = port->host->sim->hosts[a.host];
	dest->queue = c->queue;
	dest->route = c->remote_queue;
	dest->bytes_max = port->body_max;
	dest->incarnations++;
	dest->attached = false;
	dest->no_such_queue =
		NIC_ROUTE_QUEUE(c->remote_queue) >= a.queues || (!a.hash && NIC_ROUTE_FLOW(c->remote_queue));
	dest->user = c->user;
	dest_pending(port, i);
	return 0;
}

static void report(struct sim_port *port, uint32_t i, nic_event_fn *event, void *ctx)
{
	struct sim_dest *dest = &port->dests[i];
	struct nic_event ev = {.type = NIC_EVENT_UP, .peer = i, .queue = dest->queue, .user = dest->user};
	char text[96];
	if (dest->no_such_queue) {
		snprintf(text, sizeof text, "sim: the peer has no queue %u, or no path %u",
			 NIC_ROUTE_QUEUE(dest->route), NIC_ROUTE_FLOW(dest->route));
		ev = (struct nic_event){.type = NIC_EVENT_FAILED,
					.user = dest->user,
					.peer = NIC_PEER_NONE,
					.queue = dest->queue,
					.error = -ECHRNG,
					.text = text};
		dest_free(port, i);
	} else {
		dest->state = SIM_DEST_UP;
	}
	event(ctx, &ev);
}

static uint64_t sim_port_step(struct nic_port *nic_port, uint64_t now, nic_event_fn *event, void *ctx)
{
	struct sim_port *port = sim_port_of(nic_port);
	(void)now;
	if (port->dead || port->host->state != SIM_RUNNING)
		return UINT64_MAX;
	if (port->pending_first != SIM_NONE)
		sim_fd_clear(port->event_fd);
	while (port->pending_first != SIM_NONE) {
		uint32_t i = port->pending_first;
		port->pending_first = port->dests[i].next;
		if (port->dests[i].state == SIM_DEST_DROPPED)
			dest_free(port, i);
		else
			report(port, i, event, ctx);
	}
	return UINT64_MAX;
}

static void sim_drop(struct nic_port *nic_port, uint32_t peer)
{
	struct sim_port *port = sim_port_of(nic_port);
	if (peer >= port->dests_n)
		return;
	if (port->dests[peer].state == SIM_DEST_PENDING)
		port->dests[peer].state = SIM_DEST_DROPPED;
	else if (port->dests[peer].state == SIM_DEST_UP)
		dest_free(port, peer);
}

void sim_nic_report_mtu(const struct sim_packet *p)
{
	struct sim_port *port = p->from->rails[p->rail].port;
	uint32_t most = p->reported_mtu - SIM_HEADERS;
	if (!port || port->dead || port->number != p->port || p->dest >= port->dests_n)
		return;
	struct sim_dest *dest = &port->dests[p->dest];
	if (dest->state == SIM_DEST_UP && dest->incarnations == p->dest_incarnation && most < dest->bytes_max)
		dest->bytes_max = most;
}

#define PORT_OPS(text)                                                                                                 \
	{                                                                                                              \
		.name = text, .probe = sim_probe, .open = sim_open, .close = sim_close, .caps = sim_caps,              \
		.address = sim_address, .address_text = sim_address_text, .reach = sim_reach, .stats = sim_stats_of,   \
		.queue = sim_queue_at, .connect = sim_connect, .step = sim_port_step, .fd = sim_fd, .drop = sim_drop,  \
	}

static const struct nic_port_ops port_ops[SIM_RAILS_MAX] = {PORT_OPS("sim"), PORT_OPS("sim1"), PORT_OPS("sim2"),
							    PORT_OPS("sim3")};
