/* SPDX-License-Identifier: BSD-3-Clause */
/** The end of a fan-out: what it leaves open is withdrawn, its future completed. Shard thread. */
#include "features/fanout/fanout.h"

#include "base/list.h"
#include "core/call_cancel.h"
#include "core/context.h"
#include "core/loop.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/fanout/attempt.h"
#include "features/fanout/scatter.h"
#include "features/references/rref.h"

#include <string.h>

void fanout_pins_done(struct fanout_target *t)
{
	if (unlikely(t->pins != NULL)) {
		rref_pins_release(t->pins);
		t->pins = NULL;
	}
}

void fanout_request_done(struct fanout_target *t)
{
	buf_unref(t->request);
	t->request = NULL;
}

/* Ends an attempt that is not needed any more. Its call's completion finds it ended. */
static void withdraw(struct fanout *fo, struct fanout_attempt *at)
{
	struct shard *s = fo->shard;
	uint8_t state = at->state;
	at->state = ATTEMPT_ENDED;
	if (state == ATTEMPT_FLYING)
		call_cancel(s, &at->id);
	else if (state == ATTEMPT_WAITING && !fo->concluded) {
		uint32_t q = fanout_session_of(fo, at) % FANOUT_QUEUES;
		struct fanout_attempt *before = NULL;
		for (uint16_t n = fo->queue_head[q]; n && fanout_attempt_at(fo, n) != at; n = before->next)
			before = fanout_attempt_at(fo, n);
		fanout_dequeue(fo, q, before, at);
	}
}

void fanout_target_ended(struct fanout *fo, uint32_t i)
{
	struct fanout_target *t = &fo->target[i];
	t->ended = true;
	for (unsigned a = 0; a < 2; a++)
		if (t->attempt[a].state == ATTEMPT_WAITING || t->attempt[a].state == ATTEMPT_FLYING)
			withdraw(fo, &t->attempt[a]);
	fanout_request_done(t);
	fanout_pins_done(t);
}

static enum far_status abandoned_status(struct fanout *fo, enum far_status why)
{
	if (why == FAR_SHUTDOWN || fo->shard->stopped)
		return FAR_SHUTDOWN;
	bool late = fo->start.deadline != TIME_NEVER && shard_now(fo->shard) >= fo->start.deadline;
	return late ? FAR_TIMEOUT : FAR_CANCELLED;
}

static void abandon(struct fanout *fo, uint32_t i, enum far_status status)
{
	struct fanout_target *t = &fo->target[i];
	bool sent = t->attempt[0].state == ATTEMPT_FLYING || t->attempt[1].state == ATTEMPT_FLYING;
	char late[FAR_ERR_TEXT_MAX];
	const char *text = status == FAR_SHUTDOWN ? FANOUT_STOPPED : "cancelled: it is not needed any more";
	if (status == FAR_TIMEOUT) {
		fanout_write_timeout(fo, late, sizeof late);
		text = late;
	}
	struct far_target_result *r = fanout_result_of(fo, i);
	struct completion o = {.status = status,
			       .executed = sent || (r && r->executed) ? FAR_EXECUTED_MAYBE : FAR_EXECUTED_NO,
			       .origin = -1,
			       .data = text,
			       .len = strlen(text)};
	fo->touched |= sent;
	fanout_write_result(fo, i, t->to, &o);
	fanout_target_ended(fo, i);
}

void fanout_conclude(struct fanout *fo, bool failed, enum far_status why)
{
	struct shard *s = fo->shard;
	const char *outer = s->context.handler;
	struct completion o;
	char text[FAR_ERR_TEXT_MAX];
	fo->concluded = true;
	timer_disarm(&s->wheel, &fo->alarm.timer);
	list_remove(fo);
	enum far_status rest = abandoned_status(fo, why);
	for (uint32_t i = 0; i < fo->n; i++)
		if (!fo->target[i].ended)
			abandon(fo, i, rest);
	buf_unref(fo->common);
	struct far_future *f = fo->future;
	s->context.handler = "a completion callback";
	if (failed)
		fanout_error(fo, why, text, sizeof text, &o);
	else
		o = (struct completion){.executed = FAR_EXECUTED_YES,
					.origin = -1,
					.data = text,
					.len = scatter_count(fo->ok_n, text, sizeof text)};
	fo->complete(f, &o);
	s->context.handler = outer;
	/* One writer: the thread that holds the shard. The count of outstanding calls reads it after calls_sent. */
	uint32_t ended = atomic_load_explicit(&s->fanouts_ended, memory_order_relaxed);
	atomic_store_explicit(&s->fanouts_ended, ended + 1, memory_order_release);
	buf_unref(&f->head);
	buf_unref(fo->buf);
}
