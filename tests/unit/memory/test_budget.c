/* SPDX-License-Identifier: BSD-3-Clause */
/** The memory budget: its bound, and containers, whose files are a tree of the test's own. The test's thread. */
#include "memory/budget.h"
#include "own_dir.h"

#include <sys/mman.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)

static char self[80];

static void put_mib(const char *name, unsigned mib)
{
	char text[32];
	snprintf(text, sizeof text, "%llu\n", (unsigned long long)(mib * MIB));
	put(name, text);
}

static void setup(void)
{
	own_dir_make();
	snprintf(self, sizeof self, "%s/self", top);
	put("self", "0::/a/b\n");
	put("a/b/memory.max", "max\n");
}

TestSuite(budget, .init = setup, .fini = own_dir_remove);

static void expect_text(uint64_t wanted, const char *a, const char *b)
{
	char text[BUDGET_TEXT_MAX];
	budget_text(text, sizeof text, wanted);
	cr_assert(strstr(text, a) && strstr(text, b), "%s", text);
	cr_assert_lt(strlen(text), sizeof text - 1);
}

Test(budget, the_bound_is_never_exceeded)
{
	budget_begin(100 * MIB, self, top);
	cr_assert(budget_take(60 * MIB));
	cr_assert_not(budget_take(41 * MIB));
	cr_assert(budget_is_short());
	expect_text(41 * MIB, "41.0 MiB requested, 60 of at most 100 MiB are in use", "FAR_MEMORY_MAX");
	cr_assert(budget_take(40 * MIB));
	cr_assert_not(budget_take(1));
	cr_assert_not(budget_take(UINT64_MAX));
	budget_force(MIB);
	cr_assert_eq(budget_used(), 101 * MIB);
	budget_give(30 * MIB);
	cr_assert(budget_take(29 * MIB));
	budget_give(60 * MIB);
	cr_assert_not(budget_is_short());
}

/* A sixteenth is for what is small. */
Test(budget, large_ones_leave_a_share)
{
	uint8_t *at = mmap(NULL, 16 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	budget_begin(16 * MIB, self, top);
	cr_assert_not(budget_take_pages(at, 15 * MIB + 4096, 15 * MIB + 4096));
	cr_assert(budget_take_pages(at, 15 * MIB, 15 * MIB));
	cr_assert_not(budget_take_pages(at, 4096, 4096));
	cr_assert(budget_take_pages(at, 15 * MIB, 0), "nothing new is needed");
	cr_assert(budget_take(MIB));
}

Test(budget, the_container_has_less)
{
	put_mib("a/b/memory.max", 96);
	put_mib("a/b/memory.current", 90);
	budget_begin(48 * MIB, self, top);
	cr_assert_not(budget_take(4 * MIB));
	expect_text(4 * MIB, "4.0 MiB requested, 90 of the container's 96 MiB are in use",
		    "the container's memory limit");
	cr_assert_eq(budget_used(), 0u, "what was refused is not counted");
	cr_assert(budget_take(2 * MIB));
	put_mib("a/b/memory.current", 30);
	cr_assert(budget_take(40 * MIB));
	cr_assert_not(budget_take(10 * MIB));
	expect_text(10 * MIB, "10.0 MiB requested, 42 of at most 48 MiB are in use", "FAR_MEMORY_MAX");
}

Test(budget, a_limit_that_changes_is_followed)
{
	put_mib("a/b/memory.max", 960);
	put_mib("a/b/memory.current", 10);
	budget_begin(480 * MIB, self, top);
	cr_assert(budget_take(200 * MIB));
	put_mib("a/b/memory.max", 96);
	cr_assert_not(budget_take(200 * MIB), "more than the credit of the last reading");
	put_mib("a/b/memory.max", 960);
	cr_assert(budget_take(200 * MIB));
}

Test(budget, the_least_room_of_nested_groups_counts)
{
	put_mib("a/b/memory.max", 100);
	put_mib("a/b/memory.current", 10);
	put_mib("a/memory.max", 200);
	put_mib("a/memory.current", 170);
	budget_begin(90 * MIB, self, top);
	cr_assert_not(budget_take(50 * MIB));
	expect_text(50 * MIB, "170 of the container's 200 MiB", "");
	put_mib("a/memory.current", 20);
	cr_assert(budget_take(50 * MIB));
}

Test(budget, cached_files_are_room)
{
	put_mib("a/b/memory.max", 100);
	put_mib("a/b/memory.current", 99);
	budget_begin(50 * MIB, self, top);
	cr_assert_not(budget_take(40 * MIB));
	put("a/b/memory.stat", "anon 1\nfile 83886080\ninactive_file 62914560\nactive_file 20971520\n");
	cr_assert(budget_take(40 * MIB));
}

Test(budget, version_1)
{
	put("self", "8:cpu,cpuacct:/\n7:memory:/x\n0::/\n");
	put_mib("memory/x/memory.limit_in_bytes", 96);
	put_mib("memory/x/memory.usage_in_bytes", 90);
	put("memory/memory.limit_in_bytes", "9223372036854771712\n");
	budget_begin(48 * MIB, self, top);
	cr_assert_not(budget_take(30 * MIB));
	put("memory/x/memory.stat", "inactive_file 0\ntotal_inactive_file 83886080\ntotal_active_file 0\n");
	cr_assert(budget_take(30 * MIB));
}

static size_t resident(void *at, size_t bytes)
{
	static unsigned char map[4096];
	size_t n = 0;
	cr_assert_eq(mincore(at, bytes, map), 0);
	for (size_t i = 0; i < bytes / 4096; i++)
		n += map[i] & 1;
	return n;
}

/* What two processes are promised they both have: pages are backed at once where there is little room. */
Test(budget, pages_are_backed_in_a_small_container)
{
	size_t bytes = 8 * MIB;
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	put_mib("a/b/memory.max", 96);
	put_mib("a/b/memory.current", 10);
	budget_begin(48 * MIB, self, top);
	at[4096] = 7;
	cr_assert(budget_take_pages(at, bytes, bytes - 4096));
	cr_assert_eq(resident(at, bytes), bytes / 4096);
	cr_assert_eq(at[4096], 7);
	put_mib("a/b/memory.current", 85);
	cr_assert_not(budget_take_pages(at, bytes, bytes));
	cr_assert_eq(budget_used(), bytes - 4096);
}

Test(budget, elsewhere_pages_come_as_they_are_touched)
{
	size_t bytes = 8 * MIB;
	uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	budget_begin(48 * MIB, self, top);
	cr_assert(budget_take_pages(at, bytes, bytes));
	cr_assert_eq(resident(at, bytes), 0u);
	cr_assert_eq(budget_retained_max(), 64 * MIB);
}
