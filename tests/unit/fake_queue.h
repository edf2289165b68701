/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A NIC queue in memory for protocol tests: the test puts packets in as a peer would, runs passes, and looks at what
 * the shard sent. Bodies above FAKE_INLINE have a cookie and must be released, as with a real driver.
 */
#ifndef FAKE_QUEUE_H
#define FAKE_QUEUE_H

#include "core/head.h"
#include "memory/buf.h"
#include "nic/nic.h"

#include <stdalign.h>

#define FAKE_PEERS   8u
#define FAKE_PACKETS 4096u
#define FAKE_INLINE  FAR_LINE_PAYLOAD
#define FAKE_BODY    (UINT64_C(1) << 20)
#define FAKE_LENT    64u

struct fake_packet {
	alignas(64) uint8_t inline_body[FAKE_INLINE];
	uint8_t head[sizeof(struct shm_head)];
	uint8_t *body; /* of its own when beyond FAKE_INLINE */
	uint64_t body_len;
	uint32_t peer;
	bool released;
};

/** What the shard lent, and the driver still reads. */
struct fake_lent {
	struct far_buf *owner;
	const uint8_t *body;
	uint64_t len;
};

struct fake_place {
	struct nic_place where;
	unsigned packet;
};

struct fake_queue {
	struct nic_queue base;
	bool attached[FAKE_PEERS];
	/* towards the shard */
	struct fake_packet in[FAKE_PACKETS];
	unsigned in_n, in_read, in_held; /* in_held: cookies given out and not yet released */
	/* from the shard */
	struct fake_packet out[FAKE_PACKETS];
	unsigned out_n, out_read, out_flushed;
	unsigned open_tx; /* reserved, neither committed nor cancelled */
	bool no_slots;    /* tx_reserve: -EAGAIN */
	bool no_bulk;     /* tx_reserve of a large body: -ENOBUFS */
	bool bad_next;    /* the next packet received is one that broke the driver's rules */
	int commit_error; /* what tx_commit says, once */
	unsigned wakes, arms, recvs, clears;
	bool armed;
	int wake_fd;
	bool (*owes)(void *ctx, uint32_t peer); /* watch()'s */
	void *owes_ctx;
	struct fake_lent lent[FAKE_LENT];
	unsigned lent_n;
	nic_place_fn *place; /* placing()'s */
	void *place_ctx;
	struct fake_place placed[FAKE_LENT];
	unsigned placed_n, placed_read;
	uint64_t deadline; /* what deadline() says; UINT64_MAX to begin with */
};

struct fake_queue *fake_queue_new(void);
void fake_queue_free(struct fake_queue *q);

/** A packet arrives from `peer`; head and body are copied. */
void fake_queue_put(struct fake_queue *q, uint32_t peer, const struct shm_head *head, const void *body, uint64_t len);

/** From now on bodies are sent from where they lie, and read there until fake_queue_let_go(). */
void fake_queue_lends(struct fake_queue *q);
void fake_queue_let_go(struct fake_queue *q);
/** The same as fake_queue_put(), but that the shard is asked for a place, and the body put there at once; false: it has
 * none, and nothing arrives. */
bool fake_queue_place(struct fake_queue *q, uint32_t peer, const struct shm_head *head, const void *body, uint64_t len);

/** The next packet that the shard sent, in order; NULL when there is none. It stays readable. */
const struct fake_packet *fake_queue_sent(struct fake_queue *q, struct shm_head *head);
const void *fake_body(const struct fake_packet *p);

#endif
