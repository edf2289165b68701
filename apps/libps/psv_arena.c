/* SPDX-License-Identifier: BSD-3-Clause */
/** Keeps blocks of memory for operations: a large block that returns to the system costs a page fault for each of its
 * pages when it is needed again. Any thread. */
#include "psv_arena.h"

#include <stdlib.h>

#define BYTES_MIN ((size_t)16 << 10)

void psv_arena_init(struct psv_arena *a)
{
	*a = (struct psv_arena){0};
	pthread_mutex_init(&a->lock, NULL);
}

void psv_arena_fini(struct psv_arena *a)
{
	for (unsigned i = 0; i < PSV_SPARES; i++)
		free(a->spare[i].at);
	pthread_mutex_destroy(&a->lock);
}

struct psv_block_memory psv_arena_get(struct psv_arena *a, size_t bytes)
{
	struct psv_block_memory *best = NULL, block = {0};
	pthread_mutex_lock(&a->lock);
	for (unsigned i = 0; i < PSV_SPARES; i++) {
		struct psv_block_memory *s = &a->spare[i];
		if (s->at && s->bytes >= bytes && (!best || s->bytes < best->bytes))
			best = s;
	}
	if (best) {
		block = *best;
		best->at = NULL;
	}
	pthread_mutex_unlock(&a->lock);
	if (block.at)
		return block;
	block.bytes = BYTES_MIN;
	while (block.bytes < bytes && block.bytes < PSV_SPARE_BYTES)
		block.bytes *= 2;
	if (block.bytes < bytes)
		block.bytes = (bytes + 63) & ~(size_t)63;
	block.at = aligned_alloc(64, block.bytes);
	return block;
}

void psv_arena_put(struct psv_arena *a, struct psv_block_memory block)
{
	struct psv_block_memory out = block;
	pthread_mutex_lock(&a->lock);
	/* Of all, the smallest goes. */
	for (unsigned i = 0; i < PSV_SPARES && block.at && block.bytes <= PSV_SPARE_BYTES; i++) {
		struct psv_block_memory *s = &a->spare[i];
		if (!s->at) {
			*s = out;
			out.at = NULL;
			break;
		}
		if (s->bytes < out.bytes) {
			struct psv_block_memory was = *s;
			*s = out;
			out = was;
		}
	}
	pthread_mutex_unlock(&a->lock);
	free(out.at);
}
