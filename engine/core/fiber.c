/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs fibers, and parks and resumes them. Shard thread, but for on_future() (the thread that completes a future).
 */
#include "core/fiber.h"

#include "base/must.h"
#include "base/mutant.h"
#include "core/context.h"
#include "core/deferred.h"
#include "core/dispatch.h"
#include "core/fiber_pool.h"
#include "core/flow.h"
#include "core/packet.h"
#include "core/request.h"
#include "core/session.h"
#include "core/shard.h"
#include "core/timer.h"
#include "memory/budget.h"
#include "value/registry.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

/* Fibers that run in one pass before the queue is polled again. */
#define READY_BURST 64u

/* Turns that the fibers of a stepped shard have to end in. */
#define END_TURNS 65536u

static void fiber_main(void *arg);
static void on_timer(struct shard *s, struct shard_timer *t);

static struct fiber *fiber_take(struct shard *s)
{
	struct fiber_pool *p = fiber_pool_of(s);
	if (unlikely(!p))
		return NULL;
	struct fiber *fb = p->free;
	if (likely(fb != NULL)) {
		p->free = fb->next;
	} else {
		if (p->used == p->n)
			return NULL;
		uint32_t i = p->used++;
		budget_force(FAR_STACK_COUNTED);
		fb = &p->fibers[i];
		fb->shard = s;
		fb->timer.fn = on_timer;
		stack_context_make(&fb->stack, fiber_stack_of(p, i),
				   p->stack_bytes - i % FIBER_COLOURS * FIBER_COLOUR_BYTES, fiber_main, fb);
	}
	p->live++;
	return fb;
}

static void stale_remove(struct fiber_wait *w)
{
	if (!w->stale_prev)
		return;
	*w->stale_prev = w->stale_next;
	if (w->stale_next)
		w->stale_next->stale_prev = w->stale_prev;
	w->stale_prev = NULL;
}

static void fiber_give(struct fiber *fb)
{
	struct fiber_pool *p = fiber_pool_of(fb->shard);
	while (unlikely(fb->stale != NULL)) {
		fb->stale->fiber = NULL;
		stale_remove(fb->stale);
	}
	if (unlikely(fb->frames != NULL))
		flow_fiber_end(fb);
	buf_unref(fb->buf);
	fb->buf = NULL;
	fb->state = FIBER_FREE;
	fb->next = p->free;
	p->free = fb;
	p->live--;
}

/* ---- running ---- */

/* On the stack of the fiber, for every request that it is given. */
static void fiber_main(void *arg)
{
	struct fiber *fb = arg;
	for (;;) {
		if (fb->message)
			dispatch_message(&fb->req, fb->message, fb->body, fb->body_len);
		else
			dispatch_typed(&fb->req, fb->body, fb->body_len, fb->strings, fb->strings_bytes);
		fb->ended = true;
		stack_switch(&fb->stack, &fb->back);
	}
}

/* Runs it until it leaves. By the thread that holds the shard, outside of any fiber of it. */
static void resume(struct fiber *fb)
{
	struct shard *s = fb->shard;
	struct shard_context *top = shard_context_top();
	const char *handler = s->context.handler;
	fb->state = FIBER_RUNNING;
	stack_context_here(&fb->back);
	s->context.handler = NULL;
	s->context.fiber = fb;
	shard_context_set(fb->context);
	stack_switch(&fb->back, &fb->stack);
	shard_context_set(top);
	s->context.fiber = NULL;
	s->context.handler = handler;
	if (fb->ended)
		fiber_give(fb);
}

/* A message that came in fragments lies in memory that is private already: it is not copied, and texts stay in it. */
static bool body_kept(struct fiber *fb, const uint8_t *body)
{
	const struct private_body *whole = fb->shard->body;
	if (likely(!whole) || body != whole->at)
		return false;
	fb->buf = whole->buf;
	if (fb->buf)
		buf_ref(fb->buf);
	fb->body = body;
	fb->strings = NULL;
	fb->strings_bytes = 0;
	return true;
}

