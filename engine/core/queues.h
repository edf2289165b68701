/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The queues of a shard, one of each port of the agent. Shard thread; queues_sleep() also without the shard.
 *
 * The first queue, of the best port, is polled in every pass; most shards have no other. Each other queue is polled in
 * every pass while a poll is cheap and the queue has peers beside the shard itself, or while it is hot: a packet passed
 * lately, or a peer owes an answer. A cold one is polled once in FAR_COLD_PASSES passes, or after FAR_COLD_NS
 * (FAR_COLD_ALONE times that without peers), or at its deadline.
 */
#ifndef FAR_CORE_QUEUES_H
#define FAR_CORE_QUEUES_H

#include "base/limits.h"
#include "nic/nic.h"

#include <stdbool.h>
#include <stdint.h>

struct shard;
struct session;

/**
 * Ring slots of one direction that a session can fill. Calls: our requests, the cancels of calls that are still pending
 * and of calls whose answer crossed the cancel, and our answers; a batch of control messages about references and
 * the answer to one, which are never cancelled. One-way messages, their CREDITs, one CREDIT_REQUEST with its answer.
 * Fragments and ABORTs; CREDITs for them, each for a packet that was not reported before, and the GRANT
 * and REFUSE of a lane's epoch, and epochs begin and end with packets of that window (engine/PROTOCOL.md).
 */
#define SHARD_RING_SLOTS                                                                                               \
	(4u * FAR_SESSION_CALLS_MAX + 2u + FAR_ONEWAYS_WINDOW + FAR_ONEWAYS_WINDOW / FAR_ONEWAYS_BATCH + 2u +          \
	 2u * FAR_RENDEZVOUS_PACKETS + FAR_RENDEZVOUS_PACKETS + 2u * FAR_RENDEZVOUS_LANES)

/** A port as its queue is given to a shard. */
struct shard_port {
	struct nic_queue *queue;
	uint32_t slots; /* of the driver's ring, at least SHARD_RING_SLOTS */
	uint32_t peers_max;
	bool poll_costs; /* nic_caps */
};

/** One line: what each pass reads comes first. */
struct shard_queue {
	struct nic_queue *q;
	const struct nic_queue_ops *ops;
	uint32_t *peer_session; /* by the NIC's peer: index + 1 */
	struct shard *shard;
	uint32_t bursts; /* that one pass takes at most, while they are full */
	uint32_t peers;  /* attached */
	uint32_t peers_max;
	/* of those beyond the first */
	uint32_t left; /* passes until it is polled, counted from the last look at the schedule; 0: in the next look */
	uint32_t hot;  /* polls without a packet before it is looked whether it is still worth it; 0: cold */
	bool poll_costs;
	bool itself;      /* one of the peers is this shard: what arrives from it has made the queue hot */
	bool polled;      /* since the last reading of the clock */
	uint64_t look_at; /* when a cold one is polled at the latest */
};

/** false: no memory; queues_free() frees what was made. Before any thread polls the shard. */
bool queues_init(struct shard *s, const struct shard_port *ports, unsigned n);
void queues_free(struct shard *s);

/** Polls the queues beyond the first that the schedule has due. Returns packets. */
unsigned queues_receive(struct shard *s);
void queues_flush(struct shard *s);
/** A packet was committed to queue `i`, not the first: it is polled for the answer, and flushed. */
void queues_touched(struct shard *s, unsigned i);
/** All are polled in the next pass. */
void queues_poll_all(struct shard *s);
/** Those whose time has come are polled in the next pass. */
void queues_due(struct shard *s, uint64_t now);
/** The earliest deadline of all. */
uint64_t queues_deadline(const struct shard *s);

/** Has the queues give back memory that no packet uses: when the budget is short. System calls. */
void queues_trim(struct shard *s);
/** buf_alloc(), which tries again with the memory that queues_trim() gives back. */
struct far_buf *queues_buf(struct shard *s, size_t bytes);

/** Before and after a sleep: notifies the peers of all queues. After disarming all are polled in the next pass. */
void queues_arm(struct shard *s);
void queues_disarm(struct shard *s);
/** Sleeps until one can be read or `until` has come. Returns which woke, a bit each. Does not clear them: only the
 * token's holder may, or a wake-up meant for it would be swallowed. */
uint32_t queues_sleep(const struct shard *s, uint64_t until);
void queues_wake_clear(struct shard *s, uint32_t woke);

#endif
