/* SPDX-License-Identifier: BSD-3-Clause */
/** One pass of a shard: packets, submissions, answers, fibers, timers, in that order. Shard thread. */
#include "core/call.h"

#include "base/must.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/fiber.h"
#include "core/head.h"
#include "core/loop.h"
#include "core/queues.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/waiting.h"
#include "memory/budget.h"

#include <errno.h>
#include <string.h>

/* Passes between two readings of the clock: deadlines are late by a few microseconds at most while the shard is driven,
 * by some tens where the first queue's recv() is a system call. */
#define PASSES_PER_CLOCK 64u
/* The same between two rounds of shard.poll_idle, while there is something else to do in each. */
#define PASSES_PER_IDLE 16u
/* Bytes of a message after which the answers of the burst so far are sent. */
#define ANSWER_AT_ONCE 16384u

static __attribute__((always_inline)) inline void receive_one(struct shard *s, const struct shard_queue *sq,
							      const struct nic_pkt *pkt)
{
	struct shm_head h;
	uint32_t session = sq->peer_session[pkt->peer];
	struct session *se = session ? &s->sessions[session - 1] : NULL;

	if (unlikely(!pkt->head)) {
		counter_add(&s->counters.packets_dropped, 1);
		if (se)
			session_protocol_error(s, se);
		return;
	}
	memcpy(&h, pkt->head, sizeof h);
	if (unlikely(!se || se->state != SESSION_UP)) {
		counter_add(&s->counters.packets_dropped, 1);
		goto release;
	}
	if (unlikely(h.tlv_bytes || h.flags & HEAD_TLV)) {
		static const char text[] = "the request has fields that this version does not know";
		counter_add(&s->counters.packets_dropped, 1);
		if (h.type == HEAD_REQUEST)
			answer_error(s, se, h.call, h.gen, FAR_PROTOCOL, FAR_EXECUTED_NO, 0, text, sizeof text - 1);
		goto release;
	}
	counter_add(&s->counters.bytes_received, pkt->body_len);
	switch (h.type) {
	case HEAD_REQUEST:
		if (unlikely(se->backpressured))
			answer_pause_request(s, se, &h, pkt);
		else
			dispatch(s, se, &h, pkt->body, pkt->body_len, 0);
		break;
	case HEAD_REPLY:
	case HEAD_ERROR:
	case HEAD_CANCELLED:
		call_on_answer(s, se, &h, pkt->body, pkt->body_len);
		break;
	case HEAD_CANCEL:
		/* A call that may be sent again is answered in any case: its answer may have been lost. */
		if (deferred_cancel(s, se, h.call, h.gen) ||
		    (h.flags & HEAD_RETRY && se->q->ops->tx_room(se->q, se->peer) > SHARD_RING_SLOTS))
			answer_bare(s, se, HEAD_CANCELLED, FAR_EXECUTED_MAYBE, h.call, h.gen);
		break;
	default:
		if (s->hooks.packet(s, se, &h, pkt))
			return;
	}
release:
	if (pkt->cookie) {
		sq->ops->release(sq->q, pkt->peer, pkt->cookie);
		/* The answer to a long message does not wait for those behind it. */
		if (pkt->body_len >= ANSWER_AT_ONCE)
			sq->ops->flush(sq->q);
	}
}

/* True if another burst is received before the answers leave. A caller takes half of its answers, so that it works
 * while the callee does. */
static bool another_burst(const struct shard *s, const struct shard_queue *sq, const struct nic_pkt *last,
			  unsigned taken)
{
	uint32_t session = sq->peer_session[last->peer];
	unsigned calls = session ? s->sessions[session - 1].calls_active : 0;
	return calls == 0 || taken < calls / 2;
}

static inline unsigned receive(struct shard *s, const struct shard_queue *sq)
{
	struct nic_pkt pkts[FAR_BURST];
	unsigned n, all = 0, left = sq->bursts;
	do {
		n = sq->ops->recv(sq->q, pkts, FAR_BURST);
		for (unsigned i = 0; i < n; i++)
			receive_one(s, sq, &pkts[i]);
		all += n;
	} while (unlikely(n == FAR_BURST) && --left && another_burst(s, sq, &pkts[n - 1], all));
	return all;
}

