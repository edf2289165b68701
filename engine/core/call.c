/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The caller's side of calls: shard_call() takes a slot, the call's last packet or the end of its session gives it
 * back. Shard thread.
 */
#include "core/call.h"

#include "core/call_deadline.h"
#include "core/call_unsent.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/context.h"
#include "core/feature.h"
#include "core/packet.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/tlv.h"
#include "core/waiting.h"
#include "value/registry.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Follows the deadline of a call that was sent. */
static inline __attribute__((always_inline)) void call_watch(struct shard *s, struct call *c, uint64_t left)
{
	if (unlikely(left < CALL_NEAR_NS)) {
		s->latency.pending_since[c->slot] = c->timer.at - left;
		timer_arm(&s->call_wheel, &c->timer, c->timer.at);
	} else if (!c->young) {
		c->young = 1;
		s->young[s->young_n++] = c->slot;
	}
	if (unlikely(--s->due_left < 0))
		call_due(s, c);
}

static struct call *call_take(struct shard *s)
{
	struct call *c = s->calls_free;
	if (likely(c != NULL)) {
		s->calls_free = c->next;
		return c;
	}
	if (s->calls_used == s->calls_n)
		return NULL;
	c = &s->calls[s->calls_used];
	c->slot = s->calls_used++;
	return c;
}

__attribute__((noinline, cold)) void call_due(struct shard *s, struct call *c)
{
	struct latency *l = &s->latency;
	if (s->young_n == SHARD_YOUNG_MAX)
		call_stamp(s, clock_now(s->config.clock));
	if (!l->left) {
		l->left = latency_next(l) + 1;
		c->sampled = latency_begin(l, c->slot, clock_now(s->config.clock));
	}
	uint32_t room = SHARD_YOUNG_MAX - s->young_n, n = l->left < room ? l->left : room;
	l->left -= n;
	s->due_left = (int32_t)n - 1; /* the last of them is due */
}

__attribute__((noinline, cold)) void call_sample_end(struct shard *s, struct call *c)
{
	latency_end(&s->latency, c->slot, clock_now(s->config.clock));
	c->sampled = 0;
}

__attribute__((noinline, cold)) static void call_over(struct shard *s, struct call *c)
{
	if (c->features)
		features_call_over(s, c);
	if (c->sampled)
		call_sample_end(s, c);
}

static void call_give(struct shard *s, struct call *c)
{
	if (unlikely(c->what >> 16 & CALL_OVER))
		call_over(s, c);
	c->state = CALL_FREE;
	c->gen += MUTANT(GENERATION_KEPT) ? 0u : 1u;
	c->plain = c->future = c->line = 0;
	c->next = s->calls_free;
	s->calls_free = c;
	s->sessions[c->session].calls_active--;
	session_count(&s->sessions[c->session].counters.calls_ended, 1);
	counter_add(&s->counters.calls_ended, 1);
}

/* The completion of a call whose slot was given back has returned. It may have released references, whose owners hear
 * of it before this worker leaves. Pairs with outstanding(). */
static inline void call_returned(struct shard *s)
{
	counter_add_last(&s->counters.calls_returned, 1);
}

static inline struct call_id id_of(const struct call *c)
{
	return (struct call_id){c->slot + 1, c->gen};
}

/* The completion of a call, copied out of its slot before the slot is given back. */
struct call_completion {
	call_done_fn *done;
	void *user;
	void (*app)(void);
};

static struct call_completion completion_of(const struct call *c)
{
	return (struct call_completion){c->done, c->user, c->app};
}

static inline __attribute__((always_inline)) void finish(struct shard *s, const struct call_completion *e,
							 struct completion *o)
{
	const char *outer = s->context.handler;
	counter_add(o->status == FAR_OK ? &s->counters.calls_completed : &s->counters.calls_failed, 1);
	o->agent = s->config.agent;
	o->app = e->app;
	s->context.handler = "a completion callback";
	e->done(e->user, o);
	s->context.handler = outer;
}

/* The rarer ends of calls. */
__attribute__((noinline, cold)) static void finish_slow(struct shard *s, const struct call_completion *e,
							struct completion *o)
{
	finish(s, e, o);
}

static int reserve_error(int error)
{
	/* Bulk memory returns as the peer reads what it was sent: backpressure for the caller. */
	return error == -ENOBUFS ? -EAGAIN : error;
}

