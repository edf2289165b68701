/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs fan-outs: sends the calls, hedges and retries them, and completes the future. Shard thread, but for
 * fanout_keep() and fanout_submit() (any thread).
 */
#include "features/fanout/fanout.h"

#include "base/list.h"
#include "core/call.h"
#include "core/fast.h"
#include "core/feature.h"
#include "core/loop.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "features/fanout/attempt.h"
#include "features/fanout/scatter.h"
#include "features/features.h"
#include "features/intercept/intercept.h"
#include "features/rendezvous/rendezvous.h"

#include <errno.h>
#include <string.h>

/* Between two tries of a call that found no room, while no answer of its session returns any. */
#define RETRY_NS_MIN (UINT64_C(1) << TIMER_TICK_SHIFT)
#define RETRY_NS_MAX FAR_NAP_NS

static const char gone[] = "the worker is gone";
static const char no_memory[] = "no memory to keep the request until there is room";

/* The list of those under way: all that the shard keeps of them. */
static struct fanout **fanouts_of(struct shard *s)
{
	return (struct fanout **)(void *)&s->state[FEATURE_FANOUT];
}

/* ---- attempts ---- */

static void target_failed(struct fanout *fo, uint32_t i, struct far_to from, const struct completion *o);

/* Shows the call to the interceptors, and sends it. */
__attribute__((noinline, cold)) static int send_seen(struct shard *s, struct call_start *start)
{
	struct far_err err;
	enum far_status status = intercept_call(s, start, &err);
	if (status)
		return status == FAR_RESOURCE ? -ENOMEM : -EPERM;
	int error = start->ready ? -EMSGSIZE : shard_call(s, start);
	if (start->ready)
		rendezvous_out_unref(rendezvous_out_in(start->ready));
	if (error)
		intercept_unsent(start, error == -EAGAIN ? FAR_BUSY : FAR_RESOURCE, "the call could not be sent");
	return error;
}

/* Sends one call. 0, -EAGAIN, or why it cannot be sent at all. */
static int send(struct fanout *fo, struct fanout_attempt *at, const struct call_start *request)
{
	struct shard *s = fo->shard;
	struct far_to to = fanout_attempt_to(at);
	const struct session *se = &s->sessions[session_index(s, (uint32_t)to.worker, (uint32_t)to.shard)];
	/* Without a credit it waits here, not in the session's queue, which is for calls that cannot. */
	if (unlikely(se->calls_active >= se->calls_max) && se->state == SESSION_UP && !s->hold_calls)
		return -EAGAIN;
	struct call_start start = {.worker = (uint32_t)to.worker,
				   .shard = (uint8_t)to.shard,
				   .fn = request->fn,
				   .typed = request->typed,
				   .deadline = fo->start.deadline,
				   .left = fo->start.left,
				   .retry_ns = fo->start.retry_ns,
				   .done = fo->start.done,
				   .user = at,
				   .id = &at->id,
				   .app = NULL,
				   .data = request->data,
				   .len = request->len,
				   .write = request->write,
				   .ready = NULL,
				   .extra = request->extra};
	at->id.slot = 0;
	int error = unlikely(start.extra != NULL) ? send_seen(s, &start) : shard_call(s, &start);
	if (likely(!error))
		at->state = ATTEMPT_FLYING;
	return error;
}

