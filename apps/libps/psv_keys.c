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

/* Finds an earlier position of each key in an open-addressing table of positions + 1; 0: free. Sparse, and without a
 * branch on whether a key is new, which is mispredicted: then the key is compared with itself. */
static void number(struct psv_keys *k, const uint64_t *keys, uint32_t *slots, uint32_t mask)
{
	uint32_t distinct = 0;
	uint64_t *restrict key_of = k->key, *restrict hash_of = k->hash;
	uint32_t *restrict first_of = k->first, *restrict again = k->again, *restrict at = k->at;
	for (uint32_t i = 0; i < k->n; i++) {
		uint64_t key = keys[i], hash = pst_hash(key);
		uint32_t s = (uint32_t)hash & mask, earlier = slots[s] - 1;
		earlier = earlier < i ? earlier : i;
		while (__builtin_expect(keys[earlier] != key, 0)) {
			earlier = slots[s = (s + 1) & mask] - 1;
			earlier = earlier < i ? earlier : i;
		}
		slots[s] = earlier + 1;
		key_of[distinct] = key;
		hash_of[distinct] = hash;
		first_of[distinct] = i;
		again[i - distinct] = i;
		at[i] = distinct;
		at[i] = at[earlier];
		distinct += earlier == i;
	}
	k->distinct = distinct;
}

/* Each position is a key of its own. */
static void number_all(struct psv_keys *k, const uint64_t *keys, uint64_t first)
{
	for (uint32_t i = 0; i < k->n; i++) {
		k->key[i] = keys ? keys[i] : first + i;
		k->hash[i] = pst_hash(k->key[i]);
		k->at[i] = k->first[i] = i;
	}
	k->distinct = k->n;
}

size_t psv_keys_bytes(size_t n, bool merge)
{
	return n * (4 * sizeof(uint32_t) + 2 * sizeof(uint64_t)) + (merge ? slots_for(n) * sizeof(uint32_t) : 0) +
	       7 * 64;
}

void psv_keys_init(struct psv_keys *k, void *memory, const uint64_t *keys, uint64_t first, size_t n, bool merge)
{
	char *at = memory;
	*k = (struct psv_keys){.n = (uint32_t)n};
	k->at = psv_arena_part(&at, n * sizeof *k->at);
	k->first = psv_arena_part(&at, n * sizeof *k->first);
	k->again = psv_arena_part(&at, n * sizeof *k->again);
	k->key = psv_arena_part(&at, n * sizeof *k->key);
	k->hash = psv_arena_part(&at, n * sizeof *k->hash);
	k->order = psv_arena_part(&at, n * sizeof *k->order);
	if (!merge || !keys) {
		number_all(k, keys, first);
		return;
	}
	uint32_t size = slots_for(n), *slots = (uint32_t *)(void *)at;
	memset(slots, 0, size * sizeof *slots);
	number(k, keys, slots, size - 1);
}

/* Of one slot, all of them. */
static bool divide_all(struct psv_keys *k, uint32_t most, struct psv_division *d)
{
	d->n = d->deepest = (k->distinct + most - 1) / most;
	d->chunk = malloc((d->n + 1) * sizeof *d->chunk);
	if (!d->chunk)
		return false;
	for (uint32_t i = 0; i < k->distinct; i++)
		k->order[i] = i;
	for (uint32_t c = 0; c < d->n; c++) {
		uint32_t from = c * most, left = k->distinct - from;
		d->chunk[c] = (struct psv_chunk){0, from, left < most ? left : most, c};
	}
	k->in_order = true;
	return true;
}

bool psv_keys_divide(struct psv_keys *k, const bool *open, bool all, const struct psv_view *view, uint32_t most,
		     struct psv_division *d)
{
	uint32_t start[FAR_PS_SHARDS_MAX + 1] = {0}, end[FAR_PS_SHARDS_MAX];
	*d = (struct psv_division){0};
	k->in_order = false;
	if (all && view->slots == 1)
		return divide_all(k, most, d);
	for (uint32_t i = 0; i < k->distinct; i++)
		if (all || open[i])
			start[psv_slot_of(view, k->hash[i]) + 1]++;
	uint32_t chunks = 0;
	for (uint32_t s = 0; s < view->slots; s++) {
		uint32_t of_slot = (start[s + 1] + most - 1) / most;
		chunks += of_slot;
		d->deepest = of_slot > d->deepest ? of_slot : d->deepest;
		start[s + 1] += start[s];
	}
	d->chunk = malloc((chunks + 1) * sizeof *d->chunk);
	if (!d->chunk)
		return false;
	memcpy(end, start, sizeof end);
	for (uint32_t i = 0; i < k->distinct; i++)
		if (all || open[i])
			k->order[end[psv_slot_of(view, k->hash[i])]++] = i;
	/* The slots in turn, so that all of them work from the start. */
	for (uint32_t c = 0; c < d->deepest; c++)
		for (uint32_t s = 0; s < view->slots; s++) {
			uint64_t from = start[s] + (uint64_t)c * most;
			if (from < end[s])
				d->chunk[d->n++] = (struct psv_chunk){
					s, (uint32_t)from,
					end[s] - (uint32_t)from < most ? end[s] - (uint32_t)from : most, c};
		}
	return true;
}
