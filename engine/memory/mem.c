/* SPDX-License-Identifier: BSD-3-Clause */
/* Dispatch to the allocator of large memory, and the built-in one: slabs and page runs. Any thread. */
#include "memory/mem.h"
#include "memory/heads.h"

#include "base/error.h"
#include "base/limits.h"
#include "base/must.h"
#include "base/shared.h"
#include "base/sized.h"
#include "memory/budget.h"
#include "memory/buf.h"
#include "memory/region.h"
#include "memory/runs.h"

#include <stdatomic.h>

/* Up to this size the built-in allocator takes slabs, since a page run would be mostly empty. */
#define SMALL_MAX ((size_t)32 << 10)

/* ---- page runs as the allocator ---- */

static void *pages_alloc(size_t bytes, size_t align)
{
	if (bytes > SMALL_MAX || align > FAR_ALLOC_ALIGN)
		return runs_alloc(bytes, align, NULL);
	struct far_buf *b = buf_alloc(bytes);
	return b ? buf_data(b) : NULL;
}

static size_t pages_size(const void *p)
{
	return region_is_slab(p) ? buf_slab_bytes(p) : runs_size(p);
}

static void pages_free(void *p)
{
	if (region_is_slab(p))
		buf_unref(buf_of(p));
	else
		runs_free(p, runs_size(p));
}

static const struct far_allocator page_runs = {
	.name = "page runs",
	.why = "this program links no other; the pkg-config module farcall-jemalloc brings one",
	.alloc = pages_alloc,
	.free = pages_free,
	.size = pages_size,
};

/* ---- selection of the allocator ---- */

/* Set once, with release after the struct is filled; pairs with the acquire of each use. */
static _Atomic(const struct far_allocator *) chosen;
static _Atomic uint64_t large_used;
static _Atomic uint64_t shared_used; /* far_alloc_shared(), by far_alloc_size() */

static const struct far_allocator *allocator(void)
{
	const struct far_allocator *a = atomic_load_explicit(&chosen, memory_order_acquire);
	if (likely(a != NULL))
		return a;
	if (atomic_compare_exchange_strong_explicit(&chosen, &a, &page_runs, memory_order_acq_rel,
						    memory_order_acquire))
		return &page_runs;
	return a;
}

enum far_status far_memory_allocator(const struct far_allocator *a, struct far_err *err)
{
	const struct far_allocator *before = NULL;
	if (!a || !a->name || !a->why || !a->alloc || !a->free || !a->size)
		return err_set(err, FAR_INVALID, "an allocator needs a name, the reason for it, and its functions");
	if (!atomic_compare_exchange_strong_explicit(&chosen, &before, a, memory_order_acq_rel, memory_order_acquire))
		return err_set(err, FAR_ALREADY_INITIALIZED,
			       "memory comes from %s already; give the allocator before the first far_alloc and "
			       "far_init_rpc",
			       before->name);
	return FAR_OK;
}

void *mem_alloc(size_t bytes, size_t align)
{
	const struct far_allocator *a = allocator();
	/* A size beyond the region cannot succeed; sizes near SIZE_MAX must not reach an allocator's arithmetic. */
	if (region_reserve(NULL) != FAR_OK || bytes > region.bytes || align > region.bytes)
		return NULL;
	void *p = a->alloc(bytes ? bytes : 1, align);
	if (p)
		atomic_fetch_add_explicit(&large_used, a->size(p), memory_order_relaxed);
	return p;
}

/* Frees memory of far_alloc_shared(); false: it is none. */
static bool shared_give(void *p)
{
	size_t bytes = shared_size(p);
	if (!bytes || !shared_free(p))
		return false;
	atomic_fetch_sub_explicit(&shared_used, bytes, memory_order_relaxed);
	budget_give(bytes);
	return true;
}

