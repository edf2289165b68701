/* SPDX-License-Identifier: BSD-3-Clause */
/** Which pages of a table are huge, by what the kernel reports of its mappings. The test's thread. */
#include "base/table.h"

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* What the kernel has of the address: is it mapped, may its pages be huge. */
struct seen {
	bool mapped, huge;
};

static struct seen look(const void *at)
{
	struct seen s = {false, false};
	char line[512];
	unsigned long from, to;
	bool here = false;
	FILE *f = fopen("/proc/self/smaps", "r");
	cr_assert(f);
	while (fgets(line, sizeof line, f)) {
		if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
			here = (uintptr_t)at >= from && (uintptr_t)at < to;
		s.mapped |= here;
		if (here && strncmp(line, "VmFlags:", 8) == 0)
			s.huge = strstr(line, " hg") != NULL;
	}
	fclose(f);
	return s;
}

static bool kernel_has_huge_pages(void)
{
	return access("/sys/kernel/mm/transparent_hugepage/enabled", F_OK) == 0;
}

Test(table, begins_with_small_pages_and_goes_on_in_huge_ones)
{
	size_t bytes = TABLE_SMALL_BYTES + 3 * TABLE_HUGE_BYTES + 1;
	uint8_t *table = table_map(bytes);
	cr_assert(table);
	cr_assert_eq(((uintptr_t)table + TABLE_SMALL_BYTES) % TABLE_HUGE_BYTES, 0u);
	cr_assert_not(look(table + TABLE_SMALL_BYTES - 1).huge);
	if (kernel_has_huge_pages()) {
		cr_assert(look(table + TABLE_SMALL_BYTES).huge);
		cr_assert(look(table + bytes - 1).huge);
	}
	for (size_t at = 0; at < bytes; at += 4096) {
		cr_assert_eq(table[at], 0);
		table[at] = 1;
	}
	table[bytes - 1] = 1;
	table_unmap(table, bytes);
	cr_assert_not(look(table).mapped);
	cr_assert_not(look(table + bytes - 1).mapped);
}

/* Address space of this process. */
static size_t reserved(void)
{
	unsigned long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	cr_assert(f);
	cr_assert_eq(fscanf(f, "%lu", &pages), 1);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

Test(table, reserves_what_it_needs_and_gives_all_of_it_back)
{
	enum { MANY = 16 };
	size_t bytes = TABLE_SMALL_BYTES + TABLE_HUGE_BYTES, before = reserved();
	void *table[MANY];
	for (int i = 0; i < MANY; i++)
		cr_assert((table[i] = table_map(bytes)));
	cr_assert_lt(reserved() - before, (MANY + 1) * bytes);
	for (int i = 0; i < MANY; i++)
		table_unmap(table[i], bytes);
	cr_assert_lt(reserved(), before + bytes);
}

Test(table, a_small_one_has_small_pages)
{
	size_t bytes = TABLE_SMALL_BYTES + TABLE_HUGE_BYTES - ((size_t)64 << 10);
	uint8_t *table = table_map(bytes);
	cr_assert(table);
	cr_assert_not(look(table).huge);
	cr_assert_not(look(table + bytes - 1).huge);
	table[bytes - 1] = 1;
	table_unmap(table, bytes);
	table_unmap(NULL, bytes);
}

Test(table, no_address_space_is_no_table)
{
	cr_assert_null(table_map((size_t)1 << 60));
	cr_assert_null(table_map((size_t)1 << 62));
}
