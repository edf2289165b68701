/* SPDX-License-Identifier: BSD-3-Clause */
/** The workers that fuzz_shard's packets come from: what each has sent and received, so that a packet is right unless
 * the input says otherwise. Main thread. */
#ifndef SHARD_PEER_H
#define SHARD_PEER_H

#include "core/packet.h"
#include "shard_app.h"

enum { PEER_NIC = 4, PEER_SENT = 32, PEER_BODY_MAX = 700000 };

struct peer {
	uint32_t worker;
	uint64_t incarnation;
	bool detached, protocol_error; /* messages of the shard to the control thread, not answered yet */
	union packet_head
		sent[PEER_SENT]; /* requests of this worker, the last PEER_SENT; [sent_n % PEER_SENT] is next */
	uint32_t sent_n;
	uint64_t retry_seq;
	union packet_head got[PEER_SENT]; /* requests of the shard, likewise */
	uint8_t got_ops[PEER_SENT];       /* control messages in each */
	uint32_t got_n;
	struct {
		uint32_t epoch;
		bool open;
		uint64_t total, at, granted;
	} out[FAR_RENDEZVOUS_LANES], in[FAR_RENDEZVOUS_LANES]; /* fragments: from this worker, from the shard */
	uint64_t oneways, units;                               /* one-ways and fragments of the shard */
	union packet_head last;                                /* packet of this worker, and its body */
	size_t last_len;
};

extern struct peer peers[APP_PEERS];

void peers_start(void);
/** Looks at what the shard has sent. false: it is more than the queue holds. */
bool peers_read(void);
/** A packet of the worker arrives. */
void peer_put(struct peer *p, const union packet_head *h, const void *body, size_t len);
/** The control thread's message about the session with the worker. */
void peer_mail(const struct peer *p, enum mail_type type, enum far_status status);
/** Body of the last packet, `last_len` bytes. */
const uint8_t *peer_last(const struct peer *p);
uint64_t peer_incarnation(uint32_t worker);

#endif
