/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Cuts: a range of a table as it was at one moment, read in slices while the table changes. A change copies what it
 * replaces, once for each key that is not read yet. The thread that owns the table.
 */
#ifndef PST_CUT_H
#define PST_CUT_H

#include "pst_table.h"

/* A key that has changed since a cut began. */
struct pst_changed {
	uint64_t key;
	uint32_t next; /* number of the one before it of the same part of the range; PST_NO_ROW: none */
	uint32_t copy; /* what it had; PST_NO_ROW: no row */
};

struct pst_cut {
	struct pst_cut *next;     /* of the table */
	uint64_t id, used_ns;     /* the caller's */
	uint64_t from, last;      /* hashes that are still to be read */
	uint64_t now_ms;          /* its moment */
	bool torn;                /* there was no memory for a copy: the cut is of no use */
	uint64_t first;           /* hash at which its range begins */
	unsigned shift;           /* log2 of the hashes of a part of the range */
	uint32_t *part;           /* [parts_max]: number of the last changed key; PST_NO_ROW: none */
	uint32_t parts_max;       /* a power of two */
	struct pst_slabs changed; /* struct pst_changed */
	uint32_t changed_n;
	struct pst_slabs copies; /* of rows: row, state, stamp */
	uint32_t copies_n;
	uint32_t changed_most, copies_most; /* of all cuts that had this memory: so much is faulted in */
	struct pst_values values;           /* copies of values */
};

/** Begins a cut of a cursor's range, of a table that is not dense. It is the table's, until pst_cut_end() or
 * pst_table_free(). NULL: no memory. */
struct pst_cut *pst_cut_begin(struct pst_table *table, const struct pst_cursor *range, uint64_t now_ms);
/** Ends a cut. The table keeps the memory of one for the next. */
void pst_cut_end(struct pst_table *table, struct pst_cut *cut);
/** The cuts of the table. */
struct pst_cut *pst_cuts(const struct pst_table *table);
/** Ends all cuts and frees their memory. */
void pst_cuts_free(struct pst_table *table);
/** Bytes of memory held for cuts. */
size_t pst_cuts_bytes(const struct pst_table *table);

/** Keeps what a key has for the cuts, before it changes. `id` PST_NO_ROW: it has no row. */
void pst_cuts_keep(struct pst_table *table, uint64_t hash, uint64_t key, uint32_t id);

#endif
