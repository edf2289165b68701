/* SPDX-License-Identifier: BSD-3-Clause */
/** A buddy allocator for the bulk area of one direction, with its state in the producer's private memory. Blocks of up
 * to SHM_QUICK_ORDER go to quick lists instead of being merged at once, so that a steady flow of messages needs no
 * splitting. Small blocks are reused last in, first out, while they are cached. Blocks of SHM_TURN_ORDER and more take
 * turns, first in, first out, as many as fill SHM_TURN_BYTES: a block that the peer has just read is slow to write, and
 * a non-temporal store waits for an earlier one to the same line. Pages stay resident once a body was written to them;
 * the process's budget counts them by the piece, when a piece is first used. Poller of the producing queue. */
#ifndef NIC_SHM_BULK_H
#define NIC_SHM_BULK_H

#include "nic/nic.h"
#include "nic/shm/shm_layout.h"

#include <stdbool.h>

#define SHM_ORDERS      19u /* 256 B … 64 MiB */
#define SHM_QUICK_ORDER 12u /* 1 MiB */
#define SHM_QUICK_MAX   64u /* blocks per quick list */
#define SHM_TURN_ORDER  5u  /* 8 KiB, FAR_STREAM_BYTES_MIN */
#define SHM_TURN_BYTES  (UINT64_C(1) << 20)
#define SHM_NIL         UINT32_MAX
/* Unit of the budget, and a fragment of a rendezvous message: each direction can always have one (engine's limits.h,
 * FAR_CHUNK_BYTES). */
#define SHM_PIECE  (UINT64_C(256) << 10)
#define SHM_PIECES (uint32_t)(SHM_BULK_BYTES / SHM_PIECE)

struct shm_bulk {
	uint8_t *state; /* of the first block of a run: enum bulk_state << 5 | order */
	uint32_t *next, *prev;
	uint32_t free_head[SHM_ORDERS];
	uint32_t quick_head[SHM_QUICK_ORDER + 1], quick_tail[SHM_QUICK_ORDER + 1];
	uint32_t quick_n[SHM_QUICK_ORDER + 1];
	uint32_t used_n[SHM_QUICK_ORDER + 1]; /* allocated blocks of an order */
	uint32_t in_use;                      /* allocated runs, at most SHM_RETURNS */
	size_t map_bytes;
	uint8_t *area; /* first byte of the area; NULL in tests */
	const struct nic_budget *budget;
	uint64_t counted[SHM_PIECES / 64]; /* a bit per piece that is counted in the budget */
	bool refused; /* by the budget, since the last trim: no block joins those that take turns */
	bool started; /* the table is initialised; done at the first body, so that an idle link touches no page of it */
};

/** 0 or -ENOMEM. `budget` may be NULL: none. */
int shm_bulk_init(struct shm_bulk *b, uint8_t *area, const struct nic_budget *budget);
void shm_bulk_fini(struct shm_bulk *b);

/** Allocates a run of at least `bytes` (at most SHM_BODY_MAX): its first block, or SHM_NIL. If no run is in use,
 * SHM_NIL means that the budget has no room; SHM_PIECE bytes are always available then. */
uint32_t shm_bulk_alloc(struct shm_bulk *b, uint64_t bytes);

/** Returns all pages except the first piece to the system; no effect while a run is in use. One system call. */
void shm_bulk_trim(struct shm_bulk *b);

/** Frees a run. False, without effect: `block` is not the first block of an allocated run; peers may send any number.
 */
bool shm_bulk_free(struct shm_bulk *b, uint32_t block);

#endif
