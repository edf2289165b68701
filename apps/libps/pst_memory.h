/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The allocator of a table. A table allocates through this interface alone, so a test or a process with a memory bound
 * can replace it. Any thread, one table at a time.
 */
#ifndef PST_MEMORY_H
#define PST_MEMORY_H

#include <stddef.h>

#define PST_HUGE_BYTES ((size_t)2 << 20) /* of a huge page */

enum pst_pages {
	PST_PAGES_HEAP,  /* a small block, aligned to 64 bytes; contents undefined */
	PST_PAGES_SMALL, /* zero pages of the usual size, faulted in on use; aligned to PST_HUGE_BYTES */
	PST_PAGES_HUGE   /* zero pages, faulted in before the call returns, huge ones where the system grants them;
			    aligned to   PST_HUGE_BYTES */
};

struct pst_memory {
	/** Returns `bytes` of memory, or NULL. Any thread: the table's own and that of pst_table_ahead. */
	void *(*get)(void *ctx, size_t bytes, enum pst_pages pages);
	/** Takes back what `get` returned, with the same `bytes` and `pages`. */
	void (*put)(void *ctx, void *memory, size_t bytes, enum pst_pages pages);
	void *ctx;
};

/** The heap of the C library, and anonymous mappings. */
extern const struct pst_memory pst_memory_default;

#endif
