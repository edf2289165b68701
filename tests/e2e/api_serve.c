/* SPDX-License-Identifier: BSD-3-Clause */
/** Serving: until the group ends, far_stop(), a signal or a time limit; restarts and losses meanwhile; own references.
 * Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"
#include "handlers.h"

#include <stdatomic.h>
#include <sys/mman.h>

static struct far_err err;
static _Atomic int *joins; /* of ranks 0 and 2 where a worker dies, of rank 2 in the group with a restart */

static enum far_status stop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val none = far_none();
	far_stop(far_req_agent(req));
	return far_return(req, &none);
}

static enum far_status incarnation(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(joins));
	return far_return(req, &v);
}

static bool default_action(int signal)
{
	struct sigaction action;
	CHECK(sigaction(signal, NULL, &action) == 0);
	return action.sa_handler == SIG_DFL;
}

static enum far_status serves(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_bool(!default_action(SIGTERM) && !default_action(SIGINT));
	return far_return(req, &v);
}

static const struct far_function table[] = {{"t::pid() -> int", FAR_KIND_INLINE, handler_pid, NULL},
					    {"t::stop() -> none", FAR_KIND_INLINE, stop, NULL},
					    {"t::incarnation() -> int", FAR_KIND_INLINE, incarnation, NULL},
					    {"t::serves() -> bool", FAR_KIND_INLINE, serves, NULL}};
static const struct far_opts opts = {.functions = table, .functions_n = 4, .leaks = FAR_LEAKS_FAIL};

static int64_t query(struct far_agent *a, const char *to, const char *function)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(a, to, function, FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

static void serve(struct far_agent *a)
{
	CHECK_STATUS(far_serve(a, 0, &err), FAR_OK, &err);
}

/* Rank 1 works, the others serve until it leaves. A server's values, to which it holds a reference, are no leaks. */
static int until_the_end(int rank)
{
	struct far_agent *a = check_join(&opts);
	struct far_rref *own = NULL;
	if (rank == 1) {
		usleep(100000);
		for (int i = 0; i < 1000; i++)
			CHECK(query(a, check_name(i % 2 * 2), "t::pid") > 0);
	} else {
		CHECK_STATUS(far_remote(a, check_name(rank), "far::identity", FAR_ARGS(1), NULL, &own, &err), FAR_OK,
			     &err);
		serve(a);
	}
	check_leave(a);
	far_rref_free(own);
	return 0;
}

/* Without far_serve() the same reference is one. */
static int own_is_a_leak(int rank)
{
	struct far_agent *a = check_join(&opts);
	struct far_rref *own;
	CHECK_STATUS(far_remote(a, check_name(rank), "far::identity", FAR_ARGS(1), NULL, &own, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &err), FAR_LEAKED, &err);
	far_rref_free(own);
	return 0;
}

/* The agent works as before when far_serve() has returned. */
static int until_stopped(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 0) {
		query(a, "worker1", "t::stop");
		query(a, "worker2", "t::stop");
	} else {
		serve(a);
		CHECK(query(a, "worker0", "t::pid") > 0);
	}
	check_leave(a);
	return 0;
}

static int by_a_signal(int rank)
{
	struct far_agent *a = check_join(&opts);
	struct far_val out = far_bool(false);
	for (int i = 1; i < 3 && rank == 0; i++) {
		do
			CHECK_STATUS(far_rpc_sync(a, check_name(i), "t::serves", FAR_NOARGS, NULL, &out, &err), FAR_OK,
				     &err);
		while (!out.u.b);
		CHECK(kill((pid_t)query(a, check_name(i), "t::pid"), i == 1 ? SIGTERM : SIGINT) == 0);
	}
	if (rank) {
		serve(a);
		CHECK(default_action(SIGTERM) && default_action(SIGINT));
	}
	check_leave(a);
	return 0;
}

static void on_signal(int number)
{
	(void)number;
}

