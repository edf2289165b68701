/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Two agents in one process, each with handlers that wait for the other's, called by several threads that drive by
 * turns, so that handlers park on one thread and go on on another; deadlines end some of them on the way. Both ends
 * share one mapping of their rings, so a race detector sees all of it.
 */
#include "api_together.h"

#include <stdatomic.h>

enum { CALLERS = 3, CALLS = 120, DEPTH = 6 };

static struct together both[2];
static struct far_future *_Atomic shared_future; /* of agent 0, waited for by handlers of agent 1 */
static struct far_deferred *_Atomic kept;
static atomic_int given_up, answered;

static int rank_of(const struct far_req *req)
{
	return far_req_agent(req) == both[0].agent ? 0 : 1;
}

/* By turns through the network and through the other agent of this process, whose shard this thread may get to drive
 * on the fiber's stack. */
static enum far_status descend(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	int64_t level = args[0].u.i;
	int me = rank_of(req);
	struct far_agent *a = level % 3 == 2 ? both[1 - me].agent : both[me].agent;
	struct far_val out = {0}, v;
	struct far_err e;
	enum far_status status = FAR_OK;
	if (level > 0)
		status = far_rpc_sync(a, level % 2 ? "worker0" : "worker1", user, FAR_ARGS(level - 1), NULL, &out, &e);
	if (status)
		return status;
	v = far_int(level > 0 ? out.u.i + 1 : 0);
	return far_return(req, &v);
}

/* Waits with limits for a future of the other agent, until it is done or the caller gives up. */
static enum far_status awaits(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = {0};
	struct far_err e;
	enum far_status status;
	struct far_future *f = atomic_load(&shared_future);
	do
		status = far_future_wait(f, 100 * FAR_US, &out, &e);
	while (status == FAR_PENDING);
	CHECK(status == FAR_OK || status == FAR_CANCELLED);
	CHECK(status == FAR_OK || far_req_cancelled(req));
	atomic_fetch_add(status ? &given_up : &answered, 1);
	return far_return(req, &out);
}

static enum far_status keep(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	CHECK(far_defer(req, &d) == FAR_OK);
	atomic_store(&kept, d);
	return FAR_OK;
}

/* ---- threads ---- */

struct caller {
	pthread_t thread;
	int number;
};

static void one_call(struct far_agent *a, int i)
{
	static const char *const functions[] = {"t::fiber", "t::blocking", "t::fiber"};
	struct far_call_opts soon = {.timeout_ns = (uint64_t)(i % 7 + 1) * 50 * FAR_US};
	struct far_val out = {0};
	struct far_err e;
	if (i % 4 == 3) { /* it may be in time */
		enum far_status status =
			far_rpc_sync(a, i % 8 == 3 ? "worker0" : "worker1", "t::awaits", FAR_NOARGS, &soon, NULL, &e);
		CHECK_STATUS(status, FAR_TIMEOUT, &e);
		return;
	}
	/* Blocking handlers wait for one another: no deeper than there are threads for. */
	int depth = i % 3 == 1 ? 1 : i % DEPTH;
	CHECK_STATUS(far_rpc_sync(a, i % 2 ? "worker0" : "worker1", functions[i % 3], FAR_ARGS(depth), NULL, &out, &e),
		     FAR_OK, &e);
	CHECK(out.u.i == depth);
}

static void *caller_main(void *arg)
{
	const struct caller *c = arg;
	struct far_agent *a = both[c->number % 2].agent;
	struct far_err e;
	for (int i = 0; i < CALLS; i++) {
		one_call(a, i + c->number);
		if (i % 20 == 7 && far_shard_acquire(a, 0, &e) == FAR_OK) {
			far_shard_poll(a);
			far_shard_release(a);
		}
	}
	return NULL;
}

/* Handlers of agent 1 that wait for a call of agent 0, completed by a thread that has nothing to do with either. */
static void completion_by_another_thread(void)
{
	enum { WAITERS = 20 };
	struct far_future *f[WAITERS];
	struct far_err e;
	struct far_val out = {0}, five = far_int(5);
	for (int i = 0; i < WAITERS; i++)
		CHECK_STATUS(far_rpc_async(both[i % 2].agent, "worker1", "t::awaits", FAR_NOARGS, NULL, &f[i], &e),
			     FAR_OK, &e);
	usleep(2000);
	CHECK(far_deferred_return(atomic_exchange(&kept, NULL), &five) == FAR_OK);
	for (int i = 0; i < WAITERS; i++) {
		CHECK_STATUS(far_future_wait(f[i], 0, &out, &e), FAR_OK, &e);
		CHECK(out.u.i == 5);
		far_future_free(f[i]);
	}
}

static void none_open(void)
{
	for (int i = 0; i < 2; i++) {
		struct far_counters c;
		do {
			usleep(500);
			far_counters_read(both[i].agent, &c);
		} while (c.requests_active);
	}
}

static void run(enum far_progress progress, enum far_idle idle)
{
	static const char fiber[] = "t::fiber", blocking[] = "t::blocking";
	static const struct far_function functions[] = {
		{"t::fiber(int depth) -> int", FAR_KIND_FIBER, descend, (void *)(uintptr_t)fiber},
		{"t::blocking(int depth) -> int", FAR_KIND_BLOCKING, descend, (void *)(uintptr_t)blocking},
		{"t::awaits() -> int", FAR_KIND_FIBER, awaits, NULL},
		{"t::keep() -> int", FAR_KIND_INLINE, keep, NULL},
	};
	struct caller callers[2 * CALLERS];
	struct far_future *f;
	struct far_err e;
	for (int i = 0; i < 2; i++)
		both[i] = (struct together){.rank = i,
					    .world = 2,
					    .opts = {.functions = functions,
						     .functions_n = sizeof functions / sizeof *functions,
						     .blocking_threads = 2 * 2 * CALLERS,
						     .progress = progress,
						     .idle = idle}};
	together_all(both, 2, together_join);
	CHECK_STATUS(far_rpc_async(both[0].agent, "worker0", "t::keep", FAR_NOARGS, NULL, &f, &e), FAR_OK, &e);
	atomic_store(&shared_future, f);
	while (!atomic_load(&kept))
		usleep(100);
	for (int i = 0; i < 2 * CALLERS; i++) {
		callers[i].number = i;
		CHECK(pthread_create(&callers[i].thread, NULL, caller_main, &callers[i]) == 0);
	}
	for (int i = 0; i < 2 * CALLERS; i++)
		CHECK(pthread_join(callers[i].thread, NULL) == 0);
	completion_by_another_thread();
	none_open();
	far_future_free(f);
	together_all(both, 2, together_leave);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	together_listen();
	run(FAR_PROGRESS_SHARED, FAR_IDLE_ADAPTIVE);
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_ADAPTIVE);
	run(FAR_PROGRESS_DEDICATED, FAR_IDLE_BUSY);
	CHECK(atomic_load(&answered) > 0);
	return 0;
}
