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
#include <stdint.h>

#define LINK_MAIL_BYTES 576u /* of a set-up packet: head, body, handshake payload, address */
#define LINK_MAIL_SLOTS 64u  /* a burst of HELLO packets; a power of two */

/** A set of peers as three levels of bitmaps. One thread adds, another takes. */
struct link_board {
	alignas(64) _Atomic uint64_t any;                       /* bit i: summary i is not 0 */
	_Atomic uint64_t summary[FAR_LINK_PEERS_MAX / 64 / 64]; /* bit i of number n: word n * 64 + i is not 0 */
	_Atomic uint64_t word[FAR_LINK_PEERS_MAX / 64];
};
static_assert(FAR_LINK_PEERS_MAX % (64 * 64) == 0 && FAR_LINK_PEERS_MAX / 64 / 64 <= 64, "three levels");

/** Adds a peer. true: the set was empty. What this thread wrote before is visible to the thread that takes the peer. */
bool link_board_set(struct link_board *b, uint32_t i);
/** Removes a peer and returns its index. UINT32_MAX: the set is empty. */
uint32_t link_board_take(struct link_board *b);

static inline bool link_board_any(const struct link_board *b)
{
	return atomic_load_explicit(&((struct link_board *)b)->any, memory_order_relaxed) != 0;
}

struct link_port;

/** A packet in the ring. */
struct link_mail {
	const struct link_port *via; /* port that received it: the mailbox's, or a sibling */
	uint32_t len;
	uint8_t bytes[LINK_MAIL_BYTES];
};

/** Ring of packets from the poller to the control thread. Indices grow without wrap. */
struct link_mailbox {
	alignas(64) _Atomic uint32_t written; /* poller */
	alignas(64) _Atomic uint32_t read;    /* control */
	struct link_mail slots[LINK_MAIL_SLOTS];
};

/** Poller: adds a packet. false: the ring is full, or the packet is longer than LINK_MAIL_BYTES. */
bool link_mail_put(struct link_mailbox *m, const struct link_port *via, const void *bytes, uint32_t len);
/** Control: returns the oldest packet, valid until link_mail_done(). NULL: none. */
const struct link_mail *link_mail_get(struct link_mailbox *m);
/** Control: removes the oldest packet. */
void link_mail_done(struct link_mailbox *m);

#endif
