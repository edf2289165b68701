/* SPDX-License-Identifier: BSD-3-Clause */
/** The link's queues and ports, and what its files offer to each other. */
#ifndef FAR_TRANSPORT_PORT_H
#define FAR_TRANSPORT_PORT_H

#include "transport/onesided.h"
#include "transport/peer.h"

/** A packet of several messages that is being handed up. */
struct link_batch {
	struct link_peer *peer; /* NULL: none is */
	const uint8_t *bytes;   /* behind the struct wire_head */
	uint32_t at, end;       /* of them: the end of the message before, of all */
};

struct link_queue {
	struct nic_queue base;
	struct nic_queue *lower;
	const struct nic_queue_ops *ops; /* of lower */
	struct link_port *port;
	uint64_t id;    /* the port's */
	bool crc;       /* to be computed: the driver below does not check */
	bool unchecked; /* but none is missed of who sends none */
	bool unflushed; /* something was committed below */
	bool stalled;   /* somebody in the backlog has waited longer than for the flush */
	bool armed;
	uint8_t asleep_mark; /* WIRE_ASLEEP: the queue is armed, and the driver below cannot wake it */
	bool look;           /* timers are due now: somebody is about to sleep, or has slept */
	bool paused;         /* the last look came late, and took no time-out */
	bool ring_full;      /* bytes of larger messages wait for the wire below: more of them when there are less */
	bool ring_watched;   /* it was, when the last of them was committed */
	uint32_t ring_most;  /* of them: link_ring_room() */
	uint32_t ring_n;     /* packets since it changed */
	uint32_t index;
	uint32_t passes;     /* since the last reading of the clock */
	uint64_t scanned_at; /* last look at the timers */
	uint64_t timed_at;   /* the same as the last time that a set was to time its first packet */
	uint64_t now;        /* 0: the clock was not read in this recv() */
	uint32_t actives_n, acks_n, kicks_n, given_n, awake_n;
	uint32_t scratch_used, heads_n;
	uint32_t abroad_n, empty_polls;
	uint32_t siblings_n;
	struct link_queue *siblings[FAR_PORTS_MAX - 1]; /* of the agent's other ports, that the same shard holds */
	uint64_t in_bytes;
	uint64_t handed_bytes; /* of them, in messages that were handed up until release() */
	uint64_t limit_ns;
	const struct clock_source *clock;
	struct link_message *ready_first, **ready_last; /* whole, to be handed up, in order */
	struct link_message *burst; /* handed up without a cookie by the last recv(): freed by the next */
	struct link_message *free;
	uint32_t free_n;
	struct link_message *out_free; /* of the segments; those below `carved` were used */
	uint32_t carved, rings_carved;
	struct link_rings *rings_free, *rings_last;     /* last: the one that was taken last */
	uint32_t rings_n;                               /* taken */
	struct link_peer *backlog_first, *backlog_last; /* have messages to send, and window */
	uint32_t backlog_turn;
	bool (*owes)(void *ctx, uint32_t peer);
	void *owes_ctx;
	nic_place_fn *place;
	void *place_ctx;
	struct link_grants grants;
	_Atomic uint64_t resent, timeouts, probes, needless, regrants, moves, read_bytes;
	_Atomic uint64_t duplicates, crc_errors, malformed, unknown, ended, no_memory, crowded, unproven;
	struct shm_head heads[LINK_BURST]; /* of the last burst: what was handed up where it lies */
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[LINK_BURST + 1]; /* of the driver below, for the last burst, and a batch that ended then */
	struct nic_pkt lower_pkts[LINK_BURST]; /* what it gave; those from lower_at on were not looked at */
	uint32_t lower_n, lower_at;
	struct link_batch batch; /* lower_pkts[lower_at - 1], of which not all was handed up */
	uint8_t *scratch;
	struct link_peer *acks[LINK_BURST];
	struct link_peer *awake[FAR_LINK_TOLD_MAX];  /* who believe that we are awake */
	struct link_peer *kicks[FAR_LINK_PEERS_MAX]; /* by the next flush */
	struct link_peer *actives[FAR_LINK_PEERS_MAX];
	/* Not looked at any more, but that they are owed an acknowledgement by then: from owing_first on, in order of
	 * time. One whose time is not its peer's ack_at was acknowledged meanwhile. */
	struct link_owing {
		struct link_peer *peer;
		uint64_t at;
	} owing[FAR_LINK_PEERS_MAX];
	uint32_t owing_first, owing_n;
	uint32_t peers_end;                          /* beyond the last entry of `peers` that was ever used */
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* opened and not closed; the shard's own view */
	struct link_onesideds onesided;

