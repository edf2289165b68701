/* SPDX-License-Identifier: BSD-3-Clause */
/* The worlds of the figures: how they are made, what their applications do. The thread of the simulated world. */
#include "figure.h"

#include "base/must.h"
#include "transport/wire.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define JOIN_NS     (60 * FAR_SEC)
#define RTT_CALLS   30u
#define SMALL_BYTES 32u
#define FIBERS      32u
#define FIBERS_EACH 4u /* of many shards: the process has so many mappings only */

/* A core that is never waited for: it looks again after 20 ns, so that time goes on, and nothing else takes any. */
static const struct cluster_cost no_cost = {.per_us = 1000, .pass = 20, .wake = 20};

static void on_sink(struct far_req *req, const void *data, size_t len, void *user)
{
	(void)data;
	(void)len;
	(void)user;
	far_reply(req, NULL, 0);
}

static void configure(struct figure_world *w, const struct figure_setup *setup, struct cluster_config *config)
{
	const struct figure_opts *o = w->o;
	cluster_config_init(config, o->seed);
	struct sim_topology *net = &config->sim.topology;
	net->kind = setup->kind;
	net->host.rate_bps = o->gbps * UINT64_C(1000000000);
	net->host.delay_ns = o->delay_ns;
	net->host.mtu = (uint32_t)o->mtu;
	net->priorities = (unsigned)setup->priorities;
	net->buffer_bytes = o->buffer_bytes;
	net->alpha_percent = 800;
	config->sim.untraced = true;
	snprintf(w->port_args, sizeof w->port_args, "tx=%u", (unsigned)o->tx_slots);
	config->port_args = w->port_args;
	config->workers = setup->workers;
	config->cost = o->ghz ? cluster_cost_default : no_cost;
	if (o->ghz)
		config->cost.per_us = (uint32_t)o->ghz * 2000; /* two instructions in a cycle */
	config->opts.connect = setup->connect;
	config->opts.shards = setup->shards;
	config->opts.fibers = setup->shards > 1 ? FIBERS_EACH : FIBERS;
	config->opts.rpc_timeout_ns = 2 * o->limit_ns;
	config->opts.messages = &w->handler;
	config->opts.messages_n = 1;
}

const void *figure_bytes(size_t n)
{
	static void *bytes;
	if (!bytes)
		bytes = calloc(1, FIGURE_BYTES_MAX);
	must(bytes && n <= FIGURE_BYTES_MAX);
	return bytes;
}

void figure_failed(struct figure_world *w, const struct far_err *err)
{
	if (w->failed_n++ == 0)
		w->failed = *err;
}

bool figure_call(struct figure_world *w, unsigned to, uint64_t bytes)
{
	struct far_err err = {.status = FAR_OK};
	size_t len;
	enum far_status status = far_msg_call(cluster_agent(cluster_here()), (struct far_to){(int)to, 0}, FIGURE_SINK,
					      figure_bytes(bytes), bytes, NULL, NULL, 0, &len, &err);
	if (status)
		figure_failed(w, &err);
	return !status;
}

/* ---- made ---- */

static void measure_rtt(struct cluster_worker *worker, void *ctx)
{
	struct figure_world *w = ctx;
	(void)worker;
	w->rtt_ns = UINT64_MAX;
	for (unsigned i = 0; i < RTT_CALLS; i++) {
		uint64_t before = figure_now(w);
		if (!figure_call(w, 0, SMALL_BYTES))
			return;
		uint64_t took = figure_now(w) - before;
		w->rtt_ns = took < w->rtt_ns ? took : w->rtt_ns;
	}
}

int figure_open(struct figure_world *w, const struct figure_opts *o, const struct figure_setup *setup)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	*w = (struct figure_world){.o = o, .priorities = setup->priorities};
	w->handler = (struct far_msg_handler){.id = FIGURE_SINK, .kind = FAR_KIND_INLINE, .fn = on_sink};
	configure(w, setup, &config);
	w->c = cluster_create(&config, &err);
	if (!w->c) {
		fprintf(stderr, "%s: %s\n", o->what, err.text);
		return 1;
	}
	cluster_start_all(w->c);
	if (cluster_run_ready(w->c, JOIN_NS) != CLUSTER_RUN_DONE) {
		const char *why = cluster_failure(w->c);
		fprintf(stderr, "%s: the group did not form: %s\n", o->what, why ? why : "in time");
		return 1;
	}
	if (cluster_spawn(cluster_worker(w->c, setup->workers - 1), 0, measure_rtt, w) < 0) {
		fprintf(stderr, "%s: no memory\n", o->what);
		return 1;
	}
	if (figure_run(w))
		return 1;
	if (w->failed_n)
		fprintf(stderr, "%s: a call in the idle network failed: %s\n", o->what, w->failed.text);
	return w->failed_n != 0;
}

void figure_close(struct figure_world *w)
{
	cluster_destroy(w->c);
	w->c = NULL;
}

uint64_t figure_now(const struct figure_world *w)
{
	return cluster_now(w->c);
}

int figure_run(struct figure_world *w)
{
	enum cluster_run end = cluster_run_apps(w->c, 4 * w->o->limit_ns);
	if (end == CLUSTER_RUN_DONE)
		return 0;
	if (end == CLUSTER_RUN_FAILED)
		fprintf(stderr, "%s: the simulation could not go on: %s\n", w->o->what, cluster_failure(w->c));
	else
		fprintf(stderr,
			"%s: after %.3f s of virtual time %u of its callers still wait; give a longer --limit\n",
			w->o->what, (double)(4 * w->o->limit_ns) / 1e9, cluster_apps_all(w->c));
	return 1;
}

/* ---- bytes on the wire ---- */

#define IP_UDP 28u

/* Bytes of messages in a full packet; what of the line's rate full packets leave to messages. */
static uint32_t figure_payload(const struct figure_opts *o)
{
	return (uint32_t)o->mtu - IP_UDP - (uint32_t)sizeof(struct wire_head);
}

double figure_framing(const struct figure_opts *o)
{
	return (double)figure_payload(o) / sim_wire_bytes((uint32_t)o->mtu - IP_UDP, (uint32_t)o->mtu);
}

uint64_t figure_wire_bytes(const struct figure_opts *o, uint64_t len, uint64_t *last)
{
	uint32_t payload = figure_payload(o), head = (uint32_t)sizeof(struct wire_head), mtu = (uint32_t)o->mtu;
	uint64_t full = len ? (len - 1) / payload : 0;
	uint64_t end = sim_wire_bytes(head + (uint32_t)(len - full * payload), mtu);
	if (last)
		*last = end;
	return full * sim_wire_bytes(head + payload, mtu) + end;
}
