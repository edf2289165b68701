/* SPDX-License-Identifier: BSD-3-Clause */
/** Fibers on a fixture: how a wait ends, in every order of what can end it, and what is left behind.
 * The test's thread, and threads that it starts. */
#include "core/context.h"
#include "core/deferred.h"
#include "core/fiber.h"
#include "core/fiber_pool.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <pthread.h>
#include <sched.h>

enum { MSG_WAIT = 100, MSG_PAUSE, MSG_STUBBORN, FIBERS = 3, LIMIT = 1000000, PAUSE = 500000 };

static struct far_future *future;
static uint64_t limit;            /* relative, of the handler's waits; 0: none */
static unsigned waits;            /* it makes */
static int results[8];            /* of each */
static unsigned results_n, ended; /* waits, handlers */
static bool was_cancelled;

static void on_wait(struct far_req *req, const void *data, size_t len, void *user)
{
	for (unsigned i = 0; i < waits; i++) {
		int error = shard_wait(shard, future, limit ? now_ns + limit : TIME_NEVER);
		if (results_n < 8)
			results[results_n++] = error;
	}
	was_cancelled = far_req_cancelled(req);
	ended++;
	far_reply(req, data, len);
}

static void on_pause(struct far_req *req, const void *data, size_t len, void *user)
{
	for (unsigned i = 0; i < 2; i++) {
		int error = fiber_pause(shard_in_fiber(), i ? PAUSE : 0);
		results[results_n++] = error;
	}
	ended++;
	far_reply(req, data, len);
}

/* Waits until 1000 waits were cancelled. */
static void on_stubborn(struct far_req *req, const void *data, size_t len, void *user)
{
	unsigned cancelled = 0;
	while (cancelled < 1000)
		cancelled += shard_wait(shard, future, TIME_NEVER) == -ECANCELED;
	ended++;
	far_reply(req, data, len);
}

static void setup(void)
{
	static const struct {
		uint16_t id;
		far_msg_fn *fn;
	} handlers[] = {{MSG_WAIT, on_wait}, {MSG_PAUSE, on_pause}, {MSG_STUBBORN, on_stubborn}};
	struct far_err err;
	shard_setup();
	for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++) {
		struct far_msg_handler m = {handlers[i].id, FAR_KIND_FIBER, handlers[i].fn, NULL};
		cr_assert_eq(registry_add_message(&registry, &m, NULL), FAR_OK);
	}
	cr_assert_eq(fiber_pool_add(shard, FIBERS, (size_t)64 << 10, &err), FAR_OK);
	future = future_alloc(NULL);
	waits = 1;
	limit = 0;
	results_n = ended = 0;
}

static void teardown(void)
{
	if (!future_done(future)) {
		struct completion o = {.status = FAR_OK};
		future_complete(future, &o);
	}
	shard_pass(shard);
	shard_teardown();
	cr_assert_eq(future->head.refs, 1u, "a reference to the future was kept");
	buf_unref(&future->head);
}

TestSuite(core_fiber, .init = setup, .fini = teardown);

/* Another incarnation of the worker, instead of a new fixture. */
static void reopen(uint32_t worker, uint32_t peer)
{
	if (shard->sessions[session_index(shard, worker, 0)].state == SESSION_UP)
		return;
	posted(MAIL_DETACHED);
	mail(MAIL_PEER_RESTARTED, worker, peer);
	mail(MAIL_PEER_UP, worker, peer);
}

static void complete(void)
{
	struct completion o = {.status = FAR_OK};
	future_complete(future, &o);
}

static void *complete_main(void *arg)
{
	complete();
	return NULL;
}

static void complete_elsewhere(void)
{
	pthread_t t;
	cr_assert_eq(pthread_create(&t, NULL, complete_main, NULL), 0);
	cr_assert_eq(pthread_join(t, NULL), 0);
}

static unsigned armed(void)
{
	unsigned n = 0;
	for (const struct fiber_wait *w = fiber_pool_of(shard)->waits; w; w = w->list_next)
		n++;
	return n;
}

static uint32_t live(void)
{
	return fiber_pool_of(shard)->live;
}

static void park(uint32_t call)
{
	put_request(MSG_WAIT, call, "hi", 2);
	passes(1);
	expect_nothing();
}

