/* SPDX-License-Identifier: BSD-3-Clause */
/** Sending: messages, acknowledgements, the backlog. Poller. */
#ifndef FAR_TRANSPORT_SEND_H
#define FAR_TRANSPORT_SEND_H

#include "nic/nic.h"

struct transport_message;
struct transport_peer;
struct transport_queue;
struct transport_sent;

/** Queues a message. Takes ownership. */
void transport_send(struct transport_queue *q, struct transport_peer *p, struct transport_message *m);
void transport_flush(struct nic_queue *nq);
/** Adds a peer with unsent messages to the backlog. No effect while it may not send. */
void transport_backlog_add(struct transport_queue *q, struct transport_peer *p);

/** Retransmit packet `number` unchanged, or a fragment: `len` of its bytes from `at` on. 0 or -errno of the driver
 * below; -EMSGSIZE also if the packet is larger than the path MTU now. */
int transport_put_retransmit(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			     uint32_t number);
int transport_put_fragment(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			   uint32_t number, uint32_t at, uint32_t len);

/** A peer that is sent a packet without ASLEEP takes this queue for awake. */
void transport_awake_add(struct transport_queue *q, struct transport_peer *p);

/** Sends an ACK. 0 or -errno of the driver below. */
int transport_send_ack(struct transport_queue *q, struct transport_peer *p);
/** Sends the ACK that answers a PING with this `path`. */
void transport_send_answer(struct transport_queue *q, struct transport_peer *p, uint32_t path);
/** Sends an ACK at the end of the current recv() or timer scan. */
void transport_ack_soon(struct transport_queue *q, struct transport_peer *p);
void transport_send_acks(struct transport_queue *q);

#endif
