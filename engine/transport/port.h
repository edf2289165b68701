/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The transport's queues and ports, and the functions that its files offer each other. Each file's functions are under
 * a heading with their thread: the poller (the thread that holds the shard of the queue), the control thread, or
 * either.
 */
#ifndef FAR_TRANSPORT_PORT_H
#define FAR_TRANSPORT_PORT_H

#include "transport/onesided.h"
#include "transport/peer.h"

/** A packet of several messages of which some are not delivered yet. */
struct link_batch {
	struct link_peer *peer; /* NULL: no such packet */
	const uint8_t *bytes;   /* behind the struct wire_head */
	uint32_t at, end;       /* offsets in `bytes`: end of the last delivered message, end of all */
};

/** A queue. Poller, except where noted. All times in ns. */
struct link_queue {
	struct nic_queue base;
	struct nic_queue *lower;
	const struct nic_queue_ops *ops; /* of lower */
	struct link_port *port;
	uint64_t id;         /* identity of the port */
	bool crc;            /* compute and check CRCs: the driver below does not */
	bool unchecked;      /* accept packets without a CRC, from peers that agreed */
	bool unflushed;      /* something was committed below since the last flush() */
	bool stalled;        /* a peer in the backlog waits for more than the next flush */
	bool armed;          /* the caller sleeps, or is about to */
	uint8_t asleep_mark; /* WIRE_ASLEEP while armed, if the driver below cannot wake this queue; else 0 */
	bool look;           /* the next recv() scans the timers: the caller has slept, or is about to */
	bool paused;         /* the last timer scan was late and took no time-out */
	bool ring_full;      /* larger messages wait until the ring below is emptier */
	bool ring_watched;   /* it was full when the last packet of one was committed */
	uint32_t ring_most;  /* bytes of them in the ring below: link_ring_room() */
	uint32_t ring_n;     /* packets committed since ring_most changed */
	uint32_t index;      /* number of the queue */
	uint32_t passes;     /* calls of recv() since the clock was read */
	uint64_t scanned_at; /* last timer scan */
	uint64_t timed_at;   /* scanned_at when a ring set last began with an RTT sample */
	uint64_t now;        /* 0: the clock was not read in this recv() */
	uint32_t actives_n, acks_n, kicks_n, given_n, awake_n;
	uint32_t scratch_used, heads_n;
	uint32_t abroad_n;    /* peers with `abroad` */
	uint32_t empty_polls; /* consecutive empty polls by siblings */
	uint32_t siblings_n;
	struct link_queue *siblings[FAR_PORTS_MAX - 1]; /* queues of the agent's other ports, of the same shard */
	uint64_t in_bytes;                              /* memory of received messages, at most FAR_LINK_IN_BYTES */
	uint64_t handed_bytes;                          /* of in_bytes: delivered, until release() */
	uint64_t limit_ns;                              /* a silent peer that is awaited is DOWN after this */
	const struct clock_source *clock;
	struct link_message *ready_first, **ready_last; /* complete messages to deliver, in order */
	struct link_message *burst; /* delivered without a cookie by the last recv(); the next frees them */
	struct link_message *free;  /* for received messages */
	uint32_t free_n;
	struct link_message *out_free;                  /* for sent messages, of the segments */
	uint32_t carved, rings_carved;                  /* messages and ring sets of the segments that were ever used */
	struct link_rings *rings_free;                  /* last in, first out */
	struct link_rings *rings_last;                  /* the one that was taken last */
	uint32_t rings_n;                               /* taken */
	struct link_peer *backlog_first, *backlog_last; /* peers with messages to send and an open window */
	uint32_t backlog_turn;                          /* turns of larger messages */
	bool (*owes)(void *ctx, uint32_t peer);         /* nic_queue_ops.watch */
	void *owes_ctx;
	nic_place_fn *place; /* nic_queue_ops.placing */
	void *place_ctx;
	struct link_grants grants;
	/* Counters: struct transport_stats. Any thread reads. `unproven`: control packets that failed authentication.
	 */
	_Atomic uint64_t resent, timeouts, probes, needless, regrants, moves, read_bytes;
	_Atomic uint64_t duplicates, crc_errors, malformed, unknown, ended, no_memory, crowded, unproven;
	struct shm_head heads[LINK_BURST]; /* of the last burst's messages that are delivered in place */
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[LINK_BURST + 1];               /* packets of the driver below that the next recv() releases */
	struct nic_pkt lower_pkts[LINK_BURST]; /* last burst of the driver below; unprocessed from lower_at on */
	uint32_t lower_n, lower_at;
	struct link_batch batch;                       /* lower_pkts[lower_at - 1], partly delivered */
	uint8_t *scratch;                              /* LINK_SCRATCH_BYTES for bodies that are not aligned */
	struct link_peer *acks[LINK_BURST];            /* peers to be sent an ACK at the end of recv() */
	struct link_peer *awake[FAR_LINK_TOLD_MAX];    /* peers to be sent ASLEEP by arm() */
	struct link_peer *kicks[FAR_LINK_PEERS_MAX];   /* peers to be kicked by the next flush */
	struct link_peer *actives[FAR_LINK_PEERS_MAX]; /* peers that the timer scan includes */
	/* Delayed acknowledgements of peers that are not active: a ring from owing_first on, ordered by time. An entry
	 * whose time differs from its peer's ack_at is void: the ACK has left meanwhile. */
	struct link_owing {
		struct link_peer *peer;
		uint64_t at;
	} owing[FAR_LINK_PEERS_MAX];
	uint32_t owing_first, owing_n;
	uint32_t peers_end;                          /* entries of `peers` from here on were never used */
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* between DUE_OPEN and DUE_CLOSE. NULL: none */
	struct link_onesideds onesided;

