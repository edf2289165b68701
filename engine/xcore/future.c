/* SPDX-License-Identifier: BSD-3-Clause */
#include "xcore/future.h"

#include "base/limits.h"
#include "base/must.h"
#include "xcore/futex.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SLABS_MAX (FAR_FUTURES_MAX / FAR_FUTURES_SLAB)

/* Slabs are never given back, so that a late nudge or a racing pop finds a future, if not the same one. */
static _Atomic(struct far_future *) slabs[SLABS_MAX];
static uint32_t slabs_n; /* under grow_lock */
static pthread_mutex_t grow_lock = PTHREAD_MUTEX_INITIALIZER;
static alignas(64) _Atomic uint64_t
	free_head; /* index + 1 of the first free one | tag << 32, the tag changing with every pop */

static struct far_future *at(uint32_t index)
{
	struct far_future *slab = atomic_load_explicit(&slabs[index / FAR_FUTURES_SLAB], memory_order_acquire);
	return &slab[index % FAR_FUTURES_SLAB];
}

static void push(struct far_future *f)
{
	uint64_t head = atomic_load_explicit(&free_head, memory_order_relaxed), new;
	do {
		atomic_store_explicit(&f->next, (uint32_t)head, memory_order_relaxed);
		new = (head >> 32 << 32) | (f->index + 1);
	} while (!atomic_compare_exchange_weak_explicit(&free_head, &head, new, memory_order_release,
							memory_order_relaxed));
}

static struct far_future *pop(void)
{
	uint64_t head = atomic_load_explicit(&free_head, memory_order_acquire), new;
	struct far_future *f;
	do {
		if (!(uint32_t)head)
			return NULL;
		f = at((uint32_t)head - 1);
		new = ((head >> 32) + 1) << 32 | atomic_load_explicit(&f->next, memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(&free_head, &head, new, memory_order_acquire,
							memory_order_acquire));
	return f;
}

static struct far_future *grow(void)
{
	pthread_mutex_lock(&grow_lock);
	struct far_future *f = pop(); /* another thread may have grown it */
	if (!f && slabs_n < SLABS_MAX) {
		struct far_future *slab = aligned_alloc(64, sizeof *slab * FAR_FUTURES_SLAB);
		if (slab) {
			memset(slab, 0, sizeof *slab * FAR_FUTURES_SLAB);
			for (uint32_t i = 0; i < FAR_FUTURES_SLAB; i++) {
				slab[i].index = slabs_n * FAR_FUTURES_SLAB + i;
				slab[i].head.kind = BUF_IN_FUTURE;
			}
			atomic_store_explicit(&slabs[slabs_n++], slab, memory_order_release);
			for (uint32_t i = FAR_FUTURES_SLAB - 1; i > 0; i--)
				push(&slab[i]);
			f = &slab[0];
		}
	}
	pthread_mutex_unlock(&grow_lock);
	return f;
}

struct far_future *future_alloc(struct shard *shard)
{
	struct far_future *f = pop();
	if (unlikely(!f) && !(f = grow()))
		return NULL;
	atomic_store_explicit(&f->head.refs, 1, memory_order_relaxed);
	atomic_store_explicit(&f->state, 0, memory_order_relaxed);
	f->shard = shard;
	f->buf = NULL;
	return f;
}

void future_reset(struct far_future *f)
{
	buf_unref(f->buf);
	f->buf = NULL;
	atomic_store_explicit(&f->state, 0, memory_order_relaxed);
}

static void run_listeners(struct far_future *f)
{
	struct future_listener *l = atomic_exchange_explicit(&f->listeners, NULL, memory_order_acquire),
			       *in_order = NULL;
	while (l) {
		struct future_listener *next = l->next;
		l->next = in_order;
		in_order = l;
		l = next;
	}
	while ((l = in_order)) {
		in_order = l->next;
		l->fn(l, f);
	}
}

void future_listen(struct far_future *f, struct future_listener *l)
{
	struct future_listener *head = atomic_load_explicit(&f->listeners, memory_order_relaxed);
	do
		l->next = head;
	while (!atomic_compare_exchange_weak_explicit(&f->listeners, &head, l, memory_order_release,
						      memory_order_relaxed));
	if (atomic_fetch_or_explicit(&f->state, FUTURE_LISTENED, memory_order_acq_rel) & FUTURE_DONE)
		run_listeners(f);
}

void future_complete(struct far_future *f, const struct outcome *o)
{
	enum far_status status = o->status;
	size_t len = o->len;
	if (len <= FUTURE_INLINE) {
		if (len)
			memcpy(f->bytes, o->data, len);
	} else if ((f->buf = buf_alloc(len))) {
		memcpy(buf_data(f->buf), o->data, len);
	} else {
		status = status == FAR_OK ? FAR_RESOURCE : status;
		len = 0;
	}
	f->len = len;
	f->status = (uint8_t)status;
	f->executed = (uint8_t)o->executed;
	f->code = o->code;
	uint32_t old = atomic_fetch_or_explicit(&f->state, status == FAR_OK ? FUTURE_DONE : FUTURE_ERROR,
						memory_order_acq_rel);
	must(!(old & FUTURE_DONE));
	if (old & FUTURE_WAITERS)
		futex_wake(&f->state, INT_MAX);
	if (unlikely(old & FUTURE_LISTENED))
		run_listeners(f);
}

void future_sleep(struct far_future *f, uint32_t seen, uint64_t until)
{
	if (seen & FUTURE_DONE)
		return;
	if (!(seen & FUTURE_WAITERS)) {
		if (!atomic_compare_exchange_strong_explicit(&f->state, &seen, seen | FUTURE_WAITERS,
							     memory_order_acq_rel, memory_order_acquire))
			return;
		seen |= FUTURE_WAITERS;
	}
	futex_wait(&f->state, seen, until);
}

void future_nudge(_Atomic uint32_t *state)
{
	atomic_fetch_add_explicit(state, FUTURE_NUDGE, memory_order_acq_rel);
	futex_wake(state, INT_MAX);
}

const void *future_bytes(const struct far_future *f)
{
	return f->buf ? buf_data(f->buf) : f->bytes;
}

void *future_inline(struct far_buf *b)
{
	return ((struct far_future *)b)->bytes;
}

void future_recycle(struct far_buf *b)
{
	struct far_future *f = (struct far_future *)b;
	buf_unref(f->buf);
	f->buf = NULL;
	push(f);
}