static void attempt_refused(struct fanout *fo, struct fanout_attempt *at, int error)
{
	uint32_t i = fanout_target_of(fo, at);
	struct completion o = {.status = FAR_PEER_LOST, .executed = FAR_EXECUTED_NO, .data = gone};
	o.origin = (int16_t)fanout_attempt_to(at).worker;
	if (error == -ESHUTDOWN) {
		o = (struct completion){.status = FAR_SHUTDOWN, .origin = -1, .data = FANOUT_STOPPED};
	} else if (error == -EMSGSIZE) {
		static const char text[] = "the request is larger than a message can be";
		o = (struct completion){.status = FAR_TOO_LARGE, .origin = -1, .data = text};
	} else if (error == -EPERM) {
		static const char text[] = "an interceptor failed the call";
		o = (struct completion){.status = FAR_REMOTE, .origin = -1, .data = text};
	} else if (error == -ENOMEM) {
		o = (struct completion){.status = FAR_RESOURCE, .origin = -1, .data = no_memory};
	}
	o.len = strlen(o.data);
	at->state = ATTEMPT_ENDED;
	target_failed(fo, i, fanout_attempt_to(at), &o);
}

/* The time left of the deadline, for calls that are sent later than the first ones. */
static void renew_left(struct fanout *fo)
{
	if (fo->start.deadline == TIME_NEVER)
		return;
	uint64_t now = shard_now(fo->shard);
	fo->start.left = fo->start.deadline > now ? fo->start.deadline - now : 0;
}

static struct call_start kept_request(struct fanout *fo, const struct fanout_target *t)
{
	return (struct call_start){.fn = t->fn,
				   .typed = t->typed,
				   .data = buf_data(t->request),
				   .len = t->len,
				   .extra = t->seen ? &fo->seen : NULL};
}

/* Sends or queues an attempt whose request is kept. */
static void try_kept(struct fanout *fo, struct fanout_attempt *at)
{
	struct call_start request = kept_request(fo, &fo->target[fanout_target_of(fo, at)]);
	int error = send(fo, at, &request);
	if (error == -EAGAIN)
		fanout_enqueue(fo, at);
	else if (error)
		attempt_refused(fo, at, error);
}

static void hedge(struct fanout *fo, uint32_t i)
{
	struct fanout_target *t = &fo->target[i];
	struct far_target_result *r = fanout_result_of(fo, i);
	counter_add(&fo->shard->counters.hedges_sent, 1);
	if (r)
		r->hedged = true;
	renew_left(fo);
	try_kept(fo, &t->attempt[1]);
}

static bool can_hedge(const struct fanout_target *t)
{
	return t->hedge_to.worker >= 0 && t->attempt[1].state == ATTEMPT_NONE && t->request;
}

/* Gives the request back when nothing can send it again. */
static void request_maybe_done(struct fanout_target *t)
{
	if (t->request && !can_hedge(t) && t->attempt[0].state != ATTEMPT_WAITING &&
	    t->attempt[1].state != ATTEMPT_WAITING)
		fanout_request_done(t);
}

/* An attempt failed: the target has, unless its other one goes on or can begin. */
static void target_failed(struct fanout *fo, uint32_t i, struct far_to from, const struct completion *o)
{
	struct fanout_target *t = &fo->target[i];
	fo->touched |= o->executed != FAR_EXECUTED_NO;
	fanout_write_result(fo, i, from, o);
	bool answered = o->executed == FAR_EXECUTED_YES;
	bool over = o->status == FAR_TIMEOUT || o->status == FAR_SHUTDOWN;
	for (unsigned a = 0; a < 2 && !answered; a++)
		if (t->attempt[a].state == ATTEMPT_WAITING || t->attempt[a].state == ATTEMPT_FLYING) {
			if (fo->results)
				fo->results[i].status = FAR_PENDING;
			return;
		}
	if (!answered && !over && can_hedge(t)) {
		if (fo->results)
			fo->results[i].status = FAR_PENDING;
		hedge(fo, i);
		return;
	}
	if (!fo->failed_n++)
		fanout_record_failure(fo, i, o);
	fanout_target_ended(fo, i);
}

