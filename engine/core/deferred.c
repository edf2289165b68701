/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Records of open requests. Shard thread, but for deferred_error(), deferred_room(), deferred_push() and
 * deferred_finish() (the owner of the record, any thread).
 *
 * The shard owns the record. The application holds a handle to it (`owned`) from far_defer() until it answers. A
 * record whose caller no longer waits is marked gone, and stays until the application's answer arrives.
 */

#include "core/deferred.h"
#include "base/must.h"
#include "base/mutant.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/fiber.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "memory/budget.h"

#include <stdio.h>
#include <string.h>

static void on_timer(struct shard *s, struct shard_timer *t);

struct far_deferred *deferred_alloc(struct shard *s, struct session *se, uint32_t call, uint32_t gen,
				    const struct function *fn, bool hashed)
{
	shard_own(s);
	struct far_deferred *d = s->deferred_free;
	if (se->open_n == FAR_SESSION_REQUESTS_MAX) { /* more than the caller's credits allow */
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
		s->deferred_free = d + 1 < s->deferred + s->deferred_n && !d[1].shard ? d + 1 : NULL;
	d->shard = s;
	d->timer.fn = on_timer;
	d->fiber = NULL;
	d->retry_seq = 0;
	d->features = 0;
	d->session = session_index(s, se->worker, se->shard);
	d->call = call;
	d->gen = gen;
	d->fn = fn;
	d->hashed = hashed;
	d->limit = se->message_max;
	d->since = s->now;
	d->gone = d->owned = false;
	d->next = NULL;
	d->status = FAR_OK;
	d->executed = FAR_EXECUTED_YES;
	d->code = 0;
	d->buf = NULL;
	d->len = 0;
	d->rref = NULL;
	d->pins = NULL;
	d->held = NULL;
	d->extra = NULL;
	d->rrefs = d->tree = d->addressed = d->makes = d->faulted = d->here = false;
	atomic_store_explicit(&d->state, DEFERRED_OPEN, memory_order_relaxed);
	d->open_next = se->open;
	d->open_prev = &se->open;
	if (se->open)
		se->open->open_prev = &d->open_next;
	se->open = d;
	counter_add(&s->counters.requests_active, 1);
	return d;
}

void deferred_record(struct far_req *req, struct far_deferred *d)
{
	struct shard *s = req->shard;
	req->record = d;
	req->deadline = TIME_NEVER;
	if (req->time_left == FAR_FOREVER)
		return;
	req->deadline = time_after(clock_now(s->config.clock), req->time_left);
	timer_arm(&s->wheel, &d->timer.timer, req->deadline);
}

static void unlink_open(struct shard *s, struct far_deferred *d)
{
	if (!d->open_prev)
		return;
	s->sessions[d->session].open_n--;
	*d->open_prev = d->open_next;
	if (d->open_next)
		d->open_next->open_prev = d->open_prev;
	d->open_prev = NULL;
}

void deferred_free(struct shard *s, struct far_deferred *d)
{
	shard_own(s);
	timer_disarm(&s->wheel, &d->timer.timer);
	unlink_open(s, d);
	if (unlikely(d->features || d->rrefs))
		features_record_over(s, d);
	buf_unref(d->buf);
	d->buf = NULL;
	d->next = s->deferred_free;
	s->deferred_free = d;
	counter_add(&s->counters.requests_active, (uint64_t)-1);
}

/* The caller no longer waits. The record stays while the application holds it or an answer list has it. */
static void mark_gone(struct shard *s, struct far_deferred *d)
{
	uint32_t open = DEFERRED_OPEN;
	timer_disarm(&s->wheel, &d->timer.timer);
	unlink_open(s, d);
	d->gone = true;
	/* A thread that has just answered finds its answer dropped by the drain. */
	atomic_compare_exchange_strong_explicit(&d->state, &open, DEFERRED_GONE, memory_order_acq_rel,
						memory_order_relaxed);
	if (d->fiber)
		fiber_cancel(d->fiber);
	if (unlikely(d->features))
		features_record_gone(s, d);
}

/* The caller's deadline has come. */
static void on_timer(struct shard *s, struct shard_timer *t)
{
	struct far_deferred *d = (struct far_deferred *)(void *)t;
	struct session *se = &s->sessions[d->session];
	mark_gone(s, d);
	answer_cancelled(s, se, FAR_EXECUTED_MAYBE, d->call, d->gen);
}

bool deferred_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen)
{
	shard_own(s);
	for (struct far_deferred *d = se->open; d; d = d->open_next)
		if (d->call == call && d->gen == gen) {
			mark_gone(s, d);
			return true;
		}
	for (uint32_t i = 0; i < se->paused_n; i++) {
		struct paused_request *p = &se->paused->ring[(se->paused_head + i) % FAR_SESSION_REQUESTS_MAX];
		if (p->head.call.slot == call && p->head.call.generation == gen && !p->cancelled) {
			p->cancelled = true;
			buf_unref(p->buf);
			p->buf = NULL;
			return true;
		}
	}
	return se->has_rendezvous && s->hooks.request_cancel(s, se, call, gen);
}

