/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The client side of a parameter server: one operation over all servers at once.
 *
 * Keys may come in any order and repeat: a pull fills every position, a push adds every gradient. The keys are grouped
 * by owner, each server with keys gets its part in one asynchronous call (several when the part is larger than
 * `chunk_bytes`), then all are waited for. Every operation ends within the client's timeout. Not thread-safe: one
 * client per thread. Failures are those of the calls; `err` names the server.
 */
#ifndef PSERVER_PS_CLIENT_H
#define PSERVER_PS_CLIENT_H

#include "ps_server.h"
#include "ps_split.h"
#include <farcall/farcall.h>

#define PS_CHUNK_BYTES                                                                                                 \
	((size_t)4 << 20) /* largest part in one message; below FAR_MSG_WHOLE_MAX so that a server                     \
			     is not held by one request for long */
#define PS_INFLIGHT 64    /* calls of one operation in flight */

/** One part of an operation: positions [from, from + n) of the grouped keys, on their way to a server. */
struct ps_flight {
	struct far_future *future;
	unsigned server;
	size_t from;
	size_t n;
};

struct ps_client {
	struct far_agent *agent;
	unsigned servers; /* ranks [0, servers) */
	uint64_t timeout_ns;
	size_t chunk_bytes;
	unsigned dims[PS_TABLES]; /* of the tables created through this client; 0: unknown */
	struct ps_split split;
	float *grads; /* scratch: gradients in grouped order */
	size_t grads_cap;
	struct ps_flight flights[PS_INFLIGHT];
	size_t flying;
};

/** The gradients or rows of an operation are [n × dim], row-major, in the order of `keys`. */
struct ps_bsp {
	int64_t step;    /* 0, 1, 2 …, the same at all workers */
	int64_t workers; /* that push each step */
};

int ps_client_init(struct ps_client *c, struct far_agent *agent, unsigned servers, uint64_t timeout_ns);
void ps_client_fini(struct ps_client *c);

/** Makes a table on all servers; every worker calls it, with the same values. */
enum far_status ps_create(struct ps_client *c, int table, unsigned dim, float init, struct far_err *err);
enum far_status ps_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, float *rows,
			struct far_err *err);
enum far_status ps_push(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads, float rate,
			struct far_err *err);
/** Pushes and returns the rows as they are after it (others' pushes may be seen too). */
enum far_status ps_push_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
			     float rate, float *rows, struct far_err *err);

/** The bulk-synchronous ones return when all workers have pushed this step and their mean is applied; n may be 0. */
enum far_status ps_push_bsp(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
			    float rate, struct ps_bsp bsp, struct far_err *err);
enum far_status ps_push_pull_bsp(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
				 float rate, struct ps_bsp bsp, float *rows, struct far_err *err);

/**
 * Waits until `workers` workers have come to this barrier (each number is used once). Ends with FAR_TIMEOUT when for
 * the client's timeout nobody came and no worker made progress, with FAR_PEER_LOST when a member was lost.
 */
enum far_status ps_barrier(struct ps_client *c, int barrier, int workers, struct far_err *err);
/** Tells all servers that this worker makes no further call. */
enum far_status ps_leave(struct ps_client *c, struct far_err *err);
/** Sums the counters of a table over all servers. */
enum far_status ps_stats(struct ps_client *c, int table, int64_t out[PS_STATS], struct far_err *err);

/** Fills an error of the client's own: executed NO, no origin. Returns `status`. */
__attribute__((format(printf, 3, 4))) enum far_status ps_fail(struct far_err *err, enum far_status status,
							      const char *format, ...);

#endif
