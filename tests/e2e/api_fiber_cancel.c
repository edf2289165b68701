/* SPDX-License-Identifier: BSD-3-Clause */
/** Handlers that wait while nobody waits for them any more: deadlines, callers that die, agents that are shut down.
 * Main thread of each process; handlers on shard threads. */
#include "api_gate.h"
#include "handlers.h"

enum { CALLS = 20 };

static struct far_agent *agent;
static struct far_err err;
static const char *me;
static atomic_int started, cancelled;
static _Atomic bool let_go;
static const struct far_call_opts for_ever = {.timeout_ns = FAR_FOREVER};

/* ---- handlers: what they see goes to `cancelled` ---- */

/* A shutdown ends the call that is waited for, too. */
static void over(enum far_status status, const struct far_err *e)
{
	CHECK_STATUS(status, status == FAR_SHUTDOWN ? FAR_SHUTDOWN : FAR_CANCELLED, e);
	CHECK(e->executed == FAR_EXECUTED_MAYBE);
}

/* Waits for something that never comes; then every use reports it. */
static enum far_status parks(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_val out = {0};
	struct far_future *f;
	struct far_err e;
	atomic_fetch_add(&started, 1);
	if (args[0].u.b) {
		over(far_rpc_sync(a, me, "gate::wait", FAR_NOARGS, &for_ever, &out, &e), &e);
	} else {
		CHECK_STATUS(far_rpc_async(a, me, "gate::wait", FAR_NOARGS, &for_ever, &f, &e), FAR_OK, &e);
		enum far_status status;
		while ((status = far_future_wait(f, 10 * FAR_US, &out, &e)) == FAR_PENDING)
			;
		over(status, &e);
		over(far_future_wait(f, 0, &out, &e), &e);
		far_future_free(f);
	}
	CHECK(far_req_cancelled(req));
	CHECK_STATUS(far_rpc_sync(a, me, "far::add", FAR_ARGS(1, 1), &for_ever, &out, &e), FAR_CANCELLED, &e);
	CHECK(e.executed == FAR_EXECUTED_NO);
	atomic_fetch_add(&cancelled, 1);
	struct far_val v = far_int(1);
	CHECK(far_return(req, &v) == FAR_OK); /* to nobody */
	return FAR_OK;
}

/* Does not say for how long its own call may take: as long as its caller waits. */
static enum far_status inherits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	atomic_fetch_add(&started, 1);
	enum far_status status = far_rpc_sync(far_req_agent(req), me, "gate::wait", FAR_NOARGS, NULL, &out, &e);
	CHECK(status == FAR_CANCELLED || status == FAR_TIMEOUT || status == FAR_OK); /* all_over() opens the gate */
	/* An answer must not reach a caller that has not yet looked at its own deadline. */
	while (!far_req_cancelled(req))
		far_rpc_sync(far_req_agent(req), me, "far::add", FAR_ARGS(1, 1), &for_ever, &out, &e);
	atomic_fetch_add(&cancelled, 1);
	return status;
}

/* Tries again and again; the shard goes on. */
static enum far_status stubborn(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	atomic_fetch_add(&started, 1);
	while (!atomic_load(&let_go))
		far_rpc_sync(far_req_agent(req), me, "gate::wait", FAR_NOARGS, &for_ever, &out, &e);
	atomic_fetch_add(&cancelled, 1);
	return FAR_OK;
}

/* Its thread drives the shard, unless another does, and gives it back when the agent is shut down. */
static enum far_status sits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_val out = {0};
	struct far_err e;
	atomic_fetch_add(&started, 1);
	if (args[0].u.b)
		over(far_rpc_sync(a, me, "gate::wait", FAR_NOARGS, &for_ever, &out, &e), &e);
	else
		over(far_msg_call(a, (struct far_to){1, -1}, 1, NULL, 0, &for_ever, NULL, 0, NULL, &e), &e);
	CHECK(far_req_cancelled(req));
	/* Nobody drives any more but who has something to say. */
	CHECK_STATUS(far_rpc_sync(a, me, "far::add", FAR_ARGS(1, 1), &for_ever, &out, &e), FAR_SHUTDOWN, &e);
	atomic_fetch_add(&cancelled, 1);
	return FAR_OK;
}

static void gate_message(struct far_req *req, const void *data, size_t len, void *user)
{
	gate_wait(req, NULL, 0, user);
}

static enum far_status polls(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_fetch_add(&started, 1);
	while (!far_req_cancelled(req))
		usleep(100);
	atomic_fetch_add(&cancelled, 1);
	return FAR_OK;
}

static enum far_status seen(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load((atomic_int *)user));
	return far_return(req, &v);
}

static enum far_status lets_go(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&let_go, args[0].u.b);
	return far_return(req, NULL);
}

