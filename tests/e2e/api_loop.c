/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An agent in an event loop (FAR_PROGRESS_CALLER): far_agent_fd(), far_agent_poll(). A wake-up that is lost leaves a
 * call unanswered, and the loop asleep, until its deadline.
 * Main thread of each process; handlers on shard threads; threads that it starts.
 */
#include "api_spawn.h"
#include "loop.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>

enum { CALLS = 3000, IDLE_MS = 50, QUIET_TRIES = 1000 };

static struct far_err err;
static struct far_agent *agent;
static pid_t loop_thread; /* 0: handlers run on any */
static bool quit;
static int ended;

static void check_thread(void)
{
	CHECK(!loop_thread || loop_thread == (pid_t)syscall(SYS_gettid));
	CHECK(far_agent_poll(agent) == 0); /* no poll within a poll */
}

static enum far_status next(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	check_thread();
	return far_return_int(req, args[0].u.i + 1);
}

static enum far_status stop(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	check_thread();
	quit = true;
	return far_return_none(req);
}

static enum far_status blocks(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	usleep(1000);
	return far_return_int(req, args[0].u.i + 1);
}

/* Answers after a call of its own, for which its fiber waits. */
static enum far_status waits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out;
	enum far_status status =
		far_rpc_sync_to(far_req_agent(req), far_req_from(req), "t::next", args, 1, NULL, &out, NULL);
	return status ? status : far_return(req, &out);
}

/* Answers nobody until another process continues this one. */
static enum far_status freeze(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	raise(SIGSTOP);
	return far_return_none(req);
}

static enum far_status pid(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return_int(req, getpid());
}

static const struct far_function table[] = {{"t::next(int i) -> int", FAR_KIND_INLINE, next, NULL, 0},
					    {"t::stop() -> none", FAR_KIND_INLINE, stop, NULL, 0},
					    {"t::blocks(int i) -> int", FAR_KIND_BLOCKING, blocks, NULL, 0},
					    {"t::waits(int i) -> int", FAR_KIND_FIBER, waits, NULL, 0},
					    {"t::freeze() -> none", FAR_KIND_INLINE, freeze, NULL, 0},
					    {"t::pid() -> int", FAR_KIND_INLINE, pid, NULL, 0}};
static const struct far_opts plain = {.functions = table, .functions_n = 6};
static const struct far_opts in_loop = {.functions = table, .functions_n = 6, .progress = FAR_PROGRESS_CALLER};
static const struct far_opts in_loop_shards = {
	.functions = table, .functions_n = 6, .progress = FAR_PROGRESS_CALLER, .shards = 3};

static bool poll_once(void *ctx)
{
	far_agent_poll(agent);
	return !quit;
}

static void loop(void)
{
	CHECK(loop_run(far_agent_fd(agent), poll_once, NULL, 0));
}

