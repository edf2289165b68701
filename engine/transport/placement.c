/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Receive placement below the transport (nic_queue_ops.rx_place). Poller.
 *
 * While a larger message arrives in order, its next packets most likely bring its next bytes, in equal parts. The
 * driver writes them there: over bytes that have not arrived, so whatever else it writes there does no harm, and is
 * moved out before any packet of the burst is processed.
 */
#include "transport/placement.h"

#include "transport/rings.h"

/* Bytes of a packet from which on a copy costs more than the layout of a place. */
#define PLACE_BYTES_MIN 512u

uint32_t transport_placement_offer(struct transport_queue *q, uint32_t most)
{
	const struct transport_message *m = q->expected;
	if (!q->ops->rx_place || m->transfer != TRANSPORT_RX_PACKETS || m->peer->early_n ||
	    q->expected_each < PLACE_BYTES_MIN)
		return most;
	/* Packets that begin below `granted` may come. */
	uint32_t left = m->len - m->done, may = (m->granted > m->done ? m->granted - m->done : 0) + q->expected_each;
	q->placed = true;
	q->ops->rx_place(q->lower, TRANSPORT_HEAD_BYTES, m->body + m->done, left < may ? left : may, q->expected_each,
			 m->done);
	return TRANSPORT_LOWER_BURST;
}

/* Returns true if this is a packet of the expected message whose bytes belong where they lie. */
static bool belongs(const struct transport_queue *q, const struct nic_pkt *lp)
{
	const struct transport_message *m = q->expected;
	struct wire_message h;
	if (lp->body_len <= TRANSPORT_HEAD_BYTES)
		return false;
	memcpy(&h, lp->body, sizeof h);
	uint32_t offset = (uint32_t)(lp->head - m->body);
	return h.version == WIRE_VERSION && h.kind == WIRE_MESSAGE &&
	       !(h.flags & (WIRE_FRAGMENT | WIRE_MORE | WIRE_BATCH)) && h.lane_phase == 0 &&
	       le64_get(h.token) == m->peer->token && le64_get(h.incarnation) == q->id &&
	       le32_get(h.first) == m->first && le32_get(h.length) == m->len && le32_get(h.offset) == offset;
}

static void leave(struct nic_pkt *lp)
{
	if (lp->body_len > TRANSPORT_HEAD_BYTES)
		memcpy((uint8_t *)(uintptr_t)lp->body + TRANSPORT_HEAD_BYTES, lp->head,
		       lp->body_len - TRANSPORT_HEAD_BYTES);
	lp->head = lp->body;
}

void transport_placement_leave(struct transport_queue *q)
{
	for (uint32_t i = q->lower_at; i < q->lower_n; i++)
		if (transport_placed(q, &q->lower_pkts[i]))
			leave(&q->lower_pkts[i]);
}

void transport_placement_check(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->lower_n; i++)
		if (transport_placed(q, &q->lower_pkts[i]) && !belongs(q, &q->lower_pkts[i]))
			leave(&q->lower_pkts[i]);
}
