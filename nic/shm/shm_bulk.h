/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Allocator of one direction's bulk area: a buddy system whose state is private to the producer. Blocks of up to
 * SHM_QUICK_ORDER are kept on quick lists instead of being merged at once, last in first out, so that a
 * steady flow of messages reuses memory that is warm in the caches and pays no splitting. Pages stay in memory once a
 * body was written to them; they are counted in the process's budget by the piece when their piece is first used.
 */
#ifndef NIC_SHM_BULK_H
#define NIC_SHM_BULK_H

#include "nic/nic.h"
#include "nic/shm/shm_layout.h"

#include <stdbool.h>

#define SHM_ORDERS      19u /* 256 B … 64 MiB */
#define SHM_QUICK_ORDER 12u /* 1 MiB */
#define SHM_QUICK_MAX   64u /* blocks per quick list */
#define SHM_NIL         UINT32_MAX
/* What is counted at once; a fragment of a long message, so that each direction always has one (engine's limits.h,
 * FAR_CHUNK_BYTES). */
#define SHM_PIECE  (UINT64_C(256) << 10)
#define SHM_PIECES (uint32_t)(SHM_BULK_BYTES / SHM_PIECE)

struct shm_bulk {
	uint8_t *state; /* per block that begins a run: enum bulk_state << 5 | order */
	uint32_t *next, *prev;
	uint32_t free_head[SHM_ORDERS];
	uint32_t quick_head[SHM_QUICK_ORDER + 1];
	uint32_t quick_n[SHM_QUICK_ORDER + 1];
	uint32_t in_use; /* blocks handed out, at most SHM_RETURNS */
	size_t map_bytes;
	uint8_t *area; /* its first byte; NULL in tests */
	const struct nic_budget *budget;
	uint64_t counted[SHM_PIECES / 64]; /* a bit per piece that may be in memory */
	bool started; /* the table is begun: not before the first body, so that an idle link touches none of it */
};

/** 0 or -ENOMEM. `budget`: NULL: none. */
int shm_bulk_init(struct shm_bulk *b, uint8_t *area, const struct nic_budget *budget);
void shm_bulk_fini(struct shm_bulk *b);

/** A run of at least `bytes` (at most SHM_BODY_MAX): its first block, or SHM_NIL. With nothing in use that means that
 * the budget has no room for it; SHM_PIECE bytes it always has then. */
uint32_t shm_bulk_alloc(struct shm_bulk *b, uint64_t bytes);

/** Gives the pages but the first piece's back to the system; no effect while a block is in use. A system call. */
void shm_bulk_trim(struct shm_bulk *b);

/** false, and nothing changes, when `block` was not handed out: a peer may say anything. */
bool shm_bulk_free(struct shm_bulk *b, uint32_t block);

#endif