Test(core_fiber, a_handler_that_does_not_wait_answers_at_once)
{
	waits = 0;
	put_request(MSG_WAIT, 1, "hi", 2);
	passes(1);
	expect_reply(1, "hi", 2);
	cr_assert_eq(live(), 0u);
	cr_assert_eq(shard->counters.requests_active, 0u);
}

Test(core_fiber, a_wait_ends_with_its_future)
{
	park(1);
	cr_assert_eq(live(), 1u);
	cr_assert_eq(shard->counters.requests_active, 1u);
	complete();
	expect_nothing(); /* it is ready, but nobody has run it */
	passes(1);
	passes(1);
	expect_reply(1, "hi", 2);
	cr_assert_eq(results[0], 0);
	cr_assert_not(was_cancelled);
	cr_assert_eq(live(), 0u);
	cr_assert_eq(armed(), 0u);
}

Test(core_fiber, another_thread_completes)
{
	park(1);
	complete_elsewhere();
	cr_assert_eq(ended, 0u, "only the shard runs it");
	passes(2);
	expect_reply(1, "hi", 2);
	cr_assert_eq(armed(), 0u);
}

Test(core_fiber, a_future_that_is_done_is_no_wait)
{
	complete();
	put_request(MSG_WAIT, 1, "hi", 2);
	passes(1);
	expect_reply(1, "hi", 2);
	cr_assert_eq(armed(), 0u);
}

/* ---- every order of what ends a wait ---- */

enum event { FUTURE, ELSEWHERE, LIMIT_PASSED, CANCEL, PEER_DOWN, EVENTS };

static void happen(enum event e)
{
	switch (e) {
	case FUTURE:
		if (!future_done(future))
			complete();
		break;
	case ELSEWHERE:
		if (!future_done(future))
			complete_elsewhere();
		break;
	case LIMIT_PASSED: /* the timers run, the ready do not */
		now_ns += 2 * LIMIT;
		shard_run_timers(shard, now_ns);
		break;
	case CANCEL:
		put_cancel(1);
		break;
	default:
		mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	}
}

/* `between`: passes after each event, else only at the end. */
static void in_order(const enum event *e, unsigned n, bool between)
{
	bool gone = false, done = false;
	results_n = ended = 0;
	limit = LIMIT;
	park(1);
	for (unsigned i = 0; i < n; i++) {
		happen(e[i]);
		if (between)
			passes(2);
	}
	passes(3);
	cr_assert_eq(ended, 1u, "the handler ended %u times", ended);
	cr_assert_eq(results_n, 1u);
	cr_assert_eq(live(), 0u);
	cr_assert_eq(shard->counters.requests_active, 0u);
	cr_assert_eq(shard->ready_head, NULL);
	/* What came first, or, when it only ran at the end, whatever beats the rest: the future. */
	for (unsigned i = 0; i < (between ? 1 : n); i++) {
		gone |= e[i] == CANCEL || e[i] == PEER_DOWN;
		done |= e[i] == FUTURE || e[i] == ELSEWHERE;
	}
	cr_assert_eq(results[0], gone && !done ? -ECANCELED : 0, "%d", results[0]);
	union packet_head h;
	for (unsigned i = 0; i < 2; i++) /* its answer or a "cancelled", and nothing else */
		if (fake_queue_sent(queue, &h))
			cr_assert(h.type == PACKET_REPLY || h.type == PACKET_CANCELLED);
	expect_nothing();
}

/* A peer's end brings passes of its own. */
static void all_orders(bool between)
{
	unsigned events = between ? EVENTS : PEER_DOWN;
	for (unsigned a = 0; a < events; a++)
		for (unsigned b = 0; b < events; b++)
			for (unsigned c = 0; c < events; c++) {
				if (a == b || b == c || a == c)
					continue;
				enum event e[] = {(enum event)a, (enum event)b, (enum event)c};
				in_order(e, 3, between);
				if (!future_done(future))
					complete();
				passes(2);
				cr_assert_eq(armed(), 0u);
				cr_assert_eq(future->head.refs, 1u);
				future_reset(future);
				reopen(PEER, NIC_PEER);
			}
}

Test(core_fiber, every_order_with_passes_between)
{
	all_orders(true);
}

