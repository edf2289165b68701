/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds distinct keys and divides them. The thread that has the operation. */
#include "psv_keys.h"

#include "psv_arena.h"
#include <stdlib.h>
#include <string.h>

/* Entries of the table of distinct keys. */
static uint32_t slots_for(size_t n)
{
	uint32_t size = 16;
	while (size < 8 * n)
		size *= 2;
	return size;
}

/* Small enough that the table of some thousand keys fits in the first-level cache. */
static size_t slot_bytes(size_t n)
{
	return n <= UINT16_MAX ? sizeof(uint16_t) : sizeof(uint32_t);
}

/* The number of the key in a slot, which has it + 1; none: `none`. */
static inline uint32_t number_in(const void *slots, size_t bytes, uint32_t s, uint32_t none)
{
	uint32_t known = (bytes == sizeof(uint16_t) ? ((const uint16_t *)slots)[s] : ((const uint32_t *)slots)[s]) - 1;
	return known < none ? known : none;
}

/* Finds the number of each key in an open-addressing table. Sparse, and without a branch on whether a key is new, which
 * is mispredicted: then the key is compared with itself. `bytes`: of a slot. */
static inline __attribute__((always_inline)) void number(struct psv_keys *k, uint32_t to, size_t bytes)
{
	const uint64_t *keys = k->keys;
	const uint32_t mask = k->slots_mask;
	uint32_t distinct = k->distinct;
	void *slots = k->slots;
	uint64_t *key_of = k->key, *restrict hash_of = k->hash;
	uint32_t *restrict first_of = k->first, *restrict again = k->again, *restrict at = k->at;
	for (uint32_t i = k->numbered; i < to; i++) {
		uint64_t key = keys[i], hash = pst_hash(key);
		uint32_t s = (uint32_t)hash & mask, known = number_in(slots, bytes, s, distinct);
		key_of[distinct] = key;
		while (__builtin_expect(key_of[known] != key, 0)) {
			s = (s + 1) & mask;
			known = number_in(slots, bytes, s, distinct);
		}
		if (bytes == sizeof(uint16_t))
			((uint16_t *)slots)[s] = (uint16_t)(known + 1);
		else
			((uint32_t *)slots)[s] = known + 1;
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
	if (!k->slots)
		number_all(k, to);
	else if (slot_bytes(k->n) == sizeof(uint16_t))
		number(k, to, sizeof(uint16_t));
	else
		number(k, to, sizeof(uint32_t));
	k->numbered = to;
}

size_t psv_keys_bytes(size_t n, bool merge)
{
	return n * (4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)) + (merge ? slots_for(n) * slot_bytes(n) : 0) + 7 * 64;
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
	k->slots = at;
	k->slots_mask = slots_for(n) - 1;
	memset(k->slots, 0, (k->slots_mask + 1) * slot_bytes(n));
}

bool psv_division_room(struct psv_division *d, uint32_t chunks)
{
	*d = (struct psv_division){.chunk = malloc((chunks + 1) * sizeof *d->chunk)};
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
			uint64_t from = r->start[s] + (uint64_t)c * most;
			uint32_t left = from < r->end[s] ? r->end[s] - (uint32_t)from : 0;
			if (left)
				d->chunk[d->n++] = (struct psv_chunk){s, (uint32_t)from, left < most ? left : most,
								      d->deepest + c};
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
