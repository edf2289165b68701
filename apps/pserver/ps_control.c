/* SPDX-License-Identifier: BSD-3-Clause */
/* The client's calls that carry no keys: tables, barriers, leaving. One after the other: none is on a training path. */
#include "ps_client.h"
#include "ps_clock.h"
#include <inttypes.h>
#include <stdio.h>

#define BARRIER_NAP_NS UINT64_C(20000000) /* between looks at a barrier */

static enum far_status call(struct ps_client *c, unsigned server, const char *function, const struct far_val *args,
			    size_t n, struct far_val *out, struct far_err *err)
{
	struct far_call_opts opts = {.timeout_ns = c->timeout_ns};
	struct far_to to = {.worker = (int32_t)server, .shard = 0};
	return far_rpc_sync_to(c->agent, to, function, args, n, &opts, out, err);
}

/* Calls that answer with an i64 tensor of `n`. */
static enum far_status call_counts(struct ps_client *c, unsigned server, const char *function, int64_t arg,
				   int64_t *counts, size_t n, struct far_err *err)
{
	struct far_val value = far_none();
	enum far_status status = call(c, server, function, FAR_ARGS(arg), &value, err);
	if (status != FAR_OK)
		return status;
	const struct far_tensor *t = &value.u.t;
	if (value.type == FAR_TYPE_TENSOR && t->dtype == FAR_I64 && t->ndim == 1 && t->shape[0] == n)
		memcpy(counts, t->data, n * sizeof *counts);
	else
		status = ps_fail(err, FAR_PROTOCOL, "%s: server %u answered with another shape", function, server);
	far_val_fini(&value);
	return status;
}

enum far_status ps_create(struct ps_client *c, int table, unsigned dim, float init, struct far_err *err)
{
	if (table < 0 || table >= PS_TABLES || dim == 0 || dim > PS_DIM_MAX)
		return ps_fail(err, FAR_INVALID, "table %d is not in [0, %d), or dimension %u not in [1, %u]", table,
			       PS_TABLES, dim, PS_DIM_MAX);
	for (unsigned s = 0; s < c->servers; s++) {
		enum far_status status = call(c, s, "ps::create", FAR_ARGS(table, dim, init), NULL, err);
		if (status != FAR_OK)
			return status;
	}
	c->dims[table] = dim;
	return FAR_OK;
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
	for (unsigned s = 0; s < c->servers; s++) {
		enum far_status status = call(c, s, "ps::leave", FAR_NOARGS, NULL, first == FAR_OK ? err : NULL);
		if (first == FAR_OK)
			first = status;
	}
	return first;
}

enum far_status ps_stats(struct ps_client *c, int table, int64_t out[PS_STATS], struct far_err *err)
{
	memset(out, 0, PS_STATS * sizeof *out);
	for (unsigned s = 0; s < c->servers; s++) {
		int64_t one[PS_STATS];
		enum far_status status = call_counts(c, s, "ps::stats", table, one, PS_STATS, err);
		if (status != FAR_OK)
			return status;
		for (int i = 0; i < PS_STATS; i++)
			out[i] += one[i];
	}
	return FAR_OK;
}
