/* SPDX-License-Identifier: BSD-3-Clause */
/** Events: a binary heap by time, then by order of insertion. A handle is a slot and its generation. The thread that
 * runs the world. */
#include "nic/sim/sim_world.h"

#include <stdlib.h>

static bool before(const struct sim_heap_entry *a, const struct sim_heap_entry *b)
{
	return a->when < b->when || (a->when == b->when && a->order < b->order);
}

static void put(struct sim_events *e, uint32_t at, struct sim_heap_entry entry)
{
	e->heap[at] = entry;
	e->slots[entry.slot].heap_at = at;
}

static void sift_up(struct sim_events *e, uint32_t at, struct sim_heap_entry entry)
{
	while (at && before(&entry, &e->heap[(at - 1) / 2])) {
		put(e, at, e->heap[(at - 1) / 2]);
		at = (at - 1) / 2;
	}
	put(e, at, entry);
}

static void sift_down(struct sim_events *e, uint32_t at, struct sim_heap_entry entry)
{
	for (uint32_t child; (child = 2 * at + 1) < e->heap_n; at = child) {
		if (child + 1 < e->heap_n && before(&e->heap[child + 1], &e->heap[child]))
			child++;
		if (!before(&e->heap[child], &entry))
			break;
		put(e, at, e->heap[child]);
	}
	put(e, at, entry);
}

static void heap_insert(struct sim_events *e, uint64_t when, uint32_t slot)
{
	sift_up(e, e->heap_n++, (struct sim_heap_entry){when, e->order++, slot});
}

static void heap_remove(struct sim_events *e, uint32_t at)
{
	e->slots[e->heap[at].slot].heap_at = SIM_NONE;
	struct sim_heap_entry last = e->heap[--e->heap_n];
	if (at == e->heap_n)
		return;
	if (at && before(&last, &e->heap[(at - 1) / 2]))
		sift_up(e, at, last);
	else
		sift_down(e, at, last);
}

static void grow(struct sim_events *e)
{
	uint32_t cap = e->slots_cap ? 2 * e->slots_cap : 256;
	e->slots_cap = cap < e->limit ? cap : e->limit;
	e->slots = realloc(e->slots, e->slots_cap * sizeof *e->slots);
	e->heap = realloc(e->heap, e->slots_cap * sizeof *e->heap);
	must(e->slots && e->heap);
}

/* Takes a slot. SIM_NONE: too many events. */
static uint32_t slot_new(struct sim_events *e)
{
	uint32_t i = e->free_slot;
	if (i != SIM_NONE) {
		e->free_slot = e->slots[i].next;
		return i;
	}
	if (e->slots_n == e->limit)
		return SIM_NONE;
	if (e->slots_n == e->slots_cap)
		grow(e);
	e->slots[e->slots_n].generation = 1;
	return e->slots_n++;
}

static void slot_free(struct sim_events *e, uint32_t i)
{
	e->slots[i].generation++;
	e->slots[i].host = NULL;
	e->slots[i].next = e->free_slot;
	e->free_slot = i;
	e->pending--;
}

sim_event sim_schedule(struct sim *sim, struct sim_host *host, uint64_t when, sim_event_fn *fn, void *ctx)
{
	struct sim_events *e = &sim->events;
	uint32_t i = sim->failure[0] ? SIM_NONE : slot_new(e);
	if (i == SIM_NONE) {
		sim_fail(sim, "more than %u events are pending (events_max)", e->limit);
		return 0;
	}
	struct sim_slot *s = &e->slots[i];
	s->fn = fn;
	s->ctx = ctx;
	s->host = host;
	s->parked = false;
	heap_insert(e, when > sim->now ? when : sim->now, i);
	if (++e->pending > e->pending_max)
		e->pending_max = e->pending;
	return (uint64_t)s->generation << 32 | (i + 1);
}

sim_event sim_at(struct sim *sim, uint64_t when, sim_event_fn *fn, void *ctx)
{
	return sim_schedule(sim, NULL, when, fn, ctx);
}

/* ---- events of a paused host ---- */

static void park(struct sim_events *e, struct sim_host *host, uint32_t i)
{
	struct sim_slot *s = &e->slots[i];
	s->parked = true;
	s->next = SIM_NONE;
	s->prev = host->parked_last;
	if (host->parked_last == SIM_NONE)
		host->parked_first = i;
	else
		e->slots[host->parked_last].next = i;
	host->parked_last = i;
}

static void unpark(struct sim_events *e, uint32_t i)
{
	struct sim_slot *s = &e->slots[i];
	struct sim_host *host = s->host;
	if (s->prev == SIM_NONE)
		host->parked_first = s->next;
	else
		e->slots[s->prev].next = s->next;
	if (s->next == SIM_NONE)
		host->parked_last = s->prev;
	else
		e->slots[s->next].prev = s->prev;
	s->parked = false;
}

void sim_events_unpark(struct sim_host *host)
{
	struct sim_events *e = &host->sim->events;
	while (host->parked_first != SIM_NONE) {
		uint32_t i = host->parked_first;
		unpark(e, i);
		heap_insert(e, host->sim->now, i);
	}
}

static void forget(struct sim_events *e, uint32_t i)
{
	if (e->slots[i].parked)
		unpark(e, i);
	else
		heap_remove(e, e->slots[i].heap_at);
	slot_free(e, i);
}

void sim_events_forget(struct sim_host *host)
{
	struct sim_events *e = &host->sim->events;
	for (uint32_t i = 0; i < e->slots_n; i++)
		if (e->slots[i].host == host)
			forget(e, i);
}

bool sim_cancel(struct sim *sim, sim_event event)
{
	struct sim_events *e = &sim->events;
	uint32_t i = (uint32_t)event - 1;
	if (!event || i >= e->slots_n || e->slots[i].generation != event >> 32)
		return false;
	forget(e, i);
	return true;
}

/* ---- running ---- */

uint64_t sim_next(const struct sim *sim)
{
	return sim->events.heap_n ? sim->events.heap[0].when : TIME_NEVER;
}

/* Removes the first event from the heap. false: its host is paused, and the event is kept for the resume. */
static bool run_first(struct sim *sim)
{
	struct sim_events *e = &sim->events;
	uint32_t i = e->heap[0].slot;
	struct sim_slot s = e->slots[i];
	sim->now = e->heap[0].when;
	heap_remove(e, 0);
	if (s.host && s.host->state == SIM_PAUSED) {
		park(e, s.host, i);
		return false;
	}
	slot_free(e, i);
	e->done++;
	s.fn(s.ctx);
	return true;
}

bool sim_step(struct sim *sim)
{
	while (sim->events.heap_n && !sim->failure[0])
		if (run_first(sim))
			return !sim->failure[0];
	return false;
}

bool sim_run_until(struct sim *sim, uint64_t when)
{
	while (sim->events.heap_n && sim->events.heap[0].when <= when && !sim->failure[0])
		run_first(sim);
	if (sim->failure[0])
		return false;
	if (when > sim->now)
		sim->now = when;
	return true;
}

void sim_events_free(struct sim_events *e)
{
	free(e->heap);
	free(e->slots);
}
