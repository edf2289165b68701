/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures over real workers: callbacks, waits for several, scopes, user-made ones, with each way of driving.
 * Main thread of each process; handlers on shard threads; threads that it starts. */
#include "api_spawn.h"
#include "handlers.h"

#include <pthread.h>
#include <stdatomic.h>

enum { N = 64, NEVER_MAX = 8, FIBERS = 100 };

static struct far_agent *agent;
static struct far_err err;
static struct far_opts opts;

/* ---- the callee ---- */

static struct far_deferred *kept[NEVER_MAX];
static unsigned kept_n;

static enum far_status failing(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_fail(req, FAR_DENIED, (int32_t)args[0].u.i, "not this one");
}

/* Is answered by t::release only. */
static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	CHECK(kept_n < NEVER_MAX);
	return far_defer(req, &kept[kept_n++]);
}

static enum far_status release_kept(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(7);
	while (kept_n)
		CHECK(far_deferred_return(kept[--kept_n], &v) == FAR_OK);
	return far_return(req, NULL);
}

/* ---- the caller ---- */

static struct far_future *start(const char *to, const char *fn, int64_t x)
{
	struct far_future *f = NULL;
	bool takes = strcmp(fn, "t::keep") != 0;
	struct far_val arg = far_int(x);
	CHECK_STATUS(far_rpc_async(agent, to, fn, &arg, takes ? 1 : 0, NULL, &f, &err), FAR_OK, &err);
	return f;
}

static void release_all(void)
{
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::release", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
}

static int64_t wait_int(struct far_future *f)
{
	struct far_val v = far_none();
	CHECK_STATUS(far_future_wait(f, 0, &v, &err), FAR_OK, &err);
	CHECK(v.type == FAR_TYPE_INT);
	return v.u.i;
}

static enum far_status plus_one(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	enum far_status status = far_future_wait(parent, 0, out, e);
	out->u.i++;
	return status;
}

static enum far_status hand_on(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	return far_future_value(parent, out, e);
}

static struct far_future *then(struct far_future *f, far_then_fn *fn, void *user)
{
	struct far_future *child = NULL;
	CHECK_STATUS(far_future_then(f, fn, user, &child, &err), FAR_OK, &err);
	return child;
}

/* Children of calls to either worker, some added late; errors keep their class, origin and text. */
static void children(const char *to)
{
	struct far_future *f[N], *c[N], *g[N];
	for (int i = 0; i < N; i++) {
		f[i] = start(to, "t::twice", i);
		if (i % 3 == 0)
			far_future_wait(f[i], 0, NULL, NULL);
		c[i] = then(f[i], plus_one, NULL);
		far_future_free(f[i]);
		g[i] = then(c[i], plus_one, NULL);
	}
	for (int i = N; i--;) {
		CHECK(wait_int(g[i]) == 2 * i + 2);
		CHECK(wait_int(c[i]) == 2 * i + 1);
		far_future_free(c[i]);
		far_future_free(g[i]);
	}
	f[0] = start(to, "t::fail", 5);
	c[0] = then(f[0], hand_on, NULL);
	CHECK_STATUS(far_future_wait(c[0], 0, NULL, &err), FAR_DENIED, &err);
	CHECK(err.code == 5 && strcmp(err.origin, to) == 0 && err.executed == FAR_EXECUTED_YES);
	CHECK_TEXT(&err, "not this one");
	CHECK(far_future_set_error(f[0], FAR_BUSY, 0, "x") == FAR_INVALID);
	far_future_free(f[0]);
	far_future_free(c[0]);
}

/* ---- callbacks that may wait ---- */

/* Waits for a call, and for a future that another call completes. */
static enum far_status call_again(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	struct far_future *also;
	enum far_status status = far_future_value(parent, &v, e);
	if (status)
		return status;
	CHECK_STATUS(far_rpc_async(agent, user, "t::twice", FAR_ARGS(v.u.i), NULL, &also, e), FAR_OK, e);
	CHECK_STATUS(far_rpc_sync(agent, user, "t::twice", FAR_ARGS(v.u.i), NULL, out, e), FAR_OK, e);
	CHECK_STATUS(far_future_wait(also, 0, &v, e), FAR_OK, e);
	far_future_free(also);
	out->u.i += v.u.i;
	return FAR_OK;
}

static struct far_future *then_fiber(struct far_future *f, far_then_fn *fn, void *user)
{
	struct far_future *child = NULL;
	CHECK_STATUS(far_future_then_fiber(agent, f, fn, user, &child, &err), FAR_OK, &err);
	return child;
}

