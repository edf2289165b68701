/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Objects when workers end: those of a dead owner report it, also to the next incarnation; what a dead holder kept
 * is ended by its owner; a shutdown ends the rest, after the methods that are still parked in them.
 * Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "counter_class.h"
#include "handlers.h"

enum { WORLD = 3, OWNER = 2 };

static struct far_err err;

static const struct far_function functions[] = {{"d::die() -> none", FAR_KIND_INLINE, handler_die, NULL}};
static const struct far_opts opts = {
	.functions = functions, .functions_n = 1, .classes = counter_classes, .classes_n = COUNTER_CLASSES};

static struct far_rref *make(struct far_agent *agent, int where, int64_t start)
{
	struct far_rref *r = NULL;
	CHECK_STATUS(far_remote_to(agent, (struct far_to){where, -1}, "o::Counter", FAR_ARGS(start), NULL, &r, &err),
		     FAR_OK, &err);
	return r;
}

static void nap(void)
{
	struct timespec ms = {0, 1000000};
	nanosleep(&ms, NULL);
}

/* Calls that are parked, deferred and new. */
static void owner_dies(struct far_agent *agent, struct far_rref *r)
{
	static const char *const names[] = {"slow", "await", "get"};
	struct far_future *f[2];
	struct far_val v;
	const struct far_val long_time = far_int(1000000);
	for (int i = 0; i < 2; i++)
		CHECK_STATUS(far_rref_rpc_async(r, names[i], &long_time, !i, NULL, &f[i], &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){OWNER, -1}, "d::die", FAR_NOARGS, NULL, &v, &err),
		     FAR_PEER_LOST, &err);
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &v, &err), FAR_PEER_LOST, &err);
		far_future_free(f[i]);
	}
	CHECK_STATUS(far_rref_rpc_sync(r, "get", FAR_NOARGS, NULL, &v, &err), FAR_PEER_LOST, &err);
}

/* Another incarnation of the owner has objects of its own; this one was in the former. */
static void another_incarnation(struct far_agent *agent, struct far_rref *r, uint64_t former)
{
	struct far_worker_info info;
	struct far_val v;
	const char *type;
	do {
		nap();
		CHECK_STATUS(far_worker_by_rank(agent, OWNER, &info, &err), FAR_OK, &err);
	} while (!info.alive || info.incarnation == former); /* the hang guard ends it */
	enum far_status status;
	do { /* the shard hears of the next incarnation a moment after the members' table */
		struct far_rref *again = NULL;
		status = far_remote_to(agent, (struct far_to){OWNER, -1}, "o::Counter", FAR_ARGS(70), NULL, &again,
				       &err);
		if (!status)
			status = far_rref_rpc_sync(again, "get", FAR_NOARGS, NULL, &v, &err);
		far_rref_free(again);
	} while (status == FAR_PEER_LOST);
	CHECK_STATUS(status, FAR_OK, &err);
	CHECK(v.u.i == 70);
	CHECK_STATUS(far_rref_rpc_sync(r, "get", FAR_NOARGS, NULL, &v, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "former incarnation of worker \"worker2\"");
	CHECK_STATUS(far_rref_type(r, 0, &type, &err), FAR_PEER_LOST, &err);
	far_rref_free(r);
}

static int first_incarnation(int rank)
{
	struct far_agent *agent = check_join(&opts);
	struct far_worker_info info;
	struct far_rref *r = NULL;
	CHECK_STATUS(far_worker_by_rank(agent, OWNER, &info, &err), FAR_OK, &err);
	if (rank == 0) {
		r = make(agent, OWNER, 7);
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
	} else if (rank == OWNER) { /* it holds an object of 1 when it dies */
		CHECK_STATUS(far_rref_wait(make(agent, 1, 5), 0, &err), FAR_OK, &err);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	if (rank == 0) {
		owner_dies(agent, r);
		another_incarnation(agent, r, info.incarnation);
	} else if (rank == 1) {
		CHECK(atomic_load(&made) == 1);
		while (atomic_load(&ended) == 0)
			nap();
	} else {
		for (;;)
			pause();
	}
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	CHECK(atomic_load(&made) == atomic_load(&ended));
	return 0;
}

static int next_incarnation(int rank)
{
	struct far_agent *agent = check_join(&opts);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	CHECK(atomic_load(&made) >= 1 && atomic_load(&made) == atomic_load(&ended));
	return 0;
}

/* ---- the owner leaves by itself ---- */

/* Fibers and a thread are in the object's methods when its agent is stopped. */
static int stopped(int rank)
{
	struct far_agent *agent = check_join(&opts);
	const struct far_val long_time = far_int(1000000);
	struct far_future *f[2];
	struct far_rref *r = rank ? make(agent, 0, 1) : NULL;
	if (rank) {
		CHECK_STATUS(far_rref_rpc_async(r, "slow", &long_time, 1, NULL, &f[0], &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_rpc_async(r, "blocking", NULL, 0, NULL, &f[1], &err), FAR_OK, &err);
		CHECK_STATUS(far_rref_rpc_sync(r, "get", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	if (!rank) {
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		CHECK(atomic_load(&made) == 1 && atomic_load(&ended) == 1);
		return 0;
	}
	CHECK_STATUS(far_future_wait(f[0], 0, NULL, &err), FAR_PEER_LOST, &err);
	far_future_wait(f[1], 0, NULL, &err);
	for (int i = 0; i < 2; i++)
		far_future_free(f[i]);
	CHECK_STATUS(far_rref_rpc_sync(r, "get", FAR_NOARGS, NULL, NULL, &err), FAR_PEER_LOST, &err);
	far_rref_free(r);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	CHECK_STATUS(atomic_load(&made) == 0 ? FAR_OK : FAR_INVALID, FAR_OK, &err);
	return 0;
}

int main(void)
{
	struct spawned s = spawn(WORLD, first_incarnation);
	int status;
	CHECK(waitpid(s.pids[OWNER], &status, 0) == s.pids[OWNER]);
	CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	s.pids[OWNER] = spawn_one(&s, OWNER, -1, next_incarnation);
	int bad = spawn_wait(&s, -1);
	s = spawn(2, stopped);
	return bad | spawn_wait(&s, -1);
}
