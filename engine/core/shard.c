/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Makes and destroys shards, and takes and gives back the right to hold one. Any thread; shard_create() and
 * shard_destroy(): start and stop only.
 */
#include "core/shard.h"

#include "base/must.h"
#include "base/table.h"
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/feature.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/loop.h"
#include "core/plan.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/timer.h"
#include "core/waiting.h"
#include "value/tree.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Larger ones are the kernel's: an allocator may clear what it has used before, or all when its debugging is on. */
#define MAPPED_BYTES ((size_t)64 << 10)

void *shard_zeroed(size_t n, size_t size)
{
	size_t bytes = n * size + 64 + 2 * sizeof(void *);
	bool mapped = bytes >= MAPPED_BYTES;
	char *raw =
		mapped ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
		       : calloc(1, bytes);
	if (!raw || raw == MAP_FAILED)
		return NULL;
	char *at = (char *)(((uintptr_t)raw + 2 * sizeof(void *) + 63) & ~(uintptr_t)63);
	((void **)(void *)at)[-1] = raw;
	((size_t *)(void *)at)[-2] = mapped ? bytes : 0;
	return at;
}

void shard_zeroed_free(void *p)
{
	if (!p)
		return;
	void *raw = ((void **)p)[-1];
	size_t mapped = ((size_t *)p)[-2];
	if (mapped)
		munmap(raw, mapped);
	else
		free(raw);
}

static void limit(uint32_t *value, uint32_t by_default, uint32_t max)
{
	*value = *value ? *value : by_default;
	must(*value <= max);
}

static void set_limits(struct shard_limits *l)
{
	limit(&l->submit_slots, FAR_SUBMIT_SLOTS, FAR_SUBMIT_SLOTS_MAX);
	limit(&l->mailbox_slots, FAR_MAILBOX_SLOTS, FAR_MAILBOX_SLOTS_MAX);
	limit(&l->calls, FAR_CALLS, FAR_CALLS_MAX);
	limit(&l->deferred, FAR_DEFERRED, FAR_DEFERRED_MAX);
	limit(&l->peer_calls, FAR_SESSION_CALLS_MAX, FAR_SESSION_CALLS_MAX);
	limit(&l->peer_waiting, FAR_SESSION_WAITING, FAR_SESSION_WAITING_MAX);
	limit(&l->retry_window, FAR_RETRY_WINDOW, FAR_RETRY_WINDOW);
}

static bool allocate_rings(struct shard *s, const struct shard_limits *l)
{
	struct submit_cell *cells = shard_zeroed(l->submit_slots, sizeof *cells);
	struct mail *in = shard_zeroed(l->mailbox_slots, sizeof *in),
		    *out = shard_zeroed(l->mailbox_slots, sizeof *out);
	if (cells)
		submit_init(&s->submit, cells, l->submit_slots, s->config.future_done);
	if (in)
		mailbox_init(&s->mail_in, in, l->mailbox_slots);
	if (out)
		mailbox_init(&s->mail_out, out, l->mailbox_slots);
	return cells && in && out;
}

