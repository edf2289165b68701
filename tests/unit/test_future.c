/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/clock.h"
#include "base/limits.h"
#include "xcore/future.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>

static struct outcome value(const void *data, size_t len)
{
	return (struct outcome){.status = FAR_OK, .executed = FAR_EXECUTED_YES, .origin = -1, .data = data, .len = len};
}

Test(future, is_pending_until_completed)
{
	struct far_future *f = future_alloc(NULL);
	cr_assert_not_null(f);
	cr_assert_not(future_done(f));
	struct outcome o = value("abc", 3);
	future_complete(f, &o);
	cr_assert(future_done(f));
	cr_assert_eq(f->status, FAR_OK);
	cr_assert_eq(f->len, 3u);
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
		struct outcome o = value(bytes, sizes[i]);
		future_complete(f, &o);
		cr_assert_eq(f->len, sizes[i]);
		cr_assert_eq(memcmp(future_bytes(f), bytes, sizes[i]), 0);
		cr_assert_eq(f->buf != NULL, sizes[i] > FUTURE_INLINE);
		buf_unref(&f->head);
	}
}

Test(future, keeps_an_error)
{
	struct far_future *f = future_alloc(NULL);
	struct outcome o = {
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
	struct outcome o = value("", SIZE_MAX / 2);
	future_complete(f, &o);
	cr_assert_eq(f->status, FAR_RESOURCE);
	cr_assert_eq(f->len, 0u);
	buf_unref(&f->head);
}

Test(future, completing_twice_aborts, .signal = SIGABRT)
{
	struct far_future *f = future_alloc(NULL);
	struct outcome o = value("", 0);
	future_complete(f, &o);
	future_complete(f, &o);
}

Test(future, lives_as_long_as_a_reference)
{
	struct far_future *f = future_alloc(NULL);
	buf_ref(&f->head);
	struct outcome o = value("xy", 2);
	future_complete(f, &o);
	buf_unref(&f->head);
	cr_assert_eq(memcmp(future_bytes(f), "xy", 2), 0);
	buf_unref(&f->head);
	struct far_future *again = future_alloc(NULL);
	cr_assert_eq(again, f, "the last one given back is the first one taken");
	cr_assert_not(future_done(again));
	buf_unref(&again->head);
}

Test(future, pool_grows_by_slabs_and_hands_out_each_once)
{
	enum { N = 3 * FAR_FUTURES_SLAB + 5 };
	static struct far_future *f[N];
	static bool seen[8 * FAR_FUTURES_SLAB];
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

Test(future, a_nudge_completes_nothing)
{
	struct far_future *f = future_alloc(NULL);
	for (int i = 0; i < 1000; i++)
		future_nudge(&f->state);
	cr_assert_not(future_done(f));
	struct outcome o = value("z", 1);
	future_complete(f, &o);
	future_nudge(&f->state);
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
Test(future, sleep_does_not_miss_a_nudge, .timeout = 60)
{
	struct far_future *f = future_alloc(NULL);
	uint32_t seen = atomic_load(&f->state);
	future_nudge(&f->state);
	future_sleep(f, seen, TIME_NEVER);
	struct outcome o = value("", 0);
	seen = atomic_load(&f->state);
	future_complete(f, &o);
	future_sleep(f, seen, TIME_NEVER);
	buf_unref(&f->head);
}

Test(future, can_be_pending_again)
{
	static const char bytes[FUTURE_INLINE + 1];
	struct far_future *f = future_alloc(NULL);
	struct outcome o = value(bytes, sizeof bytes);
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
	struct outcome o = value("done", 4);
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

Test(future, free_of_null_is_fine)
{
	far_future_free(NULL);
}
