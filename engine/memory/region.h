/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The region: address space of the process for buffers and payloads, reserved once, backed by pages as they are
 * touched.
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
	uint8_t *base; /* NULL: nothing could be reserved */
	uint64_t bytes;
	unsigned page_shift; /* unit of the runs: the system's page */
};

extern struct region region; /* constant once region_reserve() returned FAR_OK */

/** Reserves it, once; later calls are a load. INVALID: FAR_MEMORY_MAX cannot be read. RESOURCE: no address space. */
enum far_status region_reserve(struct far_err *err);

/** Maps so many bytes of zeros that take memory page by page as they are touched, NULL when there is no address space
 * for them. */
void *region_map(uint64_t bytes);

/** `bytes`, a multiple of 64, for slabs; NULL when the gap is used up. Lock-free. */
void *region_carve(uint64_t bytes);

/** Lowers the bottom by `pages`: false when slabs, or their reserve, are in the way. Under the lock of the runs. */
bool region_lower(uint64_t pages);
/** Gives the lowest `pages` of the runs, which nobody has touched since they were purged, back to the gap. */
void region_raise(uint64_t pages);
/** Page number of the bottom; region.bytes >> page_shift when there are no runs. */
uint64_t region_bottom(void);

/** Bytes that slabs have taken. */
uint64_t region_slabs(void);

/** Bytes reserved; 0 before. Any thread, any time. */
uint64_t region_reserved(void);

/**
 * What is to be registered with a device so that [at, at + len) of the region is: the committed part of a piece of
 * FAR_MEMORY_PIECE bytes, and what a message that begins in it may have beyond it. From then on none of its pages is
 * given to the system. false: not of the region, longer than FAR_MEMORY_PIECE_MORE, or pages are being given away right
 * now: to be asked again. Slow path, any thread.
 */
bool region_piece(const void *at, size_t len, void **base, size_t *bytes);
/** May these pages be given to the system? true: until region_purge_end(), which must follow soon. Any thread. */
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
