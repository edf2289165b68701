/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf rate`: as many calls in flight as asked for, sent again as they complete. */
#include "rounds.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define LOOK     16            /* passes between two looks at the clock */
#define DRAIN_NS (5 * FAR_SEC) /* for the calls in flight at the end */

struct rate;

/* What a completion finds: is it the one call at a time whose duration is taken? Clocks around all of them would be a
 * good part of their cost. */
struct mark {
	struct rate *rate;
	uint64_t sent_at; /* of the sampled call */
};

struct rate {
	struct rounds *rounds;
	unsigned char *request;
	struct far_tensor a, b;
	struct mark plain, sample;
	_Atomic bool sampling;
	uint64_t sent;         /* by the thread that sends */
	_Atomic uint64_t done; /* by the thread that holds the shard; release, pairs with completed() */
	bool resend;           /* the completion sends the next one: this thread holds the shard */
	_Atomic bool failed;   /* release: `err` is written; acquire by whoever prints it */
	struct far_err err;
	/* Typed calls: a window, oldest first. */
	struct far_future *window[PEER_INFLIGHT_MAX];
	uint64_t window_at[PEER_INFLIGHT_MAX];
};

static uint64_t completed(struct rate *r)
{
	return atomic_load_explicit(&r->done, memory_order_acquire);
}

static void fail(struct rate *r, const struct far_err *err)
{
	if (atomic_load_explicit(&r->failed, memory_order_relaxed))
		return;
	r->err = *err;
	atomic_store_explicit(&r->failed, true, memory_order_release);
}

static bool send_one(struct rate *r);

static void on_done(void *user, enum far_status status, const void *data, size_t len, const struct far_err *err)
{
	struct mark *m = user;
	struct rate *r = m->rate;
	(void)data;
	(void)len;
	if (m == &r->sample) {
		hist_record(&r->rounds->round, floor_now() - m->sent_at);
		atomic_store_explicit(&r->sampling, false, memory_order_release); /* pairs with send_one() */
	}
	if (status != FAR_OK)
		fail(r, err);
	/* One writer: no read-modify-write is needed. */
	atomic_store_explicit(&r->done, atomic_load_explicit(&r->done, memory_order_relaxed) + 1, memory_order_release);
	if (r->resend)
		send_one(r);
}

/* False: back-pressure, or an error, kept in `r`. */
static bool send_one(struct rate *r)
{
	const struct perf_opts *o = r->rounds->o;
	struct far_err err;
	struct mark *m = &r->plain;
	if (!atomic_load_explicit(&r->sampling, memory_order_acquire)) {
		m = &r->sample;
		m->sent_at = floor_now();
		atomic_store_explicit(&r->sampling, true, memory_order_relaxed);
	}
	enum far_status status =
		far_msg_send(r->rounds->peer.agent, peer_to(), PEER_SINK, r->request, o->bytes, NULL, on_done, m, &err);
	if (status == FAR_OK) {
		r->sent++;
		return true;
	}
	if (m == &r->sample)
		atomic_store_explicit(&r->sampling, false, memory_order_relaxed);
	if (status != FAR_BUSY)
		fail(r, &err);
	return false;
}

static void fill(struct rate *r, uint64_t inflight)
{
	while (r->sent - completed(r) < inflight && send_one(r))
		;
}

static void progress(struct rate *r)
{
	if (r->rounds->o->via == PERF_VIA_DIRECT) {
		for (int i = 0; i < LOOK; i++)
			far_shard_poll(r->rounds->peer.agent);
		return;
	}
	uint64_t before = completed(r);
	for (unsigned i = 0; i < FLOOR_SPINS; i++)
		if (completed(r) != before)
			return;
	sched_yield();
}

static int measure_message(struct rate *r, uint64_t ns)
{
	uint64_t start = floor_now(), now = start, first = completed(r), end = first;
	r->resend = r->rounds->o->via == PERF_VIA_DIRECT;
	while (now - start < ns && !atomic_load_explicit(&r->failed, memory_order_acquire)) {
		fill(r, r->rounds->o->inflight);
		progress(r);
		now = floor_now();
		end = completed(r);
	}
	r->rounds->calls_n += end - first;
	r->rounds->busy_ns += now - start;
	r->resend = false;
	uint64_t stop = floor_now() + DRAIN_NS;
	while (completed(r) != r->sent && floor_now() < stop)
		progress(r);
	if (completed(r) != r->sent)
		fail(r, &(struct far_err){.status = FAR_TIMEOUT, .text = "calls in flight were never answered"});
	return atomic_load_explicit(&r->failed, memory_order_acquire);
}

static void window_fill(struct rate *r, uint64_t done)
{
	const struct perf_opts *o = r->rounds->o;
	while (r->sent - done < o->inflight) {
		struct far_err err;
		uint64_t i = r->sent % o->inflight;
		enum far_status status = far_rpc_async_to(r->rounds->peer.agent, peer_to(), "far::add",
							  FAR_ARGS(&r->a, &r->b), NULL, &r->window[i], &err);
		if (status != FAR_OK) {
			if (status != FAR_BUSY)
				fail(r, &err);
			return;
		}
		/* As with messages, one of a window is timed. */
		r->window_at[i] = i == 0 ? floor_now() : 0;
		r->sent++;
	}
}

/* Takes the oldest while they are complete. */
static uint64_t window_take(struct rate *r, uint64_t done)
{
	const struct perf_opts *o = r->rounds->o;
	for (; done < r->sent; done++) {
		uint64_t i = done % o->inflight;
		struct far_err err;
		if (!far_future_done(r->window[i]))
			break;
		if (r->window_at[i])
			hist_record(&r->rounds->round, floor_now() - r->window_at[i]);
		if (far_future_value(r->window[i], NULL, &err) != FAR_OK)
			fail(r, &err);
		far_future_free(r->window[i]);
	}
	return done;
}

static uint64_t window_step(struct rate *r, uint64_t done)
{
	if (r->rounds->o->via == PERF_VIA_DIRECT)
		for (int i = 0;
		     i < LOOK && done < r->sent && !far_future_done(r->window[done % r->rounds->o->inflight]); i++)
			far_shard_poll(r->rounds->peer.agent);
	else if (done < r->sent)
		far_future_wait(r->window[done % r->rounds->o->inflight], FAR_SEC, NULL, NULL);
	return window_take(r, done);
}

static int measure_rpc(struct rate *r, uint64_t ns)
{
	uint64_t start = floor_now(), now = start, first = r->sent, done = first;
	while (now - start < ns && !atomic_load_explicit(&r->failed, memory_order_relaxed)) {
		window_fill(r, done);
		done = window_step(r, done);
		now = floor_now();
	}
	r->rounds->calls_n += done - first;
	r->rounds->busy_ns += now - start;
	uint64_t stop = now + DRAIN_NS;
	while (done < r->sent && floor_now() < stop)
		done = window_step(r, done);
	if (done < r->sent)
		fail(r, &(struct far_err){.status = FAR_TIMEOUT, .text = "calls in flight were never answered"});
	return atomic_load_explicit(&r->failed, memory_order_relaxed);
}

static int measure(struct rounds *rounds, uint64_t ns, void *ctx)
{
	struct rate *r = ctx;
	int failed = rounds->o->api == PERF_API_RPC ? measure_rpc(r, ns) : measure_message(r, ns);
	if (failed) {
		fprintf(stderr, "%s: ", rounds->o->what);
		far_err_print(stderr, &r->err);
	}
	return failed;
}

static double ratio(const struct rounds *r, uint64_t calls, uint64_t ns)
{
	double per_s = (double)calls * 1e9 / (double)ns;
	return rounds_bulk(r->o) ? per_s * (double)r->o->bytes / r->copy_bytes_per_s[r->n]
				 : per_s / r->ring_calls_per_s[r->n];
}

int perf_rate(const struct perf_opts *given)
{
	static struct rounds rounds; /* both are large for a stack */
	static struct rate r;
	struct perf_opts o = *given;
	if (o.bytes == 0)
		o.bytes = o.api == PERF_API_RPC ? 8 : 32;
	rounds.o = &o;
	r.rounds = &rounds;
	r.plain.rate = r.sample.rate = &r;
	r.request = calloc(1, o.bytes);
	if (!r.request) {
		fprintf(stderr, "%s: out of memory for %llu bytes\n", o.what, (unsigned long long)o.bytes);
		return 1;
	}
	r.a = r.b = far_tensor_1d(FAR_F32, r.request, o.bytes / sizeof(float));
	int rc = peer_open(&rounds.peer, &o);
	if (rc == 0) {
		rc = rounds_run(&rounds, true, measure, ratio, &r);
		if (rc == 0)
			rounds_report(&rounds, true);
		int close_rc = peer_close(&rounds.peer, &o);
		rc = rc ? rc : close_rc;
	}
	free(r.request);
	return rc;
}
