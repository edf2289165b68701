/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The link's own structures. A peer is one end of a connection, of one queue; its number and 52 random bits are the
 * token that the other end puts into every packet.
 *
 * Two threads have to do with a peer: the control core sets it up and takes it down, the holder of the queue's shard
 * sends and receives all packets, those of the set-up too. They share no lock: the control core leaves orders (`due`)
 * and the shard news (`news`), as bits of the peer below two levels of bitmaps, so neither can be lost or fill up.
 * Set-up packets that arrive go to the control core through a ring (link_mail.c), which may be full: they are repeated.
 */
#ifndef FAR_LINK_PORT_H
#define FAR_LINK_PORT_H

#include "base/limits.h"
#include "link/link.h"
#include "link/link_grant.h"
#include "link/link_mail.h"
#include "link/link_rtt.h"
#include "wire/head.h"
#include "xcore/buf.h"

#define LINK_HEAD ((uint32_t)sizeof(struct wire_head))
/* A message of 16 MiB and what the engine adds to it. */
#define LINK_BODY_MAX (((uint64_t)16 << 20) + 64)
#define LINK_BURST    32u /* packets taken from the driver below at once */
#define LINK_BITMAP   64u /* packets after the acknowledged ones of which it tells */
#define LINK_ID_BYTES 8u  /* of the port's identity, at the end of its address */
/* An identity is random but for its last four bits, which tell the queues. */
#define LINK_ID_QUEUES(id) ((uint32_t)(id) % 16 + 1)
#define LINK_INDEX(t)      ((uint32_t)(t) % FAR_LINK_PEERS_MAX) /* of a token */
/* Least packet that a driver below must take: the longest one of the set-up fits. */
#define LINK_PACKET_MIN LINK_MAIL_BYTES
/* Room for misaligned bodies of a burst; what does not fit gets a buffer. */
#define LINK_SCRATCH_BYTES 65536u
/* Bytes of a packet of several messages behind its head. No path becomes narrower, so it is never to be cut. */
#define LINK_BATCH_BYTES FAR_LINK_SAFE_BYTES

/* nic_tx.priority: of small messages, acknowledgements and all that is said of a connection; below it of the bytes of
 * larger ones that leave unasked, less the longer they are; and of granted ones, as the receiver says. */
#define LINK_URGENT  NIC_PRIORITY_MAX
#define LINK_GRANTED 3u /* at most */

/* Messages of a peer that are out, and rooms that are open beside them. */
#define LINK_MESSAGES (FAR_LINK_SLOTS + 256u)

struct link_peer;

/** A message on its way out, in its peer's slots, or one that arrived, in a slab. Large bodies have a buffer. */
struct link_message {
	struct link_message *next;
	struct link_peer *peer;
	struct far_buf *own; /* this memory; NULL: it is one of rings->messages */
	struct far_buf *buf; /* of the body; NULL: it is `room`, or there is none */
	uint8_t *body;
	uint32_t len;
	uint32_t done;  /* out: bytes that have packet numbers; in: bytes that arrived, without a gap */
	uint32_t first; /* packet number that it begins with; out, until it has: peer->small_n at its commit */
	uint32_t charged;
	uint32_t granted; /* packets that begin below it may be sent: out, by us; in, as was said */
	uint8_t order;    /* out: enum nic_order */
	uint8_t priority; /* of larger ones, nic_tx.priority: out, of the next packet; in, as was said */
	bool begun;       /* in: part of it has come in turn; it is among its queue's `in` */
	bool stalled;     /* in: nothing came of its grants for long; they do not count */
	bool loose;       /* in: the first of a WIRE_LOOSE packet that waits for the one that it may not pass */
	struct link_message *in_next, *in_prev;
	struct shm_head head;
	alignas(64) uint8_t room[128];
};
static_assert(sizeof(struct link_message) <= 256, "one slab of the smallest class");

/** Why a packet was sent again; 0: it was not. */
enum link_again { LINK_BY_EVIDENCE = 1, LINK_BY_TIME = 2 };

/* Packets that came first as copies that were sent again, as the receiver remembers them. */
#define LINK_AGAIN_KEPT 16u

