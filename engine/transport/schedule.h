/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages of several packets at the sender: which one sends next, and grants received. Poller. */
#ifndef FAR_TRANSPORT_SCHEDULE_H
#define FAR_TRANSPORT_SCHEDULE_H

#include "transport/port.h"
#include "transport/queue.h"
#include "transport/wire.h"

struct transport_message;
struct transport_queue;

/** Selects the message of the second list that sends the next packet. NULL: none may. */
struct transport_message *transport_bulk_pick(const struct transport_peer *p);
/** Removes a message from the second list: all its packets have numbers. */
void transport_bulk_done(struct transport_peer *p, struct transport_message *m);
/** Called when the next packet is of the second list. Until it is acknowledged, packets of small messages state which
 * packets they may pass. */
void transport_bulk_numbered(struct transport_peer *p, unsigned order);
/** Returns the flag of a packet of the messages from `m` to `end` of the first list, while rings->bulk_out:
 * WIRE_UNORDERED, with its offset; or 0. */
unsigned transport_bulk_unordered(struct transport_peer *p, const struct transport_message *m,
				  const struct transport_message *end, uint32_t *offset) __attribute__((cold));
/** Returns nic_tx.priority of the unscheduled packets of a message of `len` bytes. */
uint8_t transport_bulk_priority(uint32_t len);
/** Sets the windows of a peer to what it states in packets; 0: no change. */
void transport_bulk_window(struct transport_peer *p, uint32_t packets);
/**
 * Returns true if the ring of the driver below, which has tx_waiting, has room for a packet of a larger message. Bytes
 * in that ring delay small messages that are sent later. So it gets as many as the wire takes until the next check: the
 * limit doubles when the ring was found empty, shrinks while it is not, and is two packets at least.
 */
bool transport_ring_room(struct transport_queue *via, uint32_t payload_max);
/** Removes a peer from the backlog, which is not empty: the first, or, of the first FAR_TRANSPORT_SCAN_MAX, the one
 * with the fewest bytes left of a message. */
struct transport_peer *transport_backlog_take(struct transport_queue *q, bool shortest);
/** Processes grants and window of an ACK. */
void transport_grants_receive(struct transport_queue *q, struct transport_peer *p, const struct wire_ack *h,
			      const uint8_t *body, uint64_t len);
/** Resets the unscheduled bytes: what the peer stated is too old. */
static inline void transport_unscheduled_reset(struct transport_peer *p)
{
	p->unscheduled_bytes = p->via->port->lower_caps.pair_rings ? FAR_TRANSPORT_UNSCHEDULED_BYTES_MAX
								   : FAR_TRANSPORT_UNSCHEDULED_BYTES;
}

#endif