Test(core_fiber, every_order_at_once)
{
	all_orders(false);
}

/* ---- deadlines, sessions ---- */

Test(core_fiber, the_requests_deadline_cancels_it)
{
	put(NIC_PEER, request(MSG_WAIT, 7, LIMIT), "hi", 2);
	passes(1);
	expect_nothing();
	advance(2 * LIMIT);
	passes(2);
	union packet_head h;
	expect(&h, PACKET_CANCELLED, 7);
	expect_nothing();
	cr_assert_eq(results[0], -ECANCELED);
	cr_assert(was_cancelled);
}

Test(core_fiber, a_lost_peer_cancels_it)
{
	park(1);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(results[0], -ECANCELED);
	cr_assert(was_cancelled);
	cr_assert_eq(live(), 0u);
	expect_nothing();
}

/* ---- waits with limits, again and again ---- */

Test(core_fiber, a_repeated_wait_listens_once)
{
	waits = 8;
	limit = LIMIT;
	park(1);
	for (unsigned i = 0; i < 7; i++) {
		advance(2 * LIMIT);
		passes(1);
		cr_assert_eq(armed(), 1u);
	}
	cr_assert_eq(results_n, 7u);
	complete();
	passes(2);
	expect_reply(1, "hi", 2);
}

/* What the last request left behind at a future does not wake the next one of the same fiber. */
Test(core_fiber, an_abandoned_wait_wakes_nobody)
{
	struct far_future *first = future;
	limit = LIMIT;
	park(1);
	advance(2 * LIMIT);
	passes(1);
	expect_reply(1, "hi", 2);
	cr_assert_eq(armed(), 1u);
	future = future_alloc(NULL);
	limit = 0;
	park(2); /* the same fiber: last freed, first used */
	cr_assert_eq(fiber_pool_of(shard)->used, 1u);
	struct completion o = {.status = FAR_OK};
	future_complete(first, &o);
	passes(3);
	expect_nothing();
	cr_assert_eq(ended, 1u);
	cr_assert_eq(armed(), 1u);
	complete();
	passes(2);
	expect_reply(2, "hi", 2);
	cr_assert_eq(first->head.refs, 1u);
	buf_unref(&first->head);
}

/* A wait that was given up must not keep a future alive that nobody can complete any more: a handler that waits again
 * and again for this or that, each time by a countdown of its own, would use up all futures. */
Test(core_fiber, an_abandoned_wait_keeps_nothing)
{
	struct far_future *first = future;
	limit = LIMIT;
	for (uint32_t i = 1; i <= 5; i++) {
		future = i == 1 ? first : future_alloc(NULL);
		park(i);
		advance(2 * LIMIT);
		passes(1);
		expect_reply(i, "hi", 2);
		cr_assert_eq(armed(), 1u);
		cr_assert_eq(future->head.refs, 1u);
		if (i > 1)
			buf_unref(&future->head);
		else
			complete();
		cr_assert_eq(armed(), 0u);
	}
	future = first;
}

Test(core_fiber, pauses)
{
	put_request(MSG_PAUSE, 1, "hi", 2);
	passes(3);
	expect_nothing();
	cr_assert_eq(results_n, 1u, "the short one is over, the long one is not");
	advance(2 * PAUSE);
	passes(2);
	expect_reply(1, "hi", 2);
	cr_assert(results[0] == 0 && results[1] == 0);
}

Test(core_fiber, a_cancel_ends_a_pause)
{
	put_request(MSG_PAUSE, 1, "hi", 2);
	passes(3);
	put_cancel(1);
	passes(2);
	cr_assert_eq(results[1], -ECANCELED);
	cr_assert_eq(ended, 1u);
}

/* ---- bounds ---- */

Test(core_fiber, one_more_than_there_are_is_refused)
{
	for (uint32_t i = 1; i <= FIBERS; i++)
		park(i);
	put_request(MSG_WAIT, 9, "hi", 2);
	passes(1);
	expect_error(9, FAR_RESOURCE, FAR_EXECUTED_NO, "opts.fibers");
	complete();
	passes(2);
	for (uint32_t i = 1; i <= FIBERS; i++)
		expect_reply(i, "hi", 2);
	put_request(MSG_WAIT, 10, "hi", 2);
	passes(1);
	expect_reply(10, "hi", 2);
}