/** A packet that was sent, at its number modulo FAR_LINK_WINDOW. */
struct link_sent {
	struct link_message *message; /* `last`: with those behind it, by `next`, all of them in this packet */
	uint32_t offset, len;         /* offset of one that link_sent_loose(): as WIRE_LOOSE has it */
	uint32_t order;               /* of its last sending, among all of the peer */
	bool arrived;                 /* by the bitmap */
	bool last;                    /* of its message */
	uint8_t priority;             /* nic_tx.priority: where the network has such, more urgent ones overtake it */
	uint8_t again;                /* enum link_again */
};

/** A packet that arrived before its turn, at its number modulo FAR_LINK_WINDOW; no message: none did. */
struct link_arrived {
	struct link_message *message; /* of a packet of several all, by `next`; &link_handed_up: they went up */
	uint32_t offset, len;         /* offset of one that is `loose`: as WIRE_LOOSE has it */
};
extern struct link_message link_handed_up;

/** What only open connections need. */
struct link_rings {
	struct link_sent sent[FAR_LINK_WINDOW];
	struct link_arrived arrived[FAR_LINK_WINDOW];
	struct link_message messages[LINK_MESSAGES]; /* touched as far as many are out at once */
};

enum link_state {
	LINK_FREE,
	LINK_CONNECTING, /* HELLO is repeated; has a deadline */
	LINK_ACCEPTING,  /* HELLO arrived; until the engine has decided. Half-open; has a deadline */
	LINK_REFUSING,   /* one REFUSED or RESET to send; half-open or a stranger's; has a deadline */
	LINK_LOOPING,    /* a queue to itself; UP with the next step */
	LINK_UP,
	LINK_DOWN,   /* reported; waits for drop() */
	LINK_CLOSING /* until the shard has let go of it */
};

/** Orders to the shard. */
enum link_due {
	LINK_DUE_OPEN = 1,   /* lower_peer is there */
	LINK_DUE_MOVE = 2,   /* lower_next is to take its place */
	LINK_DUE_SETUP = 4,  /* `setup` is to be sent */
	LINK_DUE_START = 8,  /* the connection is there; what both need is filled in */
	LINK_DUE_ACK = 16,   /* say something */
	LINK_DUE_DEAD = 32,  /* the other side has ended it, as another queue heard */
	LINK_DUE_CLOSE = 64, /* say BYE, and let go of it */
	LINK_DUE_WAY = 128   /* a side has its lower_peer */
};

/** News from the shard. */
enum link_news {
	LINK_NEWS_CONFIRMED = 1, /* the other side has used its token */
	LINK_NEWS_MOVED = 2,     /* way_old is not used any more */
	LINK_NEWS_DOWN = 4,      /* `why` */
	LINK_NEWS_CLOSED = 8,    /* nothing of it is touched by the shard any more */
	LINK_NEWS_WAY = 16       /* `way_taken` */
};

/** A way to a peer, as the shard knows it (link_way.c): a place of the driver below a queue. Number 0 is the
 * connection's own, the others lead through the queues of the agent's other ports that the same shard holds. */
struct link_way {
	struct link_queue *via;
	uint32_t lower_peer;
	bool attached;
};

/** The same as the control core knows it. */
struct link_side {
	struct link_peer *peer;
	struct link_port *port; /* NULL: there is none */
	uint32_t number;        /* the caller's */
	bool pending;           /* connect() of the driver below `port` is under way */
	_Atomic uint32_t lower_peer;
};

