/* SPDX-License-Identifier: BSD-3-Clause */
/* Workers: they are started, looked at, and come to one of their ends. The thread of the simulated world. */
#include "apps/sim/cluster_world.h"

#include "base/error.h"
#include "base/must.h"

#include <stdio.h>
#include <string.h>

#define PORT 7000 /* of the store, on the host of rank 0 */

/* Fibers of all workers together, which need two mappings each: a half of vm.max_map_count by default. */
#define FIBERS_ALL   8000u
#define FIBERS_MIN   4u
#define FIBERS_USUAL 64u

static bool is_alive(const struct cluster_worker *w)
{
	return w->state >= CLUSTER_JOINING && w->state <= CLUSTER_LEAVING;
}

static void enter(struct cluster_worker *w, enum cluster_state state)
{
	struct cluster *c = w->cluster;
	bool was_alive = is_alive(w), was_joining = w->state == CLUSTER_JOINING;
	w->state = state;
	c->alive += is_alive(w) - was_alive;
	c->not_ready += (state == CLUSTER_JOINING) - was_joining;
	if (state == CLUSTER_READY)
		apps_begin(w);
	if (c->config.on_state)
		c->config.on_state(c->config.ctx, w, state);
}

/* ---- beginning ---- */

static void options(struct cluster_worker *w, struct far_opts *opts, char *store, size_t cap)
{
	struct cluster *c = w->cluster;
	*opts = c->config.opts;
	if (c->config.opts_of)
		c->config.opts_of(c->config.ctx, w->rank, opts);
	snprintf(store, cap, "tcp://%s:%d", c->workers[0].name, PORT);
	opts->init_method = store;
	opts->nic = opts->listen = opts->advertise = NULL;
	opts->members_max = c->n;
	if (opts->fibers == 0) {
		unsigned shards = opts->shards ? opts->shards : 1, share = FIBERS_ALL / (c->n * shards);
		opts->fibers = share < FIBERS_MIN ? FIBERS_MIN : share > FIBERS_USUAL ? FIBERS_USUAL : share;
	}
}

