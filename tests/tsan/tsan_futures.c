/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures that no agent has, hammered by threads that complete, follow, wait for and drop the same ones. For a build
 * with ThreadSanitizer; without it, it still checks what comes out. */
#include "../e2e/check.h"

#include <farcall/farcall.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { THREADS = 4, ROUNDS = 1500, FUTURES = 4, HANDED = 30000 };

static pthread_barrier_t barrier;
static struct far_future *shared[FUTURES]; /* a reference for each thread */
static _Atomic unsigned set_by, called, children;

static void count(struct far_future *f, void *user)
{
	struct far_val v;
	CHECK(far_future_value(f, &v, NULL) == FAR_OK);
	CHECK(v.type == FAR_TYPE_STRING && strlen(v.u.s.data) == v.u.s.len);
	far_val_fini(&v);
	atomic_fetch_add((_Atomic unsigned *)user, 1);
}

static enum far_status follow(struct far_future *parent, struct far_val *out, struct far_err *err, void *user)
{
	atomic_fetch_add((_Atomic unsigned *)user, 1);
	return far_future_value(parent, out, err);
}

static struct far_val text_of(int round)
{
	return far_str(round % 2 ? "short"
				 : "a text with more bytes than a future has room for, which therefore goes to "
				   "a buffer of its own");
}

/* Each thread does a part of these to each future, in an order of its own. */
static void touch(int thread, int round, struct far_future **kept)
{
	struct far_err err;
	size_t index;
	for (int i = 0; i < FUTURES; i++) {
		struct far_future *f = shared[(i + thread) % FUTURES], *child, *grandchild;
		CHECK(far_future_on_done(f, count, &called, &err) == FAR_OK);
		CHECK(far_future_then(f, follow, &children, &child, &err) == FAR_OK);
		CHECK(far_future_then(child, follow, &children, &grandchild, &err) == FAR_OK);
		far_future_free(child);
		kept[i] = grandchild;
		if (i % 2 == round % 2) {
			struct far_val v = text_of(round);
			enum far_status status = far_future_set_value(f, &v, NULL);
			CHECK(status == FAR_OK || status == FAR_INVALID);
			atomic_fetch_add(&set_by, status == FAR_OK);
		}
		enum far_status status =
			far_future_wait_any(shared, FUTURES, 1 + (uint64_t)(round % 3) * 20000, &index, &err);
		CHECK(status == FAR_OK || status == FAR_PENDING);
	}
}

static void round_of(int thread, int round)
{
	struct far_future *kept[FUTURES], *all, *any;
	struct far_err err;
	struct far_val v;
	touch(thread, round, kept);
	CHECK(far_future_collect(shared, FUTURES, &all, &err) == FAR_OK);
	CHECK(far_future_collect_any(shared, FUTURES, &any, &err) == FAR_OK);
	if (thread % 2)
		CHECK(far_future_wait_all(shared, FUTURES, FAR_FOREVER, &err) == FAR_OK);
	CHECK(far_future_wait(all, FAR_FOREVER, NULL, &err) == FAR_OK);
	CHECK(far_future_wait(any, FAR_FOREVER, NULL, &err) == FAR_OK);
	for (int i = 0; i < FUTURES; i++)
		far_future_free(shared[i]);
	for (int i = 0; i < FUTURES; i++) {
		CHECK(far_future_wait(kept[i], FAR_FOREVER, &v, &err) == FAR_OK);
		far_future_free(kept[i]);
		CHECK(strlen(v.u.s.data) == v.u.s.len);
		far_val_fini(&v);
	}
	far_future_free(all);
	far_future_free(any);
}

static void new_futures(void)
{
	for (int i = 0; i < FUTURES; i++) {
		CHECK(far_future_create(&shared[i], NULL) == FAR_OK);
		for (int t = 1; t < THREADS; t++)
			far_future_ref(shared[i]);
	}
}

static void *thread_main(void *arg)
{
	int thread = (int)(intptr_t)arg;
	for (int round = 0; round < ROUNDS; round++) {
		if (thread == 0)
			new_futures();
		pthread_barrier_wait(&barrier);
		round_of(thread, round);
		pthread_barrier_wait(&barrier);
		if (thread == 0 && round % 50 == 0) {
			/* Dropped by all but one that follows. */
			struct far_future *f, *child;
			CHECK(far_future_create(&f, NULL) == FAR_OK);
			CHECK(far_future_then(f, follow, &children, &child, NULL) == FAR_OK);
			far_future_free(f);
			CHECK(far_future_wait(child, FAR_FOREVER, NULL, NULL) == FAR_CANCELLED);
			atomic_fetch_sub(&children, 1);
			far_future_free(child);
		}
	}
	return NULL;
}

/* ---- the first of two, completed while the wait for it begins ---- */

static _Atomic(struct far_future *) handed;

static void *complete_handed(void *arg)
{
	uint32_t random = 1;
	for (int i = 0; i < HANDED; i++) {
		struct far_future *f;
		while (!(f = atomic_exchange(&handed, NULL)))
			sched_yield();
		random = random * 1664525u + 1013904223u;
		for (uint32_t spin = random >> 26; spin; spin--)
			(void)atomic_load(&handed);
		CHECK(far_future_set_value(f, NULL, NULL) == FAR_OK);
		far_future_free(f);
	}
	return NULL;
}

/* The other future stays pending: a thread that sleeps on it, as the only pending one, would sleep for ever. */
static void first_of_two(void)
{
	struct far_future *f[2];
	struct far_err err;
	size_t index;
	pthread_t t;
	CHECK_STATUS(far_future_create(&f[1], &err), FAR_OK, &err);
	CHECK(pthread_create(&t, NULL, complete_handed, NULL) == 0);
	for (int i = 0; i < HANDED; i++) {
		CHECK_STATUS(far_future_create(&f[0], &err), FAR_OK, &err);
		atomic_store(&handed, far_future_ref(f[0]));
		CHECK_STATUS(far_future_wait_any(f, 2, FAR_FOREVER, &index, &err), FAR_OK, &err);
		CHECK(index == 0);
		far_future_free(f[0]);
	}
	CHECK(pthread_join(t, NULL) == 0);
	far_future_free(f[1]);
}

int main(void)
{
	pthread_t t[THREADS];
	alarm(150);
	first_of_two();
	CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
	for (intptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, thread_main, (void *)i) == 0);
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(atomic_load(&set_by) == ROUNDS * FUTURES);
	CHECK(atomic_load(&called) == THREADS * ROUNDS * FUTURES);
	CHECK(atomic_load(&children) == 2 * THREADS * ROUNDS * FUTURES);
	return 0;
}
