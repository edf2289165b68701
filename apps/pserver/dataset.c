/* SPDX-License-Identifier: BSD-3-Clause */
/** Sparse labelled rows in one array, with 64-bit feature keys mapped to dense columns. One thread at a time. */
#include "dataset.h"
#include "mix.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void dataset_init(struct dataset *d)
{
	memset(d, 0, sizeof *d);
}

void dataset_free(struct dataset *d)
{
	free(d->start);
	free(d->label);
	free(d->target);
	free(d->column);
	free(d->value);
	free(d->key);
	free(d->map);
	dataset_init(d);
}

static int grow(void **array, size_t item, size_t count)
{
	void *bigger = reallocarray(*array, count, item);
	if (bigger == NULL)
		return -ENOMEM;
	*array = bigger;
	return 0;
}

int dataset_row(struct dataset *d, int label)
{
	if (d->rows == d->rows_cap) {
		size_t cap = d->rows_cap ? d->rows_cap * 2 : 1024;
		if (grow((void **)&d->start, sizeof *d->start, cap + 1) ||
		    grow((void **)&d->label, sizeof *d->label, cap))
			return -ENOMEM;
		d->rows_cap = cap;
	}
	d->start[d->rows] = d->entries;
	d->label[d->rows] = label > 0;
	d->start[++d->rows] = d->entries;
	return 0;
}

int dataset_target(struct dataset *d, float target)
{
	if (d->targets_cap < d->rows) {
		if (grow((void **)&d->target, sizeof *d->target, d->rows_cap))
			return -ENOMEM;
		d->targets_cap = d->rows_cap;
	}
	d->target[d->rows - 1] = target;
	return 0;
}

/* The slot of `key` in the map: its own, or the free one where it belongs. */
static size_t map_slot(const struct dataset *d, uint64_t key)
{
	size_t i = (size_t)ps_mix(key) & d->map_mask;
	while (d->map[i] != 0 && d->key[d->map[i] - 1] != key)
		i = (i + 1) & d->map_mask;
	return i;
}

static int map_grow(struct dataset *d)
{
	size_t slots = d->map ? (d->map_mask + 1) * 2 : 1024;
	uint32_t *map = calloc(slots, sizeof *map);
	if (map == NULL)
		return -ENOMEM;
	free(d->map);
	d->map = map;
	d->map_mask = slots - 1;
	for (size_t c = 0; c < d->columns; c++)
		d->map[map_slot(d, d->key[c])] = (uint32_t)c + 1;
	return 0;
}

static int column_of(struct dataset *d, uint64_t key, uint32_t *out)
{
	if (d->map == NULL || d->columns * 2 > d->map_mask) {
		int rc = map_grow(d);
		if (rc)
			return rc;
	}
	size_t i = map_slot(d, key);
	if (d->map[i] == 0) {
		if (d->columns == DATASET_COLUMNS_MAX)
			return -E2BIG;
		if (d->columns == d->columns_cap) {
			size_t cap = d->columns_cap ? d->columns_cap * 2 : 256;
			if (grow((void **)&d->key, sizeof *d->key, cap))
				return -ENOMEM;
			d->columns_cap = cap;
		}
		d->key[d->columns++] = key;
		d->map[i] = (uint32_t)d->columns;
	}
	*out = d->map[i] - 1;
	return 0;
}

int dataset_entry(struct dataset *d, uint64_t key, float value)
{
	uint32_t column;
	int rc = column_of(d, key, &column);
	if (rc)
		return rc;
	if (d->entries == d->entries_cap) {
		size_t cap = d->entries_cap ? d->entries_cap * 2 : 16384;
		if (grow((void **)&d->column, sizeof *d->column, cap) ||
		    grow((void **)&d->value, sizeof *d->value, cap))
			return -ENOMEM;
		d->entries_cap = cap;
	}
	d->column[d->entries] = column;
	d->value[d->entries] = value;
	d->start[d->rows] = ++d->entries;
	return 0;
}
