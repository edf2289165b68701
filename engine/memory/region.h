/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The region: address space of the process for buffers and payloads, reserved once, and backed by pages on first use.
 * Any thread.
 *
 *   base                slab end               bottom                        base + bytes
 *   | slabs: 64-byte units → |        gap        | ← page runs (memory/runs.h)      |
 *
 * Both ends of the gap are one atomic word, so slabs grow without a lock and never meet the runs. Runs leave the lowest
 * sixteenth to slabs: small calls go on when large payloads have used up the rest.
 */
#ifndef FAR_MEMORY_REGION_H
#define FAR_MEMORY_REGION_H

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct region {
	uint8_t *base; /* NULL: no address space could be reserved */
	uint64_t bytes;
	unsigned page_shift; /* log2 of the runs' unit, the system's page size */
};

extern struct region region; /* constant once region_reserve() returned FAR_OK */

/** Reserves the region, once; later calls are one load. INVALID: FAR_MEMORY_MAX is malformed. RESOURCE: no address
 * space.
 */
enum far_status region_reserve(struct far_err *err);

/** Maps `bytes` of zeros outside the region, backed by pages on first use; NULL: no address space. */
void *region_map(uint64_t bytes);

/** Takes `bytes`, a multiple of 64, for slabs from the gap; NULL: the gap is used up. Lock-free. */
void *region_carve(uint64_t bytes);

/* ---- Called by runs.c, under its lock ---- */

/** Lowers the bottom by `pages`; false: the slabs or their reserve are in the way. */
bool region_lower(uint64_t pages);
/** Returns the lowest `pages` of the runs, purged and untouched since, to the gap. */
void region_raise(uint64_t pages);
/** Page number of the bottom; region.bytes >> page_shift: there are no runs. */
uint64_t region_bottom(void);

/* ---- Any thread ---- */

/** Bytes of the region that slabs have taken. */
uint64_t region_slabs(void);

/** Bytes reserved; 0: not reserved yet. */
uint64_t region_reserved(void);

/**
 * Determines the range to register with a device so that it includes [at, at + len) of the region: the committed part
 * of a piece of FAR_MEMORY_PIECE bytes, and the part of a message that begins in it and extends beyond. From then on
 * none of its pages is returned to the system. false: not in the region, longer than FAR_MEMORY_PIECE_MORE, or a purge
 * is under way: call again. Slow path.
 */
bool region_piece(const void *at, size_t len, void **base, size_t *bytes);
/** True if these pages may be returned to the system, until region_purge_end(), which must follow soon. */
bool region_purge_begin(const void *at, uint64_t bytes);
void region_purge_end(void);

static inline bool region_holds(const void *p)
{
	return (uintptr_t)p - (uintptr_t)region.base < region.bytes;
}

static inline bool region_is_slab(const void *p)
{
	return (uintptr_t)p - (uintptr_t)region.base < region_slabs();
}

#endif
