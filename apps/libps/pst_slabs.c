/* SPDX-License-Identifier: BSD-3-Clause */
/** Grows dense arrays by slabs. The owner of the array; pst_slabs_ahead runs on another thread. */
#include "pst_slabs.h"

#include <errno.h>
#include <string.h>

#define SLABS_MIN 16u

/* The number of elements is a power of two, so what remains of the last 2 MiB is waste: at most 1/16 of a slab. */
void pst_slabs_init(struct pst_slabs *s, uint32_t stride, const struct pst_memory *memory)
{
	*s = (struct pst_slabs){.stride = stride, .memory = memory, .want_at = UINT64_MAX};
	while (((size_t)stride << s->shift) < PST_HUGE_BYTES)
		s->shift++;
	for (;;) {
		size_t used = (size_t)stride << s->shift;
		s->slab_bytes = (used + PST_HUGE_BYTES - 1) & ~(PST_HUGE_BYTES - 1);
		if (s->slab_bytes - used <= s->slab_bytes / 16 || s->shift == 31)
			break;
		s->shift++;
	}
}

void pst_slabs_fini(struct pst_slabs *s)
{
	char *ready = atomic_exchange_explicit(&s->ready, NULL, memory_order_acquire);
	if (ready)
		s->memory->put(s->memory->ctx, ready, s->slab_bytes, PST_PAGES_HUGE);
	for (uint32_t i = 0; i < s->slabs; i++)
		s->memory->put(s->memory->ctx, s->at[i], s->slab_bytes, s->pages[i]);
	if (s->at)
		s->memory->put(s->memory->ctx, s->at, s->slabs_max * sizeof *s->at, PST_PAGES_HEAP);
	if (s->pages)
		s->memory->put(s->memory->ctx, s->pages, s->slabs_max, PST_PAGES_HEAP);
	s->at = NULL;
	s->pages = NULL;
	s->slabs = s->slabs_max = 0;
}

static int widen(struct pst_slabs *s)
{
	uint32_t max = s->slabs_max ? 2 * s->slabs_max : SLABS_MIN;
	char **at = s->memory->get(s->memory->ctx, max * sizeof *at, PST_PAGES_HEAP);
	if (!at)
		return -ENOMEM;
	uint8_t *pages = s->memory->get(s->memory->ctx, max, PST_PAGES_HEAP);
	if (!pages) {
		s->memory->put(s->memory->ctx, at, max * sizeof *at, PST_PAGES_HEAP);
		return -ENOMEM;
	}
	if (s->slabs_max) {
		memcpy(at, s->at, s->slabs * sizeof *at);
		memcpy(pages, s->pages, s->slabs);
		s->memory->put(s->memory->ctx, s->at, s->slabs_max * sizeof *at, PST_PAGES_HEAP);
		s->memory->put(s->memory->ctx, s->pages, s->slabs_max, PST_PAGES_HEAP);
	}
	s->at = at;
	s->pages = pages;
	s->slabs_max = max;
	return 0;
}

int pst_slabs_reserve(struct pst_slabs *s, uint64_t n)
{
	while (n > (uint64_t)s->slabs << s->shift) {
		if (s->slabs == s->slabs_max && widen(s))
			return -ENOMEM;
		/* Pairs with the release in pst_slabs_ahead. */
		char *slab = atomic_exchange_explicit(&s->ready, NULL, memory_order_acquire);
		enum pst_pages pages = PST_PAGES_HUGE;
		if (!slab) {
			pages = s->eager ? PST_PAGES_HUGE : PST_PAGES_SMALL;
			slab = s->memory->get(s->memory->ctx, s->slab_bytes, pages);
			if (!slab)
				return -ENOMEM;
		}
		s->at[s->slabs] = slab;
		s->pages[s->slabs++] = (uint8_t)pages;
		/* A small array may never need a second slab; one that grows wants the next before the last fills. */
		uint64_t each = UINT64_C(1) << s->shift;
		s->want_at = ((uint64_t)s->slabs << s->shift) - (s->slabs > 1 ? each - each / 16 : each / 2);
	}
	return 0;
}

void pst_slabs_want(struct pst_slabs *s)
{
	s->want_at = UINT64_MAX;
	if (!atomic_load_explicit(&s->ready, memory_order_relaxed))
		atomic_store_explicit(&s->wanted, true, memory_order_relaxed);
}

size_t pst_slabs_bytes(const struct pst_slabs *s, uint64_t n)
{
	size_t bytes = s->slabs_max * (sizeof *s->at + sizeof *s->pages);
	uint64_t per_slab = UINT64_C(1) << s->shift;
	for (uint32_t i = 0; i < s->slabs; i++) {
		uint64_t first = (uint64_t)i << s->shift;
		uint64_t used = n <= first ? 0 : n - first < per_slab ? n - first : per_slab;
		size_t touched = ((size_t)used * s->stride + 4095) & ~(size_t)4095;
		bytes += s->pages[i] == PST_PAGES_HUGE || touched > s->slab_bytes ? s->slab_bytes : touched;
	}
	if (atomic_load_explicit(&s->ready, memory_order_relaxed))
		bytes += s->slab_bytes;
	return bytes;
}

bool pst_slabs_ahead(struct pst_slabs *s)
{
	if (!atomic_load_explicit(&s->wanted, memory_order_relaxed) ||
	    atomic_load_explicit(&s->ready, memory_order_relaxed))
		return false;
	char *slab = s->memory->get(s->memory->ctx, s->slab_bytes, PST_PAGES_HUGE);
	if (!slab)
		return false;
	atomic_store_explicit(&s->wanted, false, memory_order_relaxed);
	/* Pairs with the acquire in pst_slabs_reserve: what the system zeroed is visible. */
	atomic_store_explicit(&s->ready, slab, memory_order_release);
	return true;
}