__attribute__((noinline, cold)) static int no_credit(struct shard *s, struct session *se,
						     const struct call_start *start)
{
	if (s->stopped)
		return -ESHUTDOWN;
	if (session_is_dead(s, se))
		return -EPIPE;
	if (start->id) /* future_alloc_handed() leaves it as it was */
		start->id->slot = 0;
	int error = s->hold_calls ? s->hooks.call_hold(s, se, start) : 1;
	if (error <= 0)
		return error;
	return waiting_put(s, se, start);
}

__attribute__((noinline, cold)) void call_write_trailer(const struct shard *s, union packet_head *h, uint16_t fn,
							const struct tlv_block *fields, uint8_t *at)
{
	if (h->flags & PACKET_HASHED) {
		const struct function *f = registry_at(s->registry, fn);
		struct packet_hash hash = {f->signature.name_hash, f->signature.canonical_hash};
		memcpy(at, &hash, sizeof hash);
		at += sizeof hash;
	}
	if (fields) {
		h->call.tlv_bytes = fields->bytes;
		memcpy(at, fields->data, fields->bytes);
	}
}

__attribute__((noinline, cold)) static int start_rendezvous(struct shard *s, struct session *se,
							    const struct call_start *start)
{
	if (start->len > se->message_max || !start->ready)
		return -EMSGSIZE;
	struct call *c = call_take(s);
	if (!c)
		return -EAGAIN;
	c->done = start->done;
	c->user = start->user;
	c->app = start->app;
	c->session = se->index;
	c->fn = start->fn;
	c->typed = start->typed != 0;
	c->retry = 0;
	c->features = 0;
	c->state = CALL_RENDEZVOUS;
	c->timer.at = start->deadline;
	if (start->id)
		*start->id = id_of(c);
	se->calls_active++;
	counter_add(&s->counters.calls_sent, 1);
	const struct packet_request head = {.type = PACKET_REQUEST,
					    .flags = start->typed,
					    .handler = start->fn,
					    .slot = c->slot,
					    .generation = c->gen};
	s->hooks.request_send(s, se, start, &head);
	call_watch(s, c, start->left);
	return 0;
}

int shard_call(struct shard *s, const struct call_start *start)
{
	shard_own(s);
	uint32_t session = session_index(s, start->worker, start->shard);
	struct session *se = &s->sessions[session];
	if (unlikely(se->calls_active >= se->calls_max))
		return no_credit(s, se, start);
	if (unlikely(start->len > se->eager_max || start->ready))
		return start_rendezvous(s, se, start);
	uint32_t fn = start->fn, flags = 0;
	size_t trailer = 0;
	if (start->typed) {
		flags = start->typed;
		if (unlikely(flags & PACKET_NAMED) && !s->hooks.call_reaches(start, se->incarnation))
			return -EPIPE;
		fn = session_functions(s, se)[start->fn] - 1u;
		if (unlikely(fn == UINT32_MAX)) {
			flags |= PACKET_HASHED;
			trailer = sizeof(struct packet_hash);
			fn = 0;
		}
	}
	void *copy = NULL;
	struct packet_retry repeat;
	int error;
	const struct tlv_block *fields = NULL;
	if (unlikely(start->extra != NULL) && start->extra->tlv) {
		fields = tlv_block_in(start->extra->tlv);
		flags |= PACKET_TLV;
		trailer += fields->bytes;
	}
	if (unlikely(start->retry_ns)) {
		error = s->hooks.call_keep(s, se, start, &copy, &repeat);
		if (error)
			return error;
		flags |= PACKET_RETRY;
	}
	struct nic_tx tx;
	error = session_reserve(se, start->write || trailer || copy ? NULL : start->data,
				start->len + trailer + (copy ? sizeof repeat : 0), &tx);
	if (unlikely(error)) {
		s->hooks.call_abandon(copy);
		return reserve_error(error);
	}
	struct call *c = call_take(s);
	if (unlikely(!c)) {
		s->hooks.call_abandon(copy);
		se->q->ops->tx_cancel(se->q, &tx);
		return -EAGAIN;
	}
	c->retry = 0;
	c->features = 0;
	c->done = start->done;
	c->user = start->user;
	c->app = start->app;
	c->session = session;
	c->fn = start->fn;
	c->typed = start->typed != 0;
	c->state = CALL_SENT;
	c->timer.at = start->deadline;
	union packet_head *h = packet_at(tx.head);
	packet_begin(h, PACKET_REQUEST, flags, c->slot, c->gen);
	h->request.handler = (uint16_t)fn;
	h->request.time_left = start->left;
	if (start->write)
		start->write(start->data, tx.body, start->len, session_copier(se, start->len));
	else if (likely(tx.body != start->data))
		session_copy(se, tx.body, start->data, start->len);
	if (unlikely(trailer))
		call_write_trailer(s, h, start->fn, fields, tx.body + start->len);
	if (unlikely(copy != NULL))
		memcpy(tx.body + start->len + trailer, &repeat, sizeof repeat);
	se->calls_active++;
	counter_add(&s->counters.calls_sent, 1);
	session_count_sent(s, se, start->len);
	tx.order = NIC_ORDER_NONE;
	if (unlikely(session_commit(s, se, &tx))) { /* only with a peer that returns no slots */
		se->q->ops->tx_cancel(se->q, &tx);
		s->hooks.call_abandon(copy);
		call_give(s, c);
		call_returned(s);
		return -EAGAIN;
	}
	if (unlikely(copy != NULL))
		s->hooks.call_sent(s, copy, c);
	call_watch(s, c, start->left);
	if (start->id)
		*start->id = id_of(c);
	return 0;
}

