/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A million calls of every sort between two workers, on threads that may make the declared system calls only, and
 * neither allocate nor lock: with FAR_PROGRESS_DEDICATED the shards' own threads; with FAR_PROGRESS_SHARED an
 * application thread as well, that waits and so drives. Then fewer between workers of two shards. usage: clean_path
 * [CALLS]
 */
#include "calls.h"
#include "e2e/api_spawn.h"
#include "planted.h"
#include "watch.h"

#include <stdatomic.h>

enum { CALLS = 1000000, DRIVES = 4, HANG_S = 300 };

static unsigned long goal;
static enum far_progress progress;
static unsigned shards;
static struct far_future *arming;
/* The other worker's question whether this one is done. */
static _Atomic(struct far_deferred *) deferred;
static _Atomic bool over;
/* A handler may be called before far_init_rpc() has returned here, and before all threads are watched. */
enum stage { STARTED, JOINED, ARMED };
static _Atomic int stage;

enum far_status calls_arm(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	watch_thread(progress == FAR_PROGRESS_SHARED);
	if (arming && far_req_from(req).worker == calls.rank)
		CHECK(far_future_set_value(arming, NULL, NULL) == FAR_OK);
	return far_return(req, NULL);
}

/* Any shard, any thread: the second caller answers. */
static void answer_end(void)
{
	struct far_deferred *d = atomic_load(&over) ? atomic_exchange(&deferred, NULL) : NULL;
	if (d)
		far_deferred_return(d, NULL);
}

enum far_status calls_stage(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val v = far_int(atomic_load(&stage));
	return far_return(req, &v);
}

enum far_status calls_end(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_deferred *d;
	CHECK(far_defer(req, &d) == FAR_OK);
	atomic_store(&deferred, d);
	answer_end();
	return FAR_OK;
}

static void end_on_shard(struct far_future *f, void *user)
{
	atomic_store(&over, true);
	answer_end();
}

static struct far_to own(unsigned shard)
{
	return (struct far_to){calls.rank, (int32_t)shard};
}

