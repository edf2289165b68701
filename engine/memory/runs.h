/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Page runs: allocator of whole pages at the region's upper end, for large payloads, or below jemalloc. Any thread.
 *
 * Free runs are coalesced at once and kept in lists by the power of two of their length. The best fit is taken, its
 * upper end first; when none fits, the runs grow downwards into the gap. Backed pages are counted in the budget
 * (memory/budget.h). Freed pages are returned to the system at once, but for budget_retained_max() bytes, which are
 * returned before a run is refused; a bit per page records which may still be backed. A free run at the bottom returns
 * to the gap once its pages are purged. One lock protects all; no system call is made under it. The tables are a
 * mapping of their own, 16 bytes a page, touched where runs begin and end.
 */
#ifndef FAR_MEMORY_RUNS_H
#define FAR_MEMORY_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Allocates `bytes` > 0, rounded up to pages, at a multiple of `align`, a power of two; NULL: no memory. Sets
 * `*zeroed` (may be NULL). May lock and make system calls, like runs_free(). */
void *runs_alloc(size_t bytes, size_t align, bool *zeroed);

/** Frees whole pages: a run, a part of one, or adjacent ones together. */
void runs_free(void *p, size_t bytes);

/** Bytes of the run that runs_alloc() returned as `p`; 0: there is no such run. */
size_t runs_size(const void *p);

struct runs_stats {
	uint64_t used, retained, free; /* bytes; free: free runs, retained pages included, the gap excluded */
	uint64_t free_runs;
};
void runs_stats(struct runs_stats *out);

/** For tests: true if lists, tables and counts agree. */
bool runs_sane(void);

#endif
