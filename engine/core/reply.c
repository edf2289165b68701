/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends answers, and keeps those that find no memory. Shard thread.
 *
 * Exactly one packet answers a request, an answer or a "cancelled", and the caller's credits keep a ring slot for it.
 * Only bulk memory can be short. Then the answer is copied and waits (the session is backpressured), later requests of
 * the session are queued in order of arrival, and the rest goes on: answers of the peer are received, so the peer
 * makes progress and returns memory.
 */

#include "core/reply.h"
#include "base/must.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/head.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "memory/budget.h"
#include "value/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static inline void fill(uint8_t *head, enum head_type type, unsigned flags, unsigned fn, uint32_t call, uint32_t gen,
			uint64_t time)
{
	struct shm_head *h = head_at(head);
	h->type = (uint8_t)type;
	h->flags = (uint8_t)flags;
	h->fn = (uint16_t)fn;
	h->call = call;
	h->gen = gen;
	h->tlv_bytes = 0;
	h->time_low = (uint32_t)time;
	h->time_high = (uint32_t)(time >> 32);
	h->reserved = 0;
}

void answer_fill_head(uint8_t *head, const struct far_req *req)
{
	fill(head, HEAD_REPLY, req->hashed ? HEAD_HASHED : 0, req->hashed ? req->fn->index : 0, req->call, req->gen, 0);
}

void answer_no_room(struct shard *s, struct session *se)
{
	counter_add(&s->counters.packets_dropped, 1);
	session_protocol_error(s, se);
}

/* A cancel is behind its request, what belongs to fragments behind what was said of them; ASK is behind what it asks
 * for. Answers, grants and credits are behind nothing but smaller ones. */
static inline enum nic_order order_of(enum head_type type)
{
	if (type == HEAD_CANCEL)
		return NIC_ORDER_ALL;
	return type == HEAD_ASK || type == HEAD_LARGE || type == HEAD_ABORT ? NIC_ORDER_STREAM : NIC_ORDER_NONE;
}

static int send_now(struct shard *s, struct session *se, enum head_type type, unsigned flags, unsigned fn,
		    uint32_t call, uint32_t gen, uint64_t time, const void *data, size_t len)
{
	struct nic_tx tx;
	int error = se->q->ops->tx_reserve(se->q, se->peer, len, &tx);
	if (unlikely(error))
		return error;
	fill(tx.head, type, flags, fn, call, gen, time);
	copy_body(tx.body, data, len);
	tx.order = (uint8_t)order_of(type);
	error = session_commit(s, se, &tx);
	if (unlikely(error)) {
		se->q->ops->tx_cancel(se->q, &tx);
		return error;
	}
	if (type == HEAD_REPLY || type == HEAD_ERROR) {
		counter_add(&s->counters.replies_sent, 1);
		counter_add(&s->counters.bytes_sent, len);
	}
	return 0;
}

int answer_packet(struct shard *s, struct session *se, const struct shm_head *h, const void *data, size_t len)
{
	shard_own(s);
	return send_now(s, se, (enum head_type)h->type, h->flags, h->fn, h->call, h->gen, head_time(h), data, len);
}

void answer_bare(struct shard *s, struct session *se, enum head_type type, enum far_executed executed, uint32_t call,
		 uint32_t gen)
{
	shard_own(s);
	if (se->state != SESSION_UP)
		return;
	if (send_now(s, se, type, (unsigned)executed << HEAD_EXECUTED_SHIFT, 0, call, gen, 0, NULL, 0))
		answer_no_room(s, se);
}

void answer_cancel(struct shard *s, struct session *se, uint32_t call, uint32_t gen, unsigned flags)
{
	shard_own(s);
	/* It may be lost: the callee has the deadline too. */
	if (se->state == SESSION_UP)
		send_now(s, se, HEAD_CANCEL, flags, 0, call, gen, 0, NULL, 0);
}

/* Queues the answer of a record until bulk memory returns. */
static void block(struct shard *s, struct session *se, struct far_deferred *d)
{
	struct far_deferred **at = &se->backpressured_head;
	d->next = NULL;
	while (*at) /* at most FAR_SESSION_CALLS_MAX */
		at = &(*at)->next;
	*at = d;
	if (!(se->backpressured & SESSION_BACKPRESSURED)) {
		se->backpressured |= SESSION_BACKPRESSURED;
		s->backpressured_n++;
	}
}

