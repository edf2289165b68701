/* SPDX-License-Identifier: BSD-3-Clause */
/** The end of a connection that most files of the transport share: its state, orders and reports. The poller of its
 * queue and the control thread; each field names its writer. */
#ifndef FAR_TRANSPORT_PEER_H
#define FAR_TRANSPORT_PEER_H

#include "base/limits.h"
#include "transport/rtt.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>

struct transport_message;
struct transport_paths;
struct transport_queue;
struct transport_rings;
struct transport_setup;

#define TRANSPORT_INDEX(t) ((uint32_t)(t) % FAR_TRANSPORT_PEERS_MAX) /* of a token */

/** State of a peer, for the control thread. Connecting side: FREE, CONNECTING, UP, DOWN, CLOSING, FREE. Accepting side:
 * FREE, ACCEPTING, UP, DOWN, CLOSING, FREE; or FREE, ACCEPTING or REJECTING, CLOSING, FREE. Loopback: FREE, LOOPBACK,
 * UP, CLOSING, FREE. Every state may go to CLOSING. */
enum transport_state {
	TRANSPORT_FREE,
	TRANSPORT_CONNECTING, /* repeats CONNECT; has a deadline */
	TRANSPORT_ACCEPTING,  /* CONNECT arrived, the engine has not decided; half-open; has a deadline */
	TRANSPORT_REJECTING,  /* has one REJECT, RESET or CHALLENGE to send; half-open or stateless; has a deadline */
	TRANSPORT_LOOPBACK,   /* a queue connected to itself; UP with the next step() */
	TRANSPORT_UP,
	TRANSPORT_DOWN,   /* NIC_EVENT_DOWN was reported; waits for drop() */
	TRANSPORT_CLOSING /* until the poller has reported CLOSED */
};

/** Orders of the control thread to the poller: bits of transport_peer.due. */
enum transport_order {
	TRANSPORT_ORDER_OPEN = 1,    /* `address` is valid: attach it */
	TRANSPORT_ORDER_REROUTE = 2, /* `address` changed: attach the new one, detach the old one */
	TRANSPORT_ORDER_SETUP = 4,   /* send setup->packet */
	TRANSPORT_ORDER_START = 8,   /* the connection is established; the poller's fields are filled in */
	TRANSPORT_ORDER_ACK = 16,    /* send an ACK */
	TRANSPORT_ORDER_DEAD =
		32, /* the peer ended the connection, by a packet that another queue received: `dead_why` */
	TRANSPORT_ORDER_CLOSE = 64,     /* send CLOSE and release the peer */
	TRANSPORT_ORDER_PATHS = 128,    /* a secondary path has a new lower_peer */
	TRANSPORT_ORDER_MISROUTED = 256 /* << k, k from 1 on: answer WRONG_QUEUE to the peer's PING about its path k */
};

/** Reports of the poller to the control thread: bits of transport_peer.news. */
enum transport_report {
	TRANSPORT_REPORT_CONFIRMED = 1,     /* a packet with our token arrived */
	TRANSPORT_REPORT_REROUTED = 2,      /* address_old is detached */
	TRANSPORT_REPORT_DOWN = 4,          /* the connection failed: `why` */
	TRANSPORT_REPORT_CLOSED = 8,        /* the poller does not use the peer any more */
	TRANSPORT_REPORT_MIGRATED = 16,     /* the connection migrated to path `path_current` */
	TRANSPORT_REPORT_PATH_RELEASED = 32 /* a secondary path's `held` changed */
};

/** A peer. An idle connection has nothing else. A message uses the first two lines and the ring set; a timer scan also
 * the third. */
struct transport_peer {
	/* Poller, from TRANSPORT_ORDER_START on; control before. */
	alignas(64) uint64_t token;    /* ours, in packets that arrive */
	uint64_t remote_token;         /* the peer's, in packets that leave. 0: not known yet */
	uint64_t remote_id;            /* identity of the peer's port */
	struct transport_rings *rings; /* NULL: nothing is in flight */
	struct transport_queue *via;   /* path in use: queue whose driver below sends to lower_peer */
	uint32_t una, next;            /* packet numbers: oldest unacknowledged one; next one to assign */
	uint32_t rx_next;              /* packet number expected next; all below it arrived */
	uint32_t rx_acked;             /* rx_next as acknowledged last */
	bool started;                  /* TRANSPORT_ORDER_START was served */
	bool loop;                     /* loopback: nothing below is used */
	bool dead;                     /* nothing is sent or received any more; DOWN was reported */
	bool detached;                 /* attached once, then detached by the engine */
	bool heard;                    /* a packet arrived since the last timer scan */
	bool remote_asleep;            /* the peer's queue sleeps: kick it after sending */
	bool special; /* not confirmed, or failed over: received packets take the slow path of receive_flags() */
	bool active;  /* in queue->actives: the timer scan includes it */

