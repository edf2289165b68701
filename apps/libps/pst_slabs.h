/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A dense array of elements of one size that grows by slabs. Elements never move.
 *
 * A slab holds a power of two of elements and takes a multiple of 2 MiB. The first slab has pages of the usual size: a
 * small table costs little. Another thread prepares later slabs with pst_slabs_ahead: maps them with huge pages and
 * faults these in. Zeroing 2 MiB takes some 200 us, which the owner of the array need not spend. When no prepared
 * slab is there, the owner maps one with small pages, whose faults cost about 1 us each.
 */
#ifndef PST_SLABS_H
#define PST_SLABS_H

#include "pst_memory.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct pst_slabs {
	uint32_t stride; /* bytes of an element */
	uint32_t shift;  /* log2 of the elements of a slab */
	char **at;       /* [slabs_max]: start of each slab */
	uint8_t *pages;  /* [slabs_max]: enum pst_pages of each */
	uint32_t slabs;
	uint32_t slabs_max; /* room in `at` and `pages`; doubled when it is used up */
	uint64_t want_at;   /* when so many elements are in use the next slab is wanted; UINT64_MAX: it is already */
	size_t slab_bytes;
	const struct pst_memory *memory;
	bool eager;            /* the owner itself maps slabs with huge pages and faults them in */
	_Atomic(char *) ready; /* a prepared slab. Writer: pst_slabs_ahead, from NULL; the owner takes it, to NULL */
	atomic_bool wanted;    /* writer: the owner, true; pst_slabs_ahead, false */
};

/* ---- The owner of the array ---- */

/** An empty array. `stride` in [1, 1 GiB]. Allocates nothing. */
void pst_slabs_init(struct pst_slabs *s, uint32_t stride, const struct pst_memory *memory);
void pst_slabs_fini(struct pst_slabs *s);

/** Makes elements [0, n) exist, zero at first. 0, or -ENOMEM: the array is as before. */
int pst_slabs_reserve(struct pst_slabs *s, uint64_t n);

/** Address of an element that exists. */
static inline void *pst_slabs_at(const struct pst_slabs *s, uint32_t i)
{
	return s->at[i >> s->shift] + (size_t)(i & ((UINT32_C(1) << s->shift) - 1)) * s->stride;
}

void pst_slabs_want(struct pst_slabs *s);

/** Notes that elements [0, n) are in use: the next slab is wanted when the first one is half full, or a later one to a
 * sixteenth. */
static inline void pst_slabs_used(struct pst_slabs *s, uint64_t n)
{
	if (n >= s->want_at)
		pst_slabs_want(s);
}

/** Bytes of memory held when elements [0, n) are in use: whole slabs, but for the untouched rest of one with small
 * pages. */
size_t pst_slabs_bytes(const struct pst_slabs *s, uint64_t n);

/* ---- One other thread ---- */

/** Prepares the next slab if it is wanted. Takes some 300 us for each 2 MiB. Returns whether it prepared one. */
bool pst_slabs_ahead(struct pst_slabs *s);

#endif
