/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads. */
/** far_keep_awake(): pollers that sleep between two calls, and do not while they are kept awake. */
#include "check.h"

enum { CALLS = 50, NAP_US = 2000, PATIENCE = 5000, SHARDS = 2 };

static struct far_agent *agent;
static struct far_err err;

static enum far_status wakeups(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_counters c;
	far_shard_counters_read(far_req_agent(req), far_req_shard(req), &c, NULL);
	return far_return_int(req, (int64_t)c.wakeups);
}

/* Of one shard of worker 1. The call itself may wake it. */
static int64_t wakeups_of(int shard)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){1, shard}, "t::wakeups", FAR_NOARGS, NULL, &out, &err),
		     FAR_OK, &err);
	return out.u.i;
}

static void awake(int shard)
{
	int64_t before = wakeups_of(shard);
	for (int i = 0; i < CALLS; i++) {
		usleep(NAP_US);
		CHECK(wakeups_of(shard) == before);
	}
}

/* Within PATIENCE naps a poller that may sleep has slept. */
static void sleeps(int shard)
{
	int64_t before = wakeups_of(shard);
	for (int i = 0; wakeups_of(shard) == before; i++) {
		CHECK(i < PATIENCE);
		usleep(NAP_US);
	}
}

static void refused(void)
{
	CHECK_STATUS(far_keep_awake(agent, (struct far_to){7, -1}, FAR_SEC, &err), FAR_UNKNOWN_WORKER, &err);
	CHECK_STATUS(far_keep_awake(agent, (struct far_to){1, SHARDS}, FAR_SEC, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "far::keep_awake", FAR_ARGS(-1), NULL, NULL, &err), FAR_BAD_ARGS,
		     &err);
}

int main(void)
{
	static const struct far_function table[] = {{"t::wakeups() -> int", FAR_KIND_INLINE, wakeups, NULL}};
	struct far_opts opts = {.functions = table, .functions_n = 1, .shards = SHARDS};
	agent = check_join(&opts);
	if (check_rank() == 0) {
		sleeps(0);
		sleeps(1);
		CHECK_STATUS(far_keep_awake(agent, (struct far_to){1, 0}, 20 * FAR_SEC, &err), FAR_OK, &err);
		awake(0);
		sleeps(1); /* each shard for itself */
		CHECK_STATUS(far_keep_awake(agent, (struct far_to){1, -1}, FAR_FOREVER, &err), FAR_OK, &err);
		awake(0);
		awake(1);
		refused();
	}
	check_leave(agent);
	return 0;
}