static void join(int rank)
{
	static const struct far_function functions[] = {
		{"t::parks(bool sync) -> int", FAR_KIND_FIBER, parks, NULL},
		{"t::inherits() -> int", FAR_KIND_FIBER, inherits, NULL},
		{"t::inherits_thread() -> int", FAR_KIND_BLOCKING, inherits, NULL},
		{"t::stubborn() -> int", FAR_KIND_FIBER, stubborn, NULL},
		{"t::polls() -> int", FAR_KIND_BLOCKING, polls, NULL},
		{"t::sits(bool sync) -> int", FAR_KIND_BLOCKING, sits, NULL},
		{"t::started() -> int", FAR_KIND_INLINE, seen, &started},
		{"t::seen() -> int", FAR_KIND_INLINE, seen, &cancelled},
		{"t::active() -> int", FAR_KIND_INLINE, handler_active, NULL},
		{"t::let_go(bool yes) -> none", FAR_KIND_INLINE, lets_go, NULL},
		GATE_FUNCTIONS,
	};
	static const struct far_msg_handler messages[] = {{1, FAR_KIND_INLINE, gate_message, NULL}};
	static const char *const names[] = {"worker0", "worker1", "worker2"};
	me = names[rank];
	agent = join_mode((struct far_opts){.functions = functions,
					    .functions_n = sizeof functions / sizeof *functions,
					    .messages = messages,
					    .messages_n = 1,
					    .blocking_threads = 2 * CALLS});
}

/* Until nothing is open at worker1, not even what its handlers left behind at the gate. Every handler that was started
 * has seen that it was cancelled. Returns how many there were. */
static int64_t all_over(void)
{
	while (query(agent, "worker1", "t::active", FAR_NOARGS)) {
		query(agent, "worker1", "gate::open", FAR_ARGS(0));
		usleep(500);
	}
	int64_t n = query(agent, "worker1", "t::started", FAR_NOARGS);
	CHECK(query(agent, "worker1", "t::seen", FAR_NOARGS) == n);
	return n;
}

static void await(const char *to, const char *fn, int64_t n)
{
	while (query(agent, to, fn, FAR_NOARGS) != n)
		usleep(500);
}

/* ---- deadlines ---- */

static void start(const char *to, const char *fn, const struct far_val *args, size_t n, uint64_t timeout,
		  struct far_future **f)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	for (int i = 0; i < CALLS; i++)
		CHECK_STATUS(far_rpc_async(agent, to, fn, args, n, &opts, &f[i], &err), FAR_OK, &err);
}

static void expect_all(struct far_future **f, enum far_status want)
{
	for (int i = 0; i < CALLS; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), want, &err);
		far_future_free(f[i]);
	}
}

static void let_them_go(bool yes)
{
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::let_go", FAR_ARGS(far_bool(yes)), NULL, NULL, &err), FAR_OK,
		     &err);
}

/* On a slow machine no handler may come to run within the first of the deadlines. */
static void deadline(const char *fn, const struct far_val *args, size_t n)
{
	int64_t before = all_over();
	uint64_t timeout = 20 * FAR_MS;
	do {
		struct far_future *f[CALLS];
		let_them_go(false);
		start("worker1", fn, args, n, timeout, f);
		expect_all(f, FAR_TIMEOUT);
		let_them_go(true);
		timeout *= 2;
	} while (all_over() == before);
}

static int deadlines(int rank)
{
	join(rank);
	if (rank == 0) {
		deadline("t::parks", FAR_ARGS(far_bool(true)));
		deadline("t::parks", FAR_ARGS(far_bool(false)));
		deadline("t::inherits", FAR_NOARGS);
		deadline("t::inherits_thread", FAR_NOARGS);
		deadline("t::polls", FAR_NOARGS);
		deadline("t::stubborn", FAR_NOARGS);
	}
	check_leave(agent);
	return 0;
}

/* ---- a caller dies ---- */

static int dies(int rank)
{
	join(rank);
	if (rank == 2) {
		struct far_future *f[CALLS], *g[CALLS], *h[CALLS];
		start("worker1", "t::parks", FAR_ARGS(far_bool(true)), FAR_FOREVER, f);
		start("worker1", "t::parks", FAR_ARGS(far_bool(false)), FAR_FOREVER, g);
		start("worker1", "t::polls", FAR_NOARGS, FAR_FOREVER, h);
		gate_await(agent, "worker1", 2 * CALLS);
		await("worker1", "t::started", 3 * CALLS);
		kill(getpid(), SIGKILL);
	}
	if (rank == 1) {
		while (atomic_load(&cancelled) != 3 * CALLS)
			usleep(500);
		CHECK(query(agent, "worker1", "gate::open", FAR_ARGS(0)) == 2 * CALLS);
		none_active(agent);
		CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::let_go", FAR_ARGS(far_bool(true)), NULL, NULL, &err),
			     FAR_OK, &err);
	}
	while (rank == 0 && !atomic_load(&let_go))
		usleep(500);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	return 0;
}