static void completion_of_error(struct completion *o, const struct packet_error *h, const uint8_t *body, uint64_t len)
{
	o->status = h->status > FAR_OK && h->status < FAR_STATUS_COUNT ? (enum far_status)h->status : FAR_PROTOCOL;
	o->executed = h->executed <= FAR_EXECUTED_YES ? (enum far_executed)h->executed : FAR_EXECUTED_MAYBE;
	o->code = h->code;
	o->data = body;
	o->len = len < FAR_ERR_TEXT_MAX ? len : FAR_ERR_TEXT_MAX - 1;
}

/* Adopts the references of a result before the application reads it: a future may be dropped. */
__attribute__((noinline, cold)) static void finish_rrefs(struct shard *s, struct session *se,
							 const struct call_completion *e, struct completion *o)
{
	struct far_err err;
	s->hooks.result_read(s, se, o->data, o->len, o, &err);
	struct far_buf *tree = o->tree;
	finish(s, e, o);
	buf_unref(tree);
}

__attribute__((noinline, cold)) static void answered_rrefs(struct shard *s, struct session *se, struct call *c,
							   struct completion *o)
{
	struct call_completion call_completion = completion_of(c);
	timer_disarm(&s->call_wheel, &c->timer);
	call_give(s, c);
	finish_rrefs(s, se, &call_completion, o);
	call_returned(s);
}

/* The result of a call that has ended: releases its references. */
static void drop_rrefs(struct shard *s, struct session *se, const uint8_t *body, uint64_t len)
{
	struct far_err err;
	struct completion o = {.status = FAR_OK};
	s->hooks.result_read(s, se, body, len, &o, &err);
	buf_unref(o.tree);
}

/* The last packet of a call that ended here before. */
static void ended_answered(struct shard *s, struct call *c)
{
	if (MUTANT(SLOT_LEAKED))
		return;
	call_give(s, c);
	call_returned(s);
}

/* An answer to a call that ended here before, or whose message is under way. */
__attribute__((noinline, cold)) static void answered_slow(struct shard *s, struct session *se,
							  const union packet_head *h, const uint8_t *body, uint64_t len,
							  struct call *c)
{
	if (c->state == CALL_ENDED) {
		counter_add(&s->counters.replies_late, 1);
		ended_answered(s, c);
		if (h->type == PACKET_REPLY && h->flags & PACKET_RREFS)
			drop_rrefs(s, se, body, len);
		return;
	}
	s->hooks.call_detach(s, se, c);
	call_on_answer(s, se, h, body, len);
}

