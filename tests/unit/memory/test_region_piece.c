/* SPDX-License-Identifier: BSD-3-Clause */
/** Pieces of the region that devices know: their bounds, and that their pages stay. The test's thread. */
#include "base/limits.h"
#include "memory/runs.h"
#include "region_fixture.h"

#include <string.h>

/* What a device knows stays where it is: the same pages, whatever is freed and taken. */
Test(region_piece, pieces_that_devices_know_are_kept)
{
	region_of(512);
	size_t big = 96 * MIB, len = 16 * MIB;
	void *base = NULL;
	size_t bytes = 0;
	uint8_t *p = runs_alloc(big, page, NULL), *q = p + big - 20 * MIB;
	memset(p, 7, big);
	cr_assert(region_piece(q, len, &base, &bytes));
	cr_assert((uint8_t *)base <= q && q + len <= (uint8_t *)base + bytes);
	cr_assert_leq(bytes, FAR_MEMORY_PIECE + FAR_MEMORY_PIECE_MORE);
	cr_assert((uint8_t *)base >= region.base && (uint8_t *)base + bytes <= region.base + region.bytes);
	size_t held = resident(q, 20 * MIB);
	cr_assert_eq(held, 20 * MIB / page);
	runs_free(p, big);
	cr_assert(runs_sane());
	cr_assert_eq(resident(q, 20 * MIB), held, "not given to the system");
	cr_assert_eq(*q, 7, "the same page");
	/* What no device knows goes as ever. */
	runs_free(runs_alloc(200 * MIB, page, NULL), 200 * MIB);
	cr_assert(runs_sane());
	/* Again: the same piece. */
	void *again;
	size_t again_bytes;
	p = runs_alloc(big, page, NULL);
	cr_assert(region_piece(q, len, &again, &again_bytes));
	cr_assert((uint8_t *)again <= q && q + len <= (uint8_t *)again + again_bytes);
	/* Slabs: what is committed of them, and the little that comes next. */
	uint8_t *slab = region_carve(2 * MIB);
	cr_assert(region_piece(slab, 2 * MIB, &base, &bytes));
	cr_assert((uint8_t *)base <= slab && slab + 2 * MIB <= (uint8_t *)base + bytes);
	cr_assert_leq(bytes, region_slabs() + 16 * MIB);
	/* None of the region's. */
	cr_assert(!region_piece(&base, 8, &base, &bytes));
	cr_assert(!region_piece(region.base + region.bytes - 8, 16, &base, &bytes));
	cr_assert(!region_piece(slab, 0, &base, &bytes));
	uint64_t piece = ((uint64_t)(p - region.base) / FAR_MEMORY_PIECE + 1) * FAR_MEMORY_PIECE;
	cr_assert(region_piece(region.base + piece, FAR_MEMORY_PIECE_MORE, &base, &bytes));
	cr_assert(!region_piece(region.base + piece, FAR_MEMORY_PIECE_MORE + 1, &base, &bytes));
	cr_assert(!region_piece(slab + 100 * MIB, 4096, &base, &bytes), "of the gap");
	/* A purge under way and a pin do not pass each other unseen. */
	uint8_t *other = runs_alloc(page, page, NULL);
	cr_assert(!region_purge_begin(q, page));
	cr_assert(region_purge_begin(region.base + region.bytes / 2, page));
	cr_assert(!region_piece(other, page, &base, &bytes), "the caller retries");
	region_purge_end();
	cr_assert(region_piece(other, page, &base, &bytes));
}
