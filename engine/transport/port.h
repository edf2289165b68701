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
struct transport_batch {
	struct transport_peer *peer; /* NULL: no such packet */
	const uint8_t *bytes;        /* behind the struct wire_head */
	uint32_t at, end;            /* offsets in `bytes`: end of the last delivered message, end of all */
};

/** A queue. Poller, except where noted. All times in ns. */
struct transport_queue {
	struct nic_queue base;
	struct nic_queue *lower;
	const struct nic_queue_ops *ops; /* of lower */
	struct transport_port *port;
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
	uint32_t ring_most;  /* bytes of them in the ring below: transport_ring_room() */
	uint32_t ring_n;     /* packets committed since ring_most changed */
	uint32_t index;      /* number of the queue */
	uint32_t passes;     /* calls of recv() since the clock was read */
	uint64_t scanned_at; /* last timer scan */
	uint64_t timed_at;   /* scanned_at when a ring set last began with an RTT sample */
	uint64_t now;        /* 0: the clock was not read in this recv() */
	uint32_t actives_n, acks_n, kicks_n, given_n, awake_n;
	uint32_t scratch_used, heads_n;
	uint32_t failed_over_n; /* peers with `failed_over` */
	uint32_t empty_polls;   /* consecutive empty polls by siblings */
	uint32_t siblings_n;
	struct transport_queue *siblings[FAR_PORTS_MAX - 1]; /* queues of the agent's other ports, of the same shard */
	uint64_t in_bytes;     /* memory of received messages, at most FAR_TRANSPORT_IN_BYTES */
	uint64_t handed_bytes; /* of in_bytes: delivered, until release() */
	uint64_t limit_ns;     /* a silent peer that is awaited is DOWN after this */
	const struct clock_source *clock;
	struct transport_message *ready_first, **ready_last; /* complete messages to deliver, in order */
	struct transport_message *burst; /* delivered without a cookie by the last recv(); the next frees them */
	struct transport_message *free;  /* for received messages */
	uint32_t free_n;
	struct transport_message *out_free; /* for sent messages, of the segments */
	uint32_t carved, rings_carved;      /* messages and ring sets of the segments that were ever used */
	struct transport_rings *rings_free; /* last in, first out */
	struct transport_rings *rings_last; /* the one that was taken last */
	uint32_t rings_n;                   /* taken */
	struct transport_peer *backlog_first, *backlog_last; /* peers with messages to send and an open window */
	uint32_t backlog_turn;                               /* turns of larger messages */
	bool (*awaits_reply)(void *ctx, uint32_t peer);      /* nic_queue_ops.watch */
	void *awaits_reply_ctx;
	nic_placement_fn *place; /* nic_queue_ops.placing */
	void *place_ctx;
	struct transport_grants grants;
	/* Counters: struct transport_stats. Any thread reads. `unproven`: control packets that failed authentication.
	 */
	_Atomic uint64_t resent, timeouts, tail_loss_probes, spurious_retransmits, grant_retransmits, path_migrations,
		read_bytes;
	_Atomic uint64_t duplicates, crc_errors, malformed, unknown_connection_drops, closed_connection_drops,
		no_memory, handshake_backlog_drops, unproven;
	struct shm_head heads[TRANSPORT_BURST]; /* of the last burst's messages that are delivered in place */
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[TRANSPORT_BURST + 1];               /* packets of the driver below that the next recv() releases */
	struct nic_pkt lower_pkts[TRANSPORT_BURST]; /* last burst of the driver below; unprocessed from lower_at on */
	uint32_t lower_n, lower_at;
	struct transport_batch batch;                 /* lower_pkts[lower_at - 1], partly delivered */
	uint8_t *scratch;                             /* TRANSPORT_SCRATCH_BYTES for bodies that are not aligned */
	struct transport_peer *acks[TRANSPORT_BURST]; /* peers to be sent an ACK at the end of recv() */
	struct transport_peer *awake[FAR_TRANSPORT_AWAKE_MAX];   /* peers to be sent ASLEEP by arm() */
	struct transport_peer *kicks[FAR_TRANSPORT_PEERS_MAX];   /* peers to be kicked by the next flush */
	struct transport_peer *actives[FAR_TRANSPORT_PEERS_MAX]; /* peers that the timer scan includes */
	/* Delayed acknowledgements of peers that are not active: a ring from delayed_first on, ordered by time. An
	 * entry whose time differs from its peer's ack_at is void: the ACK has left meanwhile. */
	struct transport_delayed_ack {
		struct transport_peer *peer;
		uint64_t at;
	} delayed[FAR_TRANSPORT_PEERS_MAX];
	uint32_t delayed_first, delayed_n;
	uint32_t peers_end;                                    /* entries of `peers` from here on were never used */
	struct transport_peer *peers[FAR_TRANSPORT_PEERS_MAX]; /* between DUE_OPEN and DUE_CLOSE. NULL: none */
	struct transport_onesided_table onesided;