/* CANCELLED, to a call that was not cancelled here. */
__attribute__((noinline, cold)) static void
callee_gave_up(struct shard *s, struct call *c, const struct call_completion *call_completion, int16_t origin)
{
	char text[FAR_ERR_TEXT_MAX], name[SIGNATURE_NAME_MAX];
	snprintf(text, sizeof text, "no answer to %s: the callee gave up at the end of the call's time-out",
		 call_name(s, c->typed, c->fn, c->done, c->user, name, sizeof name));
	struct completion o = {.status = FAR_TIMEOUT,
			       .executed = FAR_EXECUTED_MAYBE,
			       .origin = origin,
			       .data = text,
			       .len = strlen(text)};
	timer_disarm(&s->call_wheel, &c->timer);
	call_give(s, c);
	finish_slow(s, call_completion, &o);
	call_returned(s);
}

void call_on_answer(struct shard *s, struct session *se, const union packet_head *h, const uint8_t *body, uint64_t len)
{
	shard_own(s);
	struct call *c = h->call.slot < s->calls_n ? &s->calls[h->call.slot] : NULL;
	if (unlikely(!c || c->gen != h->call.generation || c->session != se->index || c->state == CALL_FREE)) {
		/* An answer to a retransmission may come after the call's end, and so may the one to a retransmitted
		 * cancel. */
		bool late = se->retry_caller && (h->flags & PACKET_RETRY || h->type == PACKET_CANCELLED);
		counter_add(late ? &s->counters.replies_late : &s->counters.packets_dropped, 1);
		return;
	}
	if (unlikely(c->state != CALL_SENT)) {
		answered_slow(s, se, h, body, len, c);
		return;
	}
	struct call_completion call_completion = completion_of(c);
	struct completion o = {.status = FAR_OK, .executed = FAR_EXECUTED_YES, .origin = (int16_t)se->worker};
	if (likely(h->type == PACKET_REPLY)) {
		o.data = body;
		o.len = len;
		if (unlikely(h->flags & (PACKET_HASHED | PACKET_RREFS))) {
			if (h->flags & PACKET_HASHED && c->typed && h->reply.function < FAR_FUNCTIONS_MAX)
				session_learn(s, se, c->fn, h->reply.function);
			if (h->flags & PACKET_RREFS) {
				answered_rrefs(s, se, c, &o);
				return;
			}
		}
	} else if (h->type == PACKET_ERROR) {
		completion_of_error(&o, &h->error, body, len);
		session_count_error(s, se, o.status, c->typed, c->fn);
	} else {
		session_count_error(s, se, FAR_TIMEOUT, c->typed, c->fn);
		callee_gave_up(s, c, &call_completion, (int16_t)se->worker);
		return;
	}
	timer_disarm(&s->call_wheel, &c->timer);
	call_give(s, c);
	finish(s, &call_completion, &o);
	call_returned(s);
}

/* The early end of a call whose request or reply is under way in fragments. Neither CALL_PART_SENT
 * nor CALL_OFFERED: the peer owes nothing more for its slot. */
__attribute__((noinline, cold)) static void end_rendezvous_early(struct shard *s, struct call *c,
								 enum far_status status, const char *text)
{
	static const char *const when[] = {[CALL_NOT_BEGUN] = " before the message was begun",
					   [CALL_PART_SENT] = " while the message was being sent",
					   [CALL_OFFERED] = " while the message was being read",
					   [CALL_PART_RECEIVED] = " while the reply was being received"};
	static const enum far_executed executed[] = {
		FAR_EXECUTED_NO, FAR_EXECUTED_NO, [CALL_OFFERED] = FAR_EXECUTED_MAYBE, FAR_EXECUTED_YES};
	char whole[128];
	struct session *se = &s->sessions[c->session];
	enum call_progress progress = s->hooks.call_detach(s, se, c);
	int len = snprintf(whole, sizeof whole, "%s%s", text, when[progress]);
	struct completion o = {
		.status = status, .executed = executed[progress], .origin = -1, .data = whole, .len = (size_t)len};
	struct call_completion call_completion = completion_of(c);
	timer_disarm(&s->call_wheel, &c->timer);
	session_count_error(s, se, status, c->typed, c->fn);
	bool owed = progress == CALL_PART_SENT || progress == CALL_OFFERED;
	if (owed) {
		if (c->sampled)
			call_sample_end(s, c);
		c->state = CALL_ENDED;
		answer_cancel(s, se, c->slot, c->gen, 0);
	} else {
		call_give(s, c);
	}
	finish_slow(s, &call_completion, &o);
	if (!owed)
		call_returned(s);
}

