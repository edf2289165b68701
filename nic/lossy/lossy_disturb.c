/* SPDX-License-Identifier: BSD-3-Clause */
/** Disturbance of sent packets: loss, duplicates, damage, delay, reordering. Each copy of a duplicated packet has draws
 * of its own. Poller. */
#include "nic/lossy/lossy.h"

#include <errno.h>

#define FLIPS_MAX 8u

/* splitmix64 (Steele, Lea, Flood 2014): any seed is good. Each queue has its own. */
static uint64_t draw(struct lossy_queue *q)
{
	uint64_t x = q->random += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static bool happens(struct lossy_queue *q, uint64_t chance)
{
	return chance && (uint32_t)draw(q) < chance;
}

/* Returns a number in [0, n), n below 2^32. */
static uint64_t below(struct lossy_queue *q, uint64_t n)
{
	return ((draw(q) >> 32) * n) >> 32;
}

/* Damages a packet and returns its new length: cuts its end in a quarter of all cases, flips bits in the others. */
static uint32_t damage(struct lossy_queue *q, uint8_t *body, uint64_t len)
{
	if (len == 0 || !happens(q, q->port->args.corrupt))
		return (uint32_t)len;
	if (below(q, 4) == 0)
		return (uint32_t)below(q, len);
	uint64_t first = below(q, len * 8);
	body[first / 8] ^= (uint8_t)(1u << first % 8);
	/* Not the same bit again: the packet would be intact. */
	for (uint64_t flips = below(q, FLIPS_MAX); flips && len > 1; flips--) {
		uint64_t bit = below(q, len * 8);
		if (bit / 8 != first / 8)
			body[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	return (uint32_t)len;
}

/* Holds the slot back by chance. true: it did. */
static bool held_back(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len, bool delay, bool reorder)
{
	const struct lossy_args *args = &q->port->args;
	if (delay) {
		/* Delays beyond 2^32 ns have a granularity of some ns. */
		uint64_t ns = (args->delay_ns >> 4 ? below(q, args->delay_ns >> 4) << 4 : 0) + 1;
		lossy_hold(q, peer, slot, len, lossy_now() + ns, 0);
	} else if (reorder) {
		uint32_t by = (uint32_t)below(q, args->reorder_by) + 1;
		lossy_hold(q, peer, slot, len, 0, q->port->peers[peer].sent + 1 + by);
	}
	return delay || reorder;
}

/* Sends the packet in the caller's room below, damaged or not, or holds it back. */
static int send_first(struct lossy_queue *q, struct nic_tx *tx)
{
	const struct nic_queue_ops *ops = q->lower->ops;
	uint32_t len = damage(q, tx->body, tx->body_len);
	bool delay = happens(q, q->port->args.delay);
	bool reorder = happens(q, q->port->args.reorder);
	int slot = delay || reorder || len < tx->body_len ? lossy_slot_fill(q, tx->body, len, tx->priority) : -1;
	if (slot < 0) {
		int error = ops->tx_commit(q->lower, tx);
		if (!error) {
			lossy_count(&q->count.tx_packets, 1);
			lossy_count(&q->count.tx_bytes, tx->body_len);
		}
		return error;
	}
	ops->tx_cancel(q->lower, tx);
	if (held_back(q, tx->peer, slot, len, delay, reorder))
		return 0;
	if (lossy_slot_send(q, tx->peer, slot, len))
		lossy_count(&q->count.tx_dropped, 1);
	lossy_slot_free(q, slot);
	return 0;
}

/* Sends the second copy; without room there is none. */
static void send_second(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len)
{
	len = damage(q, lossy_slot(q, slot), len);
	bool delay = happens(q, q->port->args.delay);
	if (held_back(q, peer, slot, len, delay, happens(q, q->port->args.reorder)))
		return;
	(void)lossy_slot_send(q, peer, slot, len);
	lossy_slot_free(q, slot);
}

int lossy_disturb(struct lossy_queue *q, struct nic_tx *tx)
{
	const struct lossy_args *args = &q->port->args;
	uint32_t peer = tx->peer;
	if (happens(q, args->drop)) {
		q->lower->ops->tx_cancel(q->lower, tx);
		lossy_count(&q->count.tx_dropped, 1);
	} else {
		uint32_t len = (uint32_t)tx->body_len;
		int copy = happens(q, args->duplicate) ? lossy_slot_fill(q, tx->body, len, tx->priority) : -1;
		int error = send_first(q, tx);
		if (error) {
			lossy_slot_free(q, copy);
			return error;
		}
		if (copy >= 0)
			send_second(q, peer, copy, len);
	}
	q->port->peers[peer].sent++;
	if (q->reorder_n)
		lossy_held_send(q, 0);
	return 0;
}
