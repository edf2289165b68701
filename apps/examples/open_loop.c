/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * An open-loop client: requests arrive at random at a given rate, whatever the answers do, and the latency of each is
 * counted from the time at which it was due. A client that waits for each answer sends nothing while the server is
 * slow, and so does not see how slow it is. Main thread of each worker; handlers run on shard threads.
 *
 *	farcall run -n 2 -- ./open_loop [RATE] [SECONDS]
 */
#include "args.h"

#include <farcall/farcall.h>

#include <math.h>
#include <stdatomic.h>
#include <time.h>

#define CALLS_MAX 1000000

/* The server: some work for each request. */
FAR_HANDLER(work)
{
	uint64_t x = (uint64_t)args[0].u.i;
	for (int i = 0; i < 200; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	return far_return_int(req, (int64_t)(x >> 1));
}

static const struct far_function functions[] = {{"demo::work(int x) -> int", FAR_KIND_INLINE, work, NULL, 0}};

/* ---- the client ---- */

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * FAR_SEC + (uint64_t)t.tv_nsec;
}

static uint64_t due[CALLS_MAX], latency[CALLS_MAX];
static _Atomic size_t answered, failed;

/* Runs on the thread that polls the shard. */
static void on_answer(struct far_future *f, void *user)
{
	uint64_t *at = user;
	struct far_err err;
	if (far_future_wait(f, 0, NULL, &err)) /* it is complete: this returns at once */
		atomic_fetch_add(&failed, 1);
	latency[at - due] = now_ns() - *at;
	atomic_fetch_add(&answered, 1);
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Exponential times between requests: a Poisson process. */
static size_t plan(double rate, double seconds)
{
	uint64_t begin = now_ns() + FAR_MS;
	size_t n = 0;
	srand48(1);
	for (double at = 0; n < CALLS_MAX; n++) {
		at -= log(1 - drand48()) / rate;
		if (at >= seconds)
			break;
		due[n] = begin + (uint64_t)(at * 1e9);
	}
	return n;
}

static enum far_status client(struct far_agent *agent, double rate, double seconds, struct far_err *err)
{
	size_t n = plan(rate, seconds), late = 0;
	for (size_t i = 0; i < n; i++) {
		struct timespec at = {(time_t)(due[i] / FAR_SEC), (long)(due[i] % FAR_SEC)};
		struct far_future *f;
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
		late += now_ns() > due[i] + FAR_MS;
		if (far_rpc_async(agent, "worker1", "demo::work", FAR_ARGS((int64_t)i), NULL, &f, err))
			return err->status;
		enum far_status status = far_future_on_done(f, on_answer, &due[i], err);
		far_future_free(f); /* the callback keeps it */
		if (status)
			return status;
	}
	while (atomic_load(&answered) < n) { /* each call ends, by its time-out at the latest */
		const struct timespec ms = {0, 1000000};
		nanosleep(&ms, NULL);
	}
	if (n == 0)
		return FAR_OK;
	qsort(latency, n, sizeof latency[0], by_value);
	printf("%zu calls, %zu failed, %zu begun more than 1 ms late\n", n, atomic_load(&failed), late);
	printf("latency from the time due, us: p50 %.1f, p99 %.1f, max %.1f\n", (double)latency[n / 2] / 1e3,
	       (double)latency[n * 99 / 100] / 1e3, (double)latency[n - 1] / 1e3);
	return FAR_OK;
}

int main(int argc, char **argv)
{
	unsigned rate = 5000, seconds = 1;
	const struct arg args[] = {{"RATE", "calls per second", &rate, 1, 100000},
				   {"SECONDS", "for so long", &seconds, 1, 10}};
	struct far_opts opts = {.functions = functions, .functions_n = 1};
	struct far_agent *agent;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 2 -- ", "Latency of requests that arrive at random.", args, 2);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, &opts, &agent, &err))
		return far_err_print(stderr, &err);
	if (far_world_size(agent) < 2) {
		fprintf(stderr, "open_loop: it needs two workers: farcall run -n 2 -- ./open_loop\n");
		return 2;
	}
	bool bad = far_self(agent).worker == 0 ? client(agent, rate, seconds, &err) : far_serve(agent, 0, &err);
	if (bad)
		far_err_print(stderr, &err);
	return far_shutdown(agent, 0, &err) || bad;
}
