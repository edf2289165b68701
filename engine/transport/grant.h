/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that come in fragments: which of them leaves (schedule.c), and what is granted (grant.c). The
 * shard's. */
#ifndef FAR_TRANSPORT_GRANT_H
#define FAR_TRANSPORT_GRANT_H

#include "base/limits.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct link_message;
struct link_peer;
struct link_queue;

/** What a queue has granted for the messages that come in fragments, of all peers. */
struct link_grants {
	struct link_message *first, *last; /* begun and not whole, oldest first */
	uint32_t n;
	uint32_t senders_n; /* peers that have some among them */
	uint32_t chosen_n;  /* the shortest first */
	struct link_message *chosen[FAR_LINK_GRANTED_MAX];
	uint64_t out; /* granted and not arrived, of those that are not stalled */
	bool choose;  /* they are to be chosen anew */
	bool due;     /* something is to be granted, perhaps */
	/* The path: how long from a grant to what came of it, at least, and how many bytes come in a second, at most.
	 */
	const struct link_message *timed; /* NULL: none is */
	uint32_t timed_offset;
	uint64_t timed_at;
	uint64_t rtt_ns, rtt_at; /* 0: not measured */
	uint64_t rate;           /* bytes per second, sinking slowly */
	uint64_t came, came_at;  /* bytes since then */
};

/* schedule.c */

/** Of the second list, the message of which a packet may leave now; NULL: none. */
struct link_message *link_bulk_pick(const struct link_peer *p);
/**
 * May a packet of a larger message, of so many bytes at most, be given to the driver below, which has tx_waiting: what
 * lies in its ring is in front of all small ones that come. As much as is on the wire before we look again: twice as
 * much when the ring was found dry, less while it is not; two packets at least.
 */
bool link_ring_room(struct link_queue *via, uint32_t payload_max);
/**
 * Takes a peer out of the backlog, which is not empty: the first, or the one with the least left of a message, among
 * the first FAR_LINK_LOOK.
 */
struct link_peer *link_backlog_take(struct link_queue *q, bool shortest);
/** All of it has packet numbers. */
void link_bulk_done(struct link_peer *p, struct link_message *m);
/** The next packet is of the second list: until it is acknowledged small ones say which packets they may pass. */
void link_bulk_note(struct link_peer *p, unsigned order);
/** Of a packet of the messages from `m` to `end` of the first list, while p->bulk_out: WIRE_LOOSE and its offset; or
 * 0, and none. */
unsigned link_bulk_loosen(struct link_peer *p, const struct link_message *m, const struct link_message *end,
			  uint32_t *offset) __attribute__((cold));
/** nic_tx.priority of the packets of a message of `len` bytes that leave unasked. */
uint8_t link_bulk_priority(uint32_t len);
/** So many packets may be unacknowledged, as the other side says; 0: it does not say. */
void link_bulk_window(struct link_peer *p, uint32_t packets);
/** What an ACK says of grants and windows. */
void link_bulk_told(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const uint8_t *body,
		    uint64_t len);

/* grant.c */

/** A message of which the first packet, and not the last, has come in turn; false: the peer has too many. */
bool link_grants_begin(struct link_queue *q, struct link_message *m);
/** All bytes of a message below `done` have come in turn. */
void link_grants_progress(struct link_queue *q, struct link_message *m, uint32_t done);
/** All bytes of an exposed message below `done` are here, and the rest is to come in packets. */
void link_grants_here(struct link_queue *q, struct link_message *m);
/** It is whole, or dropped. No effect when it was not begun. */
void link_grants_end(struct link_queue *q, struct link_message *m);
/** The same of all of a peer. */
void link_grants_end_all(struct link_queue *q, struct link_peer *p);
/** Grants what may be granted now; acknowledgements carry it. */
void link_grants_run(struct link_queue *q);
/** When nothing came of a peer's grants for long, says them again. */
void link_grants_look(struct link_queue *q, struct link_peer *p, uint64_t now);
/** Of a peer with messages that are begun: may it send some of what was granted. */
bool link_grants_open(const struct link_peer *p);
/** Bytes of the body of an ACK, and what is in it; `h` has its length and offset from this. */
uint32_t link_grants_bytes(const struct link_peer *p);
void link_grants_write(const struct link_queue *q, struct link_peer *p, struct wire_head *h, uint8_t *body);

#endif
