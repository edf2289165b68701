/* SPDX-License-Identifier: BSD-3-Clause */
/** Grants for received messages of several packets. Poller. */
#ifndef FAR_TRANSPORT_GRANT_H
#define FAR_TRANSPORT_GRANT_H

#include "transport/wire.h"

#include <stdbool.h>

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
/** Return the length of an ACK's body; write the body, and `unscheduled_bytes` and `window` of its head. */
uint32_t transport_grants_bytes(const struct transport_peer *p);
void transport_grants_write(const struct transport_queue *q, struct transport_peer *p, struct wire_ack *h,
			    uint8_t *body);

#endif
