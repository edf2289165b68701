/* SPDX-License-Identifier: BSD-3-Clause */
/** Rings that carry packets from one queue of a port to another, or to itself: devices do not loop frames back, and a
 * ring may deliver packets of another queue. One producer and one consumer, both pollers; the packet is copied. The
 * control thread creates a ring; it exists as long as the port. */
#ifndef NIC_DPDK_QUEUE_FORWARD_H
#define NIC_DPDK_QUEUE_FORWARD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define FORWARD_SLOTS 256u /* a power of two */

struct forward_ring {
	alignas(64) _Atomic uint32_t tail; /* next slot to write; partner: the consumer's load */
	alignas(64) _Atomic uint32_t head; /* next slot to read; partner: the producer's load */
	uint32_t held;                     /* slots that the last burst was read from; the consumer's */
	uint32_t slot_bytes;               /* a multiple of 64 */
	uint32_t body_at;                  /* offset of the body in a slot; a slot begins with the length */
	alignas(64) uint8_t slots[];
};

static inline uint32_t forward_room(const struct forward_ring *l)
{
	return FORWARD_SLOTS - (atomic_load_explicit(&l->tail, memory_order_relaxed) -
				atomic_load_explicit(&l->head, memory_order_acquire));
}

static inline uint8_t *forward_slot(struct forward_ring *l, uint32_t i)
{
	return l->slots + (size_t)(i % FORWARD_SLOTS) * l->slot_bytes;
}

/** Producer: copies a body in. The caller has checked forward_room(). */
static inline void forward_put(struct forward_ring *l, const uint8_t *body, uint32_t len)
{
	uint32_t tail = atomic_load_explicit(&l->tail, memory_order_relaxed);
	uint8_t *slot = forward_slot(l, tail);
	memcpy(slot, &len, sizeof len);
	memcpy(slot + l->body_at, body, len);
	atomic_store_explicit(&l->tail, tail + 1, memory_order_release);
}

/** Consumer: releases the slots of the last burst. */
static inline void forward_release(struct forward_ring *l)
{
	if (l->held)
		atomic_store_explicit(&l->head, atomic_load_explicit(&l->head, memory_order_relaxed) + l->held,
				      memory_order_release);
	l->held = 0;
}

/** Consumer: the next body, valid until forward_release(); NULL: none. */
static inline const uint8_t *forward_next(struct forward_ring *l, uint32_t *len)
{
	uint32_t at = atomic_load_explicit(&l->head, memory_order_relaxed) + l->held;
	if (at == atomic_load_explicit(&l->tail, memory_order_acquire))
		return NULL;
	const uint8_t *slot = forward_slot(l, at);
	memcpy(len, slot, sizeof *len);
	l->held++;
	return slot + l->body_at;
}

#endif
