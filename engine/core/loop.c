/* SPDX-License-Identifier: BSD-3-Clause */
/** One pass of a shard: packets, submissions, answers, fibers, timers, in that order. Shard thread. */
#include "core/call.h"
#include "core/call_deadline.h"

#include "base/must.h"
#include "core/call_cancel.h"
#include "core/call_unsent.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/feature.h"
#include "core/fiber.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/queues.h"
#include "core/receive.h"
#include "core/reply.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "core/waiting.h"
#include "memory/budget.h"
#include "nic/lane.h"

#include <errno.h>
#include <string.h>

/* Passes between two readings of the clock: deadlines are late by a few microseconds at most while the shard is driven,
 * by some tens where the first queue's recv() is a system call. */
#define PASSES_PER_CLOCK 64u
/* The same between two rounds of shard.poll_idle, while there is something else to do in each. */
#define PASSES_PER_IDLE 16u
static int start_cell(struct shard *s, const struct submit_cell *cell, uint64_t now, struct call_start *start)
{
	submit_read(&s->submit, cell, start);
	start->left = start->deadline == TIME_NEVER ? TIME_NEVER : start->deadline - now;
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
		waiting_return(s, session_index(s, cell->worker, cell->shard));
	s->waiting_slot_held = false;
}

static void start_submitted(struct shard *s, const struct submit_cell *cell)
{
	struct call_start start;
	int error = start_cell(s, cell, clock_now(s->config.clock), &start);
	give_waiting_slot(s, cell);
	if (unlikely(error == -ETIME))
		call_unsent_late(s, &start, "");
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
	if (unlikely(cell->ready && submit_replies(cell))) /* the ring's own reference */
		s->hooks.ready_drop(s, cell->buf);
	submit_pop(&s->submit, cell);
}

static unsigned take_submissions(struct shard *s)
{
	struct submit_cell *cell;
	unsigned n = 0;
	while (n < FAR_BURST && (cell = submit_peek(&s->submit))) {
		/* The thread that waits reads it all the time: its ownership comes while the call runs. */
		if (likely(cell->plain))
			lane_prefetch_write((uintptr_t) & ((struct far_future *)cell->user)->state);
		prefetch_submitted(s);
		if (likely(submit_replies(cell)))
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
		if (!submit_replies(cell) || start_cell(s, cell, clock_now(s->config.clock), &start)) {
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
	 * cancels are taken. A cell whose producer still fills it keeps those behind it back: it notifies when it has.
	 */
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
	call_stamp(s, now);
	unsigned n = unlikely(now >= s->waiting_until) ? waiting_expire(s, now) : 0;
	n += timer_run(&s->wheel, now, on_timer, s);
	return n + timer_run(&s->call_wheel, now, on_call_timer, s);
}

unsigned shard_pass(struct shard *s)
{
	shard_own(s);
	unsigned n = receive_first(s);
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