struct link_peer {
	/* The shard, from DUE_START on; the control core before. */
	uint64_t token;       /* ours: what arrives has it */
	uint64_t token_there; /* theirs: what leaves has it; 0: not known yet */
	uint64_t id_there;    /* of their port */
	struct link_rings *rings;
	struct link_queue *queue;
	uint32_t index;
	struct link_queue *via; /* the way that is used: whose lower driver, and its peer */
	uint32_t lower_peer;
	bool loop;   /* a queue to itself: nothing below is used */
	bool opened; /* lower_peer is attached */
	bool started;
	bool confirmed;    /* something came with our token: messages may leave */
	bool special;      /* not confirmed, or with another way: looked at more closely when it is heard */
	bool attached;     /* by the engine */
	bool detached;     /* and let go of */
	bool dead;         /* nothing is sent or taken any more */
	bool heard;        /* since the last look at the timers */
	bool asleep_there; /* it says so: to be kicked */
	bool told_asleep;  /* it was told that we sleep, and nothing else since; false: in the queue's awake */
	bool kick;         /* in the queue's kicks */
	bool active;       /* in the queue's actives */
	bool backlogged;   /* in the queue's backlog */
	bool ack_now;      /* in the queue's acks */
	bool unchecked;    /* both ends said so: no CRC */
	uint32_t payload_max;
	/* out */
	/* Not all numbered, oldest first, those that are are in rings->sent: small ones, one packet each at most; and
	 * the others, with what must not pass them (link_bulk.c). */
	struct link_message *out_next, *out_last;
	struct link_message *bulk_next, *bulk_last;
	uint32_t bulk_strict; /* of those in the second list, not NIC_ORDER_NONE */
	uint32_t bulk_open;   /* of those, numbered in part */
	uint32_t bulk_turn;   /* packets of them, ever */
	/* `bulk_out`: beyond the last packets of them, of those that keep an order, and the last packet of the first
	 * list; false: none is unacknowledged. */
	uint32_t bulk_end, strict_end, small_last;
	bool bulk_out;
	uint32_t unasked;             /* bytes of one that leave without a grant, as the other side says */
	uint32_t window, window_bulk; /* packets that may be unacknowledged, those of the second list below the other */
	uint32_t small_n, small_sent; /* ever: of the first list */
	uint32_t small_bytes;         /* sent since the last packet of the second, which waits */
	struct link_message *out_free;
	uint32_t carved; /* of rings->messages: those below were used */
	uint32_t out_n;
	uint32_t una, next;                  /* packet numbers: oldest that is not acknowledged, next to be given */
	uint32_t flying;                     /* bytes of those that have not arrived */
	uint32_t order;                      /* sendings */
	uint32_t order_arrived;              /* latest of those that arrived */
	uint32_t below_arrived[LINK_URGENT]; /* the same of those that are as urgent or less; by priority */
	uint32_t resends;                    /* time-outs in a row */
	uint32_t answers; /* looks at the timers that found something heard since the first of those */
	uint64_t out_bytes;
	uint64_t resend_at; /* 0: to be set by the next look at the timers */
	uint64_t armed_at;  /* when it was set for the packets that are out now */
	struct link_rtt rtt;
	uint32_t reorder;     /* FAR_LINK_REORDER, or more: this path has reordered so many */
	uint32_t probed_una;  /* `probed`: there was a probe while this one was the oldest */
	uint32_t probe_order; /* `probe_out`: what was sent before it and has not come when it has is lost */
	uint32_t probe_number;
	uint8_t probe_priority;
	bool probed, probe_out;
	bool probing; /* at resend_at there is a probe, and no time-out yet */
	/* in */
	uint32_t rx_first;   /* what they begin with */
	uint32_t rx_next;    /* packet number that is due */
	uint32_t rx_told;    /* the same as it was told last */
	bool pieces;         /* of the packet that is due some came */
	uint32_t early_n;    /* packets that arrived before their turn */
	uint32_t loose_n;    /* of those: `loose` */
	uint32_t owed;       /* messages, or parts of one, that arrived and were not acknowledged */
	uint32_t owed_bytes; /* and the bytes of their packets */
	uint32_t ack_every;  /* of them one acknowledgement at least, so that its window stays open */
	uint64_t ack_at;     /* 0: to be set */
	uint32_t begun_n;    /* of `assembling`: begun */
	uint32_t regrants;   /* in a row */
	uint64_t grant_at;   /* when grants that nothing came of are said again; 0: to be set */
	uint8_t twice; /* WIRE_TWICE: packet `twice_number` came as sent first and again, to be told; WIRE_UNTOLD */
	uint32_t twice_number;
	uint32_t again[LINK_AGAIN_KEPT], again_n; /* came as sent again, and not before */
	struct link_message *assembling[FAR_LINK_ASSEMBLIES];
	struct link_message *held_first, **held_last; /* whole, but not attached yet */
	uint32_t ready_n;                             /* in the queue's list */
	/* ways: ways[0] is its own */
	struct link_way ways[1 + FAR_LINK_WAYS_MAX];
	uint8_t taken;            /* the one that is used */
	uint8_t others;           /* bits of those beyond the first that can be used */
	uint8_t asked, answered;  /* bits of ways: PING left by it; its answer came back by it */
	bool abroad;              /* counted in the queue's abroad_n: not all of it goes by its own way */
	bool visited;             /* something came by another queue since the last look */
	uint64_t decide_at;       /* `asked`: who has not answered by then does not count */
	uint64_t ask_at, back_at; /* not to be asked before, for having heard by another way; for the better ones */
	/* liveness */
	uint64_t silent_ns; /* that somebody listened and heard nothing, though there was something to be heard */
	uint32_t pings;     /* since it was heard */
	bool fresh;         /* not looked at since it became active */
	uint32_t active_at;
	struct link_peer *next_backlog;