	/* Both. */
	struct link_board orders, news;
	struct link_mailbox mail;
	/* The control core makes them, the shard learns of one with a LINK_DUE_OPEN. */
	_Atomic(struct link_segment *) segments[FAR_LINK_PEERS_MAX / LINK_SEGMENT_PEERS];
	uint32_t segments_n, open_n; /* the control core's: connections that have a share in them */
};

struct link_port {
	struct nic_port base;
	struct nic_port_ops ops;
	struct nic_queue_ops queue_ops;
	struct nic_port *lower;
	struct nic_caps lower_caps;
	uint32_t ring; /* packets of a queue below, less those that acknowledgements and set-ups need */
	struct link_config config;
	uint64_t id;
	struct nic_addr own;                 /* lower's */
	bool key_known;                      /* `transport` is of the group's key; before, of no one's */
	struct auth_key transport, cookies;  /* derived from the group's key; of this port alone */
	uint8_t own_proof[AUTH_PROOF_BYTES]; /* link_auth_address() of `own` */
	uint64_t cookie_floor;               /* cookies issued at or before it are not taken: see link_remember() */
	int epoll_fd, event_fd;
	uint32_t packet_max; /* largest packet that lower takes */
	uint32_t queues_n;
	uint32_t peers_n;                          /* indices that were ever used: all below */
	uint32_t peers_free;                       /* none below is free */
	struct link_setup *setups, *setup_at;      /* under way; the one that step() is to look at next */
	uint32_t accepted[2 * FAR_LINK_PEERS_MAX]; /* by identity and token of the other side: index + 1 of the peer */
	uint32_t half_open_n, strangers_n;
	_Atomic uint64_t refused_n;                    /* set-ups of strangers */
	_Atomic uint64_t crowded_n;                    /* packets of set-ups for which there was no place */
	_Atomic uint64_t unknown_n, repeated_n;        /* that name no peer; that come again, or too late */
	struct link_port *siblings[FAR_PORTS_MAX - 1]; /* link_join() */
	uint32_t siblings_n;
	uint64_t next_at;    /* when some set-up has something to do */
	nic_event_fn *event; /* of step() */
	void *ctx;
	uint64_t now;
	struct {
		uint64_t id, token, issued;
		int error;
	} refused[FAR_LINK_REFUSED_KEPT];
	uint32_t refused_at;
	struct link_queue *queues[FAR_LINK_QUEUES_MAX];
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* made once and used again: a late look at one is harmless */
	struct link_secret *secrets[FAR_LINK_PEERS_MAX / LINK_SLAB_PEERS]; /* of the peers of each slab */
	transport_migrated_fn *migrated;                                   /* NULL: nobody is notified */
	void *migrated_ctx;
};

/* port.c */

/** Has step() called: fd() becomes readable. Any thread; a system call, made for set-ups and ends only. */
void link_port_signal(struct link_port *p);
/** The address of the driver below, and the port's identity; false: malformed. */
bool link_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id);
__attribute__((format(printf, 3, 4))) int link_error(struct nic_err *err, int error, const char *format, ...);

/* connection.c: control core */

