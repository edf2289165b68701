/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures: states, results, waits, listeners. The test's thread, and threads that it starts. */
#include "base/clock.h"
#include "base/limits.h"
#include "sync/watch.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>

static struct completion value(const void *data, size_t len)
{
	return (struct completion){
		.status = FAR_OK, .executed = FAR_EXECUTED_YES, .origin = -1, .data = data, .len = len};
}

Test(future, is_pending_until_completed)
{
	struct far_future *f = future_alloc(NULL);
	cr_assert_not_null(f);
	cr_assert_not(future_done(f));
	struct completion o = value("abc", 3);
	future_complete(f, &o);
	cr_assert(future_done(f));
	cr_assert_eq(f->status, FAR_OK);
	cr_assert_eq(future_len(f), 3u);
	cr_assert_eq(memcmp(future_bytes(f), "abc", 3), 0);
	buf_unref(&f->head);
}

Test(future, keeps_bytes_of_every_size)
{
	static uint8_t bytes[1 << 20];
	static const size_t sizes[] = {0, 1, FUTURE_INLINE - 1, FUTURE_INLINE, FUTURE_INLINE + 1, 4096, sizeof bytes};
	for (size_t i = 0; i < sizeof bytes; i++)
		bytes[i] = (uint8_t)(i * 7 + 1);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct far_future *f = future_alloc(NULL);
		struct completion o = value(bytes, sizes[i]);
		future_complete(f, &o);
		cr_assert_eq(future_len(f), sizes[i]);
		cr_assert_eq(memcmp(future_bytes(f), bytes, sizes[i]), 0);
		cr_assert_eq(f->buf != NULL, sizes[i] > FUTURE_INLINE);
		buf_unref(&f->head);
	}
}

Test(future, keeps_an_error)
{
	struct far_future *f = future_alloc(NULL);
	struct completion o = {
		.status = FAR_REMOTE, .executed = FAR_EXECUTED_MAYBE, .code = -7, .origin = 2, .data = "why", .len = 3};
	future_complete(f, &o);
	cr_assert_eq(atomic_load(&f->state) & FUTURE_ERROR, FUTURE_ERROR);
	cr_assert_eq(f->status, FAR_REMOTE);
	cr_assert_eq(f->executed, FAR_EXECUTED_MAYBE);
	cr_assert_eq(f->code, -7);
	buf_unref(&f->head);
}

Test(future, a_result_too_large_for_any_buffer_becomes_resource)
{
	struct far_future *f = future_alloc(NULL);
	struct completion o = value("", SIZE_MAX / 2);
	future_complete(f, &o);
	cr_assert_eq(f->status, FAR_RESOURCE);
	cr_assert_eq(future_len(f), 0u);
	buf_unref(&f->head);
}

Test(future, completing_twice_aborts, .signal = SIGABRT)
{
	struct far_future *f = future_alloc(NULL);
	struct completion o = value("", 0);
	future_complete(f, &o);
	future_complete(f, &o);
}

Test(future, stays_as_long_as_a_reference)
{
	struct far_future *f = future_alloc(NULL);
	buf_ref(&f->head);
	struct completion o = value("xy", 2);
	future_complete(f, &o);
	buf_unref(&f->head);
	cr_assert_eq(memcmp(future_bytes(f), "xy", 2), 0);
	buf_unref(&f->head);
	struct far_future *again = future_alloc(NULL);
	cr_assert_eq(again, f, "the last one given back is the first one taken");
	cr_assert_not(future_done(again));
	buf_unref(&again->head);
}

Test(future, pool_hands_out_each_once)
{
	enum { N = 3 * FAR_FUTURES_MIN + 5 };
	static struct far_future *f[N];
	static bool seen[8 * FAR_FUTURES_MIN];
	for (size_t i = 0; i < N; i++) {
		f[i] = future_alloc(NULL);
		cr_assert_not_null(f[i]);
		cr_assert_lt(f[i]->index, sizeof seen);
		cr_assert_not(seen[f[i]->index]);
		seen[f[i]->index] = true;
	}
	for (size_t i = 0; i < N; i++)
		buf_unref(&f[i]->head);
}

