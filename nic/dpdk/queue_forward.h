/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * From one queue of a port to another, or to itself: no device sends to itself, so these packets are copied into a ring
 * of one producer and one consumer. Made on the control core, never taken away before the port.
 */
#ifndef NIC_DPDK_QUEUE_FORWARD_H
#define NIC_DPDK_QUEUE_FORWARD_H

#include <stdalign.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>

#define LOOP_SLOTS 256u /* a power of two */

struct loop {
	alignas(64) _Atomic uint32_t tail; /* next to be written; partner: the consumer's load */
	alignas(64) _Atomic uint32_t head; /* next to be read; partner: the producer's load */
	uint32_t held;                     /* slots that the last burst was read from: the consumer's */
	uint32_t slot_bytes;               /* a multiple of 64 */
	uint32_t body_at;                  /* in a slot, which begins with the length */
	alignas(64) uint8_t slots[];
};

static inline uint32_t loop_room(const struct loop *l)
{
	return LOOP_SLOTS - (atomic_load_explicit(&l->tail, memory_order_relaxed) -
			     atomic_load_explicit(&l->head, memory_order_acquire));
}

static inline uint8_t *loop_slot(struct loop *l, uint32_t i)
{
	return l->slots + (size_t)(i % LOOP_SLOTS) * l->slot_bytes;
}

/** Producer; there is room. */
static inline void loop_put(struct loop *l, const uint8_t *body, uint32_t len)
{
	uint32_t tail = atomic_load_explicit(&l->tail, memory_order_relaxed);
	uint8_t *slot = loop_slot(l, tail);
	memcpy(slot, &len, sizeof len);
	memcpy(slot + l->body_at, body, len);
	atomic_store_explicit(&l->tail, tail + 1, memory_order_release);
}

/** Consumer: gives back what the last burst was read from. */
static inline void loop_give(struct loop *l)
{
	if (l->held)
		atomic_store_explicit(&l->head, atomic_load_explicit(&l->head, memory_order_relaxed) + l->held,
				      memory_order_release);
	l->held = 0;
}

/** Consumer: the next body, or NULL; it stays until loop_give(). */
static inline const uint8_t *loop_next(struct loop *l, uint32_t *len)
{
	uint32_t at = atomic_load_explicit(&l->head, memory_order_relaxed) + l->held;
	if (at == atomic_load_explicit(&l->tail, memory_order_acquire))
		return NULL;
	const uint8_t *slot = loop_slot(l, at);
	memcpy(len, slot, sizeof *len);
	l->held++;
	return slot + l->body_at;
}

#endif