/** A free place, with a token of its own; NULL: there is none. */
struct link_peer *link_peer_new(struct link_port *p, unsigned queue, enum link_state state);
/** The set-up is over as far as the peer is concerned: lets go of what only it needs, now or later. */
void link_setup_end(struct link_port *p, struct link_peer *peer);
/** Who came with this identity and token; NULL: nobody. */
struct link_peer *link_accepted_find(const struct link_port *p, uint64_t id, uint64_t token);
void link_accepted_add(struct link_port *p, struct link_peer *peer);
/** Leaves enum link_due bits to the shard. */
void link_order(struct link_peer *peer, uint32_t due);
void link_peer_free(struct link_port *p, struct link_peer *peer);
void link_way_drop(struct link_port *p, uint32_t *way);
void link_peer_let_go(struct link_port *p, struct link_peer *peer);
void link_peer_end(struct link_port *p, struct link_peer *peer);
void link_peer_kill(struct link_peer *peer, int error);
/** step() is to look at the peers at this time. */
void link_step_soon(struct link_port *p, uint64_t at);
/** Leave a packet of the set-up to the shard; or not, when it has not sent the one before: it is repeated. */
void link_say_words(struct link_peer *peer, enum wire_kind kind);
void link_say_no(struct link_peer *peer, enum wire_kind kind, int error, uint32_t path);
/** HELLO or WELCOME, again and again. */
void link_repeat(struct link_port *p, struct link_peer *peer, uint64_t now);
/** FAILED: the peer is gone after it. */
void link_report_failed(struct link_port *p, struct link_peer *peer, int error, const char *text);
void link_failed(struct link_port *p, struct link_peer *peer, int error);
void link_report_up(struct link_port *p, struct link_peer *peer);
void link_report_moved(struct link_port *p, struct link_peer *peer);
void link_report_down(struct link_port *p, struct link_peer *peer, int error);
/** A HELLO of this set-up that comes late is not to begin a new one. */
void link_remember(struct link_port *p, const struct link_peer *peer, int error);

/* setup.c: control core */

int link_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		 const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err);
uint64_t link_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
void link_drop(struct nic_port *port, uint32_t peer);
void link_leave(struct link_port *p); /* close(): the queues are idle */

/* handshake.c: what the packets of the set-up say; either thread */

/** Writes a packet with a body of struct wire_words, to leave through the driver below `via`; its length. HELLO is as
 * long as the longest packet of a set-up, so that no answer to it is longer. Not sealed. */
uint32_t link_words_write(uint8_t *out, const struct link_peer *p, const struct link_queue *via, enum wire_kind kind,
			  unsigned want, uint32_t path, const void *words, uint16_t words_len,
			  const struct link_proofs *proofs);
/** The same with a struct wire_no. */
uint32_t link_no_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error, uint32_t path,
		       const uint8_t nonce[AUTH_NONCE_BYTES]);

struct link_words {
	uint64_t id, token, issued;
	uint32_t queue, want, path, packet_max, words_len, addr_len;
	const uint8_t *words, *addr;
	const uint8_t *nonce, *proof, *public;
};
struct link_no {
	int error;
	uint32_t path;
	const uint8_t *nonce;
};
/** false: malformed. `out` points into `body`. */
bool link_words_read(const uint8_t *body, uint64_t len, struct link_words *out);
bool link_no_read(const uint8_t *body, uint64_t len, struct link_no *out);

/* auth.c: what proves the packets of handshake.c; either thread */

/** The last steps of a packet, written whole before: its tag by `key` (NULL: zeros) and, with `crc`, its checksum.
 * `from`: identity of the port that it is from, `to`: link_auth_address() of where it goes (NULL: by a session's key).
 */
