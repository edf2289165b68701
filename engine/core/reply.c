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
#include "core/packet.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/tlv.h"
#include "memory/budget.h"
#include "value/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Room for a packet with a body of `len` bytes: 0, -ENOBUFS, -EAGAIN, -EPIPE. commit() sends it. */
static inline int reserve(const struct session *se, size_t len, struct nic_tx *tx)
{
	return se->q->ops->tx_reserve(se->q, se->peer, len, tx);
}

static inline int commit(struct shard *s, struct session *se, struct nic_tx *tx, enum nic_order order)
{
	tx->order = (uint8_t)order;
	int error = session_commit(s, se, tx);
	if (unlikely(error))
		se->q->ops->tx_cancel(se->q, tx);
	return error;
}

static inline int commit_answer(struct shard *s, struct session *se, struct nic_tx *tx, size_t len)
{
	int error = commit(s, se, tx, NIC_ORDER_NONE);
	if (unlikely(error))
		return error;
	counter_add(&s->counters.replies_sent, 1);
	session_count_sent(s, se, len);
	return 0;
}

static inline void fill_reply(uint8_t *head, unsigned flags, const struct function *learned, uint32_t slot,
			      uint32_t generation)
{
	union packet_head *h = packet_at(head);
	packet_begin(h, PACKET_REPLY, flags | (learned ? PACKET_HASHED : 0), slot, generation);
	h->reply.function = learned ? (uint16_t)learned->index : 0;
	h->reply.zeros[0] = h->reply.zeros[1] = 0;
}

void answer_fill_head(uint8_t *head, const struct far_req *req)
{
	fill_reply(head, 0, req->hashed ? req->fn : NULL, req->call, req->gen);
}

void answer_no_room(struct shard *s, struct session *se)
{
	shard_own(s);
	counter_add(&s->counters.packets_dropped, 1);
	session_protocol_error(s, se);
}

static int send_error(struct shard *s, struct session *se, const union packet_head *h, const char *text, size_t len)
{
	struct nic_tx tx;
	int error = reserve(se, len, &tx);
	if (unlikely(error))
		return error;
	memcpy(tx.head, h, sizeof *h);
	copy_body(tx.body, text, len);
	return commit_answer(s, se, &tx, len);
}

/* A cancel is behind its request, what belongs to fragments behind what was announced of them; CREDIT_REQUEST is
 * behind what it requests. Grants and credits are behind nothing but smaller ones. */
static inline enum nic_order order_of(unsigned type)
{
	return type == PACKET_CREDIT_REQUEST || type == PACKET_RENDEZVOUS || type == PACKET_ABORT ? NIC_ORDER_STREAM
												  : NIC_ORDER_NONE;
}

int answer_packet(struct shard *s, struct session *se, const union packet_head *h, const void *data, size_t len)
{
	struct nic_tx tx;
	shard_own(s);
	int error = reserve(se, len, &tx);
	if (unlikely(error))
		return error;
	memcpy(tx.head, h, sizeof *h);
	copy_body(tx.body, data, len);
	return commit(s, se, &tx, order_of(h->type));
}

void answer_cancelled(struct shard *s, struct session *se, enum far_executed executed, uint32_t slot,
		      uint32_t generation)
{
	shard_own(s);
	const struct packet_cancelled h = {
		.type = PACKET_CANCELLED, .slot = slot, .generation = generation, .executed = executed};
	if (se->state == SESSION_UP && answer_packet(s, se, &(union packet_head){.cancelled = h}, NULL, 0))
		answer_no_room(s, se);
}

