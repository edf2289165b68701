/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A table of a parameter server: uint64 key → row of `dim` floats, and `state` more that its optimizer keeps. Rows are
 * made on first use and never removed.
 *
 * No operation stalls for long however large the table is. Rows live in slabs of about PS_SLAB_BYTES that are allocated
 * one at a time and never move, so a row's address stays valid until the table is freed. The index is open addressing;
 * when it is 70 % full a second one of twice the slots begins (zero pages from the system, touched as they are used)
 * and each new row moves PS_MIGRATE slots of the old one over, which empties it before the new one can fill: 2 slots
 * per new row would do. Not thread-safe: a table belongs to the thread that runs its server's handlers.
 */
#ifndef PSERVER_PS_TABLE_H
#define PSERVER_PS_TABLE_H

#include <stddef.h>
#include <stdint.h>

#define PS_DIM_MAX         65536u
#define PS_ROWS_MAX        ((size_t)1 << 27) /* rows of a table */
#define PS_TABLE_BYTES_MAX ((size_t)8 << 30) /* of its rows, the index not counted */
#define PS_SLAB_BYTES      ((size_t)256 << 10)
#define PS_MIGRATE         8

struct ps_slot {
	uint64_t key;
	uint32_t row; /* 1 + its number; 0: free */
};

struct ps_index {
	struct ps_slot *slots;
	size_t mask; /* slots − 1, a power of two less one */
};

struct ps_table {
	unsigned dim;
	unsigned state; /* floats behind those of a row, 0 at first */
	float init;     /* value of each element of a new row */
	size_t rows;
	size_t rows_max;
	unsigned slab_shift; /* log2 of the rows of a slab */
	float **slabs;       /* [rows_max >> slab_shift, rounded up]; NULL where not reached yet */
	struct ps_index now;
	struct ps_index old; /* being moved; slots NULL when there is none */
	size_t moved;        /* slots of `old` done */
};

/** `dim` in [1, PS_DIM_MAX], `state` at most twice that; `rows_max` 0 means as many as the bounds above allow, and is
 * cut to them. 0, -EINVAL or -ENOMEM. */
int ps_table_init(struct ps_table *t, unsigned dim, unsigned state, float init, size_t rows_max);
void ps_table_fini(struct ps_table *t);

/** The row of a key, or NULL when it has none. */
float *ps_table_find(const struct ps_table *t, uint64_t key);
/** The row of a key, made if need be. NULL: the table is full or memory is short; nothing changed. */
float *ps_table_row(struct ps_table *t, uint64_t key);

#endif