void link_seal(const struct auth_key *key, uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to, bool crc);
/** Was it sealed so. Always true without a key. */
bool link_sealed(const struct auth_key *key, const uint8_t *packet, uint32_t len, uint64_t from, const uint8_t *to);
/** Of an address of the driver below, as it was published: equal for equal ones. Zeros without a key. */
void link_auth_address(const struct link_port *p, const void *blob, uint32_t len, uint8_t out[AUTH_PROOF_BYTES]);
/** By which control messages are proven outside of a session; NULL: there is none. */
static inline const struct auth_key *link_key(const struct link_port *p)
{
	return p->config.key ? &p->transport : NULL;
}
struct link_secret *link_secret_of(const struct link_peer *peer);
/** By which they are within one, from DUE_START on. */
const struct auth_key *link_session_key(const struct link_peer *peer);
/** The control core: once the group's key is known, it is this port's. */
void link_key_look(struct link_port *p);
/** The cookie for who sends this HELLO, issued at this time. */
void link_cookie(const struct link_port *p, const struct link_words *hello, uint64_t issued,
		 uint8_t out[AUTH_PROOF_BYTES]);
/** Does this HELLO have one that is to be taken now. */
bool link_cookie_holds(const struct link_port *p, const struct link_words *hello, uint64_t now);
/** The control core: both public keys and both hellos are there: the session's key, and in `confirm` what proves it.
 * false: the other side's public key is none. */
bool link_session_begin(const struct link_port *p, struct link_peer *peer, uint8_t confirm[AUTH_PROOF_BYTES]);
/** A PING, sealed, to leave through `via`, about way `path` - 1 or, 0, none; its length. The shard. */
uint32_t link_ping_write(uint8_t *out, struct link_peer *p, const struct link_queue *via, uint32_t path,
			 const uint8_t to[AUTH_PROOF_BYTES]);
/** Of a PING of this connection: it is from its other end. The shard. */
bool link_ping_proven(const struct link_peer *p, const uint8_t *packet, uint32_t len, const struct link_words *w);
/** The first time that its number comes. The shard. */
bool link_ping_fresh(struct link_secret *s, uint32_t number);
/** Number of the PING that has, or is answered with, this nonce. 0: it has none. */
uint32_t link_ping_number(const uint8_t nonce[AUTH_NONCE_BYTES]);
void link_ping_nonce(uint32_t number, uint8_t out[AUTH_NONCE_BYTES]);
/** A BYE that came to `via`, or a RESET that answers a PING: it is from the other end. */
bool link_end_proven(const struct link_peer *p, const struct link_port *via, const uint8_t *packet, uint32_t len);

