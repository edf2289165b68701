/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A peer is one end of a connection, of one queue; its number and 49 random bits are the
 * token that the other end puts into every packet.
 *
 * Two threads have to do with a peer: the control core sets it up and takes it down, the holder of the queue's shard
 * sends and receives all packets, those of the set-up too. They share no lock: the control core leaves orders (`due`)
 * and the shard news (`news`), as bits of the peer below three levels of bitmaps, so neither can be lost or fill up.
 * Set-up packets that arrive go to the control core through a ring (mail.c), which may be full: they are repeated.
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

#define LINK_HEAD ((uint32_t)sizeof(struct wire_head))
/* A message of 16 MiB and what the engine adds to it. */
#define LINK_BODY_MAX (((uint64_t)16 << 20) + 64)
#define LINK_ROOM     128u /* bytes of a body that has no buffer */
/* Of a message that is read, so many bytes come in a packet: that it came is what ends it. */
#define LINK_REST     64u
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

/* Peers are made so many at a time: a page. */
#define LINK_SLAB_PEERS 16u
/* Messages of a peer that are out, and rooms that are open beside them. */
#define LINK_MESSAGES (FAR_LINK_SLOTS + 256u)
/* Connections for which a queue reserves address space at once: some 2.6 MiB. */
#define LINK_SEGMENT_PEERS 8u

struct link_peer;

/** How the bytes of a message go that are not in its first packet. */
enum link_message_side {
	/* out */
	LINK_OUT_NEW,       /* it was not said: link_offer() */
	LINK_OUT_WAITS,     /* the driver below was asked to expose it */
	LINK_OUT_EXPOSED,   /* it is to be announced by the first packet */
	LINK_OUT_ANNOUNCED, /* it was: nothing else leaves until the other side says how much it has, or grants */
	LINK_OUT_TOLD,      /* it has said */
	LINK_OUT_PLAIN,     /* in packets */
	/* in */
	LINK_IN_PLAIN = LINK_OUT_NEW,
	LINK_IN_READ = LINK_OUT_PLAIN + 1, /* announced, and read */
	LINK_IN_HERE /* nothing is read any more: its sender is told, until a packet of it has come */
};

/** A message on its way out, in its peer's slots, or one that arrived, in a slab. Large bodies have a buffer. */
struct link_message {
	struct link_message *next;
	struct link_peer *peer;
	struct far_buf *own; /* this memory; NULL: it is one of the queue's segments */
	struct far_buf *buf; /* of the body; NULL: it is `room`, or there is none */
	uint8_t *body;
	uint32_t len;
	uint32_t done;  /* out: bytes that have packet numbers; in: bytes that arrived, without a gap */
	uint32_t first; /* packet number that it begins with */
	uint32_t charged;
	uint32_t granted; /* packets that begin below it may be sent: out, by us; in, as was said */
	uint8_t order;    /* out: enum nic_order */
	uint8_t priority; /* of larger ones, nic_tx.priority: out, of the next packet; in, as was said */
	bool begun;       /* in: part of it has come in turn; it is among its queue's `in` */
	bool stalled;     /* in: nothing came of its grants for long; they do not count */
	bool unordered;   /* in: the first of a WIRE_LOOSE packet that waits for the one that it may not pass */
	bool unbound;     /* in: a larger one, WIRE_LOOSE: it goes up when all of its bytes have come */
	uint32_t after;   /* out, of larger ones: rings->small_n at its commit */
	struct link_message *in_next, *in_prev;
	uint32_t early; /* in: bytes of its packets that came before their turn */
	/* expose.c and read.c; 0 in one without a buffer */
	uint8_t transfer; /* enum link_message_side */
	uint8_t onesided; /* place + 1, out: of what is exposed, in: of what is read; 0: none */
	bool lent;        /* out: its body is a part of something larger, that has a reference of `buf` */
	struct shm_head head;
	alignas(64) uint8_t room[LINK_ROOM];
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
	uint8_t retransmit;           /* enum link_again */
};

/** A packet that arrived before its turn, at its number modulo FAR_LINK_WINDOW; no message: none did. */
struct link_arrived {
	struct link_message *message; /* of a packet of several all, by `next`; &link_handed_up: they went up */
	uint32_t offset, len;         /* offset of one that is `loose`: as WIRE_LOOSE has it */
};
extern struct link_message link_handed_up;

/**
 * What a peer needs only while something is under way: while messages wait or are not acknowledged, or packets wait for
 * others. A peer takes a set from its queue when it comes to that, and gives it back when a look at the timers finds
 * nothing of it; or the next peer that needs one takes it, when it is the last that was taken. So the sets that are
 * touched are as many as peers were busy at once, and a shard that visits its peers one after the other goes round with
 * a few that its caches hold.
 *
 * There is a set for every connection, and the messages of one: address space that is reserved when it is set up, of
 * which the pages that are used become memory. So none ever waits for a set that another one holds.
 */
