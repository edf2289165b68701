/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Open requests. The shard owns the record; the application holds a handle to it (`owned`) from far_defer() until it
 * answers. A record whose caller no longer waits is marked gone and stays until the application's answer comes back for
 * it.
 */
#include "shard/shard.h"

#include "base/must.h"

struct far_deferred *deferred_alloc(struct shard *s, struct session *se, uint32_t call, uint32_t gen,
				    const struct function *fn, bool hashed)
{
	struct far_deferred *d = s->deferred_free;
	if (se->open_n == FAR_SESSION_CALLS_MAX) { /* more than the caller's credits allow */
		answer_no_room(s, se);
		return NULL;
	}
	if (!d)
		return NULL;
	se->open_n++;
	/* Records that were never used follow each other in the array. */
	if (d->next)
		s->deferred_free = d->next;
	else
		s->deferred_free = d + 1 < s->deferred + FAR_DEFERRED_MAX && !d[1].shard ? d + 1 : NULL;
	d->shard = s;
	d->worker = se->worker;
	d->call = call;
	d->gen = gen;
	d->fn = fn;
	d->hashed = hashed;
	d->gone = d->owned = false;
	d->next = NULL;
	d->status = FAR_OK;
	d->executed = FAR_EXECUTED_YES;
	d->code = 0;
	d->buf = NULL;
	d->len = 0;
	atomic_store_explicit(&d->state, DEFERRED_OPEN, memory_order_relaxed);
	d->open_next = se->open;
	d->open_prev = &se->open;
	if (se->open)
		se->open->open_prev = &d->open_next;
	se->open = d;
	counter_add(&s->counters.requests_active, 1);
	return d;
}

static void unlink_open(struct shard *s, struct far_deferred *d)
{
	if (!d->open_prev)
		return;
	s->sessions[d->worker].open_n--;
	*d->open_prev = d->open_next;
	if (d->open_next)
		d->open_next->open_prev = d->open_prev;
	d->open_prev = NULL;
}

void deferred_free(struct shard *s, struct far_deferred *d)
{
	timer_disarm(&s->wheel, &d->timer);
	unlink_open(s, d);
	buf_unref(d->buf);
	d->buf = NULL;
	d->next = s->deferred_free;
	s->deferred_free = d;
	counter_add(&s->counters.requests_active, (uint64_t)-1);
}

/* Nobody waits any more. The record lives on while the application holds it or an answer list has it. */
static void mark_gone(struct shard *s, struct far_deferred *d)
{
	uint32_t open = DEFERRED_OPEN;
	timer_disarm(&s->wheel, &d->timer);
	unlink_open(s, d);
	d->gone = true;
	/* A thread that has just answered finds its answer dropped by the drain. */
	atomic_compare_exchange_strong_explicit(&d->state, &open, DEFERRED_GONE, memory_order_acq_rel,
						memory_order_relaxed);
}

void deferred_on_timer(struct shard *s, struct far_deferred *d)
{
	struct session *se = &s->sessions[d->worker];
	mark_gone(s, d);
	answer_bare(s, se, HEAD_CANCELLED, FAR_EXECUTED_MAYBE, d->call, d->gen);
}

bool deferred_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen)
{
	for (struct far_deferred *d = se->open; d; d = d->open_next)
		if (d->call == call && d->gen == gen) {
			mark_gone(s, d);
			return true;
		}
	for (uint32_t i = 0; i < se->parked_n; i++) {
		struct parked_request *p = &se->parked[(se->parked_head + i) % FAR_SESSION_CALLS_MAX];
		if (p->head.call == call && p->head.gen == gen && !p->cancelled) {
			p->cancelled = true;
			return true;
		}
	}
	return false;
}

void deferred_all_gone(struct shard *s, struct session *se)
{
	while (se->open)
		mark_gone(s, se->open);
}
