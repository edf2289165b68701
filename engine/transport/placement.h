/* SPDX-License-Identifier: BSD-3-Clause */
/** Receive placement below the transport: the driver writes the next packets of a larger message into the message.
 * Poller. */
#ifndef FAR_TRANSPORT_PLACEMENT_H
#define FAR_TRANSPORT_PLACEMENT_H

#include "transport/queue.h"

/** Notes that the next packets expected are of `m`, which is begun and in order, with `each` bytes of it each. */
static inline void transport_placement_expect(struct transport_queue *q, struct transport_message *m, uint32_t each)
{
	q->expected = m;
	q->expected_each = each;
}

/** Offers the driver below the places of these packets. Returns how many packets the recv() that follows may return;
 * `most` if it offers none. */
uint32_t transport_placement_offer(struct transport_queue *q, uint32_t most);
/** Copies the packets in lower_pkts out of their places that do not belong there. */
void transport_placement_check(struct transport_queue *q);
/** Copies the packets from lower_at on out of their places. */
void transport_placement_leave(struct transport_queue *q);

/** The message ends: nothing of it is expected any more. */
static inline void transport_placement_end(struct transport_queue *q, const struct transport_message *m)
{
	if (q->expected == m)
		q->expected = NULL;
}

/** Returns true if the bytes of a packet behind its head are in their place. */
static inline bool transport_placed(const struct transport_queue *q, const struct nic_pkt *lp)
{
	return q->placed && lp->head != lp->body;
}

#endif
