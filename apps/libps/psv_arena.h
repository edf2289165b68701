/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory of operations: blocks that a service keeps for the next operations. Any thread. */
#ifndef PSV_ARENA_H
#define PSV_ARENA_H

#include <pthread.h>
#include <stddef.h>

#define PSV_SPARES      8u
#define PSV_SPARE_BYTES ((size_t)4 << 20) /* of the largest block that is kept */

struct psv_block_memory {
	void *at; /* NULL: none */
	size_t bytes;
};

/** Blocks for the next operations. */
struct psv_arena {
	pthread_mutex_t lock;
	struct psv_block_memory spare[PSV_SPARES];
};

void psv_arena_init(struct psv_arena *a);
void psv_arena_fini(struct psv_arena *a);

/** A block of at least so many bytes, aligned to 64, with undefined contents. `at` NULL: no memory. */
struct psv_block_memory psv_arena_get(struct psv_arena *a, size_t bytes);
/** Takes a block back; `at` may be NULL. */
void psv_arena_put(struct psv_arena *a, struct psv_block_memory block);

/** The next part of a block, aligned to 64: moves *at behind it. */
static inline void *psv_arena_part(char **at, size_t bytes)
{
	void *part = *at;
	*at += (bytes + 63) & ~(size_t)63;
	return part;
}

#endif