Test(core_fiber, without_a_record_it_cannot_wait)
{
	struct far_deferred *free_ones = shard->deferred_free;
	shard->deferred_free = NULL;
	put_request(MSG_WAIT, 1, "hi", 2);
	passes(1);
	expect_reply(1, "hi", 2); /* it goes on without */
	cr_assert_eq(results[0], -ENOMEM);
	shard->deferred_free = free_ones;
}

/* A handler that does not take no for an answer: others run between its tries. */
Test(core_fiber, a_stubborn_one_does_not_stop_the_shard)
{
	put_request(MSG_STUBBORN, 1, "hi", 2);
	passes(1);
	put_cancel(1);
	put_request(MSG_ECHO, 2, "echo", 4);
	passes(5);
	union packet_head h;
	expect(&h, PACKET_CANCELLED, 1);
	expect_reply(2, "echo", 4);
	cr_assert_eq(ended, 0u);
	passes(1100);
	cr_assert_eq(ended, 1u);
	cr_assert_eq(live(), 0u);
}

Test(core_fiber, guard_pages)
{
	const struct fiber_pool *p = fiber_pool_of(shard);
	park(1);
	const struct fiber *fb = &p->fibers[0];
	const char *low = fb->stack.low;
	cr_assert(fiber_in_guard(fb, low - 1));
	cr_assert(fiber_in_guard(fb, low - p->guard_bytes));
	cr_assert_not(fiber_in_guard(fb, low));
	cr_assert_not(fiber_in_guard(fb, low - p->guard_bytes - 1));
	cr_assert_geq(fb->stack.bytes, fiber_stack_bytes(fb));
	complete();
	passes(2);
	expect_reply(1, "hi", 2);
}

/* ---- the end of the shard ---- */

/* A shard of its own, ended while `n` handlers are parked for a future that is not its own. */
static void end_with_parked(uint32_t n)
{
	for (uint32_t i = 1; i <= n; i++)
		park(i);
	session_close_all(shard);
	cr_assert_eq(fiber_end_all(shard, now_ns + 1), 0u);
	cr_assert_eq(ended, n);
	for (unsigned i = 0; i < results_n; i++)
		cr_assert_eq(results[i], -ECANCELED);
	cr_assert_eq(armed(), 0u);
	shard_pass(shard);
}

Test(core_fiber, waits_outlive_the_shard)
{
	end_with_parked(FIBERS);
	uint64_t used = buf_slabs_used();
	fiber_pool_free(shard);
	complete(); /* and now it is theirs to free themselves */
	cr_assert_lt(buf_slabs_used(), used);
	cr_assert_eq(future->head.refs, 1u);
}

static _Atomic int at_gate;

static void *complete_in_time(void *arg)
{
	atomic_fetch_add(&at_gate, 1);
	while (atomic_load(&at_gate) < 2)
		;
	complete();
	return NULL;
}

/* The completer and the end of the shard race for each record: the second one frees it. */
Test(core_fiber, the_end_races_with_a_completion)
{
	for (unsigned round = 0; round < 300; round++) {
		pthread_t t;
		results_n = ended = 0;
		atomic_store(&at_gate, 0);
		for (uint32_t i = 1; i <= FIBERS; i++)
			park(i);
		cr_assert_eq(pthread_create(&t, NULL, complete_in_time, NULL), 0);
		while (atomic_load(&at_gate) < 1)
			sched_yield();
		session_close_all(shard);
		atomic_fetch_add(&at_gate, 1);
		for (unsigned spin = 0; spin < round * 10; spin++)
			atomic_load(&at_gate);
		cr_assert_eq(fiber_end_all(shard, now_ns + 1), 0u);
		cr_assert_eq(ended, (unsigned)FIBERS);
		cr_assert_eq(armed(), 0u);
		cr_assert_eq(pthread_join(t, NULL), 0);
		cr_assert_eq(future->head.refs, 1u);
		cr_assert_eq(atomic_load(&shard->resumed), NULL);
		shard_pass(shard);
		future_reset(future);
		shard->stopped = false;
		reopen(PEER, NIC_PEER);
		reopen(OTHER, NIC_OTHER);
	}
}
