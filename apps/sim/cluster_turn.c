/* SPDX-License-Identifier: BSD-3-Clause */
/* Turns: when a core has one, what it does, and how long that takes. The thread of the simulated world. */
#include "apps/sim/cluster_world.h"
#include "core/shard.h"
#include "nic/sim/sim_port.h"

static uint64_t nanoseconds(const struct cluster *c, uint64_t instructions)
{
	return instructions * 1000 / c->config.cost.per_us;
}

/* ---- when ---- */

static void core_run(void *ctx);

void core_schedule(struct core *core, uint64_t when)
{
	struct cluster_worker *w = core->worker;
	struct sim *sim = w->cluster->sim;
	uint64_t now = sim_now(sim);
	if (when == TIME_NEVER || !w->agent)
		return;
	if (when < core->busy_until)
		when = core->busy_until;
	if (when < now)
		when = now;
	if (core->event && core->at <= when)
		return;
	sim_cancel(sim, core->event);
	core->at = when;
	core->event = sim_host_at(w->host, when, core_run, core);
}

static bool is_ctl(const struct core *core)
{
	return core->index == CTL_CORE;
}

/* Would a thread that sleeps on the shard's queues wake. */
static bool is_woken(const struct core *core)
{
	const struct cluster_worker *w = core->worker;
	for (unsigned rail = 0; rail < SIM_RAILS_MAX; rail++)
		if (w->queues[rail][core->index] && sim_queue_of(w->queues[rail][core->index])->woken)
			return true;
	return false;
}

/* Does a packet wait at them, of NICs whose arrivals wake. */
static bool has_packets(const struct core *core)
{
	const struct cluster_worker *w = core->worker;
	for (unsigned rail = 0; rail < SIM_RAILS_MAX; rail++) {
		const struct sim_queue *q =
			w->queues[rail][core->index] ? sim_queue_of(w->queues[rail][core->index]) : NULL;
		if (q && q->rx.first && !q->port->nic.kick)
			return true;
	}
	return false;
}

/* Has another core of the worker left something for it in memory. */
static bool has_hand_overs(const struct core *core)
{
	struct shard *s = core->worker->agent->shards[core->index];
	return submit_peek(&s->submit) || atomic_load_explicit(&s->answers, memory_order_relaxed) ||
	       atomic_load_explicit(&s->resumed, memory_order_relaxed) ||
	       atomic_load_explicit(&s->tasks, memory_order_relaxed) || s->poll_idle ||
	       atomic_load_explicit(&s->cancels, memory_order_relaxed) ||
	       atomic_load_explicit(&s->mail_in.tail, memory_order_relaxed) !=
		       atomic_load_explicit(&s->mail_in.head, memory_order_relaxed);
}

/* Who sleeps with work that has not woken him: the protocol of going to sleep is broken, or a wake-up was lost. */
static void check_sleeper(const struct core *core)
{
	const struct cluster_worker *w = core->worker;
	if (!agent_asleep(w->agent, core->index) || is_woken(core))
		return;
	const char *what = has_packets(core)      ? "a packet is in its ring"
			   : has_hand_overs(core) ? "something was handed over to it"
						  : NULL;
	if (what)
		cluster_fail(w->cluster,
			     "worker asleep with work: shard %u of \"%s\" sleeps at %llu ns though %s, and nothing has "
			     "woken it",
			     core->index, w->name, (unsigned long long)sim_now(w->cluster->sim), what);
}

static void shard_heard(struct core *core, uint64_t now)
{
	const struct cluster_worker *w = core->worker;
	const struct cluster_cost *cost = &w->cluster->config.cost;
	if (!agent_asleep(w->agent, core->index))
		core_schedule(core, now + nanoseconds(w->cluster, cost->pass));
	else if (is_woken(core))
		core_schedule(core, now + nanoseconds(w->cluster, cost->wake));
	else
		check_sleeper(core);
}

void worker_woken(void *ctx, struct sim_host *host)
{
	struct cluster_worker *w = ctx;
	(void)host;
	if (!w->agent)
		return;
	uint64_t now = sim_now(w->cluster->sim);
	for (unsigned i = 0; i < w->shards; i++)
		shard_heard(&w->cores[i], now);
	for (unsigned rail = 0; rail < w->cluster->config.sim.topology.rails; rail++)
		if (w->ports[rail] && sim_port_of(w->ports[rail])->pending_first != SIM_NONE)
			core_schedule(&w->cores[CTL_CORE], now);
}

