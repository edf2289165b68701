/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that are held back, in order of arrival. Poller. */
#include "nic/lossy/lossy.h"

#include <errno.h>
#include <string.h>

int lossy_slot_fill(struct lossy_queue *q, const void *bytes, size_t len, uint8_t priority)
{
	if (q->free_n == 0)
		return -1;
	int slot = q->free[--q->free_n];
	q->priority[slot] = priority;
	if (len)
		memcpy(lossy_slot(q, slot), bytes, len);
	return slot;
}

void lossy_slot_free(struct lossy_queue *q, int slot)
{
	if (slot >= 0)
		q->free[q->free_n++] = (uint16_t)slot;
}

void lossy_hold(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len, uint64_t due, uint32_t after)
{
	bool reorder = due == 0;
	if (reorder)
		due = lossy_now() + LOSSY_REORDER_NS_MAX;
	q->held[q->held_n++] = (struct lossy_held){
		.due = due, .peer = peer, .len = len, .after = after, .reorder = reorder, .slot = (uint16_t)slot};
	q->reorder_n += reorder;
	if (due < q->due)
		q->due = due;
}

int lossy_slot_send(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len)
{
	const struct nic_queue_ops *ops = q->lower->ops;
	struct nic_tx tx;
	if (atomic_load_explicit(&q->port->peers[peer].dead, memory_order_relaxed))
		return -EPIPE;
	int error = ops->tx_reserve(q->lower, peer, len, &tx);
	if (error)
		return error;
	if (q->port->head_bytes)
		memset(tx.head, 0, q->port->head_bytes);
	if (len)
		memcpy(tx.body, lossy_slot(q, slot), len);
	tx.priority = q->priority[slot];
	error = ops->tx_commit(q->lower, &tx);
	if (error) {
		ops->tx_cancel(q->lower, &tx);
		return error;
	}
	lossy_count(&q->count.tx_packets, 1);
	lossy_count(&q->count.tx_bytes, len);
	return 0;
}

/* Sends a held packet. true: it leaves the list. false: the ring below is full. */
static bool try_send(struct lossy_queue *q, struct lossy_held *h, uint64_t now)
{
	int error = lossy_slot_send(q, h->peer, h->slot, h->len);
	if (error == -EAGAIN || error == -ENOBUFS) {
		q->reorder_n -= h->reorder;
		h->reorder = false;
		h->due = (now ? now : lossy_now()) + LOSSY_AGAIN_NS;
		return false;
	}
	if (error)
		lossy_count(&q->count.tx_dropped, 1);
	return true;
}

static bool passed(const struct lossy_queue *q, const struct lossy_held *h)
{
	return h->reorder && (int32_t)(q->port->peers[h->peer].sent - h->after) >= 0;
}

bool lossy_held_send(struct lossy_queue *q, uint64_t now)
{
	uint32_t kept = 0, n = q->held_n;
	uint64_t due = UINT64_MAX;
	for (uint32_t i = 0; i < n; i++) {
		struct lossy_held *h = &q->held[i];
		if ((h->due <= now || passed(q, h)) && try_send(q, h, now)) {
			q->reorder_n -= h->reorder;
			lossy_slot_free(q, h->slot);
			continue;
		}
		due = h->due < due ? h->due : due;
		q->held[kept++] = *h;
	}
	q->held_n = kept;
	q->due = due;
	return kept != n;
}

void lossy_held_forget(struct lossy_queue *q, uint32_t peer)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < q->held_n; i++) {
		if (q->held[i].peer != peer) {
			q->held[kept++] = q->held[i];
			continue;
		}
		q->reorder_n -= q->held[i].reorder;
		lossy_slot_free(q, q->held[i].slot);
		lossy_count(&q->count.tx_dropped, 1);
	}
	q->held_n = kept;
	if (kept == 0)
		q->due = UINT64_MAX;
}