void answer_cancel(struct shard *s, struct session *se, uint32_t slot, uint32_t generation, unsigned flags)
{
	struct nic_tx tx;
	shard_own(s);
	/* It may be lost: the callee has the deadline too. */
	if (se->state != SESSION_UP || reserve(se, 0, &tx))
		return;
	union packet_head *h = packet_at(tx.head);
	packet_begin(h, PACKET_CANCEL, flags, slot, generation);
	h->call.zero = 0;
	h->call.zeros[0] = h->call.zeros[1] = 0;
	commit(s, se, &tx, NIC_ORDER_ALL);
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

/* The rarer answers of records: errors, and those with fields. */
__attribute__((noinline, cold)) static int send_rare(struct shard *s, struct session *se, const struct far_deferred *d,
						     union packet_head *h)
{
	const struct tlv_block *fields = d->extra && d->extra->tlv ? tlv_block_in(d->extra->tlv) : NULL;
	size_t more = fields ? fields->bytes : 0;
	struct nic_tx tx;
	if (fields) {
		h->flags |= PACKET_TLV;
		h->call.tlv_bytes = fields->bytes;
	}
	if (d->len + more > se->eager_max && h->type == PACKET_REPLY) {
		s->hooks.reply_send(s, se, &h->reply, d->buf, d->len, d->extra ? d->extra->tlv : NULL);
		return 0;
	}
	int error = reserve(se, d->len + more, &tx);
	if (unlikely(error))
		return error;
	memcpy(tx.head, h, sizeof *h);
	session_copy(se, tx.body, d->buf ? buf_data(d->buf) : NULL, d->len);
	if (fields)
		memcpy((uint8_t *)tx.body + d->len, fields->data, more);
	return commit_answer(s, se, &tx, d->len + more);
}

__attribute__((noinline, cold)) static int send_failed_record(struct shard *s, struct session *se,
							      const struct far_deferred *d, unsigned flags)
{
	union packet_head h = {.error = {.type = PACKET_ERROR,
					 .flags = (uint8_t)flags,
					 .status = (uint16_t)d->status,
					 .slot = d->call,
					 .generation = d->gen,
					 .code = d->code,
					 .executed = d->executed}};
	return send_rare(s, se, d, &h);
}

int answer_send_record(struct shard *s, struct session *se, const struct far_deferred *d, unsigned flags)
{
	shard_own(s);
	const struct function *learned = d->hashed ? d->fn : NULL;
	struct nic_tx tx;
	if (unlikely(d->status != FAR_OK))
		return send_failed_record(s, se, d, flags);
	flags |= d->rrefs ? PACKET_RREFS : 0;
	if (unlikely(d->extra != NULL || d->len > se->eager_max)) {
		union packet_head h;
		fill_reply((uint8_t *)&h, flags, learned, d->call, d->gen);
		return send_rare(s, se, d, &h);
	}
	int error = reserve(se, d->len, &tx);
	if (unlikely(error))
		return error;
	fill_reply(tx.head, flags, learned, d->call, d->gen);
	session_copy(se, tx.body, d->buf ? buf_data(d->buf) : NULL, d->len);
	return commit_answer(s, se, &tx, d->len);
}

void answer_error(struct shard *s, struct session *se, uint32_t slot, uint32_t generation,
		  const struct answer_failure *f)
{
	shard_own(s);
	union packet_head h = {.error = {.type = PACKET_ERROR,
					 .status = (uint16_t)f->status,
					 .slot = slot,
					 .generation = generation,
					 .code = f->code,
					 .executed = f->executed}};
	int error = send_error(s, se, &h, f->text, f->len < FAR_ERR_TEXT_MAX ? f->len : FAR_ERR_TEXT_MAX - 1);
	if (error == -ENOBUFS) /* a cut text now beats a complete one later */
		error = send_error(s, se, &h, f->text, FAR_LINE_PAYLOAD);
	if (error && error != -EPIPE)
		answer_no_room(s, se);
}

size_t answer_no_memory(char text[FAR_ERR_TEXT_MAX], size_t len)
{
	char why[BUDGET_TEXT_MAX];
	budget_text(why, sizeof why, len);
	return (size_t)snprintf(text, FAR_ERR_TEXT_MAX, "the callee has no memory for the answer: %s", why);
}

static inline __attribute__((always_inline)) int send_reply(const struct far_req *req, const void *data, size_t len)
{
	struct session *se = req->session;
	struct nic_tx tx;
	shard_own(req->shard);
	if (unlikely(se->backpressured & SESSION_BACKPRESSURED))
		return -ENOBUFS;
	int error = reserve(se, len, &tx);
	if (unlikely(error))
		return error;
	fill_reply(tx.head, 0, req->hashed ? req->fn : NULL, req->call, req->gen);
	copy_body(tx.body, data, len);
	return commit_answer(req->shard, se, &tx, len);
}

int answer_now(const struct far_req *req, const void *data, size_t len)
{
	return send_reply(req, data, len);
}

static void answer_resource(struct shard *s, struct session *se, uint32_t slot, uint32_t generation, size_t len)
{
	char text[FAR_ERR_TEXT_MAX];
	size_t text_len = answer_no_memory(text, len);
	answer_error(s, se, slot, generation,
		     &(struct answer_failure){FAR_RESOURCE, FAR_EXECUTED_YES, 0, text, text_len});
}

void answer_send(const struct far_req *req, const void *data, size_t len)
{
	struct shard *s = req->shard;
	struct session *se = req->session;
	int error = send_reply(req, data, len);
	if (likely(error == 0) || error == -EPIPE)
		return;
	if (unlikely(error == -ENOMEM)) {
		answer_resource(s, se, req->call, req->gen, len);
		return;
	}
	if (unlikely(error != -ENOBUFS)) {
		answer_no_room(s, se);
		return;
	}
	struct far_buf *buf = len ? buf_alloc(len) : NULL;
	struct far_deferred *d = buf || !len ? deferred_alloc(s, se, req->call, req->gen, req->fn, req->hashed) : NULL;
	if (!d) {
		buf_unref(buf);
		answer_resource(s, se, req->call, req->gen, len);
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
static bool paused_repeat(const struct shard *s, const struct session *se, const union packet_head *h,
			  const struct nic_pkt *pkt)
{
	if (s->hooks.request_seen(se, pkt->body, pkt->body_len))
		return true;
	for (uint32_t i = 0; i < se->paused_n; i++) {
		const struct paused_request *p = paused_at(se, i);
		if (p->head.call.slot == h->call.slot && p->head.call.generation == h->call.generation)
			return true;
	}
	return false;
}

void dispatch_checked(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body,
		      uint64_t len, uint64_t waited)
{
	shard_own(s);
	if (unlikely(se->backpressured & SESSION_HELD))
		s->hooks.request_hold(s, se, h, body, len, waited);
	else if (unlikely(se->backpressured & SESSION_SHOWN))
		dispatch_shown(s, se, h, body, len, waited);
	else
		dispatch(s, se, h, body, len, waited);
}

void answer_pause_request(struct shard *s, struct session *se, const union packet_head *h, const struct nic_pkt *pkt)
{
	shard_own(s);
	if (!(se->backpressured & SESSION_BACKPRESSURED)) {
		dispatch_checked(s, se, h, pkt->body, pkt->body_len, 0);
		return;
	}
	if (unlikely(h->flags & PACKET_RETRY) && paused_repeat(s, se, h, pkt)) {
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
		if (h->flags & PACKET_RETRY) /* it is sent again */
			return;
		answer_error(s, se, h->call.slot, h->call.generation,
			     &(struct answer_failure){FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, sizeof text - 1});
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