static void call_next(const char *to, const char *function, int64_t i)
{
	struct far_val out;
	CHECK_STATUS(far_rpc_sync(agent, to, function, FAR_ARGS(i), NULL, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == i + 1);
}

/* Handlers of each kind; between some of the calls both ends sleep. */
static void be_called(int rank, const struct far_opts *opts)
{
	agent = check_join(rank ? &plain : opts);
	if (rank == 0) {
		loop_thread = (pid_t)syscall(SYS_gettid);
		loop();
	}
	for (int i = 0; i < CALLS && rank; i++) {
		call_next("worker0", i % 50 == 1 ? "t::blocks" : i % 3 ? "t::next" : "t::waits", i);
		if (i % 50 == 0)
			usleep(1000);
	}
	if (rank)
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::stop", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
}

static int served(int rank)
{
	be_called(rank, &in_loop);
	check_leave(agent);
	return 0;
}

static int served_by_shards(int rank)
{
	be_called(rank, &in_loop_shards);
	check_leave(agent);
	return 0;
}

/* A thread that waits takes the shard from the loop, again and again, while another worker calls. */
static void *call_beside(void *arg)
{
	for (int i = 0; i < CALLS; i++) {
		call_next("worker1", i % 3 ? "t::next" : "t::waits", i);
		if (i % 50 == 0)
			usleep(500);
	}
	return NULL;
}

static int beside_threads(int rank)
{
	pthread_t threads[2];
	agent = check_join(rank ? &plain : &in_loop);
	for (int i = 0; i < 2; i++)
		CHECK(rank || pthread_create(&threads[i], NULL, call_beside, NULL) == 0);
	for (int i = 0; i < CALLS && rank; i++) {
		call_next("worker0", "t::next", i);
		if (i % 50 == 0)
			usleep(500);
	}
	if (rank)
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::stop", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	else
		loop();
	for (int i = 0; i < 2; i++)
		CHECK(rank || pthread_join(threads[i], NULL) == 0);
	check_leave(agent);
	return 0;
}

/* Calls of the loop itself: each completion starts the next call. */
static void on_done(struct far_future *f, void *user)
{
	struct far_val out;
	CHECK_STATUS(far_future_value(f, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == ++ended && loop_thread == (pid_t)syscall(SYS_gettid));
	far_future_free(f);
	quit = ended == CALLS;
	if (quit)
		return;
	struct far_future *following;
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::next", FAR_ARGS(ended), NULL, &following, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_on_done(following, on_done, NULL, &err), FAR_OK, &err);
}

static void on_timeout(struct far_future *f, void *user)
{
	CHECK_STATUS(far_future_value(f, NULL, &err), FAR_TIMEOUT, &err);
	far_future_free(f);
	quit = true;
}

/* The descriptor becomes quiet once there is nothing to do: with a descriptor that stays readable it never does. */
static void check_quiet(void)
{
	int tries = 0;
	quit = false;
	while (loop_run(far_agent_fd(agent), poll_once, NULL, IDLE_MS))
		CHECK(++tries < QUIET_TRIES);
}

static void on_four(struct far_future *f, void *user)
{
	struct far_val out;
	CHECK_STATUS(far_future_value(f, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == 4 && loop_thread == (pid_t)syscall(SYS_gettid));
	far_future_free(f);
	quit = true;
}

static void on_confirmed(struct far_future *f, void *user)
{
	CHECK_STATUS(far_future_value(f, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	quit = true;
}

/* A reference to a value of its own, and to one of worker 1: confirmed, used and freed by the loop alone. */
static void references(void)
{
	const struct far_val three = far_int(3);
	struct far_future *f;
	struct far_rref *r[2];
	CHECK_STATUS(far_rref_of(agent, &three, &r[0], &err), FAR_OK, &err);
	CHECK_STATUS(far_remote(agent, "worker1", "far::identity", &three, 1, NULL, &r[1], &err), FAR_OK, &err);
	for (int i = 0; i < 2; i++) {
		quit = false;
		CHECK_STATUS(far_rref_future(r[i], &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_on_done(f, on_confirmed, NULL, &err), FAR_OK, &err);
		loop();
		CHECK(far_rref_confirmed_by_owner(r[i]) && far_rref_is_owner(r[i]) == (i == 0));
		quit = false;
		CHECK_STATUS(far_rref_call_async(r[i], "t::next", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_on_done(f, on_four, NULL, &err), FAR_OK, &err);
		loop();
		far_rref_free(r[i]);
	}
	check_quiet();
	struct far_rref_counts counts;
	far_rref_counts_read(agent, &counts);
	CHECK(!counts.owned && !counts.held && !counts.pending);
}

static int calls(int rank)
{
	const struct far_call_opts soon = {.timeout_ns = 20 * FAR_MS};
	struct far_future *f;
	struct far_val out;
	agent = check_join(rank ? &plain : &in_loop);
	if (rank) {
		CHECK(far_agent_fd(agent) == -1 && far_agent_poll(agent) == 0);
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
		check_leave(agent);
		return 0;
	}
	loop_thread = (pid_t)syscall(SYS_gettid);
	check_quiet();
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::next", FAR_ARGS(0), NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_on_done(f, on_done, NULL, &err), FAR_OK, &err);
	loop();
	CHECK(ended == CALLS);
	references();
	/* Only the timer ends this one. */
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::pid", FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	check_quiet();
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::freeze", FAR_NOARGS, &soon, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_on_done(f, on_timeout, NULL, &err), FAR_OK, &err);
	loop();
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::next", FAR_ARGS(1), &soon, NULL, &err), FAR_TIMEOUT, &err);
	CHECK_TEXT(&err, "no answer to t::next within the call's time-out of 20 ms");
	CHECK(kill((pid_t)out.u.i, SIGCONT) == 0);
	check_quiet();
	/* Waiting works as anywhere, also while this thread holds the shard. */
	call_next("worker1", "t::waits", 4);
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	CHECK(far_agent_poll(agent) == 0);
	call_next("worker1", "t::next", 5);
	far_shard_release(agent);
	check_leave(agent);
	return 0;
}

/* Both serve without a loop of their own, one polling in far_serve(), the other in far_shutdown(). */
static int without_loop(int rank)
{
	agent = check_join(rank == 2 ? &plain : &in_loop);
	for (int i = 0; i < 100 && rank == 2; i++) {
		call_next("worker0", "t::waits", i);
		call_next("worker1", "t::blocks", i);
	}
	if (rank == 0)
		CHECK_STATUS(far_serve(agent, 0, &err), FAR_OK, &err);
	check_leave(agent);
	return 0;
}

static int refused(int rank)
{
	struct far_opts opts = in_loop;
	opts.idle = FAR_IDLE_BUSY;
	CHECK_STATUS(check_init("worker0", 0, 1, &opts, &agent, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "FAR_PROGRESS_CALLER");
	CHECK(far_agent_fd(NULL) == -1 && far_agent_poll(NULL) == 0);
	agent = check_join(&in_loop);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	static const struct {
		const char *name;
		int world;
		spawn_main *body;
	} runs[] = {
		{"served", 2, served}, {"served by shards", 2, served_by_shards}, {"beside threads", 2, beside_threads},
		{"calls", 2, calls},   {"without a loop", 3, without_loop},       {"refused", 1, refused}};
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