void worker_ctl_due(void *ctx)
{
	struct cluster_worker *w = ctx;
	if (w->agent)
		core_schedule(&w->cores[CTL_CORE], sim_now(w->cluster->sim));
}

void worker_start_cores(struct cluster_worker *w)
{
	for (unsigned i = 0; i <= CTL_CORE; i++) {
		struct core *core = &w->cores[i];
		*core = (struct core){.worker = w, .index = i};
		if (i < w->shards || is_ctl(core))
			core_schedule(core, sim_now(w->cluster->sim));
	}
}

void worker_stop_cores(struct cluster_worker *w)
{
	for (unsigned i = 0; i <= CTL_CORE; i++) {
		sim_cancel(w->cluster->sim, w->cores[i].event);
		w->cores[i].event = 0;
	}
}

/* ---- what it takes ---- */

struct tally {
	uint64_t packets, calls, answers, requests, bytes;
};

static uint64_t counted(const _Atomic uint64_t *c)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)c, memory_order_relaxed);
}

static void tally(const struct core *core, struct tally *out)
{
	const struct cluster_worker *w = core->worker;
	const struct shard_counters *c = &w->agent->shards[core->index]->counters;
	struct sim_host_stats host;
	sim_host_stats(w->host, &host);
	out->packets = host.tx_packets + host.rx_taken;
	out->calls = counted(&c->calls_sent) + counted(&c->oneways_sent);
	out->answers = counted(&c->calls_ended);
	out->requests = counted(&c->requests_received) + counted(&c->oneways_received);
	out->bytes = counted(&c->bytes_sent) + counted(&c->bytes_received);
}

static uint64_t turn_ns(const struct cluster *c, const struct tally *before, const struct tally *after)
{
	const struct cluster_cost *cost = &c->config.cost;
	uint64_t instructions = cost->pass + (after->packets - before->packets) * cost->packet +
				(after->calls - before->calls) * cost->call +
				(after->answers - before->answers) * cost->answer +
				(after->requests - before->requests) * ((uint64_t)cost->request + cost->handler) +
				(after->bytes - before->bytes) * cost->byte_1024 / 1024;
	return nanoseconds(c, instructions);
}

/* ---- turns ---- */

static void shard_run(struct core *core)
{
	struct cluster_worker *w = core->worker;
	struct cluster *c = w->cluster;
	struct tally before, after;
	bool slept = agent_asleep(w->agent, core->index);
	core->extra_ns = 0;
	tally(core, &before);
	uint64_t next = agent_step_shard(w->agent, core->index);
	tally(core, &after);
	uint64_t now = sim_now(c->sim), local = clock_now(sim_host_clock(w->host));
	uint64_t busy = turn_ns(c, &before, &after) + core->extra_ns;
	bool worked = next <= local, asleep = agent_asleep(w->agent, core->index);
	c->stats.turns++;
	c->stats.sleeps += asleep && !slept;
	c->stats.busy_ns += busy;
	core->busy_until = now + busy;
	core_schedule(core, worked ? now : sim_host_when(w->host, next));
	if (asleep && is_woken(core)) /* something came before it armed */
		shard_heard(core, now);
	if (w->waiting)
		apps_begin(w);
	/* Shards hand over to each other by memory, which who polls sees. */
	for (unsigned i = 0; worked && i < w->shards; i++)
		if (i != core->index && !agent_asleep(w->agent, i))
			core_schedule(&w->cores[i], now);
}

static void ctl_run(struct core *core)
{
	struct cluster_worker *w = core->worker;
	struct cluster *c = w->cluster;
	uint32_t tails[FAR_SHARDS_MAX];
	mails_mark(w, tails);
	uint64_t next = agent_step_ctl(w->agent, clock_now(sim_host_clock(w->host)));
	mails_look(w, tails);
	c->stats.steps++;
	core->busy_until = sim_now(c->sim) + nanoseconds(c, c->config.cost.step);
	core_schedule(core, sim_ctl_net_ready(w->net) ? sim_now(c->sim) : sim_host_when(w->host, next));
}

static void core_run(void *ctx)
{
	struct core *core = ctx;
	struct cluster_worker *w = core->worker;
	struct cluster *c = w->cluster;
	core->event = 0;
	if (!w->agent || c->failed)
		return;
	c->running = core;
	if (is_ctl(core))
		ctl_run(core);
	else
		shard_run(core);
	c->running = NULL;
	for (unsigned i = 0; i < w->shards; i++)
		check_sleeper(&w->cores[i]);
	worker_look(w);
}
