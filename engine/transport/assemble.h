/* SPDX-License-Identifier: BSD-3-Clause */
/** A received packet with bytes of messages: decoding (recv.c, assemble.c), and reassembly. Poller. */
#ifndef FAR_TRANSPORT_ASSEMBLE_H
#define FAR_TRANSPORT_ASSEMBLE_H

#include "transport/port.h"

#include <string.h>

/** Fields of a MESSAGE packet, copied out of it. */
struct link_fragment {
	uint32_t number; /* of the packet */
	uint32_t first;  /* of the message's first packet */
	uint32_t length; /* of the message, bytes */
	uint32_t offset; /* of this packet's bytes; with WIRE_LOOSE of small messages, see there */
	uint32_t len;    /* of this packet's bytes */
	const uint8_t *bytes;
};

/** Converts the call header to that of nic.h. */
static inline void link_head_read(const struct wire_head *h, struct shm_head *out)
{
	uint64_t time = be64_get(h->time);
	out->type = h->type;
	out->flags = h->flags;
	out->fn = be16_get(h->fn);
	out->call = be32_get(h->call);
	out->gen = be32_get(h->gen);
	out->tlv_bytes = be32_get(h->tlv_bytes);
	out->time_low = (uint32_t)time;
	out->time_high = (uint32_t)(time >> 32);
	out->reserved = be32_get(h->reserved);
}

/** Checks the first message of a WIRE_BATCH packet, and that others follow. link_batch_next() checks those. */
static inline bool link_batch_sane(const struct link_fragment *f, unsigned marks)
{
	return f->number == f->first && (f->offset == 0 || marks & WIRE_LOOSE) && f->length < f->len &&
	       f->len <= LINK_BATCH_BYTES && !(marks & WIRE_PIECE);
}

/** Reads the next message of such a packet. 1: `head` is filled, and its bytes are the `len` before b->at. 0: no more.
 * -1: malformed. */
static inline int link_batch_next(struct link_batch *b, struct shm_head *head, uint32_t *len)
{
	struct wire_sub s;
	uint32_t sub = link_batch_sub(b->at);
	if (b->at == b->end)
		return 0;
	if (sub + sizeof s > b->end)
		return -1;
	memcpy(&s, b->bytes + sub, sizeof s);
	uint32_t length = be32_get(s.length), at = link_batch_body(sub, length);
	if (length > b->end || at > b->end - length)
		return -1;
	uint64_t time = be64_get(s.time);
	head->type = s.type;
	head->flags = s.flags;
	head->fn = be16_get(s.fn);
	head->call = be32_get(s.call);
	head->gen = be32_get(s.gen);
	head->tlv_bytes = be32_get(s.tlv_bytes);
	head->time_low = (uint32_t)time;
	head->time_high = (uint32_t)(time >> 32);
	head->reserved = be32_get(s.reserved);
	b->at = at + length;
	*len = length;
	return 1;
}

/* ---- assemble.c ---- */

/** Processes a MESSAGE packet that cannot be delivered in place. */
void link_assemble(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct link_fragment *f);
/** Ends the connection of a peer that violates the protocol. */
void link_broken(struct link_queue *q, struct link_peer *p);

#endif
