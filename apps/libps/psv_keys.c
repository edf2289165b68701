/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds distinct keys and divides them. The thread that has the operation. */
#include "psv_keys.h"

#include "psv_arena.h"
#include <stdlib.h>
#include <string.h>

#define PART_KEYS  8192u      /* positions of a part, about */
#define PART_SLOTS (1u << 15) /* of the table of its distinct keys, which grows if they are more than half as many */
#define STEP_KEYS  (1u << 14) /* positions that psv_keys_go_on() looks at */

static bool has_parts(size_t n)
{
	return n > PSV_KEYS_TABLE;
}

/* A power of two. */
static uint32_t parts_for(size_t n)
{
	uint32_t parts = 1;
	while (parts * (size_t)PART_KEYS < n)
		parts *= 2;
	return parts;
}

/* Entries of the table of distinct keys. Few of those for parts are used, unless one part has most keys. */
static uint32_t slots_for(size_t n)
{
	uint32_t size = 16;
	while (size < (has_parts(n) ? 2 : 8) * n)
		size *= 2;
	return size;
}

/* Small enough that the table of some thousand keys fits in the first-level cache. */
static size_t slot_bytes(size_t n)
{
	return has_parts(n) ? sizeof(uint32_t) : sizeof(uint16_t);
}

/* Finds the number of each key in an open-addressing table. Sparse, and without a branch on whether a key is new, which
 * is mispredicted: then the key is compared with itself. */
static void number(struct psv_keys *k, uint32_t to)
{
	const uint64_t *keys = k->keys;
	const uint32_t mask = k->slots_mask;
	uint32_t distinct = k->distinct;
	uint16_t *slots = k->slots; /* of a number + 1 */
	uint64_t *key_of = k->key, *restrict hash_of = k->hash;
	uint32_t *restrict first_of = k->first, *restrict again = k->again, *restrict at = k->at;
	for (uint32_t i = k->numbered; i < to; i++) {
		uint64_t key = keys[i], hash = pst_hash(key);
		uint32_t s = (uint32_t)hash & mask, known = slots[s] - 1u;
		known = known < distinct ? known : distinct;
		key_of[distinct] = key;
		while (__builtin_expect(key_of[known] != key, 0)) {
			s = (s + 1) & mask;
			known = slots[s] - 1u;
			known = known < distinct ? known : distinct;
		}
		slots[s] = (uint16_t)(known + 1);
		hash_of[distinct] = hash;
		first_of[distinct] = i;
		again[i - distinct] = i;
		at[i] = known;
		distinct += known == distinct;
	}
	k->distinct = distinct;
}

/* Each position is a key of its own. */
static void number_all(struct psv_keys *k, uint32_t to)
{
	for (uint32_t i = k->numbered; i < to; i++) {
		k->key[i] = k->keys ? k->keys[i] : k->from + i;
		k->hash[i] = pst_hash(k->key[i]);
		k->at[i] = k->first[i] = i;
	}
	k->distinct = to;
}

void psv_keys_number(struct psv_keys *k, uint32_t to)
{
	(k->slots ? number : number_all)(k, to);
	k->numbered = to;
}

/* ---- Many keys, by parts ---- */

static void count_parts(struct psv_keys *k, uint32_t to)
{
	const uint32_t shift = k->parts.shift;
	uint32_t *end = k->parts.end;
	for (uint32_t i = k->parts.at; i < to; i++)
		end[pst_hash(k->keys[i]) >> shift]++;
}

/* From the numbers of entries to where those of each part begin. */
static void place_parts(struct psv_parts *p, uint32_t parts)
{
	for (uint32_t i = 0, at = 0; i < parts; i++) {
		uint32_t n = p->end[i];
		p->end[i] = at;
		at += n;
	}
}

/* Within a part the order of positions stays. */
static void group_parts(struct psv_keys *k, uint32_t to)
{
	const uint32_t shift = k->parts.shift;
	uint32_t *end = k->parts.end, *restrict at = k->at, *restrict position = k->order;
	uint64_t *restrict grouped = k->hash;
	for (uint32_t i = k->parts.at; i < to; i++) {
		uint64_t key = k->keys[i];
		uint32_t entry = end[pst_hash(key) >> shift]++;
		grouped[entry] = key;
		position[entry] = i;
		at[i] = i;
	}
}