void mem_free(void *p)
{
	const struct far_allocator *a = allocator();
	size_t bytes = region_holds(p) ? a->size(p) : 0;
	if (unlikely(!bytes) && shared_give(p))
		return;
	if (unlikely(!bytes))
		must_fail("what far_free() was given is memory of far_alloc(), not freed yet", __FILE__, __LINE__);
	atomic_fetch_sub_explicit(&large_used, bytes, memory_order_relaxed);
	a->free(p);
}

void *far_alloc_aligned(size_t align, size_t bytes, struct far_err *err)
{
	if (align == 0 || align & (align - 1) || align > FAR_MEMORY_ALIGN_MAX) {
		err_set(err, FAR_INVALID, "far_alloc_aligned: alignment %zu; give a power of two up to 1 GiB", align);
		return NULL;
	}
	if (region_reserve(err) != FAR_OK)
		return NULL;
	void *p = mem_alloc(bytes, align < FAR_ALLOC_ALIGN ? FAR_ALLOC_ALIGN : align);
	if (!p) {
		char why[BUDGET_TEXT_MAX];
		budget_text(why, sizeof why, bytes);
		err_set(err, FAR_RESOURCE, "far_alloc: no room for %zu bytes: %s", bytes, why);
	}
	return p;
}

void *far_alloc(size_t bytes, struct far_err *err)
{
	return far_alloc_aligned(FAR_ALLOC_ALIGN, bytes, err);
}

/* In memory of its own, which peers can map. NULL: the kernel or the budget refuses it. */
static void *shared_take(size_t bytes)
{
	int error;
	void *p = shared_alloc(bytes, &error);
	size_t got = p ? shared_size(p) : 0;
	if (p && !budget_take_pages(p, got, got)) {
		shared_free(p);
		return NULL;
	}
	atomic_fetch_add_explicit(&shared_used, got, memory_order_relaxed);
	return p;
}

void *far_alloc_shared(size_t bytes, struct far_err *err)
{
	if (region_reserve(err) != FAR_OK)
		return NULL;
	void *p = shared_take(bytes ? bytes : 1);
	if (p)
		heads_make();
	return p ? p : far_alloc(bytes, err);
}

void far_free(void *p)
{
	if (p)
		mem_free(p);
}

size_t far_alloc_size(const void *p)
{
	if (!p || region_holds(p))
		return p ? allocator()->size(p) : 0;
	return shared_size(p);
}

void *far_pages_alloc(size_t bytes, size_t align, int *zeroed)
{
	bool clean = false;
	if (bytes == 0 || bytes % far_pages_size() || align == 0 || align & (align - 1))
		return NULL;
	void *p = runs_alloc(bytes, align, &clean);
	if (p && zeroed)
		*zeroed = clean;
	return p;
}

void far_pages_free(void *p, size_t bytes)
{
	runs_free(p, bytes);
}

size_t far_pages_size(void)
{
	return region_reserve(NULL) == FAR_OK ? (size_t)1 << region.page_shift : 4096;
}

void far_memory_stats_sized(struct far_memory *out, size_t bytes)
{
	const struct far_allocator *a = atomic_load_explicit(&chosen, memory_order_acquire);
	struct runs_stats runs = {0};
	uint64_t reserved = region_reserved(); /* before that the region's fields are not constant yet */
	if (reserved)
		runs_stats(&runs);
	if (!a)
		a = &page_runs;
	struct far_memory now = {
		.reserved = reserved,
		.slab_committed = reserved ? region_slabs() : 0,
		.slab_used = buf_slabs_used(),
		.large_committed = runs.used,
		.large_used = atomic_load_explicit(&large_used, memory_order_relaxed),
		.retained = runs.retained,
		.allocator = a->name,
		.allocator_why = a->why,
	};
	now.shared = atomic_load_explicit(&shared_used, memory_order_relaxed);
	now.committed = now.slab_committed + now.large_committed + now.retained;
	sized_out(out, bytes, &now, sizeof now);
}
