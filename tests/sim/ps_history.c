/* SPDX-License-Identifier: BSD-3-Clause */
/** Records what clients of a simulated parameter server did, and checks it: sums, linearizable counters and values,
 * ages. One thread, like the simulation. */
#include "ps_history.h"

#include "apps/libps/pst_hash.h"
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

#define MS       UINT64_C(1000000)
#define TTL_NS   (PS_TTL_MS * MS)
#define TTL_LATE (192 * MS) /* rounded up to ticks of 64 ms, one tick more, and one for the time of day */

uint64_t ps_key(unsigned number)
{
	return (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

unsigned ps_server_of(const struct ps_history *h, unsigned number)
{
	unsigned slots = PS_SERVERS * h->shards;
	return pst_partition(pst_hash(ps_key(number))) * slots / PST_PARTITIONS / h->shards;
}

void ps_history_free(struct ps_history *h)
{
	free(h->event);
	h->event = NULL;
}

size_t ps_note(struct ps_history *h, const struct ps_event *event)
{
	if (h->n == h->room) {
		h->room = h->room ? 2 * h->room : 1024;
		h->event = realloc(h->event, h->room * sizeof *h->event);
		must(h->event != NULL);
	}
	h->event[h->n] = *event;
	return h->n++;
}

static bool in_incarnation(const struct ps_event *e, const struct ps_incarnation *l)
{
	return e->begin >= l->from && e->end <= l->to && e->end != PS_NEVER;
}

static bool touches_incarnation(const struct ps_event *e, const struct ps_incarnation *l)
{
	return e->end >= l->from && e->begin <= l->to;
}

void ps_sum_range(const struct ps_history *h, unsigned key, unsigned client, uint64_t *least, uint64_t *most)
{
	unsigned server = ps_server_of(h, key);
	const struct ps_incarnation *last = &h->incarnation[server][h->incarnations[server] - 1];
	*least = *most = 0;
	for (size_t i = 0; i < h->n; i++) {
		const struct ps_event *e = &h->event[i];
		if (e->kind != PS_ADD || e->key != key || e->client != client)
			continue;
		*least += in_incarnation(e, last) ? e->value : 0;
		*most += touches_incarnation(e, last) ? e->value : 0;
	}
}

/* ---- Counters ---- */

static bool counts(const struct ps_event *e)
{
	return e->kind == PS_COUNT || e->kind == PS_TRIED;
}

static bool fail(struct ps_history *h, const struct ps_event *e, const char *what, uint64_t other)
{
	snprintf(h->failure, sizeof h->failure, "%s: key %u, value %llu at %llu to %llu ns; %llu", what, e->key,
		 (unsigned long long)e->value, (unsigned long long)e->begin, (unsigned long long)e->end,
		 (unsigned long long)other);
	return false;
}

/* Counts that ended before, and those that began before it ended. */
static bool check_bounds(struct ps_history *h, const struct ps_event *e, const struct ps_incarnation *l)
{
	uint64_t least = e->kind == PS_COUNT, most = 0;
	for (size_t i = 0; i < h->n; i++) {
		const struct ps_event *o = &h->event[i];
		if (!counts(o) || o->key != e->key)
			continue;
		least += o != e && in_incarnation(o, l) && o->end < e->begin;
		most += touches_incarnation(o, l) && o->begin <= e->end;
	}
	if (e->value < least)
		return fail(h, e, "a counter lacks counts that had ended", least);
	if (e->value > most)
		return fail(h, e, "a counter has more counts than were begun", most);
	return true;
}

/* A later operation has a count that is not less; two counts differ. */
static bool check_order(struct ps_history *h, const struct ps_event *e, const struct ps_incarnation *l)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct ps_event *o = &h->event[i];
		if (o == e || (o->kind != PS_COUNT && o->kind != PS_READ) || o->key != e->key || !in_incarnation(o, l))
			continue;
		if (e->kind == PS_COUNT && o->kind == PS_COUNT && o->value == e->value)
			return fail(h, e, "two counts are equal", o->begin);
		if (o->end < e->begin && (o->value > e->value || (o->value == e->value && e->kind == PS_COUNT)))
			return fail(h, e, "a counter went back", o->value);
	}
	return true;
}