static void waiting_callbacks(void)
{
	static char here[] = "worker0", there[] = "worker1";
	struct far_future *f[N], *c[N], *more[2 * FIBERS];
	for (int i = 0; i < N; i++) {
		f[i] = start("worker1", "t::twice", i);
		c[i] = then_fiber(f[i], call_again, i % 2 ? here : there);
		far_future_free(f[i]);
	}
	for (int i = 0; i < N; i++) {
		CHECK(wait_int(c[i]) == 8 * i);
		far_future_free(c[i]);
	}
	f[0] = start("worker1", "t::fail", 5);
	c[0] = then_fiber(f[0], call_again, there);
	CHECK_STATUS(far_future_wait(c[0], 0, NULL, &err), FAR_DENIED, &err);
	CHECK(err.code == 5);
	c[1] = then_fiber(f[0], hand_on, NULL); /* it is complete */
	CHECK_STATUS(far_future_wait(c[1], 0, NULL, &err), FAR_DENIED, &err);
	far_future_free(f[0]);
	far_future_free(c[0]);
	far_future_free(c[1]);
	/* Nobody completes the parent any more. */
	CHECK_STATUS(far_future_create(&f[0], &err), FAR_OK, &err);
	c[0] = then_fiber(f[0], hand_on, NULL);
	CHECK(!far_future_done(c[0]));
	far_future_free(f[0]);
	CHECK_STATUS(far_future_wait(c[0], 0, NULL, &err), FAR_CANCELLED, &err);
	far_future_free(c[0]);
	/* Each takes a fiber, also while the parent is pending. */
	int none = 0;
	CHECK_STATUS(far_future_create(&f[0], &err), FAR_OK, &err);
	for (int i = 0; i < 2 * FIBERS; i++)
		more[i] = then_fiber(f[0], hand_on, NULL);
	CHECK_STATUS(far_future_wait(more[2 * FIBERS - 1], 0, NULL, &err), FAR_RESOURCE, &err);
	CHECK_TEXT(&err, "opts.fibers");
	CHECK_STATUS(far_future_set_value(f[0], NULL, &err), FAR_OK, &err);
	for (int i = 0; i < 2 * FIBERS; i++) {
		enum far_status status = far_future_wait(more[i], 0, NULL, &err);
		CHECK(status == FAR_OK || status == FAR_RESOURCE);
		none += status == FAR_RESOURCE;
		far_future_free(more[i]);
	}
	CHECK(none >= FIBERS);
	far_future_free(f[0]);
	CHECK_STATUS(far_future_then_fiber(NULL, c[0], hand_on, NULL, &c[1], &err), FAR_INVALID, &err);
	CHECK_STATUS(far_future_then_fiber(agent, NULL, hand_on, NULL, &c[1], &err), FAR_INVALID, &err);
}

/* ---- a callback that runs on the shard ---- */

struct on_shard {
	struct far_future *pending, *started, *made;
	_Atomic int ran;
};

/* May not wait there, may start a call, may complete what is user-made. */
static void on_shard(struct far_future *f, void *user)
{
	struct on_shard *o = user;
	struct far_err e;
	size_t index;
	CHECK(far_future_done(f));
	CHECK_STATUS(far_future_wait(o->pending, 0, NULL, &e), FAR_WOULD_DEADLOCK, &e);
	CHECK_STATUS(far_future_wait_all(&o->pending, 1, 0, &e), FAR_WOULD_DEADLOCK, &e);
	CHECK_STATUS(far_future_wait_any(&o->pending, 1, 0, &index, &e), FAR_WOULD_DEADLOCK, &e);
	CHECK_STATUS(far_rpc_async(agent, "worker1", "t::twice", FAR_ARGS(21), NULL, &o->started, &e), FAR_OK, &e);
	CHECK(far_future_set_value(o->made, NULL, &e) == FAR_OK);
	atomic_fetch_add(&o->ran, 1);
}

