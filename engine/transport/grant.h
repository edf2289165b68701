/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages of several packets: which one sends next (schedule.c), and how many bytes are granted (grant.c). Poller. */
#ifndef FAR_TRANSPORT_GRANT_H
#define FAR_TRANSPORT_GRANT_H

#include "base/limits.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct link_message;
struct link_peer;
struct link_queue;

/** Grants of a queue for received messages of several packets, of all its peers. Times in ns. */
struct link_grants {
	struct link_message *first, *last;                 /* begun and incomplete, oldest first */
	uint32_t n;                                        /* of them */
	uint32_t senders_n;                                /* peers with a message among them */
	uint32_t chosen_n;                                 /* of `chosen` */
	struct link_message *chosen[FAR_LINK_GRANTED_MAX]; /* the ones with the fewest bytes left, fewest first */
	uint64_t out; /* bytes granted and not arrived, of messages that are not stalled */
	bool choose;  /* `chosen` is out of date */
	bool due;     /* link_grants_run() may have something to grant */
	/* Estimate of the path: least time from a grant to its bytes, and highest rate. */
	const struct link_message *timed; /* message of the present sample. NULL: none */
	uint32_t timed_offset;            /* a byte beyond it ends the sample */
	uint64_t timed_at;                /* time of the grant */
	uint64_t rtt_ns, rtt_at;          /* least time, and when it was measured. 0: not measured */
	uint64_t rate;                    /* bytes per second; decays slowly */
	uint64_t came, came_at;           /* bytes that arrived since came_at */
};

/* ---- schedule.c ---- */

/** Selects the message of the second list that sends the next packet. NULL: none may. */
struct link_message *link_bulk_pick(const struct link_peer *p);
/**
 * Returns true if the ring of the driver below, which has tx_waiting, has room for a packet of a larger message. Bytes
 * in that ring delay small messages that are sent later. So it gets as many as the wire takes until the next check: the
 * limit doubles when the ring was found empty, shrinks while it is not, and is two packets at least.
 */
bool link_ring_room(struct link_queue *via, uint32_t payload_max);
/** Removes a peer from the backlog, which is not empty: the first, or, of the first FAR_LINK_LOOK, the one with the
 * fewest bytes left of a message. */
struct link_peer *link_backlog_take(struct link_queue *q, bool shortest);
/** Removes a message from the second list: all its packets have numbers. */
void link_bulk_done(struct link_peer *p, struct link_message *m);
/** Called when the next packet is of the second list. Until it is acknowledged, packets of small messages state which
 * packets they may pass. */
void link_bulk_note(struct link_peer *p, unsigned order);
/** Returns the mark of a packet of the messages from `m` to `end` of the first list, while rings->bulk_out: WIRE_LOOSE,
 * with its offset; or 0. */
unsigned link_bulk_loosen(struct link_peer *p, const struct link_message *m, const struct link_message *end,
			  uint32_t *offset) __attribute__((cold));
/** Returns nic_tx.priority of the unscheduled packets of a message of `len` bytes. */
uint8_t link_bulk_priority(uint32_t len);
/** Sets the windows of a peer to what it states in packets; 0: no change. */
void link_bulk_window(struct link_peer *p, uint32_t packets);
/** Processes grants and window of an ACK. */
void link_bulk_told(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const uint8_t *body,
		    uint64_t len);

/* ---- grant.c ---- */

/** Begins a message: its first packet arrived in order, and it is not the only one. false: the peer has too many. */
bool link_grants_begin(struct link_queue *q, struct link_message *m);
/** All bytes of a message below `done` have arrived in order. */
void link_grants_progress(struct link_queue *q, struct link_message *m, uint32_t done);
/** Reading of an exposed message has ended: sends WIRE_HERE; the rest arrives in packets. */
void link_grants_here(struct link_queue *q, struct link_message *m);
/** Ends a message that is complete or dropped. No effect if it was not begun. */
void link_grants_end(struct link_queue *q, struct link_message *m);
/** The same for all messages of a peer. */
void link_grants_end_all(struct link_queue *q, struct link_peer *p);
/** Grants what may be granted now. Acknowledgements carry the grants. */
void link_grants_run(struct link_queue *q);
/** Timer scan: repeats the grants of a peer when no granted byte arrived for long. */
void link_grants_look(struct link_queue *q, struct link_peer *p, uint64_t now);
/** Returns true if the peer may send granted bytes of a message. */
bool link_grants_open(const struct link_peer *p);
/** Return the length of an ACK's body; write the body, and `length` and `offset` of its head. */
uint32_t link_grants_bytes(const struct link_peer *p);
void link_grants_write(const struct link_queue *q, struct link_peer *p, struct wire_head *h, uint8_t *body);

#endif