/* The slot of a key in the table of a part: of an equal one, or a free one. Slots have the number of an entry + 1. */
static inline uint32_t *part_slot(const struct psv_keys *k, uint64_t key)
{
	uint32_t *slots = k->slots, s = (uint32_t)pst_hash(key) & k->slots_mask;
	while (slots[s] && k->hash[slots[s] - 1] != key)
		s = (s + 1) & k->slots_mask;
	return &slots[s];
}

/* An empty table of so many slots. */
static void clear_table(struct psv_keys *k, uint32_t slots)
{
	k->slots_mask = slots - 1;
	memset(k->slots, 0, slots * sizeof(uint32_t));
}

/* A table twice as large has room for all keys that one of half the positions has not. */
static void grow_table(struct psv_keys *k, uint32_t to)
{
	clear_table(k, 2 * (k->slots_mask + 1));
	for (uint32_t e = k->parts.from; e < to; e++)
		if (k->at[k->order[e]] == k->order[e])
			*part_slot(k, k->hash[e]) = e + 1;
}

/* Entries up to `to` of the part: `at` of a position becomes the first one of its key. */
static void find_equal(struct psv_keys *k, uint32_t to)
{
	struct psv_parts *p = &k->parts;
	for (uint32_t e = p->at; e < to; e++) {
		uint32_t *slot = part_slot(k, k->hash[e]);
		if (*slot) {
			k->at[k->order[e]] = k->order[*slot - 1];
			continue;
		}
		*slot = e + 1;
		if (2 * ++p->found > k->slots_mask + 1)
			grow_table(k, e + 1);
	}
}

/* Some entries of a part, from the one that comes next on. */
static void find_some(struct psv_keys *k)
{
	struct psv_parts *p = &k->parts;
	while (p->at == p->end[p->part])
		p->part++;
	if (p->part == 0 ? p->at == 0 : p->at == p->end[p->part - 1]) {
		clear_table(k, PART_SLOTS);
		p->from = p->at;
		p->found = 0;
	}
	uint32_t left = p->end[p->part] - p->at, to = p->at + (left < STEP_KEYS ? left : STEP_KEYS);
	find_equal(k, to);
	p->at = to;
}

/* Numbers in the order of first positions. */
static void number_found(struct psv_keys *k, uint32_t to)
{
	uint32_t *at = k->at, distinct = k->distinct;
	for (uint32_t i = k->numbered; i < to; i++) {
		if (at[i] < i) {
			k->again[i - distinct] = i;
			at[i] = at[at[i]];
			continue;
		}
		k->key[distinct] = k->keys[i];
		k->hash[distinct] = pst_hash(k->keys[i]);
		k->first[distinct] = i;
		at[i] = distinct++;
	}
	k->distinct = distinct;
	k->numbered = to;
}

bool psv_keys_go_on(struct psv_keys *k)
{
	struct psv_parts *p = &k->parts;
	if (!k->slots || !has_parts(k->n)) {
		psv_keys_number(k, k->n);
		return false;
	}
	uint32_t left = k->n - p->at, to = p->at + (left < STEP_KEYS ? left : STEP_KEYS);
	if (p->phase == PSV_PARTS_FIND) {
		find_some(k);
		to = p->at;
	} else {
		(p->phase == PSV_PARTS_COUNT   ? count_parts
		 : p->phase == PSV_PARTS_GROUP ? group_parts
					       : number_found)(k, to);
	}
	p->at = to;
	if (to < k->n)
		return true;
	if (p->phase == PSV_PARTS_NUMBER)
		return false;
	if (p->phase == PSV_PARTS_COUNT)
		place_parts(p, parts_for(k->n));
	p->at = 0;
	p->phase++;
	return true;
}

size_t psv_keys_bytes(size_t n, bool merge)
{
	return n * (4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)) +
	       (merge ? slots_for(n) * slot_bytes(n) + (has_parts(n) ? parts_for(n) * sizeof(uint32_t) : 0) : 0) +
	       8 * 64;
}

