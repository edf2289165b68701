/* SPDX-License-Identifier: BSD-3-Clause */
/* Reserves the region and moves both ends of its gap. Any thread; slabs lock-free, runs under the lock of runs.c. */
#include "memory/region.h"

#include "base/cgroup.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "memory/budget.h"
#include "memory/physical.h"

#include <farcall/memory.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* Both ends of the gap in one word: end of the slabs in units of 64 bytes (low bits), bottom of the runs in pages (high
 * bits). Both fit FAR_MEMORY_BYTES_MAX. */
#define SLAB_SHIFT     6u
#define SLAB_BITS      34u
#define SLAB_END(w)    ((w) & ((UINT64_C(1) << SLAB_BITS) - 1))
#define BOTTOM(w)      ((w) >> SLAB_BITS)
#define WORD(s, b)     ((uint64_t)(s) | (uint64_t)(b) << SLAB_BITS)
#define PAGE_SHIFT_MIN 12u

_Static_assert(FAR_MEMORY_BYTES_MAX >> SLAB_SHIFT <= UINT64_C(1) << SLAB_BITS, "the slabs' end fits the word");
_Static_assert(FAR_MEMORY_BYTES_MAX >> PAGE_SHIFT_MIN < UINT64_C(1) << (64 - SLAB_BITS), "the bottom fits the word");

enum { UNRESERVED, RESERVED, FAILED };

struct region region;
static _Atomic uint64_t word;
static _Atomic int state; /* stored with release after `region` is filled; pairs with region_reserve()'s acquire */
static pthread_mutex_t reserve_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t requested; /* limit set by far_memory_limit(), 0: none; protected by reserve_lock */

static enum far_status check_limit(const char *what, uint64_t bytes, struct far_err *err)
{
	if (bytes >= FAR_MEMORY_BYTES_MIN && bytes <= FAR_MEMORY_BYTES_MAX)
		return FAR_OK;
	return err_set(err, FAR_INVALID, "%s: %" PRIu64 " bytes; give a bound from 16 MiB (16M) to 1 TiB (1T)", what,
		       bytes);
}

/* Parses a size: "4294967296", "4096M", "4g". */
static enum far_status parse_limit(const char *text, uint64_t *out, struct far_err *err)
{
	static const char units[] = "KMGT";
	uint64_t n = 0;
	const char *p = text;
	for (; *p >= '0' && *p <= '9' && n < UINT64_MAX / 16; p++)
		n = n * 10 + (uint64_t)(*p - '0');
	const char *unit = p > text && *p ? strchr(units, *p & ~0x20) : NULL;
	if (unit) {
		unsigned shift = 10 * (unsigned)(unit - units + 1);
		n = n > UINT64_MAX >> shift ? UINT64_MAX : n << shift;
		p++;
	}
	if (p == text || *p)
		return err_set(err, FAR_INVALID,
			       "FAR_MEMORY_MAX is \"%s\"; give bytes, or a number with K, M, G or T, such as 8G", text);
	enum far_status status = check_limit("FAR_MEMORY_MAX", n, err);
	if (!status)
		*out = n;
	return status;
}

static enum far_status find_limit(uint64_t *out, struct far_err *err)
{
	const char *env = getenv("FAR_MEMORY_MAX");
	struct rlimit as;
	if (requested) {
		*out = requested;
	} else if (env && *env) {
		enum far_status status = parse_limit(env, out, err);
		if (status)
			return status;
	} else {
		uint64_t half = physical_bytes(CGROUP_SELF, CGROUP_ROOT) / 2;
		*out = half < FAR_MEMORY_BYTES_MIN   ? FAR_MEMORY_BYTES_MIN
		       : half > FAR_MEMORY_BYTES_MAX ? FAR_MEMORY_BYTES_MAX
						     : half;
	}
	/* The rest of a limited address space is left to stacks, rings of peers and the application. */
	if (getrlimit(RLIMIT_AS, &as) == 0 && as.rlim_cur != RLIM_INFINITY && as.rlim_cur / 2 < *out)
		*out = as.rlim_cur / 2;
	return FAR_OK;
}

/* Readable and writable from the start, so that slabs grow without a system call. Pages are backed on first use, even
 * after mlockall(MCL_FUTURE), which would otherwise back the whole region now. */
void *region_map(uint64_t bytes)
{
	void *m = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (m == MAP_FAILED)
		return NULL;
	if (munlock(m, bytes) == 0 && mprotect(m, bytes, PROT_READ | PROT_WRITE) == 0)
		return m;
	munmap(m, bytes);
	return NULL;
}