	/* Both threads. */
	struct link_board orders; /* control sets, poller takes */
	struct link_board news;   /* poller sets, control takes */
	struct link_mailbox mail; /* packets from the poller to control */
	/* Made by control before the DUE_OPEN of a peer that may use them. */
	_Atomic(struct link_segment *) segments[FAR_LINK_PEERS_MAX / LINK_SEGMENT_PEERS];
	/* Control: connections with a share in the segments. */
	uint32_t segments_n, open_n;
};

/** A port. Control, except where noted. All times in ns. */
struct link_port {
	struct nic_port base;
	struct nic_port_ops ops;
	struct nic_queue_ops queue_ops;
	struct nic_port *lower;
	struct nic_caps lower_caps;
	uint32_t ring; /* packets of a receive ring below, less a quarter for ACKs and set-ups. 0: unlimited */
	struct link_config config;
	uint64_t id;                         /* identity: 60 random bits and the number of queues - 1 */
	struct nic_addr own;                 /* lower's */
	bool key_known;                      /* `transport` derives from the group key; before, it is random */
	struct auth_key transport, cookies;  /* transport key; key of cookies, random, of this port alone */
	uint8_t own_proof[AUTH_PROOF_BYTES]; /* link_auth_address() of `own` */
	uint64_t cookie_floor;               /* cookies issued at or before it are invalid: link_remember() */
	int epoll_fd, event_fd;              /* −1 with config.signal */
	uint32_t packet_max;                 /* largest packet of the driver below */
	uint32_t queues_n;
	uint32_t peers_n;                          /* entries of `peers` in use so far */
	uint32_t peers_free;                       /* no entry below it is free */
	struct link_setup *setups, *setup_at;      /* set-ups in progress; the next one that step() processes */
	uint32_t accepted[2 * FAR_LINK_PEERS_MAX]; /* hash table by remote identity and token: index + 1 of the peer */
	uint32_t half_open_n; /* set-ups whose HELLO had a valid cookie, undecided; at most FAR_LINK_HALF_OPEN_MAX */
	uint32_t strangers_n; /* peers that send one stateless answer; at most FAR_LINK_STRANGERS_MAX */
	/* Counters: struct transport_stats. Any thread reads. `repeated_n` counts as duplicates. */
	_Atomic uint64_t refused_n;
	_Atomic uint64_t crowded_n;
	_Atomic uint64_t unknown_n, repeated_n;
	struct link_port *siblings[FAR_PORTS_MAX - 1]; /* link_join() */
	uint32_t siblings_n;
	uint64_t next_at;    /* when a set-up has something to do. UINT64_MAX: never */
	nic_event_fn *event; /* of step() */
	void *ctx;
	uint64_t now; /* of step() */
	struct {
		uint64_t id, token, issued;
		int error;
	} refused[FAR_LINK_REFUSED_KEPT]; /* connect requests that were rejected or have ended: link_remember() */
	uint32_t refused_at;
	struct link_queue *queues[FAR_LINK_QUEUES_MAX];
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* made once and reused, never freed: a late read is harmless */
	struct link_secret *secrets[FAR_LINK_PEERS_MAX / LINK_SLAB_PEERS]; /* of the peers of each slab */
	transport_migrated_fn *migrated;                                   /* NULL: none */
	void *migrated_ctx;
};

