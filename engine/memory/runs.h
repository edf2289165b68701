/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Page runs: whole pages of the region's upper end, first for large payloads, second below jemalloc.
 *
 * Free runs are coalesced at once and kept in lists by the power of two of their length; the best fit is taken, its
 * upper end first, and the runs grow downwards into the gap when none fits. Backed pages are counted in the budget
 * (memory/budget.h). Freed pages go back to the system at once, but for budget_retained_max() bytes, which go back
 * before a run is refused; a bit per page knows which may still be backed. A free run at
 * the bottom goes back to the gap once its pages are gone. One lock guards all; no system call is made under it.
 * Tables lie in a mapping of their own, 16 bytes a page, touched where runs begin and end.
 */
#ifndef FAR_MEMORY_RUNS_H
#define FAR_MEMORY_RUNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** `bytes` > 0, rounded up to pages, at a multiple of `align`, a power of two; NULL when there is no such run. Sets
 * `*zeroed`, which may be NULL. Any thread. May lock and make system calls, as runs_free(). */
void *runs_alloc(size_t bytes, size_t align, bool *zeroed);

/** Gives back whole pages: a run, a part of one, or neighbouring ones together. */
void runs_free(void *p, size_t bytes);

/** Bytes of the run that runs_alloc() returned as `p`; 0 when there is no such run. */
size_t runs_size(const void *p);

struct runs_stats {
	uint64_t used, retained, free; /* bytes; free ones below no longer in the gap, retained ones included */
	uint64_t free_runs;
};
void runs_stats(struct runs_stats *out);

/** For tests: whether the lists, the tables and the counts agree. */
bool runs_sane(void);

#endif
