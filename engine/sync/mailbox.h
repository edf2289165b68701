/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Mailbox: a bounded single-producer single-consumer ring of mails. Each shard has two: control thread → shard, and
 * shard → control thread. Producer and consumer indices are on cache lines of their own; each side caches the other's.
 */
#ifndef FAR_SYNC_MAILBOX_H
#define FAR_SYNC_MAILBOX_H

#include "base/limits.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/** Kinds of mail, each with the fields that it uses. */
enum mail_type {
	/* control thread → shard */
	MAIL_PEER_UP,   /* worker, shard, peer, port, incarnation, message_bytes_max: attach the peer, open the session
			 */
	MAIL_PEER_DOWN, /* worker, shard, peer, incarnation, text, status: receive the rest, fail pending calls, detach,
			   reply with MAIL_DETACHED. Status UNREACHABLE: the worker is still a member, and the next call
			   requests a session; any other: the worker is lost. Ignored if the session is of another
			   incarnation */
	MAIL_PEER_UNREACHABLE, /* worker, shard, status, text: the set-up requested by MAIL_CONNECT failed. PEER_LOST:
			   the worker is lost; sent also when a former session left state at the shard */
	MAIL_PROBE, /* worker, shard, peer, incarnation: send a packet to the peer, so that its silence is noticed
		     */
	MAIL_PEER_RESTARTED, /* worker, shard: a new incarnation of the worker has joined; the next call requests a
			      * session
			      */
	/* shard → control thread */
	MAIL_CONNECT,        /* worker, shard: set up a session; reply: MAIL_PEER_UP or MAIL_PEER_UNREACHABLE */
	MAIL_PROTOCOL_ERROR, /* worker, shard, peer: the peer violated the protocol; end its sessions */
	MAIL_DETACHED,       /* worker, shard, peer: the shard has released the NIC handle; it may be dropped */
	/* control thread → shard, not about a session */
	MAIL_RENEWED /* worker: this one; incarnation: its present one. Ends what is left of the former one */
};

static_assert(MAIL_DETACHED < 8, "a shard keeps what it could not post in a byte, a bit for each type");

#define MAIL_TEXT_MAX 320 /* bytes of a driver's reason with its NUL; a longer one is cut */

struct mail {
	enum mail_type type;
	uint32_t worker;            /* rank of the remote worker */
	uint32_t peer;              /* NIC handle of the peer */
	uint16_t port;              /* index of the NIC port */
	uint8_t shard;              /* shard of the remote worker */
	uint8_t status;             /* enum far_status */
	uint64_t incarnation;       /* of the remote worker */
	char text[MAIL_TEXT_MAX];   /* reason of UNREACHED and PEER_DOWN */
	uint64_t message_bytes_max; /* PEER_UP: largest message that the peer accepts, in bytes; 0: no limit */
};

struct mailbox {
	alignas(64) struct mail *slots;    /* constant */
	uint32_t mask;                     /* number of slots − 1; constant */
	alignas(64) _Atomic uint32_t tail; /* next slot to write; writer: producer; release, pairs with mailbox_get() */
	uint32_t head_seen;                /* producer's copy of head */
	alignas(64) _Atomic uint32_t head; /* next slot to read; writer: consumer; release, pairs with mailbox_put() */
	uint32_t tail_seen;                /* consumer's copy of tail */
};

/* ---- Start only ---- */

/** Initialises an empty mailbox over slots[0, n); n is a power of two. */
static inline void mailbox_init(struct mailbox *m, struct mail *slots, uint32_t n)
{
	m->slots = slots;
	m->mask = n - 1;
	atomic_init(&m->tail, 0);
	atomic_init(&m->head, 0);
	m->head_seen = m->tail_seen = 0;
}

/* ---- Producer only ---- */

/** Appends a copy of the mail; false: the mailbox is full. The caller wakes the consumer. */
static inline bool mailbox_put(struct mailbox *m, const struct mail *mail)
{
	uint32_t tail = atomic_load_explicit(&m->tail, memory_order_relaxed);
	if (tail - m->head_seen > m->mask) {
		m->head_seen = atomic_load_explicit(&m->head, memory_order_acquire);
		if (tail - m->head_seen > m->mask)
			return false;
	}
	m->slots[tail & m->mask] = *mail;
	atomic_store_explicit(&m->tail, tail + 1, memory_order_release);
	return true;
}

/* ---- Consumer only ---- */

/** Takes the oldest mail; false: the mailbox is empty. */
static inline bool mailbox_get(struct mailbox *m, struct mail *out)
{
	uint32_t head = atomic_load_explicit(&m->head, memory_order_relaxed);
	if (head == m->tail_seen) {
		m->tail_seen = atomic_load_explicit(&m->tail, memory_order_acquire);
		if (head == m->tail_seen)
			return false;
	}
	*out = m->slots[head & m->mask];
	atomic_store_explicit(&m->head, head + 1, memory_order_release);
	return true;
}

#endif
