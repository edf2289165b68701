/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A sparse labelled data set in memory: rows of (column, value) pairs in one array, as a reader or a generator appends
 * them. Feature identifiers are arbitrary 64-bit keys; they are numbered densely as columns on arrival, so that a batch
 * can use plain arrays for what it knows of a feature. Any thread.
 */
#ifndef PSERVER_DATASET_H
#define PSERVER_DATASET_H

#include <stddef.h>
#include <stdint.h>

#define DATASET_COLUMNS_MAX (1u << 30) /* distinct features: the map of keys stays below 2^31 slots */

struct dataset {
	size_t rows;
	size_t entries;
	size_t columns;
	size_t *start;    /* [rows + 1]: entries of row r are [start[r], start[r + 1]) */
	uint8_t *label;   /* [rows]: 0 or 1 */
	float *target;    /* [rows] of ratings, or NULL */
	uint32_t *column; /* [entries] */
	float *value;     /* [entries] */
	uint64_t *key;    /* [columns]: the feature of a column */
	/* what follows is the builder's */
	size_t rows_cap, targets_cap, entries_cap, columns_cap;
	uint32_t *map; /* open addressing, key → 1 + column; 0: free */
	size_t map_mask;
};

void dataset_init(struct dataset *d);
void dataset_free(struct dataset *d);

/** Appends an empty row; entries that follow are its own. 0 or -ENOMEM. */
int dataset_row(struct dataset *d, int label);
/** Sets the target of the last row. Either every row has one or none. 0 or -ENOMEM. */
int dataset_target(struct dataset *d, float target);
/** Appends an entry to the last row. 0, -ENOMEM or -E2BIG (too many distinct features). */
int dataset_entry(struct dataset *d, uint64_t key, float value);

#endif
