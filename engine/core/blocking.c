/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The blocking threads of an agent and the queue of requests that shards put there. Shard thread: blocking_start();
 * blocking threads: the handlers; start and stop only: the rest.
 */
#include "core/blocking.h"

#include "base/crash_stack.h"
#include "base/error.h"
#include "base/log.h"
#include "base/must.h"
#include "base/signals.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/flow.h"
#include "core/packet.h"
#include "core/request.h"
#include "core/shard.h"
#include "core/timer.h"
#include "sync/futex.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A request that waits for a worker. Lies in a buffer of its own, before the body and the room for its texts. */
struct job {
	struct far_buf *buf;
	struct far_buf *whole; /* of a body that came in fragments and was not copied; NULL: none */
	const uint8_t *at;     /* the body */
	struct shard *shard;
	struct far_deferred *record; /* NULL: a one-way message */
	const struct function *fn;
	const struct message_handler *message;
	const char *name;
	uint64_t deadline;
	uint32_t from, from_shard;
	uint64_t body_len;
	size_t strings_bytes;
	bool scattered;              /* far_req.scattered */
	alignas(64) uint8_t bytes[]; /* the body and room for its texts */
};

struct job_cell {
	_Atomic uint32_t turn; /* see sync/submit.h; here both ends are many */
	struct job *job;
};

struct blocking_thread {
	struct blocking_pool *pool;
	pthread_t thread;
	_Atomic(const char *) handler; /* that runs, for the report of blocking_stop(); NULL: none */
};

struct blocking_pool {
	alignas(64) _Atomic uint32_t tail; /* producers claim here */
	alignas(64) _Atomic uint32_t head; /* consumers claim here */
	alignas(64) _Atomic uint32_t sleepers;
	_Atomic uint32_t word; /* changes with every wake-up */
	_Atomic bool stop;
	uint32_t mask;
	struct job_cell *cells;
	unsigned threads;
	struct blocking_thread list[];
};

/* ---- the queue ---- */

static bool queue_put(struct blocking_pool *w, struct job *job)
{
	uint32_t at = atomic_load_explicit(&w->tail, memory_order_relaxed);
	for (;;) {
		struct job_cell *cell = &w->cells[at & w->mask];
		uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
		if (turn == at) {
			if (!atomic_compare_exchange_weak_explicit(&w->tail, &at, at + 1, memory_order_relaxed,
								   memory_order_relaxed))
				continue;
			cell->job = job;
			atomic_store_explicit(&cell->turn, at + 1, memory_order_release);
			return true;
		}
		if ((int32_t)(turn - at) < 0)
			return false;
		at = atomic_load_explicit(&w->tail, memory_order_relaxed);
	}
}

static struct job *queue_take(struct blocking_pool *w)
{
	uint32_t at = atomic_load_explicit(&w->head, memory_order_relaxed);
	for (;;) {
		struct job_cell *cell = &w->cells[at & w->mask];
		uint32_t turn = atomic_load_explicit(&cell->turn, memory_order_acquire);
		if (turn == at + 1) {
			if (!atomic_compare_exchange_weak_explicit(&w->head, &at, at + 1, memory_order_relaxed,
								   memory_order_relaxed))
				continue;
			struct job *job = cell->job;
			atomic_store_explicit(&cell->turn, at + w->mask + 1, memory_order_release);
			return job;
		}
		if ((int32_t)(turn - (at + 1)) < 0)
			return NULL;
		at = atomic_load_explicit(&w->head, memory_order_relaxed);
	}
}

static void wake_one(struct blocking_pool *w)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with job_next() */
	if (!atomic_load_explicit(&w->sleepers, memory_order_relaxed))
		return;
	atomic_fetch_add_explicit(&w->word, 1, memory_order_release);
	futex_wake(&w->word, 1);
}

/* NULL: the end. */
static struct job *job_next(struct blocking_pool *w)
{
	for (;;) {
		struct job *job = queue_take(w);
		if (job)
			return job;
		uint32_t seen = atomic_load_explicit(&w->word, memory_order_acquire);
		atomic_fetch_add_explicit(&w->sleepers, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst); /* pairs with wake_one() and blocking_stop() */
		job = queue_take(w);
		bool stop = atomic_load_explicit(&w->stop, memory_order_relaxed);
		if (!job && !stop)
			futex_wait(&w->word, seen, TIME_NEVER);
		atomic_fetch_sub_explicit(&w->sleepers, 1, memory_order_relaxed);
		if (job || stop)
			return job;
	}
}

/* ---- the threads ---- */

static void end_unstarted(struct far_deferred *d, enum far_status status, const char *text)
{
	deferred_error(d, status, FAR_EXECUTED_NO, 0, text, strlen(text));
	deferred_finish(d);
}

