/* SPDX-License-Identifier: BSD-3-Clause */
/** Open-addressing tables of references by name. Shard thread. */
#include "features/references/rref.h"

#define BLOCK 16u

/* Names are counted, and used one soon after the other: 16 of them lie together, so that not each costs a cold line and
 * a cold page. The place of the 16 is a hash. */
static uint32_t place_of(const struct rref_table *t, struct rref_id id)
{
	uint64_t h = id.number / BLOCK * UINT64_C(0x9e3779b97f4a7c15) ^ id.life * UINT64_C(0xd6e8feb86659fd93);
	return ((uint32_t)(h >> 32) * BLOCK + (uint32_t)(id.number % BLOCK)) & (t->places_n - 1);
}

static bool same(struct rref_id a, struct rref_id b)
{
	return a.life == b.life && a.number == b.number;
}

bool rref_table_init(struct rref_table *t, uint32_t places)
{
	must((places & (places - 1)) == 0);
	/* Zeros that are not touched before they are used. */
	t->places = shard_zeroed(places, sizeof *t->places);
	t->places_n = t->places ? places : 0;
	t->n = 0;
	return t->places != NULL;
}

void rref_table_free(struct rref_table *t)
{
	shard_zeroed_free(t->places);
	*t = (struct rref_table){0};
}

static struct rref_place *look(const struct rref_table *t, struct rref_id id)
{
	for (uint32_t i = place_of(t, id);; i = (i + 1) & (t->places_n - 1))
		if (!t->places[i].at || same(t->places[i].id, id))
			return &t->places[i];
}

void *rref_table_find(const struct rref_table *t, struct rref_id id)
{
	return look(t, id)->at;
}

bool rref_table_put(struct rref_table *t, struct rref_id id, void *at)
{
	if (t->n >= t->places_n / 2)
		return false;
	struct rref_place *p = look(t, id);
	must(!p->at);
	*p = (struct rref_place){id, at};
	t->n++;
	return true;
}

void rref_table_remove(struct rref_table *t, struct rref_id id)
{
	struct rref_place *p = look(t, id);
	if (!p->at)
		return;
	uint32_t mask = t->places_n - 1, hole = (uint32_t)(p - t->places);
	/* Those behind it move up, as far as they are not where they belong. */
	for (uint32_t i = (hole + 1) & mask; t->places[i].at; i = (i + 1) & mask) {
		uint32_t home = place_of(t, t->places[i].id);
		if (((i - home) & mask) < ((i - hole) & mask))
			continue;
		t->places[hole] = t->places[i];
		hole = i;
	}
	t->places[hole].at = NULL;
	t->n--;
}
