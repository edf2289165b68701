/* SPDX-License-Identifier: BSD-3-Clause */
/** Scans of a table and of its cuts, a slice a call; the copies that cuts need. The thread that owns the table. */
#include "pst_inner.h"

#include <string.h>

#define STEP_KEYS 64u /* that a step of a scan looks at */
#define PARTS_MIN 64u /* of a cut's range */
#define PARTS_MAX 65536u

/* ---- Cuts ---- */

struct pst_cut *pst_cuts(const struct pst_table *t)
{
	return t->cuts;
}

/* Of a copy: the state is behind the row, the stamp behind the state. */
static uint32_t state_at(const struct pst_table *t)
{
	return (t->row_bytes + 3) / 4 * 4;
}

static uint32_t stamp_at(const struct pst_table *t)
{
	return state_at(t) + t->state_floats * (uint32_t)sizeof(float);
}

/* Parts for a range: one for two keys that it may have now. The range of a scan is of one partition. */
static uint32_t parts_for(const struct pst_table *t, const struct pst_cursor *range)
{
	bool one = pst_partition(range->from) == pst_partition(range->last);
	uint64_t keys = one ? pst_index_keys(&t->index, pst_partition(range->from)) : t->index.keys;
	uint32_t parts = PARTS_MIN;
	while (parts < PARTS_MAX && parts < keys / 2)
		parts *= 2;
	return parts;
}

static void free_cut(const struct pst_table *t, struct pst_cut *cut)
{
	const struct pst_memory *m = t->memory;
	if (cut->part)
		m->put(m->ctx, cut->part, cut->parts_max * sizeof *cut->part, PST_PAGES_HEAP);
	pst_slabs_fini(&cut->changed);
	pst_slabs_fini(&cut->copies);
	pst_values_fini(&cut->values);
	m->put(m->ctx, cut, sizeof *cut, PST_PAGES_HEAP);
}

static struct pst_cut *new_cut(const struct pst_table *t)
{
	const struct pst_memory *m = t->memory;
	struct pst_cut *cut = m->get(m->ctx, sizeof *cut, PST_PAGES_HEAP);
	if (!cut)
		return NULL;
	*cut = (struct pst_cut){0};
	pst_slabs_init(&cut->changed, sizeof(struct pst_changed), m);
	pst_slabs_init(&cut->copies, stamp_at(t) + (uint32_t)sizeof(uint32_t), m);
	pst_values_init(&cut->values, m);
	return cut;
}

struct pst_cut *pst_cut_begin(struct pst_table *t, const struct pst_cursor *range, uint64_t now_ms)
{
	const struct pst_memory *m = t->memory;
	struct pst_cut *cut = t->cut_spare ? t->cut_spare : new_cut(t);
	uint32_t parts = parts_for(t, range);
	t->cut_spare = NULL;
	if (!cut)
		return NULL;
	if (cut->parts_max < parts) {
		if (cut->part)
			m->put(m->ctx, cut->part, cut->parts_max * sizeof *cut->part, PST_PAGES_HEAP);
		cut->parts_max = parts;
		cut->part = m->get(m->ctx, parts * sizeof *cut->part, PST_PAGES_HEAP);
		if (!cut->part) {
			free_cut(t, cut);
			return NULL;
		}
	}
	memset(cut->part, 0xff, parts * sizeof *cut->part); /* PST_NO_ROW */
	unsigned bits = (unsigned)__builtin_ctz(parts),
		 width = 64 - (unsigned)__builtin_clzll((range->last - range->from) | 1);
	cut->shift = width > bits ? width - bits : 0;
	cut->first = cut->from = range->from;
	cut->last = range->last;
	cut->now_ms = now_ms;
	cut->torn = false;
	cut->changed_n = cut->copies_n = 0;
	cut->next = t->cuts;
	t->cuts = cut;
	return cut;
}

/* Notes how much of the cut's memory was touched. */
static void note_most(struct pst_cut *cut)
{
	if (cut->changed_n > cut->changed_most)
		cut->changed_most = cut->changed_n;
	if (cut->copies_n > cut->copies_most)
		cut->copies_most = cut->copies_n;
}

