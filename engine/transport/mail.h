/* SPDX-License-Identifier: BSD-3-Clause */
/** What passes between a queue's shard and the control core: boards of peers to be looked at, and a ring of packets. */
#ifndef FAR_TRANSPORT_MAIL_H
#define FAR_TRANSPORT_MAIL_H

#include "base/limits.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define LINK_MAIL_BYTES 576u /* of a set-up packet: head, words of both kinds, an address */
#define LINK_MAIL_SLOTS 64u  /* a burst of HELLOs; a power of two */

/** A set of peers, with one writer of bits and one reader that takes them. */
struct link_board {
	alignas(64) _Atomic uint64_t any;                       /* bit i: look at summary i */
	_Atomic uint64_t summary[FAR_LINK_PEERS_MAX / 64 / 64]; /* bit i of number n: look at word n * 64 + i */
	_Atomic uint64_t word[FAR_LINK_PEERS_MAX / 64];
};
static_assert(FAR_LINK_PEERS_MAX % (64 * 64) == 0 && FAR_LINK_PEERS_MAX / 64 / 64 <= 64, "three levels");

/** true when the board was empty. The writer; what it wrote before is seen by who takes the bit. */
bool link_board_set(struct link_board *b, uint32_t i);
/** Takes one that is set, UINT32_MAX: none. The reader. */
uint32_t link_board_take(struct link_board *b);

static inline bool link_board_any(const struct link_board *b)
{
	return atomic_load_explicit(&((struct link_board *)b)->any, memory_order_relaxed) != 0;
}

struct link_port;

struct link_mail {
	const struct link_port *via; /* that it came to: one of the agent's, not always the mailbox's */
	uint32_t len;
	uint8_t bytes[LINK_MAIL_BYTES];
};

/** Packets from a queue's shard to the control core. */
struct link_mailbox {
	alignas(64) _Atomic uint32_t written;
	alignas(64) _Atomic uint32_t read;
	struct link_mail slots[LINK_MAIL_SLOTS];
};

/** false: it is full, or the packet is longer than any of a set-up. The shard. */
bool link_mail_put(struct link_mailbox *m, const struct link_port *via, const void *bytes, uint32_t len);
/** The oldest one, NULL: none; its memory is the reader's until link_mail_done(). The control core. */
const struct link_mail *link_mail_get(struct link_mailbox *m);
void link_mail_done(struct link_mailbox *m);

#endif