static void *body_room(struct fiber *fb, uint64_t len)
{
	/* Texts are copied out of the body, each with a NUL. */
	size_t strings = len + FAR_ARGS_MAX < FAR_STRINGS_BYTES_MAX ? len + FAR_ARGS_MAX : FAR_STRINGS_BYTES_MAX;
	if (likely(len <= FAR_LINE_PAYLOAD)) {
		fb->strings = fb->line_strings;
		fb->strings_bytes = sizeof fb->line_strings;
		return fb->line;
	}
	fb->buf = buf_alloc(len + strings);
	if (!fb->buf)
		return NULL;
	fb->strings = (char *)buf_data(fb->buf) + len;
	fb->strings_bytes = strings;
	return buf_data(fb->buf);
}

static void refuse(struct far_req *req, const char *text)
{
	dispatch_error(req, FAR_RESOURCE, FAR_EXECUTED_NO, 0, text, strlen(text));
}

/* In place of a one-way message's handler: a worker that leaves the group waits until it has returned. */
static void run_oneway(struct far_req *req, const void *data, size_t len, void *user)
{
	struct fiber *fb = (struct fiber *)(void *)((uint8_t *)req - offsetof(struct fiber, req));
	(void)user;
	fb->oneway->fn(req, data, len, fb->oneway->user);
	oneway_ended(fb->shard);
}

static const struct message_handler oneway_handler = {.fn = run_oneway, .kind = FAR_KIND_FIBER, .name = "one-way"};

static void oneway_begin(struct fiber *fb)
{
	fb->oneway = fb->message;
	fb->message = &oneway_handler;
	atomic_fetch_add_explicit(&fb->shard->oneways_n, 1, memory_order_relaxed);
}

void fiber_start(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len)
{
	shard_own(req->shard);
	struct shard *s = req->shard;
	struct fiber *fb = fiber_take(s);
	if (unlikely(!fb)) {
		if (s->body)
			s->body->refused = true;
		refuse(req, "too many handlers are waiting on the worker; try later, or raise its opts.fibers");
		return;
	}
	if (likely(!body_kept(fb, body))) {
		void *at = body_room(fb, len);
		if (unlikely(!at)) {
			fiber_give(fb);
			refuse(req, "the callee has no memory to keep the request");
			return;
		}
		copy_body(at, body, len);
		fb->body = len ? at : NULL;
	}
	fb->body_len = len;
	fb->message = m;
	fb->cancelled = fb->ended = false;
	fb->context = &s->context;
	struct far_req *own = &fb->req;
	own->shard = s;
	own->session = req->session;
	own->record = req->record; /* of a request that may be repeated */
	if (unlikely(req->record != NULL))
		req->record->fiber = fb;
	own->fn = req->fn;
	own->name = req->name;
	own->call = req->call;
	own->gen = req->gen;
	own->from = req->from;
	own->from_shard = req->from_shard;
	own->time_left = req->time_left;
	own->deadline = req->record ? req->deadline : 0;
	own->form = req->form;
	own->answer = req->answer; /* NONE, or ONEWAY */
	if (likely(req->answer == ANSWER_NONE))
		req->answer = ANSWER_DEFERRED; /* it is the fiber's now */
	else if (req->session)                 /* the process does not wait for its own */
		oneway_begin(fb);
	resume(fb);
}

static void make_ready(struct fiber *fb)
{
	struct shard *s = fb->shard;
	timer_disarm(&s->wheel, &fb->timer.timer);
	fb->wait = NULL;
	fb->state = FIBER_READY;
	fb->next = NULL;
	if (MUTANT_ONE_IN(WAKE_LOST, 16))
		return;
	*s->ready_tail = fb;
	s->ready_tail = &fb->next;
}

unsigned fiber_run_ready(struct shard *s)
{
	shard_own(s);
	unsigned n = 0;
	struct fiber *fb;
	/* Those that become ready meanwhile come to the end: bounded, so that a pair that plays ping-pong does not keep
	 * the queue waiting. */
	while (n < READY_BURST && (fb = s->ready_head)) {
		s->ready_head = fb->next;
		if (!s->ready_head)
			s->ready_tail = &s->ready_head;
		resume(fb);
		n++;
	}
	return n;
}

/* ---- waiting ---- */