/* An action of the application stays, and does not end far_serve(). A limit does; far_stop() also before. */
static int limits(int rank)
{
	struct far_agent *a = check_join(&opts);
	struct sigaction own = {.sa_handler = on_signal}, now;
	CHECK(sigaction(SIGTERM, &own, NULL) == 0);
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_serve(NULL, 0, &err), FAR_SHUTDOWN, &err);
	CHECK_STATUS(far_serve(a, FAR_MS, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "far_serve");
	CHECK(raise(SIGTERM) == 0 && sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == on_signal);
	CHECK_STATUS(far_serve(a, FAR_MS, &err), FAR_TIMEOUT, &err);
	CHECK(default_action(SIGINT));
	far_stop(a);
	serve(a);
	serve(a);
	check_leave(a);
	return 0;
}

/* All serve, so nobody ends the group, until one stops: then nobody has work. */
static int all_serve(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 2) {
		CHECK_STATUS(far_serve(a, 200 * FAR_MS, &err), FAR_TIMEOUT, &err);
		CHECK(query(a, "worker0", "t::pid") > 0 && query(a, "worker1", "t::pid") > 0);
	} else {
		serve(a);
	}
	check_leave(a);
	return 0;
}

/* The only worker with work dies: the servers end, and say so. */
static int worker_dies(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 1) {
		CHECK(query(a, "worker0", "t::pid") > 0 && query(a, "worker2", "t::pid") > 0);
		while (atomic_load(joins) < 2) /* they answer before their far_init() has ended, which would fail */
			usleep(1000);
		CHECK(kill(getpid(), SIGKILL) == 0);
	}
	atomic_fetch_add(joins, 1);
	serve(a);
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

/* Rank 2 is killed and started again while rank 0, which hosts the store, serves. Rank 1 has work all the time. */
static int with_restart(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 1) {
		while (far_rpc_sync(a, "worker2", "t::incarnation", FAR_NOARGS, NULL, NULL, &err) == FAR_OK)
			;
		CHECK_STATUS(err.status, FAR_PEER_LOST, &err);
		atomic_fetch_add(joins, 100); /* the parent starts it again */
		struct far_val out;
		while (far_rpc_sync(a, "worker2", "t::incarnation", FAR_NOARGS, NULL, &out, &err) != FAR_OK)
			usleep(1000);
		CHECK(out.u.i >= 101); /* the new incarnation counts itself about now */
		CHECK(query(a, "worker0", "t::pid") > 0);
	} else {
		if (rank == 2)
			atomic_fetch_add(joins, 1);
		serve(a);
	}
	check_leave(a);
	return 0;
}

static int restarts(void)
{
	int status;
	atomic_store(joins, 0);
	struct spawned s = spawn(3, with_restart);
	while (atomic_load(joins) < 1)
		usleep(500);
	usleep(50000); /* it serves */
	CHECK(kill(s.pids[2], SIGKILL) == 0 && waitpid(s.pids[2], &status, 0) == s.pids[2]);
	while (atomic_load(joins) < 100)
		usleep(500);
	s.pids[2] = spawn_one(&s, 2, -1, with_restart);
	return spawn_wait(&s, -1);
}

int main(void)
{
	static const struct {
		const char *name;
		int world, killed;
		spawn_main *body;
	} runs[] = {{"until the end", 3, -1, until_the_end},
		    {"own is a leak", 1, -1, own_is_a_leak},
		    {"until stopped", 3, -1, until_stopped},
		    {"by a signal", 3, -1, by_a_signal},
		    {"limits", 1, -1, limits},
		    {"all serve", 3, -1, all_serve},
		    {"worker dies", 3, 1, worker_dies}};
	int bad = 0;
	joins = mmap(NULL, sizeof *joins, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(joins != MAP_FAILED);
	/* A shell ignores SIGINT in what it starts in the background. */
	CHECK(signal(SIGINT, SIG_DFL) != SIG_ERR && signal(SIGTERM, SIG_DFL) != SIG_ERR);
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		struct spawned s = spawn(runs[i].world, runs[i].body);
		int failed = spawn_wait(&s, runs[i].killed);
		if (failed)
			fprintf(stderr, "%s: failed\n", runs[i].name);
		bad |= failed;
	}
	int failed = restarts();
	if (failed)
		fprintf(stderr, "restarts: failed\n");
	return bad || failed;
}
