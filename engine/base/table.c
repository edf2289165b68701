/* SPDX-License-Identifier: BSD-3-Clause */
/** Address space for large tables: small pages in front, huge ones behind. Any thread. */
#include "base/table.h"

#include <stdint.h>
#include <sys/mman.h>

#define GRAIN ((size_t)64 << 10) /* a multiple of every size of a small page */

static size_t whole(size_t bytes)
{
	return (bytes + GRAIN - 1) / GRAIN * GRAIN;
}

static char *reserve(size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return at == MAP_FAILED ? NULL : at;
}

void *table_map(size_t bytes)
{
	bytes = whole(bytes);
	if (bytes < TABLE_SMALL_BYTES + TABLE_HUGE_BYTES)
		return reserve(bytes);
	char *from = reserve(bytes + TABLE_HUGE_BYTES);
	if (!from)
		return NULL;
	/* TABLE_SMALL_BYTES before the first boundary of huge pages that leaves room for them. */
	uintptr_t boundary = (uintptr_t)from + TABLE_SMALL_BYTES + TABLE_HUGE_BYTES - 1;
	char *huge = from + (boundary / TABLE_HUGE_BYTES * TABLE_HUGE_BYTES - (uintptr_t)from);
	char *at = huge - TABLE_SMALL_BYTES;
	size_t before = (size_t)(at - from);
	if (before)
		munmap(from, before);
	if (before < TABLE_HUGE_BYTES)
		munmap(at + bytes, TABLE_HUGE_BYTES - before);
	madvise(huge, bytes - TABLE_SMALL_BYTES, MADV_HUGEPAGE); /* refused: small pages, which are slower alone */
	return at;
}

void table_unmap(void *table, size_t bytes)
{
	if (table)
		munmap(table, whole(bytes));
}