/* An open request outlives the burst as a record, whose deadline the wheel watches; an answered one is sent. */
static int open_record(struct fiber *fb)
{
	struct far_req *req = &fb->req;
	struct shard *s = fb->shard;
	if (req->answer != ANSWER_NONE) {
		dispatch_flush(req);
		return 0;
	}
	if (req->record)
		return 0;
	if (req->session->state != SESSION_UP)
		return -ECANCELED;
	struct far_deferred *d = deferred_alloc(s, req->session, req->call, req->gen, req->fn, req->hashed);
	if (!d)
		return -ENOMEM;
	d->owned = true;
	d->fiber = fb;
	deferred_record(req, d);
	return 0;
}

static struct fiber_wait *wait_new(struct fiber *fb, struct far_future *f)
{
	struct fiber_pool *p = fiber_pool_of(fb->shard);
	struct fiber_wait *w = p->waits_free;
	if (w) {
		p->waits_free = w->next;
	} else {
		struct far_buf *buf = buf_alloc(sizeof *w);
		if (!buf)
			return NULL;
		w = buf_data(buf);
		w->buf = buf;
		w->shard = fb->shard;
	}
	w->fiber = fb;
	w->stale_prev = NULL;
	w->future = f;
	w->list_next = p->waits;
	w->list_prev = &p->waits;
	if (p->waits)
		p->waits->list_prev = &w->list_next;
	p->waits = w;
	atomic_store_explicit(&w->state, WAIT_ARMED, memory_order_relaxed);
	return w;
}

/* The future is done, or its last reference has gone, and its completer has let go of the record. */
static void wait_back(struct fiber_wait *w)
{
	struct fiber_pool *p = fiber_pool_of(w->shard);
	struct fiber *fb = w->fiber;
	if (likely(fb && fb->wait == w))
		make_ready(fb);
	stale_remove(w);
	*w->list_prev = w->list_next;
	if (w->list_next)
		w->list_next->list_prev = w->list_prev;
	w->next = p->waits_free;
	p->waits_free = w;
}

static void on_future(struct future_listener *l, struct far_future *f)
{
	struct fiber_wait *w = (struct fiber_wait *)(void *)l;
	struct shard *s = w->shard;
	(void)f;
	/* A shard that is gone may have a successor at its address. */
	if (likely(atomic_load_explicit(&w->state, memory_order_acquire) != WAIT_ORPHAN && shard_held(s))) {
		wait_back(w);
		return;
	}
	if (atomic_exchange_explicit(&w->state, WAIT_FIRED, memory_order_acq_rel) == WAIT_ORPHAN) {
		buf_unref(w->buf);
		return;
	}
	/* The shard's end waits for the record, and then for the thread that is inside. */
	atomic_fetch_add_explicit(&s->producers, 1, memory_order_acquire);
	struct fiber_wait *head = atomic_load_explicit(&s->resumed, memory_order_relaxed);
	do
		w->next = head;
	while (!atomic_compare_exchange_weak_explicit(&s->resumed, &head, w, memory_order_release,
						      memory_order_relaxed));
	shard_notify(s);
	atomic_fetch_sub_explicit(&s->producers, 1, memory_order_release); /* pairs with agent_fini_pollers */
}

unsigned fiber_take_resumed(struct shard *s)
{
	shard_own(s);
	struct fiber_wait *w = atomic_exchange_explicit(&s->resumed, NULL, memory_order_acquire), *in_order = NULL;
	unsigned n = 0;
	while (w) {
		struct fiber_wait *next = w->next;
		w->next = in_order;
		in_order = w;
		w = next;
	}
	while ((w = in_order)) {
		in_order = w->next;
		wait_back(w);
		n++;
	}
	return n;
}

/* Leaves the fiber's stack, parked or ready. Nothing thread-local may be looked at afterwards through anything looked
 * up before. */
static void leave(struct fiber *fb)
{
	fb->context = shard_context_top();
	stack_switch(&fb->stack, &fb->back);
}

/* A wait of a cancelled fiber yields once and returns CANCELLED, so that a handler that retries for ever does not stop
 * the shard. */
