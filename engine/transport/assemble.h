/* SPDX-License-Identifier: BSD-3-Clause */
/** A received packet with bytes of messages: decoding (recv.c, assemble.c), and reassembly. Poller. */
#ifndef FAR_TRANSPORT_ASSEMBLE_H
#define FAR_TRANSPORT_ASSEMBLE_H

#include "transport/recv.h"
#include "transport/wire.h"

struct transport_peer;
struct transport_queue;

/** Fields of a MESSAGE packet, copied out of it. */
struct transport_span {
	uint32_t number; /* of the packet */
	uint32_t first;  /* of the message's first packet */
	uint32_t length; /* of the message, bytes */
	uint32_t offset; /* of this packet's bytes; with WIRE_UNORDERED of small messages, see there */
	uint32_t len;    /* of this packet's bytes */
	const uint8_t *bytes;
};

/** Checks the first message of a WIRE_BATCH packet, and that others follow. transport_batch_next() checks those. */
static inline bool transport_batch_valid(const struct transport_span *f, unsigned flags)
{
	return f->number == f->first && (f->offset == 0 || flags & WIRE_UNORDERED) && f->length < f->len &&
	       f->len <= TRANSPORT_WIDE_BYTES && !(flags & WIRE_FRAGMENT);
}

/** Reads the next message of such a packet. 1: `head` is filled, and its bytes are the `len` before b->at. 0: no more.
 * -1: malformed. */
static inline int transport_batch_next(struct transport_batch *b, uint8_t *head, uint32_t *len)
{
	struct wire_sub s;
	uint32_t sub = transport_batch_sub(b->at);
	if (b->at == b->end)
		return 0;
	if (sub + sizeof s > b->end)
		return -1;
	memcpy(&s, b->bytes + sub, sizeof s);
	uint32_t length = le32_get(s.length), at = transport_batch_body(sub, length);
	if (length > b->end || at > b->end - length)
		return -1;
	memcpy(head, s.call, sizeof s.call);
	b->at = at + length;
	*len = length;
	return 1;
}

/** Computes wire_head.ack_bits. */
uint64_t transport_ack_bits(const struct transport_peer *p);
/** Processes a MESSAGE packet that cannot be delivered in place. */
void transport_reassemble(struct transport_queue *q, struct transport_peer *p, const struct wire_message *h,
			  const struct transport_span *f);
/** Ends the connection of a peer that violates the protocol. */
void transport_protocol_error(struct transport_queue *q, struct transport_peer *p);

#endif
