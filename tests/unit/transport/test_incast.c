/* SPDX-License-Identifier: BSD-3-Clause */
/** Many senders of larger messages and one receiver, over a simulated switch whose port holds less than they have.
 * The test's thread. */
#include "nic/sim/sim.h"
#include "transport/grant.h"
#include "transport/message.h"
#include "transport/port.h"
#include "transport/queue.h"
#include "transport/transport.h"

#include "base/must.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

enum { SENDERS_MAX = 100, RECEIVER = SENDERS_MAX, HOSTS_MAX, HEAD = 28, MESSAGES = 10 };

struct host {
	struct sim_host *host;
	struct nic_port *port;
	struct nic_queue *q;
	uint32_t up, at_receiver;
	unsigned ups, sent, got;
	uint64_t ended_ns;
};

static struct {
	struct sim *sim;
	struct host hosts[HOSTS_MAX];
	unsigned senders;
	uint32_t len; /* of a message */
	const char *args;
	uint64_t in_bytes_max, out_max;
	uint64_t first_drops; /* of the first millisecond, when nobody knows of the others */
	unsigned downs, order_n;
	unsigned order[SENDERS_MAX * MESSAGES]; /* of senders, as their messages came */
} net;

static int on_event(void *ctx, const struct nic_event *ev)
{
	struct host *h = ctx;
	if (ev->type == NIC_EVENT_UP) {
		h->up = ev->peer;
		h->ups++;
		must(h->q->ops->attach(h->q, ev->peer) == 0);
	}
	net.downs += ev->type == NIC_EVENT_DOWN || ev->type == NIC_EVENT_FAILED;
	return 0;
}

static struct transport_queue *receiver(void)
{
	return (struct transport_queue *)net.hosts[RECEIVER].q;
}

/* What is granted and not here, counted anew. */
static void audit(void)
{
	const struct transport_grants *g = &receiver()->grants;
	uint64_t out = 0;
	uint32_t n = 0;
	for (const struct transport_message *m = g->first; m; m = m->in_next, n++)
		out += !m->stalled && m->granted > m->done ? m->granted - m->done : 0;
	cr_assert_eq(g->out, out, "%llu granted, %llu counted", (unsigned long long)g->out, (unsigned long long)out);
	cr_assert_eq(g->n, n);
	if (receiver()->in_bytes > net.in_bytes_max)
		net.in_bytes_max = receiver()->in_bytes;
	if (g->out > net.out_max)
		net.out_max = g->out;
}

static void take(struct host *h)
{
	struct nic_pkt pkts[16];
	unsigned n;
	for (unsigned i = 0; i < 8 && (n = h->q->ops->recv(h->q, pkts, 16)); i++)
		for (unsigned k = 0; k < n; k++) {
			uint32_t from;
			memcpy(&from, pkts[k].head, sizeof from);
			cr_assert(h == &net.hosts[RECEIVER] && from < net.senders && pkts[k].body_len == net.len);
			for (uint64_t at = 0; at < pkts[k].body_len; at += 997)
				cr_assert_eq(pkts[k].body[at], (uint8_t)(from + at));
			struct host *s = &net.hosts[from];
			s->ended_ns = sim_now(net.sim);
			s->got++;
			net.order[net.order_n++] = from;
			if (pkts[k].cookie)
				h->q->ops->release(h->q, pkts[k].peer, pkts[k].cookie);
		}
	h->q->ops->flush(h->q);
}

static void put(struct host *h, unsigned index)
{
	struct nic_tx tx;
	if (h->sent == MESSAGES || h->sent - h->got >= 2 || h->q->ops->tx_reserve(h->q, h->up, net.len, &tx))
		return;
	memset(tx.head, 0, HEAD);
	memcpy(tx.head, &index, sizeof index);
	for (uint32_t at = 0; at < net.len; at++)
		tx.body[at] = (uint8_t)(index + at);
	tx.order = NIC_ORDER_NONE;
	must(h->q->ops->tx_commit(h->q, &tx) == 0);
	h->sent++;
}

