/* SPDX-License-Identifier: BSD-3-Clause */
/** Switches, cables between them, and forwarding. The thread that runs the world. */
#include "nic/sim/sim_world.h"

#include <errno.h>
#include <stdlib.h>

#define BUFFER_BYTES_MAX ((uint64_t)1 << 40)

int sim_shape_check(const char *what, const struct sim_shape *shape, struct nic_err *err)
{
	if (shape->mtu < SIM_MTU_MIN || shape->mtu > SIM_MTU_MAX)
		return sim_error(err, -EINVAL, "sim: %s: mtu %u is not within %u to %u", what, shape->mtu, SIM_MTU_MIN,
				 SIM_MTU_MAX);
	if (shape->rate_bps > UINT64_C(10000000000000))
		return sim_error(err, -EINVAL, "sim: %s: more than 10 Tb/s; 0 is without bound", what);
	return 0;
}

static int within(const char *what, unsigned n, unsigned most, struct nic_err *err)
{
	if (n >= 1 && n <= most)
		return 0;
	return sim_error(err, -EINVAL, "sim: %u %s; 1 to %u", n, what, most);
}

int sim_topology_check(struct sim_topology *t, struct nic_err *err)
{
	int error = 0;
	t->rails = t->rails ? t->rails : 1;
	t->priorities = t->priorities ? t->priorities : 1;
	t->alpha_percent = t->alpha_percent ? t->alpha_percent : 100;
	if (t->kind != SIM_LEAF_SPINE) {
		t->leaves = t->kind == SIM_STAR;
		t->spines = 0;
	} else {
		error = within("leaves", t->leaves, SIM_LEAVES_MAX, err);
		error = error ? error : within("spines", t->spines, SIM_SPINES_MAX, err);
		error = error ? error : sim_shape_check("the fabric's links", &t->fabric, err);
	}
	if (!error && (unsigned)t->kind > SIM_LEAF_SPINE)
		error = sim_error(err, -EINVAL, "sim: no such kind of topology");
	error = error ? error : sim_shape_check("the hosts' links", &t->host, err);
	if (!error && t->buffer_bytes > BUFFER_BYTES_MAX)
		error = sim_error(err, -EINVAL, "sim: buffer_bytes %llu is more than 1 TiB",
				  (unsigned long long)t->buffer_bytes);
	error = error ? error : within("rails", t->rails, SIM_RAILS_MAX, err);
	error = error ? error : within("priorities", t->priorities, SIM_PRIORITIES_MAX, err);
	return error ? error : within("percent of alpha", t->alpha_percent, 100000, err);
}

static uint32_t switches_per_rail(const struct sim *sim)
{
	return sim->config.topology.leaves + sim->config.topology.spines;
}

static struct sim_switch *switch_of(const struct sim *sim, unsigned rail, unsigned number)
{
	return &sim->switches[rail * switches_per_rail(sim) + number];
}

static struct sim_link **fabric_at(const struct sim *sim, unsigned rail, unsigned leaf, unsigned spine, bool down)
{
	const struct sim_topology *t = &sim->config.topology;
	return &sim->fabric[((rail * t->leaves + leaf) * t->spines + spine) * 2 + down];
}

static void fabric_link(struct sim *sim, unsigned rail, unsigned leaf, unsigned spine, bool down)
{
	const struct sim_topology *t = &sim->config.topology;
	char names[2][SIM_NAME_BYTES];
	snprintf(names[0], sizeof names[0], "leaf%u", leaf);
	snprintf(names[1], sizeof names[1], "spine%u", spine);
	struct sim_link *link = sim_link_new(sim, &t->fabric, rail, names[down], names[!down]);
	struct sim_switch *ends[2] = {switch_of(sim, rail, leaf), switch_of(sim, rail, t->leaves + spine)};
	link->strict = true;
	link->from_switch = ends[down];
	link->to_switch = ends[!down];
	*fabric_at(sim, rail, leaf, spine, down) = link;
}

void sim_topology_build(struct sim *sim)
{
	const struct sim_topology *t = &sim->config.topology;
	sim->switches_n = t->rails * switches_per_rail(sim);
	sim->switches = calloc(sim->switches_n + 1, sizeof *sim->switches);
	sim->fabric = calloc((size_t)t->rails * t->leaves * t->spines * 2 + 1, sizeof(struct sim_link *));
	sim->spray = calloc(t->rails * t->leaves + 1, sizeof *sim->spray);
	must(sim->switches && sim->fabric && sim->spray);
	for (uint32_t i = 0; i < sim->switches_n; i++)
		sim->switches[i].number = i % switches_per_rail(sim);
	for (unsigned r = 0; r < t->rails; r++)
		for (unsigned l = 0; l < t->leaves; l++)
			for (unsigned s = 0; s < t->spines; s++) {
				fabric_link(sim, r, l, s, false);
				fabric_link(sim, r, l, s, true);
			}
}

void sim_topology_free(struct sim *sim)
{
	const struct sim_topology *t = &sim->config.topology;
	for (size_t i = 0; i < (size_t)t->rails * t->leaves * t->spines * 2; i++)
		sim_link_free(sim->fabric[i]);
	free(sim->fabric);
	free(sim->switches);
	free(sim->spray);
}

