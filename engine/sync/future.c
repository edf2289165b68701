/* SPDX-License-Identifier: BSD-3-Clause */
/* The pool of futures, their completion, listeners and sleeps. Any thread; lock-free but for the first reservation. */
#include "sync/future.h"

#include "base/limits.h"
#include "base/must.h"
#include "memory/region.h"
#include "sync/futex.h"

#include <pthread.h>
#include <string.h>
#include <sys/resource.h>

/* A point before each step that other threads can see; the interleaving test defines it as a thread switch. */
#ifndef FAR_HOOK
#define FAR_HOOK(step) ((void)0)
#endif

/* All futures of the process: address space reserved at once, memory backed on first use. Never unmapped, so a late
 * wake-up or a racing pop always reads a future, possibly a recycled one. */
static _Atomic(struct far_future *) pool; /* stored with release after pool_n; pairs with future_reserve()'s acquire */
static uint32_t pool_n;                   /* futures in the pool; constant once `pool` is set */
static _Atomic uint32_t pool_used;        /* futures [0, pool_used) were allocated at least once */
static alignas(64) _Atomic uint64_t
	free_head; /* bits 0–31: index + 1 of the first free future, 0: none; bits 32–63: ABA tag, raised by each pop */

static struct far_future *at(uint32_t index)
{
	return atomic_load_explicit(&pool, memory_order_relaxed) + index; /* an index implies that `pool` was seen */
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

/* Pool size: FAR_FUTURES_MAX, halved until it takes at most 1/16 of a limited address space (RLIMIT_AS). */
static uint32_t most_futures(void)
{
	struct rlimit as;
	uint32_t n = FAR_FUTURES_MAX;
	if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY)
		while (n > FAR_FUTURES_MIN && n * sizeof(struct far_future) > as.rlim_cur / 16)
			n /= 2;
	return n;
}

struct far_future *future_reserve(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct far_future *p = atomic_load_explicit(&pool, memory_order_acquire);
	if (likely(p != NULL))
		return p;
	pthread_mutex_lock(&lock);
	p = atomic_load_explicit(&pool, memory_order_relaxed);
	if (!p) {
		uint32_t n = most_futures();
		while (!(p = region_map(sizeof *p * n)) && n > FAR_FUTURES_MIN)
			n /= 2;
		pool_n = n;
		atomic_store_explicit(&pool, p, memory_order_release);
	}
	pthread_mutex_unlock(&lock);
	return p;
}

static struct far_future *take_new(void)
{
	struct far_future *f = future_reserve();
	uint32_t i = atomic_load_explicit(&pool_used, memory_order_relaxed);
	do {
		if (!f || i == pool_n)
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(&pool_used, &i, i + 1, memory_order_relaxed,
							memory_order_relaxed));
	f[i].index = i;
	f[i].head.kind = BUF_IN_FUTURE;
	return &f[i];
}

struct far_future *future_alloc_handed(struct shard *shard)
{
	struct far_future *f = pop();
	if (unlikely(!f) && !(f = take_new()))
		return NULL;
	atomic_store_explicit(&f->head.refs, 1, memory_order_relaxed);
	atomic_store_explicit(&f->state, 0, memory_order_relaxed);
	f->shard = shard;
	f->buf = NULL;
	return f;
}

struct far_future *future_alloc(struct shard *shard)
{
	struct far_future *f = future_alloc_handed(shard);
	if (f)
		f->call = (struct call_id){0};
	return f;
}

struct far_future *future_alloc_call(struct shard *shard)
{
	struct far_future *f = future_alloc(shard);
	if (f)
		future_mark(f, FUTURE_CALL);
	return f;
}

void future_cache_free(struct future_cache *cache)
{
	for (struct far_future *f; (f = cache->first);) {
		cache->first = (struct far_future *)f->buf;
		f->buf = NULL;
		push(f);
	}
	cache->n = 0;
}

uint32_t future_used(void)
{
	uint32_t idle = 0, ever = atomic_load_explicit(&pool_used, memory_order_relaxed);
	uint32_t next = (uint32_t)atomic_load_explicit(&free_head, memory_order_acquire);
	for (; next && idle < ever; idle++)
		next = atomic_load_explicit(&at(next - 1)->next, memory_order_relaxed);
	return ever - idle;
}

void future_reset(struct far_future *f)
{
	buf_unref(f->buf);
	f->buf = NULL;
	f->call = (struct call_id){0};
	atomic_store_explicit(&f->listeners, NULL, memory_order_relaxed);
	atomic_store_explicit(&f->state, 0, memory_order_relaxed);
}

/* Head of the listener list of a future that is done: no listener is added any more. */
static struct future_listener closed_mark;
#define CLOSED (&closed_mark)