static bool check_counter(struct ps_history *h, const struct ps_event *e)
{
	unsigned server = ps_server_of(h, e->key);
	for (unsigned i = 0; i < h->incarnations[server]; i++) {
		const struct ps_incarnation *l = &h->incarnation[server][i];
		if (in_incarnation(e, l) && (!check_bounds(h, e, l) || !check_order(h, e, l)))
			return false;
	}
	return true;
}

/* ---- Ages ---- */

/* True: a write had ended before, and its row cannot have expired. */
static bool must_be_there(const struct ps_history *h, const struct ps_event *e)
{
	unsigned server = ps_server_of(h, e->key);
	for (unsigned i = 0; i < h->incarnations[server]; i++)
		for (size_t w = 0; w < h->n && in_incarnation(e, &h->incarnation[server][i]); w++) {
			const struct ps_event *o = &h->event[w];
			if (o->kind == PS_WRITE && o->key == e->key && in_incarnation(o, &h->incarnation[server][i]) &&
			    o->end < e->begin && e->end < o->begin + TTL_NS)
				return true;
		}
	return false;
}

/* True: each write that may have been applied has expired. */
static bool must_be_gone(const struct ps_history *h, const struct ps_event *e)
{
	for (size_t w = 0; w < h->n; w++) {
		const struct ps_event *o = &h->event[w];
		if (o->kind == PS_WRITE && o->key == e->key && o->begin <= e->end &&
		    (o->end == PS_NEVER || o->end + TTL_NS + TTL_LATE >= e->begin))
			return false;
	}
	return true;
}

/* ---- Values ---- */

/* True: assignment `w` had ended when `o`, or a pull that found what `o` assigned, began. */
static bool is_replaced(const struct ps_history *h, const struct ps_event *w, const struct ps_event *o)
{
	const struct ps_event *by = o->kind == PS_GOT && o->value != PS_NEVER ? &h->event[o->value] : o;
	return by->kind == PS_PUT && w->end < by->begin;
}

/* A pull finds the last value that was assigned before it began, or a later one. */
static bool check_value(struct ps_history *h, const struct ps_event *e, const struct ps_incarnation *l)
{
	const struct ps_event *w = e->value == PS_NEVER ? NULL : &h->event[e->value];
	if (w && (w->kind != PS_PUT || w->key != e->key || w->begin > e->end || !touches_incarnation(w, l)))
		return fail(h, e, "a value was not assigned to its key", w->begin);
	for (size_t i = 0; i < h->n; i++) {
		const struct ps_event *o = &h->event[i];
		if ((o->kind != PS_PUT && o->kind != PS_GOT) || o->key != e->key || !in_incarnation(o, l) ||
		    o->end >= e->begin || (o->kind == PS_GOT && o->value == PS_NEVER))
			continue;
		if (!w)
			return fail(h, e, "a value that was assigned is missing", i);
		if (is_replaced(h, w, o))
			return fail(h, e, "a value had been replaced", i);
	}
	return true;
}

static bool check_got(struct ps_history *h, const struct ps_event *e)
{
	unsigned server = ps_server_of(h, e->key);
	for (unsigned i = 0; i < h->incarnations[server]; i++) {
		const struct ps_incarnation *l = &h->incarnation[server][i];
		if (in_incarnation(e, l) && !check_value(h, e, l))
			return false;
	}
	return true;
}

bool ps_history_check(struct ps_history *h)
{
	for (size_t i = 0; i < h->n; i++) {
		const struct ps_event *e = &h->event[i];
		if ((e->kind == PS_COUNT || e->kind == PS_READ) && !check_counter(h, e))
			return false;
		if (e->kind == PS_GOT && !check_got(h, e))
			return false;
		if (e->kind == PS_GONE && must_be_there(h, e))
			return fail(h, e, "a row expired before its time", PS_TTL_MS);
		if (e->kind == PS_SEEN && must_be_gone(h, e))
			return fail(h, e, "a row did not expire", PS_TTL_MS);
	}
	return true;
}
