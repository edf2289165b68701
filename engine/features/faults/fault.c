/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fault injection: calls and answers that fail or are delayed on purpose. Shard thread. Control messages about
 * references are in rref_again.c.
 */
#include "features/faults/fault.h"

#include "base/must.h"
#include "core/call.h"
#include "core/call_unsent.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/waiting.h"
#include "features/references/rref.h"
#include "features/rendezvous/rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct faults *faults_create(void)
{
	return calloc(1, sizeof(struct faults));
}

void faults_destroy(struct faults *f)
{
	struct fault *x = atomic_load_explicit(&f->all, memory_order_relaxed);
	while (x) {
		struct fault *older = x->older;
		free(x);
		x = older;
	}
	free(f);
}

const struct fault *fault_of(struct faults *f, enum far_fault_kind kind)
{
	struct fault *x = f ? atomic_load_explicit(&f->of[kind], memory_order_acquire) : NULL; /* far_fault_set */
	if (!x)
		return NULL;
	uint64_t left = atomic_load_explicit(&x->left, memory_order_relaxed);
	while (left != UINT64_MAX) {
		if (left == 0)
			return NULL;
		if (atomic_compare_exchange_weak_explicit(&x->left, &left, left - 1, memory_order_relaxed,
							  memory_order_relaxed))
			break;
	}
	return x;
}

void fault_apply(struct shard *s)
{
	const struct faults *f = s->config.faults;
	bool calls = false;
	for (int kind = FAR_FAULT_CALL; kind <= FAR_FAULT_METHOD; kind++)
		calls |= fault_set_for(f, (enum far_fault_kind)kind);
	s->hold_calls = calls;
	s->hold_answers = fault_set_for(f, FAR_FAULT_REPLY);
	for (struct session *se = s->known; se; se = se->next_known) {
		if (se->state != SESSION_UP)
			continue;
		se->backpressured =
			(uint8_t)((se->backpressured & ~SESSION_HELD) | (s->hold_answers ? SESSION_HELD : 0));
		if (!se->waiting_n)
			se->calls_max = call_credits(s);
	}
}

/* ---- what is held back ---- */

static void delayed_remove(struct shard *s, struct fault_delayed *l)
{
	timer_disarm(&s->wheel, &l->timer.timer);
	list_remove(l);
}

static void delayed_free(struct shard *s, struct fault_delayed *l)
{
	if (!l->answer) {
		fault_shard(s)->delayed_calls_n--;
		waiting_uncopy(s, &l->start, l->payload);
	}
	buf_unref(l->buf);
}

/* ---- calls ---- */

/* Numbers of the engine's own that are not named here call methods. */
static enum far_fault_kind fault_kind(const struct call_start *start)
{
	if (start->typed & PACKET_METHOD)
		return FAR_FAULT_METHOD;
	if (start->typed & PACKET_NAMED)
		return FAR_FAULT_REMOTE;
	if (start->typed || start->fn < RREF_CALL || start->fn == RREF_CALL)
		return FAR_FAULT_CALL;
	if (start->fn == RREF_FETCH || start->fn == RREF_TYPE)
		return FAR_FAULT_FETCH;
	return start->fn == RREF_REMOTE ? FAR_FAULT_REMOTE : FAR_FAULT_METHOD;
}

static bool is_control_msg(const struct call_start *start)
{
	return !start->typed && start->fn == RREF_CONTROL;
}

/* With credits again, for this one call. */
static int send(struct shard *s, struct session *se, const struct call_start *start)
{
	uint16_t max = (uint16_t)(s->config.limits.peer_calls + is_control_msg(start));
	if (se->state != SESSION_UP || (se->waiting_n && !is_control_msg(start)))
		return 1;
	if (se->calls_active >= max)
		return is_control_msg(start) ? -EAGAIN : 1;
	uint16_t before = se->calls_max;
	se->calls_max = max;
	int error = shard_call(s, start);
	se->calls_max = before;
	return error;
}