/** Single writer, any reader. */
static inline void counter_bump(_Atomic uint64_t *c)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void counter_more(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

/** Of a packet of several messages: where the next struct wire_sub lies, behind bytes up to `end`, and the bytes of its
 * message. */
static inline uint32_t link_batch_sub(uint32_t end)
{
	return (end + 31) & ~31u;
}

static inline uint32_t link_batch_body(uint32_t sub, uint32_t len)
{
	uint32_t at = sub + (uint32_t)sizeof(struct wire_sub);
	return len > FAR_LINE_PAYLOAD ? (at + 63) & ~63u : at;
}

/** A packet of small messages, which no other one is as urgent as, that is WIRE_LOOSE. */
static inline bool link_sent_loose(const struct link_sent *e)
{
	return e->priority == LINK_URGENT && e->offset;
}

/** Of a packet of a larger message: WIRE_LOOSE when it may pass whatever is larger or must keep its order. */
static inline unsigned link_bulk_mark(const struct link_message *m)
{
	return m->order == NIC_ORDER_NONE ? WIRE_LOOSE : 0;
}

/** Of any packet: WIRE_LOOSE or 0, as it had it. */
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

/* rings.c */

/** The control core: a share in the queue's segments, for as long as it is connected. false: no memory. */
bool link_rings_reserve(struct link_queue *q, struct link_peer *peer);
void link_rings_unreserve(struct link_queue *q, struct link_peer *peer);
/** close(). */
void link_segments_free(struct link_queue *q);
/** Segment `i`; NULL: there is none yet. */
static inline struct link_segment *link_segment_at(const struct link_queue *q, uint32_t i)
{
	return atomic_load_explicit(&((struct link_queue *)(uintptr_t)q)->segments[i], memory_order_acquire);
}
/** The shard: something of the peer is to be under way, and it has no set. */
void link_rings_take(struct link_queue *q, struct link_peer *p);
/** The shard: what was under way was dropped, and the set is as a new one. Its peer keeps it. */
void link_rings_renew(struct link_queue *q, struct link_peer *p);
/** Of a free set, and of one that is about to be: is it as the next peer must find it. */
bool link_rings_are_new(const struct link_rings *r);
/** The shard: what was under way has ended, or was dropped. No effect without a set. */
void link_rings_give(struct link_queue *q, struct link_peer *p);
/** The shard: gives it back if nothing needs it. false: it is kept for what a resend may yet prove. */
bool link_rings_look(struct link_queue *q, struct link_peer *p, uint64_t now);
/** What is known of the round trip. */
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

/* message.c: the shard */

/** To be sent: from the segments, so that a small one never lacks memory. NULL: there is no memory for the body. */
struct link_message *link_message_out(struct link_queue *q, struct link_peer *p, uint32_t len);
/** The same whose body is there: a reference of `owner` is its. NULL: there is no memory. */
struct link_message *link_message_lent(struct link_queue *q, struct link_peer *p, const void *body, uint32_t len,
				       struct far_buf *owner);
/** Gives its buffer back. `p` NULL: the peer is gone. */
void link_message_out_drop(struct link_peer *p, struct link_message *m);
static inline void link_message_out_free(struct link_queue *q, struct link_peer *p, struct link_message *m)
{
	if (__builtin_expect(m->buf != NULL, 0))
		link_message_out_drop(p, m);
	m->next = q->out_free;
	q->out_free = m;
}
/** That arrived: its memory is the queue's. `due`: it is the one whose turn it is. `begins` (may be NULL): the head
 * of its first packet, when the engine may be asked for a place. NULL: too much is taken. */
struct link_message *link_message_in(struct link_queue *q, struct link_peer *p, uint32_t len, bool due,
				     const struct wire_head *begins);
/** Of either kind, once it was handed up. */
void link_message_in_free(struct link_queue *q, struct link_message *m);
/** That arrived, and those behind it by `next`. NULL: none. */
void link_messages_in_free(struct link_queue *q, struct link_message *m);
/** All that is kept of a peer, in both directions. */
void link_messages_drop(struct link_queue *q, struct link_peer *p);

/** The lines of it that a message looks at, and a look at the timers. */
static inline void link_peer_fetch(const struct link_peer *p)
{
	for (size_t at = 0; at < 3 * 64; at += 64)
		__builtin_prefetch((const char *)p + at, 1);
}

/* queue.c: the shard */

extern const struct nic_queue_ops link_queue_ops;
extern const struct nic_raw_ops link_raw_ops;
void link_orders_serve(struct link_queue *q);
void link_peer_activate(struct link_queue *q, struct link_peer *p);
void link_peer_dead(struct link_queue *q, struct link_peer *p, int error);
void link_news_post(struct link_queue *q, struct link_peer *p, enum link_news news);
/** What left by other ways, and kicks: the end of a flush. */
void link_flush_rest(struct link_queue *q);
/** Where the driver below cannot wake, has the peer kicked by the flush: it is asleep, or may be. */
void link_kick(struct link_queue *q, struct link_peer *p);
/** What the control core asked for and the shard did not do any more; by close(). */
void link_queue_end(struct link_queue *q, struct link_peer *p);

/* send.c: the shard */

/** Takes the message. */
void link_send(struct link_queue *q, struct link_peer *p, struct link_message *m);
/** Packet `number` as it was, or `len` bytes of its message's from `at` on. 0 or -errno of the driver below; -EMSGSIZE,
 * too, when it is wider than the path is now. */
int link_put_again(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number);
int link_put_piece(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number, uint32_t at,
		   uint32_t len);
/** WIRE_ACK. 0 or -errno of the driver below. */
int link_send_ack(struct link_queue *q, struct link_peer *p);
/** The acknowledgement that answers a PING with this `path`. */
void link_send_answer(struct link_queue *q, struct link_peer *p, uint32_t path);
void link_ack_soon(struct link_queue *q, struct link_peer *p);
void link_send_acks(struct link_queue *q);
void link_flush(struct nic_queue *nq);
void link_backlog_add(struct link_queue *q, struct link_peer *p);

/* assemble.c: the shard */

/** Which of the packets after the one that is due have arrived, for the acknowledgement. */
uint64_t link_ack_bits(const struct link_peer *p);

/* retransmit.c: the shard */

/** Sends packets that are lost again: those that `order` shows, or with `all` each that the bitmap would show. */
void link_resend(struct link_queue *q, struct link_peer *p, bool all);
/** Sends the last packet that the bitmap would show once more, so that the other side says what it lacks. */
void link_probe(struct link_queue *q, struct link_peer *p);
/** Forgets what the bitmap has told: the other side may have let go of it for want of memory. */
void link_doubt(struct link_peer *p);
/** All of a packet, in pieces that the path takes. */
void link_resend_pieces(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number);
/** Learns what the driver below takes now: true when that is less than it was. */
bool link_narrower(struct link_peer *p);

/* schedule.c, grant.c: grant.h */

/** Forgets what was told of the bytes that leave without a grant: it is old. */
static inline void link_bulk_forget(struct link_peer *p)
{
	p->unasked = FAR_LINK_UNASKED;
}

/* control.c: the shard */

/** To the control core, as it came to `via`; it is sent again when that has no room. */
void link_mail_on(struct link_queue *q, const struct link_queue *via, const struct nic_pkt *lp);
/** A PING that came by `via`. With a number in it, it asks whether that way leads here, and back. */
void link_take_ping(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct nic_pkt *lp);
/** A RESET or BYE that came by `via`. */
void link_take_end(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct wire_head *h,
		   const struct nic_pkt *lp);
/** Everything but messages and acknowledgements of a connection; `p` NULL: it names none. */
void link_take_other(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct nic_pkt *lp);
/** A packet of the set-up that is written in `bytes`. 0 or -errno of the driver below. */
int link_send_raw(struct link_peer *p, const uint8_t *bytes, uint32_t len);
void link_send_ping(struct link_queue *q, struct link_peer *p);

/* recv.c: the shard */

/** Gives up what was not handed up of a packet of several messages, and lets go of it. */
void link_batch_end(struct link_queue *q);
unsigned link_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void link_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie);

