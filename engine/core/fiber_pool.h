/* SPDX-License-Identifier: BSD-3-Clause */
/** The fibers of a shard, with their stacks. Shard thread. */
#ifndef FAR_CORE_FIBER_POOL_H
#define FAR_CORE_FIBER_POOL_H

#include "core/fiber.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Stacks begin at addresses that differ by more than a power of two, so that they do not meet in the same cache sets.
 */
#define FIBER_COLOURS      32u
#define FIBER_COLOUR_BYTES 192u

/** Shard thread. */
struct fiber_pool {
	uint32_t n, used; /* ever used: [0, used) have been made */
	uint32_t live;    /* in use now */
	size_t stack_bytes, guard_bytes;
	size_t wanted_bytes; /* of a stack; it has a few more */
	size_t bytes;        /* of this structure */
	struct fiber *free;
	struct fiber_wait *waits, *waits_free;
	uint8_t *stacks; /* n times (a guard page, a stack) */
	size_t stacks_bytes;
	struct fiber fibers[];
};

/** Reserves `n` fibers with stacks of `stack_bytes`, each behind a guard page, and gives them to the shard, once. Makes
 * system calls: not on the shard's path. */
enum far_status fiber_pool_add(struct shard *s, uint32_t n, size_t stack_bytes, struct far_err *err);
/** Frees the pool; waits that are still armed are left to their futures. */
void fiber_pool_free(struct shard *s);

/** Bytes of its stack; does the address lie in the guard page below. Async-signal-safe, on the thread that runs it. */
size_t fiber_stack_bytes(const struct fiber *fb);
bool fiber_in_guard(const struct fiber *fb, const void *address);

/** The lowest byte of the stack of fiber `i`. */
static inline uint8_t *fiber_stack_of(const struct fiber_pool *p, uint32_t i)
{
	return p->stacks + (size_t)i * (p->guard_bytes + p->stack_bytes) + p->guard_bytes;
}

#endif
