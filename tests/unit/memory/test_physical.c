/* SPDX-License-Identifier: BSD-3-Clause */
/** The memory of the machine and of its containers. The test's thread. */
#include "memory/physical.h"
#include "own_dir.h"

#include <unistd.h>

static uint64_t machine;

static void setup(void)
{
	own_dir_make();
	machine = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
}

TestSuite(physical, .init = setup, .fini = own_dir_remove);

static uint64_t found(void)
{
	char self[128];
	snprintf(self, sizeof self, "%s/self", top);
	return physical_bytes(self, top);
}

Test(physical, nothing_but_the_machine)
{
	cr_assert_eq(found(), machine, "no file");
	put("self", "0::/\n");
	cr_assert_eq(found(), machine, "no limit");
	put("memory.max", "max\n");
	cr_assert_eq(found(), machine, "unlimited");
	put("memory.max", "9999999999999999999\n");
	cr_assert_eq(found(), machine, "more than there is");
}

Test(physical, a_container_sees_its_limit_at_the_root)
{
	put("self", "0::/\n");
	put("memory.max", "104857600\n");
	cr_assert_eq(found(), 104857600u);
	put("self", "0::/../../outside\n");
	cr_assert_eq(found(), 104857600u);
}

Test(physical, the_smallest_limit_above_counts)
{
	put("self", "0::/a/b/c\n");
	put("a/memory.max", "50000000\n");
	put("a/b/memory.max", "max\n");
	put("a/b/c/memory.max", "60000000\n");
	cr_assert_eq(found(), 50000000u);
}

Test(physical, version_1)
{
	put("self", "8:cpu,cpuacct:/\n7:memory:/docker/x\n0::/\n");
	put("memory/docker/x/memory.limit_in_bytes", "70000000\n");
	cr_assert_eq(found(), 70000000u);
}

Test(physical, nonsense_is_passed_over)
{
	put("memory.max", "-\n");
	static const char *const lines[] = {"",       "\n",     ":",       "::", "0::", "0:", "0::relative\n",
					    "0::/\n", ":::::/", "7:memory"};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		put("self", lines[i]);
		cr_assert_eq(found(), machine, "\"%s\"", lines[i]);
	}
}
