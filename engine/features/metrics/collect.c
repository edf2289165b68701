/* SPDX-License-Identifier: BSD-3-Clause */
/** Collects the metrics of a shard: metrics_request(), metrics_await(): any thread that may block; the rest: shard
 * thread.
 */
#include "features/metrics/collect.h"

#include "core/call.h"
#include "core/call_deadline.h"
#include "core/deferred.h"
#include "core/fiber_pool.h"
#include "sync/futex.h"
#include "value/registry.h"

#include <stdlib.h>
#include <string.h>

/* Adds one to a list that keeps the METRICS_PENDING_MAX oldest; those of unknown age come last. */
static void list_add(struct metrics_pending *list, uint32_t *n, const struct metrics_pending *p)
{
	uint32_t at = *n;
	while (at > 0 && p->since - 1 < list[at - 1].since - 1)
		at--;
	if (at == METRICS_PENDING_MAX)
		return;
	*n += *n < METRICS_PENDING_MAX;
	for (uint32_t i = *n - 1; i > at; i--)
		list[i] = list[i - 1];
	list[at] = *p;
}

static void list_calls(struct metrics_shard *m, const struct shard *s)
{
	static const uint8_t states[] = {[CALL_SENT] = METRICS_CALL_SENT,
					 [CALL_RENDEZVOUS] = METRICS_CALL_FRAGMENTS,
					 [CALL_ENDED] = METRICS_CALL_ENDED};
	for (uint32_t i = 0; i < s->calls_used; i++) {
		const struct call *c = &s->calls[i];
		if (c->state == CALL_FREE)
			continue;
		const struct function *fn = c->typed ? registry_at(s->registry, c->fn) : NULL;
		const struct message_handler *h = c->typed ? NULL : registry_message(s->registry, c->fn);
		bool stamped = c->timer.at == TIME_NEVER || !(c->timer.at & CALL_UNSTAMPED);
		struct metrics_pending p = {.name = fn  ? fn->signature.name
						    : h ? h->name
							: NULL,
					    .message = c->fn,
					    .worker = s->sessions[c->session].worker,
					    .state = states[c->state],
					    .since = s->latency.pending_since[i],
					    .deadline = stamped ? c->timer.at : TIME_NEVER};
		list_add(m->calls, &m->calls_n, &p);
	}
}

static void list_requests(struct metrics_shard *m, const struct session *se)
{
	for (struct far_deferred *d = se->open; d; d = d->open_next) {
		uint32_t state = atomic_load_explicit(&d->state, memory_order_relaxed);
		m->requests_fiber += d->fiber != NULL;
		if (!m->debug)
			continue;
		struct metrics_pending p = {.name = d->fn ? d->fn->signature.name : NULL,
					    .worker = se->worker,
					    .state = state != DEFERRED_OPEN ? METRICS_REQUEST_ANSWERED
						     : d->fiber             ? METRICS_REQUEST_FIBER
									    : METRICS_REQUEST_DEFERRED,
					    .since = d->since,
					    .deadline = d->timer.timer.at_prev ? d->timer.timer.at : TIME_NEVER};
		list_add(m->requests, &m->requests_n, &p);
	}
}

static void add_session(struct metrics_shard *m, const struct session *se)
{
	struct metrics_peer *p = &m->peers[se->worker];
	const struct session_counters *c = &se->counters;
	p->calls += c->calls_ended + se->calls_active;
	p->counters.requests += c->requests;
	p->bytes_sent += se->bytes_sent;
	p->counters.bytes_received += c->bytes_received;
	for (unsigned i = 0; i < SESSION_ERRORS; i++)
		p->counters.errors[i] += c->errors[i];
	p->calls_active += se->calls_active;
	p->requests_open += se->open_n;
	p->up += se->state == SESSION_UP;
	m->sessions[se->state]++;
	if (se->state == SESSION_UP)
		m->sessions_port[se->port]++;
	m->calls_waiting += se->waiting_n;
	list_requests(m, se);
}

static void collect(struct metrics_shard *m, struct shard *s)
{
	const struct fiber_pool *fibers = fiber_pool_of(s);
	m->now = clock_now(s->config.clock);
	m->sum_ns = s->latency.sum_ns;
	m->n = s->latency.n;
	memcpy(m->bucket, s->latency.bucket, sizeof m->bucket);
	if (fibers) {
		m->fibers_max = fibers->n;
		m->fibers_active = fibers->live;
	}
	for (const struct session *se = s->known; se; se = se->next_known)
		add_session(m, se);
	if (!m->debug)
		return;
	call_stamp(s, m->now); /* calls since the last reading of the clock have no time yet */
	list_calls(m, s);
}

static void run(struct shard *s, struct shard_task *task)
{
	struct metrics_shard *m = (struct metrics_shard *)(void *)task;
	uint32_t expected = METRICS_REQUESTED;
	if (atomic_load_explicit(&m->state, memory_order_acquire) == METRICS_REQUESTED)
		collect(m, s);
	/* acq_rel: the second of the two threads owns the memory. */
	if (atomic_compare_exchange_strong_explicit(&m->state, &expected, METRICS_DONE, memory_order_acq_rel,
						    memory_order_acquire))
		futex_wake(&m->state, 1); /* it may be freed by now: the address is not read */
	else
		free(m);
}

static struct metrics_shard *create(const struct shard *s, bool debug)
{
	struct metrics_shard *m = calloc(1, sizeof *m + s->world * sizeof *m->peers);
	if (!m)
		return NULL;
	m->task.run = run;
	m->debug = debug;
	m->world = s->world;
	return m;
}

struct metrics_shard *metrics_request(struct shard *s, bool debug)
{
	struct metrics_shard *m = create(s, debug);
	if (m)
		shard_add_task(s, &m->task);
	return m;
}

struct metrics_shard *metrics_collect_here(struct shard *s, bool debug)
{
	struct metrics_shard *m = create(s, debug);
	if (m)
		collect(m, s);
	return m;
}

bool metrics_await(struct metrics_shard *m, uint64_t until)
{
	uint32_t expected = METRICS_REQUESTED;
	while (atomic_load_explicit(&m->state, memory_order_acquire) == METRICS_REQUESTED &&
	       clock_now(&clock_monotonic) < until)
		futex_wait(&m->state, METRICS_REQUESTED, until);
	return !atomic_compare_exchange_strong_explicit(&m->state, &expected, METRICS_ABANDONED, memory_order_acq_rel,
							memory_order_acquire);
}

void metrics_shard_free(struct metrics_shard *m)
{
	free(m);
}
