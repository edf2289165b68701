/* SPDX-License-Identifier: BSD-3-Clause */
/** Waits for several futures, without any agent. The test's thread, and threads that it starts. */
#include "user_futures.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static enum far_status fail_later(struct far_future *f)
{
	return far_future_set_error(f, FAR_DENIED, 4, "later");
}

static void *fail_thread(void *arg)
{
	return (void *)(intptr_t)fail_later(arg);
}

/* The first is never completed: only failing fast lets this end. */
Test(api_wait, wait_all_fails_fast_whatever_the_place, .timeout = 60)
{
	for (int round = 0; round < 50; round++) {
		struct far_future *f[3] = {make(), make(), make()};
		pthread_t t;
		set_int(f[1], 0);
		cr_assert_eq(pthread_create(&t, NULL, fail_thread, f[2]), 0);
		cr_assert_eq(far_future_wait_all(f, 3, FAR_FOREVER, &err), FAR_DENIED);
		cr_assert_str_eq(err.text, "later");
		cr_assert_not(far_future_done(f[0]));
		pthread_join(t, NULL);
		for (int i = 0; i < 3; i++)
			far_future_free(f[i]);
	}
}

Test(api_wait, wait_all_waits_for_all, .timeout = 60)
{
	for (int round = 0; round < 50; round++) {
		struct far_future *f[4] = {make(), make()};
		pthread_t t[2];
		f[2] = f[0];
		f[3] = f[1];
		for (int i = 0; i < 2; i++)
			cr_assert_eq(pthread_create(&t[i], NULL, set_it, f[i]), 0);
		cr_assert_eq(far_future_wait_all(f, 4, FAR_FOREVER, &err), FAR_OK);
		cr_assert(far_future_done(f[0]) && far_future_done(f[1]));
		for (int i = 0; i < 2; i++) {
			pthread_join(t[i], NULL);
			far_future_free(f[i]);
		}
	}
	cr_assert_eq(far_future_wait_all(NULL, 0, 0, &err), FAR_OK);
}

Test(api_wait, wait_any_returns_the_first, .timeout = 60)
{
	struct far_future *never = make();
	for (int round = 0; round < 200; round++) {
		struct far_future *f[3] = {never, make(), never};
		size_t index = 9;
		pthread_t t;
		cr_assert_eq(far_future_wait_any(f, 3, 1, &index, &err), FAR_PENDING);
		cr_assert_eq(index, 9u, "outputs are set on success");
		cr_assert_eq(pthread_create(&t, NULL, set_it, f[1]), 0);
		cr_assert_eq(far_future_wait_any(f, 3, FAR_FOREVER, &index, &err), FAR_OK);
		cr_assert_eq(index, 1u);
		pthread_join(t, NULL);
		far_future_free(f[1]);
	}
	cr_assert_eq(far_future_wait(never, 1000, NULL, &err), FAR_PENDING);
	cr_assert_eq(far_future_wait_all(&never, 1, 1000, &err), FAR_PENDING);
	far_future_free(never);
}

struct crowd {
	struct far_future *f[2];
	_Atomic unsigned waiting;
};

static void *wait_in_crowd(void *arg)
{
	struct crowd *c = arg;
	size_t index = 9;
	atomic_fetch_add(&c->waiting, 1);
	enum far_status status = far_future_wait_any(c->f, 2, FAR_FOREVER, &index, NULL);
	return (void *)(intptr_t)(status != FAR_OK || index != 1);
}

/* More wait for one future than its watch has places. */
Test(api_wait, any_number_of_threads_may_wait_for_the_same, .timeout = 60)
{
	enum { CROWD = 40 };
	struct crowd c = {.f = {make(), make()}};
	pthread_t t[CROWD];
	for (int i = 0; i < CROWD; i++)
		cr_assert_eq(pthread_create(&t[i], NULL, wait_in_crowd, &c), 0);
	while (atomic_load(&c.waiting) < CROWD)
		sched_yield();
	set_int(c.f[1], 1);
	for (int i = 0; i < CROWD; i++) {
		void *bad;
		pthread_join(t[i], &bad);
		cr_assert_null(bad);
	}
	far_future_free(c.f[0]);
	far_future_free(c.f[1]);
}