	/* Both threads. */
	struct transport_peer_set orders; /* control sets, poller takes */
	struct transport_peer_set news;   /* poller sets, control takes */
	struct transport_mailbox mail;    /* packets from the poller to control */
	/* Made by control before the DUE_OPEN of a peer that may use them. */
	_Atomic(struct transport_segment *) segments[FAR_TRANSPORT_PEERS_MAX / TRANSPORT_SEGMENT_PEERS];
	/* Control: connections with a share in the segments. */
	uint32_t segments_n, open_n;
};

/** A port. Control, except where noted. All times in ns. */
struct transport_port {
	struct nic_port base;
	struct nic_port_ops ops;
	struct nic_queue_ops queue_ops;
	struct nic_port *lower;
	struct nic_caps lower_caps;
	uint32_t ring; /* packets of a receive ring below, less a quarter for ACKs and set-ups. 0: unlimited */
	struct transport_config config;
	uint64_t id;                         /* identity: 60 random bits and the number of queues - 1 */
	struct nic_addr own;                 /* lower's */
	bool key_known;                      /* `transport` derives from the group key; before, it is random */
	struct auth_key transport, cookies;  /* transport key; key of cookies, random, of this port alone */
	uint8_t own_proof[AUTH_PROOF_BYTES]; /* transport_auth_address() of `own` */
	uint64_t cookie_floor;               /* cookies issued at or before it are invalid: transport_refused_keep() */
	int epoll_fd, event_fd;              /* −1 with config.signal */
	uint32_t packet_max;                 /* largest packet of the driver below */
	uint32_t queues_n;
	uint32_t peers_n;                          /* entries of `peers` in use so far */
	uint32_t peers_free;                       /* no entry below it is free */
	struct transport_setup *setups, *setup_at; /* set-ups in progress; the next one that step() processes */
	uint32_t accepted[2 *
			  FAR_TRANSPORT_PEERS_MAX]; /* hash table by remote identity and token: index + 1 of the peer */
	uint32_t half_open_n;                       /* set-ups whose CONNECT had a valid cookie, undecided; at most
						       FAR_TRANSPORT_HALF_OPEN_MAX */
	uint32_t stateless_n; /* peers that send one stateless answer; at most FAR_TRANSPORT_STATELESS_MAX */
	/* Counters: struct transport_stats. Any thread reads. `repeated_n` counts as duplicates. */
	_Atomic uint64_t refused_n;
	_Atomic uint64_t crowded_n;
	_Atomic uint64_t unknown_n, repeated_n;
	struct transport_port *siblings[FAR_PORTS_MAX - 1]; /* transport_join() */
	uint32_t siblings_n;
	uint64_t next_at;    /* when a set-up has something to do. UINT64_MAX: never */
	nic_event_fn *event; /* of step() */
	void *ctx;
	uint64_t now; /* of step() */
	struct {
		uint64_t id, token, issued;
		int error;
	} refused[FAR_TRANSPORT_REFUSED_KEPT]; /* connect requests that were rejected or have ended:
						  transport_refused_keep() */
	uint32_t refused_at;
	struct transport_queue *queues[FAR_TRANSPORT_QUEUES_MAX];
	struct transport_peer
		*peers[FAR_TRANSPORT_PEERS_MAX]; /* made once and reused, never freed: a late read is harmless */
	struct transport_secret
		*secrets[FAR_TRANSPORT_PEERS_MAX / TRANSPORT_SLAB_PEERS]; /* of the peers of each slab */
	transport_migrated_fn *migrated;                                  /* NULL: none */
	void *migrated_ctx;
};

