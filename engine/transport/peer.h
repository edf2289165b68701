/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A peer: one end of a connection of one queue, and what belongs to it: messages, ring sets, paths, set-up. The
 * control thread and the poller use it.
 *
 * The control thread sets a peer up and takes it down. The poller (the thread that holds the shard of the queue) sends
 * and receives all packets, those of the set-up too. They share no lock: the control thread posts orders (`due`), the
 * poller reports (`news`), as bits of the peer below three levels of bitmaps, so that none is lost and none needs room.
 * Set-up packets that arrive go to the control thread through a ring (mail.c). When it is full they are dropped; their
 * sender repeats them.
 *
 * Comments name the writer of a field: "poller", "control", or both with the atomic that orders them. A peer's index
 * and 49 random bits are its token: the other end puts it into every packet.
 */
#ifndef FAR_TRANSPORT_PEER_H
#define FAR_TRANSPORT_PEER_H

#include "base/limits.h"
#include "memory/buf.h"
#include "transport/grant.h"
#include "transport/mail.h"
#include "transport/rtt.h"
#include "transport/transport.h"
#include "transport/wire.h"

#define TRANSPORT_HEAD_BYTES ((uint32_t)sizeof(struct wire_head))
/* A message of 16 MiB and the engine's own fields. */
#define TRANSPORT_BODY_MAX     (((uint64_t)16 << 20) + 64)
#define TRANSPORT_INLINE_BYTES 128u /* bytes of a body that is stored in the message itself, without a buffer */
/* The last bytes of a message that is read come in a packet: its arrival completes the message. */
#define TRANSPORT_TAIL_BYTES 64u
#define TRANSPORT_BURST      32u /* packets taken from the driver below at once */
#define TRANSPORT_BITMAP     64u /* packets behind `ack` that wire_head.ack_bits covers */
#define TRANSPORT_ID_BYTES   8u  /* of the port's identity, at the end of its address */
/* A port's identity is random, except for its last four bits: the number of its queues - 1. */
#define TRANSPORT_ID_QUEUES(id) ((uint32_t)(id) % 16 + 1)
#define TRANSPORT_INDEX(t)      ((uint32_t)(t) % FAR_TRANSPORT_PEERS_MAX) /* of a token */
/* Smallest packet limit of a driver below: the longest set-up packet fits. */
#define TRANSPORT_PACKET_MIN TRANSPORT_MAIL_BYTES
/* Room for misaligned bodies of a burst. What does not fit gets a buffer. */
#define TRANSPORT_SCRATCH_BYTES 65536u
/* Bytes behind the head of a packet of several messages. No path MTU is smaller, so such packets are never fragmented.
 */
#define TRANSPORT_BATCH_BYTES FAR_TRANSPORT_MTU_MIN

/* nic_tx.priority. Highest: small messages, acknowledgements and control packets. Below: unscheduled bytes of larger
 * messages, lower the longer the message. Granted bytes: as the receiver states, up to TRANSPORT_PRIORITY_GRANTED_MAX.
 */
#define TRANSPORT_PRIORITY_URGENT      NIC_PRIORITY_MAX
#define TRANSPORT_PRIORITY_GRANTED_MAX 3u

/* Peers are allocated in slabs of so many: a page. */
#define TRANSPORT_SLAB_PEERS 16u
/* Messages in flight of a peer, and reserved ones beside them. */
#define TRANSPORT_MESSAGES (FAR_TRANSPORT_SLOTS + 256u)
/* Connections per segment: a queue reserves some 2.6 MiB of address space at once. */
#define TRANSPORT_SEGMENT_PEERS 8u

struct transport_peer;

/** How the bytes of a message behind its first packet are transferred. Sent: OUT_NEW, then OUT_PLAIN, or OUT_WAITS,
 * OUT_EXPOSED, OUT_ANNOUNCED, OUT_TOLD, where each but the last may go to OUT_PLAIN. Received: IN_PLAIN, or IN_PLAIN,
 * IN_READ, IN_HERE, IN_PLAIN. */
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
	bool lent;        /* sent: zero-copy; `body` lies inside the memory that `buf` counts */
	struct shm_head head;
	alignas(64) uint8_t room[TRANSPORT_INLINE_BYTES];
};
static_assert(sizeof(struct transport_message) <= 256, "one slab of the smallest class");

