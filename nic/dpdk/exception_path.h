/* SPDX-License-Identifier: BSD-3-Clause */
/** The exception path of a queue: ARP, ND and ICMP frames from the poller to the control thread, and its replies back.
 * Two rings of one producer and one consumer. A frame that finds its ring full is dropped; the protocols retransmit. */
#ifndef FAR_NIC_DPDK_EXCEPTION_PATH_H
#define FAR_NIC_DPDK_EXCEPTION_PATH_H

#include "nic/dpdk/responder.h"

#include <stdatomic.h>

#define EXCEPTION_SLOTS 16u /* a power of two; a burst of unsolicited requests fills it, and the rest is dropped */

/** A received frame that is for the control thread, or its reply. */
struct exception_frame {
	uint32_t len;
	uint8_t bytes[CONTROL_FRAME_BYTES_MAX];
};

struct exception_ring {
	alignas(64) _Atomic uint32_t tail; /* next slot to write; partner: the consumer's load */
	alignas(64) _Atomic uint32_t head; /* next slot to read; partner: the producer's load */
	struct exception_frame frames[EXCEPTION_SLOTS];
};

struct exception_path {
	struct exception_ring in;  /* poller -> control thread */
	struct exception_ring out; /* control thread -> poller, to be sent */
	_Atomic uint32_t notified; /* 1: the control thread was woken and has not read `in` yet */
};

/** Producer: the slot of the next frame; NULL: the ring is full. */
static inline struct exception_frame *exception_room(struct exception_ring *r)
{
	uint32_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
	if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == EXCEPTION_SLOTS)
		return NULL;
	return &r->frames[tail % EXCEPTION_SLOTS];
}

/** Producer: publishes the frame. */
static inline void exception_put(struct exception_ring *r)
{
	atomic_store_explicit(&r->tail, atomic_load_explicit(&r->tail, memory_order_relaxed) + 1, memory_order_release);
}

/** Consumer: the next frame, valid until exception_release(); NULL: none. */
static inline const struct exception_frame *exception_next(struct exception_ring *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	if (head == atomic_load_explicit(&r->tail, memory_order_acquire))
		return NULL;
	return &r->frames[head % EXCEPTION_SLOTS];
}

static inline void exception_release(struct exception_ring *r)
{
	atomic_store_explicit(&r->head, atomic_load_explicit(&r->head, memory_order_relaxed) + 1, memory_order_release);
}

#endif