	/* Both. Zero between two lives, and never written as a whole: a late look at a board may come to them. */
	alignas(64) _Atomic uint32_t due; /* enum link_due */
	_Atomic uint32_t news;            /* enum link_news */
	_Atomic bool setup_full;          /* `setup` is the shard's until it clears this */
	uint32_t setup_len;
	_Atomic int why;      /* NEWS_DOWN: -errno */
	_Atomic int dead_why; /* DUE_DEAD: -errno */
	_Atomic uint32_t way_taken;
	uint8_t setup[LINK_MAIL_BYTES];
	uint32_t lower_next; /* DUE_OPEN, DUE_MOVE */

	/* The control core. */
	enum link_state state;
	bool lower_pending;       /* connect() of the driver below is under way */
	bool closed;              /* CLOSING: the shard has let go of it */
	bool half_open, stranger; /* counted as such */
	bool accepted;            /* by HELLO */
	bool settled;             /* nothing of the set-up is to be repeated */
	bool refuse_reset;        /* REFUSING: by RESET, not REFUSED */
	int refuse;               /* REFUSING: -errno; CONNECTING: why it cannot be */
	uint32_t owner;           /* queue */
	uint32_t want;            /* CONNECTING: their queue */
	uint32_t their_queue;
	uint32_t path, paths_tried;
	uint32_t way, way_old;     /* peers of the driver below: the one that is used, the one before */
	uint32_t came_to, came_by; /* ACCEPTING: queue and path of the first HELLO */
	uint32_t packet_max_there;
	uint32_t window_there; /* packets; 0: not said */
	bool unchecked_there;
	uint32_t hellos;
	uint64_t deadline, repeat_at, repeat_ns;
	struct link_side sides[1 + FAR_LINK_WAYS_MAX]; /* [0]: of `way`, only peer is set */
	void *user;
	uint16_t words_len;
	uint8_t words[NIC_HELLO_BYTES_MAX]; /* what we say: hello, or reply */
	uint16_t hello_len;
	uint8_t hello[NIC_HELLO_BYTES_MAX]; /* what they said */
	struct nic_addr addr;               /* for the driver below */
};

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
	uint64_t now;        /* 0: the clock was not read in this recv() */
	uint32_t actives_n, acks_n, kicks_n, given_n, awake_n;
	uint32_t scratch_used, heads_n;
	uint32_t abroad_n, visits_empty;
	uint32_t siblings_n;
	struct link_queue *siblings[FAR_PORTS_MAX - 1]; /* of the agent's other ports, that the same shard holds */
	uint64_t in_bytes;
	uint64_t limit_ns;
	const struct clock_source *clock;
	struct link_message *ready_first, **ready_last; /* whole, to be handed up, in order */
	struct link_message *burst; /* handed up without a cookie by the last recv(): freed by the next */
	struct link_message *free;
	uint32_t free_n;
	struct link_peer *backlog_first, *backlog_last; /* have messages to send, and window */
	bool (*owes)(void *ctx, uint32_t peer);
	void *owes_ctx;
	struct link_grants grants;
	_Atomic uint64_t resent, timeouts, probes, needless, regrants, moves;
	_Atomic uint64_t duplicates, crc_errors, malformed, unknown, ended, no_memory, crowded;
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
	struct link_peer *kicks[LINK_BURST];
	struct link_peer *awake[FAR_LINK_TOLD_MAX]; /* who believe that we are awake */
	struct link_peer *actives[FAR_LINK_PEERS_MAX];
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* opened and not closed; the shard's own view */

	/* Both. */
	struct link_board orders, news;
	struct link_mailbox mail;
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
	struct nic_addr own; /* lower's */
	int epoll_fd, event_fd;
	uint32_t packet_max; /* largest packet that lower takes */
	uint32_t queues_n;
	uint32_t peers_n; /* indices that were ever used: all below */
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
		uint64_t id, token;
		int error;
	} refused[FAR_LINK_REFUSED_KEPT];
	uint32_t refused_at;
	struct link_queue *queues[FAR_LINK_QUEUES_MAX];
	struct link_peer *peers[FAR_LINK_PEERS_MAX]; /* made once and used again: a late look at one is harmless */
};