void sim_topology_cable(struct sim_host *host)
{
	struct sim *sim = host->sim;
	const struct sim_topology *t = &sim->config.topology;
	char name[SIM_NAME_BYTES];
	for (unsigned r = 0; r < t->rails; r++) {
		struct sim_rail *rail = &host->rails[r];
		if (t->kind == SIM_LEAF_SPINE)
			snprintf(name, sizeof name, "leaf%u", host->leaf);
		else
			snprintf(name, sizeof name, "%s", t->kind == SIM_STAR ? "switch" : "cable");
		rail->up = sim_link_new(sim, &t->host, r, host->config.name, name);
		rail->up->from_host = host;
		if (t->kind == SIM_PAIR)
			continue;
		rail->down = sim_link_new(sim, &t->host, r, name, host->config.name);
		rail->down->strict = true;
		rail->down->from_switch = rail->up->to_switch = switch_of(sim, r, host->leaf);
	}
}

struct sim_link *sim_uplink(struct sim_host *host, unsigned rail)
{
	return rail < host->sim->config.topology.rails ? host->rails[rail].up : NULL;
}

struct sim_link *sim_downlink(struct sim_host *host, unsigned rail)
{
	const struct sim *sim = host->sim;
	if (rail >= sim->config.topology.rails)
		return NULL;
	if (sim->config.topology.kind != SIM_PAIR)
		return host->rails[rail].down;
	return sim->hosts_n == 2 ? sim->hosts[!host->number]->rails[rail].up : NULL;
}

struct sim_link *sim_fabric_link(struct sim *sim, unsigned rail, unsigned leaf, unsigned spine, bool down)
{
	const struct sim_topology *t = &sim->config.topology;
	if (rail >= t->rails || leaf >= t->leaves || spine >= t->spines)
		return NULL;
	return *fabric_at(sim, rail, leaf, spine, down);
}

uint64_t sim_switch_bytes(const struct sim *sim, unsigned rail, unsigned number, uint64_t *max)
{
	if (rail >= sim->config.topology.rails || number >= switches_per_rail(sim)) {
		if (max)
			*max = 0;
		return 0;
	}
	const struct sim_switch *s = switch_of(sim, rail, number);
	if (max)
		*max = s->used_max;
	return s->used;
}

/* ---- forwarding ---- */

static bool leads(const struct sim *sim, const struct sim_packet *p, unsigned leaf, unsigned spine)
{
	return (*fabric_at(sim, p->rail, leaf, spine, false))->up &&
	       (*fabric_at(sim, p->rail, p->to->leaf, spine, true))->up;
}

/* Rendezvous hashing: of the spines that lead there, the one with the largest hash with the flow. A flow moves only
 * when its spine fails. */
static uint32_t by_flow(const struct sim *sim, const struct sim_packet *p, unsigned leaf)
{
	uint32_t best = SIM_NONE;
	uint64_t most = 0;
	for (uint32_t s = 0; s < sim->config.topology.spines; s++) {
		uint64_t weight = sim_mix(p->flow + (s + 1) * UINT64_C(0x9e3779b97f4a7c15));
		if (!leads(sim, p, leaf, s) || (best != SIM_NONE && weight <= most))
			continue;
		best = s;
		most = weight;
	}
	return best;
}

static uint32_t by_turns(struct sim *sim, const struct sim_packet *p, unsigned leaf)
{
	const struct sim_topology *t = &sim->config.topology;
	uint32_t *turn = &sim->spray[p->rail * t->leaves + leaf];
	for (uint32_t tries = 0; tries < t->spines; tries++) {
		uint32_t s = (*turn)++ % t->spines;
		if (leads(sim, p, leaf, s))
			return s;
	}
	return SIM_NONE;
}

/* Next link towards the destination. NULL: no route. */
static struct sim_link *way_out(struct sim *sim, const struct sim_switch *s, const struct sim_packet *p)
{
	const struct sim_topology *t = &sim->config.topology;
	if (t->kind == SIM_STAR || s->number == p->to->leaf)
		return p->to->rails[p->rail].down;
	if (s->number >= t->leaves)
		return *fabric_at(sim, p->rail, p->to->leaf, s->number - t->leaves, true);
	uint32_t spine = t->spray ? by_turns(sim, p, s->number) : by_flow(sim, p, s->number);
	return spine == SIM_NONE ? NULL : *fabric_at(sim, p->rail, s->number, spine, false);
}

static void forward(struct sim *sim, struct sim_switch *s, struct sim_packet *p)
{
	struct sim_link *out = way_out(sim, s, p);
	if (out)
		sim_link_put(out, p, p->priority * sim->config.topology.priorities / SIM_PRIORITIES_MAX);
	else
		sim_packet_drop(p, SIM_DROP_CARRIER, p->at, NULL);
}

static void forward_later(void *ctx)
{
	struct sim_packet *p = ctx;
	forward(p->sim, p->at->to_switch, p);
}

void sim_switch_take(struct sim *sim, struct sim_switch *s, struct sim_packet *p)
{
	uint64_t after = sim->config.topology.switch_ns;
	if (!after)
		forward(sim, s, p);
	else if (!sim_schedule(sim, NULL, time_after(sim->now, after), forward_later, p))
		sim_packet_drop(p, SIM_DROP_CARRIER, p->at, NULL);
}
