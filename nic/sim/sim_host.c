/* SPDX-License-Identifier: BSD-3-Clause */
/** Hosts: clock, creation, pause, crash, restart. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SKEW_MAX INT64_C(100000000)
#define BILLION  INT64_C(1000000000)

/* ---- clock ---- */

uint64_t sim_host_local(const struct sim_host *host, uint64_t when)
{
	/* In two parts, so that nothing overflows. */
	int64_t elapsed = (int64_t)(when - host->clock_set), skew = host->skew_ppb;
	int64_t more = elapsed / BILLION * skew + elapsed % BILLION * skew / BILLION;
	return host->clock_local + (uint64_t)elapsed + (uint64_t)more;
}

uint64_t sim_host_when(const struct sim_host *host, uint64_t local)
{
	if (local == TIME_NEVER)
		return TIME_NEVER;
	if (local <= host->clock_local)
		return host->clock_set;
	uint64_t ahead = local - host->clock_local;
	if (ahead > (uint64_t)INT64_MAX / 4 || host->skew_ppb == SIM_CLOCK_STOPPED)
		return TIME_NEVER;
	/* The clock runs at least half as fast as that of the world: roundings move the time by 4 ns at most. */
	uint64_t speed = (uint64_t)(BILLION + host->skew_ppb);
	uint64_t near = ahead / speed * BILLION + ahead % speed * BILLION / speed;
	uint64_t low = near > 4 ? near - 4 : 0, high = near + 4;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;
		if (sim_host_local(host, host->clock_set + middle) >= local)
			high = middle;
		else
			low = middle + 1;
	}
	return host->clock_set + low;
}

void sim_host_set_clock(struct sim_host *host, uint64_t jump_ns, int64_t skew_ppb)
{
	must(skew_ppb == SIM_CLOCK_STOPPED || (skew_ppb >= -BILLION / 2 && skew_ppb <= BILLION));
	host->clock_local = sim_host_local(host, host->sim->now) + jump_ns;
	host->clock_set = host->sim->now;
	host->skew_ppb = skew_ppb;
}

int64_t sim_host_skew(const struct sim_host *host)
{
	return host->skew_ppb;
}

static uint64_t clock_of_host(void *ctx)
{
	const struct sim_host *host = ctx;
	return sim_host_local(host, host->sim->now);
}

const struct clock_source *sim_host_clock(struct sim_host *host)
{
	return &host->clock;
}

/* ---- creation ---- */

void sim_host_config_init(struct sim_host_config *config)
{
	*config = (struct sim_host_config){
		.nic = {.queues_max = SIM_QUEUES_MAX,
			.rx_slots = 1024,
			.tx_slots = 512,
			.body_align = 32,
			.peers_max = 16384},
	};
}

static int nic_check(const struct sim_nic *n, struct nic_err *err)
{
	if (n->queues_max < 1 || n->queues_max > SIM_QUEUES_MAX)
		return sim_error(err, -EINVAL, "sim: %u queues; 1 to %u", n->queues_max, SIM_QUEUES_MAX);
	if (n->rx_slots < 1 || n->rx_slots > 1u << 20)
		return sim_error(err, -EINVAL, "sim: a receive ring of %u; 1 to 1048576", n->rx_slots);
	if (n->tx_slots < 1 || n->tx_slots > 1u << 20)
		return sim_error(err, -EINVAL, "sim: a transmit ring of %u; 1 to 1048576", n->tx_slots);
	if (!n->body_align || n->body_align > 64 || (n->body_align & (n->body_align - 1)))
		return sim_error(err, -EINVAL, "sim: bodies aligned to %u; a power of two up to 64", n->body_align);
	if (n->peers_max < 1 || n->peers_max > 1u << 20)
		return sim_error(err, -EINVAL, "sim: %u address handles; 1 to 1048576", n->peers_max);
	return 0;
}

