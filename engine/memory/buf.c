/* SPDX-License-Identifier: BSD-3-Clause */
/* Slabs of the region as lock-free free lists, and large buffers of the allocator. Any thread. */
#include "memory/buf.h"

#include "base/must.h"
#include "memory/mem.h"
#include "memory/region.h"
#include "sync/future.h"
#include "value/tree.h"

#include <stdalign.h>
#include <stddef.h>

struct pool_buf {
	struct far_buf base;
	_Atomic(struct pool_buf *) next; /* while free: the next free one */
	alignas(64) uint8_t data[];
};

/* Head of a free list: the address of the first buffer in units of 64 bytes (low bits), and a tag that each pop raises
 * (ABA). */
#define HEAD_ADDR_BITS    42u
#define HEAD_ADDR(h)      ((struct pool_buf *)(uintptr_t)(((h) & ((UINT64_C(1) << HEAD_ADDR_BITS) - 1)) << 6))
#define HEAD_MAKE(p, tag) ((uint64_t)(uintptr_t)(p) >> 6 | (uint64_t)(tag) << HEAD_ADDR_BITS)
#define HEAD_TAG(h)       ((h) >> HEAD_ADDR_BITS)

struct buf_class {
	alignas(64) _Atomic uint64_t head;
	_Atomic uint64_t carved; /* slabs made so far */
};

static struct buf_class classes[BUF_CLASS_MAX + 1];

static struct pool_buf *pop(struct buf_class *c)
{
	uint64_t head = atomic_load_explicit(&c->head, memory_order_acquire);
	for (;;) {
		struct pool_buf *b = HEAD_ADDR(head);
		if (!b)
			return NULL;
		/* Another thread may have popped b and written `next`: then the tag differs, and the exchange fails. */
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

static uint64_t slab_bytes(unsigned class)
{
	return sizeof(struct pool_buf) + (UINT64_C(1) << class);
}

static struct pool_buf *carve(unsigned class)
{
	struct pool_buf *b = region_reserve(NULL) == FAR_OK ? region_carve(slab_bytes(class)) : NULL;
	/* The region is used up, perhaps by slabs of other classes: take a larger one, which returns to its class. */
	for (unsigned i = class + 1; !b && i <= BUF_CLASS_MAX; i++)
		if ((b = pop(&classes[i])))
			return b;
	if (!b)
		return NULL;
	atomic_fetch_add_explicit(&classes[class].carved, 1, memory_order_relaxed);
	b->base.kind = class;
	return b;
}

static struct far_buf *alloc_large(size_t bytes)
{
	struct pool_buf *b =
		bytes <= SIZE_MAX - sizeof *b ? mem_alloc(sizeof *b + bytes, alignof(struct pool_buf)) : NULL;
	if (!b)
		return NULL;
	b->base.kind = BUF_LARGE;
	atomic_store_explicit(&b->base.refs, 1, memory_order_relaxed);
	return &b->base;
}

struct far_buf *buf_alloc(size_t bytes)
{
	unsigned class = BUF_CLASS_MIN;
	if (bytes > (size_t)1 << BUF_CLASS_MIN)
		class = 64u - (unsigned)__builtin_clzll(bytes - 1);
	if (unlikely(class > BUF_CLASS_MAX))
		return alloc_large(bytes);
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

uint32_t buf_number(const struct far_buf *b)
{
	return (uint32_t)((uint64_t)((const uint8_t *)b - region.base) / 64 + 1);
}

struct far_buf *buf_numbered(uint32_t number)
{
	return (struct far_buf *)(void *)(region.base + (uint64_t)(number - 1) * 64);
}

/* Out of line: buffers without such contents need no registers for it. */
__attribute__((noinline, cold)) static void end_data(struct far_buf *b)
{
	void *data = buf_data(b);
	(*(buf_end_fn **)data)(data);
}

static void give_back(struct far_buf *b)
{
	if (unlikely(b->kind & (BUF_TREE | BUF_RREFS | BUF_ENDS))) {
		if (b->kind & BUF_ENDS)
			end_data(b);
		else
			tree_fini(b);
		b->kind &= ~(BUF_TREE | BUF_RREFS | BUF_ENDS);
	}
	if (b->kind >= BUF_CLASS_MIN)
		push(&classes[b->kind], (struct pool_buf *)b);
	else if (b->kind == BUF_IN_FUTURE)
		future_recycle(b);
	else
		mem_free(b);
}

void buf_unref(struct far_buf *b)
{
	if (b && atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) == 1)
		give_back(b);
}

size_t buf_slab_bytes(const void *data)
{
	const struct pool_buf *b = (const void *)((const uint8_t *)data - offsetof(struct pool_buf, data));
	if ((uintptr_t)data % alignof(struct pool_buf) || !region_holds(b) || b->base.kind < BUF_CLASS_MIN ||
	    b->base.kind > BUF_CLASS_MAX || atomic_load_explicit(&b->base.refs, memory_order_relaxed) != 1)
		return 0;
	return (size_t)1 << b->base.kind;
}

struct far_buf *buf_of(void *data)
{
	must(buf_slab_bytes(data) > 0);
	return (struct far_buf *)(void *)((uint8_t *)data - offsetof(struct pool_buf, data));
}

/* A buffer popped during the walk has a stale `next`: the walk may miss some buffers or count some twice; the number of
 * slabs bounds it. */
static uint64_t free_slabs(struct buf_class *c, uint64_t carved)
{
	uint64_t n = 0;
	struct pool_buf *b = HEAD_ADDR(atomic_load_explicit(&c->head, memory_order_acquire));
	for (; b && n < carved; n++)
		b = atomic_load_explicit(&b->next, memory_order_acquire);
	return n;
}

uint64_t buf_slabs_used(void)
{
	uint64_t bytes = 0;
	for (unsigned i = BUF_CLASS_MIN; i <= BUF_CLASS_MAX; i++) {
		uint64_t carved = atomic_load_explicit(&classes[i].carved, memory_order_relaxed);
		bytes += (carved - free_slabs(&classes[i], carved)) * slab_bytes(i);
	}
	return bytes;
}

void far_val_fini(struct far_val *v)
{
	buf_unref(v->own);
	v->own = NULL;
	v->type = FAR_TYPE_NONE;
	v->kw = NULL;
}