/* ---- port.c: control thread, except where noted ---- */

/** Requests a step(): makes fd() readable. Any thread. One system call; used for set-ups and ends only. */
void link_port_signal(struct link_port *p);
/** Splits an address into that of the driver below and the port's identity. false: malformed. */
bool link_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id);
/** Formats the text of `err`; returns `error`. Any thread. */
__attribute__((format(printf, 3, 4))) int link_error(struct nic_err *err, int error, const char *format, ...);

/* ---- connection.c: control thread ---- */

/** Takes a free peer and gives it a token. NULL: none is free, or no memory. */
struct link_peer *link_peer_new(struct link_port *p, unsigned queue, enum link_state state);
/** Settles a peer: frees its set-up, now or once the poller and the driver below have released it. */
void link_setup_end(struct link_port *p, struct link_peer *peer);
/** Finds the accepted peer with this remote identity and token. NULL: none. */
struct link_peer *link_accepted_find(const struct link_port *p, uint64_t id, uint64_t token);
void link_accepted_add(struct link_port *p, struct link_peer *peer);
/** Posts orders, enum link_due, to the poller. */
void link_order(struct link_peer *peer, uint32_t due);
/** Returns a peer that neither the poller nor the driver below uses. */
void link_peer_free(struct link_port *p, struct link_peer *peer);
/** Drops an address handle of the driver below; NIC_PEER_NONE: no effect. */
void link_way_drop(struct link_port *p, uint32_t *way);
/** Frees a closing peer, unless the poller or the driver below still uses it. */
void link_peer_let_go(struct link_port *p, struct link_peer *peer);
/** Begins to close a peer: CLOSING. */
void link_peer_end(struct link_port *p, struct link_peer *peer);
/** Orders the poller to report the connection DOWN. */
void link_peer_kill(struct link_peer *peer, int error);
/** Makes step() process the set-ups at this time, ns. */
void link_step_soon(struct link_port *p, uint64_t at);
/** Post a set-up packet to the poller: one with a handshake payload, or a reject. No effect while the one before is not
 * sent; the packet is repeated later. */
void link_say_words(struct link_peer *peer, enum wire_kind kind);
void link_say_no(struct link_peer *peer, enum wire_kind kind, int error, uint32_t path);
/** Posts HELLO or WELCOME and sets the time of its repetition. */
void link_repeat(struct link_port *p, struct link_peer *peer, uint64_t now);
/** Report events of a peer. FAILED also ends it. */
void link_report_failed(struct link_port *p, struct link_peer *peer, int error, const char *text);
void link_failed(struct link_port *p, struct link_peer *peer, int error);
void link_report_up(struct link_port *p, struct link_peer *peer);
void link_report_moved(struct link_port *p, struct link_peer *peer);
void link_report_down(struct link_port *p, struct link_peer *peer, int error);
/** Records a rejected or ended connect request, so that a late copy of its HELLO begins no new one. */
void link_remember(struct link_port *p, const struct link_peer *peer, int error);

