/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * References when workers end: what a dead one held is released, references to its values say so; what is left at the
 * shutdown is named with its holder, and handles outlive the agent.
 * Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "handlers.h"

#include <time.h>

static struct far_err err;

static struct far_rref *kept; /* by `keep`, beyond its handler */

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	kept = far_rref_ref(args[0].u.rref);
	return far_return(req, NULL);
}

static enum far_status count_forks(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_rref_counts c;
	far_rref_counts_read(far_req_agent(req), &c);
	struct far_val v = far_int((int64_t)c.forks);
	return far_return(req, &v);
}

static const struct far_function functions[] = {
	{"d::echo(Any x) -> Any", FAR_KIND_INLINE, handler_echo, NULL},
	{"d::keep(rref r) -> none", FAR_KIND_INLINE, keep, NULL},
	{"d::never() -> int", FAR_KIND_FIBER, handler_never, NULL},
	{"d::die() -> none", FAR_KIND_INLINE, handler_die, NULL},
	{"d::fetch(rref r) -> Any", FAR_KIND_FIBER, handler_fetch, NULL},
	{"d::forks() -> int", FAR_KIND_INLINE, count_forks, NULL},
};
static const struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof functions[0]};

static struct far_rref *make(struct far_agent *agent, int where, const char *fn, const struct far_val *args, size_t n)
{
	struct far_rref *r = NULL;
	CHECK_STATUS(far_remote_to(agent, (struct far_to){where, -1}, fn, args, n, NULL, &r, &err), FAR_OK, &err);
	return r;
}

static void wait_for_forks(struct far_agent *agent, uint64_t owned, uint64_t forks)
{
	struct far_rref_counts c;
	for (;;) { /* the hang guard ends it */
		struct timespec nap = {0, 1000000};
		far_rref_counts_read(agent, &c);
		if (c.owned == owned && c.forks == forks && !c.pending)
			return;
		nanosleep(&nap, NULL);
	}
}

/* Rank 2 makes a value on 1, gets another to keep, has a third being made here when it dies. */
static void before_death(struct far_agent *agent, int rank)
{
	struct far_val none;
	if (rank != 2)
		return;
	struct far_rref *there = make(agent, 1, "d::echo", FAR_ARGS(1));
	CHECK_STATUS(far_rref_wait(there, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){0, -1}, "d::keep", FAR_ARGS(there), NULL, &none, &err),
		     FAR_OK, &err);
}

static int dying(int rank)
{
	struct far_agent *agent = check_join(&opts);
	struct far_val v;
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	before_death(agent, rank);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	if (rank == 2) {
		for (;;)
			pause();
	}
	if (rank == 1) {                     /* 2 has made it and 0 was given it */
		wait_for_forks(agent, 0, 0); /* its maker is dead, and 0 has given it back */
	} else {
		struct far_rref *on_dead = make(agent, 2, "d::echo", FAR_ARGS(5));
		struct far_rref *being_made = make(agent, 2, "d::never", FAR_NOARGS);
		CHECK_STATUS(far_rref_wait(on_dead, 0, &err), FAR_OK, &err);
		struct far_future *waits;
		CHECK_STATUS(far_rref_to_here_async(being_made, FAR_FOREVER, &waits, &err), FAR_OK, &err);
		CHECK_STATUS(far_rpc_sync_to(agent, (struct far_to){2, -1}, "d::die", FAR_NOARGS, NULL, &v, &err),
			     FAR_PEER_LOST, &err);
		CHECK_STATUS(far_future_wait(waits, 0, &v, &err), FAR_PEER_LOST, &err);
		far_future_free(waits);
		CHECK_STATUS(far_rref_wait(being_made, 0, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed == FAR_EXECUTED_MAYBE);
		CHECK_STATUS(far_rref_to_here(on_dead, 0, &v, &err), FAR_PEER_LOST, &err);
		CHECK_STATUS(
			far_rpc_sync_to(agent, (struct far_to){1, -1}, "d::fetch", FAR_ARGS(on_dead), NULL, &v, &err),
			FAR_PEER_LOST, &err);
		/* A value that the dead worker had made stays while it is held. */
		CHECK(kept);
		CHECK_STATUS(far_rref_to_here(kept, 0, &v, &err), FAR_OK, &err);
		CHECK(v.u.i == 1);
		far_rref_free(on_dead);
		far_rref_free(being_made);
		do {
			CHECK_STATUS(
				far_rpc_sync_to(agent, (struct far_to){1, -1}, "d::forks", FAR_NOARGS, NULL, &v, &err),
				FAR_OK, &err);
		} while (v.u.i != 1); /* ours: the dead one's is gone */
		far_rref_free(kept);
		struct far_rref_counts c;
		do
			far_rref_counts_read(agent, &c);
		while (c.held || c.pending);
	}
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	return 0;
}

/* ---- leaks ---- */

static void expect_reported(const char *path, const char *a, const char *b)
{
	char text[4096] = {0};
	FILE *f = fopen(path, "r");
	CHECK(f);
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	unlink(path);
	if (!n || !strstr(text, a) || !strstr(text, b)) {
		fprintf(stdout, "\"%s\" lacks \"%s\" or \"%s\"\n", text, a, b);
		fflush(stdout);
		_exit(1);
	}
}

static int leaking(int rank)
{
	char path[] = "/tmp/farcall-rref-XXXXXX", name[FAR_RREF_TEXT_MAX] = "", part[160];
	struct far_agent *agent = check_join(&opts);
	struct far_rref *r = NULL;
	struct far_val v;
	int fd = mkstemp(path);
	CHECK(fd >= 0);
	if (rank == 0) {
		r = make(agent, 1, "d::echo", FAR_ARGS("kept too long"));
		CHECK_STATUS(far_rref_wait(r, 0, &err), FAR_OK, &err);
		far_rref_text(r, name, sizeof name);
	}
	fflush(stderr);
	CHECK(dup2(fd, STDERR_FILENO) >= 0);
	enum far_status status = far_shutdown(agent, FAR_FOREVER, &err);
	CHECK(status == FAR_OK);
	if (rank == 0) {
		snprintf(part, sizeof part, "still holds %s of worker \"worker1\"", name);
		expect_reported(path, "worker \"worker0\"", part);
		CHECK(far_rref_to_here(r, 0, &v, &err) == FAR_SHUTDOWN);
		CHECK(far_rref_local_value(r, 0, &v, &err) == FAR_SHUTDOWN);
		CHECK(strcmp(far_rref_owner_name(r), "worker1") == 0 && !far_rref_is_owner(r));
		far_rref_free(r);
	} else {
		expect_reported(path, "RRef(created_on=0", "is still held by worker \"worker0\" (rank 0, shard 0)");
	}
	return 0;
}

int main(void)
{
	struct spawned s = spawn(3, dying);
	int bad = spawn_wait(&s, 2);
	s = spawn(2, leaking);
	return bad | spawn_wait(&s, -1);
}
