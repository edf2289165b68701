/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory of a pool: blocks of a few sizes, kept when they are given back. Any thread. */
#include "pool.h"

#include "fail.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define POOL_ASAN
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define POOL_ASAN
#endif
#ifdef POOL_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, bytes)   ((void)(at), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(at, bytes) ((void)(at), (void)(bytes))
#endif

/* Sizes: 64 bytes times 4, 5, 6 or 7, times a power of two, and below that 64, 128, 192. */
#define STEPS       4
#define CLASSES_MAX (STEPS * 60)
#define HEADER      64

struct block {
	struct far_pool *pool;
	struct block *next; /* in the list of its class */
	size_t bytes;       /* of the block, without the header */
	unsigned class;
};

_Static_assert(sizeof(struct block) <= HEADER, "the header keeps the alignment");

struct far_pool {
	atomic_bool locked; /* of all below: see lock() */
	size_t limit;
	size_t used, held;
	uint64_t requests;
	uint64_t live; /* blocks that are taken */
	bool closed;   /* far_pool_free() was called */
	struct block *free[CLASSES_MAX];
};

#define LOCK_SPINS  200
#define LOCK_NAP_NS 20000

/** A few instructions run under the lock, so it costs one atomic write, where a mutex costs two. A holder that lost its
 * processor is waited for in naps. */
static void lock(struct far_pool *pool)
{
	const struct timespec nap = {.tv_nsec = LOCK_NAP_NS};
	while (atomic_exchange_explicit(&pool->locked, true, memory_order_acquire))
		for (int i = 0; atomic_load_explicit(&pool->locked, memory_order_relaxed); i++)
			if (i >= LOCK_SPINS)
				nanosleep(&nap, NULL);
}

static void unlock(struct far_pool *pool)
{
	atomic_store_explicit(&pool->locked, false, memory_order_release);
}

/** The smallest class for `bytes`, and its size. */
static unsigned class_of(size_t bytes, size_t *size)
{
	size_t units = bytes / 64 + (bytes % 64 != 0);
	unsigned shift = 0;
	if (units < STEPS) {
		*size = (units ? units : 1) * 64;
		return (unsigned)(*size / 64 - 1);
	}
	while ((units - 1) >> shift >= 2 * STEPS)
		shift++;
	size_t steps = ((units - 1) >> shift) + 1; /* (STEPS, 2 * STEPS] but for the smallest */
	*size = (steps << shift) * 64;
	return (unsigned)(shift * STEPS + steps - 1);
}

enum far_status far_pool_new(size_t limit_bytes, struct far_pool **out, struct far_err *err)
{
	struct far_pool *pool = calloc(1, sizeof *pool);
	if (!pool)
		return fail_memory(err, "pool", sizeof *pool);
	pool->limit = limit_bytes ? limit_bytes : SIZE_MAX;
	*out = pool;
	return FAR_OK;
}

/** Returns unused blocks to the system. The lock is held. */
static void trim(struct far_pool *pool)
{
	for (unsigned c = 0; c < CLASSES_MAX; c++)
		while (pool->free[c]) {
			struct block *block = pool->free[c];
			pool->free[c] = block->next;
			pool->held -= block->bytes + HEADER;
			ASAN_UNPOISON_MEMORY_REGION((char *)block + HEADER, block->bytes);
			free(block);
		}
}

/** Destroys a closed pool without live blocks. Unlocks the pool. */
static void unlock_or_destroy(struct far_pool *pool)
{
	bool last = pool->closed && pool->live == 0;
	if (pool->closed)
		trim(pool);
	unlock(pool);
	if (!last)
		return;
	free(pool);
}

void far_pool_free(struct far_pool *pool)
{
	if (!pool)
		return;
	lock(pool);
	pool->closed = true;
	unlock_or_destroy(pool);
}

void far_pool_get_stats(struct far_pool *pool, struct far_pool_stats *out)
{
	lock(pool);
	*out = (struct far_pool_stats){pool->used, pool->held, pool->requests};
	unlock(pool);
}

/** A new block from the system. The lock is held. Unused blocks of other sizes go first if the limit is reached. */
static struct block *request(struct far_pool *pool, size_t size)
{
	size_t bytes = size + HEADER;
	if (bytes > pool->limit)
		return NULL;
	if (pool->held > pool->limit - bytes)
		trim(pool);
	if (pool->held > pool->limit - bytes)
		return NULL;
	struct block *block = aligned_alloc(HEADER, bytes);
	if (!block)
		return NULL;
	pool->held += bytes;
	pool->requests++;
	block->pool = pool;
	block->bytes = size;
	return block;
}

void *pool_take(struct far_pool *pool, size_t bytes)
{
	size_t size;
	if (bytes > PTRDIFF_MAX / 2)
		return NULL;
	unsigned class = class_of(bytes, &size);
	lock(pool);
	struct block *block = pool->free[class];
	if (block)
		pool->free[class] = block->next;
	else
		block = request(pool, size);
	if (block) {
		block->class = class;
		pool->used += block->bytes;
		pool->live++;
	}
	unlock(pool);
	if (!block)
		return NULL;
	/* Bytes beyond the requested size stay poisoned. */
	ASAN_POISON_MEMORY_REGION((char *)block + HEADER, block->bytes);
	ASAN_UNPOISON_MEMORY_REGION((char *)block + HEADER, bytes);
	return (char *)block + HEADER;
}

void *pool_zero(struct far_pool *pool, size_t bytes)
{
	void *block = pool_take(pool, bytes);
	return block ? memset(block, 0, bytes) : NULL;
}

void pool_give(void *memory)
{
	if (!memory)
		return;
	struct block *block = (struct block *)(void *)((char *)memory - HEADER);
	struct far_pool *pool = block->pool;
	ASAN_POISON_MEMORY_REGION(memory, block->bytes);
	lock(pool);
	block->next = pool->free[block->class];
	pool->free[block->class] = block;
	pool->used -= block->bytes;
	pool->live--;
	unlock_or_destroy(pool);
}

bool pool_grow(struct far_pool *pool, void **array, size_t *capacity, size_t n, size_t size)
{
	return pool_grow_few(pool, array, capacity, n, size, NULL);
}

bool pool_grow_few(struct far_pool *pool, void **array, size_t *capacity, size_t n, size_t size, const void *few)
{
	if (n < *capacity)
		return true;
	size_t more = *capacity ? 2 * *capacity : 16;
	void *larger = pool_take(pool, more * size);
	if (!larger)
		return false;
	if (n > 0)
		memcpy(larger, *array, n * size);
	if (*array != few)
		pool_give(*array);
	*array = larger;
	*capacity = more;
	return true;
}