/* Is it decided? It is gone then. */
static bool decide(struct fanout *fo)
{
	uint32_t open = fo->n - fo->ok_n - fo->failed_n;
	if (fo->ok_n >= fo->k)
		fanout_conclude(fo, false, FAR_OK);
	else if (open == 0)
		fanout_conclude(fo, !fo->partial || fo->ok_n == 0, FAR_OK);
	else if (fo->partial || fo->errors == FAR_ERRORS_COLLECT)
		return false;
	else if (fo->ok_n + open < fo->k || (fo->errors == FAR_ERRORS_FAIL_FAST && fo->failed_n))
		fanout_conclude(fo, true, FAR_OK);
	else
		return false;
	return true;
}

/* ---- room ---- */

#define ANY_SESSION UINT32_MAX

/* Sends those that wait for `session_no` while there is room. */
static void retry(struct fanout *fo, uint32_t q, uint32_t session_no)
{
	struct fanout_attempt *before = NULL;
	uint32_t full = ANY_SESSION;
	renew_left(fo);
	for (uint16_t n = fo->queue_head[q]; n;) {
		struct fanout_attempt *at = fanout_attempt_at(fo, n);
		uint32_t to = fanout_session_of(fo, at);
		n = at->next;
		if (to == full || (session_no != ANY_SESSION && to != session_no)) {
			before = at;
			continue;
		}
		struct call_start request = kept_request(fo, &fo->target[fanout_target_of(fo, at)]);
		int error = send(fo, at, &request);
		if (error == -EAGAIN) {
			if (session_no != ANY_SESSION)
				return;
			full = to;
			before = at;
			continue;
		}
		fanout_dequeue(fo, q, before, at);
		if (error) {
			/* Failing may queue the hedge, at the end, and take the other attempt out: begin again. */
			attempt_refused(fo, at, error);
			before = NULL;
			n = fo->queue_head[q];
		} else {
			fo->retry_ns = RETRY_NS_MIN;
			request_maybe_done(&fo->target[fanout_target_of(fo, at)]);
		}
	}
}

static void arm(struct fanout *fo)
{
	struct shard *s = fo->shard;
	uint64_t at = fo->start.deadline < fo->hedge_at ? fo->start.deadline : fo->hedge_at;
	if (fo->waiting_n) {
		uint64_t again = shard_now(s) + fo->retry_ns;
		at = again < at ? again : at;
	}
	/* A timer that is armed for that time stays: it may be among those that are being run. */
	if (fo->alarm.timer.at_prev && fo->alarm.timer.at == at)
		return;
	timer_disarm(&s->wheel, &fo->alarm.timer);
	if (at != TIME_NEVER)
		timer_arm(&s->wheel, &fo->alarm.timer, at);
}

static void on_alarm(struct shard *s, struct shard_timer *alarm)
{
	struct fanout *fo = (struct fanout *)(void *)alarm;
	uint64_t now = shard_now(s);
	if (now >= fo->start.deadline) {
		bool enough = fo->partial && fo->ok_n;
		fanout_conclude(fo, !enough, FAR_TIMEOUT);
		return;
	}
	if (now >= fo->hedge_at) {
		fo->hedge_at = TIME_NEVER;
		for (uint32_t i = 0; i < fo->n; i++)
			if (!fo->target[i].ended && can_hedge(&fo->target[i]))
				hedge(fo, i);
	}
	if (fo->waiting_n) {
		fo->retry_ns = fo->retry_ns * 2 < RETRY_NS_MAX ? fo->retry_ns * 2 : RETRY_NS_MAX;
		for (uint32_t q = 0; q < FANOUT_QUEUES; q++)
			if (fo->queue_head[q])
				retry(fo, q, ANY_SESSION);
	}
	if (!decide(fo))
		arm(fo);
}

/* ---- answers ---- */

