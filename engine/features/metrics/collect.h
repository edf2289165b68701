/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The metrics of a shard, collected by the shard for another thread. metrics_collect() and metrics_collect_free(): any
 * thread that may block; the rest runs on the shard.
 */
#ifndef FAR_FEATURES_METRICS_COLLECT_H
#define FAR_FEATURES_METRICS_COLLECT_H

#include "base/limits.h"
#include "core/latency.h"
#include "core/session.h"
#include "core/shard.h"

#include <farcall/status.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define METRICS_PENDING_MAX 32u /* calls and requests that a debug report lists */
#define METRICS_WAIT_NS     UINT64_C(100000000)

/** Where a call or request is. */
enum metrics_state {
	METRICS_CALL_SENT,
	METRICS_CALL_FRAGMENTS,   /* its request or reply is under way in fragments */
	METRICS_CALL_ENDED,       /* ended here; the peer's last packet is due */
	METRICS_REQUEST_FIBER,    /* its handler runs or waits on a fiber */
	METRICS_REQUEST_DEFERRED, /* a thread of the worker or the application answers it later */
	METRICS_REQUEST_ANSWERED  /* its answer waits to be sent */
};

/** A call or a request that is under way. */
struct metrics_pending {
	const char *name;  /* of the function or message handler; NULL: not known. Valid as long as the agent */
	uint32_t message;  /* number of the message, if name is NULL */
	uint32_t worker;   /* rank of the peer */
	uint8_t state;     /* enum metrics_state */
	uint64_t since;    /* ns; 0: not known */
	uint64_t deadline; /* ns; TIME_NEVER: none */
};

struct metrics_peer {
	struct session_counters counters;
	uint64_t bytes_sent;
	uint64_t calls; /* begun */
	uint32_t calls_active, requests_open, up;
};

/** What a shard reports. `peers` by rank. */
struct metrics_shard {
	struct shard_task task;
	_Atomic uint32_t state; /* METRICS_REQUESTED → METRICS_DONE, or ABANDONED; futex */
	bool debug;             /* lists `calls` and `requests` */
	uint64_t now;
	uint64_t sum_ns, n, bucket[LATENCY_BUCKETS];
	uint64_t fibers_max, fibers_active;
	uint64_t requests_fiber;             /* open requests whose handler is a fiber */
	uint64_t sessions[SESSION_DEAD + 1]; /* by enum session_state; of those that were ever used */
	uint64_t sessions_port[FAR_PORTS_MAX];
	uint64_t calls_waiting;
	uint32_t calls_n, requests_n; /* in `calls` and `requests`, the oldest */
	struct metrics_pending calls[METRICS_PENDING_MAX], requests[METRICS_PENDING_MAX];
	uint32_t world;
	struct metrics_peer peers[];
};

enum { METRICS_REQUESTED, METRICS_DONE, METRICS_ABANDONED };

/** Begins a collection. NULL: no memory. */
struct metrics_shard *metrics_request(struct shard *s, bool debug);
/** Collects on the calling thread, which holds the shard or is the only one that runs it. NULL: no memory. */
struct metrics_shard *metrics_collect_here(struct shard *s, bool debug);
/** Waits until the collection has ended, or until `until`. False: the shard did not answer; `m` is not the caller's
 * any more. */
bool metrics_await(struct metrics_shard *m, uint64_t until);
void metrics_shard_free(struct metrics_shard *m);

#endif
