/* SPDX-License-Identifier: BSD-3-Clause */
#include "xcore/buf.h"

#include "base/must.h"
#include "xcore/future.h"

#include <pthread.h>
#include <stdalign.h>
#include <sys/mman.h>

struct pool_buf {
	struct far_buf base;
	_Atomic(struct pool_buf *) next; /* while free */
	alignas(64) uint8_t data[];
};

/* Head of a free list: the address of the first buffer, in units of 64 bytes, below a tag that every pop changes (ABA).
 */
#define HEAD_ADDR_BITS    42u
#define HEAD_ADDR(h)      ((struct pool_buf *)(uintptr_t)(((h) & ((UINT64_C(1) << HEAD_ADDR_BITS) - 1)) << 6))
#define HEAD_MAKE(p, tag) ((uint64_t)(uintptr_t)(p) >> 6 | (uint64_t)(tag) << HEAD_ADDR_BITS)
#define HEAD_TAG(h)       ((h) >> HEAD_ADDR_BITS)

struct buf_class {
	alignas(64) _Atomic uint64_t head;
};

static struct buf_class classes[BUF_CLASS_MAX + 1];
static pthread_once_t region_once = PTHREAD_ONCE_INIT;
static uint8_t *region;
static uint64_t region_bytes;
static _Atomic uint64_t region_used;

static void region_reserve(void)
{
	/* Address space only; pages come with first use. A process under a tight limit gets less. */
	for (uint64_t bytes = BUF_REGION_BYTES; bytes >= UINT64_C(64) << 20; bytes /= 2) {
		void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (m == MAP_FAILED)
			continue;
		region = m;
		region_bytes = bytes;
		return;
	}
}

void buf_reserve(void)
{
	pthread_once(&region_once, region_reserve);
}

static struct pool_buf *pop(struct buf_class *c)
{
	uint64_t head = atomic_load_explicit(&c->head, memory_order_acquire);
	for (;;) {
		struct pool_buf *b = HEAD_ADDR(head);
		if (!b)
			return NULL;
		/* Another thread may own b by now and write next: then the tag differs and the exchange fails. */
		struct pool_buf *next = atomic_load_explicit(&b->next, memory_order_relaxed);
		if (atomic_compare_exchange_weak_explicit(&c->head, &head, HEAD_MAKE(next, HEAD_TAG(head) + 1),
							  memory_order_acquire, memory_order_acquire))
			return b;
	}
}

static void push(struct buf_class *c, struct pool_buf *b)
{
	uint64_t head = atomic_load_explicit(&c->head, memory_order_relaxed);
	do
		atomic_store_explicit(&b->next, HEAD_ADDR(head), memory_order_relaxed);
	while (!atomic_compare_exchange_weak_explicit(&c->head, &head, HEAD_MAKE(b, HEAD_TAG(head)),
						      memory_order_release, memory_order_relaxed));
}

static struct pool_buf *carve(unsigned class)
{
	buf_reserve();
	uint64_t bytes = sizeof(struct pool_buf) + (UINT64_C(1) << class);
	uint64_t at = atomic_load_explicit(&region_used, memory_order_relaxed);
	do {
		if (at + bytes > region_bytes)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&region_used, &at, at + bytes, memory_order_relaxed,
							memory_order_relaxed));
	struct pool_buf *b = (struct pool_buf *)(void *)(region + at);
	b->base.kind = class;
	return b;
}

struct far_buf *buf_alloc(size_t bytes)
{
	unsigned class = BUF_CLASS_MIN;
	if (bytes > (size_t)1 << BUF_CLASS_MIN)
		class = 64u - (unsigned)__builtin_clzll(bytes - 1);
	if (class > BUF_CLASS_MAX)
		return NULL;
	struct pool_buf *b = pop(&classes[class]);
	if (unlikely(!b) && !(b = carve(class)))
		return NULL;
	atomic_store_explicit(&b->base.refs, 1, memory_order_relaxed);
	return &b->base;
}

void *buf_data(struct far_buf *b)
{
	return b->kind == BUF_IN_FUTURE ? future_inline(b) : ((struct pool_buf *)b)->data;
}

void buf_unref(struct far_buf *b)
{
	if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
		return;
	if (b->kind == BUF_IN_FUTURE)
		future_recycle(b);
	else
		push(&classes[b->kind], (struct pool_buf *)b);
}

void far_val_fini(struct far_val *v)
{
	buf_unref(v->own);
	v->own = NULL;
	v->type = FAR_TYPE_NONE;
	v->kw = NULL;
}