/* A request whose handler is not started: true. */
static bool job_dropped(const struct blocking_thread *me, const struct job *job)
{
	struct far_deferred *d = job->record;
	/* The shard may not have been polled since the deadline. */
	bool late = job->deadline != TIME_NEVER && clock_now(job->shard->config.clock) >= job->deadline;
	if (!d)
		return late;
	if (atomic_load_explicit(&me->pool->stop, memory_order_relaxed)) {
		end_unstarted(d, FAR_SHUTDOWN, "the callee was shut down before the handler was started");
		return true;
	}
	if (late || atomic_load_explicit(&d->state, memory_order_acquire) == DEFERRED_GONE) {
		end_unstarted(d, FAR_TIMEOUT, "the caller gave up before the handler was started");
		return true;
	}
	return false;
}

static void job_run(struct blocking_thread *me, const struct job *job)
{
	if (job_dropped(me, job))
		return;
	struct far_req req = {.shard = job->shard,
			      .record = job->record,
			      .fn = job->fn,
			      .name = job->name,
			      .from = job->from,
			      .from_shard = job->from_shard,
			      .deadline = job->deadline,
			      .job = job,
			      .scattered = job->scattered,
			      .answer = job->record ? ANSWER_NONE : ANSWER_ONEWAY};
	struct shard_context context = {.outer = shard_context_top(), .req = &req};
	shard_context_set(&context);
	atomic_store_explicit(&me->handler, job->name, memory_order_relaxed);
	if (job->message)
		dispatch_message(&req, job->message, job->body_len ? job->at : NULL, job->body_len);
	else
		dispatch_typed(&req, job->at, job->body_len,
			       job->strings_bytes ? (char *)(uintptr_t)job->bytes + job->body_len : NULL,
			       job->strings_bytes);
	if (flow_used())
		flow_thread_end();
	atomic_store_explicit(&me->handler, NULL, memory_order_relaxed);
	shard_context_set(context.outer);
}

void blocking_body(const struct far_req *req, struct kept_body *out)
{
	const struct job *job = req->job;
	*out = (struct kept_body){job->at, job->body_len, job->at == job->bytes ? job->buf : job->whole};
}

static void *thread_main(void *arg)
{
	struct blocking_thread *me = arg;
	struct job *job;
	struct crash_stack stack;
	crash_stack_take(&stack); /* without memory for it an overflow goes unreported */
	while ((job = job_next(me->pool))) {
		job_run(me, job);
		if (!job->record)
			oneway_ended(job->shard);
		if (job->whole) { /* its sender may wait for the end of the last reader */
			buf_unref(job->whole);
			shard_notify(job->shard);
		}
		buf_unref(job->buf);
	}
	crash_stack_give(&stack);
	return NULL;
}

