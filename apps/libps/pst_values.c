/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates blocks for values of different lengths. The thread that owns the table. */
#include "pst_values.h"

#include <string.h>

#define UNIT       64u
#define SLAB_UNITS 32768u /* of 2 MiB */
#define NONE       PST_VALUES_NONE

/* Classes 0 to 2: 1, 2, 3 units; from 3 on: {4, 5, 6, 7} << n units. */
static uint32_t units_of(uint32_t class)
{
	return class < 3 ? class + 1 : (4 + (class - 3) % 4) << (class - 3) / 4;
}

static uint32_t class_for(uint32_t bytes)
{
	uint32_t units = (uint32_t)((sizeof(struct pst_value) + bytes + UNIT - 1) / UNIT), class = 0;
	while (units_of(class) < units)
		class ++;
	return class;
}

void pst_values_init(struct pst_values *v, const struct pst_memory *memory)
{
	*v = (struct pst_values){.empty = NONE};
	pst_slabs_init(&v->slabs, UNIT, memory);
	for (unsigned i = 0; i < PST_VALUES_CLASSES; i++)
		v->room[i] = NONE;
}

void pst_values_fini(struct pst_values *v)
{
	const struct pst_memory *m = v->slabs.memory;
	if (v->slab)
		m->put(m->ctx, v->slab, v->slab_max * sizeof *v->slab, PST_PAGES_HEAP);
	v->slab = NULL;
	pst_slabs_fini(&v->slabs);
}

static void link_slab(struct pst_values *v, uint32_t *list, uint32_t i)
{
	v->slab[i].prev = NONE;
	v->slab[i].next = *list;
	if (*list != NONE)
		v->slab[*list].prev = i;
	*list = i;
}

static void unlink_slab(struct pst_values *v, uint32_t *list, uint32_t i)
{
	struct pst_values_slab *s = &v->slab[i];
	if (s->prev == NONE)
		*list = s->next;
	else
		v->slab[s->prev].next = s->next;
	if (s->next != NONE)
		v->slab[s->next].prev = s->prev;
}

/* One more slab in the list of empty ones. */
static bool add_slab(struct pst_values *v)
{
	const struct pst_memory *m = v->slabs.memory;
	if (v->slab_n == NONE / SLAB_UNITS)
		return false;
	if (v->slab_n == v->slab_max) {
		uint32_t max = v->slab_max ? 2 * v->slab_max : 16;
		struct pst_values_slab *slab = m->get(m->ctx, max * sizeof *slab, PST_PAGES_HEAP);
		if (!slab)
			return false;
		if (v->slab) {
			memcpy(slab, v->slab, v->slab_n * sizeof *slab);
			m->put(m->ctx, v->slab, v->slab_max * sizeof *slab, PST_PAGES_HEAP);
		}
		v->slab = slab;
		v->slab_max = max;
	}
	if (pst_slabs_reserve(&v->slabs, (uint64_t)(v->slab_n + 1) * SLAB_UNITS))
		return false;
	link_slab(v, &v->empty, v->slab_n++);
	return true;
}

uint32_t pst_values_get(struct pst_values *v, uint32_t bytes)
{
	uint32_t class = class_for(bytes), units = units_of(class);
	if (v->room[class] == NONE) {
		if (v->empty == NONE && !add_slab(v))
			return NONE;
		uint32_t i = v->empty;
		unlink_slab(v, &v->empty, i);
		v->slab[i] = (struct pst_values_slab){.class = class, .free = NONE};
		link_slab(v, &v->room[class], i);
	}
	uint32_t i = v->room[class];
	struct pst_values_slab *s = &v->slab[i];
	uint32_t block = s->free;
	if (block != NONE) {
		memcpy(&s->free, pst_values_at(v, block), sizeof s->free);
	} else {
		block = i * SLAB_UNITS + s->carved++ * units;
		if (i == v->slab_n - 1)
			pst_slabs_used(&v->slabs, (uint64_t)block + units);
	}
	s->live++;
	if (s->free == NONE && (s->carved + 1) * units > SLAB_UNITS)
		unlink_slab(v, &v->room[class], i);
	v->bytes += (uint64_t)units * UNIT;
	pst_values_at(v, block)->bytes = bytes;
	return block;
}

void pst_values_put(struct pst_values *v, uint32_t block)
{
	uint32_t i = block / SLAB_UNITS;
	struct pst_values_slab *s = &v->slab[i];
	uint32_t units = units_of(s->class);
	bool was_full = s->free == NONE && (s->carved + 1) * units > SLAB_UNITS;
	v->bytes -= (uint64_t)units * UNIT;
	memcpy(pst_values_at(v, block), &s->free, sizeof s->free);
	s->free = block;
	if (was_full)
		link_slab(v, &v->room[s->class], i);
	if (--s->live == 0) {
		unlink_slab(v, &v->room[s->class], i);
		link_slab(v, &v->empty, i);
	}
}

size_t pst_values_bytes(const struct pst_values *v)
{
	return v->slab_max * sizeof *v->slab + pst_slabs_bytes(&v->slabs, (uint64_t)v->slabs.slabs << v->slabs.shift);
}