/* ---- calls whose reply comes in fragments ---- */

bool call_await_rendezvous(struct shard *s, struct session *se, const struct packet_reply *h)
{
	shard_own(s);
	struct call *c = h->slot < s->calls_n ? &s->calls[h->slot] : NULL;
	if (!c || c->gen != h->generation || c->session != se->index || c->state == CALL_FREE) {
		counter_add(&s->counters.packets_dropped, 1);
		return false;
	}
	if (c->state == CALL_ENDED) {
		counter_add(&s->counters.replies_late, 1);
		ended_answered(s, c);
		return false;
	}
	if (c->state == CALL_RENDEZVOUS)
		s->hooks.call_detach(s, se, c);
	if (h->flags & PACKET_HASHED && c->typed && h->function < FAR_FUNCTIONS_MAX)
		session_learn(s, se, c->fn, h->function);
	c->state = CALL_RENDEZVOUS;
	return true;
}

void *call_place(struct shard *s, uint32_t slot, size_t len)
{
	const struct call *c = &s->calls[slot];
	return s->config.place ? s->config.place(c->done, c->user, len) : NULL;
}

void call_complete_rendezvous(struct shard *s, struct session *se, const struct packet_reply *h, struct completion *o)
{
	shard_own(s);
	struct call *c = &s->calls[h->slot];
	must(c->gen == h->generation && c->session == se->index && c->state == CALL_RENDEZVOUS);
	struct call_completion call_completion = completion_of(c);
	timer_disarm(&s->call_wheel, &c->timer);
	call_give(s, c);
	if (o->status != FAR_OK)
		session_count_error(s, se, o->status, c->typed, c->fn);
	if (o->status == FAR_OK && h->flags & PACKET_RREFS)
		finish_rrefs(s, se, &call_completion, o);
	else
		finish_slow(s, &call_completion, o);
	call_returned(s);
}

void call_request_sent(struct shard *s, uint32_t slot, uint32_t gen)
{
	struct call *c = &s->calls[slot];
	if (c->gen == gen && c->state == CALL_RENDEZVOUS)
		c->state = CALL_SENT;
}

/* Ends a call before its answer. The slot stays taken until the peer's last packet, so that a late reply never meets
 * the slot's next generation and the ring's credits stay true; the cancel makes that packet arrive soon. */
void call_end_early(struct shard *s, struct call *c, enum far_status status, const char *text)
{
	if (unlikely(c->state == CALL_RENDEZVOUS)) {
		end_rendezvous_early(s, c, status,
				     status == FAR_TIMEOUT ? "the call's time-out passed"
							   : "the call was cancelled here");
		return;
	}
	struct session *se = &s->sessions[c->session];
	struct completion o = {
		.status = status, .executed = FAR_EXECUTED_MAYBE, .origin = -1, .data = text, .len = strlen(text)};
	timer_disarm(&s->call_wheel, &c->timer);
	session_count_error(s, se, status, c->typed, c->fn);
	if (c->sampled)
		call_sample_end(s, c);
	c->state = CALL_ENDED;
	answer_cancel(s, se, c->slot, c->gen, c->retry ? PACKET_RETRY : 0);
	struct call_completion call_completion = completion_of(c);
	features_call_ended(s, c);
	finish_slow(s, &call_completion, &o);
}

void call_fail_all(struct shard *s, const struct session *se, enum far_status status, const char *text)
{
	shard_own(s);
	struct completion o = {.status = status,
			       .executed = MUTANT(EXECUTED_NO) ? FAR_EXECUTED_NO : FAR_EXECUTED_MAYBE,
			       .origin = se ? (int16_t)se->worker : -1,
			       .data = text,
			       .len = strlen(text)};
	for (uint32_t slot = 0; slot < s->calls_used; slot++) {
		struct call *c = &s->calls[slot];
		if (c->state == CALL_FREE || (se && c->session != se->index))
			continue;
		bool due = c->state >= CALL_SENT;
		struct call_completion call_completion = completion_of(c);
		timer_disarm(&s->call_wheel, &c->timer);
		struct session *of = &s->sessions[c->session];
		call_give(s, c);
		if (due) {
			session_count_error(s, of, status, c->typed, c->fn);
			finish_slow(s, &call_completion, &o);
		}
		call_returned(s);
	}
}