Test(future, a_wake_completes_nothing)
{
	struct far_future *f = future_alloc(NULL);
	for (int i = 0; i < 1000; i++)
		future_wake(&f->state);
	cr_assert_not(future_done(f));
	struct completion o = value("z", 1);
	future_complete(f, &o);
	future_wake(&f->state);
	cr_assert(future_done(f));
	cr_assert_eq(f->status, FAR_OK);
	buf_unref(&f->head);
}

Test(future, sleep_ends_at_its_limit)
{
	struct far_future *f = future_alloc(NULL);
	uint64_t until = clock_now(&clock_monotonic) + 2000000;
	while (clock_now(&clock_monotonic) < until)
		future_sleep(f, atomic_load(&f->state), until);
	cr_assert_not(future_done(f));
	buf_unref(&f->head);
}

/* What happened since the state was read ends the sleep before it begins. */
Test(future, sleep_does_not_miss_a_wake, .timeout = 60)
{
	struct far_future *f = future_alloc(NULL);
	uint32_t seen = atomic_load(&f->state);
	future_wake(&f->state);
	future_sleep(f, seen, TIME_NEVER);
	struct completion o = value("", 0);
	seen = atomic_load(&f->state);
	future_complete(f, &o);
	future_sleep(f, seen, TIME_NEVER);
	buf_unref(&f->head);
}

Test(future, can_be_pending_again)
{
	static const char bytes[FUTURE_INLINE + 1];
	struct far_future *f = future_alloc(NULL);
	struct completion o = value(bytes, sizeof bytes);
	for (int i = 0; i < 3; i++) {
		future_complete(f, &o);
		cr_assert(future_done(f));
		future_reset(f);
		cr_assert_not(future_done(f));
		cr_assert_null(f->buf);
	}
	buf_unref(&f->head);
}

static void *complete_it(void *arg)
{
	struct completion o = value("done", 4);
	future_complete(arg, &o);
	return NULL;
}

Test(future, completion_wakes_every_sleeper, .timeout = 60)
{
	for (int round = 0; round < 200; round++) {
		struct far_future *f = future_alloc(NULL);
		pthread_t t;
		cr_assert_eq(pthread_create(&t, NULL, complete_it, f), 0);
		while (!future_done(f))
			future_sleep(f, atomic_load(&f->state), TIME_NEVER);
		cr_assert_eq(memcmp(future_bytes(f), "done", 4), 0);
		pthread_join(t, NULL);
		buf_unref(&f->head);
	}
}

static void *sleep_on(void *arg)
{
	struct far_future *f = arg;
	while (!future_done(f))
		future_sleep(f, atomic_load(&f->state), TIME_NEVER);
	return NULL;
}

Test(future, a_line_wakes_its_sleeper, .timeout = 60)
{
	struct far_future *f = future_alloc(NULL);
	pthread_t t;
	cr_assert_eq(pthread_create(&t, NULL, sleep_on, f), 0);
	while (!(atomic_load(&f->state) & FUTURE_WAITERS))
		sched_yield();
	future_complete_line(f, 3);
	pthread_join(t, NULL);
	cr_assert(f->status == FAR_OK && f->executed == FAR_EXECUTED_YES && f->code == 0 && future_len(f) == 3);
	buf_unref(&f->head);
}

Test(future, completing_a_line_twice_aborts, .signal = SIGABRT)
{
	struct far_future *f = future_alloc(NULL);
	future_complete_line(f, 0);
	future_complete_line(f, 0);
}

Test(future, free_of_null_is_fine)
{
	far_future_free(NULL);
}

/* Give futures to a cache: pending, held twice, with a buffer, done, and more than it takes. Expect it to refuse all
 * that another holder or the pool would miss, and none lost. */