/** Why a packet was retransmitted, as bits. 0: it was not. */
enum transport_retransmit_cause { TRANSPORT_RETRANSMIT_LOSS = 1, TRANSPORT_RETRANSMIT_TIMEOUT = 2 };

/* Retransmitted packets that arrived first as such, as the receiver remembers them. */
#define TRANSPORT_RETRANSMITTED_KEPT 16u

/** A packet that was sent and is not acknowledged, at its number modulo FAR_TRANSPORT_WINDOW. Poller. */
struct transport_sent {
	struct transport_message *message; /* with `last`: the first of those in this packet, linked by `next` */
	uint32_t offset, len;              /* `offset` of a transport_sent_unordered() packet: as in WIRE_UNORDERED */
	uint32_t order;                    /* of its last transmission, among all of the peer */
	bool arrived;                      /* ack_bits reported it */
	bool last;                         /* it contains the end of its message */
	uint8_t priority;                  /* nic_tx.priority; packets of higher priority may overtake it */
	uint8_t retransmit;                /* enum transport_retransmit_cause */
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
 * when the next peer needs one and this was the last set taken. So as many sets are touched as peers are busy at once,
 * and a shard that polls its peers in turn uses a few sets that stay in its caches.
 *
 * There is one set for each connection, and the messages of one: address space reserved at set-up, of which used pages
 * become memory. So no peer waits for a set of another.
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
	/* Entries of numbers that are not in flight are stale. */
	struct transport_sent sent[FAR_TRANSPORT_WINDOW];
	struct transport_received arrived[FAR_TRANSPORT_WINDOW]; /* all `message` NULL in a free set */
};

/** Address space of a queue, reserved with its connections. */
struct transport_segment {
	struct transport_rings rings[TRANSPORT_SEGMENT_PEERS];
	struct transport_message messages[TRANSPORT_SEGMENT_PEERS * TRANSPORT_MESSAGES];
};

/** State of a peer, for the control thread. Connecting side: FREE, CONNECTING, UP, DOWN, CLOSING, FREE. Accepting side:
 * FREE, ACCEPTING, UP, DOWN, CLOSING, FREE; or FREE, ACCEPTING or REFUSING, CLOSING, FREE. Loopback: FREE, LOOPING, UP,
 * CLOSING, FREE. Every state may go to CLOSING. */
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

/** A path to a peer as the poller uses it (path.c): an address handle of the driver below a queue. Path 0 is the
 * primary path. The others lead through queues of the agent's other ports that the same shard holds. Poller. */
struct transport_path {
	struct transport_queue *via;
	uint32_t lower_peer; /* address handle */
	bool attached;
	bool probed; /* a PING has been sent to find out which queue its flow reaches */
};

/** A secondary path as the control thread sets it up. Control, except `held`. */
struct transport_path_setup {
	struct transport_peer *peer;
	struct transport_port *port;  /* NULL: unused */
	uint32_t number;              /* `name` of transport_path_add() */
	bool pending;                 /* connect() of the driver below `port` is in progress */
	uint32_t flow;                /* of lower_peer: NIC_ROUTE */
	uint32_t replaced;            /* address handle before it, until the poller releases it. NIC_PEER_NONE: none */
	struct nic_addr addr;         /* for the driver below `port` */
	uint8_t to[AUTH_PROOF_BYTES]; /* transport_auth_address() of it */
	_Atomic uint32_t lower_peer;  /* address handle. NIC_PEER_NONE: not made yet */
	_Atomic uint32_t held;        /* poller: the address handle that it uses */
};