void deferred_all_gone(struct shard *s, struct session *se)
{
	shard_own(s);
	while (se->open && !MUTANT(DEAD_CALLER_SERVED))
		mark_gone(s, se->open);
}

/* ---- the owner of the record, any thread ---- */

void deferred_error(struct far_deferred *d, enum far_status status, enum far_executed executed, int32_t code,
		    const char *text, size_t len)
{
	d->status = (uint8_t)status;
	d->executed = (uint8_t)executed;
	d->code = code;
	d->len = 0;
	if (len >= FAR_ERR_TEXT_MAX)
		len = FAR_ERR_TEXT_MAX - 1;
	if (len && (d->buf = buf_alloc(len))) {
		memcpy(buf_data(d->buf), text, len);
		d->len = len;
	}
}

void *deferred_room(struct far_deferred *d, size_t len)
{
	char text[FAR_ERR_TEXT_MAX];
	if (len > d->limit) {
		int n = snprintf(
			text, sizeof text,
			"the answer of %zu bytes is larger than the caller takes: %llu (its max_message_bytes)", len,
			(unsigned long long)d->limit);
		deferred_error(d, FAR_TOO_LARGE, FAR_EXECUTED_YES, 0, text, (size_t)n);
		return NULL;
	}
	d->buf = buf_alloc(len ? len : 1);
	if (!d->buf) {
		deferred_error(d, FAR_RESOURCE, FAR_EXECUTED_YES, 0, text, answer_no_memory(text, len));
		return NULL;
	}
	d->len = len;
	return buf_data(d->buf);
}

void deferred_push(struct shard *s, struct far_deferred *d)
{
	struct far_deferred *head = atomic_load_explicit(&s->answers, memory_order_relaxed);
	do
		d->next = head;
	while (!atomic_compare_exchange_weak_explicit(&s->answers, &head, d, memory_order_release,
						      memory_order_relaxed));
}

enum far_status deferred_finish(struct far_deferred *d)
{
	struct shard *s = d->shard;
	enum far_status status =
		(enum far_status)d->status == FAR_TOO_LARGE || (enum far_status)d->status == FAR_RESOURCE
			? (enum far_status)d->status
			: FAR_OK;
	atomic_fetch_add_explicit(&s->producers, 1, memory_order_acquire);
	if (atomic_exchange_explicit(&d->state, DEFERRED_ANSWERED, memory_order_acq_rel) == DEFERRED_GONE)
		status = FAR_CANCELLED;
	deferred_push(s, d);
	shard_notify(s);
	atomic_fetch_sub_explicit(&s->producers, 1, memory_order_release); /* pairs with agent_fini_pollers */
	return status;
}