static void tick(bool step)
{
	sim_run_until(net.sim, sim_now(net.sim) + 1000);
	for (unsigned i = 0; i < HOSTS_MAX; i++) {
		struct host *h = &net.hosts[i];
		if (!h->port || sim_host_state(h->host) != SIM_RUNNING)
			continue;
		if (step)
			h->port->ops->step(h->port, sim_now(net.sim), on_event, h);
		take(h);
	}
	audit();
}

static void host_open(unsigned i)
{
	struct nic_err err = {""};
	struct sim_host_config config;
	struct host *h = &net.hosts[i];
	struct nic_port *lower;
	const struct nic_config nic = {.queues = 1, .args = i == RECEIVER ? net.args : NULL};
	sim_host_config_init(&config);
	h->host = sim_host_add(net.sim, &config, &err);
	must(h->host);
	must(sim_port_open(h->host, 0, &nic, &lower, &err) == 0);
	struct transport_config link = {.queues = 1, .head_bytes = HEAD, .clock = sim_host_clock(h->host)};
	must(transport_open(lower, &link, &h->port, &err) == 0);
	h->q = h->port->ops->queue(h->port, 0);
}

static void open_net(unsigned senders, uint32_t len, uint64_t queue_bytes, const char *args)
{
	struct sim_config config;
	struct nic_err err = {""};
	memset(&net, 0, sizeof net);
	net.senders = senders;
	net.len = len;
	net.args = args;
	sim_config_init(&config, 1);
	config.untraced = true;
	config.topology.buffer_bytes = 0;
	config.topology.host.rate_bps = UINT64_C(25000000000);
	config.topology.host.queue_bytes = queue_bytes;
	net.sim = sim_create(&config, &err);
	must(net.sim);
	host_open(RECEIVER);
	struct nic_addr addr;
	net.hosts[RECEIVER].port->ops->address(net.hosts[RECEIVER].port, &addr);
	for (unsigned i = 0; i < senders; i++) {
		struct host *h = &net.hosts[i];
		host_open(i);
		must(h->port->ops->connect(h->port, &(struct nic_connect){0, &addr, 0, NULL, 0, UINT64_MAX, h}, &err) ==
		     0);
		for (unsigned k = 0; k < 10000 && !h->ups; k++)
			tick(true);
		must(h->ups == 1);
	}
	for (unsigned k = 0; k < 2000; k++)
		tick(true);
}

static void close_net(void)
{
	cr_assert_null(sim_failure(net.sim));
	for (unsigned i = 0; i < HOSTS_MAX; i++)
		if (net.hosts[i].port)
			net.hosts[i].port->ops->close(net.hosts[i].port);
	sim_destroy(net.sim);
}

static uint64_t drops(enum sim_drop why)
{
	struct sim_stats stats;
	sim_stats(net.sim, &stats);
	return stats.dropped[why];
}

/* All messages of all; the time that it took. */
static uint64_t run(uint64_t within_ns)
{
	uint64_t begin = sim_now(net.sim);
	while (net.order_n < net.senders * MESSAGES && sim_now(net.sim) < begin + within_ns) {
		for (unsigned i = 0; i < net.senders; i++)
			put(&net.hosts[i], i);
		tick(sim_now(net.sim) % 50000 == 0);
		if (sim_now(net.sim) < begin + UINT64_C(1000000))
			net.first_drops = drops(SIM_DROP_QUEUE);
	}
	cr_assert_eq(net.order_n, net.senders * MESSAGES, "%u of %u", net.order_n, net.senders * MESSAGES);
	cr_assert_eq(net.downs, 0);
	return sim_now(net.sim) - begin;
}

/* Of the rates of the senders. */
static double jain(uint64_t began)
{
	double sum = 0, squares = 0;
	for (unsigned i = 0; i < net.senders; i++) {
		double rate = 1e9 / (double)(net.hosts[i].ended_ns - began);
		sum += rate;
		squares += rate * rate;
	}
	return sum * sum / (net.senders * squares);
}

static void nothing_left(void)
{
	const struct transport_grants *g = &receiver()->grants;
	cr_assert(g->out == 0 && g->n == 0 && g->senders_n == 0 && !g->first && !g->last && !g->timed);
	cr_assert_eq(receiver()->in_bytes, 0);
}

/* A hundred to one. Expect a full link, a port's buffer that hardly overflows, memory of what is under way only, and
 * nobody served much better than others. */