/* ---- port.c: control thread, except where noted ---- */

/** Requests a step(): makes fd() readable. Any thread. One system call; used for set-ups and ends only. */
void transport_port_signal(struct transport_port *p);
/** Splits an address into that of the driver below and the port's identity. false: malformed. */
bool transport_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id);
/** Formats the text of `err`; returns `error`. Any thread. */
__attribute__((format(printf, 3, 4))) int transport_error(struct nic_err *err, int error, const char *format, ...);

/* ---- connection.c: control thread ---- */

/** Takes a free peer and gives it a token. NULL: none is free, or no memory. */
struct transport_peer *transport_peer_new(struct transport_port *p, unsigned queue, enum transport_state state);
/** Settles a peer: frees its set-up, now or once the poller and the driver below have released it. */
void transport_setup_end(struct transport_port *p, struct transport_peer *peer);
/** Finds the accepted peer with this remote identity and token. NULL: none. */
struct transport_peer *transport_accepted_find(const struct transport_port *p, uint64_t id, uint64_t token);
void transport_accepted_add(struct transport_port *p, struct transport_peer *peer);
/** Posts orders, enum transport_order, to the poller. */
void transport_order_post(struct transport_peer *peer, uint32_t due);
/** Returns a peer that neither the poller nor the driver below uses. */
void transport_peer_free(struct transport_port *p, struct transport_peer *peer);
/** Drops an address handle of the driver below; NIC_PEER_NONE: no effect. */
void transport_address_drop(struct transport_port *p, uint32_t *way);
/** Frees a closing peer, unless the poller or the driver below still uses it. */
void transport_peer_release(struct transport_port *p, struct transport_peer *peer);
/** Begins to close a peer: CLOSING. */
void transport_peer_end(struct transport_port *p, struct transport_peer *peer);
/** Orders the poller to report the connection DOWN. */
void transport_peer_kill(struct transport_peer *peer, int error);
/** Makes step() process the set-ups at this time, ns. */
void transport_step_by(struct transport_port *p, uint64_t at);
/** Post a set-up packet to the poller: one with a handshake payload, or a reject. No effect while the one before is not
 * sent; the packet is repeated later. */
void transport_post_handshake(struct transport_peer *peer, enum wire_kind kind);
void transport_post_reject(struct transport_peer *peer, enum wire_kind kind, int error, uint32_t path);
/** Posts CONNECT or ACCEPT and sets the time of its repetition. */
void transport_setup_repeat(struct transport_port *p, struct transport_peer *peer, uint64_t now);
/** Report events of a peer. FAILED also ends it. */
void transport_event_failed(struct transport_port *p, struct transport_peer *peer, int error, const char *text);
void transport_connect_failed(struct transport_port *p, struct transport_peer *peer, int error);
void transport_event_up(struct transport_port *p, struct transport_peer *peer);
void transport_event_migrated(struct transport_port *p, struct transport_peer *peer);
void transport_event_down(struct transport_port *p, struct transport_peer *peer, int error);
/** Records a rejected or ended connect request, so that a late copy of its CONNECT begins no new one. */
void transport_refused_keep(struct transport_port *p, const struct transport_peer *peer, int error);