static void callbacks(void)
{
	struct on_shard o = {.pending = start("worker1", "t::keep", 0)};
	struct far_future *f = start("worker1", "t::keep", 0);
	CHECK_STATUS(far_future_create(&o.made, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_on_done(f, on_shard, &o, &err), FAR_OK, &err);
	/* The one added last is answered first, and the callback runs before the other's answer is taken in. */
	release_all();
	CHECK(wait_int(f) == 7);
	CHECK_STATUS(far_future_wait(o.made, 0, NULL, &err), FAR_OK, &err);
	while (!atomic_load(&o.ran))
		usleep(100);
	CHECK(wait_int(o.started) == 42);
	CHECK(atomic_load(&o.ran) == 1);
	far_future_free(o.started);
	far_future_free(o.made);
	far_future_free(o.pending);
	far_future_free(f);
}

/* ---- several ---- */

static void *complete_soon(void *arg)
{
	struct far_val v = far_int(1);
	usleep(3000);
	CHECK(far_future_set_value(arg, &v, NULL) == FAR_OK);
	return NULL;
}

static void several(void)
{
	struct far_future *f[N];
	bool seen[N] = {false};
	size_t index, left = N;
	struct far_future *never = start("worker1", "t::keep", 0), *mixed[3];
	pthread_t t;
	/* All of them, one by one, as they come, beside one that does not. */
	for (int i = 0; i < N; i++)
		f[i] = start(i % 2 ? "worker1" : "worker0", "t::twice", i);
	for (; left; left--) {
		struct far_future *open[N + 1] = {never};
		int who[N + 1] = {-1}, n = 1;
		for (int i = 0; i < N; i++)
			if (!seen[i]) {
				who[n] = i;
				open[n++] = f[i];
			}
		CHECK_STATUS(far_future_wait_any(open, (size_t)n, 0, &index, &err), FAR_OK, &err);
		CHECK(index > 0);
		CHECK(wait_int(open[index]) == 2 * who[index]);
		seen[who[index]] = true;
	}
	CHECK_STATUS(far_future_wait_any(&never, 1, FAR_MS, &index, &err), FAR_PENDING, &err);
	/* Fail fast, though the first is pending. */
	mixed[0] = never;
	mixed[1] = f[0];
	mixed[2] = start("worker1", "t::fail", 3);
	CHECK_STATUS(far_future_wait_all(mixed, 3, 0, &err), FAR_DENIED, &err);
	CHECK(!far_future_done(never));
	/* A call with a user-made one, which another thread completes. */
	far_future_free(mixed[2]);
	CHECK_STATUS(far_future_create(&mixed[2], &err), FAR_OK, &err);
	CHECK(pthread_create(&t, NULL, complete_soon, mixed[2]) == 0);
	CHECK_STATUS(far_future_wait_any((struct far_future *[]){never, mixed[2]}, 2, 0, &index, &err), FAR_OK, &err);
	CHECK(index == 1);
	CHECK(pthread_join(t, NULL) == 0);
	struct far_future *all, *any;
	CHECK_STATUS(far_future_collect(mixed, 3, &all, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_collect_any(mixed, 1, &any, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(all, FAR_MS, NULL, &err), FAR_PENDING, &err);
	CHECK(!far_future_done(any));
	release_all();
	CHECK_STATUS(far_future_wait(all, 0, NULL, &err), FAR_OK, &err);
	CHECK(wait_int(any) == 0);
	for (int i = 0; i < N; i++)
		far_future_free(f[i]);
	far_future_free(all);
	far_future_free(any);
	far_future_free(never);
	far_future_free(mixed[2]);
}

/* A thread that holds the shard waits for what another one completes, and what its own shard completes meanwhile. */
static void while_holding(void)
{
	struct far_future *made, *call, *both;
	pthread_t t;
	enum far_status status = far_shard_acquire(agent, 20 * FAR_SEC, &err);
	if (status == FAR_UNSUPPORTED)
		return;
	CHECK_STATUS(status, FAR_OK, &err);
	CHECK_STATUS(far_future_create(&made, &err), FAR_OK, &err);
	CHECK(pthread_create(&t, NULL, complete_soon, made) == 0);
	call = start("worker1", "t::twice", 4);
	CHECK_STATUS(far_future_collect((struct far_future *[]){call, made}, 2, &both, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(both, 0, NULL, &err), FAR_OK, &err);
	CHECK(wait_int(call) == 8);
	CHECK(pthread_join(t, NULL) == 0);
	far_shard_release(agent);
	far_future_free(made);
	far_future_free(call);
	far_future_free(both);
}

/* ---- scopes ---- */

static void scopes(void)
{
	struct far_scope outer, inner;
	struct far_future *f[3], *never;
	enum { MANY = 200 };
	CHECK(far_scope_begin(&outer) == FAR_OK);
	for (int i = 0; i < 2 * MANY; i++) {
		if (i == MANY)
			CHECK_STATUS(far_scope_end(&outer, 0, &err), FAR_OK, &err);
		if (i == MANY)
			CHECK(far_scope_begin(&outer) == FAR_OK);
		far_future_free(start(i % 2 ? "worker1" : "worker0", "t::twice", i));
	}
	/* The inner one gathers alone; a failed rpc_sync is nobody's. */
	f[0] = start("worker1", "t::fail", 1);
	CHECK(far_scope_begin(&inner) == FAR_OK);
	f[1] = start("worker1", "t::twice", 1);
	CHECK_STATUS(far_rpc_sync(agent, "worker1", "t::fail", FAR_ARGS(2), NULL, NULL, &err), FAR_DENIED, &err);
	CHECK_STATUS(far_scope_end(&inner, 0, &err), FAR_OK, &err);
	CHECK(far_future_done(f[1]));
	f[2] = start("worker1", "t::fail", 3);
	CHECK_STATUS(far_scope_end(&outer, 0, &err), FAR_DENIED, &err);
	CHECK(err.code == 1); /* the first, in the order of the calls */
	CHECK(far_future_done(f[0]) && far_future_done(f[2]));
	/* A limit; and after it the scope is over. */
	CHECK(far_scope_begin(&outer) == FAR_OK);
	never = start("worker1", "t::keep", 0);
	CHECK_STATUS(far_scope_end(&outer, FAR_MS, &err), FAR_PENDING, &err);
	CHECK_STATUS(far_scope_end(&outer, 0, &err), FAR_INVALID, &err);
	CHECK(far_scope_begin(&outer) == FAR_OK);
	far_future_free(start("worker1", "t::keep", 0));
	far_scope_abandon(&outer);
	release_all();
	CHECK(wait_int(never) == 7);
	/* Around a hold of the shard, and ended within. */
	CHECK(far_scope_begin(&outer) == FAR_OK);
	bool held = far_shard_acquire(agent, 20 * FAR_SEC, &err) == FAR_OK;
	far_future_free(start("worker1", "t::fail", 9));
	CHECK_STATUS(far_scope_end(&outer, 0, &err), FAR_DENIED, &err);
	CHECK(err.code == 9);
	if (held)
		far_shard_release(agent);
	for (int i = 0; i < 3; i++)
		far_future_free(f[i]);
	far_future_free(never);
}

/* What a handler starts on the thread that drives is not the thread's scope's. */
static struct far_future *by_handler;

static enum far_status starts_one(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_scope scope;
	CHECK(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, NULL, &by_handler, NULL) == FAR_OK);
	CHECK(far_scope_begin(&scope) == FAR_OK);
	struct far_future *f;
	CHECK(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, NULL, &f, NULL) == FAR_OK);
	far_future_free(f);
	struct far_err e;
	CHECK(far_scope_end(&scope, 0, &e) == FAR_WOULD_DEADLOCK);
	return far_return(req, NULL);
}

static void scope_and_handler(void)
{
	struct far_scope scope;
	bool held = far_shard_acquire(agent, 20 * FAR_SEC, &err) == FAR_OK;
	CHECK(far_scope_begin(&scope) == FAR_OK);
	CHECK_STATUS(far_rpc_sync(agent, "worker0", "t::starts_one", FAR_NOARGS, NULL, NULL, &err), FAR_OK, &err);
	CHECK_STATUS(far_scope_end(&scope, 0, &err), FAR_OK, &err);
	CHECK(!far_future_done(by_handler));
	if (held)
		far_shard_release(agent);
	release_all();
	CHECK(wait_int(by_handler) == 7);
	far_future_free(by_handler);
}

/* ---- many threads ---- */

static void *thread_main(void *arg)
{
	int64_t seed = (intptr_t)arg;
	struct far_err e;
	for (int round = 0; round < 30; round++) {
		struct far_future *f[6], *all, *child;
		struct far_scope scope;
		size_t index;
		CHECK(far_scope_begin(&scope) == FAR_OK);
		for (int i = 0; i < 6; i++) {
			struct far_val arg0 = far_int(seed + i);
			enum far_status status;
			while ((status = far_rpc_async(agent, i % 2 ? "worker1" : "worker0", "t::twice", &arg0, 1, NULL,
						       &f[i], &e)) == FAR_BUSY)
				usleep(100);
			CHECK_STATUS(status, FAR_OK, &e);
		}
		child = then(f[3], plus_one, NULL);
		CHECK(far_future_collect(f, 6, &all, &e) == FAR_OK);
		enum far_status status = far_future_wait_any(f, 6, 0, &index, &e);
		CHECK_STATUS(status, FAR_OK, &e);
		CHECK(index < 6 && far_future_done(f[index]));
		struct far_val v;
		CHECK_STATUS(far_future_wait(child, 0, &v, &e), FAR_OK, &e);
		CHECK(v.u.i == 2 * (seed + 3) + 1);
		if (round % 2)
			CHECK_STATUS(far_future_wait_all(f, 6, 0, &e), FAR_OK, &e);
		CHECK_STATUS(far_future_wait(all, 0, NULL, &e), FAR_OK, &e);
		for (int i = 0; i < 6; i++)
			far_future_free(f[i]);
		CHECK_STATUS(far_scope_end(&scope, 0, &e), FAR_OK, &e);
		far_future_free(all);
		far_future_free(child);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[4];
	for (intptr_t i = 0; i < 4; i++)
		CHECK(pthread_create(&t[i], NULL, thread_main, (void *)(i * 1000)) == 0);
	for (int i = 0; i < 4; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
}

/* ---- shutdown ---- */

static _Atomic int notified;

static enum far_status on_end(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	enum far_status status = far_future_value(parent, out, e);
	CHECK(status == FAR_SHUTDOWN || status == FAR_PEER_LOST);
	struct far_future *f;
	CHECK(far_rpc_async(agent, "worker1", "t::keep", FAR_NOARGS, NULL, &f, NULL) != FAR_OK);
	atomic_fetch_add(&notified, 1);
	return status;
}

static int pending_at_the_end(int rank)
{
	agent = check_join(&opts);
	if (rank == 0) {
		struct far_future *f[NEVER_MAX], *c[NEVER_MAX], *all;
		for (int i = 0; i < NEVER_MAX; i++) {
			f[i] = start("worker1", "t::keep", 0);
			c[i] = then(f[i], on_end, NULL);
			far_future_free(f[i]);
		}
		CHECK_STATUS(far_future_collect(c, NEVER_MAX, &all, &err), FAR_OK, &err);
		struct far_future *own, *waits;
		CHECK_STATUS(far_future_create(&own, &err), FAR_OK, &err);
		waits = then_fiber(own, hand_on, NULL);
		CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_value(waits, NULL, &err), FAR_SHUTDOWN, &err);
		CHECK_STATUS(far_future_set_value(own, NULL, &err), FAR_OK, &err);
		far_future_free(own);
		far_future_free(waits);
		CHECK(atomic_load(&notified) == NEVER_MAX);
		CHECK(far_future_done(all));
		CHECK(far_future_value(all, NULL, &err) != FAR_OK);
		for (int i = 0; i < NEVER_MAX; i++) {
			CHECK(far_future_done(c[i]));
			far_future_free(c[i]);
		}
		far_future_free(all);
		return 0;
	}
	far_shutdown(agent, 0, &err); /* says that worker0 is gone, or not */
	return 0;
}

static const struct far_function table[] = {
	{"t::twice(int x) -> int", FAR_KIND_INLINE, handler_twice, NULL},
	{"t::fail(int code) -> none", FAR_KIND_INLINE, failing, NULL},
	{"t::keep() -> int", FAR_KIND_INLINE, keep, NULL},
	{"t::release() -> none", FAR_KIND_INLINE, release_kept, NULL},
	{"t::starts_one() -> none", FAR_KIND_INLINE, starts_one, NULL},
};

static int everything(int rank)
{
	agent = check_join(&opts);
	if (rank == 0) {
		struct far_counters c;
		children("worker1");
		children("worker0");
		callbacks();
		waiting_callbacks();
		several();
		while_holding();
		scopes();
		scope_and_handler();
		threads();
		far_counters_read(agent, &c);
		CHECK(c.calls_active == 0 && c.packets_dropped == 0);
	}
	check_leave(agent);
	return 0;
}

int main(void)
{
	static const struct {
		enum far_progress progress;
		enum far_idle idle;
	} ways[] = {{FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE}, {FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE}};
	opts = (struct far_opts){
		.functions = table, .functions_n = 5, .fibers = FIBERS, .rpc_timeout_ns = 30 * FAR_SEC};
	for (int i = 0; i < 2; i++) {
		opts.progress = ways[i].progress;
		opts.idle = ways[i].idle;
		struct spawned s = spawn(2, everything);
		if (spawn_wait(&s, -1))
			return 1;
		s = spawn(2, pending_at_the_end);
		if (spawn_wait(&s, -1))
			return 1;
	}
	return 0;
}