static void answered(struct fanout *fo, struct fanout_attempt *at, const struct completion *o)
{
	uint32_t i = fanout_target_of(fo, at);
	struct far_to from = fanout_attempt_to(at);
	struct completion end = *o;
	if (likely(o->status == FAR_OK)) {
		const char *text = NULL;
		end.status = unlikely(o->tree != NULL)
				     ? scatter_tree(fo, i, o->tree, fanout_result_of(fo, i), &text)
				     : scatter(fo, i, o->data, o->len, fanout_result_of(fo, i), &text);
		end.data = text;
		end.len = text ? strlen(text) : 0;
	}
	if (unlikely(end.status != FAR_OK)) {
		target_failed(fo, i, from, &end);
		return;
	}
	fanout_write_result(fo, i, from, &end);
	fo->touched = true;
	fo->ok_n++;
	if (at->second)
		counter_add(&fo->shard->counters.hedges_won, 1);
	fanout_target_ended(fo, i);
}

static void on_answer(void *user, const struct completion *o)
{
	struct fanout_attempt *at = user;
	struct fanout *fo = at->fanout;
	if (at->state != ATTEMPT_FLYING) /* withdrawn */
		return;
	at->state = ATTEMPT_ENDED;
	answered(fo, at, o);
	if (unlikely(fo->waiting_n)) {
		uint32_t session_no = fanout_session_of(fo, at);
		retry(fo, session_no % FANOUT_QUEUES, session_no);
	}
	if (fo->launching)
		return;
	if (!decide(fo) && unlikely(fo->waiting_n))
		arm(fo);
}

/* on_answer() of a call of fanout_launch_line(): a reply of one line. */
static void on_line(void *user, uint8_t *body, uint32_t len)
{
	struct fanout_attempt *at = user;
	struct fanout *fo = at->fanout;
	struct fanout_target *t = (struct fanout_target *)(uintptr_t)fanout_target_with(at);
	if (unlikely(at->state != ATTEMPT_FLYING || fo->launching || fo->waiting_n ||
		     !scatter_line(fo, t, body, len))) {
		struct completion o = {.status = FAR_OK, .executed = FAR_EXECUTED_YES, .data = body, .len = len};
		o.origin = (int16_t)fanout_attempt_to(at).worker;
		on_answer(at, &o);
		return;
	}
	at->state = ATTEMPT_ENDED;
	t->ended = true;
	fo->touched = true;
	if (++fo->ok_n >= fo->k || fo->ok_n + fo->failed_n == fo->n) /* else a success decides nothing */
		decide(fo);
}

/* ---- the beginning ---- */

int fanout_keep(struct fanout *fo, uint32_t i, const struct call_start *start, bool common)
{
	struct fanout_target *t = &fo->target[i];
	struct far_buf *buf = common ? fo->common : NULL;
	if (!buf) {
		buf = buf_alloc(start->len ? start->len : 1);
		if (!buf)
			return -ENOMEM;
		if (start->write)
			start->write(start->data, buf_data(buf), start->len, NULL);
		else if (start->len)
			memcpy(buf_data(buf), start->data, start->len);
		if (common) {
			buf_ref(buf);
			fo->common = buf;
		}
	} else {
		buf_ref(buf);
	}
	if (unlikely(start->extra != NULL)) { /* its arguments are not kept */
		t->seen = true;
		fo->seen = *start->extra;
		fo->seen.args = NULL;
		fo->seen.args_n = 0;
	}
	t->request = buf;
	t->len = start->len;
	t->fn = start->fn;
	t->typed = start->typed;
	return 0;
}

void fanout_begin(struct fanout *fo)
{
	struct shard *s = fo->shard;
	fo->launching = true;
	fo->start.done = on_answer;
	fo->retry_ns = RETRY_NS_MIN;
	fo->alarm.fn = on_alarm;
	list_put(*fanouts_of(s), fo);
}