void pst_cut_end(struct pst_table *t, struct pst_cut *cut)
{
	struct pst_cut **at = &t->cuts;
	while (*at != cut)
		at = &(*at)->next;
	*at = cut->next;
	if (t->cut_spare) {
		free_cut(t, cut);
		return;
	}
	note_most(cut);
	pst_values_fini(&cut->values);
	pst_values_init(&cut->values, t->memory);
	t->cut_spare = cut;
}

void pst_cuts_free(struct pst_table *t)
{
	while (t->cuts)
		pst_cut_end(t, t->cuts);
	if (t->cut_spare)
		free_cut(t, t->cut_spare);
	t->cut_spare = NULL;
}

static size_t cut_bytes(const struct pst_cut *cut)
{
	uint32_t changed = cut->changed_n > cut->changed_most ? cut->changed_n : cut->changed_most;
	uint32_t copies = cut->copies_n > cut->copies_most ? cut->copies_n : cut->copies_most;
	return sizeof *cut + cut->parts_max * sizeof *cut->part + pst_slabs_bytes(&cut->changed, changed) +
	       pst_slabs_bytes(&cut->copies, copies) + pst_values_bytes(&cut->values);
}

size_t pst_cuts_bytes(const struct pst_table *t)
{
	size_t bytes = t->cut_spare ? cut_bytes(t->cut_spare) : 0;
	for (const struct pst_cut *cut = t->cuts; cut; cut = cut->next)
		bytes += cut_bytes(cut);
	return bytes;
}

static uint32_t *part_of(const struct pst_cut *cut, uint64_t hash)
{
	return &cut->part[(hash - cut->first) >> cut->shift];
}

static struct pst_changed *changed_at(const struct pst_cut *cut, uint32_t i)
{
	return pst_slabs_at(&cut->changed, i);
}

/* Number of the copy of a row, or PST_NO_ROW: no memory. */
static uint32_t copy_row(const struct pst_table *t, struct pst_cut *cut, uint32_t id)
{
	if (pst_slabs_reserve(&cut->copies, (uint64_t)cut->copies_n + 1))
		return PST_NO_ROW;
	char *to = pst_slabs_at(&cut->copies, cut->copies_n);
	memcpy(to, pst_slabs_at(&t->rows, id), t->row_bytes);
	if (t->state_floats)
		memcpy(to + state_at(t), pst_slabs_at(&t->state, id), t->state_floats * sizeof(float));
	if (t->ttl_ticks)
		memcpy(to + stamp_at(t), pst_written(t, id), sizeof(uint32_t));
	return cut->copies_n++;
}

static uint32_t copy_value(const struct pst_table *t, struct pst_cut *cut, uint32_t id)
{
	const struct pst_value *v = pst_values_at(&t->values, id);
	uint32_t copy = pst_values_get(&cut->values, v->bytes);
	if (copy != PST_VALUES_NONE)
		memcpy(pst_values_at(&cut->values, copy), v, sizeof *v + v->bytes);
	return copy;
}

/* Keeps what the key has, once. */
static void keep(const struct pst_table *t, struct pst_cut *cut, uint64_t hash, uint64_t key, uint32_t id)
{
	uint32_t *part = part_of(cut, hash), copy = PST_NO_ROW;
	for (uint32_t i = *part; i != PST_NO_ROW; i = changed_at(cut, i)->next)
		if (changed_at(cut, i)->key == key)
			return;
	bool there = id != PST_NO_ROW && !pst_expired(t, id, pst_tick(cut->now_ms));
	if (there)
		copy = t->schema.kind == PST_VALUES ? copy_value(t, cut, id) : copy_row(t, cut, id);
	if ((there && copy == PST_NO_ROW) || pst_slabs_reserve(&cut->changed, (uint64_t)cut->changed_n + 1)) {
		cut->torn = true;
		return;
	}
	*changed_at(cut, cut->changed_n) = (struct pst_changed){.key = key, .next = *part, .copy = copy};
	*part = cut->changed_n++;
}