int answer_send_record(struct shard *s, struct session *se, const struct far_deferred *d, unsigned flags)
{
	const void *data = d->buf ? buf_data(d->buf) : NULL;
	if (d->status != FAR_OK)
		return send_now(s, se, HEAD_ERROR, flags | (unsigned)d->executed << HEAD_EXECUTED_SHIFT, d->status,
				d->call, d->gen, (uint32_t)d->code, data, d->len);
	if (unlikely(d->len > se->eager_max)) {
		struct shm_head h = {
			.flags = (uint8_t)(flags | (d->hashed ? HEAD_HASHED : 0) | (d->rrefs ? HEAD_RREFS : 0)),
			.fn = d->hashed ? (uint16_t)d->fn->index : 0,
			.call = d->call,
			.gen = d->gen};
		s->hooks.reply_send(s, se, &h, d->buf, d->len);
		return 0;
	}
	return send_now(s, se, HEAD_REPLY, flags | (d->hashed ? HEAD_HASHED : 0) | (d->rrefs ? HEAD_RREFS : 0),
			d->hashed ? d->fn->index : 0, d->call, d->gen, 0, data, d->len);
}

void answer_error(struct shard *s, struct session *se, uint32_t call, uint32_t gen, enum far_status status,
		  enum far_executed executed, int32_t code, const char *text, size_t len)
{
	shard_own(s);
	unsigned flags = (unsigned)executed << HEAD_EXECUTED_SHIFT;
	if (len >= FAR_ERR_TEXT_MAX)
		len = FAR_ERR_TEXT_MAX - 1;
	int error = send_now(s, se, HEAD_ERROR, flags, status, call, gen, (uint32_t)code, text, len);
	if (error == -ENOBUFS) /* a cut text now beats a whole one later */
		error = send_now(s, se, HEAD_ERROR, flags, status, call, gen, (uint32_t)code, text, FAR_LINE_PAYLOAD);
	if (error && error != -EPIPE)
		answer_no_room(s, se);
}

size_t answer_no_memory(char text[FAR_ERR_TEXT_MAX], size_t len)
{
	char why[BUDGET_TEXT_MAX];
	budget_text(why, sizeof why, len);
	return (size_t)snprintf(text, FAR_ERR_TEXT_MAX, "the callee has no memory for the answer: %s", why);
}

int answer_now(const struct far_req *req, const void *data, size_t len)
{
	shard_own(req->shard);
	if (unlikely(req->session->backpressured & SESSION_BACKPRESSURED))
		return -ENOBUFS;
	return send_now(req->shard, req->session, HEAD_REPLY, req->hashed ? HEAD_HASHED : 0,
			req->hashed ? req->fn->index : 0, req->call, req->gen, 0, data, len);
}

static void answer_resource(struct shard *s, struct session *se, uint32_t call, uint32_t gen, size_t len)
{
	char text[FAR_ERR_TEXT_MAX];
	answer_error(s, se, call, gen, FAR_RESOURCE, FAR_EXECUTED_YES, 0, text, answer_no_memory(text, len));
}

void answer_send(struct shard *s, struct session *se, uint32_t call, uint32_t gen, const struct function *fn,
		 bool hashed, const void *data, size_t len)
{
	shard_own(s);
	int error = se->backpressured & SESSION_BACKPRESSURED
			    ? -ENOBUFS
			    : send_now(s, se, HEAD_REPLY, hashed ? HEAD_HASHED : 0, hashed ? fn->index : 0, call, gen,
				       0, data, len);
	if (likely(error == 0) || error == -EPIPE)
		return;
	if (unlikely(error == -ENOMEM)) {
		answer_resource(s, se, call, gen, len);
		return;
	}
	if (unlikely(error != -ENOBUFS)) {
		answer_no_room(s, se);
		return;
	}
	struct far_buf *buf = len ? buf_alloc(len) : NULL;
	struct far_deferred *d = buf || !len ? deferred_alloc(s, se, call, gen, fn, hashed) : NULL;
	if (!d) {
		buf_unref(buf);
		answer_resource(s, se, call, gen, len);
		return;
	}
	if (len)
		memcpy(buf_data(buf), data, len);
	d->buf = buf;
	d->len = len;
	block(s, se, d);
}

