/* SPDX-License-Identifier: BSD-3-Clause */
/** Draws the faults of a run from its seed and applies them to links and workers. The thread of the simulation. */
#include "sim/disturb.h"

#include "base/must.h"
#include "core/packet.h"
#include "transport/wire.h"

#include <stdlib.h>

/* Packets of several messages (engine/PROTOCOL.md, "Packets"): a mark, and sub-heads with a type at 0 and a length at
 * 28. */
#define BATCH     8u
#define SUB_BYTES 32u

static uint64_t between(struct sim_random *r, struct range range)
{
	return range.min + (range.max > range.min ? sim_random_below(r, range.max - range.min + 1) : 0);
}

static struct cluster_worker *worker(const struct disturb *d, uint32_t rank)
{
	return cluster_worker(d->cluster, rank);
}

/* ---- packets ---- */

static void disturb_links(struct disturb *d, const struct sim_disturbance *what)
{
	struct sim *sim = cluster_sim(d->cluster);
	for (unsigned i = 0; i < sim_hosts(sim); i++)
		for (unsigned rail = 0; rail < d->scenario->rails; rail++)
			must(sim_link_disturb(sim_uplink(sim_host(sim, i), rail), what) == 0);
}

static void packets_begin(void *ctx)
{
	struct disturb *d = ctx;
	const struct disturbance *what = &d->scenario->disturbance;
	struct sim_disturbance s = {.loss = what->loss,
				    .burst_begin = what->burst,
				    .burst_end = KEYWORDS_CHANCE / what->burst_packets,
				    .burst_ns = what->burst_ns,
				    .duplicate = what->duplicate,
				    .reorder = what->reorder,
				    .reorder_ns = what->reorder_by.max,
				    .corrupt = what->corrupt,
				    .cut = what->cut};
	if (!d->over)
		disturb_links(d, &s);
}

static uint64_t aligned(uint64_t at, uint64_t to)
{
	return (at + to - 1) & ~(to - 1);
}

/* The types of the engine's messages that begin in a packet, as bits. */
static uint32_t types_of(const uint8_t *body, uint32_t len)
{
	struct wire_message h;
	if (len < sizeof h)
		return 0;
	memcpy(&h, body, sizeof h);
	bool whole = h.flags & WIRE_UNORDERED && le32_get(h.length) <= len - sizeof h; /* `offset` is of packets */
	if (h.kind != WIRE_MESSAGE || (le32_get(h.offset) != 0 && !whole))
		return 0;
	uint8_t type = h.call[offsetof(union packet_head, type)];
	uint32_t types = type < 32 ? 1u << type : 0;
	const uint8_t *rest = body + sizeof h;
	uint64_t room = len - sizeof h, at = aligned(le32_get(h.length), SUB_BYTES);
	while (h.flags & BATCH && at + SUB_BYTES <= room) {
		le32 length;
		memcpy(&length, rest + at + 28, sizeof length);
		uint64_t bytes = le32_get(length), begin = at + SUB_BYTES;
		types |= rest[at] < 32 ? 1u << rest[at] : 0;
		at = aligned((bytes > FAR_LINE_PAYLOAD ? aligned(begin, 64) : begin) + bytes, SUB_BYTES);
	}
	return types;
}

/* One in two packets that have a message of a type which is to be lost, as long as there are some to lose. */
bool disturb_lose(void *ctx, const uint8_t *body, uint32_t len)
{
	struct disturb *d = ctx;
	bool late = d->late;
	d->late = false;
	if (late || !d->dropping)
		return late;
	uint32_t types = types_of(body, len);
	for (unsigned k = 0; k < DISTURB_DROPS; k++) {
		if (!(types >> (k + 1) & 1) || !d->drops_left[k] || sim_random_below(&d->random, 2))
			continue;
		d->drops_left[k]--;
		return true;
	}
	return false;
}

