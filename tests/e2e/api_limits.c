/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads; threads that it starts. */
/** An agent's own bounds: each is what far_limits_read() says, refuses exactly the one too many, and is used again. */
#include "check.h"
#include "handlers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { ECHO = 1, NOTE };
enum {
	CALLS = 8,
	PEER_CALLS = 6,
	PEER_WAITING = 5,
	RING = 4,
	WINDOW = 2,
	RECORDS = 5,
	THREADS = 2,
	QUEUED = 2,
	ROUNDS = 3
};

static struct far_agent *agent;
static struct far_err err;
static const struct far_to peer = {1, -1}, self = {0, -1};
static unsigned done_n, done_ok;

static void echo(struct far_req *req, const void *data, size_t len, void *user)
{
	far_reply(req, data, len);
}

static _Atomic unsigned noted;

static void record_message(struct far_req *req, const void *data, size_t len, void *user)
{
	atomic_fetch_add(&noted, 1);
}

static void on_done(enum far_status status, const void *data, size_t len, const struct far_err *e, void *user)
{
	done_n++;
	done_ok += status == FAR_OK && len == 1;
}

static struct far_counters counters(void)
{
	struct far_counters c;
	far_counters_read(agent, &c);
	return c;
}

static enum far_status send_one(struct far_to to, struct far_err *e)
{
	return far_msg_send(agent, to, ECHO, "x", 1, NULL, on_done, NULL, e);
}

static void poll_until(unsigned n)
{
	while (done_n < n)
		far_shard_poll(agent);
	CHECK(done_n == n && done_ok == n);
	CHECK(counters().calls_active == 0);
}

static void expect_busy(enum far_status status, const struct far_err *e, const char *part)
{
	CHECK_STATUS(status, FAR_BUSY, e);
	CHECK(e->executed == FAR_EXECUTED_NO);
	CHECK_TEXT(e, part);
}

static void what_was_chosen(void)
{
	struct far_limits l;
	far_limits_read(agent, &l);
	CHECK(l.peer_waiting == PEER_WAITING);
	CHECK(l.calls == CALLS && l.peer_calls == PEER_CALLS && l.submit_slots == RING && l.retry_window == WINDOW);
	CHECK(l.deferred == RECORDS && l.mailbox_slots == 1 && l.blocking_threads == THREADS);
	CHECK(l.blocking_queue == QUEUED && l.fibers == 1024);
}

/* The answers come when this thread polls, so what was sent stays pending. */
static void peer_calls(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		uint64_t refused = counters().busy_refusals;
		done_n = done_ok = 0;
		for (unsigned i = 0; i < PEER_CALLS + PEER_WAITING; i++)
			CHECK_STATUS(send_one(peer, &err), FAR_OK, &err);
		expect_busy(send_one(peer, &err), &err, "opts.peer_calls is 6, peer_waiting 5");
		CHECK_TEXT(&err, "worker1");
		CHECK(counters().busy_refusals == refused + 1);
		CHECK(counters().calls_active == PEER_CALLS + PEER_WAITING);
		poll_until(PEER_CALLS + PEER_WAITING);
	}
}

static void call_slots(void)
{
	for (int round = 0; round < ROUNDS; round++) {
		done_n = done_ok = 0;
		for (unsigned i = 0; i < CALLS; i++)
			CHECK_STATUS(send_one(i < PEER_CALLS ? peer : self, &err), FAR_OK, &err);
		expect_busy(send_one(self, &err), &err, "opts.calls is 8");
		/* Who waits for the answer waits for the slot. */
		char c;
		CHECK_STATUS(far_msg_call(agent, self, ECHO, "y", 1, NULL, &c, 1, NULL, &err), FAR_OK, &err);
		CHECK(c == 'y');
		poll_until(CALLS);
	}
}

/* More targets than may be pending, at a worker and in all: the rest follow as there is room. */
static void fanouts(void)
{
	enum { N = 5 * CALLS };
	struct far_target targets[N] = {{.args = NULL}};
	struct far_target_result results[N];
	struct far_future *f;
	struct far_val out;
	for (int i = 0; i < N; i++)
		targets[i].to = (struct far_to){i % 2, 0};
	CHECK_STATUS(far_rpc_fanout(agent, "far::identity", FAR_ARGS(7), targets, N, NULL, results, &f, &err), FAR_OK,
		     &err);
	CHECK(counters().calls_active <= CALLS);
	CHECK_STATUS(far_future_wait(f, 0, &out, &err), FAR_OK, &err);
	CHECK(out.u.i == N);
	for (int i = 0; i < N; i++)
		CHECK(results[i].status == FAR_OK && results[i].value.u.i == 7);
	far_future_free(f);
	CHECK(counters().calls_active == 0);
}

