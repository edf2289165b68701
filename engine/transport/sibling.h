/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets of a connection that another queue of its shard receives. Poller. */
#ifndef FAR_TRANSPORT_SIBLING_H
#define FAR_TRANSPORT_SIBLING_H

#include "nic/nic.h"
#include "transport/wire.h"

struct transport_peer;
struct transport_queue;

/** Processes a packet that `via` received for connection `p` of `q`; both queues belong to one shard. `p` NULL: the
 * packet names no connection of `q`. */
void transport_sibling_receive(struct transport_queue *q, struct transport_queue *via, struct transport_peer *p,
			       const union wire_packet *h, const struct nic_pkt *lp);
/** Polls the siblings of a queue whose own bursts are processed. */
void transport_siblings_poll(struct transport_queue *q);

#endif