static void on_delayed_call(struct shard *s, struct shard_timer *t)
{
	static const char late[] = "the time-out passed while the call was held back on purpose (far_fault_set)",
			  failed[] = "the call was made to fail (far_fault_set)";
	struct fault_delayed *l = (struct fault_delayed *)(void *)t;
	struct call_start *start = &l->start;
	uint64_t now = clock_now(s->config.clock);
	int error = 0;
	if (!l->fail && start->deadline > now) {
		start->left = start->deadline == TIME_NEVER ? TIME_NEVER : start->deadline - now;
		fault_shard(s)->bypassed = true;
		error = shard_call(s, start);
		fault_shard(s)->bypassed = false;
		if (error == -EAGAIN) { /* others have all the room */
			timer_arm(&s->wheel, &l->timer.timer, time_after(now, FAR_RREF_AGAIN_NS));
			return;
		}
	}
	delayed_remove(s, l);
	if (l->fail)
		call_unsent(s, start, FAR_INJECTED, failed);
	else if (start->deadline <= now)
		call_unsent(s, start, FAR_TIMEOUT, late);
	else if (error)
		call_unsent_error(s, start, error);
	waiting_count(s, UINT64_MAX);
	delayed_free(s, l);
}

static int hold_call(struct shard *s, const struct call_start *start, const struct fault *fault)
{
	struct far_buf *buf, *payload;
	struct call_start copy;
	int error = waiting_copy(s, start, sizeof(struct fault_delayed), &buf, &payload, &copy);
	if (error)
		return error;
	struct fault_delayed *l = buf_data(buf);
	uint64_t now = clock_now(s->config.clock), at = time_after(now, fault->delay_ns);
	*l = (struct fault_delayed){.timer.fn = on_delayed_call,
				    .buf = buf,
				    .payload = payload,
				    .start = copy,
				    .fail = fault->fail_sends != 0};
	list_put(fault_shard(s)->late, l);
	fault_shard(s)->delayed_calls_n++;
	waiting_count(s, 1);
	if (l->fail)
		at = now;
	timer_arm(&s->wheel, &l->timer.timer, at < copy.deadline ? at : copy.deadline);
	return 0;
}

static int hold(struct shard *s, struct session *se, const struct call_start *start)
{
	enum far_fault_kind kind = fault_kind(start);
	struct faults *f = s->config.faults;
	/* They hold no slot, but are as many at most. */
	if (fault_shard(s)->delayed_calls_n >= s->calls_n && !fault_shard(s)->bypassed && !is_control_msg(start) &&
	    fault_set_for(f, kind))
		return -EAGAIN;
	const struct fault *fault = fault_shard(s)->bypassed || is_control_msg(start) ? NULL : fault_of(f, kind);
	if (!fault || (!fault->fail_sends && !fault->delay_ns))
		return send(s, se, start);
	int error = hold_call(s, start, fault);
	if (!error)
		counter_add_shared(fault->fail_sends ? &f->failed[kind] : &f->delayed[kind], 1);
	return error;
}

static bool cancel(struct shard *s, const struct call_id *id)
{
	for (struct fault_delayed *l = fault_shard(s)->late; l; l = l->next) {
		if (l->answer || l->start.id != id)
			continue;
		delayed_remove(s, l);
		call_unsent(s, &l->start, FAR_CANCELLED, "the call was cancelled here before it was sent");
		waiting_count(s, UINT64_MAX);
		delayed_free(s, l);
		return true;
	}
	return false;
}

/* ---- answers ---- */

/* The branch of dispatch() for requests that may be retransmitted also leads to fault_admit(). Those have a record
 * anyway. Faults on answers do not apply to control messages about references. */
