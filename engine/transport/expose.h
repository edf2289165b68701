/* SPDX-License-Identifier: BSD-3-Clause */
/** Sent messages that the receiver reads from this process's memory. Poller. */
#ifndef FAR_TRANSPORT_EXPOSE_H
#define FAR_TRANSPORT_EXPOSE_H

#include "transport/message.h"

struct transport_peer;
struct transport_queue;

/** Called before the first packet of a larger message. true: it waits for the driver below to expose it. */
bool transport_offer(struct transport_queue *q, struct transport_peer *p, struct transport_message *m);
/** Returns true while a message is exposed, its first packet sent or not. */
static inline bool transport_offered(const struct transport_message *m)
{
	return m->onesided && m->transfer >= TRANSPORT_TX_EXPOSED;
}

void transport_offer_write(const struct transport_queue *q, const struct transport_message *m, uint8_t *out);
/** The receiver grants packets below `offset`, or sends WIRE_READ_DONE. false: protocol error. */
bool transport_offer_granted(struct transport_queue *q, struct transport_message *m, uint32_t offset, bool here);
/** Releases the exposure of a message that ends. */
void transport_offer_end(struct transport_queue *q, struct transport_message *m);
/** Processes a bulk event of the driver below. */
void transport_receive_onesided(struct transport_queue *q, const struct nic_pkt *lp);
/** Timer scan: sends in packets what the driver below did not expose in time. */
void transport_offers_timer(struct transport_queue *q, uint64_t now);

#endif
