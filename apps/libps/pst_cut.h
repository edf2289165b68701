/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cuts: a range of a table as it was at one moment, read in slices while the table changes. A change copies what it
 * replaces, once for each key that is not read yet. The thread that owns the table.
 */
#ifndef PST_CUT_H
#define PST_CUT_H

#include "pst_table.h"

struct pst_cut {
	struct pst_cut *next;    /* of the table */
	uint64_t id, used_ns;    /* the caller's */
	uint64_t from, last;     /* hashes that are still to be read */
	uint64_t now_ms;         /* its moment */
	bool torn;               /* there was no memory for a copy: the cut is of no use */
	struct pst_index before; /* keys that have changed since, and their copies; PST_NO_ROW: there was no row */
	struct pst_slabs copies; /* of rows: row, state, stamp */
	uint32_t copies_n;
	struct pst_values values; /* copies of values */
};

/** Begins a cut of a cursor's range, of a table that is not dense. It is the table's, until pst_cut_end() or
 * pst_table_free(). NULL: no memory. */
struct pst_cut *pst_cut_begin(struct pst_table *table, const struct pst_cursor *range, uint64_t now_ms);
void pst_cut_end(struct pst_table *table, struct pst_cut *cut);
/** The cuts of the table. */
struct pst_cut *pst_cuts(const struct pst_table *table);

/** Keeps what a key has for the cuts, before it changes. `id` PST_NO_ROW: it has no row. */
void pst_cuts_keep(struct pst_table *table, uint64_t hash, uint64_t key, uint32_t id);

#endif