void fanout_launch(struct fanout *fo, uint32_t i, const struct call_start *start, bool common)
{
	struct fanout_target *t = &fo->target[i];
	struct fanout_attempt *at = &t->attempt[0];
	if (start && unlikely(t->hedge_to.worker >= 0) && fanout_keep(fo, i, start, common)) {
		attempt_refused(fo, at, -ENOMEM);
		return;
	}
	struct call_start kept;
	if (!start) {
		kept = kept_request(fo, t);
		start = &kept;
	}
	int error = send(fo, at, start);
	if (likely(!error)) {
		request_maybe_done(t);
		return;
	}
	if (error == -EAGAIN) {
		if (!t->request && fanout_keep(fo, i, start, common)) {
			error = -ENOMEM;
		} else {
			fanout_enqueue(fo, at);
			return;
		}
	}
	attempt_refused(fo, at, error);
}

bool fanout_line(const struct fanout *fo, const struct call_start *start, struct fanout_line *line)
{
	uint64_t left = fo->start.left;
	if (!FAR_FAST_PATH || start->len > FAR_LINE_PAYLOAD || left < CALL_NEAR_NS ||
	    (left >= CALL_UNSTAMPED && left != FAR_FOREVER))
		return false;
	*line = (struct fanout_line){
		.call = {.done = on_answer,
			 .app = (void (*)(void))on_line,
			 .what = FAST_WHAT(start->fn, start->typed ? CALL_LINE | CALL_TYPED : CALL_LINE),
			 .word = FAST_WORD(PACKET_REQUEST, start->typed, 0),
			 .left = left},
		.len = start->len};
	if (start->write)
		start->write(start->data, line->bytes, start->len, NULL);
	else if (start->len)
		memcpy(line->bytes, start->data, start->len);
	return true;
}

void fanout_launch_line(struct fanout *fo, uint32_t i, struct session *se, struct fanout_line *line, unsigned number)
{
	struct fanout_target *t = &fo->target[i];
	struct fast_call call = line->call;
	call.user = &t->attempt[0];
	call.word |= FAST_WORD(0, 0, number);
	t->to.shard = se->shard;
	fast_take(fo->shard, se, &call);
	memcpy(fast_body(call.line), line->bytes, sizeof line->bytes);
	t->attempt[0].id = fast_send(fo->shard, se, &call, line->len);
	t->attempt[0].state = ATTEMPT_FLYING;
}

void fanout_refuse(struct fanout *fo, uint32_t i, enum far_status status, const char *text)
{
	struct completion o = {
		.status = status, .executed = FAR_EXECUTED_NO, .origin = -1, .data = text, .len = strlen(text)};
	fanout_write_result(fo, i, fo->target[i].to, &o);
	if (!fo->failed_n++)
		fanout_record_failure(fo, i, &o);
	fo->target[i].ended = true;
	fanout_pins_done(&fo->target[i]);
}

void fanout_launched(struct fanout *fo)
{
	fo->launching = false;
	if (!decide(fo))
		arm(fo);
}

static void on_task(struct shard *s, struct shard_task *e)
{
	struct fanout *fo = (struct fanout *)(void *)((char *)e - offsetof(struct fanout, task));
	(void)s;
	fanout_begin(fo);
	renew_left(fo);
	for (uint32_t i = 0; i < fo->n; i++)
		if (!fo->target[i].ended)
			fanout_launch(fo, i, NULL, false);
	fanout_launched(fo);
}

void fanout_submit(struct fanout *fo)
{
	fo->task.run = on_task;
	shard_add_task(fo->shard, &fo->task);
}

static bool cancel(struct shard *s, const void *f)
{
	shard_take_tasks(s); /* it may have been handed over just before */
	struct fanout *fo = *fanouts_of(s);
	while (fo && fo->future != f)
		fo = fo->next;
	if (fo)
		fanout_conclude(fo, true, FAR_CANCELLED);
	return fo != NULL;
}

static void stop(struct shard *s)
{
	while (*fanouts_of(s))
		fanout_conclude(*fanouts_of(s), true, FAR_SHUTDOWN);
}

const struct shard_feature fanout_feature = {
	.name = "fanout",
	.stop = stop,
	.group_cancel = cancel,
};
