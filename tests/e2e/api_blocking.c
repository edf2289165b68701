/* SPDX-License-Identifier: BSD-3-Clause */
/** Blocking handlers: their threads, their queue, deadlines that pass in it, the time that nested calls inherit, and
 * the options' bounds. */
#include "api_gate.h"
#include "handlers.h"

enum { THREADS = 2, QUEUE = 4 };

static struct far_agent *agent;
static struct far_err err;
static atomic_int ran, running;
static _Atomic bool let_go;

/* Blocks in the system, as far as the library knows. */
static enum far_status block(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_fetch_add(&running, 1);
	while (!atomic_load(&let_go))
		usleep(100);
	atomic_fetch_sub(&running, 1);
	atomic_fetch_add(&ran, 1);
	struct far_val v = far_int(args[0].u.i + 1);
	return far_return(req, &v);
}

/* Fails, and goes on with its arguments. */
static enum far_status fail_first(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	enum far_status status = far_fail(req, FAR_REMOTE, 3, "no");
	CHECK(far_fail(req, FAR_REMOTE, 4, "again") == FAR_INVALID);
	atomic_fetch_add(&running, 1);
	while (!atomic_load(&let_go))
		usleep(100);
	atomic_fetch_sub(&running, 1);
	return status;
}

static enum far_status state(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load((atomic_int *)user));
	return far_return(req, &v);
}

static enum far_status gate_thread(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_store(&let_go, args[0].u.b);
	return far_return(req, NULL);
}

static void set_let_go(bool go)
{
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::let_go", FAR_ARGS(far_bool(go)), NULL, NULL, &err), FAR_OK,
		     &err);
}

static void await(const char *fn, int64_t n)
{
	while (query(agent, "worker1", fn, FAR_NOARGS) != n)
		usleep(500);
}

static void start(struct far_future **f, int n, uint64_t timeout)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	for (int i = 0; i < n; i++)
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::block", FAR_ARGS(i), &opts, &f[i], &err), FAR_OK,
			     &err);
}

static void expect_all(struct far_future **f, int n)
{
	struct far_val out = {0};
	for (int i = 0; i < n; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
		CHECK(out.u.i == i + 1);
		far_future_free(f[i]);
	}
}

static void full(void)
{
	struct far_future *busy[THREADS], *queued[QUEUE];
	for (int round = 0; round < 3; round++) {
		set_let_go(false);
		start(busy, THREADS, FAR_FOREVER);
		await("t::running", THREADS);
		start(queued, QUEUE, FAR_FOREVER);
		for (int i = 0; i < 3; i++) {
			CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::block", FAR_ARGS(0), NULL, NULL, &err),
				     FAR_RESOURCE, &err);
			CHECK(err.executed == FAR_EXECUTED_NO && strcmp(err.origin, "worker1") == 0);
			CHECK_TEXT(&err, "opts.blocking_queue");
		}
		CHECK(query(agent, "worker1", "far::add", FAR_ARGS(1, 1)) == 2); /* the shard goes on */
		set_let_go(true);
		expect_all(busy, THREADS);
		expect_all(queued, QUEUE);
	}
}

/* What waits for a thread beyond its deadline is never started. */
static void late(void)
{
	struct far_future *busy[THREADS], *queued[QUEUE];
	int64_t before = query(agent, "worker1", "t::ran", FAR_NOARGS);
	set_let_go(false);
	start(busy, THREADS, FAR_FOREVER);
	await("t::running", THREADS);
	start(queued, QUEUE, 5 * FAR_MS);
	for (int i = 0; i < QUEUE; i++) {
		CHECK_STATUS(far_future_wait(queued[i], 0, NULL, &err), FAR_TIMEOUT, &err);
		CHECK(err.executed != FAR_EXECUTED_YES);
		far_future_free(queued[i]);
	}
	usleep(10000);
	set_let_go(true);
	expect_all(busy, THREADS);
	/* One more, which comes after them in the queue. */
	start(busy, 1, FAR_FOREVER);
	expect_all(busy, 1);
	CHECK(query(agent, "worker1", "t::ran", FAR_NOARGS) == before + THREADS + 1);
	await("t::active", 0);
}

/* ---- nested calls and the time that is left ---- */

/* The error leaves when the handler has returned and its arguments are released. Until then the request is open. */
static void failing(void)
{
	struct far_future *f;
	await("t::running", 0);
	set_let_go(false);
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::fail_first", FAR_NOARGS, NULL, &f, &err), FAR_OK, &err);
	await("t::running", 1);
	for (int i = 0; i < 10; i++)
		CHECK(query(agent, "worker1", "t::running", FAR_NOARGS) == 1);
	CHECK(!far_future_done(f));
	set_let_go(true);
	CHECK_STATUS(far_future_wait(f, FAR_FOREVER, NULL, &err), FAR_REMOTE, &err);
	CHECK(err.code == 3 && err.executed == FAR_EXECUTED_YES);
	CHECK_TEXT(&err, "no");
	far_future_free(f);
}

static enum far_status left(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int((int64_t)(far_req_time_left_ns(req) / FAR_MS));
	return far_return(req, &v);
}

/* What a call made for this request has left; `args[0]`: the time-out that it states, in ms. */
static enum far_status left_below(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_agent *a = far_req_agent(req);
	struct far_call_opts opts = {.timeout_ns = (uint64_t)args[0].u.i * FAR_MS};
	struct far_val out = {0};
	struct far_err e;
	/* The first may leave while the request is still on the burst, the second comes after a wait. */
	for (int i = 0; i < 2; i++) {
		enum far_status status = far_rpc_sync(a, "worker0", "t::left", FAR_NOARGS, &opts, &out, &e);
		if (status)
			return far_fail(req, status, 0, "%s", e.text);
	}
	return far_return(req, &out);
}