void pst_cuts_keep(struct pst_table *t, uint64_t hash, uint64_t key, uint32_t id)
{
	for (struct pst_cut *cut = t->cuts; cut; cut = cut->next)
		if (hash >= cut->from && hash <= cut->last && !cut->torn)
			keep(t, cut, hash, key, id);
}

/* ---- Slices ---- */

static uint64_t age_of(uint32_t tick, uint32_t stamp)
{
	return (uint64_t)(tick - stamp) * PST_TICK_MS;
}

/* False: the value finds no room behind those before it. */
static bool put_value(const struct pst_value *v, uint32_t i, struct pst_slice *s)
{
	if (i && s->bytes_n + v->bytes > s->bytes_max)
		return false;
	if (s->lens)
		s->lens[i] = v->bytes;
	if (s->bytes)
		memcpy(s->bytes + s->bytes_n, v->data, v->bytes);
	s->bytes_n += v->bytes;
	return true;
}

static void put_row(const struct pst_table *t, const void *row, const void *state, uint32_t i, struct pst_slice *s)
{
	if (s->rows)
		memcpy((char *)s->rows + (size_t)i * t->row_bytes, row, t->row_bytes);
	if (s->state && t->state_floats)
		memcpy(s->state + (size_t)i * t->state_floats, state, t->state_floats * sizeof *s->state);
}

/* Puts what the key has, or (`copy`) had, as number i. False: there is no room. */
static bool put_entry(const struct pst_table *t, const struct pst_cut *cut, const struct pst_entry *e, bool copy,
		      uint32_t i, uint32_t tick, struct pst_slice *s)
{
	uint32_t stamp = tick;
	if (t->schema.kind == PST_VALUES) {
		const struct pst_value *v = pst_values_at(copy ? &cut->values : &t->values, e->row);
		if (!put_value(v, i, s))
			return false;
		stamp = v->written;
	} else if (copy) {
		const char *row = pst_slabs_at(&cut->copies, e->row);
		put_row(t, row, row + state_at(t), i, s);
		memcpy(&stamp, row + stamp_at(t), sizeof stamp);
	} else {
		put_row(t, pst_slabs_at(&t->rows, e->row), t->state_floats ? pst_slabs_at(&t->state, e->row) : NULL, i,
			s);
		if (t->ttl_ticks)
			stamp = *pst_written(t, e->row);
	}
	s->keys[i] = e->key;
	if (s->ages_ms)
		s->ages_ms[i] = t->ttl_ticks ? age_of(tick, stamp) : 0;
	return true;
}

/* Entries of a step, in the order of their hashes, and the last hash that they cover. */
struct step {
	struct pst_entry entry[STEP_KEYS];
	uint32_t n, i;
	uint64_t end;
};

/* Rows, state and stamps of a step come from memory at the same time. */
static void prefetch_rows(const struct pst_table *t, const struct step *s)
{
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t id = s->entry[i].row;
		if (t->schema.kind == PST_VALUES) {
			pst_prefetch(pst_values_at(&t->values, id), PST_PREFETCH_BYTES);
			continue;
		}
		pst_prefetch(pst_slabs_at(&t->rows, id), t->row_bytes);
		if (t->state_floats)
			pst_prefetch(pst_slabs_at(&t->state, id), t->state_floats * sizeof(float));
		if (t->ttl_ticks)
			__builtin_prefetch(pst_written(t, id));
	}
}

static void look(struct pst_table *t, uint64_t from, uint64_t last, uint32_t want, struct step *s)
{
	bool done;
	s->i = 0;
	s->n = pst_index_scan(&t->index, &from, last, s->entry, want, &done);
	s->end = done ? last : from - 1;
	prefetch_rows(t, s);
}

/* Adds a changed key to those of its part, which begin at `first`: in the order of hashes, at most `want` in all. */
static void add(struct step *s, uint32_t first, uint32_t want, const struct pst_changed *c, uint64_t hash)
{
	uint32_t at = s->n;
	while (at > first && pst_hash(s->entry[at - 1].key) > hash)
		at--;
	if (at == want)
		return;
	if (s->n == want)
		s->n--;
	memmove(&s->entry[at + 1], &s->entry[at], (s->n - at) * sizeof *s->entry);
	s->entry[at] = (struct pst_entry){c->key, c->copy};
	s->n++;
}

