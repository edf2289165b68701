/* SPDX-License-Identifier: BSD-3-Clause */
/** Allocates memory for tables from the C library and from the system. Any thread. */
#include "pst_memory.h"

#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif
#define PAGE_BYTES 4096u

/* Maps more than wanted and returns the ends, which leaves an aligned range. */
static char *map_aligned(size_t bytes)
{
	char *p = mmap(NULL, bytes + PST_HUGE_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	size_t before = -(uintptr_t)p & (PST_HUGE_BYTES - 1);
	if (before)
		munmap(p, before);
	munmap(p + before + bytes, PST_HUGE_BYTES - before);
	return p + before;
}

static void *get(void *ctx, size_t bytes, enum pst_pages pages)
{
	(void)ctx;
	if (pages == PST_PAGES_HEAP)
		return aligned_alloc(64, (bytes + 63) & ~(size_t)63);
	char *p = map_aligned(bytes);
	if (!p)
		return NULL;
	if (pages == PST_PAGES_SMALL) {
		madvise(p, bytes, MADV_NOHUGEPAGE);
		return p;
	}
	/* Without huge pages the mapping works as well, only slower. */
	madvise(p, bytes, MADV_HUGEPAGE);
	if (madvise(p, bytes, MADV_POPULATE_WRITE))
		for (size_t i = 0; i < bytes; i += PAGE_BYTES)
			*(volatile char *)(p + i) = 0;
	return p;
}

static void put(void *ctx, void *memory, size_t bytes, enum pst_pages pages)
{
	(void)ctx;
	if (pages == PST_PAGES_HEAP)
		free(memory);
	else
		munmap(memory, bytes);
}

const struct pst_memory pst_memory_default = {.get = get, .put = put};