/* ---- agents that are shut down ---- */

static int threads_leave(int rank)
{
	struct far_future *f[CALLS], *g[CALLS];
	join(rank);
	if (rank == 1) {
		while (!atomic_load(&let_go))
			usleep(500);
		char text[4096] = {0};
		FILE *said = tmpfile();
		int before = dup(STDERR_FILENO);
		CHECK(said && before >= 0 && dup2(fileno(said), STDERR_FILENO) == STDERR_FILENO);
		enum far_status status = far_shutdown_local(agent, &err);
		CHECK(dup2(before, STDERR_FILENO) == STDERR_FILENO);
		CHECK_STATUS(status, FAR_OK, &err);
		CHECK(atomic_load(&cancelled) == 2 * CALLS);
		rewind(said);
		CHECK(fread(text, 1, sizeof text - 1, said) < sizeof text);
		CHECK(!strstr(text, "still holds the shard"));
		return 0;
	}
	start("worker1", "t::sits", FAR_ARGS(far_bool(true)), FAR_FOREVER, f);
	start("worker1", "t::sits", FAR_ARGS(far_bool(false)), FAR_FOREVER, g);
	gate_await(agent, "worker1", 2 * CALLS);
	(void)far_rpc_sync(agent, "worker1", "t::let_go", FAR_ARGS(far_bool(true)), NULL, NULL, &err);
	expect_all(f, FAR_PEER_LOST);
	expect_all(g, FAR_PEER_LOST);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

/* Ends when its agent does. */
static int callee_leaves(int rank)
{
	struct far_future *f[CALLS], *g[CALLS], *h[CALLS];
	join(rank);
	if (rank == 1) {
		while (!atomic_load(&let_go))
			usleep(500);
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		CHECK(atomic_load(&cancelled) == 3 * CALLS);
		return 0;
	}
	start("worker1", "t::parks", FAR_ARGS(far_bool(true)), FAR_FOREVER, f);
	start("worker1", "t::parks", FAR_ARGS(far_bool(false)), FAR_FOREVER, g);
	start("worker1", "t::polls", FAR_NOARGS, FAR_FOREVER, h);
	gate_await(agent, "worker1", 2 * CALLS);
	await("worker1", "t::started", 3 * CALLS);
	/* It may be gone before it has answered. */
	(void)far_rpc_sync(agent, "worker1", "t::let_go", FAR_ARGS(far_bool(true)), NULL, NULL, &err);
	expect_all(f, FAR_PEER_LOST);
	expect_all(g, FAR_PEER_LOST);
	expect_all(h, FAR_PEER_LOST);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

static int caller_leaves(int rank)
{
	struct far_future *f[CALLS], *g[CALLS];
	join(rank);
	if (rank == 0) {
		start("worker1", "t::parks", FAR_ARGS(far_bool(true)), FAR_FOREVER, f);
		start("worker1", "t::polls", FAR_NOARGS, FAR_FOREVER, g);
		gate_await(agent, "worker1", CALLS);
		await("worker1", "t::started", 2 * CALLS);
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		/* Futures outlive the agent. */
		expect_all(f, FAR_SHUTDOWN);
		expect_all(g, FAR_SHUTDOWN);
		return 0;
	}
	while (atomic_load(&cancelled) != 2 * CALLS)
		usleep(500);
	CHECK(query(agent, "worker1", "gate::open", FAR_ARGS(0)) == CALLS);
	none_active(agent);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

/* Handlers that never end, whatever their waits say: the shutdown gives them a second and goes on without them. */
static int never_ends(int rank)
{
	struct far_future *f[CALLS];
	join(rank);
	if (rank == 0) {
		start("worker1", "t::stubborn", FAR_NOARGS, FAR_FOREVER, f);
		gate_await(agent, "worker1", CALLS);
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		expect_all(f, FAR_SHUTDOWN);
		return 0;
	}
	struct far_worker_info info;
	do
		CHECK_STATUS(far_worker_by_rank(agent, 0, &info, &err), FAR_OK, &err);
	while (info.alive && !usleep(500));
	CHECK(freopen("/dev/null", "w", stderr)); /* it is said how many did not end */
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	int bad = spawn_modes(2, deadlines, -1);
	bad |= spawn_modes(3, dies, 2);
	bad |= spawn_modes(2, callee_leaves, -1);
	bad |= spawn_modes(2, threads_leave, -1);
	bad |= spawn_modes(2, caller_leaves, -1);
	return bad | spawn_modes(2, never_ends, -1);
}
