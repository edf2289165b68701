/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Disturbance of packets by chance, and partitions. The thread that runs the world.
 *
 * Each kind of disturbance of each link and pair has a random stream of its own and draws for every packet, lost ones
 * too: switching one on or off does not change the draws of the others.
 */
#include "nic/sim/sim_world.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define REORDER_NS UINT64_C(10000)

enum stream { LOSS, BURST, DUPLICATE, REORDER, CORRUPT, CUT, STREAMS };
static_assert(STREAMS == SIM_STREAM_N, "a stream for each kind");

static const char *const stream_names[] = {"loss", "burst", "duplicate", "reorder", "corrupt", "cut"};

void sim_disturber_init(struct sim_disturber *d, uint64_t seed, const char *whose, uint64_t number)
{
	char purpose[64];
	for (unsigned i = 0; i < STREAMS; i++) {
		snprintf(purpose, sizeof purpose, "sim.%s.%s", whose, stream_names[i]);
		sim_random_init(&d->streams[i], seed, purpose, number);
	}
}

static bool happens(struct sim_disturber *d, enum stream stream, uint32_t chance)
{
	return chance && sim_random_below(&d->streams[stream], SIM_CERTAIN) < chance;
}

/* Without traffic a burst would never end by frames: time ends it, too. */
static bool lost_in_burst(struct sim_disturber *d, uint64_t now)
{
	const struct sim_disturbance *w = &d->what;
	if (!w->burst_begin && !d->burst)
		return false;
	uint64_t turn = sim_random_below(&d->streams[BURST], SIM_CERTAIN);
	uint64_t loss = sim_random_below(&d->streams[BURST], SIM_CERTAIN);
	if (d->burst && w->burst_ns && now - d->burst_at >= w->burst_ns)
		d->burst = false;
	bool was = d->burst;
	d->burst = was ? turn >= w->burst_end : turn < w->burst_begin;
	if (d->burst && !was)
		d->burst_at = now;
	return d->burst && (!w->burst_loss || loss < w->burst_loss);
}

/* Frames on the wire; a packet arrives if all of them do. */
static unsigned frames(const struct sim_packet *p)
{
	uint32_t mtu = p->at->shape.mtu, most = (mtu - 20) & ~7u;
	return p->len + SIM_HEADERS <= mtu ? 1 : (p->len + 8 + most - 1) / most;
}

void sim_disturber_draw(struct sim_disturber *d, const struct sim_packet *p, struct sim_fate *fate)
{
	const struct sim_disturbance *w = &d->what;
	for (unsigned i = frames(p); i--;) {
		bool lost = happens(d, LOSS, w->loss), burst = lost_in_burst(d, p->at->sim->now);
		if (lost || burst)
			fate->drop = SIM_DROP_LOSS;
	}
	if (w->cut_off)
		fate->drop = SIM_DROP_PARTITION;
	if (happens(d, DUPLICATE, w->duplicate))
		fate->duplicate = true;
	if (happens(d, REORDER, w->reorder))
		fate->later_ns +=
			1 + sim_random_below(&d->streams[REORDER], w->reorder_ns ? w->reorder_ns : REORDER_NS);
	if (happens(d, CORRUPT, w->corrupt)) {
		fate->corrupt = true;
		fate->corrupt_by = &d->streams[CORRUPT];
	}
	if (happens(d, CUT, w->cut)) {
		fate->cut = true;
		fate->cut_by = &d->streams[CUT];
	}
}

void sim_corrupt(struct sim_packet *p, struct sim_random *r)
{
	uint8_t before[8] = {0};
	uint32_t at[8] = {0};
	unsigned n = 1 + (unsigned)sim_random_below(r, 8);
	bool differs = false;
	for (unsigned i = 0; i < n; i++) {
		at[i] = (uint32_t)sim_random_below(r, p->len);
		before[i] = p->body[at[i]];
		p->body[at[i]] ^= (uint8_t)(1u << sim_random_below(r, 8));
	}
	/* Two flips of one bit cancel each other: before[i] of the first flip of a byte is the byte that was sent. */
	for (unsigned i = 0; i < n; i++) {
		unsigned first = 0;
		while (at[first] != at[i])
			first++;
		differs |= p->body[at[i]] != before[first];
	}
	if (!differs)
		p->body[at[0]] ^= 1;
}