static int wait_refused(struct fiber *fb)
{
	(void)open_record(fb);
	make_ready(fb);
	leave(fb);
	return -ECANCELED;
}

/*
 * A wait with a limit may be repeated as often as the handler likes: it listens to the future once. A record whose
 * future has gone meanwhile is on its way back, and may meet the next use of the address: then it ends that wait early,
 * which is looked at again.
 */
static struct fiber_wait *wait_again(struct fiber *fb, const struct far_future *f)
{
	struct fiber_wait *w = fb->stale;
	while (w && w->future != f)
		w = w->stale_next;
	if (w)
		stale_remove(w);
	return w;
}

int fiber_wait(struct fiber *fb, struct far_future *f, uint64_t until)
{
	if (unlikely(fb->cancelled))
		return wait_refused(fb);
	int error = open_record(fb);
	if (unlikely(error))
		return error;
	struct fiber_wait *w = likely(!fb->stale) ? NULL : wait_again(fb, f), *listens = w;
	if (likely(!w) && unlikely(!(w = wait_new(fb, f))))
		return -ENOMEM;
	fb->wait = w;
	fb->state = FIBER_PARKED; /* now, since the future may be done already */
	if (until != TIME_NEVER)
		timer_arm(&fb->shard->wheel, &fb->timer.timer, until);
	if (likely(!listens)) {
		w->listener.fn = on_future;
		future_listen(f, &w->listener);
	}
	leave(fb);
	return fb->cancelled && !future_done(f) ? -ECANCELED : 0;
}

int fiber_pause(struct fiber *fb, uint64_t ns)
{
	if (unlikely(fb->cancelled))
		return wait_refused(fb);
	int error = open_record(fb);
	if (unlikely(error))
		return error;
	fb->wait = NULL;
	if (ns == 0) {
		make_ready(fb);
	} else {
		fb->state = FIBER_PARKED;
		timer_arm(&fb->shard->wheel, &fb->timer.timer, time_after(clock_now(fb->shard->config.clock), ns));
	}
	leave(fb);
	return fb->cancelled ? -ECANCELED : 0;
}

/* Its wait ends now, and not by the future. */
static void wait_over(struct fiber *fb)
{
	struct fiber_wait *w = fb->wait;
	if (fb->state != FIBER_PARKED)
		return;
	if (w) {
		w->stale_next = fb->stale;
		w->stale_prev = &fb->stale;
		if (fb->stale)
			fb->stale->stale_prev = &w->stale_next;
		fb->stale = w;
	}
	make_ready(fb);
}

static void on_timer(struct shard *s, struct shard_timer *t)
{
	(void)s;
	wait_over((struct fiber *)(void *)t);
}

void fiber_cancel(struct fiber *fb)
{
	shard_own(fb->shard);
	fb->cancelled = true;
	wait_over(fb);
}

/* ---- the end ---- */

static void orphan_waits(struct shard *s, struct fiber_pool *p)
{
	while (p->waits) {
		struct fiber_wait *w = p->waits, *next;
		for (; w; w = next) {
			next = w->list_next;
			if (atomic_exchange_explicit(&w->state, WAIT_ORPHAN, memory_order_acq_rel) != WAIT_ARMED)
				continue; /* it is on its way */
			*w->list_prev = w->list_next;
			if (w->list_next)
				w->list_next->list_prev = w->list_prev;
		}
		if (!fiber_take_resumed(s))
			sched_yield();
	}
}

uint32_t fiber_end_all(struct shard *s, uint64_t give_up)
{
	struct fiber_pool *p = fiber_pool_of(s);
	if (!p)
		return 0;
	for (uint32_t i = 0; i < p->used; i++)
		if (p->fibers[i].state != FIBER_FREE)
			fiber_cancel(&p->fibers[i]);
	/* Under a clock that stands still meanwhile, turns bound the fibers that do not end. */
	for (uint32_t turns = 0;
	     p->live && (s->config.stepped ? turns < END_TURNS : clock_now(s->config.clock) < give_up); turns++) {
		fiber_take_resumed(s);
		fiber_run_ready(s);
	}
	orphan_waits(s, p);
	return p->live;
}
