/* SPDX-License-Identifier: BSD-3-Clause */
/* run: -n 2. Main thread of each process; handlers on shard threads; threads that it starts. */
/** Calls that their caller cancels: what the caller gets, what the callee sees, and that nothing stays behind. */
#include "check.h"
#include "handlers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MANY = 200, BYTES = 40 << 20, THREADS = 4, BLOCKED_MAX = 3 };

static struct far_agent *agent;
static struct far_err err;
static struct far_deferred *kept[MANY];
static int kept_n, cancelled_n, other_n;

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(kept_n < MANY);
	return far_defer(req, &kept[kept_n++]);
}

/* Answers all that were kept; how many of them nobody waited for any more. */
static enum far_status release_all(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(0);
	while (kept_n)
		v.u.i += far_deferred_return(kept[--kept_n], &v) == FAR_CANCELLED;
	return far_return(req, &v);
}

/* Waits for an answer that never comes. */
static enum far_status park(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_err why;
	CHECK(!far_req_cancelled(req));
	enum far_status status =
		far_rpc_sync(far_req_agent(req), "worker0", "test::keep", FAR_NOARGS, NULL, NULL, &why);
	if (status == FAR_CANCELLED && far_req_cancelled(req))
		cancelled_n++;
	else
		other_n++;
	/* What follows ends at once as well. */
	CHECK(far_rpc_sync(far_req_agent(req), "worker0", "far::identity", FAR_ARGS(1), NULL, NULL, &why) ==
	      FAR_CANCELLED);
	return far_return(req, NULL);
}

/* Computes until nobody wants the result. */
static enum far_status grind(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	while (!far_req_cancelled(req))
		usleep(100);
	return far_return(req, NULL);
}

static enum far_status parked(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(args[0].u.b ? cancelled_n : other_n);
	return far_return(req, &v);
}

/* Occupies the shard, so that a cancel comes when the answer is on its way. */
static enum far_status slow(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	usleep(20000);
	CHECK(!far_req_cancelled(req));
	return far_return(req, NULL);
}

static _Atomic int marked;

static enum far_status mark(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_fetch_add(&marked, 1));
	return far_return(req, &v);
}

static enum far_status long_answer(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	static char bytes[BYTES];
	struct far_val v = far_bytes(bytes, sizeof bytes);
	return far_return(req, &v);
}

/* What is under way at this worker but for the question itself. */
static enum far_status under_way(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_counters c;
	far_counters_read(far_req_agent(req), &c);
	struct far_val v = far_int((int64_t)(c.requests_active + c.calls_active + c.rendezvous_active));
	return far_return(req, &v);
}

/* Meanwhile the shard sends the cancels that handlers left to it, and they arrive. */
static enum far_status there_and_back(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	for (int i = 0; i < 100; i++)
		CHECK(far_rpc_sync(far_req_agent(req), "worker0", "far::identity", FAR_ARGS(1), NULL, NULL, NULL) ==
		      FAR_OK);
	struct far_val v = far_int(0);
	return far_return(req, &v);
}

static int64_t query(const char *worker, const char *function, bool what)
{
	struct far_val out = {0};
	if (strcmp(function, "test::parked") == 0)
		CHECK_STATUS(far_rpc_sync(agent, worker, function, FAR_ARGS(far_bool(what)), NULL, &out, &err), FAR_OK,
			     &err);
	else
		CHECK_STATUS(far_rpc_sync(agent, worker, function, FAR_NOARGS, NULL, &out, &err), FAR_OK, &err);
	return out.u.i;
}

static struct far_future *start(const char *function)
{
	struct far_future *f;
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	CHECK_STATUS(far_rpc_async(agent, "worker1", function, FAR_NOARGS, &opts, &f, &err), FAR_OK, &err);
	return f;
}

static void expect_cancelled(struct far_future *f)
{
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_CANCELLED, &err);
	CHECK(err.executed == FAR_EXECUTED_MAYBE);
	CHECK_TEXT(&err, "cancelled");
	far_future_free(f);
}

static void deferred(void)
{
	struct far_future *f[MANY];
	for (int i = 0; i < MANY; i++)
		f[i] = start("test::keep");
	for (int i = 0; i < MANY; i += 2)
		CHECK_STATUS(far_future_cancel(f[i], &err), FAR_OK, &err);
	for (int i = 0; i < MANY; i += 2)
		expect_cancelled(f[i]);
	CHECK(query("worker1", "test::release_all", false) == MANY / 2);
	for (int i = 1; i < MANY; i += 2) {
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_cancel(f[i], &err), FAR_OK, &err); /* too late: nothing changes */
		CHECK_STATUS(far_future_wait(f[i], 0, NULL, &err), FAR_OK, &err);
		far_future_free(f[i]);
	}
}

static void *cancel_thread(void *f)
{
	struct far_err why;
	CHECK_STATUS(far_future_cancel(f, &why), FAR_OK, &why);
	return NULL;
}

