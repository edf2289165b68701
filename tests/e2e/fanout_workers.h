/* SPDX-License-Identifier: BSD-3-Clause */
/** Six workers and what they serve, for the tests of fan-outs; rank 0 calls.
 * Handlers: shard threads, fibers and threads of the agent. */
#ifndef FANOUT_WORKERS_H
#define FANOUT_WORKERS_H

#include "api_spawn.h"
#include "handlers.h"

#include <stdatomic.h>

enum { WORKERS = 6, ECHO = 1, HOLD = 2, TWICE = 3, KEPT_MAX = 1024, MANY = 1000, WINDOW = 202 };

static struct far_agent *agent;
static struct far_err err;
static int rank;

/* ---- what the workers serve ---- */

static struct far_deferred *kept[KEPT_MAX];
static int kept_n;

static inline enum far_status on_rank(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(rank);
	return far_return(req, &v);
}

/* f32 [n], each rank × 1000 + base. */
static inline enum far_status on_row(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	uint64_t shape[1] = {(uint64_t)args[1].u.i};
	void *data;
	CHECK(far_return_tensor(req, FAR_F32, 1, shape, &data) == FAR_OK);
	for (uint64_t i = 0; i < shape[0]; i++)
		((float *)data)[i] = (float)(rank * 1000 + args[0].u.i);
	return FAR_OK;
}

static inline enum far_status on_fail(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (args[0].u.i >> rank & 1)
		return far_fail(req, FAR_REMOTE, 40 + rank, "worker %d fails on request", rank);
	return on_rank(req, args, n, user);
}

static inline enum far_status on_hold(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	if (!(args[0].u.i >> rank & 1))
		return on_rank(req, args, n, user);
	CHECK(kept_n < KEPT_MAX);
	return far_defer(req, &kept[kept_n++]);
}

static inline void on_hold_message(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(kept_n < KEPT_MAX && far_defer(req, &kept[kept_n++]) == FAR_OK);
}

static inline void on_echo(struct far_req *req, const void *data, size_t len, void *user)
{
	CHECK(far_reply(req, data, len) == FAR_OK);
}

/* Answers all that was kept; returns how many of them nobody waited for. */
static inline enum far_status on_release(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(rank), gone = far_int(0);
	while (kept_n)
		gone.u.i += far_deferred_return(kept[--kept_n], &v) == FAR_CANCELLED;
	return far_return(req, &gone);
}

static inline enum far_status on_kept(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(kept_n);
	return far_return(req, &v);
}

/* t::release at another worker. */
static inline enum far_status on_relay(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err why;
	CHECK_STATUS(far_rpc_sync(far_req_agent(req), check_name((int)args[0].u.i), "t::release", FAR_NOARGS, NULL,
				  &out, &why),
		     FAR_OK, &why);
	return far_return(req, &out);
}

/* A fan-out in a handler that may wait: the sum of all ranks. */
static inline enum far_status on_nested(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_target targets[WORKERS] = {{.to = {0, -1}}};
	int64_t ranks[WORKERS] = {0}, sum = 0;
	struct far_fanout_opts opts = {.recv_buf = ranks, .slice_bytes = sizeof ranks[0]};
	struct far_future *f;
	struct far_err why;
	for (int i = 0; i < WORKERS; i++)
		targets[i].to = (struct far_to){i, -1};
	CHECK_STATUS(far_rpc_fanout(far_req_agent(req), "t::rank", FAR_NOARGS, targets, WORKERS, &opts, NULL, &f, &why),
		     FAR_OK, &why);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &why), FAR_OK, &why);
	far_future_free(f);
	for (int i = 0; i < WORKERS; i++)
		sum += ranks[i];
	struct far_val v = far_int(sum);
	return far_return(req, &v);
}

static _Atomic bool joined;

static enum far_status on_joined(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(&joined));
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"t::rank() -> int", FAR_KIND_INLINE, on_rank, NULL, FAR_IDEMPOTENT},
	{"t::row(int base, int n) -> Tensor", FAR_KIND_INLINE, on_row, NULL},
	{"t::same(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"t::fail(int who) -> int", FAR_KIND_INLINE, on_fail, NULL, FAR_IDEMPOTENT},
	{"t::hold(int who) -> int", FAR_KIND_INLINE, on_hold, NULL, FAR_IDEMPOTENT},
	{"t::once(int who) -> int", FAR_KIND_INLINE, on_hold, NULL},
	{"t::release() -> int", FAR_KIND_INLINE, on_release, NULL},
	{"t::kept() -> int", FAR_KIND_INLINE, on_kept, NULL},
	{"t::relay(int to) -> int", FAR_KIND_FIBER, on_relay, NULL},
	{"t::nested() -> int", FAR_KIND_FIBER, on_nested, NULL},
	{"t::nested_blocking() -> int", FAR_KIND_BLOCKING, on_nested, NULL},
	{"t::pid() -> int", FAR_KIND_INLINE, handler_pid, NULL},
	{"t::joined() -> int", FAR_KIND_INLINE, on_joined, NULL},
};
static const struct far_msg_handler messages[] = {
	{ECHO, FAR_KIND_INLINE, on_echo, NULL},
	{HOLD, FAR_KIND_INLINE, on_hold_message, NULL},
	{TWICE, FAR_KIND_INLINE, on_echo, NULL, FAR_IDEMPOTENT},
};

/* ---- what rank 0 does with them ---- */

static struct far_target targets[FAR_FANOUT_MAX + 1];
static struct far_target_result results[FAR_FANOUT_MAX];

/* One target at each of the others, `n` in all, by turns. */
static inline void to_others(size_t n)
{
	memset(targets, 0, sizeof targets);
	for (size_t i = 0; i < n; i++)
		targets[i].to = (struct far_to){1 + (int)(i % (WORKERS - 1)), -1};
}

static inline int64_t query(int worker, const char *function)
{
	struct far_val out = {0};
	CHECK_STATUS(far_rpc_sync(agent, check_name(worker), function, FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

static inline struct far_future *start(const char *function, int64_t arg, size_t n, const struct far_fanout_opts *opts)
{
	struct far_future *f;
	CHECK_STATUS(far_rpc_fanout(agent, function, FAR_ARGS(arg), targets, n, opts, results, &f, &err), FAR_OK, &err);
	return f;
}

static inline void expect(struct far_future *f, enum far_status want, int64_t count)
{
	struct far_val v = {0};
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), want, &err);
	CHECK(want || (v.type == FAR_TYPE_INT && v.u.i == count));
	far_future_free(f);
}

static inline void nothing_left(void)
{
	struct far_counters c;
	do {
		query(1, "t::rank");
		far_counters_read(agent, &c);
	} while (c.calls_active);
	CHECK(c.packets_dropped == 0);
}

static inline struct far_agent *join(void)
{
	struct far_opts opts = {.functions = functions,
				.functions_n = sizeof functions / sizeof *functions,
				.messages = messages,
				.messages_n = sizeof messages / sizeof *messages,
				.progress = getenv("TEST_OWN") ? FAR_PROGRESS_DEDICATED : FAR_PROGRESS_SHARED};
	rank = check_rank();
	struct far_agent *a = check_join(&opts);
	atomic_store(&joined, true);
	return a;
}

/** A group with each way of driving the shards. */
static inline int run_both(spawn_main *body, int killed)
{
	int bad = 0;
	for (int own = 0; own < 2; own++) {
		if (own)
			setenv("TEST_OWN", "1", 1);
		struct spawned s = spawn(WORKERS, body);
		bad |= spawn_wait(&s, killed);
	}
	unsetenv("TEST_OWN");
	return bad;
}

#endif
