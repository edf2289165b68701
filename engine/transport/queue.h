/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A queue of the transport: its struct, its counters, and the operations that are neither sending nor receiving.
 * Poller, except where noted.
 */
#ifndef FAR_TRANSPORT_QUEUE_H
#define FAR_TRANSPORT_QUEUE_H

#include "base/clock.h"
#include "transport/grant.h"
#include "transport/mail.h"
#include "transport/onesided.h"
#include "transport/peer.h"
#include "transport/recv.h"

struct transport_message;
struct transport_rings;
struct transport_segment;
struct transport_port;

/* Room for misaligned bodies of a burst. What does not fit gets a buffer. */
#define TRANSPORT_SCRATCH_BYTES 65536u
/* Packets that one recv() of the driver below may return while places are offered. */
#define TRANSPORT_LOWER_BURST 64u
/* With so many ring sets taken, one that was taken TRANSPORT_RINGS_AGO takes before is given back if nothing is in it.
 */
#define TRANSPORT_RINGS_FEW 64u
#define TRANSPORT_RINGS_AGO 16u
/* Connections per segment: a queue reserves some 2.6 MiB of address space at once. */
#define TRANSPORT_SEGMENT_PEERS 8u

/** A queue. Poller, except where noted. All times in ns. */
struct transport_queue {
	struct nic_queue base;
	struct nic_queue *lower;
	const struct nic_queue_ops *ops; /* of lower */
	struct transport_port *port;
	uint64_t id;         /* identity of the port */
	bool crc;            /* compute and check CRCs: the driver below does not */
	bool unchecked;      /* packets to peers that agreed need no CRC on any path */
	bool unflushed;      /* something was committed below since the last flush() */
	bool stalled;        /* a peer in the backlog waits for more than the next flush */
	bool armed;          /* the caller sleeps, or is about to */
	uint8_t asleep_flag; /* WIRE_ASLEEP while armed, if the driver below cannot wake this queue; else 0 */
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
	uint32_t scratch_used, lines_n;
	bool below;             /* messages of the last burst lie in packets of the driver below */
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
	struct transport_rings *rings_taken[TRANSPORT_RINGS_AGO]; /* last: number i at i modulo their count */
	uint32_t rings_taken_n;                                   /* so far, modulo 2^32 */
	uint32_t rings_n;                                         /* that peers have now */
	struct transport_peer *backlog_first, *backlog_last;      /* peers with messages to send and an open window */
	uint32_t backlog_turn;                                    /* turns of larger messages */
	bool (*awaits_reply)(void *ctx, uint32_t peer);           /* nic_queue_ops.watch */
	void *awaits_reply_ctx;
	nic_placement_fn *place; /* nic_queue_ops.set_placement */
	void *place_ctx;
	struct transport_grants grants;
	/* Counters: struct transport_stats. Any thread reads. `unproven`: control packets that failed authentication.
	 */
	_Atomic uint64_t resent, timeouts, tail_loss_probes, spurious_retransmits, grant_retransmits, path_migrations,
		read_bytes;
	_Atomic uint64_t duplicates, crc_errors, malformed, unknown_connection_drops, closed_connection_drops,
		no_memory, handshake_backlog_drops, unproven;
	/* Of the last burst's messages that are delivered in place: heads, and bodies of at most FAR_LINE_PAYLOAD bytes
	 * behind them. */
	struct nic_line lines[TRANSPORT_BURST];
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[TRANSPORT_BURST + 1]; /* packets of the driver below that the next recv() releases */
	/* Last burst of the driver below; unprocessed from lower_at on. Only packets that got places are more than
	 * TRANSPORT_BURST. */
	struct nic_pkt lower_pkts[TRANSPORT_LOWER_BURST];
	uint32_t lower_n, lower_at;
	struct transport_message *expected;           /* whose packets are expected next, placement.c. NULL: none */
	uint32_t expected_each;                       /* bytes of it in each of them */
	bool placed;                                  /* packets in lower_pkts may lie in places */
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
	uint32_t peers_end;                                 /* entries of `peers` from here on were never used */
	struct nic_lane *dirty[FAR_TRANSPORT_PEERS_MAX];    /* of base.lanes */
	struct nic_lane **lane_at[FAR_TRANSPORT_PEERS_MAX]; /* nic_queue_ops.lane; NULL: not called */
	struct nic_lane *lane_none;                         /* what was there before */
	struct transport_peer *
		peers[FAR_TRANSPORT_PEERS_MAX]; /* between TRANSPORT_ORDER_OPEN and TRANSPORT_ORDER_CLOSE. NULL: none */
	struct transport_onesided_table onesided;

	/* Both threads. */
	struct transport_peer_set orders; /* control sets, poller takes */
	struct transport_peer_set news;   /* poller sets, control takes */
	struct transport_mailbox mail;    /* packets from the poller to control */
	/* Made by control before the TRANSPORT_ORDER_OPEN of a peer that may use them. */
	_Atomic(struct transport_segment *) segments[FAR_TRANSPORT_PEERS_MAX / TRANSPORT_SEGMENT_PEERS];
	/* Control: connections with a share in the segments. */
	uint32_t segments_n, open_n;
};

extern const struct nic_queue_ops transport_queue_ops;
extern const struct nic_raw_ops transport_raw_ops;

/** Returns the time of this recv(), ns: reads the clock when nothing has before. */
static inline uint64_t transport_now(struct transport_queue *q)
{
	if (q->now == 0)
		q->now = clock_now(q->clock);
	return q->now;
}
/** True if all messages of the last burst of the driver below are delivered or copied. */
static inline bool transport_all_taken(const struct transport_queue *q)
{
	return q->lower_at == q->lower_n && (!q->batch.peer || q->batch.at == q->batch.end) && !q->ready_first;
}
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
/** Sends CLOSE and releases everything that the poller has of the peer. For close(): control thread, no poller runs. */
void transport_queue_end(struct transport_queue *q, struct transport_peer *p);

/* ---- counters: one writer, any reader ---- */

static inline void counter_bump(_Atomic uint64_t *c)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + 1, memory_order_relaxed);
}

static inline void counter_more(_Atomic uint64_t *c, uint64_t n)
{
	atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n, memory_order_relaxed);
}

#endif
