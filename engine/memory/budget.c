/* SPDX-License-Identifier: BSD-3-Clause */
/* Counts the memory of the process against its bound and the limit of its container. Any thread. */
#include "memory/budget.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/must.h"
#include "memory/container.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>

static uint64_t bound; /* bytes; constant after budget_begin() */
static _Atomic uint64_t used;
static _Atomic bool is_short; /* set by a refusal, cleared when the use has fallen to 3/4 of the bound */

/* Allowed by the last reading of the container: `credit` bytes until `credit_until` (absolute, ns). */
static _Atomic bool contained;
static _Atomic uint64_t credit, credit_until;

static pthread_mutex_t reading = PTHREAD_MUTEX_INITIALIZER;
/* Protected by the lock `reading`; the atomics hold the last reading, for texts. */
static _Atomic uint64_t seen_limit, seen_used;
static _Atomic bool refused_by_container;

static uint64_t now_ns(void)
{
	return clock_now(&clock_monotonic);
}

/* ---- the bound ---- */

void budget_refuse(void)
{
	atomic_store_explicit(&refused_by_container, false, memory_order_relaxed);
	atomic_store_explicit(&is_short, true, memory_order_relaxed);
}

static bool count(uint64_t bytes, uint64_t most)
{
	uint64_t before = atomic_load_explicit(&used, memory_order_relaxed);
	do {
		if (bytes > most || before > most - bytes) {
			budget_refuse();
			return false;
		}
	} while (!atomic_compare_exchange_weak_explicit(&used, &before, before + bytes, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

void budget_force(uint64_t bytes)
{
	atomic_fetch_add_explicit(&used, bytes, memory_order_relaxed);
}

void budget_give(uint64_t bytes)
{
	uint64_t before = atomic_fetch_sub_explicit(&used, bytes, memory_order_relaxed);
	if (unlikely(atomic_load_explicit(&is_short, memory_order_relaxed)) && before - bytes < bound / 4 * 3)
		atomic_store_explicit(&is_short, false, memory_order_relaxed);
}

uint64_t budget_used(void)
{
	return atomic_load_explicit(&used, memory_order_relaxed);
}

bool budget_is_short(void)
{
	return atomic_load_explicit(&is_short, memory_order_relaxed);
}

/* ---- the container ---- */

static struct container_room look(void)
{
	struct container_room r = container_read();
	atomic_store_explicit(&contained, r.limit != CONTAINER_UNLIMITED, memory_order_relaxed);
	atomic_store_explicit(&seen_limit, r.limit, memory_order_relaxed);
	atomic_store_explicit(&seen_used, r.used, memory_order_relaxed);
	return r;
}

/* With little room there is no credit: each large allocation reads the container. */
static bool is_tight(const struct container_room *r, uint64_t bytes)
{
	uint64_t floor = r->limit / 2 > FAR_CONTAINER_TIGHT_BYTES ? r->limit / 2 : FAR_CONTAINER_TIGHT_BYTES;
	return r->limit != CONTAINER_UNLIMITED && (r->room < bytes || r->room - bytes < floor);
}

static void set_credit(const struct container_room *r, uint64_t left)
{
	bool limited = r->limit != CONTAINER_UNLIMITED;
	atomic_store_explicit(&credit, limited ? left / FAR_CONTAINER_CREDIT_SHARE : UINT64_MAX, memory_order_relaxed);
	atomic_store_explicit(&credit_until, now_ns() + (limited ? FAR_CONTAINER_CREDIT_NS : FAR_CONTAINER_LOOK_NS),
			      memory_order_relaxed);
}

static bool draw(uint64_t bytes)
{
	if (now_ns() >= atomic_load_explicit(&credit_until, memory_order_relaxed))
		return false;
	uint64_t left = atomic_load_explicit(&credit, memory_order_relaxed);
	if (left == UINT64_MAX)
		return true;
	do {
		if (left < bytes)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&credit, &left, left - bytes, memory_order_relaxed,
							memory_order_relaxed));
	return true;
}

/* True if the container has room for `bytes` and 1/`share` of its limit besides. */
static bool fits(const struct container_room *r, uint64_t bytes, uint64_t share)
{
	uint64_t spare = r->limit == CONTAINER_UNLIMITED ? 0 : r->limit / share;
	if (r->limit == CONTAINER_UNLIMITED || (r->room >= spare && r->room - spare >= bytes)) {
		set_credit(r, r->limit == CONTAINER_UNLIMITED ? 0 : r->room - spare - bytes);
		return true;
	}
	atomic_store_explicit(&refused_by_container, true, memory_order_relaxed);
	atomic_store_explicit(&is_short, true, memory_order_relaxed);
	return false;
}

bool budget_take(uint64_t bytes)
{
	if (!count(bytes, bound))
		return false;
	if (likely(!atomic_load_explicit(&contained, memory_order_relaxed)) || draw(bytes))
		return true;
	pthread_mutex_lock(&reading);
	struct container_room r = look();
	bool fit = fits(&r, bytes, FAR_CONTAINER_SMALL_SPARE);
	pthread_mutex_unlock(&reading);
	if (!fit)
		budget_give(bytes);
	return fit;
}

/* Backs all pages with memory. */
static void back(uint8_t *at, uint64_t bytes)
{
#ifdef MADV_POPULATE_WRITE
	if (madvise(at, bytes, MADV_POPULATE_WRITE) == 0)
		return;
#endif
	for (uint64_t i = 0; i < bytes; i += 4096)
		((volatile uint8_t *)at)[i] = at[i];
}

bool budget_take_pages(void *at, uint64_t bytes, uint64_t fresh)
{
	if (fresh == 0)
		return true;
	if (!count(fresh, bound - bound / FAR_MEMORY_SLAB_SHARE))
		return false;
	if (draw(fresh))
		return true;
	pthread_mutex_lock(&reading);
	struct container_room r = look();
	if (is_tight(&r, fresh)) {
		int fd = container_lock();
		r = look();
		bool fit = fits(&r, fresh, FAR_CONTAINER_LARGE_SPARE);
		if (fit)
			back(at, bytes);
		atomic_store_explicit(&credit_until, 0, memory_order_relaxed);
		container_unlock(fd);
		pthread_mutex_unlock(&reading);
		if (!fit)
			budget_give(fresh);
		return fit;
	}
	fits(&r, fresh, FAR_CONTAINER_LARGE_SPARE);
	pthread_mutex_unlock(&reading);
	return true;
}

uint64_t budget_retained_max(void)
{
	uint64_t limit = atomic_load_explicit(&seen_limit, memory_order_relaxed), most = FAR_MEMORY_RETAINED_MAX;
	if (budget_is_short())
		return 0;
	return limit / FAR_CONTAINER_LARGE_SPARE < most ? limit / FAR_CONTAINER_LARGE_SPARE : most;
}

void budget_begin(uint64_t most, const char *self, const char *root)
{
	pthread_mutex_lock(&reading);
	bound = most;
	container_find(self, root);
	struct container_room r = look();
	set_credit(&r, 0);
	pthread_mutex_unlock(&reading);
}

/* ---- texts ---- */

void budget_text(char *out, size_t cap, uint64_t wanted)
{
	uint64_t limit = atomic_load_explicit(&seen_limit, memory_order_relaxed), tenth = (1u << 20) / 10;
	unsigned long long tenths = (wanted + tenth / 2) / tenth;
	bool by_container =
		atomic_load_explicit(&refused_by_container, memory_order_relaxed) && limit != CONTAINER_UNLIMITED;
	uint64_t in_use = by_container ? atomic_load_explicit(&seen_used, memory_order_relaxed) : budget_used();
	snprintf(out, cap, "%llu.%llu MiB requested, %llu of %s %llu MiB are in use; free some, or raise %s",
		 tenths / 10, tenths % 10, (unsigned long long)(in_use >> 20),
		 by_container ? "the container's" : "at most",
		 (unsigned long long)((by_container ? limit : bound) >> 20),
		 by_container ? "the container's memory limit" : "the bound: FAR_MEMORY_MAX or far_memory_limit()");
}
