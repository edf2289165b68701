/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages of several packets: which one sends next (schedule.c), and how many bytes are granted (grant.c). Poller. */
#ifndef FAR_TRANSPORT_GRANT_H
#define FAR_TRANSPORT_GRANT_H

#include "base/limits.h"
#include "transport/wire.h"

#include <stdbool.h>
#include <stdint.h>

struct transport_message;
struct transport_peer;
struct transport_queue;

/** Grants of a queue for received messages of several packets, of all its peers. Times in ns. */
struct transport_grants {
	struct transport_message *first, *last; /* begun and incomplete, oldest first */
	uint32_t n;                             /* of them */
	uint32_t senders_n;                     /* peers with a message among them */
	uint32_t chosen_n;                      /* of `chosen` */
	struct transport_message
		*chosen[FAR_TRANSPORT_GRANTED_MAX]; /* the ones with the fewest bytes left, fewest first */
	uint64_t out; /* bytes granted and not arrived, of messages that are not stalled */
	bool choose;  /* `chosen` is out of date */
	bool due;     /* transport_grants_run() may have something to grant */
	/* Estimate of the path: least time from a grant to its bytes, and highest rate. */
	const struct transport_message *timed; /* message of the present sample. NULL: none */
	uint32_t timed_offset;                 /* a byte beyond it ends the sample */
	uint64_t timed_at;                     /* time of the grant */
	uint64_t rtt_ns, rtt_at;               /* least time, and when it was measured. 0: not measured */
	uint64_t rate;                         /* bytes per second; decays slowly */
	uint64_t came, came_at;                /* bytes that arrived since came_at */
};

/* ---- schedule.c ---- */

/** Selects the message of the second list that sends the next packet. NULL: none may. */
struct transport_message *transport_bulk_pick(const struct transport_peer *p);
/**
 * Returns true if the ring of the driver below, which has tx_waiting, has room for a packet of a larger message. Bytes
 * in that ring delay small messages that are sent later. So it gets as many as the wire takes until the next check: the
 * limit doubles when the ring was found empty, shrinks while it is not, and is two packets at least.
 */
bool transport_ring_room(struct transport_queue *via, uint32_t payload_max);
/** Removes a peer from the backlog, which is not empty: the first, or, of the first FAR_TRANSPORT_SCAN_MAX, the one
 * with the fewest bytes left of a message. */
struct transport_peer *transport_backlog_take(struct transport_queue *q, bool shortest);
/** Removes a message from the second list: all its packets have numbers. */
void transport_bulk_done(struct transport_peer *p, struct transport_message *m);
/** Called when the next packet is of the second list. Until it is acknowledged, packets of small messages state which
 * packets they may pass. */
void transport_bulk_numbered(struct transport_peer *p, unsigned order);
/** Returns the mark of a packet of the messages from `m` to `end` of the first list, while rings->bulk_out:
 * WIRE_UNORDERED, with its offset; or 0. */
unsigned transport_bulk_unordered(struct transport_peer *p, const struct transport_message *m,
				  const struct transport_message *end, uint32_t *offset) __attribute__((cold));
/** Returns nic_tx.priority of the unscheduled packets of a message of `len` bytes. */
uint8_t transport_bulk_priority(uint32_t len);
/** Sets the windows of a peer to what it states in packets; 0: no change. */
void transport_bulk_window(struct transport_peer *p, uint32_t packets);
/** Processes grants and window of an ACK. */
void transport_grants_receive(struct transport_queue *q, struct transport_peer *p, const struct wire_head *h,
			      const uint8_t *body, uint64_t len);

/* ---- grant.c ---- */

/** Begins a message: its first packet arrived in order, and it is not the only one. false: the peer has too many. */
bool transport_grants_begin(struct transport_queue *q, struct transport_message *m);
/** All bytes of a message below `done` have arrived in order. */
void transport_grants_progress(struct transport_queue *q, struct transport_message *m, uint32_t done);
/** Reading of an exposed message has ended: sends WIRE_READ_DONE; the rest arrives in packets. */
void transport_grants_read_done(struct transport_queue *q, struct transport_message *m);
/** Ends a message that is complete or dropped. No effect if it was not begun. */
void transport_grants_end(struct transport_queue *q, struct transport_message *m);
/** The same for all messages of a peer. */
void transport_grants_end_all(struct transport_queue *q, struct transport_peer *p);
/** Grants what may be granted now. Acknowledgements carry the grants. */
void transport_grants_run(struct transport_queue *q);
/** Timer scan: repeats the grants of a peer when no granted byte arrived for long. */
void transport_grants_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now);
/** Returns true if the peer may send granted bytes of a message. */
bool transport_grants_open(const struct transport_peer *p);
/** Return the length of an ACK's body; write the body, and `length` and `offset` of its head. */
uint32_t transport_grants_bytes(const struct transport_peer *p);
void transport_grants_write(const struct transport_queue *q, struct transport_peer *p, struct wire_head *h,
			    uint8_t *body);

#endif
