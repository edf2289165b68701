/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The client side of a parameter server: one operation over all servers at once.
 *
 * Keys may come in any order and repeat: a pull fills every position, a push adds every gradient. The keys are grouped
 * by the part of the table that they belong to (a shard of a server), and each part with keys gets its own in one call
 * of a fan-out (several when they are more than `chunk_bytes`), whose answers come in the order of the groups. Every
 * operation ends within the client's timeout. Not thread-safe: one client per thread. Failures are those of the calls;
 * `err` names the server.
 */
#ifndef PSERVER_PS_CLIENT_H
#define PSERVER_PS_CLIENT_H

#include "ps_server.h"
#include "ps_split.h"
#include <farcall/farcall.h>

#define PS_CHUNK_BYTES                                                                                                 \
	((size_t)4 << 20)                  /* largest part in one message; below FAR_MSG_EAGER_MAX so that a server    \
					      is not held by one request for long */
#define PS_FANOUT_BYTES ((size_t)64 << 20) /* largest sum of parts under way at once, as long as there are several */
#define PS_ARGS         7

/** One call of an operation: positions [from, from + n) of the grouped keys. */
struct ps_call {
	unsigned part;
	size_t from, n;
	struct far_tensor rows; /* where its answer goes */
	struct far_val args[PS_ARGS];
};

struct ps_client {
	struct far_agent *agent;
	unsigned servers; /* ranks [0, servers) */
	unsigned shards;  /* of each */
	uint64_t timeout_ns;
	size_t chunk_bytes;
	unsigned dims[PS_TABLES]; /* of the tables created through this client; 0: unknown */
	struct ps_split split;
	/* scratch: gradients and rows in grouped order; the calls that are gathered for a fan-out */
	float *grads, *rows;
	size_t grads_cap, rows_cap;
	struct ps_call *calls;
	struct far_target *targets;
	struct far_target_result *results;
	size_t calls_n, calls_cap, calls_bytes;
};

/** The gradients or rows of an operation are [n × dim], row-major, in the order of `keys`. */
struct ps_bsp {
	int64_t step;    /* 0, 1, 2 …, the same at all workers */
	int64_t workers; /* that push each step */
};

/** Gradients to push. */
struct ps_push {
	int table;
	const uint64_t *keys; /* [n] */
	size_t n;
	const float *grads; /* [n][dim] */
	float rate;
};

int ps_client_init(struct ps_client *c, struct far_agent *agent, unsigned servers, unsigned shards,
		   uint64_t timeout_ns);
void ps_client_fini(struct ps_client *c);

/** Makes a table on all servers; every worker calls it, with the same values. The first is SGD's. */
enum far_status ps_create_with(struct ps_client *c, int table, unsigned dim, float init, const struct ps_rule *rule,
			       struct far_err *err);
enum far_status ps_create(struct ps_client *c, int table, unsigned dim, float init, struct far_err *err);
enum far_status ps_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, float *rows,
			struct far_err *err);
enum far_status ps_push(struct ps_client *c, const struct ps_push *p, struct far_err *err);
/** Pushes and returns the rows as they are after it (others' pushes may be seen too). */
enum far_status ps_push_pull(struct ps_client *c, const struct ps_push *p, float *rows, struct far_err *err);

/** The bulk-synchronous ones return when all workers have pushed this step and their mean is applied; n may be 0. */
enum far_status ps_push_bsp(struct ps_client *c, const struct ps_push *p, struct ps_bsp bsp, struct far_err *err);
enum far_status ps_push_pull_bsp(struct ps_client *c, const struct ps_push *p, struct ps_bsp bsp, float *rows,
				 struct far_err *err);

/**
 * Waits until `workers` workers have come to this barrier (each number is used once). Ends with FAR_TIMEOUT when for
 * the client's timeout nobody came and no worker made progress, with FAR_PEER_LOST when a member was lost.
 */
enum far_status ps_barrier(struct ps_client *c, int barrier, int workers, struct far_err *err);
/** Notifies all servers that this worker makes no further call. */
enum far_status ps_leave(struct ps_client *c, struct far_err *err);
/** Sums the counters of a table over all servers. */
enum far_status ps_stats(struct ps_client *c, int table, int64_t out[PS_STATS], struct far_err *err);

/** Where a part of the tables is. */
struct far_to ps_part_to(const struct ps_client *c, unsigned part);

/** Fills an error of the client's own: executed NO, no origin. Returns `status`. */
__attribute__((format(printf, 3, 4))) enum far_status ps_fail(struct far_err *err, enum far_status status,
							      const char *format, ...);

#endif