/* link_port.c */

/** Has step() called: fd() becomes readable. Any thread; a system call, made for set-ups and ends only. */
void link_port_signal(struct link_port *p);
/** The address of the driver below, and the port's identity; false: malformed. */
bool link_addr_split(const struct nic_addr *addr, struct nic_addr *lower, uint64_t *id);
__attribute__((format(printf, 3, 4))) int link_error(struct nic_err *err, int error, const char *format, ...);

/* link_life.c: control core */

/** A free place, with a token of its own; NULL: there is none. */
struct link_peer *link_peer_new(struct link_port *p, unsigned queue, enum link_state state);
/** false: no memory. */
bool link_rings_make(struct link_peer *peer);
void link_rings_free(struct link_peer *peer);
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

/* link_setup.c: control core */

int link_connect(struct nic_port *port, unsigned queue, const struct nic_addr *addr, unsigned remote_queue,
		 const void *hello, size_t hello_len, uint64_t deadline, void *user, struct nic_err *err);
uint64_t link_step(struct nic_port *port, uint64_t now, nic_event_fn *event, void *ctx);
void link_drop(struct nic_port *port, uint32_t peer);
void link_leave(struct link_port *p); /* close(): the queues are idle */

/* link_words.c: what the packets of the set-up say; either thread */

/** Writes a packet with a body of struct wire_words, to leave through the driver below `via`; its length. */
uint32_t link_words_write(uint8_t *out, const struct link_peer *p, const struct link_queue *via, enum wire_kind kind,
			  unsigned want, uint32_t path, const void *words, uint16_t words_len);
/** The same with a struct wire_no. */
uint32_t link_no_write(uint8_t *out, enum wire_kind kind, uint64_t id, uint64_t token, int error, uint32_t path,
		       bool crc);

struct link_words {
	uint64_t id, token;
	uint32_t queue, want, path, packet_max, words_len, addr_len;
	const uint8_t *words, *addr;
};
/** false: malformed. `out` points into `body`. */
bool link_words_read(const uint8_t *body, uint64_t len, struct link_words *out);
bool link_no_read(const uint8_t *body, uint64_t len, int *error, uint32_t *path);

/** Single writer, any reader. */
static inline void counter_bump(_Atomic uint64_t *c)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
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

static inline bool link_has_unsent(const struct link_peer *p)
{
	return p->out_next || p->bulk_next;
}

/* link_message.c: the shard */

/** To be sent: from the peer's own slots, so that a small one never lacks memory. NULL: all are taken, or there is no
 * memory for the body. */
