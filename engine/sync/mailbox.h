/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Mailbox: a bounded single-producer single-consumer ring of small messages; one from the control core to each shard,
 * one back. Producer and consumer indices live on lines of their own; each side caches the other's.
 */
#ifndef FAR_SYNC_MAILBOX_H
#define FAR_SYNC_MAILBOX_H

#include "base/limits.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum mail_type {
	/* control core → shard */
	MAIL_PEER_UP,   /* worker, shard, peer, incarnation: attach the peer and open the session */
	MAIL_PEER_DOWN, /* worker, shard, peer, incarnation, text, status: receive what is left, fail what is pending,
			   detach, answer MAIL_DETACHED. Status UNREACHABLE: the worker is still a member, the next call
			   asks for a session; any other: the worker is lost. Ignored if the session is of another
			   incarnation */
	MAIL_UNREACHED, /* worker, shard, status, text: the set-up that MAIL_CONNECT asked for failed. PEER_LOST: the
			   worker is lost; posted, too, when a former session left something at the shard */
	MAIL_PROBE,     /* worker, shard, peer, incarnation: send it something, so that its silence is noticed */
	MAIL_PEER_BACK, /* worker, shard: another life of the worker has begun; the next call asks for a session */
	/* shard → control core */
	MAIL_CONNECT,  /* worker, shard: set a session up; PEER_UP or UNREACHED follows */
	MAIL_POISONED, /* worker, shard, peer: it broke the protocol; take it down */
	MAIL_DETACHED  /* worker, shard, peer: may be dropped */
};

static_assert(MAIL_DETACHED < 8, "a shard keeps what it could not post in a byte, a bit for each type");

#define MAIL_TEXT_MAX 320 /* bytes of a reason with its NUL, as a driver gives it; a longer one is cut */

struct mail {
	enum mail_type type;
	uint32_t worker; /* rank */
	uint32_t peer;   /* the NIC's handle */
	uint16_t port;   /* index of the NIC port */
	uint8_t shard;   /* the worker's */
	uint8_t status;  /* enum far_status */
	uint64_t incarnation;
	char text[MAIL_TEXT_MAX];
	uint64_t message_bytes_max; /* PEER_UP: what the peer takes; 0: it sets no limit */
};

struct mailbox {
	alignas(64) struct mail *slots;    /* constant, as is the mask */
	uint32_t mask;                     /* slots less one */
	alignas(64) _Atomic uint32_t tail; /* writer: producer; release, pairs with the consumer's acquire */
	uint32_t head_seen;                /* producer's copy of head */
	alignas(64) _Atomic uint32_t head; /* writer: consumer; release, pairs with the producer's acquire */
	uint32_t tail_seen;                /* consumer's copy of tail */
};

/** An empty mailbox over slots[0, n); n is a power of two. */
static inline void mailbox_init(struct mailbox *m, struct mail *slots, uint32_t n)
{
	m->slots = slots;
	m->mask = n - 1;
	atomic_init(&m->tail, 0);
	atomic_init(&m->head, 0);
	m->head_seen = m->tail_seen = 0;
}

/** false when full. Producer only. The caller wakes the consumer. */
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

/** false when empty. Consumer only. */
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
