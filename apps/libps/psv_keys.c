/* SPDX-License-Identifier: BSD-3-Clause */
/** Finds distinct keys and divides them. The thread that has the operation. */
#include "psv_keys.h"

#include <stdlib.h>
#include <string.h>

/* Numbers of keys in an open-addressing table, + 1; 0: free. */
static void number(struct psv_keys *k, const uint64_t *keys, uint32_t *slots, uint32_t mask)
{
	for (uint32_t i = 0; i < k->n; i++) {
		uint64_t hash = pst_hash(keys[i]);
		uint32_t s = (uint32_t)hash & mask;
		while (slots[s] && k->key[slots[s] - 1] != keys[i])
			s = (s + 1) & mask;
		if (!slots[s]) {
			k->key[k->distinct] = keys[i];
			k->hash[k->distinct] = hash;
			slots[s] = ++k->distinct;
		}
		k->at[i] = slots[s] - 1;
	}
}

/* Each position is a key of its own. */
static void number_all(struct psv_keys *k, const uint64_t *keys, uint64_t first)
{
	for (uint32_t i = 0; i < k->n; i++) {
		k->key[i] = keys ? keys[i] : first + i;
		k->hash[i] = pst_hash(k->key[i]);
		k->at[i] = i;
	}
	k->distinct = k->n;
}

bool psv_keys_init(struct psv_keys *k, const uint64_t *keys, uint64_t first, size_t n, bool merge)
{
	uint32_t size = 16;
	merge = merge && keys;
	while (merge && size < 2 * n)
		size *= 2;
	*k = (struct psv_keys){.n = (uint32_t)n};
	uint32_t *slots = calloc(size, sizeof *slots);
	k->at = malloc((n + 1) * sizeof *k->at);
	k->key = malloc((n + 1) * sizeof *k->key);
	k->hash = malloc((n + 1) * sizeof *k->hash);
	k->order = malloc((n + 1) * sizeof *k->order);
	bool ok = slots && k->at && k->key && k->hash && k->order;
	if (ok && merge)
		number(k, keys, slots, size - 1);
	else if (ok)
		number_all(k, keys, first);
	free(slots);
	if (!ok)
		psv_keys_fini(k);
	return ok;
}

void psv_keys_fini(struct psv_keys *k)
{
	free(k->at);
	free(k->key);
	free(k->hash);
	free(k->order);
	*k = (struct psv_keys){0};
}

bool psv_keys_divide(struct psv_keys *k, const bool *open, const struct psv_view *view, uint32_t most,
		     struct psv_division *d)
{
	uint32_t start[FAR_PS_SHARDS_MAX + 1] = {0}, end[FAR_PS_SHARDS_MAX];
	for (uint32_t i = 0; i < k->distinct; i++)
		if (open[i])
			start[psv_slot_of(view, k->hash[i]) + 1]++;
	*d = (struct psv_division){0};
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
		if (open[i])
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