/* The poller runs the handler while the application sleeps on what no shard completes. */
static void arm_poller(void)
{
	struct far_err e;
	struct far_future *f;
	CHECK_STATUS(far_future_create(&arming, &e), FAR_OK, &e);
	CHECK_STATUS(far_rpc_async_to(calls.agent, own(0), "clean::arm", FAR_NOARGS, NULL, &f, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(arming, 0, NULL, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &e), FAR_OK, &e);
	far_future_free(f);
	far_future_free(arming);
	arming = NULL;
}

static void await_other(enum stage reached)
{
	struct far_val there = {0};
	struct far_err e;
	atomic_store(&stage, (int)reached);
	do {
		usleep(200);
		CHECK_STATUS(far_rpc_sync_to(calls.agent, (struct far_to){!calls.rank, 0}, "clean::stage", FAR_NOARGS,
					     NULL, &there, &e),
			     FAR_OK, &e);
	} while (there.u.i < (int)reached);
}

static void arm(void)
{
	struct far_err e;
	if (progress == FAR_PROGRESS_SHARED) {
		arm_poller();
		watch_thread(true);
	}
	for (unsigned i = 0; i < shards && progress == FAR_PROGRESS_DEDICATED; i++)
		CHECK_STATUS(far_rpc_sync_to(calls.agent, own(i), "clean::arm", FAR_NOARGS, NULL, NULL, &e), FAR_OK,
			     &e);
	/* The other's handlers look whether their thread is watched. */
	for (unsigned i = 0; i < shards; i++)
		CHECK_STATUS(far_rpc_sync_to(calls.agent, (struct far_to){!calls.rank, (int32_t)i}, "clean::arm",
					     FAR_NOARGS, NULL, NULL, &e),
			     FAR_OK, &e);
}

static void drive(void)
{
	struct far_call_opts no_limit = {.timeout_ns = FAR_FOREVER};
	struct far_future *f[CALLS_SHARDS_MAX * DRIVES], *all;
	struct far_err e;
	unsigned n = shards * DRIVES;
	for (unsigned i = 0; i < n; i++)
		CHECK_STATUS(far_rpc_async_to(calls.agent, own(i % shards), "clean::drive",
					      FAR_ARGS((unsigned)calls.rank * n + i), &no_limit, &f[i], &e),
			     FAR_OK, &e);
	CHECK_STATUS(far_future_collect(f, n, &all, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_on_done(all, end_on_shard, NULL, &e), FAR_OK, &e);
	CHECK_STATUS(far_future_wait(all, FAR_FOREVER, NULL, &e), FAR_OK, &e);
	far_future_free(all);
	for (unsigned i = 0; i < n; i++)
		far_future_free(f[i]);
}

/* Is there some of every sort. */
static bool report(void)
{
	bool good = true;
	for (unsigned i = 0; i < shards; i++) {
		const struct calls_made *m = &calls.made[i];
		struct far_counters c;
		struct far_err e;
		CHECK_STATUS(far_shard_counters_read(calls.agent, i, &c, &e), FAR_OK, &e);
		watch_print("worker %d, driver %s, shard %u: %lu calls (typed %lu, messages %lu, nested %lu, deferred "
			    "%lu, cancelled %lu, timed out %lu, failed %lu, with retry %lu; of 1 MiB %lu), slept %llu "
			    "times\n",
			    calls.rank, progress == FAR_PROGRESS_DEDICATED ? "own" : "shared", i, m->n, m->typed,
			    m->messages, m->nested, m->deferred, m->cancelled, m->timed_out, m->failed, m->repeated,
			    m->large, (unsigned long long)c.wakeups);
		good = good && m->n >= goal && m->typed && m->messages && m->nested && m->deferred && m->cancelled &&
		       m->timed_out && m->failed && m->repeated && m->large;
	}
	return good;
}

static int worker(int rank)
{
	struct far_call_opts no_limit = {.timeout_ns = FAR_FOREVER};
	struct far_opts opts = {.progress = progress, .shards = shards};
	struct far_err e;
	watch_init();
	calls_handlers(rank, &opts);
	calls.rank = rank;
	calls.shards = shards;
	calls.shared = progress == FAR_PROGRESS_SHARED;
	calls.goal = goal;
	calls.agent = check_join(&opts);
	alarm(HANG_S);
	await_other(JOINED);
	arm();
	await_other(ARMED);
	drive();
	/* A watched thread cannot end: so nobody shuts down, and the first to leave looks lost to the second. */
	enum far_status status =
		far_rpc_sync_to(calls.agent, (struct far_to){!rank, 0}, "clean::end", FAR_NOARGS, &no_limit, NULL, &e);
	if (status != FAR_PEER_LOST)
		CHECK_STATUS(status, FAR_OK, &e);
	return report() ? 0 : 1;
}

/* The bad status of the two, whose end is the other's too: what the first did that was not allowed comes first. */
static int run(enum far_progress how, unsigned shards_n, unsigned long calls_n)
{
	progress = how;
	shards = shards_n;
	goal = calls_n / (2 * shards_n);
	spawn(2, worker);
	int bad = 0;
	for (int left = 2; left > 0; left--) {
		int status;
		CHECK(wait(&status) > 0);
		int one = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
		if (!bad || one == WATCH_STATUS)
			bad = one;
	}
	return bad;
}

static int run_planted(enum far_progress how)
{
	return run(how, 1, CALLS);
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : CALLS;
	if (planted_n)
		return planted_check(run_planted);
	if (n < 40000) { /* the rare sorts would not come */
		fprintf(stderr, "usage: clean_path [CALLS], 40000 or more\n");
		return 2;
	}
	int bad = run(FAR_PROGRESS_DEDICATED, 1, n);
	if (!bad)
		bad = run(FAR_PROGRESS_SHARED, 1, n);
	return bad ? bad : run(FAR_PROGRESS_DEDICATED, 2, n / 4 > 80000 ? n / 4 : 80000);
}