/* Packets of the set-up and end of connections, which the next incarnation may get, or the next connection. */
uint64_t disturb_again(void *ctx, const uint8_t *body, uint32_t len)
{
	struct disturb *d = ctx;
	const struct disturbance *what = &d->scenario->disturbance;
	struct wire_head h;
	if (d->over || len < sizeof h || !(what->stale_connects | what->stale_downs))
		return 0;
	memcpy(&h, body, sizeof h);
	bool connect = h.kind == WIRE_CONNECT || h.kind == WIRE_ACCEPT;
	bool down = h.kind == WIRE_CLOSE || h.kind == WIRE_RESET || h.kind == WIRE_REJECT;
	uint32_t chance = connect ? what->stale_connects : down ? what->stale_downs : 0;
	if (!chance || sim_random_below(&d->stale, KEYWORDS_CHANCE) >= chance)
		return 0;
	/* disturb_lose() is called for it next. */
	d->late = sim_random_below(&d->stale, 2);
	*(connect ? &d->history->stale_connects : &d->history->stale_downs) += 1;
	return between(&d->stale, what->stale_by);
}

uint64_t disturb_mail(void *ctx)
{
	struct disturb *d = ctx;
	const struct disturbance *what = &d->scenario->disturbance;
	if (d->over || sim_random_below(&d->stale_ctl, KEYWORDS_CHANCE) >= what->stale_mails)
		return 0;
	d->history->stale_mails++;
	return between(&d->stale_ctl, what->stale_by);
}

/* A worker that is killed: does the store notice later, when the next incarnation may be there. */
static bool lingers(struct disturb *d, uint32_t rank)
{
	const struct disturbance *what = &d->scenario->disturbance;
	if (sim_random_below(&d->stale_ctl, KEYWORDS_CHANCE) >= what->stale_streams)
		return false;
	d->history->stale_streams++;
	cluster_linger(worker(d, rank), between(&d->stale_ctl, what->stale_by));
	return true;
}

void disturb_packets(struct disturb *d)
{
	struct sim *sim = cluster_sim(d->cluster);
	sim_at(sim, sim_now(sim) + d->scenario->disturbance.during.min, packets_begin, d);
}

/* ---- incidents ---- */

static void cut(const struct disturb_incident *i, bool on)
{
	cluster_partition(worker(i->disturb, i->a), worker(i->disturb, i->b), on);
	if (!i->one_way)
		cluster_partition(worker(i->disturb, i->b), worker(i->disturb, i->a), on);
}

static void cable(const struct disturb *d, uint32_t rank, bool up)
{
	struct sim_host *host = sim_host(cluster_sim(d->cluster), rank);
	sim_link_set_up(sim_uplink(host, d->rail), up);
	sim_link_set_up(sim_downlink(host, d->rail), up);
}

static void incident_ends(void *ctx)
{
	struct disturb_incident *i = ctx;
	struct disturb *d = i->disturb;
	d->under_way--;
	if (i->kind == INCIDENT_CUT && !d->over)
		cut(i, false);
	if (i->kind == INCIDENT_CRASH)
		cluster_start(worker(d, i->a));
	if (i->kind == INCIDENT_OUTAGE)
		cable(d, i->a, true);
	history_incident_over(d->history, i->number, sim_now(cluster_sim(d->cluster)));
}

static void incident_begins(void *ctx)
{
	struct disturb_incident *i = ctx;
	struct disturb *d = i->disturb;
	uint64_t now = sim_now(cluster_sim(d->cluster));
	bool of_network = i->kind == INCIDENT_CUT || i->kind == INCIDENT_OUTAGE;
	if (d->over || (!of_network && cluster_state(worker(d, i->a)) != CLUSTER_READY)) {
		d->under_way--;
		return;
	}
	bool lasts = i->kind != INCIDENT_CRASH || i->restart;
	i->number = history_incident(
		d->history, &(struct history_incident){
				    .kind = i->kind, .a = i->a, .b = i->b, .from = now, .until = HISTORY_TIME_NONE});
	if (i->kind == INCIDENT_CUT) {
		cut(i, true);
	} else if (i->kind == INCIDENT_OUTAGE) {
		cable(d, i->a, false);
	} else if (i->kind == INCIDENT_PAUSE) {
		cluster_pause(worker(d, i->a), i->lasts_ns);
	} else {
		load_killed(&d->load->workers[i->a]);
		enum cluster_end how = sim_random_below(&d->random, 2) ? CLUSTER_KILL : CLUSTER_POWER;
		/* Either way nobody is notified at once. */
		bool late = how == CLUSTER_KILL && d->scenario->disturbance.stale_streams && lingers(d, i->a);
		d->history->incidents[i->number].power = how == CLUSTER_POWER || late;
		cluster_crash(worker(d, i->a), how);
		load_dead(&d->load->workers[i->a]);
	}
	if (lasts)
		sim_at(cluster_sim(d->cluster), now + i->lasts_ns, incident_ends, i);
	else
		d->under_way--;
}