/* ---- setup.c: control thread ---- */

int transport_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		      const void *handshake, size_t handshake_len, uint64_t deadline, void *user, struct nic_err *err);
uint64_t transport_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
void transport_drop(struct nic_port *port, uint32_t peer);
/** close(), first part: serves all orders and ends all peers, for the poller too. The queues are idle. */
void transport_port_leave(struct transport_port *p);

/* ---- handshake.c: bytes of set-up packets; either thread ---- */

/** Writes a packet with a body of struct wire_handshake, without tag and CRC; `via` is the queue that will send it.
 * Returns its length. CONNECT has the length of the longest set-up packet, so that no answer to it is longer. */
uint32_t transport_handshake_write(uint8_t *out, const struct transport_peer *p, const struct transport_queue *via,
				   enum wire_kind kind, unsigned want, uint32_t path, const void *words,
				   uint16_t payload_len, const struct transport_proofs *proofs);
/** The same with a body of struct wire_reject. */
uint32_t transport_reject_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error,
				uint32_t path, const uint8_t nonce[AUTH_NONCE_BYTES]);

/** A decoded struct wire_handshake; pointers into the packet. */
struct transport_handshake {
	uint64_t id, token, issued;
	uint32_t queue, want, path, packet_max, payload_len, addr_len;
	const uint8_t *words, *addr;
	const uint8_t *nonce, *proof, *public;
};
/** A decoded struct wire_reject; pointer into the packet. */
struct transport_reject {
	int error;
	uint32_t path;
	const uint8_t *nonce;
};
/** Decode a body. false: malformed. */
bool transport_handshake_read(const uint8_t *body, uint64_t len, struct transport_handshake *out);
bool transport_reject_read(const uint8_t *body, uint64_t len, struct transport_reject *out);

/* ---- auth.c: authentication of control packets; either thread, except where noted ---- */

/** Completes a packet that is otherwise written: sets its tag by `key` (NULL: zeros) and, if `crc`, its CRC. `from`:
 * identity of the sending port. `to`: transport_auth_address() of the destination (NULL: `key` is a session's). */
void transport_tag_write(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to,
			 bool crc);
/** Checks the tag. true without a key. */
bool transport_tag_valid(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from,
			 const uint8_t *to);
/** Hash of a published address of the driver below. Zeros without a key. */
void transport_auth_address(const struct transport_port *p, const void *blob, uint32_t len,
			    uint8_t out[AUTH_PROOF_BYTES]);
/** Returns the transport key, which authenticates control packets outside of a session. NULL: security=none. */
static inline const struct auth_key *transport_key(const struct transport_port *p)
{
	return p->config.key ? &p->transport : NULL;
}
struct transport_secret *transport_secret_of(const struct transport_peer *peer);
/** Returns the session key, valid from DUE_START on. NULL: security=none. */
const struct auth_key *transport_session_key(const struct transport_peer *peer);
/** Control: derives the transport key once the group key is known. */
void transport_key_update(struct transport_port *p);
/** Computes the cookie for the sender of this CONNECT, issued at this time. */
void transport_cookie(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t issued,
		      uint8_t out[AUTH_PROOF_BYTES]);
/** Checks the cookie of this CONNECT, and its age. */
bool transport_cookie_valid(const struct transport_port *p, const struct transport_handshake *handshake, uint64_t now);
/** Control: derives the session key from both public keys and both handshake payloads, and the proof of it that ACCEPT
 * carries. false: the peer's public key is invalid. */
bool transport_session_begin(const struct transport_port *p, struct transport_peer *peer,
			     uint8_t confirm[AUTH_PROOF_BYTES]);
/** Writes a complete PING about path `path` - 1, or with 0 about none; `via` is the queue that will send it. Returns
 * its length. Poller. */
