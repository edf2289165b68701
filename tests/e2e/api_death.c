/* SPDX-License-Identifier: BSD-3-Clause */
/** A worker dies of SIGKILL. Its peers' calls end, and so do they.
 * Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"
#include "handlers.h"

#include <stdatomic.h>

static struct far_agent *agent;
static struct far_err err;

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static struct far_deferred *kept; /* as long as this worker runs */
	return far_defer(req, &kept);
}

static void keep_message(struct far_req *req, const void *data, size_t len, void *user)
{
	static struct far_deferred *kept;
	CHECK(far_defer(req, &kept) == FAR_OK);
}

static _Atomic bool ready;

static enum far_status set_ready(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&ready, true);
	return far_return(req, NULL);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	CHECK(status == FAR_PEER_LOST && e && e->executed == FAR_EXECUTED_MAYBE);
	atomic_fetch_add((_Atomic int *)user, 1);
}

static int worker(int rank)
{
	static const struct far_function table[] = {
		{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
		{"t::die() -> none", FAR_KIND_INLINE, handler_die, NULL},
		{"t::ready() -> none", FAR_KIND_INLINE, set_ready, NULL},
	};
	static const struct far_msg_handler message = {9, FAR_KIND_INLINE, keep_message, NULL};
	struct far_opts opts = {.functions = table, .functions_n = 3, .messages = &message, .messages_n = 1};
	struct far_future *f[10];
	struct far_worker_info info;
	_Atomic int done = 0;
	agent = check_join(&opts);
	if (rank == 2)
		pause();
	for (int i = 0; i < 10; i++)
		CHECK_STATUS(far_rpc_async(agent, "worker2", "t::keep", FAR_NOARGS, NULL, &f[i], &err), FAR_OK, &err);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){2, -1}, 9, "x", 1, NULL, on_done, &done, &err), FAR_OK, &err);
	CHECK_STATUS(far_msg_send(agent, (struct far_to){2, -1}, 9, "x", 1, NULL, on_done, &done, &err), FAR_OK, &err);
	if (rank == 0) {
		while (!atomic_load(&ready)) /* worker 1 has pending calls too */
			usleep(1000);
		CHECK_STATUS(far_rpc_sync(agent, "worker2", "t::die", FAR_NOARGS, NULL, NULL, &err), FAR_PEER_LOST,
			     &err);
		CHECK(err.executed == FAR_EXECUTED_MAYBE);
		CHECK(err.text[0]);
	} else {
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::ready", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	}
	for (int i = 0; i < 10; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed != FAR_EXECUTED_YES);
		CHECK(strcmp(err.origin, "worker2") == 0);
		far_future_free(f[i]);
	}
	while (done < 2)
		usleep(1000);
	/* From now on at once, and certainly not run. */
	enum far_status status;
	while ((status = far_rpc_sync(agent, "worker2", "t::keep", FAR_NOARGS, NULL, NULL, &err)) == FAR_PEER_LOST &&
	       err.executed != FAR_EXECUTED_NO)
		;
	CHECK_STATUS(status, FAR_PEER_LOST, &err);
	CHECK(strcmp(err.origin, "worker2") == 0);
	CHECK(far_worker_by_name(agent, "worker2", &info, &err) == FAR_OK);
	CHECK(!info.alive);
	/* The living go on. */
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(agent, rank ? "worker0" : "worker1", "far::add", FAR_ARGS(1, 2), NULL, &out, &err),
		     FAR_OK, &err);
	CHECK(out.u.i == 3);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker2");
	return 0;
}

/* At the second request both have joined. The first is not answered either. */
static enum far_status die_second(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static struct far_deferred *kept;
	if (kept)
		return handler_die(req, args, n, user);
	return far_defer(req, &kept);
}

/* Rank 0 dies, and the store with it. */
static int headless(int rank)
{
	static const struct far_function table[] = {{"t::die() -> none", FAR_KIND_INLINE, die_second, NULL}};
	struct far_opts opts = {.functions = table, .functions_n = 1};
	agent = check_join(&opts);
	if (rank == 0)
		pause();
	CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::die", FAR_NOARGS, NULL, NULL, &err), FAR_PEER_LOST, &err);
	struct far_val out;
	enum far_status status =
		far_rpc_sync(agent, rank == 1 ? "worker2" : "worker1", "far::mul", FAR_ARGS(6, 7), NULL, &out, &err);
	/* The other may have left already. */
	CHECK(status == FAR_OK ? out.u.i == 42 : status == FAR_PEER_LOST);
	status = far_shutdown(agent, 5 * FAR_SEC, &err);
	CHECK(status == FAR_PEER_LOST || status == FAR_TIMEOUT);
	CHECK_TEXT(&err, "rank 0");
	return 0;
}

int main(void)
{
	struct spawned s = spawn(3, worker);
	if (spawn_wait(&s, 2))
		return 1;
	s = spawn(3, headless);
	return spawn_wait(&s, 0);
}