struct link_rings {
	struct link_peer *peer; /* NULL: free */
	/* out */
	/* Not all numbered, oldest first, those that are are in `sent`: small ones, one packet each at most; and the
	 * others, with what must not pass them (schedule.c). */
	struct link_message *out_next, *out_last;
	struct link_message *bulk_next, *bulk_last;
	uint32_t flying;                     /* bytes of those that have not arrived */
	uint32_t order;                      /* sendings */
	uint32_t order_arrived;              /* latest of those that arrived */
	uint32_t below_arrived[LINK_URGENT]; /* the same of those that are as urgent or less; by priority */
	uint32_t small_n, small_sent;        /* ever: of the first list */
	uint64_t resend_at;                  /* 0: to be set by the next look at the timers */
	uint32_t resends;                    /* time-outs in a row */
	uint32_t answers;     /* looks at the timers that found something heard since the first of those */
	uint32_t small_bytes; /* sent since the last packet of the second, which waits */
	uint32_t bulk_strict; /* of those in the second list, not NIC_ORDER_NONE */
	uint32_t bulk_open;   /* of those, numbered in part */
	uint32_t bulk_turn;   /* packets of them, ever */
	/* `bulk_out`: beyond the last packets of them, of those that keep an order, and the last packet of the first
	 * list; false: none is unacknowledged. */
	uint32_t bulk_end, strict_end, small_last;
	bool bulk_out;
	uint64_t armed_at;    /* when resend_at was set for the packets that are out now */
	uint64_t keep_until;  /* it is not given back before, since there was a resend; 0: there was none */
	uint32_t sent_first;  /* those sent before had another set */
	uint32_t probed_una;  /* `probed`: there was a probe while this one was the oldest */
	uint32_t probe_order; /* `probe_out`: what was sent before it and has not come when it has is lost */
	uint32_t probe_number;
	uint8_t probe_priority;
	bool probed, probe_out;
	bool probing; /* at resend_at there is a probe, and no time-out yet */
	bool resent;  /* since the last look at the timers */
	struct link_rtt rtt;
	struct link_peer *next_backlog;
	/* in */
	uint32_t regrants;                                /* in a row */
	uint32_t loose_n;                                 /* of the early packets: `loose` */
	uint32_t retransmitted[LINK_AGAIN_KEPT], again_n; /* came as sent again, and not before */
	uint64_t grant_at; /* when grants that nothing came of are said again; 0: to be set */
	struct link_message *assembling[FAR_LINK_ASSEMBLIES];
	struct link_message *held_first, **held_last; /* whole, but not attached yet */
	struct link_rings *next_free;
	/* of no number that is not under way */
	struct link_sent sent[FAR_LINK_WINDOW];
	struct link_arrived arrived[FAR_LINK_WINDOW]; /* without messages in a free set */
};

/** Address space of a queue, made with its connections. */
struct link_segment {
	struct link_rings rings[LINK_SEGMENT_PEERS];
	struct link_message messages[LINK_SEGMENT_PEERS * LINK_MESSAGES];
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
	LINK_DUE_OPEN = 1,    /* `way` is there */
	LINK_DUE_MOVE = 2,    /* `way` is another one */
	LINK_DUE_SETUP = 4,   /* setup->packet is to be sent */
	LINK_DUE_START = 8,   /* the connection is there; what both need is filled in */
	LINK_DUE_ACK = 16,    /* say something */
	LINK_DUE_DEAD = 32,   /* the other side has ended it, as another queue heard */
	LINK_DUE_CLOSE = 64,  /* say BYE, and let go of it */
	LINK_DUE_WAY = 128,   /* a side has its lower_peer, or another one */
	LINK_DUE_ASTRAY = 256 /* << k, k from 1 on: their question about their way k came to another queue */
};

/** News from the shard. */
enum link_news {
	LINK_NEWS_CONFIRMED = 1, /* the other side has used its token */
	LINK_NEWS_MOVED = 2,     /* way_old is not used any more */
	LINK_NEWS_DOWN = 4,      /* `why` */
	LINK_NEWS_CLOSED = 8,    /* nothing of it is touched by the shard any more */
	LINK_NEWS_WAY = 16,      /* `way_taken` */
	LINK_NEWS_SIDE = 32      /* the shard `held` another place of a side before */
};

/** A way to a peer, as the shard knows it (path.c): a place of the driver below a queue. Number 0 is the
 * connection's own, the others lead through the queues of the agent's other ports that the same shard holds. */
