/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Large tables that have few entries at first. Any thread.
 *
 * Where a program visits thousands of entries at random, it waits for page tables too. Huge pages save that, but each
 * is 2 MiB of memory at its first use. So the first TABLE_SMALL_BYTES of a table are in small pages, and what lies
 * behind them is in huge ones: a table of few entries costs no more than before (perf/NOTES.md, experiment 67).
 */
#ifndef FAR_BASE_TABLE_H
#define FAR_BASE_TABLE_H

#include <stddef.h>

#define TABLE_SMALL_BYTES ((size_t)256 << 10)
#define TABLE_HUGE_BYTES  ((size_t)2 << 20)

/** Reserves `bytes` of zeros, whole pages; a page becomes memory at its first use. NULL: no address space. */
void *table_map(size_t bytes);
/** NULL is ignored. */
void table_unmap(void *table, size_t bytes);

#endif