/* Takes the listeners of a future that is done, oldest first, and puts them before `rest`. Each gets a reference of
 * the future. */
static struct future_listener *take_listeners(struct far_future *f, struct future_listener *rest)
{
	FAR_HOOK("take: exchange listeners");
	struct future_listener *l = atomic_exchange_explicit(&f->listeners, CLOSED, memory_order_acq_rel);
	uint32_t n = 0;
	for (; l; n++) {
		struct future_listener *next = l->next;
		l->next = rest;
		rest = l;
		l = next;
	}
	atomic_fetch_add_explicit(&f->head.refs, n, memory_order_relaxed);
	return rest;
}

static void run_listeners(struct future_listener *l)
{
	while (l) {
		struct future_listener *rest = l->next;
		struct far_future *f = l->f;
		l->rest = &rest;
		l->fn(l, f);
		buf_unref(&f->head);
		l = rest;
	}
}

/* Sets LISTENED; returns the former state. The first listener of a CALL takes a reference for its completer. */
static uint32_t set_listened(struct far_future *f)
{
	bool call = atomic_load_explicit(&f->state, memory_order_relaxed) & FUTURE_CALL;
	if (call)
		buf_ref(&f->head);
	FAR_HOOK("listen: set LISTENED");
	uint32_t old = atomic_fetch_or_explicit(&f->state, FUTURE_LISTENED, memory_order_acq_rel);
	if (call && old & (FUTURE_LISTENED | FUTURE_DONE))
		buf_unref(&f->head); /* not the last: the caller has one */
	return old;
}

/* Adds `l`. false: the future is done, and its completer does not run `l`. */
static bool push_listener(struct far_future *f, struct future_listener *l)
{
	if (set_listened(f) & FUTURE_DONE)
		return false;
	FAR_HOOK("listen: look at listeners");
	struct future_listener *head = atomic_load_explicit(&f->listeners, memory_order_acquire);
	while (head != CLOSED) {
		l->next = head;
		FAR_HOOK("listen: push");
		if (atomic_compare_exchange_weak_explicit(&f->listeners, &head, l, memory_order_release,
							  memory_order_acquire))
			return true;
	}
	return false;
}

void future_listen(struct far_future *f, struct future_listener *l)
{
	l->f = f;
	if (push_listener(f, l))
		return;
	l->next = NULL;
	buf_ref(&f->head);
	run_listeners(l);
}

bool future_claim(struct far_future *f)
{
	FAR_HOOK("claim");
	return !(atomic_fetch_or_explicit(&f->state, FUTURE_CLAIMED, memory_order_acq_rel) & FUTURE_CLAIMED);
}

void future_mark(struct far_future *f, uint32_t bits)
{
	atomic_store_explicit(&f->state, bits, memory_order_relaxed);
}

/* The rest of a publication that found `old`: WAITERS, or DONE, a mistake. */
static void published(struct far_future *f, uint32_t old)
{
	must(!(old & FUTURE_DONE));
	if (old & FUTURE_WAITERS) {
		FAR_HOOK("complete: wake");
		futex_wake(&f->state, INT_MAX);
	}
}

/* Sets status and state of a future whose bytes are written, and wakes its sleepers. Returns the former state. */
static uint32_t publish(struct far_future *f, const struct completion *o, enum far_status status, size_t len)
{
	f->len = (uint32_t)len;
	f->len_high = (uint16_t)((uint64_t)len >> 32);
	f->status = (uint8_t)status;
	f->executed = (uint8_t)o->executed;
	f->code = o->code;
	FAR_HOOK("complete: set done");
	/* Its completer alone changes these bits, from zero; x86 returns the former value of a sum alone in one step.
	 */
	uint32_t old = atomic_fetch_add_explicit(&f->state, status == FAR_OK ? FUTURE_DONE : FUTURE_ERROR,
						 memory_order_acq_rel);
	published(f, old);
	return old;
}

static uint32_t copy_and_publish(struct far_future *f, const struct completion *o)
{
	enum far_status status = o->status;
	size_t len = o->len;
	if (len <= FUTURE_INLINE) {
		if (len)
			memcpy(f->bytes, o->data, len);
	} else if (o->buf) {
		f->buf = o->buf;
		buf_ref(f->buf);
	} else if ((f->buf = buf_alloc(len))) {
		memcpy(buf_data(f->buf), o->data, len);
	} else {
		struct completion lost = *o;
		if (status == FAR_OK) {
			status = FAR_RESOURCE;
			lost.code = (int32_t)((len >> 20) + 1); /* MiB, printed in the error text */
		}
		return publish(f, &lost, status, 0);
	}
	return publish(f, o, status, len);
}

