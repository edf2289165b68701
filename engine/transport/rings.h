/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ring sets: what a peer needs only while something is in flight. Reserved by the control thread with each connection,
 * used by the poller.
 */
#ifndef FAR_TRANSPORT_RINGS_H
#define FAR_TRANSPORT_RINGS_H

#include "transport/message.h"

/* Messages in flight of a peer, and reserved ones beside them. */
#define TRANSPORT_MESSAGES (FAR_TRANSPORT_SLOTS + 256u)

/* Lines of a lane. */
#define TRANSPORT_LINES 256u

/** Why a packet was retransmitted, as bits. 0: it was not. */
enum transport_retransmit_cause { TRANSPORT_RETRANSMIT_LOSS = 1, TRANSPORT_RETRANSMIT_TIMEOUT = 2 };

/* Retransmitted packets that arrived first as such, as the receiver remembers them. */
#define TRANSPORT_RETRANSMITTED_KEPT 16u

/** A packet that was sent and is not acknowledged, at its number modulo FAR_TRANSPORT_WINDOW. Poller. */
struct transport_sent {
	union {
		struct transport_message
			*message;      /* with `last`: the first of those in this packet, linked by `next` */
		struct nic_line *line; /* with `lines`: the first */
	};
	uint32_t offset, len; /* `offset` of a transport_sent_unordered() packet: as in WIRE_UNORDERED */
	uint32_t order;       /* of its last transmission, among all of the peer */
	bool arrived : 1;     /* ack_bits reported it */
	bool last : 1;        /* it contains the end of its message */
	uint8_t lines;        /* of the lane, that it consists of. 0: of messages */
	uint8_t priority;     /* nic_tx.priority; packets of higher priority may overtake it */
	uint8_t retransmit;   /* enum transport_retransmit_cause */
};

/** A packet that arrived out of order, at its number modulo FAR_TRANSPORT_WINDOW. Poller. */
struct transport_received {
	struct transport_message
		*message;     /* NULL: not arrived. &transport_handed_up: delivered. Of several messages the first */
	uint32_t offset, len; /* `offset` of an unordered small packet: as in WIRE_UNORDERED */
};

extern struct transport_message transport_handed_up;

/**
 * A ring set: what a peer needs only while something is in flight, that is while messages wait or are not acknowledged,
 * or received packets wait for others. Poller.
 *
 * A peer takes a set from its queue when it needs one. It gives the set back when a timer scan finds nothing in it, or
 * when another peer takes one and nothing is in the set that was taken last, or, while TRANSPORT_RINGS_FEW are taken,
 * TRANSPORT_RINGS_AGO takes before. So as many sets are touched as peers are busy at once, and a shard that calls
 * thousands of peers in turn uses a few sets that stay in its caches.
 *
 * There is one set for each connection, and the messages of one: address space reserved at set-up; used pages become
 * memory. So no peer waits for a set of another.
 */
struct transport_rings {
	struct transport_peer *peer; /* owner. NULL: free */
	/* sending */
	/* Messages without a packet number, oldest first. First list: small ones, one packet each at most. Second list:
	 * larger ones, and those that must not pass them (schedule.c). Messages with numbers are in `sent`. */
	struct transport_message *out_next, *out_last;
	struct transport_message *bulk_next, *bulk_last;
	uint32_t flying;                                   /* bytes in flight: of packets that have not arrived */
	uint32_t order;                                    /* transmissions so far */
	uint32_t order_arrived;                            /* largest `order` of a packet that arrived */
	uint32_t below_arrived[TRANSPORT_PRIORITY_URGENT]; /* [i]: the same of packets of priority i or less */
	uint32_t small_n, small_sent;                      /* messages of the first list so far: added, and numbered */
	uint64_t resend_at;   /* expiry of the retransmission timer, ns. 0: set by the next timer scan */
	uint32_t resends;     /* consecutive time-outs */
	uint32_t answers;     /* timer scans since the first of those that found something received */
	uint32_t small_bytes; /* sent of the first list since the last packet of the second, while that waits */
	uint32_t bulk_strict; /* messages of the second list that are not NIC_ORDER_NONE */
	uint32_t bulk_open;   /* messages of the second list, numbered in part */
	uint32_t bulk_turn;   /* packets of the second list so far */
	/* Valid while `bulk_out`: a packet of the second list is not acknowledged. Numbers behind the last such packet,
	 * and behind the last of those that keep an order; number of the last packet of the first list. */
	uint32_t bulk_end, strict_end, small_last;
	bool bulk_out;
	uint64_t armed_at;    /* when resend_at was set for the packets in flight, ns */
	uint64_t keep_until;  /* the set is kept until then, after a retransmission, ns. 0: none */
	uint32_t sent_first;  /* packets below this number were sent with another set */
	uint32_t probed_una;  /* valid with `probed`: `una` at the last tail loss probe */
	uint32_t probe_order; /* valid with `probe_out`: once the probe arrived, earlier transmissions that have not are
			       * lost */
	uint32_t probe_number;
	uint8_t probe_priority;
	bool probed, probe_out;
	bool probing; /* at resend_at: a tail loss probe, not yet a time-out */
	bool resent;  /* something was retransmitted since the last timer scan */
	struct transport_rtt rtt;
	struct transport_peer *next_backlog; /* queue->backlog_first */
	/* receiving */
	uint32_t grant_retransmits; /* consecutive repetitions of grants */
	uint32_t unordered_n;       /* messages with `unordered` among the early packets */
	uint32_t retransmitted[TRANSPORT_RETRANSMITTED_KEPT],
		retransmitted_n; /* numbers of packets that arrived first as RETRANSMIT */
	uint64_t grant_at;       /* when grants are repeated, ns. 0: not set */
	struct transport_message *assembling[FAR_TRANSPORT_ASSEMBLIES]; /* incomplete messages. NULL: unused entry */
	struct transport_message *held_first, **held_last;              /* complete, but the peer is not attached yet */
	struct transport_rings *next_free;
	/* The lane of the peer, lane.c. Lines: free, written and not sent (from `line_at` on), or in a packet that is
	 * not acknowledged. */
	struct nic_lane lane;
	uint32_t line_at, lines_flying;
	/* Entries of numbers that are not in flight are stale. */
	struct transport_sent sent[FAR_TRANSPORT_WINDOW];
	struct transport_received arrived[FAR_TRANSPORT_WINDOW]; /* all `message` NULL in a free set */
	struct nic_line lines[TRANSPORT_LINES];
};