static int open_ports(struct cluster_worker *w, unsigned shards, struct nic_port **ports, unsigned n,
		      struct nic_err *err)
{
	struct cluster *c = w->cluster;
	for (unsigned i = 0; i < n; i++) {
		const struct nic_config config = {.queues = shards, .beyond_host = true, .args = c->config.port_args};
		int error = sim_port_open(w->host, i, &config, &ports[i], err);
		if (error) {
			for (; i; i--)
				ports[i - 1]->ops->close(ports[i - 1]);
			return error;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		w->ports[i] = ports[i];
		for (unsigned q = 0; q < shards; q++)
			w->queues[i][q] = ports[i]->ops->queue(ports[i], q);
	}
	return 0;
}

static uint64_t draw(void *ctx)
{
	uint64_t x;
	while (!(x = sim_random_next(ctx)))
		;
	return x;
}

static void begin(struct cluster_worker *w)
{
	struct cluster *c = w->cluster;
	struct nic_port *ports[SIM_RAILS_MAX];
	struct nic_err why = {.text = ""};
	struct far_err err = {.status = FAR_OK};
	struct far_opts opts;
	char store[SIM_NAME_BYTES + 16];
	unsigned rails = c->config.sim.topology.rails;
	options(w, &opts, store, sizeof store);
	w->shards = opts.shards ? opts.shards : 1;
	if (open_ports(w, w->shards, ports, rails, &why)) {
		cluster_fail(c, "\"%s\" cannot open its ports: %s", w->name, why.text);
		return;
	}
	w->net = sim_ctl_net_create(c->streams, w->host, worker_ctl_due, w);
	must(w->net != NULL);
	/* Each incarnation has its own random sequence. */
	sim_random_init(&w->drawn, sim_seed(c->sim), "worker", (uint64_t)w->rank << 32 | w->incarnations);
	w->random = (struct random_source){draw, &w->drawn};
	static const struct auth_key key = {"the simulated groups' key"};
	struct agent_env env = {.clock = sim_host_clock(w->host),
				.random = &w->random,
				.key = &key,
				.net = w->net,
				.ports = ports,
				.ports_n = rails,
				.ctl_due = worker_ctl_due,
				.ctx = w};
	/* A stand-by has another host, and the name and rank of the worker that it replaces. */
	const struct cluster_worker *as = w->rank < c->n - c->config.stand_bys ? w : w - c->config.stand_bys;
	w->incarnations++;
	w->agent = NULL;
	if (agent_create_stepped(as->name, (int)as->rank, c->config.dynamic ? FAR_WORLD_DYNAMIC : (int)c->n, &opts,
				 &env, &w->agent, &err)) {
		cluster_fail(c, "\"%s\" cannot be started: %s", w->name, err.text);
		return;
	}
	w->why = FAR_OK;
	w->err = (struct far_err){.status = FAR_OK};
	w->dying = w->ending = w->crash_requested = w->power = false;
	worker_start_cores(w);
	enter(w, CLUSTER_JOINING);
}

void cluster_start(struct cluster_worker *w)
{
	if (is_alive(w) || w->dying || w->cluster->failed)
		return;
	if (sim_host_state(w->host) == SIM_CRASHED)
		sim_host_restart(w->host);
	begin(w);
}

void cluster_start_all(struct cluster *c)
{
	for (unsigned i = 0; i < c->n; i++)
		cluster_start(&c->workers[i]);
}

/* ---- ends ---- */

static void end(struct cluster_worker *w)
{
	struct cluster *c = w->cluster;
	struct far_agent *agent = w->agent;
	enum agent_state state = agent_state(agent);
	w->why = agent_why(agent, &w->err);
	sim_cancel(c->sim, w->resume_event);
	w->resume_event = 0;
	if (!w->crash_requested)
		sim_host_resume(w->host);
	worker_stop_cores(w);
	w->dying = true;
	if (w->crash_requested && w->power)
		sim_ctl_net_cut_off(w->net);
	if (w->crash_requested)
		sim_host_crash(w->host);
	uint32_t left = w->crash_requested ? agent_crash(agent) : agent_destroy(agent);
	w->agent = NULL;
	w->net = NULL;
	memset(w->queues, 0, sizeof w->queues);
	memset(w->ports, 0, sizeof w->ports);
	apps_drop(w);
	w->dying = false;
	if (left)
		cluster_fail(c, "%u fibers of \"%s\" did not end though their waits were cancelled", left, w->name);
	enter(w, w->crash_requested ? CLUSTER_CRASHED : state == AGENT_FAILED ? CLUSTER_FAILED : CLUSTER_LEFT);
}

static void end_later(void *ctx)
{
	struct cluster_worker *w = ctx;
	w->end_event = 0;
	if (is_alive(w))
		end(w);
}

/* Not inside a turn: its own objects would go with it. */
static void end_soon(struct cluster_worker *w)
{
	w->ending = true;
	if (!w->end_event)
		w->end_event = sim_at(w->cluster->sim, sim_now(w->cluster->sim), end_later, w);
}

void worker_look(struct cluster_worker *w)
{
	if (!is_alive(w) || w->ending)
		return;
	enum agent_state state = agent_state(w->agent);
	if (state == AGENT_READY && w->state == CLUSTER_JOINING)
		enter(w, CLUSTER_READY);
	else if (state == AGENT_LEFT || state == AGENT_FAILED)
		end_soon(w);
}

void cluster_crash(struct cluster_worker *w, enum cluster_end how)
{
	if (!is_alive(w) || w->dying || w->crash_requested)
		return;
	w->crash_requested = true;
	w->power = how == CLUSTER_POWER;
	if (w->cluster->running)
		end_soon(w);
	else
		end(w);
}

void cluster_linger(struct cluster_worker *w, uint64_t ns)
{
	if (w->net)
		sim_ctl_net_linger(w->net, ns);
}

static void wake_up(void *ctx)
{
	struct cluster_worker *w = ctx;
	w->resume_event = 0;
	sim_host_resume(w->host);
}

void cluster_pause(struct cluster_worker *w, uint64_t ns)
{
	if (!is_alive(w) || sim_host_state(w->host) != SIM_RUNNING)
		return;
	sim_host_pause(w->host);
	w->resume_event = sim_at(w->cluster->sim, time_after(sim_now(w->cluster->sim), ns), wake_up, w);
}

void cluster_set_clock(struct cluster_worker *w, uint64_t jump_ns, int64_t skew_ppb)
{
	sim_host_set_clock(w->host, jump_ns, skew_ppb);
	for (unsigned i = 0; i <= CTL_CORE && is_alive(w); i++)
		if (i < w->shards || i == CTL_CORE)
			core_schedule(&w->cores[i], sim_now(w->cluster->sim));
}

void cluster_leave(struct cluster_worker *w, uint64_t timeout_ns)
{
	if (w->state != CLUSTER_READY || w->ending)
		return;
	agent_leave(w->agent, timeout_ns);
	apps_drop(w);
	enter(w, CLUSTER_LEAVING);
}

void cluster_leave_all(struct cluster *c, uint64_t timeout_ns)
{
	for (unsigned i = 0; i < c->n; i++)
		cluster_leave(&c->workers[i], timeout_ns);
}

enum far_status cluster_why(const struct cluster_worker *w, struct far_err *err)
{
	if (w->why && err)
		*err = w->err;
	return w->why;
}