/* The same of the keys that have changed. */
static void look_changed(const struct pst_cut *cut, uint64_t from, uint64_t last, uint32_t want, struct step *s)
{
	s->i = s->n = 0;
	const uint32_t *end = part_of(cut, last);
	for (const uint32_t *part = part_of(cut, from); part <= end && s->n < want; part++) {
		uint32_t first = s->n;
		for (uint32_t i = *part; i != PST_NO_ROW; i = changed_at(cut, i)->next) {
			const struct pst_changed *c = changed_at(cut, i);
			uint64_t hash = pst_hash(c->key);
			if (hash >= from && hash <= last)
				add(s, first, want, c, hash);
		}
	}
	s->end = s->n == want ? pst_hash(s->entry[want - 1].key) : last;
}

static uint64_t hash_at(const struct step *s)
{
	return pst_hash(s->entry[s->i].key);
}

/* The next entry up to the hash `end`: what the table has, or what it had if it has changed since. NULL: none. */
static const struct pst_entry *next_entry(struct step *now, struct step *before, uint64_t end, bool *copy)
{
	bool live = now->i < now->n && hash_at(now) <= end, kept = before->i < before->n && hash_at(before) <= end;
	*copy = kept && (!live || hash_at(before) <= hash_at(now));
	if (!live && !kept)
		return NULL;
	if (!*copy)
		return &now->entry[now->i++];
	if (live && hash_at(now) == hash_at(before))
		now->i++;
	return &before->entry[before->i++];
}

static uint32_t scan_dense(struct pst_table *t, struct pst_cursor *c, uint32_t n, struct pst_slice *s)
{
	uint32_t out = 0;
	for (; out < n && c->from <= c->last && c->from < t->dense_rows; out++) {
		uint32_t id = (uint32_t)c->from++;
		(void)put_entry(t, NULL, &(struct pst_entry){id, id}, false, out, 0, s);
	}
	c->done = c->from > c->last || c->from >= t->dense_rows;
	return out;
}

uint32_t pst_slice(struct pst_table *t, struct pst_cut *cut, struct pst_cursor *c, uint64_t now_ms, uint32_t n,
		   struct pst_slice *s)
{
	uint32_t tick = pst_tick(cut ? cut->now_ms : now_ms), out = 0;
	struct step now, before;
	s->bytes_n = 0;
	if (t->schema.kind == PST_DENSE)
		return scan_dense(t, c, n, s);
	if (cut)
		cut->from = c->from;
	for (uint32_t looked = 0; looked < n && out < n && !c->done; looked += STEP_KEYS) {
		uint32_t want = n - out < STEP_KEYS ? n - out : STEP_KEYS;
		look(t, c->from, c->last, want, &now);
		before = (struct step){.end = now.end};
		if (cut)
			look_changed(cut, c->from, now.end, want, &before);
		uint64_t end = before.end;
		bool copy;
		for (const struct pst_entry *e; (e = next_entry(&now, &before, end, &copy));) {
			if (copy ? e->row == PST_NO_ROW : pst_expired(t, e->row, tick))
				continue;
			if (out == n || !put_entry(t, cut, e, copy, out, tick, s)) {
				c->from = pst_hash(e->key);
				return out;
			}
			out++;
		}
		c->done = end >= c->last;
		c->from = end + 1;
	}
	return out;
}

uint32_t pst_scan(struct pst_table *t, struct pst_cursor *c, uint64_t now_ms, uint32_t n, uint64_t *keys, void *rows,
		  float *state, uint64_t *ages_ms)
{
	return pst_slice(t, NULL, c, now_ms, n,
			 &(struct pst_slice){.keys = keys, .rows = rows, .state = state, .ages_ms = ages_ms});
}

void pst_scan_all(const struct pst_table *t, struct pst_cursor *cursor)
{
	*cursor = (struct pst_cursor){.last = t->schema.kind == PST_DENSE ? t->dense_rows - 1 : UINT64_MAX};
}
