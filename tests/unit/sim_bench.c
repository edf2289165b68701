/* SPDX-License-Identifier: BSD-3-Clause */
#include "sim_bench.h"

#include "base/must.h"

#include <stdio.h>
#include <string.h>

struct sim_bench sb;

void sb_init(void)
{
	memset(&sb, 0, sizeof sb);
	sim_config_init(&sb.config, 1);
	sim_host_config_init(&sb.host);
	sb.queues = 1;
}

static void on_wake(void *ctx, struct sim_host *host)
{
	(void)ctx;
	sb.ends[sim_host_number(host)].wakes++;
}

static void on_carrier(void *ctx, struct sim_host *host, unsigned rail, bool up)
{
	(void)ctx;
	(void)rail;
	(void)up;
	sb.ends[sim_host_number(host)].carriers++;
}

void sb_port_open(unsigned e)
{
	struct nic_err err = {""};
	const struct nic_config config = {.queues = sb.queues, .args = sb.args};
	int error = sim_port_open(sb.ends[e].host, 0, &config, &sb.ends[e].port, &err);
	if (error)
		fprintf(stderr, "%s\n", err.text);
	must(error == 0);
	sb.ends[e].q = sb.ends[e].port->ops->queue(sb.ends[e].port, 0);
}

void sb_port_close(unsigned e)
{
	if (sb.ends[e].port)
		sb.ends[e].port->ops->close(sb.ends[e].port);
	sb.ends[e].port = NULL;
}

void sb_open(unsigned hosts)
{
	struct nic_err err = {""};
	sb.host.hooks = (struct sim_hooks){.wake = on_wake, .carrier = on_carrier};
	sb.sim = sim_create(&sb.config, &err);
	if (!sb.sim)
		fprintf(stderr, "%s\n", err.text);
	must(sb.sim);
	for (unsigned i = 0; i < hosts; i++) {
		if (sb.config.topology.kind == SIM_LEAF_SPINE)
			sb.host.leaf = i % sb.config.topology.leaves;
		sb.ends[i].host = sim_host_add(sb.sim, &sb.host, &err);
		if (!sb.ends[i].host)
			fprintf(stderr, "%s\n", err.text);
		must(sb.ends[i].host);
		sb_port_open(i);
	}
}

void sb_fini(void)
{
	for (unsigned i = 0; i < SIM_ENDS; i++)
		sb_port_close(i);
	sim_destroy(sb.sim);
	sb.sim = NULL;
}

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct sim_end *e = ctx;
	e->ups += ev->type == NIC_EVENT_UP;
	e->fails += ev->type == NIC_EVENT_FAILED;
	if (ev->type == NIC_EVENT_UP)
		e->up = ev->peer;
	e->error = ev->error;
	snprintf(e->text, sizeof e->text, "%s", ev->text ? ev->text : "");
	return 0;
}

uint32_t sb_place(unsigned from, unsigned queue, unsigned to, unsigned route)
{
	struct sim_end *e = &sb.ends[from];
	struct nic_addr addr;
	struct nic_err err = {""};
	unsigned ups = e->ups;
	sb.ends[to].port->ops->address(sb.ends[to].port, &addr);
	must(e->port->ops->connect(e->port, queue, &addr, route, NULL, 0, TIME_NEVER, NULL, &err) == 0);
	e->port->ops->step(e->port, sim_now(sb.sim), on_event, e);
	if (e->ups == ups)
		return NIC_PEER_NONE;
	struct nic_queue *q = e->port->ops->queue(e->port, queue);
	must(q->ops->attach(q, e->up) == 0);
	return e->up;
}

static uint8_t byte_of(uint64_t seq, uint32_t i)
{
	return (uint8_t)(seq * 131 + i * 7);
}

int sb_send_from(unsigned from, unsigned queue, uint32_t peer, uint64_t seq, uint32_t len)
{
	struct nic_queue *q = sb.ends[from].port->ops->queue(sb.ends[from].port, queue);
	struct nic_tx tx;
	int error = q->ops->tx_reserve(q, peer, len, &tx);
	if (error)
		return error;
	memcpy(tx.body, &seq, sizeof seq);
	for (uint32_t i = 8; i < len; i++)
		tx.body[i] = byte_of(seq, i);
	if (sb.priority_of)
		tx.priority = (uint8_t)sb.priority_of(tx.body, len);
	error = q->ops->tx_commit(q, &tx);
	q->ops->flush(q);
	return error;
}

int sb_send(unsigned from, uint32_t peer, uint64_t seq, uint32_t len)
{
	return sb_send_from(from, 0, peer, seq, len);
}

bool sb_take_from(unsigned e, unsigned queue, uint64_t *seq, bool *intact)
{
	struct nic_queue *q = sb.ends[e].port->ops->queue(sb.ends[e].port, queue);
	struct nic_pkt pkt;
	if (!q->ops->recv(q, &pkt, 1))
		return false;
	*seq = 0;
	*intact = pkt.body_len >= 8;
	if (*intact)
		memcpy(seq, pkt.body, 8);
	for (uint32_t i = 8; i < pkt.body_len; i++)
		*intact &= pkt.body[i] == byte_of(*seq, i);
	if (pkt.cookie)
		q->ops->release(q, pkt.peer, pkt.cookie);
	return true;
}

bool sb_take(unsigned e, uint64_t *seq, bool *intact)
{
	return sb_take_from(e, 0, seq, intact);
}

unsigned sb_drain(unsigned e)
{
	unsigned n = 0;
	uint64_t seq;
	bool intact;
	for (unsigned i = 0; i < sb.queues; i++)
		while (sb_take_from(e, i, &seq, &intact))
			n++;
	return n;
}

void sb_run(uint64_t ns)
{
	sim_run_until(sb.sim, sim_now(sb.sim) + ns);
}
