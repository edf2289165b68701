/* SPDX-License-Identifier: BSD-3-Clause */
/* Countdowns, and the watches of futures that step them. Any thread; lock-free. */
#include "sync/watch.h"

#include "base/must.h"

#include <errno.h>

/* A thread switch of the interleaving test, as in future.c. */
#ifndef FAR_HOOK
#define FAR_HOOK(step) ((void)0)
#endif

/* Lies in the inline bytes of its future, which has no value. */
struct countdown {
	_Atomic uint32_t left; /* steps until it is done */
	bool fail_fast;        /* the first failed future completes it; constant */
};
static_assert(sizeof(struct countdown) <= FUTURE_INLINE, "a countdown lies in its future");

#define WATCH_CLOSED (1u << 31)

struct watch {
	struct future_listener listener;
	struct far_buf *self;   /* the buffer that holds it; two references: the future's, the listener's */
	_Atomic uint32_t taken; /* bit i: slot i is in use; WATCH_CLOSED: the future is done */
	_Atomic(struct far_future *) slots[WATCH_SLOTS]; /* countdowns; NULL: empty; FIRED: the future is done */
};
static_assert(sizeof(struct watch) <= 1u << BUF_CLASS_MIN, "a watch fits the smallest buffer");

static struct far_future fired_mark;
#define FIRED (&fired_mark)

static struct countdown *countdown_of(struct far_future *f)
{
	return (struct countdown *)(void *)f->bytes;
}

struct far_future *countdown_alloc(struct shard *shard, uint32_t left, bool fail_fast)
{
	struct far_future *f = future_alloc(shard);
	if (!f)
		return NULL;
	atomic_store_explicit(&countdown_of(f)->left, left, memory_order_relaxed);
	countdown_of(f)->fail_fast = fail_fast;
	return f;
}

void countdown_step(struct future_listener *l, struct far_future *countdown, const struct far_future *f)
{
	static const struct completion done = {.status = FAR_OK, .executed = FAR_EXECUTED_NO};
	struct countdown *c = countdown_of(countdown);
	bool last = f && f->status != FAR_OK && c->fail_fast;
	FAR_HOOK("countdown: fetch_sub left");
	if (atomic_fetch_sub_explicit(&c->left, 1, memory_order_acq_rel) == 1)
		last = true;
	if (last && future_claim(countdown))
		future_complete_in(l, countdown, &done, NULL);
}

static void watch_fire(struct future_listener *l, struct far_future *f)
{
	struct watch *w = (struct watch *)(void *)l;
	FAR_HOOK("fire: set CLOSED");
	uint32_t taken = atomic_fetch_or_explicit(&w->taken, WATCH_CLOSED, memory_order_acq_rel);
	for (; taken; taken &= taken - 1) {
		unsigned i = (unsigned)__builtin_ctz(taken);
		FAR_HOOK("fire: exchange slot");
		struct far_future *countdown = atomic_exchange_explicit(&w->slots[i], FIRED, memory_order_acq_rel);
		if (!countdown)
			continue;
		countdown_step(l, countdown, f);
		buf_unref(&countdown->head);
	}
	buf_unref(w->self);
}

static struct watch *watch_at(uint32_t number)
{
	return buf_data(buf_numbered(number));
}

/* Makes the watch of a future. It listens before it is installed: an entered countdown depends on being fired. */
static int watch_make(struct far_future *f, struct watch **out)
{
	struct far_buf *buf = buf_alloc(sizeof(struct watch));
	if (!buf)
		return -EBUSY;
	struct watch *w = buf_data(buf);
	uint32_t none = 0;
	w->listener.fn = watch_fire;
	w->self = buf;
	atomic_store_explicit(&w->taken, 0, memory_order_relaxed);
	for (unsigned i = 0; i < WATCH_SLOTS; i++)
		atomic_store_explicit(&w->slots[i], NULL, memory_order_relaxed);
	buf_ref(buf);
	future_listen(f, &w->listener);
	FAR_HOOK("watch: install");
	if (atomic_compare_exchange_strong_explicit(&f->watch, &none, buf_number(buf), memory_order_acq_rel,
						    memory_order_acquire)) {
		*out = w;
		return 0;
	}
	buf_unref(buf); /* another thread installed one first; the listener's reference frees this one when fired */
	*out = watch_at(none);
	return 0;
}

/* Takes a free slot: its index, -EALREADY (the future is done) or -EBUSY (no slot is free). */
static int slot_take(struct watch *w)
{
	FAR_HOOK("watch: look at taken");
	uint32_t taken = atomic_load_explicit(&w->taken, memory_order_acquire);
	for (;;) {
		if (taken & WATCH_CLOSED)
			return -EALREADY;
		uint32_t free = ~taken & ((1u << WATCH_SLOTS) - 1);
		if (!free)
			return -EBUSY;
		int slot = __builtin_ctz(free);
		FAR_HOOK("watch: take slot");
		if (atomic_compare_exchange_weak_explicit(&w->taken, &taken, taken | 1u << slot, memory_order_acq_rel,
							  memory_order_acquire))
			return slot;
	}
}

int watch_add(struct far_future *f, struct far_future *countdown)
{
	uint32_t number = atomic_load_explicit(&f->watch, memory_order_acquire);
	struct watch *w = number ? watch_at(number) : NULL;
	int slot = future_done(f) ? -EALREADY : w ? 0 : watch_make(f, &w);
	if (slot < 0 || (slot = slot_take(w)) < 0)
		return slot;
	struct far_future *empty = NULL;
	buf_ref(&countdown->head);
	FAR_HOOK("watch: fill slot");
	if (atomic_compare_exchange_strong_explicit(&w->slots[slot], &empty, countdown, memory_order_acq_rel,
						    memory_order_acquire))
		return 0;
	must(empty == FIRED);
	buf_unref(&countdown->head);
	return -EALREADY;
}

void watch_remove(struct far_future *f, struct far_future *countdown)
{
	uint32_t number = atomic_load_explicit(&f->watch, memory_order_acquire);
	struct watch *w = number ? watch_at(number) : NULL;
	for (unsigned i = 0; w && i < WATCH_SLOTS; i++) {
		struct far_future *mine = countdown;
		if (atomic_load_explicit(&w->slots[i], memory_order_relaxed) != countdown)
			continue;
		FAR_HOOK("watch: empty slot");
		if (!atomic_compare_exchange_strong_explicit(&w->slots[i], &mine, NULL, memory_order_acq_rel,
							     memory_order_acquire))
			continue; /* fired meanwhile */
		FAR_HOOK("watch: give slot back");
		atomic_fetch_and_explicit(&w->taken, ~(1u << i), memory_order_acq_rel);
		buf_unref(&countdown->head);
		return;
	}
}