	uint32_t lower_peer;   /* address handle of `via` */
	uint32_t index;        /* in port->peers and queue->peers */
	uint32_t payload_max;  /* bytes of a packet behind its head, on the path in use */
	uint16_t window;       /* packets that may be unacknowledged; */
	uint16_t window_bulk;  /* of the second list */
	uint32_t out_n;        /* messages that are sent and not acknowledged, at most FAR_TRANSPORT_SLOTS */
	uint32_t ready_n;      /* messages in queue->ready_first */
	uint32_t owed;         /* messages, or fragments of one, that arrived and were not acknowledged */
	uint32_t owed_bytes;   /* bytes of their packets */
	uint64_t ack_at;       /* when to acknowledge them, ns. 0: set by the next timer scan */
	uint32_t active_at;    /* index in queue->actives */
	uint16_t early_n;      /* packets that arrived out of order */
	bool fragments;        /* fragments of packet rx_next have arrived */
	bool attached;         /* by the engine */
	bool opened;           /* the primary path's address handle is attached */
	bool confirmed;        /* a packet with our token arrived: messages may leave */
	bool sleep_sent;       /* not in queue->awake: the last packet carried ASLEEP, or that table is full */
	bool kick;             /* in queue->kicks */
	bool backlogged;       /* in queue->backlog_first */
	bool ack_now;          /* in queue->acks */
	bool unchecked : 1;    /* no CRC on the path in use */
	bool agreed : 1;       /* both ends agreed: no CRC on the primary path */
	bool bulk : 1;         /* both ends agreed: larger messages may be exposed and read */
	bool wide : 1;         /* packets of several messages may be wide: the peer accepts them, IP fragments them */
	bool fresh : 1;        /* became active after the last timer scan */
	bool rx_elsewhere : 1; /* a packet arrived by a sibling queue since the last timer scan */
	bool wanted;           /* the next packet is an RTT sample: RTT_WANTED of the next ring set */
	uint8_t secondary;     /* bit k: secondary path k is attached */
	uint8_t ack_every;     /* an ACK is sent after so many `owed`, so that the peer's window stays open */
	uint8_t begun_n;       /* messages in rings->assembling that are begun */
	uint8_t duplicate; /* flags of the next ACK: WIRE_DUPLICATE, for packet duplicate_number, and WIRE_UNACKED. 0:
			      none */
	uint8_t pings;     /* sent since something arrived */
	uint8_t current_path; /* index of the path in use */
	bool failed_over;     /* not all packets use, or may use, the primary path; counted in queue->failed_over_n */
	uint8_t probed_paths; /* bit k: a PING left by path k */

	struct transport_queue *queue;
	struct transport_paths *paths;   /* NULL: the primary path only */
	uint64_t silent_ns;              /* time for which the poller received nothing while something was awaited */
	struct transport_saved_rtt path; /* RTT state of the last ring set */
	uint32_t unscheduled_bytes;      /* unscheduled bytes: of each message without a grant, as the peer states */
	uint32_t out_bytes;              /* of sent messages that have buffers, at most FAR_TRANSPORT_OUT_BYTES */
	uint32_t duplicate_number;
	uint32_t retransmitted_first; /* how packets below this number arrived is not known any more */
	uint8_t answered_paths;       /* bit k: the answer to that PING arrived by path k */

	/* Both. `due` and `news` are 0 while the peer is free, and are never reset: the other thread may still look at
	 * a bit of the bitmaps. */
	_Atomic uint32_t due;         /* enum transport_order. Control sets, poller clears */
	_Atomic uint32_t news;        /* enum transport_report. Poller sets, control clears */
	_Atomic int16_t why;          /* TRANSPORT_REPORT_DOWN: -errno. Poller */
	_Atomic int16_t dead_why;     /* TRANSPORT_ORDER_DEAD: -errno. Control */
	_Atomic bool setup_full;      /* setup->packet is the poller's. Control sets, poller clears */
	_Atomic uint8_t path_current; /* current_path, for control. Poller */

	/* Control. */
	uint8_t state;                 /* enum transport_state */
	uint8_t owner;                 /* number of the queue */
	uint8_t remote_queue;          /* number of the peer's queue */
	bool lower_pending;            /* connect() of the driver below is in progress */
	bool closed;                   /* CLOSING: the poller has reported CLOSED */
	bool half_open;                /* counted in port->half_open_n */
	bool stateless;                /* counted in port->stateless_n */
	bool accepted;                 /* accepting side */
	bool settled;                  /* no set-up packet is to be repeated */
	bool reserved : 1;             /* it has a share in the segments */
	bool listed : 1;               /* in port->accepted */
	uint32_t address;              /* address handle of the primary path. NIC_PEER_NONE: none */
	uint32_t address_old;          /* the one before it, until the poller reports REROUTED. NIC_PEER_NONE: none */
	uint32_t remote_packet_max;    /* largest packet that the peer receives */
	struct transport_setup *setup; /* NULL: settled */
	struct transport_paths *paths_made; /* `paths`, before the poller uses it */
	void *user;                         /* of connect() */
};
static_assert(sizeof(struct transport_peer) == 256, "an idle session is small");
static_assert(offsetof(struct transport_peer, queue) == 128, "a message looks at two lines");
static_assert(offsetof(struct transport_peer, answered_paths) == 192, "a timer scan looks at three");

/** Prefetches the lines of a peer that a message and a timer scan use. */
static inline void transport_peer_fetch(const struct transport_peer *p)
{
	for (size_t at = 0; at < 3 * 64; at += 64)
		__builtin_prefetch((const char *)p + at, 1);
}

#endif