/* Returns a future without references to the pool. */
static void recycle(struct far_future *f)
{
	buf_unref(f->buf);
	f->buf = NULL;
	push(f);
}

/* What is left of a completion that found `old`: LISTENED or DROPPED. */
__attribute__((noinline)) static void complete_rest(struct far_future *f, uint32_t old)
{
	if (old & FUTURE_DROPPED) {
		recycle(f);
		return;
	}
	run_listeners(take_listeners(f, NULL));
	if (old & FUTURE_CALL)
		buf_unref(&f->head);
}

void future_complete(struct far_future *f, const struct completion *o)
{
	uint32_t old = copy_and_publish(f, o);
	if (unlikely(old & (FUTURE_LISTENED | FUTURE_DROPPED)))
		complete_rest(f, old);
}

/* What is left of future_complete_line(), if anything is. */
__attribute__((noinline)) static void line_published(struct far_future *f, uint32_t old)
{
	published(f, old);
	if (old & (FUTURE_LISTENED | FUTURE_DROPPED))
		complete_rest(f, old);
}

void future_complete_line(struct far_future *f, uint32_t len)
{
	static_assert(offsetof(struct far_future, executed) == offsetof(struct far_future, outcome) + 5 &&
			      __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && FAR_OK == 0,
		      "");
	f->len = len;
	f->outcome = (uint64_t)FAR_EXECUTED_YES << 40;
	FAR_HOOK("complete: set done");
	/* As publish(). */
	uint32_t old = atomic_fetch_add_explicit(&f->state, FUTURE_DONE | FUTURE_LINE, memory_order_acq_rel);
	if (unlikely(old & (FUTURE_DONE | FUTURE_WAITERS | FUTURE_LISTENED | FUTURE_DROPPED)))
		line_published(f, old);
}

void future_complete_in(struct future_listener *l, struct far_future *f, const struct completion *o,
			struct far_buf *buf)
{
	uint32_t old;
	if (buf) {
		f->buf = buf;
		old = publish(f, o, o->status, o->len);
	} else {
		old = copy_and_publish(f, o);
	}
	if (!(old & (FUTURE_LISTENED | FUTURE_DROPPED)))
		return;
	if (l)
		*l->rest = take_listeners(f, *l->rest);
	else
		complete_rest(f, old);
}

void future_sleep(struct far_future *f, uint32_t seen, uint64_t until)
{
	if (seen & FUTURE_DONE)
		return;
	if (!(seen & FUTURE_WAITERS)) {
		FAR_HOOK("sleep: set WAITERS");
		if (!atomic_compare_exchange_strong_explicit(&f->state, &seen, seen | FUTURE_WAITERS,
							     memory_order_acq_rel, memory_order_acquire))
			return;
		seen |= FUTURE_WAITERS;
	}
	FAR_HOOK("sleep: futex_wait");
	futex_wait(&f->state, seen, until);
}

void future_wake(_Atomic uint32_t *state)
{
	FAR_HOOK("wake");
	atomic_fetch_add_explicit(state, FUTURE_WAKE_UNIT, memory_order_acq_rel);
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

/* Clears the listeners of a future whose last reference is gone. false: it was pending and was completed with
 * CANCELLED; the reference taken for that recycles it. */
static bool recycle_listened(struct far_future *f)
{
	if (!future_done(f)) {
		static const struct completion dropped = {.status = FAR_CANCELLED, .executed = FAR_EXECUTED_NO};
		atomic_store_explicit(&f->head.refs, 1, memory_order_relaxed);
		future_complete(f, &dropped);
		buf_unref(&f->head);
		return false;
	}
	uint32_t watch = atomic_load_explicit(&f->watch, memory_order_relaxed);
	if (watch)
		buf_unref(buf_numbered(watch));
	atomic_store_explicit(&f->watch, 0, memory_order_relaxed);
	atomic_store_explicit(&f->listeners, NULL, memory_order_relaxed);
	return true;
}

void future_recycle(struct far_buf *b)
{
	struct far_future *f = (struct far_future *)b;
	uint32_t state = atomic_load_explicit(&f->state, memory_order_acquire);
	if (unlikely((state & (FUTURE_CALL | FUTURE_DONE)) == FUTURE_CALL)) {
		FAR_HOOK("recycle: set DROPPED");
		if (!(atomic_fetch_or_explicit(&f->state, FUTURE_DROPPED, memory_order_acq_rel) & FUTURE_DONE))
			return; /* to its completer */
	}
	if (unlikely(state & FUTURE_LISTENED) && !recycle_listened(f))
		return;
	recycle(f);
}
