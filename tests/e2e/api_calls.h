/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of every worker to the next one, and what they must end with. Main thread of each process. */
#ifndef API_CALLS_H
#define API_CALLS_H

#include "check.h"

static struct far_agent *agent;
static struct far_err err;
static const char *to; /* name of the worker that is called */
static int rank;

static inline enum far_status call(const char *fn, const struct far_val *args, size_t n, struct far_val *out)
{
	*out = far_none();
	return far_rpc_sync(agent, to, fn, args, n, NULL, out, &err);
}

/** Calls a function that answers with a string, and compares it. */
static inline void expect_text(const char *fn, const struct far_val *args, size_t n, const char *want)
{
	struct far_val out;
	CHECK_STATUS(call(fn, args, n, &out), FAR_OK, &err);
	if (strcmp(out.u.s.data, want) != 0)
		fprintf(stderr, "%s: \"%s\", not \"%s\"\n", fn, (const char *)out.u.s.data, want);
	CHECK(strcmp(out.u.s.data, want) == 0);
	far_val_fini(&out);
}

/** The call fails here, and nothing is sent. */
static inline void expect_mistake(const char *fn, const struct far_val *args, size_t n, enum far_status status,
				  const char *a, const char *b)
{
	struct far_val out;
	struct far_future *f = NULL;
	struct far_counters before, after;
	far_counters_read(agent, &before);
	CHECK_STATUS(call(fn, args, n, &out), status, &err);
	CHECK_TEXT(&err, a);
	CHECK_TEXT(&err, b);
	CHECK(err.executed == FAR_EXECUTED_NO && err.origin[0] == '\0' && out.type == FAR_TYPE_NONE);
	CHECK_STATUS(far_rpc_async(agent, to, fn, args, n, NULL, &f, &err), status, &err);
	CHECK(!f);
	far_counters_read(agent, &after);
	CHECK(after.calls_sent == before.calls_sent);
}

/** Joins, and chooses the next worker. */
static inline void calls_begin(const struct far_opts *opts)
{
	static struct far_worker_info next;
	rank = check_rank();
	agent = check_join(opts);
	CHECK_STATUS(far_worker_by_rank(agent, (rank + 1) % far_world_size(agent), &next, &err), FAR_OK, &err);
	to = next.name;
}

/** From now on the worker calls itself. */
static inline void calls_to_self(void)
{
	static struct far_worker_info self;
	far_worker_self(agent, &self);
	to = self.name;
}

#endif