Test(transport_incast, hundred)
{
	enum { LEN = 100000 };
	open_net(SENDERS_MAX, LEN, 1000000, NULL);
	uint64_t began = sim_now(net.sim), ns = run(UINT64_C(2000000000));
	double bits = 8.0 * LEN * MESSAGES * SENDERS_MAX / (double)ns * 1e9, fair = jain(began);
	uint64_t lost = drops(SIM_DROP_QUEUE);
	fprintf(stderr, "# %.2f Gb/s, %llu drops, %llu at first, Jain %.3f, memory %llu, granted %llu\n", bits / 1e9,
		(unsigned long long)lost, (unsigned long long)net.first_drops, fair,
		(unsigned long long)net.in_bytes_max, (unsigned long long)net.out_max);
	cr_assert_gt(bits, 0.9 * 25e9 * (1500 - 28 - 96) / 1538, "%.2f Gb/s", bits / 1e9);
	cr_assert_eq(lost, net.first_drops);
	cr_assert_leq(lost, 400);
	cr_assert_gt(fair, 0.8, "%.3f", fair);
	cr_assert_leq(net.out_max, FAR_TRANSPORT_GRANT_BYTES + FAR_TRANSPORT_GRANT_BYTES / FAR_TRANSPORT_GRANT_SHARE +
					   SENDERS_MAX * FAR_TRANSPORT_UNSCHEDULED_BYTES);
	cr_assert_leq(net.in_bytes_max, 4 * SENDERS_MAX * (LEN + sizeof(struct transport_message)));
	nothing_left();
	close_net();
}

/* A receive ring of 16 packets, and eight senders. Expect most packets to find a place. */
Test(transport_incast, small_ring)
{
	open_net(8, 50000, 0, "rx=16");
	run(UINT64_C(2000000000));
	struct sim_host_stats stats;
	sim_host_stats(net.hosts[RECEIVER].host, &stats);
	fprintf(stderr, "# %llu packets, %llu drops\n", (unsigned long long)stats.rx_packets,
		(unsigned long long)drops(SIM_DROP_RING));
	cr_assert_leq(drops(SIM_DROP_RING) * 4, stats.rx_packets);
	nothing_left();
	close_net();
}

/* Some of the senders lose their power while they have grants. Expect the others to go on at once, and what the dead
 * ones had to be given back. */
Test(transport_incast, senders_die)
{
	enum { DEAD = 8, ALL = 20 };
	open_net(ALL, 200000, 1000000, NULL);
	uint64_t began = sim_now(net.sim);
	for (unsigned k = 0; k < 300; k++) {
		for (unsigned i = 0; i < ALL; i++)
			put(&net.hosts[i], i);
		tick(k % 50 == 0);
	}
	cr_assert_gt(receiver()->grants.out, 0);
	for (unsigned i = 0; i < DEAD; i++) {
		sim_host_crash(net.hosts[i].host);
		net.hosts[i].sent = MESSAGES;
	}
	unsigned left = (ALL - DEAD) * MESSAGES;
	for (unsigned i = DEAD; i < ALL; i++)
		left -= net.hosts[i].got;
	for (unsigned done = 0; done < left && sim_now(net.sim) < began + UINT64_C(200000000);) {
		for (unsigned i = DEAD; i < ALL; i++)
			put(&net.hosts[i], i);
		tick(sim_now(net.sim) % 50000 == 0);
		done = 0;
		for (unsigned i = DEAD; i < ALL; i++)
			done += net.hosts[i].got;
		done -= (ALL - DEAD) * MESSAGES - left;
	}
	for (unsigned i = DEAD; i < ALL; i++)
		cr_assert_eq(net.hosts[i].got, MESSAGES, "%u: %u", i, net.hosts[i].got);
	cr_assert_eq(net.downs, 0); /* that takes a second */
	for (unsigned k = 0; k < 30 && net.downs < DEAD; k++) {
		sim_run_until(net.sim, sim_now(net.sim) + UINT64_C(100000000));
		for (unsigned i = 0; i < 100; i++)
			tick(true);
	}
	cr_assert_eq(receiver()->grants.out, 0);
	cr_assert_eq(receiver()->grants.n, 0);
	close_net();
}