static void by_other_threads(void)
{
	struct far_future *f[8];
	pthread_t threads[8];
	for (int i = 0; i < 8; i++)
		f[i] = start("test::keep");
	for (int i = 0; i < 8; i++)
		CHECK(pthread_create(&threads[i], NULL, cancel_thread, f[i]) == 0);
	for (int i = 0; i < 8; i++) {
		CHECK(pthread_join(threads[i], NULL) == 0);
		expect_cancelled(f[i]);
	}
	CHECK(query("worker1", "test::release_all", false) == 8);
}

static void waiting_handlers(void)
{
	struct far_future *f[16];
	for (int i = 0; i < 16; i++)
		f[i] = start(i % 4 ? "test::park" : "test::grind");
	/* They are parked once their calls have come here. */
	while (kept_n < 12)
		query("worker1", "test::parked", false);
	for (int i = 0; i < 16; i++)
		CHECK_STATUS(far_future_cancel(f[i], &err), FAR_OK, &err);
	for (int i = 0; i < 16; i++)
		expect_cancelled(f[i]);
	while (query("worker1", "test::parked", true) < 12)
		;
	CHECK(query("worker1", "test::parked", false) == 0);
	/* Their own calls were cancelled with them. */
	query("worker1", "test::there_and_back", false);
	CHECK(query("worker0", "test::release_all", false) == 12);
}

static enum far_status follow(struct far_future *parent, struct far_val *out, struct far_err *why, void *user)
{
	return far_future_value(parent, NULL, why);
}

