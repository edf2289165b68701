/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Memory for values of different lengths.
 *
 * A value and its head are in one block. Blocks have the sizes 64 * {4, 5, 6, 7} * 2^n bytes and, below 256, the
 * multiples of 64: at most a fifth of a block, and 63 bytes, are unused. A slab of 2 MiB has blocks of one size; when
 * its last block is freed it serves any size again. A block is named by the number of its first 64 bytes. The thread
 * that owns the table.
 */
#ifndef PST_VALUES_H
#define PST_VALUES_H

#include "pst_slabs.h"

#define PST_VALUE_MAX      ((size_t)1 << 20) /* bytes of a value */
#define PST_VALUES_NONE    UINT32_MAX
#define PST_VALUES_CLASSES 64u

struct pst_value {
	uint32_t bytes;
	uint32_t touched, written; /* as of rows */
	unsigned char data[];
};

struct pst_values_slab {
	uint32_t class;
	uint32_t live;       /* blocks in use */
	uint32_t carved;     /* blocks that were in use once */
	uint32_t free;       /* first free block, PST_VALUES_NONE: none; the next is in its first bytes */
	uint32_t prev, next; /* in the list of its class' slabs with room, or of empty slabs; PST_VALUES_NONE: ends */
};

struct pst_values {
	struct pst_slabs slabs;       /* elements of 64 bytes */
	struct pst_values_slab *slab; /* [slab_max] */
	uint32_t slab_n, slab_max;
	uint32_t room[PST_VALUES_CLASSES]; /* slabs with a free block, of each class */
	uint32_t empty;                    /* slabs without blocks */
	uint64_t bytes;                    /* of blocks in use */
};

void pst_values_init(struct pst_values *v, const struct pst_memory *memory);
void pst_values_fini(struct pst_values *v);

/** A block for a value of `bytes`, at most PST_VALUE_MAX, its `bytes` set; PST_VALUES_NONE: no memory, nothing changed.
 */
uint32_t pst_values_get(struct pst_values *v, uint32_t bytes);
void pst_values_put(struct pst_values *v, uint32_t block);

static inline struct pst_value *pst_values_at(const struct pst_values *v, uint32_t block)
{
	return pst_slabs_at(&v->slabs, block);
}

size_t pst_values_bytes(const struct pst_values *v);

#endif