/* ---- answers of records ---- */

void answer_deferred(struct shard *s, struct far_deferred *d)
{
	shard_own(s);
	struct session *se = &s->sessions[d->session];
	int error = 0;
	if (unlikely(d->features))
		features_record_answered(s, d);
	if (unlikely(se->backpressured & SESSION_HELD) && s->hooks.answer_hold(s, d))
		return;
	if (!d->gone) {
		timer_disarm(&s->wheel, &d->timer.timer);
		error = se->backpressured & SESSION_BACKPRESSURED ? -ENOBUFS : answer_send_record(s, se, d, 0);
	}
	if (error == -ENOBUFS) {
		block(s, se, d);
		return;
	}
	if (unlikely(error == -EAGAIN))
		answer_no_room(s, se);
	if (unlikely(error == -ENOMEM))
		answer_resource(s, se, d->call, d->gen, d->len);
	deferred_free(s, d);
}

/* The list is newest first: it is reversed, so that answers leave in the order in which they were given. */
static struct far_deferred *take_answers(struct shard *s)
{
	struct far_deferred *d = atomic_exchange_explicit(&s->answers, NULL, memory_order_acquire), *in_order = NULL;
	while (d) {
		struct far_deferred *next = d->next;
		d->next = in_order;
		in_order = d;
		d = next;
	}
	return in_order;
}

unsigned deferred_drain_quietly(struct shard *s)
{
	shard_own(s);
	struct far_deferred *d, *in_order = take_answers(s);
	unsigned n = 0;
	while ((d = in_order)) {
		in_order = d->next;
		if (unlikely(d->rref)) { /* the value of a reference: callbacks may wait for it */
			deferred_push(s, d);
			continue;
		}
		d->owned = false;
		answer_deferred(s, d);
		n++;
	}
	return n;
}

unsigned deferred_drain(struct shard *s)
{
	shard_own(s);
	struct far_deferred *d, *in_order = take_answers(s);
	unsigned n = 0;
	while ((d = in_order)) {
		in_order = d->next;
		d->owned = false;
		answer_deferred(s, d);
		n++;
	}
	return n;
}

/* ---- blocked sessions ---- */

static struct paused_request *paused_at(const struct session *se, uint32_t i)
{
	return &se->paused->ring[(se->paused_head + i) % FAR_SESSION_REQUESTS_MAX];
}

static void paused_take(struct shard *s, struct session *se)
{
	struct paused_requests *r = s->paused_free;
	if (r)
		s->paused_free = r->next_free;
	else
		r = shard_pool_carve(&s->paused, sizeof *r);
	se->paused = r;
	se->paused_head = 0;
}

static void paused_give(struct shard *s, struct session *se)
{
	if (!se->paused)
		return;
	se->paused->next_free = s->paused_free;
	s->paused_free = se->paused;
	se->paused = NULL;
}

/* The caller has the credits of cancelled requests again, so it may need their slots. */
static void paused_compact(struct session *se)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < se->paused_n; i++) {
		const struct paused_request *p = paused_at(se, i);
		if (p->cancelled)
			continue;
		if (kept != i)
			*paused_at(se, kept) = *p;
		kept++;
	}
	se->paused_n = (uint8_t)kept;
}

/* A retransmitted request has no credit, and is sent again. */
static bool paused_repeat(const struct shard *s, const struct session *se, const struct shm_head *h,
			  const struct nic_pkt *pkt)
{
	if (s->hooks.request_seen(se, pkt->body, pkt->body_len))
		return true;
	for (uint32_t i = 0; i < se->paused_n; i++) {
		const struct paused_request *p = paused_at(se, i);
		if (p->head.call == h->call && p->head.gen == h->gen)
			return true;
	}
	return false;
}

void dispatch_checked(struct shard *s, struct session *se, const struct shm_head *h, const uint8_t *body, uint64_t len,
		      uint64_t waited)
{
	shard_own(s);
	if (unlikely(se->backpressured & SESSION_HELD))
		s->hooks.request_hold(s, se, h, body, len, waited);
	else
		dispatch(s, se, h, body, len, waited);
}