/* Address space alone: no page is memory before its first use, however many sessions there are. */
bool shard_pool_init(struct shard_pool *pool, size_t n, size_t size)
{
	void *at = mmap(NULL, n * size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return false;
	*pool = (struct shard_pool){.base = at, .bytes = n * size};
	return true;
}

void shard_pool_fini(struct shard_pool *pool)
{
	if (pool->base)
		munmap(pool->base, pool->bytes);
}

void *shard_pool_carve(struct shard_pool *pool, size_t size)
{
	size_t at = pool->carved++ * size;
	must(at + size <= pool->bytes);
	return pool->base + at;
}

static bool allocate(struct shard *s, const struct shard_config *c)
{
	const struct shard_limits *l = &s->config.limits;
	size_t sessions = (size_t)c->world * FAR_SHARDS_MAX;
	s->calls_n = l->calls;
	s->deferred_n = l->deferred;
	s->sessions = table_map(sessions * sizeof *s->sessions);
	s->functions = shard_zeroed(c->world, sizeof *s->functions);
	s->incarnations = shard_zeroed(c->world, sizeof *s->incarnations);
	s->calls = shard_zeroed(s->calls_n, sizeof *s->calls);
	s->call_copies = shard_zeroed(s->calls_n, sizeof *s->call_copies);
	s->aging = shard_zeroed(s->calls_n, sizeof *s->aging);
	bool measures = latency_init(&s->latency, c->sample_every, s->calls_n);
	s->trace = shard_zeroed(1, sizeof *s->trace);
	s->sites = shard_zeroed(SHARD_SITES, sizeof *s->sites);
	s->plans = shard_zeroed(SHARD_PLANS, sizeof *s->plans);
	s->deferred = shard_zeroed(s->deferred_n, sizeof *s->deferred);
	s->strings = shard_zeroed(1, FAR_STRINGS_BYTES_MAX);
	s->oneways_queued = shard_zeroed(sessions, sizeof *s->oneways_queued);
	s->refers = shard_zeroed(sessions, sizeof *s->refers);
	s->waiting_taken = shard_zeroed(sessions, sizeof *s->waiting_taken);
	s->waiting_returned = shard_zeroed(sessions, sizeof *s->waiting_returned);
	return queues_init(s, c->ports, c->ports_n) && allocate_rings(s, l) && s->sessions && s->calls &&
	       s->call_copies && s->aging && measures && s->trace && s->sites && s->plans && s->deferred &&
	       s->strings && s->oneways_queued && s->refers && s->waiting_taken && s->waiting_returned &&
	       s->functions && s->incarnations &&
	       shard_pool_init(&s->paused, sessions, sizeof(struct paused_requests)) && features_init(s);
}

struct shard *shard_create(const struct shard_config *config)
{
	must(config->ports_n >= 1 && config->ports_n <= FAR_PORTS_MAX);
	struct shard *s = shard_zeroed(1, sizeof *s);
	if (!s)
		return NULL;
	s->config = *config;
	set_limits(&s->config.limits);
	s->world = config->world;
	s->waiting_until = TIME_NEVER;
	if (!allocate(s, config)) {
		shard_destroy(s);
		return NULL;
	}
	s->registry = config->registry;
	s->arena = (struct values_arena){s->strings, FAR_STRINGS_BYTES_MAX, tree_more, NULL, NULL, false};
	s->context.shard = s;
	s->now = clock_now(config->clock);
	s->wheel.tick = s->call_wheel.tick = s->now >> TIMER_TICK_SHIFT;
	/* Free lists are chained on first use, so that idle memory is not touched. */
	s->deferred_free = s->deferred;
	s->ready_tail = &s->ready_head;
	return s;
}

void shard_destroy(struct shard *s)
{
	if (!s)
		return;
	fiber_pool_free(s);
	call_drop_cancels(s);
	table_unmap(s->sessions, (size_t)s->config.world * FAR_SHARDS_MAX * sizeof *s->sessions);
	shard_zeroed_free(s->functions);
	shard_zeroed_free(s->incarnations);
	shard_pool_fini(&s->paused);
	queues_free(s);
	shard_zeroed_free(s->calls);
	shard_zeroed_free(s->call_copies);
	shard_zeroed_free(s->aging);
	latency_free(&s->latency);
	shard_zeroed_free(s->trace);
	shard_zeroed_free(s->sites);
	future_cache_free(&s->futures);
	shard_zeroed_free(s->plans);
	shard_zeroed_free(s->deferred);
	shard_zeroed_free(s->strings);
	features_fini(s);
	shard_zeroed_free(s->oneways_queued);
	shard_zeroed_free(s->refers);
	shard_zeroed_free(s->waiting_taken);
	shard_zeroed_free(s->waiting_returned);
	shard_zeroed_free(s->submit.cells);
	shard_zeroed_free(s->mail_in.slots);
	shard_zeroed_free(s->mail_out.slots);
	shard_zeroed_free(s);
}

static void context_push(struct shard *s)
{
	s->context.outer = shard_context_top();
	s->context.handler = NULL;
	shard_context_set(&s->context);
}

bool shard_enter(struct shard *s)
{
	if (!progress_try(&s->progress))
		return false;
	context_push(s);
	if (unlikely(s->armed)) {
		s->armed = false;
		queues_disarm(s);
		atomic_store_explicit(&s->progress.asleep, 0, memory_order_relaxed);
	}
	return true;
}

static void release(struct shard *s)
{
	struct shard_context *c = shard_context_top();
	if (likely(c == &s->context)) {
		shard_context_set(s->context.outer);
	} else {
		while (c->outer != &s->context)
			c = c->outer;
		c->outer = s->context.outer;
	}
	progress_release(&s->progress);
}

static bool has_work(struct shard *s)
{
	return submit_peek(&s->submit) || atomic_load_explicit(&s->answers, memory_order_relaxed) ||
	       atomic_load_explicit(&s->resumed, memory_order_relaxed) ||
	       atomic_load_explicit(&s->tasks, memory_order_relaxed) ||
	       atomic_load_explicit(&s->cancels, memory_order_relaxed);
}

void shard_leave(struct shard *s)
{
	shard_own(s);
	for (;;) {
		if (unlikely(shard_has_cancels(s)))
			shard_take_cancels(s);
		/* Bounded, since other threads may go on handing over: the poller does the rest. */
		for (unsigned passes = 0; passes < FAR_SUBMIT_SLOTS / FAR_BURST && (s->ready_head || has_work(s));
		     passes++)
			shard_pass(s);
		if (unlikely(s->poll_idle)) /* no pass may follow */
			features_poll_idle(s);
		shard_flush(s);
		/* It sleeps on a wake-up that is no longer armed. Repeated at every give-back until it has woken: the
		 * write may be swallowed by a waiter that sleeps on the same descriptor. */
		if (unlikely(atomic_load_explicit(&s->poller_asleep, memory_order_relaxed)) && !s->armed)
			shard_wake(s);
		release(s);
		/* A thread that found the token taken left its work in a ring and tried once more: either it saw the
		 * token free, or we see its work. Pairs with the fence in shard_notify(). */
		atomic_thread_fence(memory_order_seq_cst);
		if (likely(!has_work(s)) || !shard_enter(s))
			return;
	}
}

/* The part of a pass that runs nothing of the application. Returns whether the rest has something to do. */
__attribute__((noinline)) static bool take_quietly(struct shard *s)
{
	unsigned n = shard_take_calls(s) + deferred_drain_quietly(s);
	/* A message in fragments has been begun, and is sent by passes. */
	return s->ready_head || s->poll_idle || shard_has_cancels(s) || has_work(s) || (n && s->poll_due);
}

void shard_leave_quietly(struct shard *s, bool left)
{
	shard_own(s);
	for (;;) {
		if (unlikely(s->ready_head || s->poll_idle || s->cancels_taken || has_work(s)))
			left |= take_quietly(s);
		shard_flush(s);
		if (unlikely(atomic_load_explicit(&s->poller_asleep, memory_order_relaxed)) && !s->armed)
			shard_wake(s); /* as in shard_leave() */
		release(s);
		if (unlikely(left)) {
			progress_wake_poller(&s->progress); /* a locked exchange: it is the fence below, too */
			if (unlikely(s->config.stepped))    /* it slept, and is not armed any more */
				shard_wake(s);
			return;
		}
		atomic_thread_fence(memory_order_seq_cst); /* as in shard_leave() */
		if (likely(!has_work(s)) || !shard_enter(s))
			return;
	}
}

void shard_notify(struct shard *s)
{
	if (shard_held(s))
		return;
	atomic_thread_fence(memory_order_seq_cst); /* pairs with go_to_sleep() and with the fence in shard_leave() */
	/* Once its poller is to end, the thread that has work for the shard may be the last to poll it. */
	bool may_drive =
		s->config.progress == FAR_PROGRESS_SHARED || atomic_load_explicit(&s->stop, memory_order_acquire);
	if (may_drive && shard_enter(s))
		shard_leave_quietly(s, false);
	else if (atomic_load_explicit(&s->progress.asleep, memory_order_relaxed))
		shard_wake(s);
}

void shard_add_task(struct shard *s, struct shard_task *task)
{
	atomic_fetch_add_explicit(&s->producers, 1, memory_order_acquire);
	struct shard_task *head = atomic_load_explicit(&s->tasks, memory_order_relaxed);
	atomic_fetch_add_explicit(&s->tasks_n, 1, memory_order_relaxed);
	do
		task->next = head;
	while (!atomic_compare_exchange_weak_explicit(&s->tasks, &head, task, memory_order_release,
						      memory_order_relaxed));
	shard_notify(s);
	atomic_fetch_sub_explicit(&s->producers, 1, memory_order_release); /* pairs with agent_fini_pollers */
}