/** All paths of a peer. Made with the first secondary one; freed with the connection. */
struct transport_paths {
	/* Poller. */
	struct transport_path path[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	uint64_t decide_at; /* end of a probe of all paths, ns; valid while peer->probed_paths is not 0 */
	uint64_t ask_at;    /* no probe before, after a packet arrived by another path than ours, ns */
	uint64_t back_at;   /* no probe of better paths before, ns */
	/* Control. Entry 0 is not used. */
	struct transport_path_setup setup[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	/* Number of the last PING about path k that has no WRONG_QUEUE answer. 0: none. Poller sets, control clears. */
	_Atomic uint32_t probe[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
	/* Number of the peer's PING to be answered WRONG_QUEUE: DUE_ASTRAY. Control writes, poller reads. */
	_Atomic uint32_t misrouted[1 + FAR_TRANSPORT_SECONDARY_PATHS_MAX];
};

/** What binds a set-up packet to its connect request. */
struct transport_proofs {
	uint8_t nonce[AUTH_NONCE_BYTES];
	uint8_t proof[AUTH_PROOF_BYTES];
	uint64_t issued; /* time of the cookie in `proof`, ns of the acceptor's clock */
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** What authenticates the control packets of a connection. In a table beside the peers, since no message uses it. */
struct transport_secret {
	/* Control, before DUE_START. */
	struct auth_key key;          /* of the session */
	uint8_t to[AUTH_PROOF_BYTES]; /* transport_auth_address() of the primary path */
	uint64_t issued;              /* no cookie for this peer is newer: transport_refused_keep() */
	/* Poller. */
	uint64_t heard_bits;    /* bit i: PING number heard - i has arrived */
	uint32_t heard;         /* highest number of a PING that arrived */
	_Atomic uint32_t pings; /* number of the last PING sent; control reads it */
};
static_assert(sizeof(struct transport_secret) == 72, "an idle session is small");

/** Set-up of a connection, until it is settled. Control, except `packet`. */
struct transport_setup {
	struct transport_path_setup primary;      /* connect() of the primary path; only `peer` is set */
	struct transport_setup *next, *prev;      /* port->setups */
	int refuse;                               /* REFUSING: -errno to send; CONNECTING: -errno to report */
	uint32_t want;                            /* CONNECTING: queue of the peer */
	uint32_t flow, flows_tried;               /* of the present address handle; how many so far */
	uint32_t request_queue;                   /* ACCEPTING: queue at which the first CONNECT arrived */
	uint32_t request_flow;                    /* ACCEPTING: flow of the first CONNECT */
	uint8_t reply_kind;                       /* REFUSING: enum wire_kind: REJECT, RESET or CHALLENGE */
	uint64_t named;                           /* identity that the request named: ours, or one before a restart */
	struct auth_pair pair;                    /* X25519 keys of this session; zeros without a group key */
	struct transport_proofs proofs;           /* of the next packet */
	uint8_t remote_public[AUTH_PUBLIC_BYTES]; /* public key of the peer */
	uint32_t sent_n;                          /* CONNECT or ACCEPT packets sent */
	uint64_t deadline, repeat_at;             /* ns. UINT64_MAX: none */
	uint64_t repeat_ns;                       /* interval of repetition; grows by half each time */
	uint16_t payload_len;
	uint8_t payload[NIC_HANDSHAKE_BYTES_MAX]; /* handshake payload to send: of the request or the reply */
	uint16_t handshake_len;
	uint8_t handshake[NIC_HANDSHAKE_BYTES_MAX]; /* handshake payload received */
	struct nic_addr addr;                       /* for the driver below */
	uint32_t packet_len;
	uint8_t packet[TRANSPORT_MAIL_BYTES]; /* to send; poller's while peer->setup_full */
};

/** A peer. An idle connection has nothing else. A message uses the first two lines and the ring set; a timer scan also
 * the third. */
struct transport_peer {
	/* Poller, from DUE_START on; control before. */
	alignas(64) uint64_t token;    /* ours, in packets that arrive */
	uint64_t remote_token;         /* the peer's, in packets that leave. 0: not known yet */
	uint64_t remote_id;            /* identity of the peer's port */
	struct transport_rings *rings; /* NULL: nothing is in flight */
	struct transport_queue *via;   /* path in use: queue whose driver below sends to lower_peer */
	uint32_t una, next;            /* packet numbers: oldest unacknowledged one; next one to assign */
	uint32_t rx_next;              /* packet number expected next; all below it arrived */
	uint32_t rx_acked;             /* rx_next as acknowledged last */
	bool started;                  /* DUE_START was served */
	bool loop;                     /* loopback: nothing below is used */
	bool dead;                     /* nothing is sent or received any more; DOWN was reported */
	bool detached;                 /* attached once, then detached by the engine */
	bool heard;                    /* a packet arrived since the last timer scan */
	bool remote_asleep;            /* the peer's queue sleeps: kick it after sending */
	bool special; /* not confirmed, or failed over: received packets take the slow path of receive_marks() */
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
	bool unchecked : 1;    /* both ends agreed: no CRC */
	bool bulk : 1;         /* both ends agreed: larger messages may be exposed and read */
	bool fresh : 1;        /* became active after the last timer scan */
	bool rx_elsewhere : 1; /* a packet arrived by a sibling queue since the last timer scan */
	bool wanted;           /* the next packet is an RTT sample: RTT_WANTED of the next ring set */
	uint8_t secondary;     /* bit k: secondary path k is attached */
	uint8_t ack_every;     /* an ACK is sent after so many `owed`, so that the peer's window stays open */
	uint8_t begun_n;       /* messages in rings->assembling that are begun */
	uint8_t duplicate; /* marks of the next ACK: WIRE_DUPLICATE, for packet duplicate_number, and WIRE_UNACKED. 0:
			      none */
	uint8_t pings;     /* sent since something arrived */
	uint8_t current_path; /* index of the path in use */
	bool failed_over;     /* not all packets use, or may use, the primary path; counted in queue->failed_over_n */

	struct transport_queue *queue;
	struct transport_paths *paths;   /* NULL: the primary path only */
	uint64_t silent_ns;              /* time for which the poller received nothing while something was awaited */
	struct transport_saved_rtt path; /* RTT state of the last ring set */
	uint32_t unscheduled_bytes;      /* unscheduled bytes: of each message without a grant, as the peer states */
	uint32_t out_bytes;              /* of sent messages that have buffers, at most FAR_TRANSPORT_OUT_BYTES */
	uint32_t duplicate_number;
	uint32_t retransmitted_first;         /* how packets below this number arrived is not known any more */
	uint8_t probed_paths, answered_paths; /* bit k: a PING left by path k; its answer arrived by path k */

	/* Both. `due` and `news` are 0 while the peer is free, and are never reset: the other thread may still look at
	 * a bit of the bitmaps. */
	_Atomic uint32_t due;         /* enum transport_order. Control sets, poller clears */
	_Atomic uint32_t news;        /* enum transport_report. Poller sets, control clears */
	_Atomic int16_t why;          /* NEWS_DOWN: -errno. Poller */
	_Atomic int16_t dead_why;     /* DUE_DEAD: -errno. Control */
	_Atomic bool setup_full;      /* setup->packet is the poller's. Control sets, poller clears */
	_Atomic uint8_t path_current; /* current_path, for control. Poller */

	/* Control. */
	uint8_t state;                      /* enum transport_state */
	uint8_t owner;                      /* number of the queue */
	uint8_t remote_queue;               /* number of the peer's queue */
	bool lower_pending;                 /* connect() of the driver below is in progress */
	bool closed;                        /* CLOSING: the poller has reported CLOSED */
	bool half_open;                     /* counted in port->half_open_n */
	bool stateless;                     /* counted in port->stateless_n */
	bool accepted;                      /* accepting side */
	bool settled;                       /* no set-up packet is to be repeated */
	bool reserved : 1;                  /* it has a share in the segments */
	bool listed : 1;                    /* in port->accepted */
	uint32_t address;                   /* address handle of the primary path. NIC_PEER_NONE: none */
	uint32_t address_old;               /* the one before it, until the poller reports MOVED. NIC_PEER_NONE: none */
	uint32_t remote_packet_max;         /* largest packet that the peer receives */
	struct transport_setup *setup;      /* NULL: settled */
	struct transport_paths *paths_made; /* `paths`, before the poller uses it */
	void *user;                         /* of connect() */
};
static_assert(sizeof(struct transport_peer) == 256, "an idle session is small");
static_assert(offsetof(struct transport_peer, queue) == 128, "a message looks at two lines");

#endif
