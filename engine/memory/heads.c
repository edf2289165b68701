/* SPDX-License-Identifier: BSD-3-Clause */
/** One shared memory of HEADS_MAX pieces, and a bit for each that is free. Any thread. */
#include "memory/heads.h"

#include "base/shared.h"
#include "memory/budget.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define POOL_BYTES (HEADS_MAX * HEAD_BYTES)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool watched; /* forks are; under the lock */
/* NULL: not made. Stored once, with release, behind `vacant`; pairs with head_take(). A forked child has none. */
static _Atomic(uint8_t *) pool;
static _Atomic uint64_t vacant; /* one bit each */

static void forked(void)
{
	atomic_store_explicit(&pool, NULL, memory_order_relaxed);
}

static uint8_t *pool_alloc(void)
{
	int error;
	uint8_t *at = shared_alloc(POOL_BYTES, &error);
	if (at && !budget_take_pages(at, POOL_BYTES, POOL_BYTES)) {
		shared_free(at);
		return NULL;
	}
	return at;
}

void heads_make(void)
{
	if (atomic_load_explicit(&pool, memory_order_acquire))
		return;
	pthread_mutex_lock(&lock);
	if (!watched)
		watched = pthread_atfork(NULL, NULL, forked) == 0;
	if (watched && !atomic_load_explicit(&pool, memory_order_relaxed)) {
		uint8_t *at = pool_alloc();
		atomic_store_explicit(&vacant, UINT64_MAX, memory_order_relaxed);
		atomic_store_explicit(&pool, at, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
}

void *head_take(void)
{
	uint8_t *base = atomic_load_explicit(&pool, memory_order_acquire);
	uint64_t bits = base ? atomic_load_explicit(&vacant, memory_order_relaxed) : 0;
	while (bits) {
		/* Acquire: pairs with head_give(), whose thread has read the piece. */
		if (atomic_compare_exchange_weak_explicit(&vacant, &bits, bits & (bits - 1), memory_order_acquire,
							  memory_order_relaxed))
			return base + (size_t)__builtin_ctzll(bits) * HEAD_BYTES;
	}
	return NULL;
}

void head_give(void *head)
{
	uint8_t *base = atomic_load_explicit(&pool, memory_order_relaxed);
	size_t at = ((uintptr_t)head - (uintptr_t)base) / HEAD_BYTES;
	atomic_fetch_or_explicit(&vacant, UINT64_C(1) << at, memory_order_release);
}
