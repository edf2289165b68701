/* SPDX-License-Identifier: BSD-3-Clause */
/* The cluster: its world, and how it is run. The thread of the simulated world. */
#include "apps/sim/cluster.h"

#include "apps/sim/cluster_world.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS_MAX FAR_WORLD_MAX

void cluster_config_init(struct cluster_config *config, uint64_t seed)
{
	memset(config, 0, sizeof *config);
	sim_config_init(&config->sim, seed);
	config->workers = 2;
}

/* ---- made ---- */

static int64_t drawn_between(struct sim_random *r, int64_t max)
{
	return max ? (int64_t)sim_random_below(r, 2 * (uint64_t)max + 1) - max : 0;
}

static int add_worker(struct cluster *c, unsigned rank, struct nic_err *err)
{
	const struct cluster_config *config = &c->config;
	struct cluster_worker *w = &c->workers[rank];
	struct sim_host_config host;
	struct sim_random r;
	unsigned leaves = config->sim.topology.leaves;
	sim_host_config_init(&host);
	sim_random_init(&r, config->sim.seed, "clock", rank);
	snprintf(w->name, sizeof w->name, "w%u", rank);
	snprintf(host.name, sizeof host.name, "w%u", rank);
	host.leaf = config->sim.topology.kind == SIM_LEAF_SPINE && leaves ? rank % leaves : 0;
	if (config->clock_offset_ns_max)
		host.clock_offset_ns = (int64_t)sim_random_below(&r, config->clock_offset_ns_max + 1);
	host.clock_skew_ppb = drawn_between(&r, config->clock_skew_ppb_max);
	host.hooks = (struct sim_hooks){.wake = worker_woken, .ctx = w};
	w->cluster = c;
	w->rank = rank;
	w->waiting_last = &w->waiting;
	w->host = sim_host_add(c->sim, &host, err);
	return w->host ? 0 : -EINVAL;
}

struct cluster *cluster_create(const struct cluster_config *config, struct nic_err *err)
{
	unsigned n = config->workers;
	if (n == 0 || n > WORKERS_MAX) {
		snprintf(err->text, sizeof err->text, "a cluster of %u workers; 1 to %d are possible", n, WORKERS_MAX);
		return NULL;
	}
	struct cluster *c = calloc(1, sizeof *c + n * sizeof c->workers[0]);
	if (!c) {
		snprintf(err->text, sizeof err->text, "no memory for %u workers", n);
		return NULL;
	}
	c->config = *config;
	c->n = n;
	if (!c->config.cost.per_us)
		c->config.cost = cluster_cost_default;
	if (!c->config.sim.topology.rails)
		c->config.sim.topology.rails = 1;
	c->sim = sim_create(&c->config.sim, err);
	if (c->sim && !(c->streams = sim_streams_create(c->sim, &config->streams)))
		snprintf(err->text, sizeof err->text, "no memory for the streams");
	for (unsigned i = 0; c->streams && i < n; i++)
		if (add_worker(c, i, err)) {
			cluster_destroy(c);
			return NULL;
		}
	if (c->streams)
		return c;
	cluster_destroy(c);
	return NULL;
}

void cluster_destroy(struct cluster *c)
{
	if (!c)
		return;
	c->config.on_state = NULL;
	c->running = NULL;
	for (unsigned i = 0; i < c->n; i++)
		if (c->workers[i].agent)
			cluster_crash(&c->workers[i], CLUSTER_POWER);
	if (c->streams)
		sim_streams_destroy(c->streams);
	if (c->sim)
		sim_destroy(c->sim);
	mails_free(c);
	free(c);
}

/* ---- what it is ---- */

struct sim *cluster_sim(struct cluster *c)
{
	return c->sim;
}

unsigned cluster_workers(const struct cluster *c)
{
	return c->n;
}

struct cluster_worker *cluster_worker(struct cluster *c, unsigned rank)
{
	return rank < c->n ? &c->workers[rank] : NULL;
}