/* ---- setup.c: control thread ---- */

int link_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		 const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err);
uint64_t link_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
void link_drop(struct nic_port *port, uint32_t peer);
/** close(), first part: serves all orders and ends all peers, for the poller too. The queues are idle. */
void link_leave(struct link_port *p);

/* ---- handshake.c: bytes of set-up packets; either thread ---- */

/** Writes a packet with a body of struct wire_words, without tag and CRC; `via` is the queue that will send it. Returns
 * its length. HELLO has the length of the longest set-up packet, so that no answer to it is longer. */
uint32_t link_words_write(uint8_t *out, const struct link_peer *p, const struct link_queue *via, enum wire_kind kind,
			  unsigned want, uint32_t path, const void *words, uint16_t words_len,
			  const struct link_proofs *proofs);
/** The same with a body of struct wire_no. */
uint32_t link_no_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error, uint32_t path,
		       const uint8_t nonce[AUTH_NONCE_BYTES]);

/** A decoded struct wire_words; pointers into the packet. */
struct link_words {
	uint64_t id, token, issued;
	uint32_t queue, want, path, packet_max, words_len, addr_len;
	const uint8_t *words, *addr;
	const uint8_t *nonce, *proof, *public;
};
/** A decoded struct wire_no; pointer into the packet. */
struct link_no {
	int error;
	uint32_t path;
	const uint8_t *nonce;
};
/** Decode a body. false: malformed. */
bool link_words_read(const uint8_t *body, uint64_t len, struct link_words *out);
bool link_no_read(const uint8_t *body, uint64_t len, struct link_no *out);

/* ---- auth.c: authentication of control packets; either thread, except where noted ---- */

/** Completes a packet that is otherwise written: sets its tag by `key` (NULL: zeros) and, if `crc`, its CRC. `from`:
 * identity of the sending port. `to`: link_auth_address() of the destination (NULL: `key` is a session's). */
void link_seal(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to, bool crc);
/** Checks the tag. true without a key. */
bool link_sealed(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to);
/** Hash of a published address of the driver below. Zeros without a key. */
void link_auth_address(const struct link_port *p, const void *blob, uint32_t len, uint8_t out[AUTH_PROOF_BYTES]);
/** Returns the transport key, which authenticates control packets outside of a session. NULL: security=none. */
static inline const struct auth_key *link_key(const struct link_port *p)
{
	return p->config.key ? &p->transport : NULL;
}
struct link_secret *link_secret_of(const struct link_peer *peer);
/** Returns the session key, valid from DUE_START on. NULL: security=none. */
const struct auth_key *link_session_key(const struct link_peer *peer);
/** Control: derives the transport key once the group key is known. */
void link_key_look(struct link_port *p);
/** Computes the cookie for the sender of this HELLO, issued at this time. */
void link_cookie(const struct link_port *p, const struct link_words *hello, uint64_t issued,
		 uint8_t out[AUTH_PROOF_BYTES]);
/** Checks the cookie of this HELLO, and its age. */
bool link_cookie_holds(const struct link_port *p, const struct link_words *hello, uint64_t now);
/** Control: derives the session key from both public keys and both handshake payloads, and the proof of it that WELCOME
 * carries. false: the peer's public key is invalid. */
bool link_session_begin(const struct link_port *p, struct link_peer *peer, uint8_t confirm[AUTH_PROOF_BYTES]);
/** Writes a complete PING about path `path` - 1, or with 0 about none; `via` is the queue that will send it. Returns
 * its length. Poller. */
uint32_t link_ping_write(uint8_t *out, struct link_peer *p, const struct link_queue *via, uint32_t path,
			 const uint8_t to[AUTH_PROOF_BYTES]);