static void request(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len,
		    uint64_t waited)
{
	union packet_head marked = *h;
	uint64_t left = h->request.time_left;
	bool control = !(h->flags & PACKET_TYPED) && h->request.handler == RREF_CONTROL;
	bool late = left != UINT64_MAX && left <= waited;
	bool admits = h->type != PACKET_ONEWAY && !control && !late && !(h->flags & PACKET_RETRY);
	fault_shard(s)->admits = admits;
	if (admits)
		marked.flags |= PACKET_RETRY;
	if (s->shown)
		marked.flags |= PACKET_TLV;
	dispatch(s, se, &marked, body, len, waited);
}

bool fault_admit(struct far_req *req)
{
	static const char text[] = "the callee keeps too many requests open to hold back this one's answer";
	struct shard *s = req->shard;
	struct far_deferred *d = deferred_alloc(s, req->session, req->call, req->gen, NULL, false);
	fault_shard(s)->admits = false;
	if (!d) {
		dispatch_error(req, FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		return false;
	}
	d->owned = true;
	deferred_record(req, d);
	return true;
}

static void on_delayed_answer(struct shard *s, struct shard_timer *t)
{
	struct fault_delayed *l = (struct fault_delayed *)(void *)t;
	delayed_remove(s, l);
	answer_deferred(s, l->answer);
	delayed_free(s, l);
}

static void spoil(struct far_deferred *d)
{
	static const char text[] = "the answer was made to fail at the callee (far_fault_set)";
	rref_pins_release(d->pins);
	d->pins = NULL;
	d->rrefs = d->tree = false;
	buf_unref(d->buf);
	d->buf = NULL;
	deferred_error(d, FAR_INJECTED, FAR_EXECUTED_YES, 0, text, sizeof text - 1);
}

static bool answer(struct shard *s, struct far_deferred *d)
{
	struct faults *f = s->config.faults;
	const struct fault *fault = d->gone || d->faulted ? NULL : fault_of(f, FAR_FAULT_REPLY);
	if (!fault)
		return false;
	d->faulted = true;
	if (fault->fail_sends) {
		counter_add_shared(&f->failed[FAR_FAULT_REPLY], 1);
		spoil(d);
		return false;
	}
	struct far_buf *buf = fault->delay_ns ? buf_alloc(sizeof(struct fault_delayed)) : NULL;
	if (!buf) /* it goes at once then */
		return false;
	struct fault_delayed *l = buf_data(buf);
	*l = (struct fault_delayed){.timer.fn = on_delayed_answer, .buf = buf, .answer = d};
	list_put(fault_shard(s)->late, l);
	counter_add_shared(&f->delayed[FAR_FAULT_REPLY], 1);
	timer_arm(&s->wheel, &l->timer.timer, time_after(clock_now(s->config.clock), fault->delay_ns));
	return true;
}

/* Those that are held back are in the list that callbacks may add to: each time from the beginning. */
static struct fault_delayed *next_of(struct shard *s, const struct session *se)
{
	struct fault_delayed *l = fault_shard(s)->late;
	while (l && se &&
	       (l->answer ? l->answer->session : session_index(s, l->start.worker, l->start.shard)) != se->index)
		l = l->next;
	return l;
}

static void fail(struct shard *s, const struct session *se, enum far_status status, const char *text)
{
	struct fault_delayed *l;
	while ((l = next_of(s, se))) {
		delayed_remove(s, l);
		if (l->answer) {
			deferred_free(s, l->answer);
		} else {
			call_unsent(s, &l->start, status, text);
			waiting_count(s, UINT64_MAX);
		}
		delayed_free(s, l);
	}
}

static bool init(struct shard *s)
{
	return (s->state[FEATURE_FAULTS] = calloc(1, sizeof(struct fault_shard))) != NULL;
}

static void fini(struct shard *s)
{
	free(fault_shard(s));
}

const struct shard_feature faults_feature = {
	.name = "faults",
	.init = init,
	.fini = fini,
	.session_fail = fail,
	.call_cancel = cancel,
	.only = {.call_hold = hold, .request_hold = request, .answer_hold = answer},
};
