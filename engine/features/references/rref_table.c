/* SPDX-License-Identifier: BSD-3-Clause */
/** Open-addressing tables of references by name. Shard thread. */
#include "core/shard.h"
#include "features/references/rref.h"

#define BLOCK 16u

/* Names are counted, and used one soon after the other: 16 of them lie together, so that not each costs a cold line and
 * a cold page. A hash selects the block. */
static uint32_t slot_of(const struct rref_table *t, struct rref_id id)
{
	uint64_t h = id.number / BLOCK * UINT64_C(0x9e3779b97f4a7c15) ^ id.incarnation * UINT64_C(0xd6e8feb86659fd93);
	return ((uint32_t)(h >> 32) * BLOCK + (uint32_t)(id.number % BLOCK)) & (t->slots_n - 1);
}

static bool same(struct rref_id a, struct rref_id b)
{
	return a.incarnation == b.incarnation && a.number == b.number;
}

bool rref_table_init(struct rref_table *t, uint32_t slots)
{
	must((slots & (slots - 1)) == 0);
	/* Zeros that are not touched before they are used. */
	t->slots = shard_zeroed(slots, sizeof *t->slots);
	t->slots_n = t->slots ? slots : 0;
	t->n = 0;
	return t->slots != NULL;
}

void rref_table_free(struct rref_table *t)
{
	shard_zeroed_free(t->slots);
	*t = (struct rref_table){0};
}

static struct rref_slot *find_slot(const struct rref_table *t, struct rref_id id)
{
	for (uint32_t i = slot_of(t, id);; i = (i + 1) & (t->slots_n - 1))
		if (!t->slots[i].at || same(t->slots[i].id, id))
			return &t->slots[i];
}

void *rref_table_find(const struct rref_table *t, struct rref_id id)
{
	return find_slot(t, id)->at;
}

bool rref_table_put(struct rref_table *t, struct rref_id id, void *at)
{
	if (t->n >= t->slots_n / 2)
		return false;
	struct rref_slot *p = find_slot(t, id);
	must(!p->at);
	*p = (struct rref_slot){id, at};
	t->n++;
	return true;
}

void rref_table_remove(struct rref_table *t, struct rref_id id)
{
	struct rref_slot *p = find_slot(t, id);
	if (!p->at)
		return;
	uint32_t mask = t->slots_n - 1, hole = (uint32_t)(p - t->slots);
	/* Those behind it move up, as far as they are not where they belong. */
	for (uint32_t i = (hole + 1) & mask; t->slots[i].at; i = (i + 1) & mask) {
		uint32_t home = slot_of(t, t->slots[i].id);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		t->slots[hole] = t->slots[i];
		hole = i;
	}
	t->slots[hole].at = NULL;
	t->n--;
}
