/* SPDX-License-Identifier: BSD-3-Clause */
/** What several cores touch at once, hammered by threads: futures, buffers, the submission ring, the progress token.
 * For a build with ThreadSanitizer; without it, it still checks its sums. */
#include "base/clock.h"
#include "sync/progress.h"
#include "sync/submit.h"

#include "../e2e/check.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 4, CALLS = 20000 };

static struct submit_cell cells[FAR_SUBMIT_SLOTS];
static struct submit_ring ring;
static struct progress progress;
static uint64_t taken; /* under the token */
static _Atomic unsigned producing;

static void fill(const struct submit_cell *cell)
{
	struct call_start start;
	submit_read(&ring, cell, &start);
	struct far_future *f = start.user;
	struct completion o = {.status = FAR_OK, .executed = FAR_EXECUTED_YES, .data = start.data, .len = start.len};
	*start.id = (struct call_id){.slot = 1}; /* the shard's alone, as the line that it is in */
	future_complete(f, &o);
	buf_unref(&f->head);
}

/* One pass by the holder of the token. */
static unsigned pass(void)
{
	struct submit_cell *cell;
	unsigned n = 0;
	while (n < 16 && (cell = submit_peek(&ring))) {
		fill(cell);
		submit_pop(&ring, cell);
		taken++;
		n++;
	}
	return n;
}

static void ignored(void *user, const struct completion *o)
{
}

/* As an application thread waits: it drives when it can, and sleeps on its future when somebody else does. */
static void wait_for(struct far_future *f)
{
	while (!future_done(f)) {
		if (progress_try(&progress)) {
			while (!future_done(f))
				if (!pass())
					sched_yield();
			progress_release(&progress);
			continue;
		}
		uint32_t seen = atomic_load_explicit(&f->state, memory_order_acquire);
		int place = progress_sleeper_add(&progress, &f->state);
		if (atomic_load_explicit(&progress.token, memory_order_seq_cst))
			future_sleep(f, seen, clock_now(&clock_monotonic) + 50000000);
		progress_sleeper_remove(&progress, place);
	}
}

static void one_call(unsigned thread, unsigned i)
{
	uint8_t bytes[400];
	struct far_future *f = future_alloc_handed(NULL);
	CHECK(f);
	buf_ref(&f->head);
	for (unsigned k = 0; k < sizeof bytes; k++)
		bytes[k] = (uint8_t)(thread * 31 + i + k);
	/* plain, if it is short */
	struct call_start start = {.done = ignored,
				   .user = f,
				   .id = &f->call,
				   .data = bytes,
				   .len = i % 3 ? i % SUBMIT_INLINE : sizeof bytes};
	while (submit_put(&ring, &start))
		sched_yield();
	if (i % 16 == 0) {
		buf_unref(&f->head); /* nobody looks at the result */
		return;
	}
	wait_for(f);
	CHECK(f->status == FAR_OK && future_len(f) == start.len);
	CHECK(start.len == 0 || memcmp(future_bytes(f), bytes, start.len) == 0);
	/* The value outlives the future. */
	struct far_buf *own = f->buf ? f->buf : &f->head;
	buf_ref(own);
	buf_unref(&f->head);
	CHECK(start.len == 0 || memcmp(buf_data(own), bytes, start.len) == 0);
	buf_unref(own);
}

static void *caller_main(void *arg)
{
	for (unsigned i = 0; i < CALLS; i++)
		one_call((unsigned)(uintptr_t)arg, i);
	atomic_fetch_sub(&producing, 1);
	return NULL;
}

/* As the poller: takes the token when nobody has it, parks when somebody keeps it. */
static void *poller_main(void *arg)
{
	while (atomic_load(&producing) || submit_waiting(&ring)) {
		if (progress_try(&progress)) {
			for (int i = 0; i < 50; i++)
				pass();
			progress_release(&progress);
			sched_yield();
		} else {
			progress_park(&progress);
		}
	}
	return NULL;
}

static void *waker_main(void *arg)
{
	while (atomic_load(&producing)) {
		struct far_future *f = future_alloc(NULL);
		CHECK(f);
		_Atomic uint32_t *state = &f->state;
		buf_unref(&f->head);
		future_wake(state); /* of a future that may be somebody else's by now */
		sched_yield();
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS + 2];
	alarm(150);
	submit_init(&ring, cells, FAR_SUBMIT_SLOTS, ignored);
	atomic_store(&producing, THREADS);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, caller_main, (void *)i) == 0);
	CHECK(pthread_create(&t[THREADS], NULL, poller_main, NULL) == 0);
	CHECK(pthread_create(&t[THREADS + 1], NULL, waker_main, NULL) == 0);
	for (int i = 0; i < THREADS + 2; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	CHECK(taken == (uint64_t)THREADS * CALLS);
	return 0;
}