unsigned cluster_rank(const struct cluster_worker *w)
{
	return w->rank;
}

struct sim_host *cluster_host(const struct cluster_worker *w)
{
	return w->host;
}

enum cluster_state cluster_state(const struct cluster_worker *w)
{
	return w->state;
}

struct far_agent *cluster_agent(const struct cluster_worker *w)
{
	return w->agent;
}

unsigned cluster_incarnations(const struct cluster_worker *w)
{
	return w->incarnations;
}

uint64_t cluster_now(const struct cluster *c)
{
	return sim_now(c->sim);
}

void cluster_stats(const struct cluster *c, struct cluster_stats *out)
{
	*out = c->stats;
}

void cluster_fail(struct cluster *c, const char *format, ...)
{
	va_list args;
	if (c->failed)
		return;
	c->failed = true;
	va_start(args, format);
	vsnprintf(c->failure, sizeof c->failure, format, args);
	va_end(args);
}

const char *cluster_failure(const struct cluster *c)
{
	return c->failed ? c->failure : sim_failure(c->sim);
}

/* ---- partitions ---- */

void cluster_partition(struct cluster_worker *from, struct cluster_worker *to, bool cut)
{
	sim_partition(from->host, to->host, cut);
	sim_streams_cut(from->cluster->streams, from->host, to->host, cut);
}

void cluster_heal(struct cluster *c)
{
	sim_heal(c->sim);
	sim_streams_heal(c->streams);
}

/* ---- run ---- */

typedef bool done_fn(struct cluster *c);

/* Who waits though nothing will happen any more, for a text. */
static void fail_stuck(struct cluster *c)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->workers[i].apps) {
			cluster_fail(
				c,
				"worker asleep with work: %u applications wait, the first on \"%s\", and nothing is "
				"left to happen at %llu ns",
				c->apps, c->workers[i].name, (unsigned long long)sim_now(c->sim));
			return;
		}
}

static bool no_apps(struct cluster *c)
{
	return c->apps == 0;
}

static enum cluster_run run(struct cluster *c, uint64_t until, done_fn *done)
{
	for (;;) {
		if (cluster_failure(c))
			return CLUSTER_RUN_FAILED;
		if (done && done(c))
			return CLUSTER_RUN_DONE;
		uint64_t next = sim_next(c->sim);
		if (next == TIME_NEVER && c->apps && done == no_apps) {
			fail_stuck(c);
			continue;
		}
		if (next > until || next == TIME_NEVER)
			break;
		sim_step(c->sim);
	}
	if (until != TIME_NEVER)
		sim_run_until(c->sim, until);
	return cluster_failure(c) ? CLUSTER_RUN_FAILED : done ? CLUSTER_RUN_TIME : CLUSTER_RUN_DONE;
}

static uint64_t after(const struct cluster *c, uint64_t timeout_ns)
{
	return time_after(sim_now(c->sim), timeout_ns);
}

enum cluster_run cluster_run_until(struct cluster *c, uint64_t when)
{
	return run(c, when, NULL);
}

static bool all_ready(struct cluster *c)
{
	for (unsigned i = 0; c->not_ready == 0 && i < c->n; i++)
		if (c->workers[i].state == CLUSTER_FAILED) {
			cluster_fail(c, "\"%s\" cannot join: %s", c->workers[i].name, c->workers[i].err.text);
			return false;
		}
	return c->not_ready == 0;
}

enum cluster_run cluster_run_ready(struct cluster *c, uint64_t timeout_ns)
{
	return run(c, after(c, timeout_ns), all_ready);
}

enum cluster_run cluster_run_apps(struct cluster *c, uint64_t timeout_ns)
{
	return run(c, after(c, timeout_ns), no_apps);
}

static bool nobody(struct cluster *c)
{
	return c->alive == 0;
}

enum cluster_run cluster_run_left(struct cluster *c, uint64_t timeout_ns)
{
	return run(c, after(c, timeout_ns), nobody);
}
