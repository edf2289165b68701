/* SPDX-License-Identifier: BSD-3-Clause */
/** Measures the memory cost of visiting many sessions by a plain loop over a table. The measuring thread. */
#include "floor_table.h"

#include "floor_ring.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

#define AHEAD_MAX 32u

struct entry {
	alignas(64) uint64_t word[FLOOR_TABLE_BYTES / 8];
};

struct floor_table {
	alignas(64) uint64_t hot[8];
	alignas(64) uint64_t seed;
	uint32_t n;
	struct entry *entries;
};

struct floor_table *floor_table_new(uint32_t n)
{
	struct floor_table *t = aligned_alloc(64, sizeof *t);
	struct entry *entries = aligned_alloc(64, n * sizeof *entries);
	if (!t || !entries) {
		free(t);
		free(entries);
		return NULL;
	}
	memset(entries, 1, n * sizeof *entries);
	*t = (struct floor_table){.seed = 88172645463325252u, .n = n, .entries = entries};
	return t;
}

void floor_table_free(struct floor_table *t)
{
	if (t)
		free(t->entries);
	free(t);
}

/* Marsaglia's xorshift: a handful of instructions. */
static inline uint32_t draw(struct floor_table *t, uint32_t of)
{
	uint64_t x = t->seed;
	x ^= x << 13;
	x ^= x >> 7;
	x ^= x << 17;
	t->seed = x;
	return (uint32_t)((x >> 32) * of >> 32);
}

static void run(struct floor_table *t, uint64_t lookups, uint32_t of, unsigned ahead)
{
	uint32_t next[AHEAD_MAX] = {0};
	for (unsigned i = 0; i < ahead; i++)
		next[i] = draw(t, of);
	for (uint64_t i = 0; i < lookups; i++) {
		uint32_t to = draw(t, of);
		if (ahead) {
			uint32_t later = to;
			to = next[i % ahead];
			next[i % ahead] = later;
			__builtin_prefetch(&t->entries[later].word[0], 1);
			__builtin_prefetch(&t->entries[later].word[8], 1);
		}
		struct entry *e = &t->entries[to];
		t->hot[0] += e->word[0]++;
		t->hot[1] += e->word[8]++;
		/* As a call does: what follows depends on what was read. */
		if (t->hot[0] == t->hot[1] + UINT64_MAX / 2)
			t->hot[2]++;
	}
}

double floor_table_lookup(struct floor_table *t, uint64_t lookups, uint32_t of)
{
	static const unsigned aheads[] = {0, 4, 8, 16, 32};
	double best = 0;
	for (unsigned i = 0; i < sizeof aheads / sizeof *aheads; i++) {
		uint64_t before = floor_now();
		run(t, lookups, of < t->n ? of : t->n, aheads[i]);
		double ns = (double)(floor_now() - before) / (double)lookups;
		best = i == 0 || ns < best ? ns : best;
	}
	return best;
}
