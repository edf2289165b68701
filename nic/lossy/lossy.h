/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The lossy driver: a shim over any other driver that drops, duplicates, delays, reorders and damages packets as they
 * are sent, by a seed, in real time. It is a datagram driver, whatever is below. Control thread and poller.
 *
 * Over a datagram driver everything else passes through, peer numbers included. Over a connected driver a peer is a
 * connection below that carries packets in one direction, from its connecting side. Connections from other ports are
 * accepted without a handshake payload and used for receiving only (listened). The end of a connection below is not
 * reported; packets for it are lost.
 */
#ifndef NIC_LOSSY_LOSSY_H
#define NIC_LOSSY_LOSSY_H

#include "nic/nic.h"

#include <stdatomic.h>

/* Head of packets on a connected driver, for the alignment of bodies. Unused. */
#define LOSSY_HEAD_BYTES 28u
/* Largest body, if the driver below allows it: the largest IP datagram. */
#define LOSSY_BODY_MAX 65535u
/* Packets that a queue holds back: 1 % of those of 2 ms at ten million packets a second. Beyond it a packet is sent at
 * once. */
#define LOSSY_HELD_MAX 256u
/* Largest burst of recv() over a connected driver. */
#define LOSSY_BURST_MAX 64u
/* Longest delay. Later packets would belong to an earlier incarnation in most protocols. */
#define LOSSY_DELAY_NS_MAX UINT64_C(10000000000)
#define LOSSY_DELAY_NS     UINT64_C(1000000) /* default */
/* A reordered packet waits for so many later ones (default and bound), but not longer than LOSSY_REORDER_NS_MAX. */
#define LOSSY_REORDER        8u
#define LOSSY_REORDER_MAX    1024u
#define LOSSY_REORDER_NS_MAX UINT64_C(2000000)
/* A held packet that finds the ring below full is retried after this. */
#define LOSSY_AGAIN_NS UINT64_C(100000)
/* Interval at which the control thread drops accepted connections that the poller has detached. */
#define LOSSY_LEAVE_NS UINT64_C(10000000)

/** Decoded nic_config.args. Chances are in [0, 2^32], of 2^32. */
struct lossy_args {
	char over[16];
	const char *lower_args; /* points into nic_config.args. NULL: none */
	uint64_t drop, duplicate, delay, reorder, corrupt;
	uint64_t delay_ns;
	uint64_t reorder_by;
	uint64_t seed;
	uint64_t bytes; /* largest body */
};

/** Parses the arguments. 0; -EINVAL: `err` names the word and the remedy. */
int lossy_args_parse(const char *text, struct lossy_args *out, struct nic_err *err);

/**
 * State of an accepted connection: 0, LISTEN, LEAVE, 0. The control thread makes the first two steps. The poller
 * detaches the connection and makes the last. While it is 0 the entry belongs to the control thread, otherwise to the
 * poller.
 */
enum lossy_listened { LOSSY_LISTEN = 1, LOSSY_LEAVE };

/** A peer, by its number below: `ours` (an address handle), or accepted and listened to. */
struct lossy_peer {
	_Atomic uint8_t listened; /* 0 or enum lossy_listened */
	_Atomic uint8_t dead;     /* ours: the connection below has ended. Control writes */
	bool ours;                /* control, before UP */
	bool leaving;             /* LEAVE is set, drop() follows. Control */
	bool attached;            /* poller */
	uint32_t queue;           /* listened: number of the queue. Control, before LISTEN */
	uint32_t sent;            /* packets since attach(). Poller */
};

struct lossy_port;

/** A packet that is held back; a slot stores its bytes. Poller. */
struct lossy_held {
	uint64_t due; /* CLOCK_MONOTONIC ns */
	uint32_t peer, len;
	uint32_t after; /* reorder: it leaves when the peer's `sent` reaches this */
	bool reorder;
	uint16_t slot;
};

/** Counters: nic_stats. The poller writes, any thread reads. */
struct lossy_counters {
	_Atomic uint64_t rx_packets, rx_bytes, rx_malformed, tx_packets, tx_bytes, tx_dropped;
};

/** A queue. Poller, except `changes`. */
struct lossy_queue {
	struct nic_queue base;
	struct nic_queue_ops ops; /* with kick and raw if the queue below has them */
	struct lossy_port *port;
	struct nic_queue *lower;
	uint32_t index;
	uint64_t random; /* state of the generator */
	uint64_t due;    /* earliest `due` of a held packet, ns. UINT64_MAX: none is held */
	bool quiet;      /* all chances are 0 */
	bool small_open; /* a small packet is reserved and not committed: nothing else may be sent */
	uint32_t held_n, reorder_n, free_n, given_n, leaving_n;
	uint32_t changes_seen;
	_Atomic uint32_t changes; /* of lossy_peer.listened of this queue. Control, release */
	struct lossy_counters count;
	uint8_t *slots; /* LOSSY_HELD_MAX of slot_bytes */
	size_t slot_bytes;
	struct lossy_held held[LOSSY_HELD_MAX];
	uint16_t free[LOSSY_HELD_MAX];
	uint8_t priority[LOSSY_HELD_MAX]; /* nic_tx.priority, by slot */
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[LOSSY_BURST_MAX]; /* cookies below of the last burst */
};

/** A port. Control. */
struct lossy_port {
	struct nic_port base;
	struct nic_port *lower;
	struct lossy_args args;
	struct nic_caps caps;
	bool connected; /* the driver below is */
	uint32_t head_bytes;
	uint32_t peers_max; /* of the driver below */
	unsigned queues_n, leaving_n;
	struct lossy_queue **queues;
	struct lossy_peer *peers;
	struct lossy_connect *connecting;
};

/** Opens a queue. NULL: no memory. */
struct lossy_queue *lossy_queue_new(struct lossy_port *port, unsigned index);
/** Closes it; detaches accepted connections. */
void lossy_queue_free(struct lossy_queue *q);

/* ---- lossy_held.c: poller ---- */

/** Takes a slot and copies these bytes into it. -1: none is free. */
int lossy_slot_fill(struct lossy_queue *q, const void *bytes, size_t len, uint8_t priority);
void lossy_slot_free(struct lossy_queue *q, int slot);
static inline uint8_t *lossy_slot(const struct lossy_queue *q, int slot)
{
	return q->slots + (size_t)slot * q->slot_bytes;
}
/** Holds the packet in a slot back; takes ownership of the slot. `due` 0: as late as a reordered packet may be. */
void lossy_hold(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len, uint64_t due, uint32_t after);
/** Sends held packets that are due at `now`, or that enough later ones have passed. true: some were. */
bool lossy_held_send(struct lossy_queue *q, uint64_t now);
/** Drops the held packets of a peer. */
void lossy_held_forget(struct lossy_queue *q, uint32_t peer);
/** Sends the bytes of a slot now. 0 or -errno of the driver below. The slot stays the caller's. */
int lossy_slot_send(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len);

/* ---- lossy_disturb.c: poller ---- */

/** tx_commit() of a packet in room of the driver below, disturbed by chance. */
int lossy_disturb(struct lossy_queue *q, struct nic_tx *tx);

uint64_t lossy_now(void);

static inline void lossy_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

__attribute__((format(printf, 3, 4))) int lossy_error(struct nic_err *err, int error, const char *format, ...);

#endif
