/* SPDX-License-Identifier: BSD-3-Clause */
/** What memory alone takes of a call to any of many sessions: a plain loop over a table, beside its one hot line.
 * Main thread of each process. */
#ifndef PERF_FLOOR_TABLE_H
#define PERF_FLOOR_TABLE_H

#include <stdint.h>

#define FLOOR_TABLE_BYTES 512u /* of an entry */

/** A table of `n` entries, all of them touched. NULL: no memory. */
struct floor_table *floor_table_new(uint32_t n);
void floor_table_free(struct floor_table *t);
/** Nanoseconds for each of `lookups`: two lines of an entry read and written, and the hot one. Entries are the first
 * `of` at random, each fetched ahead by the distance that was the fastest of 0, 4, 8, 16 and 32. */
double floor_table_lookup(struct floor_table *t, uint64_t lookups, uint32_t of);

#endif