uint32_t transport_ping_write(uint8_t *out, struct transport_peer *p, const struct transport_queue *via, uint32_t path,
			      const uint8_t to[AUTH_PROOF_BYTES]);
/** Checks the proof of a PING of this connection. Poller. */
bool transport_ping_authentic(const struct transport_peer *p, const uint8_t *packet, uint32_t len,
			      const struct transport_handshake *w);
/** Checks a PING's number against a replay window, and records it. Poller. */
bool transport_ping_fresh(struct transport_secret *s, uint32_t number);
/** Returns the number of the PING with this nonce. 0: not the nonce of a PING. */
uint32_t transport_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES]);
void transport_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES]);
/** Checks that the peer sent this CLOSE, or this RESET in answer to a PING of ours. `via`: port that received it. */
bool transport_end_authentic(const struct transport_peer *p, const struct transport_port *via, const uint8_t *packet,
			     uint32_t len);

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
static inline uint32_t transport_batch_sub(uint32_t end)
{
	return (end + 31) & ~31u;
}

static inline uint32_t transport_batch_body(uint32_t sub, uint32_t len)
{
	uint32_t at = sub + (uint32_t)sizeof(struct wire_sub);
	return len > FAR_LINE_PAYLOAD ? (at + 63) & ~63u : at;
}

/** Returns true for a packet of small messages (no other has their priority) with WIRE_UNORDERED. */
static inline bool transport_sent_unordered(const struct transport_sent *e)
{
	return e->priority == TRANSPORT_PRIORITY_URGENT && e->offset;
}

/** Returns the mark of a larger message's packets: WIRE_UNORDERED if they may pass those of other messages, else 0. */
static inline unsigned transport_bulk_marks(const struct transport_message *m)
{
	return m->order == NIC_ORDER_NONE ? WIRE_UNORDERED : 0;
}

/** Returns the mark with which a packet was sent: WIRE_UNORDERED or 0. */
static inline unsigned transport_sent_marks(const struct transport_sent *e)
{
	if (e->priority != TRANSPORT_PRIORITY_URGENT)
		return transport_bulk_marks(e->message);
	return e->offset ? WIRE_UNORDERED : 0;
}

static inline bool transport_has_unsent(const struct transport_peer *p)
{
	const struct transport_rings *r = p->rings;
	return r && (r->out_next || r->bulk_next);
}

/* ---- rings.c: poller, except where noted ---- */

/** Control: reserves a share of the queue's segments, until the connection ends. false: no memory. */
bool transport_rings_reserve(struct transport_queue *q, struct transport_peer *peer);
void transport_rings_unreserve(struct transport_queue *q, struct transport_peer *peer);
/** Control, close(). */
void transport_segments_free(struct transport_queue *q);
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

/* ---- message.c: poller ---- */

/** Allocates a message to send, from the segments, so that a small one always gets memory. NULL: no memory for the
 * body.
 */
struct transport_message *transport_message_out(struct transport_queue *q, struct transport_peer *p, uint32_t len);
/** The same for zero-copy: takes a reference of `owner`. NULL: no memory. */
struct transport_message *transport_message_zero_copy(struct transport_queue *q, struct transport_peer *p,
						      const void *body, uint32_t len, struct far_buf *owner);
/** Releases the buffer of a sent message. `p` NULL: the peer is gone. */
void transport_message_out_drop(struct transport_peer *p, struct transport_message *m);
static inline void transport_message_out_free(struct transport_queue *q, struct transport_peer *p,
					      struct transport_message *m)
{
	if (__builtin_expect(m->buf != NULL, 0))
		transport_message_out_drop(p, m);
	m->next = q->out_free;
	q->out_free = m;
}
/** Allocates a message that arrives, charged to the queue. `due`: its packet is the one expected next. `begins`: head
 * of its first packet, if receive placement may be used, else NULL. NULL: over the limit, or no memory. */
struct transport_message *transport_message_in(struct transport_queue *q, struct transport_peer *p, uint32_t len,
					       bool due, const struct wire_head *begins);