unsigned shard_receive(struct shard *s, struct shard_queue *sq)
{
	return receive(s, sq);
}

static int start_cell(struct shard *s, const struct submit_cell *cell, uint64_t now, struct call_start *start)
{
	*start = (struct call_start){
		.worker = cell->worker,
		.fn = cell->fn,
		.typed = cell->typed,
		.shard = cell->shard,
		.deadline = cell->deadline,
		.left = cell->deadline == TIME_NEVER ? TIME_NEVER : cell->deadline - now,
		.retry_ns = cell->retry_ns,
		.done = cell->done,
		.user = cell->user,
		.id = cell->id,
		.app = cell->app,
		.data = cell->buf ? buf_data(cell->buf) : cell->bytes,
		.len = cell->len,
		.ready = cell->ready ? cell->buf : NULL,
	};
	uint32_t session = session_index(s, cell->worker, cell->shard);
	s->waiting_slot_held = true; /* since waiting_submit() */
	int error = cell->deadline <= now ? -ETIME : shard_call(s, start);
	if (unlikely(error == -EAGAIN)) /* memory of the peer, or slots: it waits as for a credit */
		error = waiting_put(s, &s->sessions[session], start);
	return error;
}

/* The call has been started, or has ended: frees its waiting slot, unless it waits there. */
static void give_waiting_slot(struct shard *s, const struct submit_cell *cell)
{
	if (likely(s->waiting_slot_held))
		waiting_unreserve(s, session_index(s, cell->worker, cell->shard));
	s->waiting_slot_held = false;
}

static void start_submitted(struct shard *s, const struct submit_cell *cell)
{
	struct call_start start;
	int error = start_cell(s, cell, clock_now(s->config.clock), &start);
	give_waiting_slot(s, cell);
	if (unlikely(error == -ETIME))
		call_unsent(s, &start, FAR_TIMEOUT, "the deadline passed before the call was sent");
	else if (unlikely(error))
		call_unsent_error(s, &start, error);
}

/* Of many sessions the next ones are not in the caches: they are fetched while those before them are served. */
static inline void prefetch_submitted(const struct shard *s)
{
	const struct submit_cell *cell = submit_ahead(&s->submit, 2 * SESSION_PREFETCH_AHEAD);
	if (cell)
		session_set_info(s, cell->worker, cell->shard);
	cell = submit_ahead(&s->submit, SESSION_PREFETCH_AHEAD);
	if (cell)
		session_prefetch_queue(s, cell->worker, cell->shard);
}

static void submission_taken(struct shard *s, struct submit_cell *cell)
{
	if (unlikely(cell->ready && cell->done)) /* the ring's own reference */
		s->hooks.ready_drop(s, cell->buf);
	submit_pop(&s->submit, cell);
}

static unsigned take_submissions(struct shard *s)
{
	struct submit_cell *cell;
	unsigned n = 0;
	while (n < FAR_BURST && (cell = submit_peek(&s->submit))) {
		prefetch_submitted(s);
		if (likely(cell->done))
			start_submitted(s, cell);
		else
			s->hooks.oneway_queue(s, cell->worker, cell->shard, cell->buf);
		submission_taken(s, cell);
		n++;
	}
	return n;
}

unsigned shard_take_calls(struct shard *s)
{
	shard_own(s);
	struct submit_cell *cell;
	struct call_start start;
	unsigned n = 0;
	for (; n < FAR_SUBMIT_SLOTS && (cell = submit_peek(&s->submit)); n++) {
		/* One that ends here has a callback, and a one-way message that is dropped gives memory back. */
		if (!cell->done || start_cell(s, cell, clock_now(s->config.clock), &start)) {
			s->waiting_slot_held = false; /* it keeps its waiting slot, too */
			break;
		}
		give_waiting_slot(s, cell);
		submission_taken(s, cell);
	}
	return n;
}

/* Calls that a thread handed over before a task or a cancel are older, and start first. */
static void take_older_submissions(struct shard *s)
{
	uint32_t waiting = submit_waiting(&s->submit);
	for (uint32_t taken = 0; taken < waiting; taken += FAR_BURST)
		take_submissions(s);
}

