/* SPDX-License-Identifier: BSD-3-Clause */
/** The region, hammered by threads: slabs and page runs meet in a small one, memory is handed from thread to thread,
 * and its counts are read meanwhile. For a build with ThreadSanitizer; without it, it still checks what it wrote. */
#include "memory/buf.h"
#include "memory/region.h"
#include "memory/runs.h"

#include "../e2e/check.h"

#include <farcall/memory.h>
#include <pthread.h>
#include <stdatomic.h>

enum { THREADS = 4, STEPS = 8000, SLOTS = 32 };

struct piece {
	struct far_buf *buf; /* NULL: of far_alloc() */
	uint64_t bytes, mark;
};

static _Atomic(struct piece *) slots[SLOTS]; /* anybody takes what is there and leaves its own */
static _Atomic unsigned running = THREADS;

static uint32_t next_random(uint32_t *seed)
{
	*seed = *seed * 1664525u + 1013904223u;
	return *seed >> 8;
}

static uint64_t *last_word(struct piece *p)
{
	return (uint64_t *)(void *)((uint8_t *)p + p->bytes) - 1;
}

/* The piece describes itself at its start, and ends with its mark. NULL: no memory, which is fine. */
static struct piece *make(uint32_t *seed)
{
	size_t bytes = (64 + next_random(seed) % ((size_t)256 << next_random(seed) % 14)) / 8 * 8;
	struct far_buf *buf = NULL;
	struct piece *p;
	if (next_random(seed) % 2) {
		buf = buf_alloc(bytes);
		p = buf ? buf_data(buf) : NULL;
	} else {
		p = far_alloc(bytes, NULL);
	}
	if (!p)
		return NULL;
	*p = (struct piece){buf, bytes, next_random(seed)};
	*last_word(p) = p->mark;
	return p;
}

static void finish(struct piece *p)
{
	if (!p)
		return;
	CHECK(*last_word(p) == p->mark);
	if (p->buf)
		buf_unref(p->buf);
	else
		far_free(p);
}

static void *thread_main(void *arg)
{
	uint32_t seed = (uint32_t)(uintptr_t)arg;
	for (int i = 0; i < STEPS; i++) {
		struct piece *p = make(&seed);
		finish(atomic_exchange_explicit(&slots[next_random(&seed) % SLOTS], p, memory_order_acq_rel));
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	struct far_memory m;
	alarm(HANG_GUARD_S);
	CHECK(far_memory_limit(UINT64_C(32) << 20, NULL) == FAR_OK);
	for (uintptr_t i = 0; i < THREADS; i++)
		CHECK(pthread_create(&t[i], NULL, thread_main, (void *)(i + 1)) == 0);
	while (atomic_load(&running)) {
		far_memory_stats(&m);
		CHECK(m.slab_committed <= m.reserved && m.retained <= m.reserved);
	}
	for (int i = 0; i < THREADS; i++)
		CHECK(pthread_join(t[i], NULL) == 0);
	for (int i = 0; i < SLOTS; i++)
		finish(atomic_load(&slots[i]));
	far_memory_stats(&m);
	CHECK(m.large_used == 0 && m.slab_used == 0 && m.large_committed == 0);
	CHECK(runs_sane());
	return 0;
}