Test(future, what_a_cache_takes)
{
	static const uint8_t bytes[FUTURE_INLINE + 1];
	struct future_cache cache = {0};
	struct completion o = value(bytes, sizeof bytes);
	uint32_t used = future_used();
	struct far_future *f = future_alloc_call(NULL), *long_one = future_alloc_call(NULL);
	cr_assert_not(future_cache_give(&cache, f), "pending");
	future_complete_line(f, 0);
	buf_ref(&f->head);
	cr_assert_not(future_cache_give(&cache, f), "held twice");
	buf_unref(&f->head);
	future_complete(long_one, &o);
	cr_assert_not(future_cache_give(&cache, long_one), "with a buffer");
	cr_assert_eq(future_len(long_one), sizeof bytes);
	buf_unref(&long_one->head);
	cr_assert(future_cache_give(&cache, f));
	struct far_future *more[FUTURE_CACHE_MAX];
	for (unsigned i = 0; i < FUTURE_CACHE_MAX; i++) {
		more[i] = future_alloc_call(NULL);
		future_complete_line(more[i], 0);
		cr_assert_eq(future_cache_give(&cache, more[i]), i < FUTURE_CACHE_MAX - 1);
	}
	cr_assert_eq(cache.n, FUTURE_CACHE_MAX);
	buf_unref(&more[FUTURE_CACHE_MAX - 1]->head);
	future_cache_free(&cache);
	cr_assert_eq(future_used(), used);
}

/* ---- listeners ---- */

enum { LISTENERS = 50 };

struct heard {
	struct future_listener l;
	unsigned order, times;
	uint32_t state; /* of the future, when it was called */
};

static unsigned heard_n;

static void hear(struct future_listener *l, struct far_future *f)
{
	struct heard *h = (struct heard *)(void *)l;
	h->order = heard_n++;
	h->times++;
	h->state = future_state(f);
}

Test(future, listeners_run_once_in_the_order_they_came)
{
	static struct heard h[LISTENERS];
	struct far_future *f = future_alloc(NULL);
	struct completion o = value("x", 1);
	for (unsigned i = 0; i < LISTENERS; i++) {
		h[i].l.fn = hear;
		if (i == LISTENERS - 1)
			future_complete(f, &o);
		cr_assert_eq(h[i].times, 0u);
		future_listen(f, &h[i].l);
	}
	for (unsigned i = 0; i < LISTENERS; i++) {
		cr_assert_eq(h[i].times, 1u);
		cr_assert_eq(h[i].order, i);
		cr_assert(h[i].state & FUTURE_DONE);
	}
	cr_assert_eq(atomic_load(&f->head.refs), 1u);
	buf_unref(&f->head);
}

Test(future, a_line_runs_its_listener_once)
{
	static struct heard h;
	struct far_future *f = future_alloc(NULL);
	h.l.fn = hear;
	future_listen(f, &h.l);
	future_complete_line(f, 0);
	cr_assert_eq(h.times, 1u);
	cr_assert(h.state & FUTURE_DONE);
	buf_unref(&f->head);
}

Test(future, a_recycled_one_has_no_listeners)
{
	struct heard first = {.l.fn = hear}, second = {.l.fn = hear};
	struct completion o = value("x", 1);
	struct far_future *f = future_alloc(NULL);
	future_listen(f, &first.l);
	future_complete(f, &o);
	buf_unref(&f->head);
	struct far_future *again = future_alloc(NULL);
	cr_assert_eq(again, f);
	future_listen(again, &second.l);
	cr_assert_eq(second.times, 0u);
	future_complete(again, &o);
	cr_assert_eq(first.times, 1u);
	cr_assert_eq(second.times, 1u);
	buf_unref(&again->head);
}

Test(future, one_dropped_while_pending_tells_its_listeners)
{
	struct heard h[2] = {{.l.fn = hear}, {.l.fn = hear}};
	struct far_future *f = future_alloc(NULL);
	future_listen(f, &h[0].l);
	future_listen(f, &h[1].l);
	buf_unref(&f->head);
	cr_assert_eq(h[0].times, 1u);
	cr_assert_eq(h[1].times, 1u);
	cr_assert_eq(h[0].state & FUTURE_ERROR, FUTURE_ERROR);
	cr_assert_eq(f->status, FAR_CANCELLED);
	struct far_future *again = future_alloc(NULL);
	cr_assert_eq(again, f, "it went back to the pool");
	cr_assert_not(future_done(again));
	buf_unref(&again->head);
}

Test(future, is_claimed_once)
{
	struct far_future *f = future_alloc(NULL);
	cr_assert(future_claim(f));
	cr_assert_not(future_claim(f));
	cr_assert_not(future_done(f));
	buf_unref(&f->head);
	f = future_alloc(NULL);
	cr_assert(future_claim(f), "the next generation is unclaimed");
	buf_unref(&f->head);
}