/** Address space of a queue, reserved with its connections: rings and messages of TRANSPORT_SEGMENT_PEERS peers. */
struct transport_segment {
	struct transport_rings rings[TRANSPORT_SEGMENT_PEERS];
	struct transport_message messages[TRANSPORT_SEGMENT_PEERS * TRANSPORT_MESSAGES];
};

/* ---- control thread ---- */

/** Control: reserves a share of the queue's segments, until the connection ends. false: no memory. */
bool transport_rings_reserve(struct transport_queue *q, struct transport_peer *peer);
void transport_rings_unreserve(struct transport_queue *q, struct transport_peer *peer);
/** Control, close(). */
void transport_segments_free(struct transport_queue *q);

/* ---- poller ---- */

/** Returns segment `i`. NULL: not made yet. */
static inline struct transport_segment *transport_segment_at(const struct transport_queue *q, uint32_t i)
{
	return atomic_load_explicit(&((struct transport_queue *)(uintptr_t)q)->segments[i], memory_order_acquire);
}

/** Takes a ring set for a peer that has none. */
void transport_rings_take(struct transport_queue *q, struct transport_peer *p);
/** Resets the ring set of a peer whose messages were dropped. */
void transport_rings_renew(struct transport_queue *q, struct transport_peer *p);
/** Checks that a ring set is empty, as the next peer expects it. */
bool transport_rings_are_new(const struct transport_rings *r);
/** Gives the ring set back. No effect without one. */
void transport_rings_give(struct transport_queue *q, struct transport_peer *p);
/** Timer scan: gives the ring set back if nothing is in flight. false: nothing is, but it is kept until a
 * retransmission could be reported as spurious. */
bool transport_rings_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now);

/** Returns the RTT state: of the ring set, or as saved from the last one. */
static inline struct transport_rtt transport_rtt_of(const struct transport_peer *p)
{
	struct transport_rtt r = {.watch = 0};
	if (p->rings)
		return p->rings->rtt;
	rtt_resume(&r, &p->path);
	return r;
}

static inline void transport_rings_need(struct transport_queue *q, struct transport_peer *p)
{
	if (__builtin_expect(!p->rings, 0))
		transport_rings_take(q, p);
}

static inline bool transport_has_unsent(const struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	return r && (r->out_next || r->bulk_next);
}

/** Returns true for a packet of small messages (no other has their priority) with WIRE_UNORDERED. */
static inline bool transport_sent_unordered(const struct transport_sent *e)
{
	return e->priority == TRANSPORT_PRIORITY_URGENT && e->offset;
}

/** Returns the flag with which a packet was sent: WIRE_UNORDERED or 0. */
static inline unsigned transport_sent_flags(const struct transport_sent *e)
{
	if (e->priority != TRANSPORT_PRIORITY_URGENT)
		return transport_bulk_flags(e->message);
	return e->offset ? WIRE_UNORDERED : 0;
}

#endif
