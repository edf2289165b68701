/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The lossy driver: a shim over any other that drops, duplicates, delays, reorders and damages packets as they are
 * sent, drawn from a seed, in real time. It is always a datagram driver, whatever is below.
 *
 * Over a datagram driver everything passes through, peers' numbers included. Over a connected one a peer is a lower
 * connection that is used in one direction only, from who connected: connections that others made to us are accepted
 * without a word and only received from (listened to), and the end of a lower connection is not reported; what is sent
 * there is lost.
 */
#ifndef NIC_LOSSY_LOSSY_H
#define NIC_LOSSY_LOSSY_H

#include "nic/nic.h"

#include <stdatomic.h>

/* The engine's own heads, below which a connected driver aligns its bodies. Nothing is in them. */
#define LOSSY_HEAD_BYTES 28u
/* Largest body, where the driver below takes as much: the largest datagram of IP. */
#define LOSSY_BODY_MAX 65535u
/* Packets of a queue that are held back: 1 % of what leaves in 2 ms at ten million packets a second. Beyond it a packet
 * is sent at once. */
#define LOSSY_HELD_MAX 256u
/* Packets of one recv() over a connected driver. */
#define LOSSY_BURST_MAX 64u
/* Longest delay: what is late by more is a duplicate from another life for most protocols, and no test of ours. */
#define LOSSY_DELAY_NS_MAX UINT64_C(10000000000)
#define LOSSY_DELAY_NS     UINT64_C(1000000) /* default */
/* A reordered packet waits for so many later ones (default and bound), but not longer than this. */
#define LOSSY_REORDER        8u
#define LOSSY_REORDER_MAX    1024u
#define LOSSY_REORDER_NS_MAX UINT64_C(2000000)
/* What was held and met a full ring below is tried again after this. */
#define LOSSY_AGAIN_NS UINT64_C(100000)
/* Peers that others made are given up by the shard; the control core looks this often. */
#define LOSSY_LEAVE_NS UINT64_C(10000000)

/** What nic_config.args says. Chances are in [0, 2^32], of 2^32. */
struct lossy_args {
	char over[16];
	const char *lower_args; /* in nic_config.args; NULL: none */
	uint64_t drop, duplicate, delay, reorder, corrupt;
	uint64_t delay_ns;
	uint64_t reorder_by;
	uint64_t seed;
	uint64_t bytes; /* largest body */
};

/** 0, or -EINVAL with the word and the remedy in `err`. */
int lossy_args_parse(const char *text, struct lossy_args *out, struct nic_err *err);

/**
 * By the lower peer's number. A peer is ours, a place to send to, or one that is only listened to. Such a one goes
 * 0 → LISTEN → LEAVE → 0; the control core makes the first two steps, the shard, which detaches it, the last. It is
 * the shard's meanwhile, the control core's while it is 0.
 */
enum lossy_listened { LOSSY_LISTEN = 1, LOSSY_LEAVE };

struct lossy_peer {
	_Atomic uint8_t listened; /* 0 or enum lossy_listened */
	_Atomic uint8_t dead;     /* ours: the lower connection has ended; control core writes */
	bool ours;                /* control core, before UP */
	bool leaving;             /* LEAVE was said, drop() is to come; control core */
	bool attached;            /* shard */
	uint32_t queue;           /* of one that is listened to; control core, before LISTEN */
	uint32_t sent;            /* packets since attach; shard */
};

struct lossy_port;

/** A packet that is held back; its bytes are in a slot. */
struct lossy_held {
	uint64_t due; /* CLOCK_MONOTONIC ns */
	uint32_t peer, len;
	uint32_t after; /* reorder: leaves when the peer's `sent` has come to this */
	bool reorder;
	uint16_t slot;
};

/** Written by the shard, read by anyone. */
struct lossy_counters {
	_Atomic uint64_t rx_packets, rx_bytes, rx_malformed, tx_packets, tx_bytes, tx_dropped;
};

struct lossy_queue {
	struct nic_queue base;
	struct nic_queue_ops ops; /* with kick and raw where the lower queue has them */
	struct lossy_port *port;
	struct nic_queue *lower;
	uint32_t index;
	uint64_t random;
	uint64_t due;    /* of what is held, the first; UINT64_MAX: nothing is */
	bool quiet;      /* all chances are 0 */
	bool small_open; /* a small packet is between reserve and commit: nothing else may be sent */
	uint32_t held_n, reorder_n, free_n, given_n, leaving_n;
	uint32_t changes_seen;
	_Atomic uint32_t changes; /* of lossy_peer.listened, those of this queue; control core, release */
	struct lossy_counters count;
	uint8_t *slots; /* LOSSY_HELD_MAX of slot_bytes */
	size_t slot_bytes;
	struct lossy_held held[LOSSY_HELD_MAX];
	uint16_t free[LOSSY_HELD_MAX];
	uint8_t priority[LOSSY_HELD_MAX]; /* nic_tx.priority, by slot */
	struct {
		uint32_t peer;
		uint64_t cookie;
	} given[LOSSY_BURST_MAX]; /* lower cookies of the burst before */
};

struct lossy_port {
	struct nic_port base;
	struct nic_port *lower;
	struct lossy_args args;
	struct nic_caps caps;
	bool connected; /* the lower one is */
	uint32_t head_bytes;
	uint32_t peers_max; /* the lower one's */
	unsigned queues_n, leaving_n;
	struct lossy_queue **queues;
	struct lossy_peer *peers;
	struct lossy_connect *connecting;
};

/** NULL: no memory. */
struct lossy_queue *lossy_queue_new(struct lossy_port *port, unsigned index);
/** Detaches what is listened to. */
void lossy_queue_free(struct lossy_queue *q);

/* lossy_held.c: the shard */

/** A slot with these bytes in it; -1: all are taken. */
int lossy_slot_fill(struct lossy_queue *q, const void *bytes, size_t len, uint8_t priority);
void lossy_slot_free(struct lossy_queue *q, int slot);
static inline uint8_t *lossy_slot(const struct lossy_queue *q, int slot)
{
	return q->slots + (size_t)slot * q->slot_bytes;
}
/** The slot becomes held's. `due` 0: as late as a reordered packet may be. */
void lossy_hold(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len, uint64_t due, uint32_t after);
/** Sends what is due at `now` or has been passed by enough; whether something was. */
bool lossy_held_send(struct lossy_queue *q, uint64_t now);
void lossy_held_forget(struct lossy_queue *q, uint32_t peer);
/** Sends a slot's bytes now, 0 or the lower driver's -errno. The slot stays the caller's. */
int lossy_slot_send(struct lossy_queue *q, uint32_t peer, int slot, uint32_t len);

/* lossy_disturb.c: the shard */

/** tx_commit() of a packet in lower room, disturbed by chance. */
int lossy_disturb(struct lossy_queue *q, struct nic_tx *tx);

uint64_t lossy_now(void);

static inline void lossy_count(_Atomic uint64_t *counter, uint64_t n)
{
	atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n, memory_order_relaxed);
}

__attribute__((format(printf, 3, 4))) int lossy_error(struct nic_err *err, int error, const char *format, ...);

#endif