/* path.c: the shard, but for those that name the control core */

/** The control core: a place below a sibling's port, or none, was made for it. */
void link_side_event(struct link_port *via, struct link_side *side, const struct nic_event *ev);
/** The control core: there is `sides`. false: no memory. */
bool link_sides_make(struct link_peer *peer);
/** The control core: a question about way `k` came to another queue: its next path. */
void link_side_astray(struct link_port *p, struct link_peer *peer, uint32_t k);
/** The control core: the shard holds other places than before. */
void link_sides_moved(struct link_peer *peer);
/** The control core: lets go of them. */
void link_sides_drop(struct link_peer *peer);
bool link_sides_pending(const struct link_peer *peer);
/** close(): nobody has a way through this port any more. */
void link_part(struct link_port *p);
void link_ways_attach(struct link_queue *q, struct link_peer *p);
/** Do the ways lead to its queue there? Once for each path of them, where there are several queues. */
void link_ways_probe(struct link_peer *p);
/** Tells of the questions that LINK_DUE_ASTRAY is about. */
void link_way_astray(struct link_peer *p, uint32_t due);
void link_ways_detach(struct link_queue *q, struct link_peer *p);
/** Not all of the peer's packets go by its own way, or may not. */
void link_abroad(struct link_queue *q, struct link_peer *p, bool is);
/** Asks by every way whether it leads there. */
void link_way_ask(struct link_queue *q, struct link_peer *p, uint64_t now);
/** An answer to question number `path` came back. */
void link_way_answered(struct link_peer *p, uint32_t path);
/** The peer was heard by another queue than the one that it is sent to by. */
void link_way_heard(struct link_queue *q, struct link_peer *p);
/** PING with a number in it, which came by `via`: false: that is no way of ours. */
bool link_way_answer(struct link_queue *q, struct link_peer *p, const struct link_queue *via, uint32_t path);
/** Once in each look at the timers, while there is more than one way. */
void link_way_look(struct link_queue *q, struct link_peer *p, uint64_t now, bool paused);

