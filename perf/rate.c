/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf rate`: a number of calls in flight, sent again as they complete, on each shard. The shards' threads.
 */
#include "flow.h"
#include "load.h"
#include "rounds.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOOK     16            /* passes between two looks at the clock */
#define DRAIN_NS (5 * FAR_SEC) /* for the calls in flight at the end */

/* Typed calls: a window, oldest first. */
struct window {
	uint64_t sent;
	bool failed;
	struct far_err err;
	struct far_future *future[PEER_INFLIGHT_MAX];
	uint64_t at[PEER_INFLIGHT_MAX];
};

struct rate;

/* What one shard of ours does, by a thread of its own. */
struct lane {
	struct rate *rate;
	unsigned shard;
	int cpu;
	bool held;
	pthread_t thread;
	struct flow flow;
	struct window window;
	struct hist samples;
	uint64_t calls, busy_ns;
	bool failed;
	struct far_err err;
};

struct rate {
	struct rounds *rounds;
	unsigned char *request;
	struct far_tensor a, b;
	unsigned lanes_n;
	struct lane *lanes;
	uint64_t ns; /* of the present measurement */
	pthread_barrier_t together;
};

static void window_fail(struct window *w, const struct far_err *err)
{
	if (!w->failed)
		w->err = *err;
	w->failed = true;
}

static void window_fill(struct lane *l, uint64_t done)
{
	const struct rate *r = l->rate;
	struct window *w = &l->window;
	struct far_call_opts opts = {.via = FAR_VIA(l->shard)};
	uint64_t inflight = r->rounds->o->inflight;
	while (w->sent - done < inflight) {
		struct far_err err;
		uint64_t i = w->sent % inflight;
		enum far_status status =
			far_rpc_async_to(r->rounds->peer.agent, peer_to(&r->rounds->peer, l->shard), "far::add",
					 FAR_ARGS(&r->a, &r->b), l->held ? NULL : &opts, &w->future[i], &err);
		if (status != FAR_OK) {
			if (status != FAR_BUSY)
				window_fail(w, &err);
			return;
		}
		/* As with messages, one of a window is timed. */
		w->at[i] = i == 0 ? floor_now() : 0;
		w->sent++;
	}
}

/* Takes the oldest while they are complete. */
static uint64_t window_take(struct lane *l, uint64_t done)
{
	struct window *w = &l->window;
	for (; done < w->sent; done++) {
		uint64_t i = done % l->rate->rounds->o->inflight;
		struct far_err err;
		if (!far_future_done(w->future[i]))
			break;
		if (w->at[i])
			hist_record(&l->samples, floor_now() - w->at[i]);
		if (far_future_value(w->future[i], NULL, &err) != FAR_OK)
			window_fail(w, &err);
		far_future_free(w->future[i]);
	}
	return done;
}

static uint64_t window_step(struct lane *l, uint64_t done)
{
	struct window *w = &l->window;
	struct far_future *oldest = done < w->sent ? w->future[done % l->rate->rounds->o->inflight] : NULL;
	if (l->held)
		for (int i = 0; i < LOOK && oldest && !far_future_done(oldest); i++)
			far_shard_poll_at(l->rate->rounds->peer.agent, l->shard);
	else if (oldest)
		far_future_wait(oldest, FAR_SEC, NULL, NULL);
	return window_take(l, done);
}

static void window_run(struct lane *l, uint64_t ns)
{
	struct window *w = &l->window;
	uint64_t start = floor_now(), now = start, first = w->sent, done = first;
	while (now - start < ns && !w->failed) {
		window_fill(l, done);
		done = window_step(l, done);
		now = floor_now();
	}
	l->calls += done - first;
	l->busy_ns += now - start;
	uint64_t stop = now + DRAIN_NS;
	while (done < w->sent && floor_now() < stop)
		done = window_step(l, done);
	if (done < w->sent)
		window_fail(w, &(struct far_err){.status = FAR_TIMEOUT, .text = "calls in flight were never answered"});
}

static void lane_run(struct lane *l)
{
	const struct rounds *r = l->rate->rounds;
	if (r->o->api == PERF_API_RPC) {
		window_run(l, l->rate->ns);
		l->failed = l->window.failed;
		l->err = l->window.err;
		return;
	}
	int handler = r->base_now ? PERF_HANDLER_INLINE : r->o->handler;
	struct flow *f = &l->flow;
	f->agent = r->peer.agent;
	f->to = peer_to(&r->peer, l->shard);
	f->shard = l->shard;
	f->held = l->held;
	f->id = (uint16_t)(SERVER_SINK + 2 * handler);
	f->request = l->rate->request;
	f->bytes = r->o->bytes;
	f->inflight = r->o->inflight;
	f->samples = &l->samples;
	l->failed = flow_run(f, l->rate->ns, &l->calls, &l->busy_ns) != 0;
	l->err = f->err;
}

/* Of the shards beyond the first. */
static void *lane_main(void *arg)
{
	struct lane *l = arg;
	struct rate *r = l->rate;
	struct far_agent *agent = r->rounds->peer.agent;
	perf_pin(l->cpu);
	bool hold = r->rounds->o->via == PERF_VIA_DIRECT;
	l->held = hold && far_shard_acquire_at(agent, l->shard, 0, &l->err) == FAR_OK;
	l->failed = hold && !l->held;
	pthread_barrier_wait(&r->together);
	if (!l->failed)
		lane_run(l);
	if (l->held)
		far_shard_release_at(agent, l->shard);
	return NULL;
}

static void lane_add(struct rounds *rounds, struct lane *l, uint64_t *longest)
{
	rounds->calls_n += l->calls;
	if (l->busy_ns > *longest)
		*longest = l->busy_ns;
	hist_merge(&rounds->round, &l->samples);
	l->calls = l->busy_ns = 0;
	hist_reset(&l->samples);
}

static int measure(struct rounds *rounds, uint64_t ns, void *ctx)
{
	struct rate *r = ctx;
	uint64_t longest = 0;
	unsigned started = 1;
	int rc = 0;
	r->ns = ns;
	pthread_barrier_init(&r->together, NULL, r->lanes_n);
	for (; started < r->lanes_n; started++)
		if (pthread_create(&r->lanes[started].thread, NULL, lane_main, &r->lanes[started])) {
			fprintf(stderr, "%s: cannot start the thread of shard %u\n", rounds->o->what, started);
			exit(1); /* those that were started wait for it */
		}
	if (r->lanes_n > 1)
		pthread_barrier_wait(&r->together);
	lane_run(&r->lanes[0]);
	for (unsigned i = 1; i < started; i++)
		pthread_join(r->lanes[i].thread, NULL);
	pthread_barrier_destroy(&r->together);
	for (unsigned i = 0; i < r->lanes_n; i++) {
		if (r->lanes[i].failed && rc == 0)
			rc = peer_complain(rounds->o, &r->lanes[i].err);
		lane_add(rounds, &r->lanes[i], &longest);
	}
	rounds->busy_ns += longest;
	return rc;
}

static double ratio(const struct rounds *r, uint64_t calls, uint64_t ns)
{
	double per_s = (double)calls * 1e9 / (double)ns / (double)r->o->shards;
	return rounds_bulk(r->o) ? per_s * (double)r->o->bytes / r->bytes_per_s[r->n] : per_s / r->calls_per_s[r->n];
}

static int prepare(struct rate *r, const struct perf_opts *o)
{
	r->lanes_n = (unsigned)o->shards;
	r->request = calloc(1, o->bytes);
	r->lanes = calloc(r->lanes_n, sizeof *r->lanes);
	if (!r->request || !r->lanes) {
		fprintf(stderr, "%s: out of memory for %llu bytes\n", o->what, (unsigned long long)o->bytes);
		return 1;
	}
	for (unsigned i = 0; i < r->lanes_n; i++)
		r->lanes[i] = (struct lane){.rate = r, .shard = i, .cpu = perf_cpu(2 * i)};
	r->lanes[0].held = o->via == PERF_VIA_DIRECT;
	r->a = r->b = far_tensor_1d(FAR_F32, r->request, o->bytes / sizeof(float));
	return 0;
}

int perf_rate(const struct perf_opts *given)
{
	static struct rounds rounds; /* both are large for a stack */
	static struct rate r;
	struct perf_opts o = *given;
	if (o.bytes == 0)
		o.bytes = o.api == PERF_API_RPC ? 8 : 32;
	if (o.rates.n)
		return perf_load(&o, o.api == PERF_API_RPC ? LOAD_CALL : LOAD_MESSAGE);
	rounds.o = &o;
	rounds.base = o.handler != PERF_HANDLER_INLINE ? "inline" : NULL;
	r.rounds = &rounds;
	int rc = prepare(&r, &o);
	if (rc == 0)
		rc = peer_open(&rounds.peer, &o);
	if (rc == 0) {
		rc = rounds_run(&rounds, true, measure, ratio, &r);
		if (rc == 0)
			rounds_report(&rounds, true);
		int close_rc = peer_close(&rounds.peer, &o);
		rc = rc ? rc : close_rc;
	}
	free(r.lanes);
	free(r.request);
	return rc;
}