static int set(struct sim_disturber *d, const struct sim_disturbance *what)
{
	if (what->loss > SIM_CERTAIN || what->burst_begin > SIM_CERTAIN || what->burst_end > SIM_CERTAIN ||
	    what->burst_loss > SIM_CERTAIN || what->duplicate > SIM_CERTAIN || what->reorder > SIM_CERTAIN ||
	    what->corrupt > SIM_CERTAIN || what->cut > SIM_CERTAIN)
		return -EINVAL;
	d->what = *what;
	d->burst = d->burst && what->burst_begin;
	d->active = what->loss || what->burst_begin || what->duplicate || what->reorder || what->corrupt || what->cut ||
		    what->cut_off;
	return 0;
}

int sim_link_disturb(struct sim_link *link, const struct sim_disturbance *disturbance)
{
	return set(&link->disturber, disturbance);
}

/* ---- pairs ---- */

/* Finds the entry of a pair, or where it belongs. */
static uint32_t pair_at(const struct sim_host *from, uint32_t to)
{
	uint32_t low = 0, high = from->pairs_n;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (from->pairs[middle]->to < to)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

struct sim_disturber *sim_pair_of(const struct sim_host *from, const struct sim_host *to)
{
	uint32_t at = from->pairs_n ? pair_at(from, to->number) : 0;
	return at < from->pairs_n && from->pairs[at]->to == to->number ? &from->pairs[at]->disturber : NULL;
}

static struct sim_disturber *pair_new(struct sim_host *from, const struct sim_host *to)
{
	uint32_t at = pair_at(from, to->number);
	if (from->sim->pairs_n == SIM_PAIRS_MAX)
		return NULL;
	if (from->pairs_n == from->pairs_cap) {
		from->pairs_cap = from->pairs_cap ? 2 * from->pairs_cap : 4;
		from->pairs = realloc(from->pairs, from->pairs_cap * sizeof(struct sim_pair *));
		must(from->pairs);
	}
	struct sim_pair *pair = calloc(1, sizeof *pair);
	must(pair);
	pair->to = to->number;
	sim_disturber_init(&pair->disturber, from->sim->config.seed, "pair", (uint64_t)from->number << 32 | to->number);
	memmove(from->pairs + at + 1, from->pairs + at, (from->pairs_n - at) * sizeof(struct sim_pair *));
	from->pairs[at] = pair;
	from->pairs_n++;
	from->sim->pairs_n++;
	return &pair->disturber;
}

int sim_pair_disturb(struct sim_host *from, struct sim_host *to, const struct sim_disturbance *disturbance)
{
	struct sim_disturber checked = {0}, *d = sim_pair_of(from, to);
	int error = set(&checked, disturbance);
	if (error)
		return error;
	d = d ? d : pair_new(from, to);
	return d ? set(d, disturbance) : -ENOSPC;
}

/* ---- partitions ---- */

bool sim_is_cut(const struct sim_host *from, const struct sim_host *to)
{
	return from->sim->cuts && (from->cuts[to->number / 64] >> to->number % 64 & 1);
}

void sim_partition(struct sim_host *from, struct sim_host *to, bool cut)
{
	uint64_t *word = &from->cuts[to->number / 64], bit = (uint64_t)1 << to->number % 64;
	if (cut == !!(*word & bit))
		return;
	*word ^= bit;
	from->sim->cuts += cut ? 1u : -1u;
}

void sim_partition_sets(struct sim *sim, const bool *in_set, bool cut)
{
	for (uint32_t i = 0; i < sim->hosts_n; i++)
		for (uint32_t k = 0; k < sim->hosts_n; k++)
			if (in_set[i] != in_set[k])
				sim_partition(sim->hosts[i], sim->hosts[k], cut);
}

void sim_heal(struct sim *sim)
{
	for (uint32_t i = 0; i < sim->hosts_n; i++)
		memset(sim->hosts[i]->cuts, 0, sizeof sim->hosts[i]->cuts);
	sim->cuts = 0;
}
