/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A message that is sent or received: its struct, and its memory. Poller.
 */
#ifndef FAR_TRANSPORT_MESSAGE_H
#define FAR_TRANSPORT_MESSAGE_H

#include "transport/queue.h"

struct transport_peer;

/* A message of 16 MiB and the engine's own fields. */
#define TRANSPORT_BODY_MAX     (((uint64_t)16 << 20) + 64)
#define TRANSPORT_INLINE_BYTES 128u /* bytes of a body that is stored in the message itself, without a buffer */

/* nic_tx.priority. Highest: small messages, acknowledgements and control packets. Below: unscheduled bytes of larger
 * messages, lower the longer the message. Granted bytes: as the receiver states, up to TRANSPORT_PRIORITY_GRANTED_MAX.
 */
#define TRANSPORT_PRIORITY_URGENT      NIC_PRIORITY_MAX
#define TRANSPORT_PRIORITY_GRANTED_MAX 3u

/** How the bytes of a message behind its first packet are transferred. Sent: UNDECIDED, then PACKETS, or EXPOSING,
 * EXPOSED, ANNOUNCED, ANSWERED, where each but the last may go to PACKETS. Received: PACKETS, or PACKETS, READING,
 * READ_DONE, PACKETS. */
enum transport_transfer {
	/* sent */
	TRANSPORT_TX_UNDECIDED, /* not decided yet: transport_offer() */
	TRANSPORT_TX_EXPOSING,  /* expose() of the driver below is in progress */
	TRANSPORT_TX_EXPOSED,   /* exposed; the first packet will contain the key */
	TRANSPORT_TX_ANNOUNCED, /* the first packet left; no other leaves before the receiver's grant or WIRE_READ_DONE
				 */
	TRANSPORT_TX_ANSWERED,  /* the receiver answered WIRE_READ_DONE: it has read a part, the rest leaves in packets
				 */
	TRANSPORT_TX_PACKETS,   /* in packets */
	/* received */
	TRANSPORT_RX_PACKETS = TRANSPORT_TX_UNDECIDED,
	TRANSPORT_RX_READING = TRANSPORT_TX_PACKETS + 1, /* announced, and read from the sender's memory */
	TRANSPORT_RX_READ_DONE /* reading has ended early: grants contain WIRE_READ_DONE until a packet of the message
				  arrives */
};

/** A message that is sent, stored in a segment of its queue, or received, stored in a slab. Poller. */
struct transport_message {
	struct transport_message *next; /* in whichever list it is: rings, ready, held, free, or the same packet */
	struct transport_peer *peer;
	struct far_buf *own; /* memory of this struct. NULL: a segment of the queue */
	struct far_buf *buf; /* memory of the body, one reference. NULL: the body is in `room`, or empty */
	uint8_t *body;
	uint32_t len;     /* bytes of the body */
	uint32_t done;    /* sent: bytes that have packet numbers; received: contiguous bytes that arrived */
	uint32_t first;   /* number of its first packet */
	uint32_t charged; /* bytes charged to peer->out_bytes or queue->in_bytes */
	uint32_t granted; /* packets that begin below this offset may be sent. Sent: granted to us; received: by us */
	uint8_t order;    /* sent: enum nic_order */
	uint8_t priority; /* nic_tx.priority of a larger message's next packet. Received: as granted */
	bool begun;       /* received: a packet arrived in order; the message is in queue->grants */
	bool stalled;     /* received: no granted byte arrived for long; its grants do not count */
	bool unordered;   /* received: first message of a WIRE_UNORDERED packet that waits for the one that it may not
			     pass */
	bool unordered_bulk; /* received: a larger message with WIRE_UNORDERED: it is delivered once all its bytes
				arrived */
	uint32_t after;      /* sent, larger: rings->small_n at its commit; small messages before it leave first */
	struct transport_message *in_next, *in_prev; /* received: queue->grants */
	uint32_t early;                              /* received: bytes of its packets that arrived out of order */
	/* expose.c and read.c; 0 in a message without a buffer */
	uint8_t transfer; /* enum transport_transfer */
	uint8_t onesided; /* entry + 1, sent: in queue->onesided.entry; received: in .reading. 0: none */
	bool zero_copy;   /* sent: zero-copy; `body` lies inside the memory that `buf` counts */
	bool borrowed;    /* sent: `body` is the caller's memory until tx_commit() returns, and `buf` has room for it */
	struct wire_call head;
	alignas(64) uint8_t room[TRANSPORT_INLINE_BYTES];
};
static_assert(sizeof(struct transport_message) <= 256, "one slab of the smallest class");

/** Returns the flag of a larger message's packets: WIRE_UNORDERED if they may pass those of other messages, else 0. */
static inline unsigned transport_bulk_flags(const struct transport_message *m)
{
	return m->order == NIC_ORDER_NONE ? WIRE_UNORDERED : 0;
}

/** Allocates a message to send, from the segments, so that a small one always gets memory. NULL: no memory for the
 * body.
 */
struct transport_message *transport_message_out(struct transport_queue *q, struct transport_peer *p, uint32_t len);
/** The same for zero-copy: takes a reference of `owner`. NULL: no memory. */
struct transport_message *transport_message_zero_copy(struct transport_queue *q, struct transport_peer *p,
						      const void *body, uint32_t len, struct far_buf *owner);
/** Releases the buffer of a sent message. `p` NULL: the peer is gone. */
void transport_message_out_drop(struct transport_peer *p, struct transport_message *m);
static inline void transport_message_out_free(struct transport_queue *q, struct transport_peer *p,
					      struct transport_message *m)
{
	if (__builtin_expect(m->buf != NULL, 0))
		transport_message_out_drop(p, m);
	m->next = q->out_free;
	q->out_free = m;
}

/** Allocates a message that arrives, charged to the queue. `due`: its packet is the one expected next. `begins`: head
 * of its first packet, if receive placement may be used, else NULL. NULL: over the limit, or no memory. */
struct transport_message *transport_message_in(struct transport_queue *q, struct transport_peer *p, uint32_t len,
					       bool due, const struct wire_message *begins);
/** Frees a message of either kind after its delivery. */
void transport_message_in_free(struct transport_queue *q, struct transport_message *m);
/** Frees received messages linked by `next`. NULL: no effect. */
void transport_messages_in_free(struct transport_queue *q, struct transport_message *m);
/** Frees all messages of a peer, of both directions. */
void transport_messages_drop(struct transport_queue *q, struct transport_peer *p);

#endif