/** Frees a message of either kind after its delivery. */
void transport_message_in_free(struct transport_queue *q, struct transport_message *m);
/** Frees received messages linked by `next`. NULL: no effect. */
void transport_messages_in_free(struct transport_queue *q, struct transport_message *m);
/** Frees all messages of a peer, of both directions. */
void transport_messages_drop(struct transport_queue *q, struct transport_peer *p);

/** Prefetches the lines of a peer that a message and a timer scan use. */
static inline void transport_peer_fetch(const struct transport_peer *p)
{
	for (size_t at = 0; at < 3 * 64; at += 64)
		__builtin_prefetch((const char *)p + at, 1);
}

/* ---- queue.c: poller ---- */

extern const struct nic_queue_ops transport_queue_ops;
extern const struct nic_raw_ops transport_raw_ops;
/** Serves the orders of the control thread. */
void transport_orders_run(struct transport_queue *q);
/** Adds a peer to those that the timer scan includes. */
void transport_peer_activate(struct transport_queue *q, struct transport_peer *p);
/** Ends the connection and reports DOWN with `error`. */
void transport_peer_dead(struct transport_queue *q, struct transport_peer *p, int error);
/** Posts reports, enum transport_report, to the control thread. */
void transport_report_post(struct transport_queue *q, struct transport_peer *p, enum transport_report news);
/** Second part of a flush: sibling queues, and kicks. */
void transport_flush_rest(struct transport_queue *q);
/** Makes the next flush kick a peer that may sleep, if the driver below cannot wake it. */
void transport_kick(struct transport_queue *q, struct transport_peer *p);
/** Closes a peer for close(), on the control thread, when no poller runs. */
void transport_queue_end(struct transport_queue *q, struct transport_peer *p);

/* ---- send.c: poller ---- */

/** Queues a message. Takes ownership. */
void transport_send(struct transport_queue *q, struct transport_peer *p, struct transport_message *m);
/** Retransmit packet `number` unchanged, or a fragment: `len` of its bytes from `at` on. 0 or -errno of the driver
 * below; -EMSGSIZE also if the packet is larger than the path MTU now. */
int transport_put_retransmit(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			     uint32_t number);
int transport_put_fragment(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
			   uint32_t number, uint32_t at, uint32_t len);
/** Sends an ACK. 0 or -errno of the driver below. */
int transport_send_ack(struct transport_queue *q, struct transport_peer *p);
/** Sends the ACK that answers a PING with this `path`. */
void transport_send_answer(struct transport_queue *q, struct transport_peer *p, uint32_t path);
/** Sends an ACK at the end of the current recv() or timer scan. */
void transport_ack_soon(struct transport_queue *q, struct transport_peer *p);
void transport_send_acks(struct transport_queue *q);
void transport_flush(struct nic_queue *nq);
/** Adds a peer with unsent messages to the backlog. No effect while it may not send. */
void transport_backlog_add(struct transport_queue *q, struct transport_peer *p);

/* ---- assemble.c: poller; the rest in assemble.h ---- */

/** Computes wire_head.ack_bits. */
uint64_t transport_ack_bits(const struct transport_peer *p);

/* ---- retransmit.c: poller ---- */

/** Retransmits lost packets: those that later transmissions overtook, or with `all` each one that the bitmap covers. */
void transport_retransmit(struct transport_queue *q, struct transport_peer *p, bool all);
/** Sends a tail loss probe: the last packet that the bitmap covers, so that the ACK shows what is missing. */
void transport_tail_probe(struct transport_queue *q, struct transport_peer *p);
/** Discards the arrivals that the bitmap reported: the receiver may have dropped those packets for lack of memory. */
void transport_ack_bits_forget(struct transport_peer *p);
/** Retransmits a packet in fragments that fit the path MTU. */
void transport_retransmit_fragments(struct transport_queue *q, struct transport_peer *p, const struct transport_sent *e,
				    uint32_t number);