struct link_message *link_message_out(struct link_peer *p, uint32_t len);
void link_message_out_free(struct link_peer *p, struct link_message *m);
/** That arrived: its memory is the queue's. `due`: it is the one whose turn it is. NULL: too much is taken. */
struct link_message *link_message_in(struct link_queue *q, struct link_peer *p, uint32_t len, bool due);
/** Of either kind, once it was handed up. */
void link_message_in_free(struct link_queue *q, struct link_message *m);
/** That arrived, and those behind it by `next`. NULL: none. */
void link_messages_in_free(struct link_queue *q, struct link_message *m);
/** All that is kept of a peer, in both directions. */
void link_messages_drop(struct link_queue *q, struct link_peer *p);

/* link_queue.c: the shard */

extern const struct nic_queue_ops link_queue_ops;
extern const struct nic_raw_ops link_raw_ops;
void link_orders_serve(struct link_queue *q);
void link_peer_activate(struct link_queue *q, struct link_peer *p);
void link_peer_dead(struct link_queue *q, struct link_peer *p, int error);
void link_news_post(struct link_queue *q, struct link_peer *p, enum link_news news);
/** What the control core asked for and the shard did not do any more; by close(). */
void link_queue_end(struct link_queue *q, struct link_peer *p);

/* link_send.c: the shard */

/** Takes the message. */
void link_send(struct link_queue *q, struct link_peer *p, struct link_message *m);
/** Packet `number` as it was, or `len` bytes of its message's from `at` on. 0 or -errno of the driver below; -EMSGSIZE,
 * too, when it is wider than the path is now. */
int link_put_again(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number);
int link_put_piece(struct link_queue *q, struct link_peer *p, const struct link_sent *e, uint32_t number, uint32_t at,
		   uint32_t len);
/** A packet without a message: WIRE_ACK, or one of the set-up that is written in `bytes`. 0 or -errno of the driver
 * below. */
int link_send_ack(struct link_queue *q, struct link_peer *p);
int link_send_raw(struct link_peer *p, const uint8_t *bytes, uint32_t len);
void link_send_ping(struct link_queue *q, struct link_peer *p);
/** The acknowledgement that answers a PING with this `path`. */
void link_send_answer(struct link_queue *q, struct link_peer *p, uint32_t path);
void link_ack_soon(struct link_queue *q, struct link_peer *p);
void link_send_acks(struct link_queue *q);
void link_flush(struct nic_queue *nq);
void link_backlog_add(struct link_queue *q, struct link_peer *p);
void link_kick(struct link_queue *q, struct link_peer *p);

/* link_resend.c: the shard */

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

/* link_bulk.c, link_grant.c: link_grant.h */

/** Forgets what was told of the bytes that leave without a grant: it is old. */
static inline void link_bulk_forget(struct link_peer *p)
{
	p->unasked = FAR_LINK_UNASKED;
}

/* link_other.c: the shard */

/** To the control core; it is sent again when that has no room. */
void link_mail_on(struct link_queue *q, const struct nic_pkt *lp);
/** A PING that came by `via`. With a number in it, it asks whether that way leads here, and back. */
void link_take_ping(struct link_queue *q, struct link_peer *p, const struct link_queue *via, const struct nic_pkt *lp);
/** A RESET or BYE. */
void link_take_end(struct link_queue *q, struct link_peer *p, const struct wire_head *h);
/** Everything but messages and acknowledgements of a connection; `p` NULL: it names none. */
void link_take_other(struct link_queue *q, struct link_peer *p, const struct wire_head *h, const struct nic_pkt *lp);

/* link_recv.c: the shard */

/** Gives up what was not handed up of a packet of several messages, and lets go of it. */
void link_batch_end(struct link_queue *q);
unsigned link_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max);
void link_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie);

/* link_way.c: the shard, but for those that name the control core */

/** The control core: a place below a sibling's port, or none, was made for it. */
void link_side_event(struct link_port *via, struct link_side *side, const struct nic_event *ev);
/** The control core: lets go of them. */
void link_sides_drop(struct link_peer *peer);
bool link_sides_pending(const struct link_peer *peer);
/** close(): nobody has a way through this port any more. */
void link_part(struct link_port *p);
void link_ways_attach(struct link_queue *q, struct link_peer *p);
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

/* link_timer.c: the shard */

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