enum far_status blocking_create(struct blocking_pool **out, unsigned threads, uint32_t queue, struct far_err *err)
{
	/* With one cell a turn number would mean both "put" and "taken". */
	queue = queue < 2 ? 2 : queue;
	size_t bytes = (sizeof(struct blocking_pool) + threads * sizeof(struct blocking_thread) + 63) / 64 * 64;
	struct blocking_pool *w = aligned_alloc(64, bytes);
	if (!w)
		return err_set(err, FAR_RESOURCE, "out of memory for %u worker threads", threads);
	memset(w, 0, bytes);
	w->mask = queue - 1;
	w->cells = calloc(queue, sizeof *w->cells);
	if (!w->cells) {
		free(w);
		return err_set(err, FAR_RESOURCE, "out of memory for a worker queue of %u", queue);
	}
	for (uint32_t i = 0; i < queue; i++)
		atomic_store_explicit(&w->cells[i].turn, i, memory_order_relaxed);
	sigset_t masked, before;
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	int error = 0;
	for (; w->threads < threads && !error; w->threads++) {
		struct blocking_thread *me = &w->list[w->threads];
		char name[16];
		me->pool = w;
		error = pthread_create(&me->thread, NULL, thread_main, me);
		if (error)
			break;
		snprintf(name, sizeof name, "far-block%u", w->threads % 10000);
		pthread_setname_np(me->thread, name);
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (error) {
		blocking_stop(w, NULL, NULL);
		blocking_destroy(w);
		return err_sys(err, error,
			       "cannot start %u worker threads for blocking handlers; lower opts.blocking_threads",
			       threads);
	}
	*out = w;
	return FAR_OK;
}

/* Interval of polling the shards while a handler has not returned. */
#define STOP_LOOK_NS 2000000L
#define STOP_LOOKS   (1000000000L / STOP_LOOK_NS) /* then it is named */

/* Waits at most STOP_LOOK_NS, by the monotonic clock, which is not set meanwhile. */
static bool ended_soon(pthread_t thread)
{
	struct timespec until;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += STOP_LOOK_NS;
	until.tv_sec += until.tv_nsec / 1000000000L;
	until.tv_nsec %= 1000000000L;
	return pthread_clockjoin_np(thread, NULL, CLOCK_MONOTONIC, &until) == 0;
}

void blocking_stop(struct blocking_pool *w, void (*drive)(void *ctx), void *ctx)
{
	atomic_store_explicit(&w->stop, true, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with job_next() */
	atomic_fetch_add_explicit(&w->word, 1, memory_order_release);
	futex_wake(&w->word, INT_MAX);
	for (unsigned i = 0; i < w->threads; i++) {
		bool logged = false;
		for (unsigned looks = 1; !ended_soon(w->list[i].thread); looks++) {
			if (drive)
				drive(ctx);
			/* A thread that runs no handler is about to end. */
			const char *handler = atomic_load_explicit(&w->list[i].handler, memory_order_relaxed);
			if (looks < STOP_LOOKS || logged || !handler)
				continue;
			logged = true;
			log_line(FAR_LOG_INFO, "shutdown: waiting for the blocking handler %s to return", handler);
		}
	}
}

void blocking_destroy(struct blocking_pool *w)
{
	free(w->cells);
	free(w);
}

void blocking_counts(struct blocking_pool *w, uint64_t *threads, uint64_t *idle, uint64_t *queued)
{
	uint32_t head = atomic_load_explicit(&w->head, memory_order_relaxed);
	uint32_t tail = atomic_load_explicit(&w->tail, memory_order_relaxed);
	*threads = w->threads;
	*queued = (int32_t)(tail - head) > 0 ? tail - head : 0;
	*idle = 0;
	for (unsigned i = 0; i < w->threads; i++)
		*idle += !atomic_load_explicit(&w->list[i].handler, memory_order_relaxed);
}

/* ---- the shard's side ---- */

static void refuse(struct far_req *req, const char *text)
{
	dispatch_error(req, FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, strlen(text));
}

void blocking_start(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len)
{
	shard_own(req->shard);
	struct shard *s = req->shard;
	struct blocking_pool *w = atomic_load_explicit(s->config.blocking, memory_order_acquire);
	/* A message that came in fragments lies in memory that is private already. */
	struct private_body *whole = s->body && body == s->body->at ? s->body : NULL;
	size_t strings = len + FAR_ARGS_MAX < FAR_STRINGS_BYTES_MAX ? len + FAR_ARGS_MAX : FAR_STRINGS_BYTES_MAX;
	bool oneway = req->answer == ANSWER_ONEWAY;
	struct far_buf *buf = w ? buf_alloc(sizeof(struct job) + (whole ? 0 : len + strings)) : NULL;
	struct far_deferred *d = req->record; /* of a request that may be repeated */
	if (buf && !d && !oneway)
		d = deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed);
	if (unlikely(!buf || (!d && !oneway))) {
		if (whole)
			whole->refused = true;
		buf_unref(buf);
		refuse(req,
		       "the callee keeps too many requests open (its opts.deferred), or has no memory for this one");
		return;
	}
	struct job *job = buf_data(buf);
	job->buf = buf;
	job->whole = whole ? whole->buf : NULL;
	job->at = whole ? body : job->bytes;
	job->shard = s;
	job->record = d;
	job->fn = req->fn;
	job->message = m;
	job->name = req->name;
	job->from = req->from;
	job->from_shard = req->from_shard;
	job->deadline = req->record ? req->deadline : TIME_NEVER;
	job->body_len = len;
	job->scattered = req->scattered;
	job->strings_bytes = whole ? 0 : strings;
	if (job->whole)
		buf_ref(job->whole);
	if (!whole)
		copy_body(job->bytes, body, len);
	if (d)
		d->owned = true;
	if (!req->record && req->time_left != FAR_FOREVER) {
		job->deadline = time_after(clock_now(s->config.clock), req->time_left);
		if (d)
			timer_arm(&s->wheel, &d->timer.timer, job->deadline);
	}
	if (oneway) /* its thread may be done with it at once */
		atomic_fetch_add_explicit(&s->oneways_n, 1, memory_order_relaxed);
	if (unlikely(!queue_put(w, job))) {
		if (oneway)
			oneway_ended(s);
		if (!req->record && d)
			deferred_free(s, d);
		buf_unref(job->whole);
		buf_unref(buf);
		if (whole)
			whole->refused = true;
		refuse(req, "too many blocking handlers wait for a thread of the worker; try later, or raise its "
			    "opts.blocking_threads or opts.blocking_queue");
		return;
	}
	if (!oneway)
		req->answer = ANSWER_DEFERRED;
	wake_one(w);
}
