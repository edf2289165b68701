/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Pieces of the region that are registered with a device. Any thread. Their pages are pinned: returned to the system,
 * device and process would use different pages. A piece stays pinned until the process ends.
 */
#include "base/limits.h"
#include "memory/region.h"

#include <stdatomic.h>

#define PIECES (FAR_MEMORY_BYTES_MAX / FAR_MEMORY_PIECE)

static _Atomic uint64_t pinned[PIECES / 64];
static _Atomic uint32_t purging; /* threads between region_purge_begin() and region_purge_end() */

static bool is_pinned(uint64_t from, uint64_t to)
{
	for (uint64_t i = from / FAR_MEMORY_PIECE; i <= (to - 1) / FAR_MEMORY_PIECE; i++)
		if (atomic_load(&pinned[i / 64]) >> (i % 64) & 1)
			return true;
	return false;
}

/* A purge and a pin cannot both miss each other: both write, then read, in one total order (seq_cst). */
bool region_purge_begin(const void *at, uint64_t bytes)
{
	uint64_t from = (uintptr_t)at - (uintptr_t)region.base;
	atomic_fetch_add(&purging, 1);
	if (!is_pinned(from, from + bytes))
		return true;
	region_purge_end();
	return false;
}

void region_purge_end(void)
{
	atomic_fetch_sub(&purging, 1);
}

/* The committed part of [from, to), with some reserve at the growing end, and no page of the other end of the gap. */
static bool clip(uint64_t off, uint64_t len, uint64_t *from, uint64_t *to)
{
	uint64_t slabs = region_slabs(), bottom = region_bottom() << region.page_shift, step = FAR_MEMORY_PIECE / 4;
	if (off < slabs) {
		uint64_t end = (slabs + step - 1) / step * step;
		end = end < bottom ? end : bottom;
		*to = *to < end ? *to : end;
	} else {
		uint64_t begin = bottom / step * step, page = UINT64_C(1) << region.page_shift;
		uint64_t floor = (slabs + page - 1) / page * page;
		begin = begin > floor ? begin : floor;
		*from = *from > begin ? *from : begin;
	}
	return off >= *from && off + len <= *to;
}

bool region_piece(const void *at, size_t len, void **base, size_t *bytes)
{
	uint64_t all = region_reserved(), off = (uintptr_t)at - (uintptr_t)region.base;
	if (off >= all || len == 0 || len > FAR_MEMORY_PIECE_MORE || len > all - off)
		return false;
	uint64_t from = off / FAR_MEMORY_PIECE * FAR_MEMORY_PIECE, to = from + FAR_MEMORY_PIECE + FAR_MEMORY_PIECE_MORE;
	to = to < all ? to : all;
	if (!clip(off, len, &from, &to))
		return false;
	for (uint64_t i = from / FAR_MEMORY_PIECE; i <= (to - 1) / FAR_MEMORY_PIECE; i++)
		atomic_fetch_or(&pinned[i / 64], UINT64_C(1) << (i % 64));
	if (atomic_load(&purging))
		return false;
	*base = region.base + from;
	*bytes = to - from;
	return true;
}