static int64_t time_below(const char *fn, uint64_t timeout, int stated_ms)
{
	struct far_call_opts opts = {.timeout_ns = timeout};
	struct far_val out = {0};
	CHECK_STATUS(far_rpc_sync(agent, "worker1", fn, FAR_ARGS(stated_ms), &opts, &out, &err), FAR_OK, &err);
	return out.u.i;
}

static void time_left(const char *fn)
{
	int64_t ms = time_below(fn, 40 * FAR_SEC, 0);
	CHECK(ms > 0 && ms <= 40000); /* the default is 60 s */
	ms = time_below(fn, 40 * FAR_SEC, 50000);
	CHECK(ms > 40000 && ms <= 50000);
	ms = time_below(fn, FAR_FOREVER, 0);
	CHECK(ms > 40000 && ms <= 60000);
	ms = time_below(fn, 200 * FAR_SEC, 0);
	CHECK(ms > 40000 && ms <= 60000);
}

/* ---- options ---- */

static void bad_options(void)
{
	static const struct {
		struct far_opts opts;
		const char *names;
	} bad[] = {
		{{.fibers = 65537}, "fibers"},
		{{.fibers = UINT32_MAX}, "fibers"},
		{{.fiber_stack_bytes = 1}, "stack"},
		{{.fiber_stack_bytes = (16 << 10) - 1}, "16384"},
		{{.fiber_stack_bytes = ((size_t)64 << 20) + 1}, "stack"},
		{{.fiber_stack_bytes = SIZE_MAX}, "stack"},
		{{.blocking_threads = 1025}, "blocking"},
		{{.blocking_threads = UINT32_MAX}, "blocking"},
		{{.blocking_queue = 65537}, "blocking"},
		{{.blocking_queue = UINT32_MAX}, "blocking"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct far_agent *a;
		CHECK_STATUS(check_init("w", 0, 1, &bad[i].opts, &a, &err), FAR_INVALID, &err);
		CHECK_TEXT(&err, bad[i].names);
	}
	const struct far_function no_kind = {"t::none() -> none", FAR_KIND_NONE, left, NULL},
				  odd_kind = {"t::odd() -> none", (enum far_kind)17, left, NULL};
	CHECK_STATUS(far_register_function(agent, &no_kind, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "FAR_KIND_BLOCKING");
	CHECK_STATUS(far_register_function(agent, &odd_kind, &err), FAR_INVALID, &err);
}

/* Smallest values, and handlers registered while the agent runs. */
static int late_comers(int rank)
{
	static const struct far_function fiber = {"t::below(int ms) -> int", FAR_KIND_FIBER, left_below, NULL},
					 thread = {"t::below_thread(int ms) -> int", FAR_KIND_BLOCKING, left_below,
						   NULL},
					 inline_left = {"t::left() -> int", FAR_KIND_INLINE, left, NULL};
	static const struct far_msg_handler twice = {5, FAR_KIND_FIBER, NULL, NULL};
	agent = join_mode((struct far_opts){
		.fibers = 1, .fiber_stack_bytes = 16 << 10, .blocking_threads = 1, .blocking_queue = 1});
	CHECK_STATUS(far_register_function(agent, &fiber, &err), FAR_OK, &err);
	CHECK_STATUS(far_register_function(agent, &thread, &err), FAR_OK, &err);
	CHECK_STATUS(far_register_function(agent, &inline_left, &err), FAR_OK, &err);
	CHECK_STATUS(far_register_function(agent, &fiber, &err), FAR_INVALID, &err);
	CHECK_STATUS(far_register_message(agent, &twice, &err), FAR_INVALID, &err);
	if (rank == 0) {
		enum far_status status;
		do /* it registers when it comes to it */
			status = far_rpc_sync(agent, "worker1", "t::below_thread", FAR_ARGS(0), NULL, NULL, &err);
		while (status == FAR_NO_FUNCTION);
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::below", FAR_ARGS(0), NULL, NULL, &err), FAR_OK, &err);
		for (int i = 0; i < 100; i++) {
			query(agent, "worker1", "t::below", FAR_ARGS(0));
			query(agent, "worker1", "t::below_thread", FAR_ARGS(0));
		}
	}
	check_leave(agent);
	return 0;
}

static int worker(int rank)
{
	static const struct far_function functions[] = {
		{"t::block(int x) -> int", FAR_KIND_BLOCKING, block, NULL},
		{"t::fail_first() -> int", FAR_KIND_BLOCKING, fail_first, NULL},
		{"t::running() -> int", FAR_KIND_INLINE, state, &running},
		{"t::ran() -> int", FAR_KIND_INLINE, state, &ran},
		{"t::let_go(bool go) -> none", FAR_KIND_INLINE, gate_thread, NULL},
		{"t::active() -> int", FAR_KIND_INLINE, handler_active, NULL},
		{"t::left() -> int", FAR_KIND_INLINE, left, NULL},
		{"t::below(int ms) -> int", FAR_KIND_FIBER, left_below, NULL},
		{"t::below_thread(int ms) -> int", FAR_KIND_BLOCKING, left_below, NULL},
	};
	agent = join_mode((struct far_opts){.functions = functions,
					    .functions_n = sizeof functions / sizeof *functions,
					    .blocking_threads = THREADS,
					    .blocking_queue = QUEUE - 1}); /* to the next power of two */
	if (rank == 0) {
		full();
		late();
		failing();
		time_left("t::below");
		time_left("t::below_thread");
		bad_options();
	}
	check_leave(agent);
	return 0;
}

int main(void)
{
	return spawn_modes(2, worker, -1) | spawn_modes(2, late_comers, -1);
}