/* Workers that die are different ones, and not the first, which has the store. */
static uint32_t draw_victim(struct disturb *d, bool *dead)
{
	uint32_t n = d->scenario->workers, rank;
	do
		rank = 1 + (uint32_t)sim_random_below(&d->random, n - 1);
	while (dead[rank]);
	dead[rank] = true;
	return rank;
}

static void draw(struct disturb *d, struct disturb_incident incident, struct range lasts)
{
	struct sim *sim = cluster_sim(d->cluster);
	if (d->incidents_n == DISTURB_MAX)
		return;
	struct disturb_incident *i = &d->incidents[d->incidents_n++];
	*i = incident;
	i->disturb = d;
	i->lasts_ns = between(&d->random, lasts);
	d->under_way++;
	sim_at(sim, sim_now(sim) + between(&d->random, d->scenario->disturbance.during), incident_begins, i);
}

static void draw_cuts(struct disturb *d, uint32_t n, bool one_way)
{
	uint32_t workers = d->scenario->workers;
	for (uint32_t k = 0; k < n; k++) {
		uint32_t a = (uint32_t)sim_random_below(&d->random, workers);
		uint32_t b = (a + 1 + (uint32_t)sim_random_below(&d->random, workers - 1)) % workers;
		draw(d, (struct disturb_incident){.kind = INCIDENT_CUT, .a = a, .b = b, .one_way = one_way},
		     d->scenario->disturbance.partition_for);
	}
}

void disturb_begin(struct disturb *d)
{
	const struct disturbance *what = &d->scenario->disturbance;
	bool *dead = calloc(d->scenario->workers, sizeof *dead);
	must(dead != NULL);
	draw_cuts(d, what->partitions, false);
	draw_cuts(d, what->one_way, true);
	for (uint32_t k = 0; k < what->crashes; k++)
		draw(d, (struct disturb_incident){.kind = INCIDENT_CRASH, .a = draw_victim(d, dead)}, what->down_for);
	for (uint32_t k = 0; k < what->restarts; k++)
		draw(d, (struct disturb_incident){.kind = INCIDENT_CRASH, .a = draw_victim(d, dead), .restart = true},
		     what->down_for);
	for (uint32_t k = 0; k < what->pauses; k++)
		draw(d,
		     (struct disturb_incident){.kind = INCIDENT_PAUSE,
					       .a = (uint32_t)sim_random_below(&d->random, d->scenario->workers)},
		     what->pause_for);
	/* All of one rail: two workers have the others in common at any time. */
	d->rail = what->outages ? (unsigned)sim_random_below(&d->random, d->scenario->rails) : 0;
	for (uint32_t k = 0; k < what->outages; k++)
		draw(d,
		     (struct disturb_incident){.kind = INCIDENT_OUTAGE,
					       .a = (uint32_t)sim_random_below(&d->random, d->scenario->workers)},
		     what->outage_for);
	free(dead);
}

void disturb_end(struct disturb *d)
{
	d->over = true;
	for (uint32_t i = 0; d->scenario->disturbance.outages && i < d->scenario->workers; i++)
		cable(d, i, true);
	disturb_links(d, &(struct sim_disturbance){0});
	cluster_heal(d->cluster);
	d->dropping = false;
}

void disturb_init(struct disturb *d, const struct scenario *scenario, struct cluster *cluster, struct load *load,
		  struct history *history)
{
	*d = (struct disturb){.scenario = scenario, .cluster = cluster, .load = load, .history = history};
	d->incidents = calloc(DISTURB_MAX, sizeof *d->incidents);
	must(d->incidents != NULL);
	memcpy(d->drops_left, scenario->disturbance.drop, sizeof d->drops_left);
	for (unsigned k = 0; k < DISTURB_DROPS; k++)
		d->dropping |= d->drops_left[k] > 0;
	sim_random_init(&d->random, sim_seed(cluster_sim(cluster)), "disturbances", 0);
	sim_random_init(&d->stale, sim_seed(cluster_sim(cluster)), "stale", 0);
	sim_random_init(&d->stale_ctl, sim_seed(cluster_sim(cluster)), "stale control", 0);
}

void disturb_fini(struct disturb *d)
{
	free(d->incidents);
}