static void *hand_over(void *arg)
{
	bool oneways = *(bool *)arg;
	struct far_err e;
	enum far_status status = FAR_OK;
	for (unsigned i = 0; i <= RING; i++) {
		CHECK(i == 0 || !status);
		status = oneways ? far_msg_oneway(agent, peer, NOTE, "n", 1, NULL, &e) : send_one(peer, &e);
	}
	CHECK_STATUS(status, FAR_BUSY, &e);
	CHECK(e.executed == FAR_EXECUTED_NO);
	if (!oneways)
		CHECK_TEXT(&e, "submit_slots 4");
	return NULL;
}

static void submissions(void)
{
	for (int round = 0; round < 2 * ROUNDS; round++) {
		bool oneways = round % 2;
		uint64_t refused = counters().busy_refusals;
		pthread_t t;
		done_n = done_ok = 0;
		CHECK(pthread_create(&t, NULL, hand_over, &oneways) == 0);
		CHECK(pthread_join(t, NULL) == 0);
		CHECK(done_n == 0);
		CHECK(counters().busy_refusals == refused + 1);
		poll_until(oneways ? 0 : RING);
		while (counters().oneways_sent < (uint64_t)RING * ((unsigned)(round + 1) / 2))
			far_shard_poll(agent);
	}
}

static void retry_window(void)
{
	struct far_call_opts often = {.retry = true, .timeout_ns = FAR_FOREVER};
	struct far_future *first, *f;
	for (int round = 0; round < ROUNDS; round++) {
		CHECK_STATUS(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, &often, &first, &err), FAR_OK,
			     &err);
		for (int i = 1; i < WINDOW; i++)
			CHECK_STATUS(far_rpc_sync(agent, "worker1", "far::identity", FAR_ARGS(1), &often, NULL, &err),
				     FAR_OK, &err);
		expect_busy(far_rpc_async(agent, "worker1", "far::identity", FAR_ARGS(1), &often, &f, &err), &err,
			    "retry_window 2");
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::release", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(first, 0, NULL, &err), FAR_OK, &err);
		far_future_free(first);
	}
}

/* ---- worker 1 keeps requests open ---- */

static struct far_deferred *kept[RECORDS];
static unsigned kept_n;
static _Atomic bool let_go;
static _Atomic unsigned running;

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	enum far_status status = far_defer(req, &d);
	if (!status)
		kept[kept_n++] = d;
	return status;
}

static enum far_status release_all(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	while (kept_n)
		CHECK(far_deferred_return(kept[--kept_n], NULL) == FAR_OK);
	atomic_store(&let_go, true);
	return far_return(req, NULL);
}

/* A fiber whose wait finds no record goes on without. */
static enum far_status wait_status(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err why;
	enum far_status status =
		far_rpc_sync(far_req_agent(req), "worker0", "far::identity", FAR_ARGS(1), NULL, NULL, &why);
	struct far_val v = far_int(status);
	if (status)
		CHECK_TEXT(&why, "opts.deferred");
	return far_return(req, &v);
}

static enum far_status block(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	atomic_fetch_add(&running, 1);
	while (!atomic_load(&let_go) && !far_req_cancelled(req))
		usleep(200);
	atomic_fetch_sub(&running, 1);
	return far_return(req, &args[0]);
}

/* How many blocking handlers run; `hold`: from now on they wait to be released. */
static enum far_status count_running(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(&running));
	if (args[0].u.b)
		atomic_store(&let_go, false);
	return far_return(req, &v);
}

static int64_t query(const char *fn, const struct far_val *args, size_t n)
{
	struct far_val out = {0};
	CHECK_STATUS(far_rpc_sync(agent, "worker1", fn, args, n, NULL, &out, &err), FAR_OK, &err);
	return out.type == FAR_TYPE_INT ? out.u.i : 0;
}

static void start(const char *fn, int i, struct far_future **f)
{
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	bool blocking = strcmp(fn, "t::block") == 0;
	struct far_val v = far_int(i);
	CHECK_STATUS(far_rpc_async(agent, "worker1", fn, &v, blocking ? 1 : 0, &opts, f, &err), FAR_OK, &err);
}

static void expect_refused(enum far_status status, enum far_executed executed)
{
	CHECK_STATUS(status, FAR_RESOURCE, &err);
	CHECK(err.executed == executed && strcmp(err.origin, "worker1") == 0);
}