static enum far_status reserve(struct far_err *err)
{
	uint64_t limit = 0;
	enum far_status status = find_limit(&limit, err);
	if (status)
		return status;
	long page = sysconf(_SC_PAGESIZE);
	region.page_shift = page > 1 << PAGE_SHIFT_MIN ? (unsigned)__builtin_ctzl((unsigned long)page) : PAGE_SHIFT_MIN;
	/* With too little address space: a smaller region. */
	for (uint64_t bytes = limit; bytes >= FAR_MEMORY_BYTES_MIN / 2; bytes /= 2) {
		uint64_t whole = bytes >> region.page_shift << region.page_shift;
		void *m = region_map(whole);
		if (!m)
			continue;
		region.base = m;
		region.bytes = whole;
		budget_begin(whole, CGROUP_SELF, CGROUP_ROOT);
		atomic_store_explicit(&word, WORD(0, whole >> region.page_shift), memory_order_relaxed);
		atomic_store_explicit(&state, RESERVED, memory_order_release);
		return FAR_OK;
	}
	atomic_store_explicit(&state, FAILED, memory_order_release);
	return FAR_OK;
}

enum far_status region_reserve(struct far_err *err)
{
	enum far_status status = FAR_OK;
	int s = atomic_load_explicit(&state, memory_order_acquire);
	if (unlikely(s == UNRESERVED)) {
		pthread_mutex_lock(&reserve_lock);
		if (atomic_load_explicit(&state, memory_order_relaxed) == UNRESERVED)
			status = reserve(err);
		s = atomic_load_explicit(&state, memory_order_relaxed);
		pthread_mutex_unlock(&reserve_lock);
	}
	if (status == FAR_OK && s == FAILED)
		status = err_set(err, FAR_RESOURCE,
				 "no address space for the region of buffers, not even 8 MiB; raise `ulimit -v`");
	return status;
}

enum far_status far_memory_limit(uint64_t bytes, struct far_err *err)
{
	enum far_status status = check_limit("far_memory_limit", bytes, err);
	if (status)
		return status;
	pthread_mutex_lock(&reserve_lock);
	if (atomic_load_explicit(&state, memory_order_relaxed) == UNRESERVED)
		requested = bytes;
	else
		status = err_set(err, FAR_ALREADY_INITIALIZED,
				 "the region is in use; call far_memory_limit before far_init_rpc and far_alloc");
	pthread_mutex_unlock(&reserve_lock);
	return status;
}

void *region_carve(uint64_t bytes)
{
	uint64_t w = atomic_load_explicit(&word, memory_order_relaxed), end;
	if (!budget_take(bytes))
		return NULL;
	do {
		end = SLAB_END(w) + (bytes >> SLAB_SHIFT);
		if (end << SLAB_SHIFT > BOTTOM(w) << region.page_shift) {
			budget_give(bytes);
			budget_refuse();
			return NULL;
		}
	} while (!atomic_compare_exchange_weak_explicit(&word, &w, WORD(end, BOTTOM(w)), memory_order_acquire,
							memory_order_relaxed));
	return region.base + (SLAB_END(w) << SLAB_SHIFT);
}

bool region_lower(uint64_t pages)
{
	uint64_t w = atomic_load_explicit(&word, memory_order_relaxed);
	do {
		uint64_t floor = SLAB_END(w) << SLAB_SHIFT, reserve_end = region.bytes / FAR_MEMORY_SLAB_SHARE;
		if (floor < reserve_end)
			floor = reserve_end;
		if (pages > BOTTOM(w) || (BOTTOM(w) - pages) << region.page_shift < floor)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&word, &w, WORD(SLAB_END(w), BOTTOM(w) - pages),
							memory_order_relaxed, memory_order_relaxed));
	return true;
}

void region_raise(uint64_t pages)
{
	/* Release after the last access to these pages; pairs with the acquire of region_carve. */
	atomic_fetch_add_explicit(&word, pages << SLAB_BITS, memory_order_release);
}

uint64_t region_bottom(void)
{
	return BOTTOM(atomic_load_explicit(&word, memory_order_relaxed));
}

uint64_t region_slabs(void)
{
	return SLAB_END(atomic_load_explicit(&word, memory_order_relaxed)) << SLAB_SHIFT;
}

uint64_t region_reserved(void)
{
	return atomic_load_explicit(&state, memory_order_acquire) == RESERVED ? region.bytes : 0;
}
