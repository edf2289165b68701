/* SPDX-License-Identifier: BSD-3-Clause */
/** Channels between the poller of a queue and the control thread: sets of peers with orders or reports, and a ring of
 * packets. */
#ifndef FAR_TRANSPORT_MAIL_H
#define FAR_TRANSPORT_MAIL_H

#include "base/limits.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>

#define TRANSPORT_MAIL_BYTES 576u /* of a set-up packet: head, body, handshake payload, address */
/* Smallest packet limit of a driver below: the longest set-up packet fits. */
#define TRANSPORT_PACKET_MIN TRANSPORT_MAIL_BYTES
#define TRANSPORT_MAIL_SLOTS 64u /* a burst of CONNECT packets; a power of two */

/** A set of peers as three levels of bitmaps. One thread adds, another takes. */
struct transport_peer_set {
	alignas(64) _Atomic uint64_t any;                            /* bit i: summary i is not 0 */
	_Atomic uint64_t summary[FAR_TRANSPORT_PEERS_MAX / 64 / 64]; /* bit i of number n: word n * 64 + i is not 0 */
	_Atomic uint64_t word[FAR_TRANSPORT_PEERS_MAX / 64];
};
static_assert(FAR_TRANSPORT_PEERS_MAX % (64 * 64) == 0 && FAR_TRANSPORT_PEERS_MAX / 64 / 64 <= 64, "three levels");

/** Adds a peer. true: the set was empty. What this thread wrote before is visible to the thread that takes the peer. */
bool transport_peer_set_add(struct transport_peer_set *b, uint32_t i);
/** Removes a peer and returns its index. UINT32_MAX: the set is empty. */
uint32_t transport_peer_set_take(struct transport_peer_set *b);

static inline bool transport_peer_set_any(const struct transport_peer_set *b)
{
	return atomic_load_explicit(&((struct transport_peer_set *)b)->any, memory_order_relaxed) != 0;
}

struct transport_port;

/** A packet in the ring. */
struct transport_mail {
	const struct transport_port *via; /* port that received it: the mailbox's, or a sibling */
	uint32_t len;
	uint8_t bytes[TRANSPORT_MAIL_BYTES];
};

/** Ring of packets from the poller to the control thread. Indices grow without wrap. */
struct transport_mailbox {
	alignas(64) _Atomic uint32_t written; /* poller */
	alignas(64) _Atomic uint32_t read;    /* control */
	struct transport_mail slots[TRANSPORT_MAIL_SLOTS];
};

/** Poller: adds a packet. false: the ring is full, or the packet is longer than TRANSPORT_MAIL_BYTES. */
bool transport_mail_put(struct transport_mailbox *m, const struct transport_port *via, const void *bytes, uint32_t len);
/** Control: returns the oldest packet, valid until transport_mail_done(). NULL: none. */
const struct transport_mail *transport_mail_get(struct transport_mailbox *m);
/** Control: removes the oldest packet. */
void transport_mail_done(struct transport_mailbox *m);

#endif