static int host_check(const struct sim *sim, const struct sim_host_config *c, struct nic_err *err)
{
	const struct sim_topology *t = &sim->config.topology;
	uint32_t most = t->kind == SIM_PAIR ? 2 : SIM_HOSTS_MAX;
	if (sim->hosts_n >= most)
		return sim_error(err, -ENOSPC, "sim: no more than %u hosts", most);
	if (t->kind == SIM_LEAF_SPINE ? c->leaf >= t->leaves : c->leaf != 0)
		return sim_error(err, -EINVAL, "sim: there is no leaf %u; the topology has %u", c->leaf, t->leaves);
	if (c->clock_skew_ppb <= -SKEW_MAX || c->clock_skew_ppb >= SKEW_MAX)
		return sim_error(err, -EINVAL, "sim: a skew of %lld ppb; within 10%%", (long long)c->clock_skew_ppb);
	if (c->clock_offset_ns < 0 && (uint64_t)-c->clock_offset_ns >= sim->now)
		return sim_error(err, -EINVAL, "sim: an offset of %lld ns would make the clock begin before 0",
				 (long long)c->clock_offset_ns);
	if (c->clock_offset_ns > INT64_MAX / 4)
		return sim_error(err, -EINVAL, "sim: an offset of %lld ns is too large", (long long)c->clock_offset_ns);
	if (!memchr(c->name, '\0', sizeof c->name))
		return sim_error(err, -EINVAL, "sim: a host's name has more than %u bytes", SIM_NAME_BYTES - 1);
	return nic_check(&c->nic, err);
}

static bool grow(struct sim *sim)
{
	if (sim->hosts_n < sim->hosts_cap)
		return true;
	sim->hosts_cap = sim->hosts_cap ? 2 * sim->hosts_cap : 16;
	sim->hosts = realloc(sim->hosts, sim->hosts_cap * sizeof(struct sim_host *));
	return sim->hosts != NULL;
}

struct sim_host *sim_host_add(struct sim *sim, const struct sim_host_config *config, struct nic_err *err)
{
	if (host_check(sim, config, err))
		return NULL;
	struct sim_host *host = calloc(1, sizeof *host);
	must(host && grow(sim));
	host->sim = sim;
	host->number = sim->hosts_n;
	host->leaf = config->leaf;
	host->config = *config;
	if (!host->config.name[0])
		snprintf(host->config.name, sizeof host->config.name, "host%u", host->number);
	host->clock_set = sim->now;
	host->clock_local = (uint64_t)((int64_t)sim->now + config->clock_offset_ns);
	host->skew_ppb = config->clock_skew_ppb;
	host->clock = (struct clock_source){clock_of_host, host};
	host->parked_first = host->parked_last = SIM_NONE;
	sim_topology_cable(host);
	sim->hosts[sim->hosts_n++] = host;
	return host;
}

struct sim_host *sim_host(const struct sim *sim, unsigned number)
{
	return number < sim->hosts_n ? sim->hosts[number] : NULL;
}

unsigned sim_hosts(const struct sim *sim)
{
	return sim->hosts_n;
}

unsigned sim_host_number(const struct sim_host *host)
{
	return host->number;
}

const char *sim_host_name(const struct sim_host *host)
{
	return host->config.name;
}

void sim_host_stats(const struct sim_host *host, struct sim_host_stats *out)
{
	*out = host->stats;
}

sim_event sim_host_at(struct sim_host *host, uint64_t when, sim_event_fn *fn, void *ctx)
{
	return host->state == SIM_CRASHED ? 0 : sim_schedule(host->sim, host, when, fn, ctx);
}

/* ---- pause, crash, restart ---- */

void sim_host_wake(struct sim_host *host)
{
	if (host->state == SIM_RUNNING && host->config.hooks.wake)
		host->config.hooks.wake(host->config.hooks.ctx, host);
}

void sim_host_carrier(struct sim_host *host, uint32_t rail, bool up)
{
	if (host->state != SIM_CRASHED && host->config.hooks.carrier)
		host->config.hooks.carrier(host->config.hooks.ctx, host, rail, up);
}

enum sim_host_state sim_host_state(const struct sim_host *host)
{
	return host->state;
}

uint32_t sim_host_incarnation(const struct sim_host *host)
{
	return host->incarnations;
}

void sim_host_pause(struct sim_host *host)
{
	if (host->state == SIM_RUNNING)
		host->state = SIM_PAUSED;
}

void sim_host_resume(struct sim_host *host)
{
	if (host->state != SIM_PAUSED)
		return;
	host->state = SIM_RUNNING;
	sim_events_unpark(host);
	sim_host_wake(host);
}

void sim_host_crash(struct sim_host *host)
{
	if (host->state == SIM_CRASHED)
		return;
	host->state = SIM_CRASHED;
	sim_events_forget(host);
	sim_nic_crash(host);
	for (uint32_t i = 0; i < host->sim->config.topology.rails; i++)
		sim_link_abandon(host->rails[i].up, SIM_DROP_CRASHED);
}

void sim_host_restart(struct sim_host *host)
{
	if (host->state != SIM_CRASHED)
		return;
	host->state = SIM_RUNNING;
	host->incarnations++;
}
