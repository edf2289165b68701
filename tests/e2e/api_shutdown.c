/* SPDX-License-Identifier: BSD-3-Clause */
/** Joining and leaving: together, one late, one not at all, again, twice, and two agents in one process.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "api_spawn.h"
#include "handlers.h"

#include <pthread.h>

static struct far_err err;

static const struct far_function table[] = {{"t::pid() -> int", FAR_KIND_INLINE, handler_pid, NULL}};
static const struct far_opts opts = {.functions = table, .functions_n = 1};

static int64_t query(struct far_agent *a, const char *to)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(a, to, "t::pid", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

/* Rank 0 wants to leave first. It serves until the others are done. */
static int serves_meanwhile(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank) {
		usleep(100000);
		for (int i = 0; i < 1000; i++)
			CHECK(query(a, "worker0") > 0);
	}
	check_leave(a);
	return 0;
}

/* A pending call of one's own is waited for. */
static int waits_for_own_calls(int rank)
{
	struct far_agent *a = check_join(&opts);
	struct far_future *f[100];
	struct far_val out;
	if (rank == 0)
		for (int i = 0; i < 100; i++)
			CHECK_STATUS(far_rpc_async(a, "worker1", "t::pid", FAR_NOARGS, NULL, &f[i], &err), FAR_OK,
				     &err);
	check_leave(a);
	for (int i = 0; i < 100 && rank == 0; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
		far_future_free(f[i]);
	}
	return 0;
}

static int one_does_not_come(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 1) {
		sleep(3);
		_exit(0);
	}
	CHECK_STATUS(far_shutdown(a, FAR_SEC, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

static int again_and_again(int rank)
{
	for (int i = 0; i < 5; i++) {
		struct far_agent *a = check_join(&opts);
		CHECK(query(a, check_name(1 - rank)) != getpid());
		check_leave(a);
	}
	return 0;
}

static int twice(int rank)
{
	struct far_agent *a = check_join(&opts), *second = NULL;
	CHECK_STATUS(check_init(check_name(rank), FAR_RANK_ENV, FAR_WORLD_ENV, NULL, &second, &err),
		     FAR_ALREADY_INITIALIZED, &err);
	CHECK_TEXT(&err, "already initialized");
	CHECK(!second);
	CHECK(query(a, check_name(1 - rank)) != getpid());
	check_leave(a);
	CHECK_STATUS(far_shutdown(NULL, 0, &err), FAR_SHUTDOWN, &err);
	CHECK_STATUS(far_shutdown_local(NULL, &err), FAR_SHUTDOWN, &err);
	return 0;
}

/* One leaves without a word: its own pending calls fail, the other sees a lost peer. */
static int locally(int rank)
{
	struct far_agent *a = check_join(&opts);
	if (rank == 1) {
		query(a, "worker0");
		CHECK_STATUS(far_shutdown_local(a, &err), FAR_OK, &err);
		return 0;
	}
	enum far_status status;
	while ((status = far_rpc_sync(a, "worker1", "t::pid", FAR_NOARGS, NULL, NULL, &err)) == FAR_OK)
		;
	CHECK_STATUS(status, FAR_PEER_LOST, &err);
	status = far_shutdown(a, 10 * FAR_SEC, &err);
	CHECK_STATUS(status, FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker1");
	return 0;
}

static int cannot_join(int rank)
{
	struct far_agent *a = NULL;
	struct far_opts o = {.init_timeout_ns = FAR_SEC};
	alarm(HANG_GUARD_S);
	/* Nobody else comes. */
	spawn_setenv("WORLD_SIZE", 2);
	CHECK_STATUS(check_init("worker0", FAR_RANK_ENV, FAR_WORLD_ENV, &o, &a, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "rank 1");
	CHECK_STATUS(check_init("no spaces", 0, 1, NULL, &a, &err), FAR_INVALID, &err);
	CHECK_STATUS(check_init(NULL, 0, 1, NULL, &a, &err), FAR_INVALID, &err);
	CHECK_STATUS(check_init("worker0", 1, 1, NULL, &a, &err), FAR_INVALID, &err);
	o = (struct far_opts){.key_file = "/nowhere"};
	CHECK_STATUS(check_init("worker0", 0, 1, &o, &a, &err), FAR_UNREACHABLE, &err);
	CHECK_TEXT(&err, "/nowhere");
	o = (struct far_opts){.nic = "carrier-pigeon"};
	CHECK_STATUS(check_init("worker0", 0, 1, &o, &a, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "carrier-pigeon");
	o = (struct far_opts){.shards = FAR_SHARDS_MAX + 1};
	CHECK_STATUS(check_init("worker0", 0, 1, &o, &a, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "[1, 16]");
	struct far_function bad = {"f(", FAR_KIND_INLINE, handler_pid, NULL};
	o = (struct far_opts){.functions = &bad, .functions_n = 1};
	CHECK_STATUS(check_init("worker0", 0, 1, &o, &a, &err), FAR_INVALID, &err);
	CHECK(!a);
	return 0;
}

/* ---- two agents in one process ---- */

static int store_port;

static void *member_main(void *arg)
{
	int rank = (int)(intptr_t)arg;
	char url[64];
	struct far_opts o = opts;
	struct far_agent *a;
	struct far_err e;
	struct far_val out;
	snprintf(url, sizeof url, "tcp://127.0.0.1:%d", store_port);
	o.init_method = url;
	CHECK_STATUS(check_init(check_name(rank), rank, 2, &o, &a, &e), FAR_OK, &e);
	for (int i = 0; i < 2000; i++) {
		CHECK_STATUS(
			far_rpc_sync(a, rank ? "worker0" : "worker1", "far::add", FAR_ARGS(i, rank), NULL, &out, &e),
			FAR_OK, &e);
		CHECK(out.u.i == i + rank);
	}
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &e), FAR_OK, &e);
	return NULL;
}

static int two_in_one(int rank)
{
	pthread_t t[2];
	alarm(HANG_GUARD_S);
	store_port = atoi(getenv("MASTER_PORT"));
	for (intptr_t i = 0; i < 2; i++)
		CHECK(pthread_create(&t[i], NULL, member_main, (void *)i) == 0);
	for (int i = 0; i < 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	return 0;
}

int main(void)
{
	static const struct {
		const char *name;
		int world;
		spawn_main *body;
	} runs[] = {{"serves meanwhile", 3, serves_meanwhile},
		    {"waits for own calls", 2, waits_for_own_calls},
		    {"one does not come", 3, one_does_not_come},
		    {"again and again", 2, again_and_again},
		    {"twice", 2, twice},
		    {"locally", 2, locally},
		    {"cannot join", 1, cannot_join},
		    {"two in one", 1, two_in_one}};
	int bad = 0;
	for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
		struct spawned s = spawn(runs[i].world, runs[i].body);
		int failed = spawn_wait(&s, -1);
		if (failed)
			fprintf(stderr, "%s: failed\n", runs[i].name);
		bad |= failed;
	}
	return bad;
}