unsigned shard_take_tasks(struct shard *s)
{
	shard_own(s);
	unsigned n = 0;
	struct shard_task *e = atomic_exchange_explicit(&s->tasks, NULL, memory_order_acquire), *in_order = NULL;
	while (e) {
		struct shard_task *next = e->next;
		e->next = in_order;
		in_order = e;
		e = next;
	}
	if (in_order)
		take_older_submissions(s);
	while ((e = in_order)) {
		in_order = e->next;
		e->run(s, e);
		atomic_fetch_sub_explicit(&s->tasks_n, 1, memory_order_release); /* pairs with outstanding() */
		n++;
	}
	return n;
}

unsigned shard_take_cancels(struct shard *s)
{
	shard_own(s);
	/* The call that is to end may have been handed over just before its cancel, so the ring is looked at after the
	 * cancels are taken. A cell whose producer still fills it keeps those behind it back: it nudges when it has. */
	call_gather_cancels(s);
	uint32_t waiting = submit_waiting(&s->submit), taken = 0, n = 1;
	for (; n && taken < waiting; taken += n)
		n = take_submissions(s);
	return taken + (taken < waiting ? 0 : call_run_cancels(s));
}

unsigned shard_take_mail(struct shard *s)
{
	shard_own(s);
	struct mail mail;
	unsigned n = 0;
	if (unlikely(s->unsent_mails != NULL)) {
		session_retry_mails(s);
		if (s->undetached_n)
			return 0;
	}
	while (n < FAR_BURST && mailbox_get(&s->mail_in, &mail)) {
		session_on_mail(s, &mail);
		n++;
		if (s->undetached_n)
			break;
	}
	return n;
}

static void on_timer(void *ctx, struct timer *t)
{
	struct shard_timer *timer = (struct shard_timer *)(void *)t;
	timer->fn(ctx, timer);
}

static void on_call_timer(void *ctx, struct timer *t)
{
	call_on_timer(ctx, (struct call *)(void *)t);
}

unsigned shard_run_timers(struct shard *s, uint64_t now)
{
	shard_own(s);
	s->now = now;
	s->now_pass = s->passes;
	if (now >= s->sweep_at)
		s->sweep_at = call_sweep_deadlines(s, now);
	unsigned n = unlikely(now >= s->waiting_until) ? waiting_expire(s, now) : 0;
	n += timer_run(&s->wheel, now, on_timer, s);
	return n + timer_run(&s->call_wheel, now, on_call_timer, s);
}

unsigned shard_pass(struct shard *s)
{
	shard_own(s);
	unsigned n = receive(s, &s->queues[0]);
	if (unlikely(--s->others_left == 0))
		n += queues_receive(s);
	if (submit_peek(&s->submit))
		n += take_submissions(s);
	if (atomic_load_explicit(&s->answers, memory_order_relaxed))
		n += deferred_drain(s);
	if (unlikely(atomic_load_explicit(&s->resumed, memory_order_relaxed) != NULL))
		n += fiber_take_resumed(s);
	if (unlikely(atomic_load_explicit(&s->tasks, memory_order_relaxed) != NULL))
		n += shard_take_tasks(s);
	if (s->ready_head)
		n += fiber_run_ready(s);
	if (unlikely(s->backpressured_n))
		n += session_resume(s);
	if (unlikely(s->poll_due))
		n += features_poll(s);
	if (unlikely(++s->passes % PASSES_PER_CLOCK == 0)) {
		n += shard_take_mail(s);
		if (unlikely(shard_has_cancels(s)))
			n += shard_take_cancels(s);
		if (unlikely(atomic_load_explicit(&s->acks_requested, memory_order_relaxed)))
			s->hooks.ack_request_all(s);
		if (s->wheel.armed_n || s->calls_used || s->waiting_until != TIME_NEVER)
			n += shard_run_timers(s, clock_now(s->config.clock));
		if (unlikely(budget_is_short()))
			queues_trim(s);
		shard_idle(s);
	}
	if (unlikely(s->poll_idle) && (n == 0 || s->passes % PASSES_PER_IDLE == 0))
		n += features_poll_idle(s);
	shard_flush(s);
	return n;
}
