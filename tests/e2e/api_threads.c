/* SPDX-License-Identifier: BSD-3-Clause */
/** Many threads of one worker call at once, with each way of driving the shard. */
#include "api_spawn.h"
#include "handlers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 8, CALLS = 400, WINDOW = 16 };

static struct far_agent *agent;
static _Atomic unsigned long total;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static void one_sync(int64_t x)
{
	struct far_err err;
	struct far_val out;
	const char *to = x % 5 ? "worker1" : "worker0";
	CHECK_STATUS(far_rpc_sync(agent, to, "t::twice", FAR_ARGS(x), NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 2 * x);
}

static void one_message(int64_t x)
{
	struct far_err err;
	static const size_t sizes[] = {8, 100, 5000, 0};
	uint8_t sent[5000], got[5000];
	size_t len = 0, want = sizes[x % 4];
	memset(sent, (int)x, want);
	CHECK_STATUS(far_msg_call(agent, (struct far_to){1, -1}, 1, sent, want, NULL, got, sizeof got, &len, &err),
		     FAR_OK, &err);
	CHECK(len == want && (len == 0 || memcmp(sent, got, len) == 0));
}

static void some_async(int64_t x)
{
	struct far_future *f[WINDOW];
	struct far_err err;
	struct far_val out;
	for (int i = 0; i < WINDOW; i++) {
		enum far_status status;
		while ((status = far_rpc_async(agent, "worker1", "t::twice", FAR_ARGS(x + i), NULL, &f[i], &err)) ==
		       FAR_BUSY)
			usleep(100);
		CHECK_STATUS(status, FAR_OK, &err);
	}
	for (int i = WINDOW - 1; i >= 0; i--) {
		enum far_status status = far_future_wait(f[i], 0, &out, &err);
		/* A call that was handed over may meet a full window: back-pressure, and it has not run. */
		CHECK(status == FAR_OK || (status == FAR_BUSY && err.executed == FAR_EXECUTED_NO));
		CHECK(status || out.u.i == 2 * (x + i));
		far_future_free(f[i]);
	}
}

static void *thread_main(void *arg)
{
	int64_t id = (int64_t)(intptr_t)arg;
	for (int64_t i = 0; i < CALLS; i++) {
		switch ((i + id) % 4) {
		case 0:
			some_async(id * 100000 + i);
			break;
		case 1:
			one_message(id * 100000 + i);
			break;
		default:
			one_sync(id * 100000 + i);
		}
		atomic_fetch_add(&total, 1);
	}
	return NULL;
}

/* Holds the shard for a moment, calls under it, and lets go, while the others want it too. */
static void *holder_main(void *arg)
{
	struct far_err err;
	for (int i = 0; i < 100; i++) {
		enum far_status status = far_shard_acquire(agent, 20 * FAR_SEC, &err);
		if (status == FAR_UNSUPPORTED)
			return NULL;
		CHECK_STATUS(status, FAR_OK, &err);
		CHECK(far_shard_acquire(agent, 0, &err) == FAR_INVALID);
		one_sync(i);
		one_message(i);
		far_shard_poll(agent);
		far_shard_release(agent);
		far_shard_release(agent);
	}
	CHECK(far_shard_poll(agent) == 0);
	return NULL;
}

static void run(enum far_progress progress, enum far_idle idle)
{
	static const struct far_function f = {"t::twice(int x) -> int", FAR_KIND_INLINE, handler_twice, NULL};
	static const struct far_msg_handler m = {1, FAR_KIND_INLINE, echo, NULL};
	struct far_opts opts = {
		.functions = &f, .functions_n = 1, .messages = &m, .messages_n = 1, .progress = progress, .idle = idle};
	pthread_t t[THREADS + 1];
	struct far_counters c;
	agent = check_join(&opts);
	atomic_store(&total, 0);
	if (check_rank() == 0) {
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&t[i], NULL, thread_main, (void *)(intptr_t)i) == 0);
		CHECK(pthread_create(&t[THREADS], NULL, holder_main, NULL) == 0);
		for (int i = 0; i <= THREADS; i++)
			CHECK(pthread_join(t[i], NULL) == 0);
		CHECK(atomic_load(&total) == THREADS * CALLS);
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0);
		CHECK(c.packets_dropped == 0);
	}
	check_leave(agent);
}

static int worker(int rank)
{
	run(FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE);
	return 0;
}

static int worker_own(int rank)
{
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE);
	return 0;
}

static int worker_busy(int rank)
{
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_BUSY);
	return 0;
}

int main(void)
{
	static spawn_main *const bodies[] = {worker, worker_own, worker_busy};
	for (int i = 0; i < 3; i++) {
		struct spawned s = spawn(2, bodies[i]);
		if (spawn_wait(&s, -1))
			return 1;
	}
	return 0;
}