/** Checks the proof of a PING of this connection. Poller. */
bool link_ping_proven(const struct link_peer *p, const uint8_t *packet, uint32_t len, const struct link_words *w);
/** Checks a PING's number against a replay window, and records it. Poller. */
bool link_ping_fresh(struct link_secret *s, uint32_t number);
/** Returns the number of the PING with this nonce. 0: not the nonce of a PING. */
uint32_t link_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES]);
void link_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES]);
/** Checks that the peer sent this BYE, or this RESET in answer to a PING of ours. `via`: port that received it. */
bool link_end_proven(const struct link_peer *p, const struct link_port *via, const uint8_t *packet, uint32_t len);

/* ---- counters: one writer, any reader ---- */

static inline void counter_bump(_Atomic uint64_t *c)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void counter_more(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/* ---- layout of packets and messages ---- */

/** Offset of the struct wire_sub behind a message that ends at `end`, and offset of its message. */
static inline uint32_t link_batch_sub(uint32_t end)
{
	return (end + 31) & ~31u;
}

static inline uint32_t link_batch_body(uint32_t sub, uint32_t len)
{
	uint32_t at = sub + (uint32_t)sizeof(struct wire_sub);
	return len > FAR_LINE_PAYLOAD ? (at + 63) & ~63u : at;
}

/** Returns true for a packet of small messages (no other has their priority) with WIRE_LOOSE. */
static inline bool link_sent_loose(const struct link_sent *e)
{
	return e->priority == LINK_URGENT && e->offset;
}

/** Returns the mark of a larger message's packets: WIRE_LOOSE if they may pass those of other messages, else 0. */
static inline unsigned link_bulk_mark(const struct link_message *m)
{
	return m->order == NIC_ORDER_NONE ? WIRE_LOOSE : 0;
}

/** Returns the mark with which a packet was sent: WIRE_LOOSE or 0. */
static inline unsigned link_sent_mark(const struct link_sent *e)
{
	if (e->priority != LINK_URGENT)
		return link_bulk_mark(e->message);
	return e->offset ? WIRE_LOOSE : 0;
}

static inline bool link_has_unsent(const struct link_peer *p)
{
	const struct link_rings *r = p->rings;
	return r && (r->out_next || r->bulk_next);
}

/* ---- rings.c: poller, except where noted ---- */

/** Control: reserves a share of the queue's segments, until the connection ends. false: no memory. */
bool link_rings_reserve(struct link_queue *q, struct link_peer *peer);
void link_rings_unreserve(struct link_queue *q, struct link_peer *peer);
/** Control, close(). */
void link_segments_free(struct link_queue *q);
/** Returns segment `i`. NULL: not made yet. */
static inline struct link_segment *link_segment_at(const struct link_queue *q, uint32_t i)
{
	return atomic_load_explicit(&((struct link_queue *)(uintptr_t)q)->segments[i], memory_order_acquire);
}
/** Takes a ring set for a peer that has none. */
void link_rings_take(struct link_queue *q, struct link_peer *p);
/** Resets the ring set of a peer whose messages were dropped. */
void link_rings_renew(struct link_queue *q, struct link_peer *p);
/** Checks that a ring set is empty, as the next peer expects it. */
bool link_rings_are_new(const struct link_rings *r);
/** Gives the ring set back. No effect without one. */
void link_rings_give(struct link_queue *q, struct link_peer *p);
/** Timer scan: gives the ring set back if nothing is in flight. false: nothing is, but it is kept until a
 * retransmission could be reported as spurious. */
bool link_rings_look(struct link_queue *q, struct link_peer *p, uint64_t now);
/** Returns the RTT state: of the ring set, or as saved from the last one. */
static inline struct link_rtt link_rtt_of(const struct link_peer *p)
{
	struct link_rtt r = {.watch = 0};
	if (p->rings)
		return p->rings->rtt;
	rtt_resume(&r, &p->path);
	return r;
}
static inline void link_rings_need(struct link_queue *q, struct link_peer *p)
{
	if (__builtin_expect(!p->rings, 0))
		link_rings_take(q, p);
}

/* ---- message.c: poller ---- */

/** Allocates a message to send, from the segments, so that a small one always gets memory. NULL: no memory for the
 * body.
 */
struct link_message *link_message_out(struct link_queue *q, struct link_peer *p, uint32_t len);
/** The same for zero-copy: takes a reference of `owner`. NULL: no memory. */
struct link_message *link_message_lent(struct link_queue *q, struct link_peer *p, const void *body, uint32_t len,
				       struct far_buf *owner);
/** Releases the buffer of a sent message. `p` NULL: the peer is gone. */
void link_message_out_drop(struct link_peer *p, struct link_message *m);
static inline void link_message_out_free(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	if (__builtin_expect(m->buf != NULL, 0))
		link_message_out_drop(p, m);
	m->next = q->out_free;
	q->out_free = m;
}
/** Allocates a message that arrives, charged to the queue. `due`: its packet is the one expected next. `begins`: head
 * of its first packet, if receive placement may be used, else NULL. NULL: over the limit, or no memory. */
struct link_message *link_message_in(struct link_queue *q, struct link_peer *p, uint32_t len, bool due,
				     const struct wire_head *begins);
/** Frees a message of either kind after its delivery. */
void link_message_in_free(struct link_queue *q, struct link_message *m);
/** Frees received messages linked by `next`. NULL: no effect. */
void link_messages_in_free(struct link_queue *q, struct link_message *m);
/** Frees all messages of a peer, of both directions. */
void link_messages_drop(struct link_queue *q, struct link_peer *p);

/** Prefetches the lines of a peer that a message and a timer scan use. */
static inline void link_peer_fetch(const struct link_peer *p)
{
	for (size_t at = 0; at < 3 * 64; at += 64)
		__builtin_prefetch((const char *)p + at, 1);
}

/* ---- queue.c: poller ---- */

extern const struct nic_queue_ops link_queue_ops;
extern const struct nic_raw_ops link_raw_ops;
/** Serves the orders of the control thread. */
void link_orders_serve(struct link_queue *q);
/** Adds a peer to those that the timer scan includes. */
void link_peer_activate(struct link_queue *q, struct link_peer *p);
/** Ends the connection and reports DOWN with `error`. */
void link_peer_dead(struct link_queue *q, struct link_peer *p, int error);
/** Posts reports, enum link_news, to the control thread. */
void link_news_post(struct link_queue *q, struct link_peer *p, enum link_news news);
/** Second part of a flush: sibling queues, and kicks. */
void link_flush_rest(struct link_queue *q);
/** Makes the next flush kick a peer that may sleep, if the driver below cannot wake it. */
void link_kick(struct link_queue *q, struct link_peer *p);
/** Closes a peer for close(), on the control thread, when no poller runs. */
void link_queue_end(struct link_queue *q, struct link_peer *p);

/* ---- send.c: poller ---- */

/** Queues a message. Takes ownership. */
void link_send(struct link_queue *q, struct link_peer *p, struct link_message *m);
/** Retransmit packet `number` unchanged, or a fragment: `len` of its bytes from `at` on. 0 or -errno of the driver
 * below; -EMSGSIZE also if the packet is larger than the path MTU now. */
int link_put_again(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number);
int link_put_piece(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number, uint32_t at,
		   uint32_t len);
/** Sends an ACK. 0 or -errno of the driver below. */
int link_send_ack(struct link_queue *q, struct link_peer *p);
/** Sends the ACK that answers a PING with this `path`. */
void link_send_answer(struct link_queue *q, struct link_peer *p, uint32_t path);
/** Sends an ACK at the end of the current recv() or timer scan. */
void link_ack_soon(struct link_queue *q, struct link_peer *p);
void link_send_acks(struct link_queue *q);
void link_flush(struct nic_queue *nq);
/** Adds a peer with unsent messages to the backlog. No effect while it may not send. */
void link_backlog_add(struct link_queue *q, struct link_peer *p);

/* ---- assemble.c: poller; the rest in assemble.h ---- */

/** Computes wire_head.ack_bits. */
uint64_t link_ack_bits(const struct link_peer *p);

/* ---- retransmit.c: poller ---- */

/** Retransmits lost packets: those that later transmissions overtook, or with `all` each one that the bitmap covers. */
void link_resend(struct link_queue *q, struct link_peer *p, bool all);
/** Sends a tail loss probe: the last packet that the bitmap covers, so that the ACK shows what is missing. */
void link_probe(struct link_queue *q, struct link_peer *p);
/** Discards the arrivals that the bitmap reported: the receiver may have dropped those packets for lack of memory. */
void link_doubt(struct link_peer *p);
/** Retransmits a packet in fragments that fit the path MTU. */
void link_resend_pieces(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number);
/** Reads the path MTU. true: it shrank. */
bool link_narrower(struct link_peer *p);

/* ---- schedule.c, grant.c: grant.h ---- */

/** Resets the unscheduled bytes: what the peer stated is too old. */
static inline void link_bulk_forget(struct link_peer *p)
{
	p->unasked = FAR_LINK_UNASKED;
}

/* ---- control.c: poller ---- */

/** Forwards a packet that `via` received to the control thread. Drops it if the ring is full; the sender repeats it. */
void link_mail_on(struct link_queue *q, const struct link_queue *via, const struct nic_pkt *lp);
/** Processes a PING that `via` received. With a path number, it probes that path in both directions. */
void link_take_ping(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct nic_pkt *lp);
/** Processes a RESET or BYE that `via` received. */
void link_take_end(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct wire_head *h,
		   const struct nic_pkt *lp);
/** Processes all kinds but MESSAGE and ACK. `p` NULL: the packet names no connection. */
void link_take_other(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct nic_pkt *lp);
/** Sends a complete control packet. 0 or -errno of the driver below. */
int link_send_raw(struct link_peer *p, const uint8_t *bytes, uint32_t len);
void link_send_ping(struct link_queue *q, struct link_peer *p);

/* ---- recv.c: poller ---- */

/** Drops the undelivered rest of queue->batch and releases its packet. */
void link_batch_end(struct link_queue *q);
unsigned link_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void link_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie);

