/* SPDX-License-Identifier: BSD-3-Clause */
/** Waits for several futures: countdowns, and the places of a future that they take. The test's thread. */
#include "base/limits.h"
#include "sync/watch.h"

#include <criterion/criterion.h>
#include <errno.h>

static struct completion value(const void *data, size_t len)
{
	return (struct completion){
		.status = FAR_OK, .executed = FAR_EXECUTED_YES, .origin = -1, .data = data, .len = len};
}

Test(watch, a_countdown_ends_with_the_last)
{
	enum { N = 5 };
	struct far_future *f[N], *all = countdown_alloc(NULL, N, true);
	struct completion o = value("x", 1);
	for (int i = 0; i < N; i++) {
		f[i] = future_alloc(NULL);
		cr_assert_eq(watch_add(f[i], all), 0);
	}
	for (int i = 0; i < N; i++) {
		cr_assert_not(future_done(all));
		future_complete(f[i], &o);
	}
	cr_assert(future_done(all));
	cr_assert_eq(watch_add(f[0], all), -EALREADY);
	for (int i = 0; i < N; i++)
		buf_unref(&f[i]->head);
	cr_assert_eq(atomic_load(&all->head.refs), 1u);
	buf_unref(&all->head);
}

Test(watch, a_countdown_may_end_with_the_first_failure)
{
	for (int fast = 0; fast < 2; fast++) {
		struct far_future *f[2] = {future_alloc(NULL), future_alloc(NULL)};
		struct far_future *all = countdown_alloc(NULL, 2, fast);
		struct completion o = {.status = FAR_REMOTE};
		cr_assert_eq(watch_add(f[0], all), 0);
		cr_assert_eq(watch_add(f[1], all), 0);
		future_complete(f[1], &o);
		cr_assert_eq(future_done(all), fast);
		future_complete(f[0], &o);
		cr_assert(future_done(all));
		buf_unref(&f[0]->head);
		buf_unref(&f[1]->head);
		buf_unref(&all->head);
	}
}

/* A wait that ends early leaves nothing in what it waited for. */
Test(watch, a_watch_gives_its_places_back)
{
	struct far_future *f = future_alloc(NULL), *w[WATCH_SLOTS + 1];
	for (int i = 0; i < 10000; i++) {
		struct far_future *any = countdown_alloc(NULL, 1, false);
		cr_assert_eq(watch_add(f, any), 0);
		watch_remove(f, any);
		cr_assert_eq(atomic_load(&any->head.refs), 1u);
		buf_unref(&any->head);
	}
	for (unsigned i = 0; i <= WATCH_SLOTS; i++) {
		w[i] = countdown_alloc(NULL, 1, false);
		cr_assert_eq(watch_add(f, w[i]), i < WATCH_SLOTS ? 0 : -EBUSY);
	}
	watch_remove(f, w[7]);
	watch_remove(f, w[7]);
	cr_assert_eq(watch_add(f, w[WATCH_SLOTS]), 0);
	struct completion o = value("", 0);
	future_complete(f, &o);
	for (unsigned i = 0; i <= WATCH_SLOTS; i++) {
		cr_assert_eq(future_done(w[i]), i != 7);
		watch_remove(f, w[i]);
		cr_assert_eq(atomic_load(&w[i]->head.refs), 1u);
		buf_unref(&w[i]->head);
	}
	uint32_t watch = f->watch;
	cr_assert_neq(watch, 0u);
	buf_unref(&f->head);
	struct far_buf *next = buf_alloc(1);
	cr_assert_eq(buf_number(next), watch, "the watch went back with its future");
	buf_unref(next);
}
