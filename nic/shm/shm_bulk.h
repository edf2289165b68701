/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Allocator of one direction's bulk area: a buddy system whose state is private to the producer. Blocks of up to
 * SHM_QUICK_ORDER are kept on quick lists instead of being merged at once, last in first out, so that a
 * steady flow of messages reuses memory that is warm in the caches and pays no splitting.
 */
#ifndef NIC_SHM_BULK_H
#define NIC_SHM_BULK_H

#include "nic/shm/shm_layout.h"

#include <stdbool.h>

#define SHM_ORDERS      19u /* 256 B … 64 MiB */
#define SHM_QUICK_ORDER 12u /* 1 MiB */
#define SHM_QUICK_MAX   64u /* blocks per quick list */
#define SHM_NIL         UINT32_MAX

struct shm_bulk {
	uint8_t *state; /* per block that begins a run: enum bulk_state << 5 | order */
	uint32_t *next, *prev;
	uint32_t free_head[SHM_ORDERS];
	uint32_t quick_head[SHM_QUICK_ORDER + 1];
	uint32_t quick_n[SHM_QUICK_ORDER + 1];
	uint32_t in_use; /* blocks handed out, at most SHM_RETURNS */
	size_t map_bytes;
	bool started; /* the table is begun: not before the first body, so that an idle link touches none of it */
};

/** 0 or -ENOMEM. */
int shm_bulk_init(struct shm_bulk *b);
void shm_bulk_fini(struct shm_bulk *b);

/** A run of at least `bytes` (at most SHM_BODY_MAX): its first block, or SHM_NIL. */
uint32_t shm_bulk_alloc(struct shm_bulk *b, uint64_t bytes);

/** false, and nothing changes, when `block` was not handed out: a peer may say anything. */
bool shm_bulk_free(struct shm_bulk *b, uint32_t block);

#endif
