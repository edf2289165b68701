/* SPDX-License-Identifier: BSD-3-Clause */
/** A workload for clusters: all call all, and every answer is checked. One thread. */
#include "cluster_calls.h"

#include <stdio.h>
#include <string.h>

struct question {
	uint32_t from, to, round, salt;
};

static uint32_t mixed(const struct question *q, uint32_t by)
{
	return (q->from * 2654435761u) ^ (q->to << 20) ^ (q->round << 8) ^ q->salt ^ (by << 3);
}

/* The answer has the rank of the worker that computed it. */
static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	struct calls *calls = user;
	struct question q;
	if (len != sizeof q) {
		far_fail(req, FAR_INVALID, 0, "%zu bytes", len);
		return;
	}
	memcpy(&q, data, sizeof q);
	uint32_t answer = mixed(&q, cluster_rank(cluster_here()));
	calls->served++;
	far_reply(req, &answer, sizeof answer);
}

/* Calls its own worker's inline handler before it answers. */
static void by_fiber(struct far_req *req, const void *data, size_t len, void *user)
{
	struct cluster_worker *w = cluster_here();
	uint32_t answer;
	size_t got = 0;
	struct far_err err;
	enum far_status status = cluster_sleep(1000);
	if (!status)
		status = far_msg_call(cluster_agent(w), (struct far_to){(int)cluster_rank(w), -1}, CALLS_ECHO, data,
				      len, NULL, &answer, sizeof answer, &got, &err);
	if (status)
		far_fail(req, FAR_REMOTE, 0, "%s", far_status_text(status));
	else
		far_reply(req, &answer, got);
}

static void hang(struct far_req *req, const void *data, size_t len, void *user)
{
	struct calls *calls = user;
	calls->hung++;
	cluster_sleep(UINT64_C(3600000000000));
	calls->unhung++;
	far_reply(req, NULL, 0);
}

void calls_opts(struct far_opts *opts, struct calls *calls)
{
	static struct far_msg_handler handlers[3];
	handlers[0] = (struct far_msg_handler){.id = CALLS_ECHO, .kind = FAR_KIND_INLINE, .fn = echo, .user = calls};
	handlers[1] =
		(struct far_msg_handler){.id = CALLS_FIBER, .kind = FAR_KIND_FIBER, .fn = by_fiber, .user = calls};
	handlers[2] = (struct far_msg_handler){.id = CALLS_HANG, .kind = FAR_KIND_FIBER, .fn = hang, .user = calls};
	opts->messages = handlers;
	opts->messages_n = 3;
}

static bool count(struct calls *calls, enum far_status status, const struct far_err *err)
{
	if (cluster_dead())
		return false;
	if (!status) {
		calls->ok++;
		return true;
	}
	calls->failed++;
	calls->last_status = status;
	calls->last = *err;
	return true;
}

static bool call_message(struct cluster_worker *w, struct calls *calls, unsigned to, unsigned round)
{
	const struct question q = {cluster_rank(w), to, round, 77};
	const struct far_call_opts opts = {.timeout_ns = calls->timeout_ns};
	struct far_err err = {.status = FAR_OK};
	uint32_t answer = 0;
	size_t len = 0;
	uint16_t id = (q.from + to + round) % 2 ? CALLS_ECHO : CALLS_FIBER;
	enum far_status status = far_msg_call(cluster_agent(w), (struct far_to){(int)to, -1}, id, &q, sizeof q, &opts,
					      &answer, sizeof answer, &len, &err);
	if (!status && (len != sizeof answer || answer != mixed(&q, to)))
		calls->wrong++;
	return count(calls, status, &err);
}

static bool call_typed(struct cluster_worker *w, struct calls *calls, unsigned to, unsigned round)
{
	const struct far_val args[] = {far_int((int64_t)to * 1000), far_int((int64_t)round + cluster_rank(w))};
	const struct far_call_opts opts = {.timeout_ns = calls->timeout_ns};
	struct far_err err = {.status = FAR_OK};
	struct far_val sum = {0};
	char name[16];
	snprintf(name, sizeof name, "w%u", to);
	enum far_status status = far_rpc_sync(cluster_agent(w), name, "far::add", args, 2, &opts, &sum, &err);
	if (!status && (sum.type != FAR_TYPE_INT || sum.u.i != (int64_t)to * 1000 + round + cluster_rank(w)))
		calls->wrong++;
	far_val_fini(&sum);
	return count(calls, status, &err);
}

void calls_app(struct cluster_worker *w, void *ctx)
{
	struct calls *calls = ctx;
	unsigned n = cluster_workers(calls->c), me = cluster_rank(w);
	unsigned peers = calls->peers && calls->peers < n ? calls->peers : n;
	for (unsigned round = 0; round < calls->rounds; round++)
		for (unsigned i = 0; i < peers; i++) {
			unsigned to = (me + i) % n;
			if (!call_message(w, calls, to, round) || (calls->typed && !call_typed(w, calls, to, round)))
				return;
		}
}

void calls_spawn(struct calls *calls)
{
	for (unsigned i = 0; i < cluster_workers(calls->c); i++)
		if (cluster_state(cluster_worker(calls->c, i)) == CLUSTER_READY)
			cluster_spawn(cluster_worker(calls->c, i), -1, calls_app, calls);
}