/* expose.c: the shard. Messages that are exposed to who is to have them. */

/** Before the first packet of a larger message: true: it waits until the driver below has exposed it. */
bool link_offer(struct link_queue *q, struct link_peer *p, struct link_message *m);
/** It is to have, or had, the key in its first packet, and still lies open. */
static inline bool link_offered(const struct link_message *m)
{
	return m->onesided && m->transfer >= LINK_OUT_EXPOSED;
}
void link_offer_write(const struct link_queue *q, const struct link_message *m, uint8_t *out);
/** The other side grants packets of it below `offset`, or says WIRE_HERE. false: it cannot. */
bool link_offer_granted(struct link_queue *q, struct link_message *m, uint32_t offset, bool here);
/** It ends, however it does. */
void link_offer_end(struct link_queue *q, struct link_message *m);
/** A packet of NIC_PEER_BULK. */
void link_onesided_take(struct link_queue *q, const struct nic_pkt *lp);
/** What the driver below did not expose in time goes in packets. */
void link_offers_look(struct link_queue *q, uint64_t now);

/* read.c: the shard. Messages that are read from who exposed them. */

/** The first packet of a message has come with this key, and no other. */
void link_read_begin(struct link_queue *q, struct link_message *m, const uint8_t *key);
/** Bytes of it below that are read. */
static inline uint32_t link_read_end(const struct link_message *m)
{
	return m->len > m->done + LINK_REST ? m->len - LINK_REST : m->done;
}
/** In place of a grant: reads `bytes` from `from` on. false: not now. */
bool link_read_more(struct link_queue *q, struct link_message *m, uint32_t from, uint32_t bytes);
/** All that is to be read is granted: is that the end? */
void link_read_look(struct link_queue *q, struct link_message *m);
void link_read_event(struct link_queue *q, struct link_message *m, const struct link_onesided_news *news);
/** It ends, however it does. */
void link_read_drop(struct link_queue *q, struct link_message *m);

/* timer.c: the shard */

/** Acknowledges what is owed to those that are not looked at, and is due by `until`. */
void link_owing_run(struct link_queue *q, uint64_t until);
/** Acknowledgements, resends, probes: whatever is due now. */
void link_timers_run(struct link_queue *q);
/** What the path of a packet comes to when p->rtt.watch says so. The first packet that is to be timed has left. */
void link_timing_begin(struct link_queue *q, struct link_peer *p, uint32_t number);
/** All packets below `ack` have arrived, as is heard now; before they are taken off. */
void link_timing_ack(struct link_queue *q, struct link_peer *p, uint32_t ack);
/** Packet `number` has arrived, as is heard now for the first time. */
void link_timing_arrived(struct link_queue *q, struct link_peer *p, uint32_t number);
/** The other side has packet `number` as it was sent first, and once more; `untold`: this is the first acknowledgement
 * of it. Before the acknowledgement is taken. */
void link_sent_twice(struct link_queue *q, struct link_peer *p, uint32_t number, bool untold);
uint64_t link_deadline(const struct nic_queue *nq);

#endif