void psv_keys_init(struct psv_keys *k, void *memory, const uint64_t *keys, uint64_t first, size_t n, bool merge)
{
	char *at = memory;
	*k = (struct psv_keys){.keys = keys, .from = first, .n = (uint32_t)n};
	k->at = psv_arena_part(&at, n * sizeof *k->at);
	k->first = psv_arena_part(&at, n * sizeof *k->first);
	k->again = psv_arena_part(&at, n * sizeof *k->again);
	k->key = psv_arena_part(&at, n * sizeof *k->key);
	k->hash = psv_arena_part(&at, n * sizeof *k->hash);
	k->order = psv_arena_part(&at, n * sizeof *k->order);
	if (!merge || !keys)
		return;
	k->slots = psv_arena_part(&at, slots_for(n) * slot_bytes(n));
	k->slots_mask = slots_for(n) - 1;
	if (!has_parts(n)) {
		memset(k->slots, 0, slots_for(n) * slot_bytes(n));
		return;
	}
	k->parts.end = (uint32_t *)(void *)at;
	k->parts.shift = 64 - (uint32_t)__builtin_ctz(parts_for(n));
	memset(k->parts.end, 0, parts_for(n) * sizeof *k->parts.end);
}

bool psv_division_room(struct psv_division *d, uint32_t chunks)
{
	*d = (struct psv_division){.chunk = malloc((chunks + 1) * sizeof *d->chunk), .short_first = d->short_first};
	return d->chunk;
}

/* Where the keys of each slot begin and end in the order. */
struct ranges {
	uint32_t start[FAR_PS_SHARDS_MAX + 1], end[FAR_PS_SHARDS_MAX];
};

/* The slots in turn, so that all of them work from the start. */
static bool add_chunks(const struct ranges *r, uint32_t slots, uint32_t most, struct psv_division *d)
{
	uint32_t chunks = 0, deepest = 0;
	for (uint32_t s = 0; s < slots; s++) {
		uint32_t of_slot = (r->end[s] - r->start[s] + most - 1) / most;
		chunks += of_slot;
		deepest = of_slot > deepest ? of_slot : deepest;
	}
	if (!d->chunk && !psv_division_room(d, chunks))
		return false;
	for (uint32_t c = 0; c < deepest; c++)
		for (uint32_t s = 0; s < slots; s++) {
			uint64_t all = r->end[s] - r->start[s], rest = all % most, end = (c + UINT64_C(1)) * most;
			if (d->short_first && rest)
				end -= most - rest;
			uint64_t from = end > most ? end - most : 0;
			end = end < all ? end : all;
			if (from < end)
				d->chunk[d->n++] = (struct psv_chunk){s, r->start[s] + (uint32_t)from,
								      (uint32_t)(end - from), d->deepest + c};
		}
	d->deepest += deepest;
	return true;
}

bool psv_keys_divide(struct psv_keys *k, const bool *open, const struct psv_view *view, uint32_t most,
		     struct psv_division *d)
{
	const uint32_t begin = open ? 0 : k->divided, end = k->distinct, slots = view->slots;
	const bool in_order = !open && slots == 1;
	struct ranges r;
	memset(r.start, 0, (slots + 1) * sizeof *r.start);
	k->divided = end;
	if (k->in_order != in_order) /* while answers to earlier chunks are taken over, it is not written */
		k->in_order = in_order;
	for (uint32_t i = begin; !in_order && i < end; i++)
		if (!open || open[i])
			r.start[psv_slot_of(view, k->hash[i]) + 1]++;
	r.start[0] = begin;
	for (uint32_t s = 0; s < slots; s++) {
		r.end[s] = r.start[s];
		r.start[s + 1] += r.start[s];
	}
	for (uint32_t i = begin; !in_order && i < end; i++)
		if (!open || open[i])
			k->order[r.end[psv_slot_of(view, k->hash[i])]++] = i;
	for (uint32_t i = begin; in_order && i < end; i++)
		k->order[r.end[0]++] = i;
	return add_chunks(&r, slots, most, d);
}