/* ---- path.c: poller, except where noted ---- */

/** Control: the driver below sibling `via` has made an address handle for a secondary path, or failed. */
void link_side_event(struct link_port *via, struct link_side *side, const struct nic_event *ev);
/** Control: allocates `paths_made`. false: no memory. */
bool link_sides_make(struct link_peer *peer);
/** Control: a PING about path `k` arrived at another queue: tries the next flow. */
void link_side_astray(struct link_port *p, struct link_peer *peer, uint32_t k);
/** Control: drops the address handles that the poller has replaced. */
void link_sides_moved(struct link_peer *peer);
/** Control: drops the address handles of all secondary paths. */
void link_sides_drop(struct link_peer *peer);
/** Control: returns true while the driver below makes a handle. */
bool link_sides_pending(const struct link_peer *peer);
/** Control, close(): removes all paths through this port. */
void link_part(struct link_port *p);
/** Attaches the address handles of secondary paths that are new. */
void link_ways_attach(struct link_queue *q, struct link_peer *p);
/** Sends a PING by each secondary path with a new flow, to find out whether it reaches the peer's queue. */
void link_ways_probe(struct link_peer *p);
/** Serves LINK_DUE_ASTRAY: answers WRONG_QUEUE. */
void link_way_astray(struct link_peer *p, uint32_t due);
void link_ways_detach(struct link_queue *q, struct link_peer *p);
/** Sets `abroad`: not all packets of the peer use the primary path, or may not. */
void link_abroad(struct link_queue *q, struct link_peer *p, bool is);
/** Probes all paths: sends a PING by each. */
void link_way_ask(struct link_queue *q, struct link_peer *p, uint64_t now);
/** Records the answer to the PING about path `path` - 1. */
void link_way_answered(struct link_peer *p, uint32_t path);
/** A packet of the peer arrived by another queue than `via`: probes the paths, at most every FAR_LINK_ASK_NS. */
void link_way_heard(struct link_queue *q, struct link_peer *p);
/** Answers a PING about a path by the path through `via`. false: no path leads through it. */
bool link_way_answer(struct link_queue *q, struct link_peer *p, const struct link_queue *via, uint32_t path);
/** Timer scan of a peer with secondary paths: decides on a migration, probes better paths. */
void link_way_look(struct link_queue *q, struct link_peer *p, uint64_t now, bool paused);