void answer_pause_request(struct shard *s, struct session *se, const struct shm_head *h, const struct nic_pkt *pkt)
{
	shard_own(s);
	if (!(se->backpressured & SESSION_BACKPRESSURED)) {
		dispatch_checked(s, se, h, pkt->body, pkt->body_len, 0);
		return;
	}
	if (unlikely(h->flags & HEAD_RETRY) && paused_repeat(s, se, h, pkt)) {
		counter_add(&s->counters.requests_duplicate, 1);
		return;
	}
	if (se->paused_n == FAR_SESSION_REQUESTS_MAX)
		paused_compact(se);
	if (se->paused_n == FAR_SESSION_REQUESTS_MAX) { /* more than its credits allow */
		answer_no_room(s, se);
		return;
	}
	if (!se->paused)
		paused_take(s, se);
	struct paused_request *p = paused_at(se, se->paused_n);
	p->buf = NULL;
	if (pkt->body_len > FAR_LINE_PAYLOAD && !(p->buf = buf_alloc(pkt->body_len))) {
		static const char text[] = "the callee has no memory to keep the request";
		if (h->flags & HEAD_RETRY) /* it is sent again */
			return;
		answer_error(s, se, h->call, h->gen, FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		return;
	}
	if (pkt->body_len)
		memcpy(p->buf ? buf_data(p->buf) : p->line, pkt->body, pkt->body_len);
	p->head = *h;
	p->cancelled = false;
	p->body_len = pkt->body_len;
	p->arrived = clock_now(s->config.clock);
	se->paused_n++;
}

static void run_paused(struct shard *s, struct session *se)
{
	while (!(se->backpressured & SESSION_BACKPRESSURED) && se->paused_n && se->state == SESSION_UP) {
		struct paused_request *p = &se->paused->ring[se->paused_head];
		struct far_buf *buf = p->buf; /* *p may hold another request after the handler */
		se->paused_head = (se->paused_head + 1) % FAR_SESSION_REQUESTS_MAX;
		se->paused_n--;
		if (!p->cancelled)
			dispatch_checked(s, se, &p->head, buf ? buf_data(buf) : p->line, p->body_len,
					 clock_now(s->config.clock) - p->arrived);
		buf_unref(buf);
	}
	if (se->paused_n == 0)
		paused_give(s, se);
}

static unsigned resume_session(struct shard *s, struct session *se)
{
	unsigned n = 0;
	struct far_deferred *d;
	while ((d = se->backpressured_head)) {
		int error = d->gone ? 0 : answer_send_record(s, se, d, 0);
		if (error == -ENOBUFS)
			return n;
		if (unlikely(error == -EAGAIN))
			answer_no_room(s, se);
		if (unlikely(error == -ENOMEM))
			answer_resource(s, se, d->call, d->gen, d->len);
		se->backpressured_head = d->next;
		deferred_free(s, d);
		n++;
	}
	se->backpressured &= (uint8_t)~SESSION_BACKPRESSURED;
	s->backpressured_n--;
	run_paused(s, se);
	return n + 1;
}

unsigned answer_resume(struct shard *s)
{
	shard_own(s);
	unsigned n = 0;
	for (struct session *se = s->known; se; se = se->next_known)
		if (se->backpressured & SESSION_BACKPRESSURED)
			n += resume_session(s, se);
	return n;
}

void answer_drop_all(struct shard *s, struct session *se)
{
	shard_own(s);
	struct far_deferred *d;
	while ((d = se->backpressured_head)) {
		se->backpressured_head = d->next;
		deferred_free(s, d);
	}
	if (se->backpressured & SESSION_BACKPRESSURED)
		s->backpressured_n--;
	se->backpressured = 0;
	for (; se->paused_n; se->paused_n--) {
		struct paused_request *p = &se->paused->ring[se->paused_head];
		se->paused_head = (se->paused_head + 1) % FAR_SESSION_REQUESTS_MAX;
		buf_unref(p->buf);
		p->buf = NULL;
	}
	paused_give(s, se);
}