/** Reads the path MTU. true: it shrank. */
bool transport_mtu_shrunk(struct transport_peer *p);

/* ---- schedule.c, grant.c: grant.h ---- */

/** Resets the unscheduled bytes: what the peer stated is too old. */
static inline void transport_unscheduled_reset(struct transport_peer *p)
{
	p->unscheduled_bytes = FAR_TRANSPORT_UNSCHEDULED_BYTES;
}

/* ---- control.c: poller ---- */

/** Forwards a packet that `via` received to the control thread. Drops it if the ring is full; the sender repeats it. */
void transport_mail_forward(struct transport_queue *q, const struct transport_queue *via, const struct nic_pkt *lp);
/** Processes a PING that `via` received. With a path number, it probes that path in both directions. */
void transport_receive_ping(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			    const struct nic_pkt *lp);
/** Processes a RESET or CLOSE that `via` received. */
void transport_receive_end(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   const struct wire_head *h, const struct nic_pkt *lp);
/** Processes all kinds but MESSAGE and ACK. `p` NULL: the packet names no connection. */
void transport_receive_control(struct transport_queue *q, struct transport_peer *p, const struct wire_head *h,
			       const struct nic_pkt *lp);
/** Sends a complete control packet. 0 or -errno of the driver below. */
int transport_send_raw(struct transport_peer *p, const uint8_t *bytes, uint32_t len);
void transport_send_ping(struct transport_queue *q, struct transport_peer *p);

/* ---- recv.c: poller ---- */

/** Drops the undelivered rest of queue->batch and releases its packet. */
void transport_batch_end(struct transport_queue *q);
unsigned transport_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void transport_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie);

/* ---- path.c: poller, except where noted ---- */

/** Control: the driver below sibling `via` has made an address handle for a secondary path, or failed. */
void transport_path_event(struct transport_port *via, struct transport_path_setup *side, const struct nic_event *ev);
/** Control: allocates `paths_made`. false: no memory. */
bool transport_paths_make(struct transport_peer *peer);
/** Control: a PING about path `k` arrived at another queue: tries the next flow. */
void transport_path_next_flow(struct transport_port *p, struct transport_peer *peer, uint32_t k);
/** Control: drops the address handles that the poller has replaced. */
void transport_paths_released(struct transport_peer *peer);
/** Control: drops the address handles of all secondary paths. */
void transport_paths_drop(struct transport_peer *peer);
/** Control: returns true while the driver below makes a handle. */
bool transport_paths_pending(const struct transport_peer *peer);
/** Control, close(): removes all paths through this port. */
void transport_paths_part(struct transport_port *p);
/** Attaches the address handles of secondary paths that are new. */
void transport_paths_attach(struct transport_queue *q, struct transport_peer *p);
/** Sends a PING by each secondary path with a new flow, to find out whether it reaches the peer's queue. */
void transport_paths_verify(struct transport_peer *p);
/** Serves TRANSPORT_ORDER_MISROUTED: answers WRONG_QUEUE. */
void transport_path_report_misrouted(struct transport_peer *p, uint32_t due);
void transport_paths_detach(struct transport_queue *q, struct transport_peer *p);
/** Sets `failed_over`: not all packets of the peer use the primary path, or may not. */
void transport_set_failover(struct transport_queue *q, struct transport_peer *p, bool is);
/** Probes all paths: sends a PING by each. */
void transport_paths_probe(struct transport_queue *q, struct transport_peer *p, uint64_t now);
/** Records the answer to the PING about path `path` - 1. */
void transport_path_confirmed(struct transport_peer *p, uint32_t path);
/** A packet of the peer arrived by another queue than `via`: probes the paths, at most every
 * FAR_TRANSPORT_PATH_PROBE_NS. */
