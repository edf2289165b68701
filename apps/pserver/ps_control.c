/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's calls that carry no keys: tables, barriers, leaving. One after the other: none is on a training path.
 * The thread of the client. */
#include "ps_client.h"
#include "ps_clock.h"
#include <inttypes.h>
#include <stdio.h>

#define BARRIER_NAP_NS UINT64_C(20000000) /* between looks at a barrier */

static enum far_status call(struct ps_client *c, unsigned part, const char *function, const struct far_val *args,
			    size_t n, struct far_val *out, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = c->timeout_ns};
	return far_rpc_sync_to(c->agent, ps_part_to(c, part), function, args, n, &opts, out, err);
}

/* Calls that answer with an i64 tensor of `n`. */
static enum far_status call_counts(struct ps_client *c, unsigned part, const char *function, int64_t arg,
				   int64_t *counts, size_t n, struct far_err *err)
{
	struct far_val value = far_none();
	enum far_status status = call(c, part, function, FAR_ARGS(arg), &value, err);
	if (status != FAR_OK)
		return status;
	const struct far_tensor *t = &value.u.t;
	if (value.type == FAR_TYPE_TENSOR && t->dtype == FAR_I64 && t->ndim == 1 && t->shape[0] == n)
		memcpy(counts, t->data, n * sizeof *counts);
	else
		status = ps_fail(err, FAR_PROTOCOL, "%s: server %u answered with another shape", function,
				 ps_part_server(part, c->shards));
	far_val_fini(&value);
	return status;
}

/* A server with other shards than this client believes would keep the keys elsewhere. */
static enum far_status check_shards(struct ps_client *c, struct far_err *err)
{
	for (unsigned s = 0; s < c->servers; s++) {
		struct far_worker_info info;
		enum far_status status = far_worker_by_rank(c->agent, (int)s, &info, err);
		if (status != FAR_OK)
			return status;
		if (info.shards != c->shards)
			return ps_fail(err, FAR_INVALID,
				       "server %u has %u shards, this worker expects %u: give all members the same "
				       "--shards",
				       s, info.shards, c->shards);
	}
	return FAR_OK;
}

enum far_status ps_create_with(struct ps_client *c, int table, unsigned dim, float init, const struct ps_rule *rule,
			       struct far_err *err)
{
	if (table < 0 || table >= PS_TABLES || dim == 0 || dim > PS_DIM_MAX)
		return ps_fail(err, FAR_INVALID, "table %d is not in [0, %d), or dimension %u not in [1, %u]", table,
			       PS_TABLES, dim, PS_DIM_MAX);
	enum far_status status = check_shards(c, err);
	for (unsigned p = 0; p < c->split.parts && status == FAR_OK; p++)
		status = call(c, p, "ps::create", FAR_ARGS(table, dim, init, (int)rule->optimizer, rule->epsilon), NULL,
			      err);
	if (status == FAR_OK)
		c->dims[table] = dim;
	return status;
}

enum far_status ps_create(struct ps_client *c, int table, unsigned dim, float init, struct far_err *err)
{
	const struct ps_rule sgd = {PS_SGD, 0.0f};
	return ps_create_with(c, table, dim, init, &sgd, err);
}

enum far_status ps_barrier(struct ps_client *c, int barrier, int workers, struct far_err *err)
{
	enum far_status status = call(c, 0, "ps::arrive", FAR_ARGS(barrier), NULL, err);
	int64_t seen[2] = {0, 0};
	uint64_t progress = clock_ns();
	while (status == FAR_OK) {
		int64_t counts[2];
		status = call_counts(c, 0, "ps::arrived", barrier, counts, 2, err);
		if (status != FAR_OK || counts[0] >= workers)
			break;
		uint64_t now = clock_ns();
		if (memcmp(counts, seen, sizeof seen) != 0) {
			memcpy(seen, counts, sizeof seen);
			progress = now;
		} else if (now - progress > c->timeout_ns) {
			return ps_fail(err, FAR_TIMEOUT,
				       "%" PRId64 " of %d workers came to barrier %d, and nobody made progress for "
				       "%" PRIu64 " ms",
				       counts[0], workers, barrier, c->timeout_ns / FAR_MS);
		}
		clock_nap(BARRIER_NAP_NS);
	}
	return status;
}

enum far_status ps_leave(struct ps_client *c, struct far_err *err)
{
	enum far_status first = FAR_OK;
	for (unsigned p = 0; p < c->split.parts; p++) {
		enum far_status status = call(c, p, "ps::leave", FAR_NOARGS, NULL, first == FAR_OK ? err : NULL);
		if (first == FAR_OK)
			first = status;
	}
	return first;
}

enum far_status ps_stats(struct ps_client *c, int table, int64_t out[PS_STATS], struct far_err *err)
{
	memset(out, 0, PS_STATS * sizeof *out);
	for (unsigned p = 0; p < c->split.parts; p++) {
		int64_t one[PS_STATS];
		enum far_status status = call_counts(c, p, "ps::stats", table, one, PS_STATS, err);
		if (status != FAR_OK)
			return status;
		for (int i = 0; i < PS_STATS; i++)
			out[i] += one[i];
	}
	return FAR_OK;
}
