/* SPDX-License-Identifier: BSD-3-Clause */
/** A hash table of rows of floats for one shard. The shard that owns it. Shard thread. */
#include "ps_table.h"
#include "ps_split.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_SLOTS_FIRST 1024

static int index_init(struct ps_index *x, size_t slots)
{
	x->slots = calloc(slots, sizeof *x->slots);
	x->mask = slots - 1;
	return x->slots ? 0 : -ENOMEM;
}

/* The slot of `key`: its own, or the free one where it belongs. An index is never full, so the walk ends. */
static struct ps_slot *index_slot(const struct ps_index *x, uint64_t key)
{
	size_t i = (size_t)ps_mix(key) & x->mask;
	while (x->slots[i].row != 0 && x->slots[i].key != key)
		i = (i + 1) & x->mask;
	return &x->slots[i];
}

int ps_table_init(struct ps_table *t, unsigned dim, unsigned state, float init, size_t rows_max)
{
	memset(t, 0, sizeof *t);
	if (dim == 0 || dim > PS_DIM_MAX || state > 2 * PS_DIM_MAX)
		return -EINVAL;
	size_t row_bytes = (dim + state) * sizeof(float);
	size_t most = PS_TABLE_BYTES_MAX / row_bytes < PS_ROWS_MAX ? PS_TABLE_BYTES_MAX / row_bytes : PS_ROWS_MAX;
	t->dim = dim;
	t->state = state;
	t->init = init;
	t->rows_max = rows_max && rows_max < most ? rows_max : most;
	while (row_bytes << (t->slab_shift + 1) <= PS_SLAB_BYTES)
		t->slab_shift++;
	t->slabs = calloc((t->rows_max >> t->slab_shift) + 1, sizeof *t->slabs);
	if (t->slabs == NULL || index_init(&t->now, INDEX_SLOTS_FIRST)) {
		ps_table_fini(t);
		return -ENOMEM;
	}
	return 0;
}

void ps_table_fini(struct ps_table *t)
{
	for (size_t s = 0; t->slabs && s <= t->rows_max >> t->slab_shift && t->slabs[s]; s++)
		free(t->slabs[s]);
	free(t->slabs);
	free(t->now.slots);
	free(t->old.slots);
	memset(t, 0, sizeof *t);
}

static float *row_at(const struct ps_table *t, size_t row)
{
	size_t within = row & (((size_t)1 << t->slab_shift) - 1);
	return t->slabs[row >> t->slab_shift] + within * (t->dim + t->state);
}

float *ps_table_find(const struct ps_table *t, uint64_t key)
{
	const struct ps_slot *s = index_slot(&t->now, key);
	if (s->row == 0 && t->old.slots)
		s = index_slot(&t->old, key);
	return s->row ? row_at(t, s->row - 1) : NULL;
}

/* Moved slots stay in the old index: they are equal to their copies, and removing them would break its chains. */
static void migrate(struct ps_table *t)
{
	for (unsigned i = 0; i < PS_MIGRATE && t->moved <= t->old.mask; i++, t->moved++) {
		const struct ps_slot *s = &t->old.slots[t->moved];
		if (s->row)
			*index_slot(&t->now, s->key) = *s;
	}
	if (t->moved > t->old.mask) {
		free(t->old.slots);
		t->old.slots = NULL;
	}
}

static int index_grow(struct ps_table *t)
{
	struct ps_index bigger;
	if (index_init(&bigger, (t->now.mask + 1) * 2))
		return -ENOMEM;
	t->old = t->now;
	t->now = bigger;
	t->moved = 0;
	return 0;
}

float *ps_table_row(struct ps_table *t, uint64_t key)
{
	float *row = ps_table_find(t, key);
	if (row || t->rows == t->rows_max)
		return row;
	float **slab = &t->slabs[t->rows >> t->slab_shift];
	if (*slab == NULL) {
		*slab = malloc((sizeof(float) * (t->dim + t->state)) << t->slab_shift);
		if (*slab == NULL)
			return NULL;
	}
	if (t->old.slots)
		migrate(t);
	else if ((t->rows + 1) * 10 > (t->now.mask + 1) * 7 && index_grow(t))
		return NULL;
	*index_slot(&t->now, key) = (struct ps_slot){key, (uint32_t)t->rows + 1};
	row = row_at(t, t->rows++);
	for (unsigned i = 0; i < t->dim; i++)
		row[i] = t->init;
	memset(row + t->dim, 0, t->state * sizeof *row);
	return row;
}