void transport_path_observed(struct transport_queue *q, struct transport_peer *p);
/** Answers a PING about a path by the path through `via`. false: no path leads through it. */
bool transport_path_answer(struct transport_queue *q, struct transport_peer *p, const struct transport_queue *via,
			   uint32_t path);
/** Timer scan of a peer with secondary paths: decides on a migration, probes better paths. */
void transport_paths_timer(struct transport_queue *q, struct transport_peer *p, uint64_t now, bool paused);

/* ---- expose.c: messages exposed to their receiver; poller ---- */

/** Called before the first packet of a larger message. true: it waits for the driver below to expose it. */
bool transport_offer(struct transport_queue *q, struct transport_peer *p, struct transport_message *m);
/** Returns true while a message is exposed, its first packet sent or not. */
static inline bool transport_offered(const struct transport_message *m)
{
	return m->onesided && m->transfer >= TRANSPORT_TX_EXPOSED;
}
void transport_offer_write(const struct transport_queue *q, const struct transport_message *m, uint8_t *out);
/** The receiver grants packets below `offset`, or sends WIRE_READ_DONE. false: protocol error. */
bool transport_offer_granted(struct transport_queue *q, struct transport_message *m, uint32_t offset, bool here);
/** Releases the exposure of a message that ends. */
void transport_offer_end(struct transport_queue *q, struct transport_message *m);
/** Processes a bulk event of the driver below. */
void transport_receive_onesided(struct transport_queue *q, const struct nic_pkt *lp);
/** Timer scan: sends in packets what the driver below did not expose in time. */
void transport_offers_timer(struct transport_queue *q, uint64_t now);

/* ---- read.c: messages read from their sender's memory; poller ---- */

/** Starts to read a message whose first packet had this key and of which no other packet arrived. */
void transport_read_begin(struct transport_queue *q, struct transport_message *m, const uint8_t *key);
/** Returns the offset up to which the message is read; the rest comes in a packet. */
static inline uint32_t transport_read_end(const struct transport_message *m)
{
	return m->len > m->done + TRANSPORT_TAIL_BYTES ? m->len - TRANSPORT_TAIL_BYTES : m->done;
}
/** Reads `bytes` from `from` on, in place of a grant. false: not now. */
bool transport_read_more(struct transport_queue *q, struct transport_message *m, uint32_t from, uint32_t bytes);
/** Called when all is granted: ends reading if no read is in flight. */
void transport_read_check(struct transport_queue *q, struct transport_message *m);
/** Processes READ or READ_FAILED. */
void transport_read_event(struct transport_queue *q, struct transport_message *m,
			  const struct transport_onesided_result *news);
/** Releases the reads of a message that ends. */
void transport_read_drop(struct transport_queue *q, struct transport_message *m);

/* ---- timer.c: poller ---- */

/** Sends the delayed acknowledgements that are due by `until`. */
void transport_delayed_acks_run(struct transport_queue *q, uint64_t until);
/** Timer scan of all active peers: acknowledgements, retransmissions, probes, pings. */
void transport_timers_run(struct transport_queue *q);
/* RTT samples; called if rtt.watch has the bit. */
/** The packet of the next sample has left. */
void transport_timing_begin(struct transport_queue *q, struct transport_peer *p, uint32_t number);
/** All packets below `ack` are acknowledged now. Called before they are removed. */
void transport_timing_ack(struct transport_queue *q, struct transport_peer *p, uint32_t ack);
/** Packet `number` is reported as arrived for the first time. */
void transport_timing_arrived(struct transport_queue *q, struct transport_peer *p, uint32_t number);
/** Packet `number` was retransmitted needlessly: the receiver has both copies. `untold`: it is acknowledged for the
 * first time. Called before the acknowledgement is processed. */
void transport_sent_duplicate(struct transport_queue *q, struct transport_peer *p, uint32_t number, bool untold);
uint64_t transport_deadline(const struct nic_queue *nq);

#endif