/* ---- expose.c: messages exposed to their receiver; poller ---- */

/** Called before the first packet of a larger message. true: it waits for the driver below to expose it. */
bool link_offer(struct link_queue *q, struct link_peer *p, struct link_message *m);
/** Returns true while a message is exposed, its first packet sent or not. */
static inline bool link_offered(const struct link_message *m)
{
	return m->onesided && m->transfer >= LINK_OUT_EXPOSED;
}
void link_offer_write(const struct link_queue *q, const struct link_message *m, uint8_t *out);
/** The receiver grants packets below `offset`, or sends WIRE_HERE. false: protocol error. */
bool link_offer_granted(struct link_queue *q, struct link_message *m, uint32_t offset, bool here);
/** Releases the exposure of a message that ends. */
void link_offer_end(struct link_queue *q, struct link_message *m);
/** Processes a bulk event of the driver below. */
void link_onesided_take(struct link_queue *q, const struct nic_pkt *lp);
/** Timer scan: sends in packets what the driver below did not expose in time. */
void link_offers_look(struct link_queue *q, uint64_t now);

/* ---- read.c: messages read from their sender's memory; poller ---- */

/** Starts to read a message whose first packet had this key and of which no other packet arrived. */
void link_read_begin(struct link_queue *q, struct link_message *m, const uint8_t *key);
/** Returns the offset up to which the message is read; the rest comes in a packet. */
static inline uint32_t link_read_end(const struct link_message *m)
{
	return m->len > m->done + LINK_REST ? m->len - LINK_REST : m->done;
}
/** Reads `bytes` from `from` on, in place of a grant. false: not now. */
bool link_read_more(struct link_queue *q, struct link_message *m, uint32_t from, uint32_t bytes);
/** Called when all is granted: ends reading if no read is in flight. */
void link_read_look(struct link_queue *q, struct link_message *m);
/** Processes READ or READ_FAILED. */
void link_read_event(struct link_queue *q, struct link_message *m, const struct link_onesided_news *news);
/** Releases the reads of a message that ends. */
void link_read_drop(struct link_queue *q, struct link_message *m);

/* ---- timer.c: poller ---- */

/** Sends the delayed acknowledgements that are due by `until`. */
void link_owing_run(struct link_queue *q, uint64_t until);
/** Timer scan of all active peers: acknowledgements, retransmissions, probes, pings. */
void link_timers_run(struct link_queue *q);
/* RTT samples; called if rtt.watch has the bit. */
/** The packet of the next sample has left. */
void link_timing_begin(struct link_queue *q, struct link_peer *p, uint32_t number);
/** All packets below `ack` are acknowledged now. Called before they are removed. */
void link_timing_ack(struct link_queue *q, struct link_peer *p, uint32_t ack);
/** Packet `number` is reported as arrived for the first time. */
void link_timing_arrived(struct link_queue *q, struct link_peer *p, uint32_t number);
/** Packet `number` was retransmitted needlessly: the receiver has both copies. `untold`: it is acknowledged for the
 * first time. Called before the acknowledgement is processed. */
void link_sent_twice(struct link_queue *q, struct link_peer *p, uint32_t number, bool untold);
uint64_t link_deadline(const struct nic_queue *nq);

#endif