struct link_way {
	struct link_queue *via;
	uint32_t lower_peer;
	bool attached, probed;
};

/** The same as the control core knows it. */
struct link_side {
	struct link_peer *peer;
	struct link_port *port;  /* NULL: there is none */
	uint32_t number;         /* the caller's */
	bool pending;            /* connect() of the driver below `port` is under way */
	uint32_t flow, replaced; /* of lower_peer; the place of the path before, until the shard holds it no more */
	struct nic_addr addr;    /* for the driver below `port` */
	uint8_t to[AUTH_PROOF_BYTES]; /* link_auth_address() of it */
	_Atomic uint32_t lower_peer;
	_Atomic uint32_t held; /* the shard's: the lower_peer that it uses */
};

/** All of them; made with the first beside its own, there until the connection's end. */
struct link_ways {
	/* The shard. */
	struct link_way path[1 + FAR_LINK_WAYS_MAX]; /* [0]: its own */
	uint64_t decide_at;                          /* `asked`: who has not answered by then does not count */
	uint64_t ask_at, back_at; /* not to be asked before, for having heard by another way; for the better ones */
	/* The control core. [0] is not used. */
	struct link_side setup[1 + FAR_LINK_WAYS_MAX];
	/* Numbers of PINGs about way k. The shard writes, the control core takes: ours, not answered WRONG_QUEUE yet.
	 */
	_Atomic uint32_t probe[1 + FAR_LINK_WAYS_MAX];
	/* The control core writes, the shard reads: theirs, to be answered so: DUE_ASTRAY. */
	_Atomic uint32_t misrouted[1 + FAR_LINK_WAYS_MAX];
};

/** What a set-up packet has to prove that it belongs to its connect request. */
struct link_proofs {
	uint8_t nonce[AUTH_NONCE_BYTES];
	uint8_t proof[AUTH_PROOF_BYTES];
	uint64_t issued;
	uint8_t public[AUTH_PUBLIC_BYTES];
};

/** What proves the control messages of a connection; in a table beside the peers, since no message looks at it. */
struct link_secret {
	/* The control core, before DUE_START. */
	struct auth_key key;          /* of the session */
	uint8_t to[AUTH_PROOF_BYTES]; /* link_auth_address() of the peer's own way */
	uint64_t issued;              /* no cookie for it was issued after this: see link_remember() */
	/* The shard. */
	uint64_t heard_bits;    /* bit i: PING number heard - i has come */
	uint32_t heard;         /* highest number of a PING that has come */
	_Atomic uint32_t pings; /* number of the last PING sent; the control core reads it */
};
static_assert(sizeof(struct link_secret) == 72, "an idle session is small");

/** What the control core needs of a connection until it is settled. */
struct link_setup {
	struct link_side primary;       /* of `way` of the peer: only `peer` is set */
	struct link_setup *next, *prev; /* all of the port */
	int refuse;                     /* REFUSING: -errno; CONNECTING: why it cannot be */
	uint32_t want;                  /* CONNECTING: their queue */
	uint32_t flow, flows_tried;
	uint32_t request_queue, request_flow; /* ACCEPTING: queue and path of the first HELLO */
	uint8_t reply_kind;                   /* REFUSING: enum wire_kind: REFUSED, RESET or CHALLENGE */
	uint64_t named;            /* identity that the packet named that is answered: ours, or a former one's */
	struct auth_pair pair;     /* of this session; zeros without a key */
	struct link_proofs proofs; /* what the next packet of words has */
	uint8_t public_there[AUTH_PUBLIC_BYTES];
	uint32_t sent_n;
	uint64_t deadline, repeat_at, repeat_ns;
	uint16_t words_len;
	uint8_t payload[NIC_HELLO_BYTES_MAX]; /* what we say: hello, or reply */
	uint16_t hello_len;
	uint8_t hello[NIC_HELLO_BYTES_MAX]; /* what they said */
	struct nic_addr addr;               /* for the driver below */
	uint32_t packet_len;
	uint8_t packet[LINK_MAIL_BYTES]; /* the shard's while setup_full */
};

/** Of a connection that is up and has nothing under way there is nothing else. Its first two lines are all that a
 * message looks at, beside the set; a look at the timers, the third. */
