/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Frames that go aside from a queue to the control core, and its answers back: two rings of one producer and one
 * consumer. What finds its ring full is dropped: who asks does so again.
 */
#ifndef FAR_NIC_DPDK_EXCEPTION_PATH_H
#define FAR_NIC_DPDK_EXCEPTION_PATH_H

#include "nic/dpdk/responder.h"

#include <stdatomic.h>

#define ASIDE_SLOTS 16u /* a power of two; a burst of strangers' questions fills it, and is forgotten */

struct aside_frame {
	uint32_t len;
	uint8_t bytes[ANSWER_BYTES_MAX];
};

struct aside_ring {
	alignas(64) _Atomic uint32_t tail; /* next to be written; partner: the consumer's load */
	alignas(64) _Atomic uint32_t head; /* next to be read; partner: the producer's load */
	struct aside_frame frames[ASIDE_SLOTS];
};

struct aside {
	struct aside_ring in;  /* from the queue */
	struct aside_ring out; /* to be sent by it */
	_Atomic uint32_t told; /* the control core was woken, and has not looked yet */
};

/** Producer: where the next frame goes, or NULL: the ring is full. */
static inline struct aside_frame *aside_room(struct aside_ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == ASIDE_SLOTS)
		return NULL;
	return &r->frames[tail % ASIDE_SLOTS];
}

/** Producer: it has been written. */
static inline void aside_put(struct aside_ring *r)
{
	atomic_store_explicit(&r->tail, atomic_load_explicit(&r->tail, memory_order_relaxed) + 1, memory_order_release);
}

/** Consumer: the next frame, which stays until aside_give(), or NULL. */
static inline const struct aside_frame *aside_next(struct aside_ring *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	if (head == atomic_load_explicit(&r->tail, memory_order_acquire))
		return NULL;
	return &r->frames[head % ASIDE_SLOTS];
}

static inline void aside_give(struct aside_ring *r)
{
	atomic_store_explicit(&r->head, atomic_load_explicit(&r->head, memory_order_relaxed) + 1, memory_order_release);
}

#endif