/* Only calls can be cancelled; what waits for them ends with them. */
static void children(void)
{
	struct far_future *f = start("test::keep"), *child, *all, *any, *own;
	CHECK_STATUS(far_future_then(f, follow, NULL, &child, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_collect(&f, 1, &all, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_collect_any(&f, 1, &any, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_create(&own, &err), FAR_OK, &err);
	struct far_future *no_calls[] = {child, all, any, own};
	for (int i = 0; i < 4; i++) {
		CHECK_STATUS(far_future_cancel(no_calls[i], &err), FAR_INVALID, &err);
		CHECK_TEXT(&err, "not that of a call");
	}
	CHECK_STATUS(far_future_cancel(f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(child, 0, NULL, &err), FAR_CANCELLED, &err);
	CHECK_STATUS(far_future_wait(all, 0, NULL, &err), FAR_CANCELLED, &err);
	CHECK_STATUS(far_future_wait(any, 0, NULL, &err), FAR_OK, &err);
	for (int i = 0; i < 4; i++)
		far_future_free(no_calls[i]);
	expect_cancelled(f);
	CHECK(query("worker1", "test::release_all", false) == 1);
}

static struct far_counters counters(void)
{
	struct far_counters c;
	far_counters_read(agent, &c);
	return c;
}

static void cancel(struct far_future *f)
{
	CHECK_STATUS(far_future_cancel(f, &err), FAR_OK, &err);
}

/* ---- each stage of a call ---- */

static void *start_elsewhere(void *arg)
{
	*(struct far_future **)arg = start("test::keep");
	return NULL;
}

/* Handed over to a shard that is held, and cancelled by the holder before it takes it in. */
static void in_the_submission_ring(void)
{
	struct far_future *f;
	pthread_t t;
	for (int i = 0; i < 2; i++) {
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		while (counters().calls_active) /* the last words about earlier ones */
			far_shard_poll(agent);
		CHECK(pthread_create(&t, NULL, start_elsewhere, &f) == 0);
		CHECK(pthread_join(t, NULL) == 0);
		CHECK(!far_future_done(f) && counters().calls_active == 0);
		if (i == 0) {
			cancel(f);
		} else {
			CHECK(pthread_create(&t, NULL, cancel_thread, f) == 0);
			CHECK(pthread_join(t, NULL) == 0);
		}
		while (!far_future_done(f))
			far_shard_poll(agent);
		expect_cancelled(f);
		far_shard_release(agent);
	}
	query("worker1", "test::release_all", false);
}

/* Inline handlers hear nothing: their answer comes late, and is dropped and counted. */
static void while_an_inline_handler_runs(void)
{
	uint64_t late = counters().replies_late;
	CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
	while (counters().calls_active)
		far_shard_poll(agent);
	struct far_future *f = start("test::slow");
	far_shard_poll(agent);
	cancel(f);
	expect_cancelled(f);
	CHECK(counters().calls_active == 1); /* its slot waits for the last word */
	while (counters().calls_active)
		far_shard_poll(agent);
	CHECK(counters().replies_late == late + 1);
	far_shard_release(agent);
}

/* What waits for a thread is never started. */
static void while_queued_for_a_thread(void)
{
	struct far_future *busy[THREADS], *queued[BLOCKED_MAX];
	for (int i = 0; i < THREADS; i++)
		busy[i] = start("test::grind");
	for (int i = 0; i < BLOCKED_MAX; i++)
		queued[i] = start("test::mark");
	while (query("worker1", "test::under_way", false) < THREADS + BLOCKED_MAX)
		;
	for (int i = 0; i < BLOCKED_MAX; i++) {
		cancel(queued[i]);
		expect_cancelled(queued[i]);
	}
	/* The cancels go before the threads are free. */
	query("worker1", "test::under_way", false);
	for (int i = 0; i < THREADS; i++) {
		cancel(busy[i]);
		expect_cancelled(busy[i]);
	}
	CHECK(query("worker1", "test::mark", false) == 0);
}

static void in_fragments(void)
{
	static char bytes[BYTES];
	struct far_call_opts opts = {.timeout_ns = FAR_FOREVER};
	struct far_val arg = far_bytes(bytes, sizeof bytes);
	struct far_worker_info peer;
	CHECK_STATUS(far_worker_by_rank(agent, 1, &peer, &err), FAR_OK, &err);
	bool pulled = strcmp(peer.nic, "shm") == 0; /* the callee reads the message itself */
	for (int stage = 0; stage < 3; stage++) {
		struct far_future *f;
		CHECK_STATUS(far_shard_acquire(agent, 0, &err), FAR_OK, &err);
		uint64_t received = counters().rendezvous_received, bytes_before = counters().bytes_sent;
		bool reply = stage == 2;
		CHECK_STATUS(far_rpc_async(agent, "worker1", reply ? "test::long_answer" : "test::long_way", &arg,
					   reply ? 0 : 1, &opts, &f, &err),
			     FAR_OK, &err);
		/* Before it is announced; while it goes; while the reply comes. */
		for (int n = 0; stage == 1 && counters().bytes_sent - bytes_before < BYTES / 4 && !far_future_done(f) &&
				!(pulled && n == 10);
		     n++)
			far_shard_poll(agent);
		while (stage == 2 && !counters().rendezvous_active)
			far_shard_poll(agent);
		CHECK(!far_future_done(f));
		cancel(f);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_CANCELLED, &err);
		/* The pass that cancels in stage 0 may announce it first. */
		CHECK(err.executed == (reply                  ? FAR_EXECUTED_YES
				       : stage == 1 && pulled ? FAR_EXECUTED_MAYBE
							      : FAR_EXECUTED_NO) ||
		      (stage == 0 && pulled && err.executed == FAR_EXECUTED_MAYBE));
		far_future_free(f);
		far_shard_release(agent);
		/* Its memory and its lane are free again. */
		CHECK_STATUS(far_rpc_sync(agent, "worker1", "test::long_way", &arg, 1, NULL, NULL, &err), FAR_OK, &err);
		CHECK(counters().rendezvous_received == received + 1);
	}
}

static void answered_already(void)
{
	struct far_future *f = start("test::under_way");
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	cancel(f);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
}

static void nothing_left(void)
{
	while (query("worker1", "test::under_way", false))
		;
	struct far_counters c;
	do
		far_counters_read(agent, &c);
	while (c.calls_active &&
	       far_rpc_sync(agent, "worker1", "test::parked", FAR_ARGS(far_bool(true)), NULL, NULL, &err) == FAR_OK);
	CHECK(c.calls_active == 0 && c.requests_active == 0 && c.packets_dropped == 0 && c.rendezvous_active == 0);
	CHECK(c.calls_sent == c.calls_completed + c.calls_failed);
}

int main(void)
{
	const struct far_function functions[] = {
		{"test::keep() -> none|int", FAR_KIND_INLINE, keep, NULL},
		{"test::release_all() -> int", FAR_KIND_INLINE, release_all, NULL},
		{"test::park() -> none", FAR_KIND_FIBER, park, NULL},
		{"test::grind() -> none", FAR_KIND_BLOCKING, grind, NULL},
		{"test::parked(bool cancelled) -> int", FAR_KIND_INLINE, parked, NULL},
		{"test::slow() -> none", FAR_KIND_INLINE, slow, NULL},
		{"test::mark() -> int", FAR_KIND_BLOCKING, mark, NULL},
		{"test::long_way(bytes b) -> bytes", FAR_KIND_INLINE, handler_echo, NULL},
		{"test::long_answer() -> bytes", FAR_KIND_INLINE, long_answer, NULL},
		{"test::under_way() -> int", FAR_KIND_INLINE, under_way, NULL},
		{"test::there_and_back() -> int", FAR_KIND_FIBER, there_and_back, NULL},
	};
	struct far_opts opts = {.functions = functions, .functions_n = sizeof functions / sizeof *functions};
	int rank = check_rank();
	agent = check_join(&opts);
	if (rank == 0) {
		for (int i = 0; i < 20; i++) {
			deferred();
			by_other_threads();
		}
		children();
		waiting_handlers();
		in_the_submission_ring();
		while_an_inline_handler_runs();
		while_queued_for_a_thread();
		in_fragments();
		answered_already();
		nothing_left();
	}
	check_leave(agent);
	return 0;
}
