/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A pool of 64-byte lines: blocks of 1, 2, 4, 8, 16, 32 or 64 lines, aligned to their size, by the buddy method.
 * The shard thread that owns the table.
 *
 * A block is named by the number of its first line. The first 64 lines of each slab hold a bitmap of its free lines: a
 * block's buddy is free if all its bits are set, because free buddies merge at once. Links of the free lists are in the
 * free blocks.
 */
#ifndef PST_LINES_H
#define PST_LINES_H

#include "pst_slabs.h"

#define PST_LINES_CLASSES 7u  /* blocks of 1 << class lines */
#define PST_LINES_BLOCK   64u /* lines of the largest block */
#define PST_LINES_BYTES   64u
#define PST_LINES_SHIFT   15u
#define PST_LINES_NONE    0u /* number of no block: the bitmap is there */

struct pst_lines {
	struct pst_slabs slabs;
	uint32_t top;                      /* lines [0, top) were in use once; a multiple of PST_LINES_BLOCK */
	uint32_t lists[PST_LINES_CLASSES]; /* first free block of each class */
	uint64_t free;                     /* lines in the lists */
};

void pst_lines_init(struct pst_lines *l, const struct pst_memory *memory);
void pst_lines_fini(struct pst_lines *l);

/** A block of 1 << class lines with undefined contents, or PST_LINES_NONE: no memory, nothing changed. */
uint32_t pst_lines_get(struct pst_lines *l, unsigned class);
void pst_lines_put(struct pst_lines *l, uint32_t block, unsigned class);

/** A slab has 2 MiB of lines. */
static inline void *pst_lines_in(char *const *slabs, uint32_t line)
{
	return slabs[line >> PST_LINES_SHIFT] + (size_t)(line & ((1u << PST_LINES_SHIFT) - 1)) * PST_LINES_BYTES;
}

static inline void *pst_lines_at(const struct pst_lines *l, uint32_t line)
{
	return pst_lines_in(l->slabs.at, line);
}

/** Bytes of memory held. */
size_t pst_lines_bytes(const struct pst_lines *l);

#endif