static void deferred(void)
{
	struct far_future *f[RECORDS];
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < RECORDS; i++)
			start("t::keep", i, &f[i]);
		expect_refused(far_rpc_sync(agent, "worker1", "t::keep", FAR_NOARGS, NULL, NULL, &err),
			       FAR_EXECUTED_YES);
		expect_refused(far_rpc_sync(agent, "worker1", "t::block", FAR_ARGS(1), NULL, NULL, &err),
			       FAR_EXECUTED_NO);
		CHECK_TEXT(&err, "opts.deferred");
		CHECK(query("t::wait", FAR_NOARGS) == FAR_RESOURCE);
		CHECK(query("t::open", FAR_NOARGS) == RECORDS);
		query("t::release", FAR_NOARGS);
		for (int i = 0; i < RECORDS; i++) {
			CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), FAR_OK, &err);
			far_future_free(f[i]);
		}
		CHECK(query("t::wait", FAR_NOARGS) == FAR_OK);
		CHECK(query("t::open", FAR_NOARGS) == 0);
	}
}

/* The queue of one has two places: none overwrites another. */
static void one_place_for_a_blocking_request(void)
{
	struct far_future *f[THREADS + QUEUED];
	struct far_val out;
	for (int round = 0; round < ROUNDS; round++) {
		query("t::running", FAR_ARGS(far_bool(true)));
		for (int i = 0; i < THREADS; i++)
			start("t::block", i, &f[i]);
		while (query("t::running", FAR_ARGS(far_bool(false))) < THREADS)
			usleep(200);
		for (int i = THREADS; i < THREADS + QUEUED; i++)
			start("t::block", i, &f[i]);
		expect_refused(far_rpc_sync(agent, "worker1", "t::block", FAR_ARGS(9), NULL, NULL, &err),
			       FAR_EXECUTED_NO);
		CHECK_TEXT(&err, "opts.blocking_queue");
		query("t::release", FAR_NOARGS);
		for (int i = 0; i < THREADS + QUEUED; i++) {
			CHECK_STATUS(far_future_wait(f[i], 0, &out, &err), FAR_OK, &err);
			CHECK(out.u.i == i);
			far_future_free(f[i]);
		}
		CHECK(query("t::open", FAR_NOARGS) == 0);
	}
}

static void refused_at_init(void)
{
	struct far_agent *a = NULL;
	struct far_opts opts = {.init_method = "tcp://127.0.0.1:1", .peer_calls = 203};
	CHECK_STATUS(far_init_rpc("x", 0, 1, &opts, &a, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "peer_calls is 203");
	opts = (struct far_opts){.init_method = "tcp://127.0.0.1:1", .fiber_stack_bytes = 1};
	CHECK_STATUS(far_init_rpc("x", 0, 1, &opts, &a, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "fiber_stack_bytes is 1");
	static const uint64_t limits[] = {1, 9999999, UINT64_C(3600000000001), UINT64_MAX};
	for (unsigned i = 0; i < 4; i++) {
		opts = (struct far_opts){.init_method = "tcp://127.0.0.1:1", .peer_limit_ns = limits[i]};
		CHECK_STATUS(far_init_rpc("x", 0, 1, &opts, &a, &err), FAR_INVALID, &err);
		CHECK_TEXT(&err, "peer_limit_ns is ");
		CHECK_TEXT(&err, "[10000000, 3600000000000]");
	}
	CHECK(!a);
}

int main(void)
{
	static const struct far_msg_handler messages[] = {{ECHO, FAR_KIND_INLINE, echo, NULL},
							  {NOTE, FAR_KIND_INLINE, record_message, NULL}};
	static const struct far_function functions[] = {
		{"t::keep() -> none", FAR_KIND_INLINE, keep, NULL},
		{"t::release() -> none", FAR_KIND_INLINE, release_all, NULL},
		{"t::wait() -> int", FAR_KIND_FIBER, wait_status, NULL},
		{"t::block(int i) -> int", FAR_KIND_BLOCKING, block, NULL},
		{"t::running(bool hold) -> int", FAR_KIND_INLINE, count_running, NULL},
		{"t::open() -> int", FAR_KIND_INLINE, handler_active, NULL},
	};
	struct far_opts opts = {.messages = messages,
				.messages_n = 2,
				.functions = functions,
				.functions_n = sizeof functions / sizeof *functions,
				.submit_slots = RING - 1, /* is rounded up */
				.mailbox_slots = 1,
				.calls = CALLS,
				.peer_calls = PEER_CALLS,
				.peer_waiting = PEER_WAITING,
				.retry_window = WINDOW,
				.deferred = RECORDS,
				.blocking_threads = THREADS,
				.blocking_queue = 1};
	refused_at_init();
	agent = check_join(&opts);
	if (check_rank() == 0) {
		what_was_chosen();
		/* Held throughout, so that no call is handed over and refused in its own time. */
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		peer_calls();
		call_slots();
		fanouts();
		submissions();
		retry_window();
		deferred();
		one_place_for_a_blocking_request();
		far_shard_release(agent);
		CHECK(counters().calls_active == 0 && counters().requests_active == 0);
		CHECK(counters().packets_dropped == 0);
	}
	check_leave(agent);
	if (check_rank() == 1)
		CHECK(atomic_load(&noted) == RING * ROUNDS);
	return 0;
}
