/* SPDX-License-Identifier: BSD-3-Clause */
/** The exception path of a queue: ARP, ND and ICMP frames from the poller to the control thread, and its replies back.
 * Two rings of one producer and one consumer. A frame that finds its ring full is dropped; the protocols retransmit. */
#ifndef FAR_NIC_DPDK_EXCEPTION_PATH_H
#define FAR_NIC_DPDK_EXCEPTION_PATH_H

#include "nic/dpdk/responder.h"

#include <stdatomic.h>

#define ASIDE_SLOTS 16u /* a power of two; a burst of unsolicited requests fills it, and the rest is dropped */

struct aside_frame {
	uint32_t len;
	uint8_t bytes[ANSWER_BYTES_MAX];
};

struct aside_ring {
	alignas(64) _Atomic uint32_t tail; /* next slot to write; partner: the consumer's load */
	alignas(64) _Atomic uint32_t head; /* next slot to read; partner: the producer's load */
	struct aside_frame frames[ASIDE_SLOTS];
};

struct aside {
	struct aside_ring in;  /* poller -> control thread */
	struct aside_ring out; /* control thread -> poller, to be sent */
	_Atomic uint32_t told; /* 1: the control thread was woken and has not read `in` yet */
};

/** Producer: the slot of the next frame; NULL: the ring is full. */
static inline struct aside_frame *aside_room(struct aside_ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == ASIDE_SLOTS)
		return NULL;
	return &r->frames[tail % ASIDE_SLOTS];
}

/** Producer: publishes the frame. */
static inline void aside_put(struct aside_ring *r)
{
	atomic_store_explicit(&r->tail, atomic_load_explicit(&r->tail, memory_order_relaxed) + 1, memory_order_release);
}

/** Consumer: the next frame, valid until aside_give(); NULL: none. */
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