struct link_peer {
	/* The shard, from DUE_START on; the control core before. */
	alignas(64) uint64_t token; /* ours: what arrives has it */
	uint64_t token_there;       /* theirs: what leaves has it; 0: not known yet */
	uint64_t id_there;          /* of their port */
	struct link_rings *rings;   /* NULL: nothing is under way */
	struct link_queue *via;     /* the way that is used: whose lower driver, and lower_peer of it */
	uint32_t una, next;         /* packet numbers: oldest that is not acknowledged, next to be given */
	uint32_t rx_next;           /* packet number that is due */
	uint32_t rx_acked;          /* the same as it was told last */
	bool started;
	bool loop;         /* a queue to itself: nothing below is used */
	bool dead;         /* nothing is sent or taken any more */
	bool detached;     /* attached once, and let go of */
	bool heard;        /* since the last look at the timers */
	bool asleep_there; /* it says so: to be kicked */
	bool special;      /* not confirmed, or with another way: looked at more closely when it is heard */
	bool active;       /* in the queue's actives */

	uint32_t lower_peer;
	uint32_t index;
	uint32_t payload_max;
	uint16_t window, window_bulk; /* packets that may be unacknowledged, those of the second list below the other */
	uint32_t out_n;
	uint32_t ready_n;    /* in the queue's list */
	uint32_t owed;       /* messages, or parts of one, that arrived and were not acknowledged */
	uint32_t owed_bytes; /* and the bytes of their packets */
	uint64_t ack_at;     /* 0: to be set */
	uint32_t active_at;
	uint16_t early_n;      /* packets that arrived before their turn */
	bool fragments;        /* of the packet that is due some came */
	bool attached;         /* by the engine */
	bool opened;           /* lower_peer is attached */
	bool confirmed;        /* something came with our token: messages may leave */
	bool told_asleep;      /* it was told that we sleep, and nothing else since; false: in the queue's awake */
	bool kick;             /* in the queue's kicks */
	bool backlogged;       /* in the queue's backlog */
	bool ack_now;          /* in the queue's acks */
	bool unchecked : 1;    /* both ends said so: no CRC */
	bool bulk : 1;         /* both ends said so: larger messages may be read by the other */
	bool fresh : 1;        /* not looked at since it became active */
	bool rx_elsewhere : 1; /* something came by another queue since the last look */
	bool wanted;           /* the next packet is to be timed: RTT_WANTED of the next set */
	uint8_t secondary;     /* bits of ways beyond the first that can be used */
	uint8_t ack_every;     /* of `owed` one acknowledgement at least, so that its window stays open */
	uint8_t begun_n;       /* of rings->assembling: begun */
	uint8_t duplicate; /* WIRE_TWICE: packet `twice_number` came as sent first and again, to be told; WIRE_UNTOLD */
	uint8_t pings;     /* since it was heard */
	uint8_t current_path; /* the way that is used */
	bool abroad;          /* counted in the queue's abroad_n: not all of it goes by its own way */

	struct link_queue *queue;
	struct link_ways *paths; /* NULL: there is only its own */
	uint64_t silent_ns;      /* that somebody listened and heard nothing, though there was something to be heard */
	struct link_path path;   /* its round trip as it was known when there was a set the last time */
	uint32_t unasked;        /* bytes of a message that leave without a grant, as the other side says */
	uint32_t out_bytes;      /* of messages that have buffers */
	uint32_t twice_number;
	uint32_t again_first;                 /* of packets before it nobody knows any more how they came */
	uint8_t probed_paths, answered_paths; /* bits of ways: PING left by it; its answer came back by it */

	/* Both. `due` and `news` are zero between two lives, and never written as a whole: a late look at a board may
	 * come to them. */
	_Atomic uint32_t due;     /* enum link_due */
	_Atomic uint32_t news;    /* enum link_news */
	_Atomic int16_t why;      /* NEWS_DOWN: -errno */
	_Atomic int16_t dead_why; /* DUE_DEAD: -errno */
	_Atomic bool setup_full;  /* setup->packet is the shard's until it clears this */
	_Atomic uint8_t way_taken;

	/* The control core. */
	uint8_t state; /* enum link_state */
	uint8_t owner; /* queue */
	uint8_t their_queue;
	bool lower_pending;        /* connect() of the driver below is under way */
	bool closed;               /* CLOSING: the shard has let go of it */
	bool half_open, stranger;  /* counted as such */
	bool accepted;             /* by HELLO */
	bool settled;              /* nothing of the set-up is to be repeated */
	bool reserved : 1;         /* it has a share in the segments */
	bool listed : 1;           /* in the port\'s `accepted` */
	uint32_t address, way_old; /* peers of the driver below: the one that is used, the one before */
	uint32_t packet_max_there;
	struct link_setup *setup;     /* NULL: it is settled */
	struct link_ways *paths_made; /* the same as `ways`, before the shard knows of it */
	void *user;
};
static_assert(sizeof(struct link_peer) == 256, "an idle session is small");
static_assert(offsetof(struct link_peer, queue) == 128, "a message looks at two lines");

#endif
