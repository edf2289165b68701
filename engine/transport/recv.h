/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Receiving: packets of the driver below, and messages for the caller. Poller.
 */
#ifndef FAR_TRANSPORT_RECV_H
#define FAR_TRANSPORT_RECV_H

#include "nic/nic.h"
#include "transport/wire.h"

struct transport_peer;
struct transport_queue;

#define TRANSPORT_BURST 32u /* packets taken from the driver below at once */

/** A packet of several messages, some not delivered yet. */
struct transport_batch {
	struct transport_peer *peer; /* NULL: no such packet */
	const uint8_t *bytes;        /* behind the struct wire_head */
	uint32_t at, end;            /* offsets in `bytes`: end of the last delivered message, end of all */
};

/** Drops the undelivered rest of queue->batch and releases its packet. */
void transport_batch_end(struct transport_queue *q);
/** Processes a MESSAGE or ACK that `via` received like one of the peer's own queue `q`, except that it is always
 * copied.
 */
void transport_receive_elsewhere(struct transport_queue *q, struct transport_queue *via, struct transport_peer *p,
				 const union wire_packet *h, const struct nic_pkt *lp);
/** Receives a burst of the driver below outside of recv(), and sends what is due to it. All messages are copied, and
 * delivered by the next recv(). Returns packets. */
unsigned transport_recv_copied(struct transport_queue *q);
unsigned transport_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void transport_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie);

#endif
