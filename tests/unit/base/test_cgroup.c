/* SPDX-License-Identifier: BSD-3-Clause */
/* Quotas in the files of both versions of cgroups, in trees of our own. The test's thread. */
#include "base/cgroup.h"
#include "own_dir.h"

#define NONE UINT64_MAX

TestSuite(cgroup, .init = own_dir_make, .fini = own_dir_remove);

static uint64_t found(void)
{
	char self[128];
	snprintf(self, sizeof self, "%s/self", top);
	return cgroup_cpu_milli(self, top);
}

Test(cgroup, no_files_no_quota)
{
	cr_assert_eq(found(), NONE, "no /proc/self/cgroup");
	put("self", "0::/a/b\n");
	cr_assert_eq(found(), NONE, "no cpu.max");
	put("cpu.max", "max 100000\n");
	cr_assert_eq(found(), NONE, "no limit");
}

Test(cgroup, version_2)
{
	put("self", "0::/system.slice/job\n");
	put("system.slice/job/cpu.max", "50000 100000\n");
	cr_assert_eq(found(), 500u);
	put("system.slice/job/cpu.max", "250000 100000\n");
	cr_assert_eq(found(), 2500u);
	put("system.slice/job/cpu.max", "99999 100000\n");
	cr_assert_eq(found(), 999u, "less than one CPU is never taken for one");
	put("system.slice/job/cpu.max", "1000 1000000");
	cr_assert_eq(found(), 1u, "without a newline");
	put("system.slice/job/cpu.max", "1000 100000000\n");
	cr_assert_eq(found(), 1u, "a quota is never none");
}

Test(cgroup, the_smallest_quota_above_counts)
{
	put("self", "0::/a/b/c\n");
	put("cpu.max", "400000 100000\n");
	put("a/cpu.max", "150000 100000\n");
	put("a/b/cpu.max", "max 100000\n");
	put("a/b/c/cpu.max", "200000 100000\n");
	cr_assert_eq(found(), 1500u);
	put("cpu.max", "70000 100000\n");
	cr_assert_eq(found(), 700u, "the root's too");
}

Test(cgroup, a_container_sees_its_quota_at_the_root)
{
	put("self", "0::/docker/0123456789abcdef\n");
	put("cpu.max", "75000 50000\n");
	cr_assert_eq(found(), 1500u);
	put("self", "0::/../../outside\n");
	cr_assert_eq(found(), 1500u);
}

Test(cgroup, version_1)
{
	put("self", "9:name=systemd:/\n4:memory:/x\n1:cpu:/docker/x\n0::/\n");
	put("cpu/docker/x/cpu.cfs_quota_us", "50000\n");
	cr_assert_eq(found(), NONE, "half of it is nothing");
	put("cpu/docker/x/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(found(), 500u);
	put("cpu/docker/cpu.cfs_quota_us", "-1\n");
	put("cpu/docker/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(found(), 500u, "-1 is none");
	put("cpu/docker/x/cpu.cfs_quota_us", "-1\n");
	cr_assert_eq(found(), NONE);
	put("cpu/cpu.cfs_quota_us", "300000\n");
	put("cpu/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(found(), 3000u, "the container's own at the root");
}

Test(cgroup, version_1_with_controllers_together)
{
	put("self", "4:cpu,cpuacct:/box\n");
	put("cpu,cpuacct/box/cpu.cfs_quota_us", "25000\n");
	put("cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(found(), 250u, "no link \"cpu\"");
	put("self", "4:cpuacct,cpu:/box\n");
	cr_assert_eq(found(), NONE, "another directory");
	put("cpu/box/cpu.cfs_quota_us", "10000\n");
	put("cpu/box/cpu.cfs_period_us", "100000\n");
	cr_assert_eq(found(), 100u, "the link");
	put("self", "4:cpuacct:/box\n5:cpuset:/box\n6:cpus,xcpu:/box\n");
	cr_assert_eq(found(), NONE, "names that only look like it");
}

Test(cgroup, malformed_quotas_are_none)
{
	static const char *const texts[] = {
		"",
		"\n",
		"max",
		"100000\n",
		"50000 \n",
		" 50000 100000\n",
		"50000  100000\n",
		"50000 100000 1\n",
		"50000 100000x\n",
		"x50000 100000\n",
		"-50000 100000\n",
		"+50000 100000\n",
		"0 100000\n",
		"50000 0\n",
		"50000 -1\n",
		"50000 max\n",
		"0x5000 100000\n",
		"5e4 100000\n",
		"99999999999999999999999 100000\n",
		"50000 99999999999999999999999\n",
		"9223372036854775808 100000\n",
		"50000\n100000\n",
		"50000 100000                                                            \n",
	};
	put("self", "0::/\n");
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		put("cpu.max", texts[i]);
		cr_assert_eq(found(), NONE, "\"%s\"", texts[i]);
	}
	put_bytes("cpu.max", "50000 100000\0\n", 14);
	cr_assert_eq(found(), NONE, "a NUL");
	put("cpu.max", "9223372036854775807 1\n");
	cr_assert_eq(found(), NONE, "more than can be said");
}

Test(cgroup, malformed_lines_are_passed_over)
{
	static const char *const lines[] = {"",       "\n",    ":",      "::",     "0::",   "0:", "0::relative\n",
					    ":::::/", "1:cpu", "1:cpu:", "1::/\n", "x::/\n"};
	put("cpu.max", "50000 100000\n");
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		put("self", lines[i]);
		cr_assert_eq(found(), NONE, "\"%s\"", lines[i]);
	}
	char line[10000];
	memset(line, '/', sizeof line);
	memcpy(line, "0::", 3);
	line[sizeof line - 1] = '\0';
	put("self", line);
	found(); /* longer than a path can be: whatever is read is read within bounds */
}
