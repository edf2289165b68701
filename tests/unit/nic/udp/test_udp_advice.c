/* SPDX-License-Identifier: BSD-3-Clause */
/** What is reported of this machine's UDP sockets, with its remedies. The test's thread. */
#include "udp_script.h"

#include <sys/resource.h>

/* Neither buffers nor offloads can be had: each has its line and its remedy, and no byte too many is written. */
Test(udp_advice, advice)
{
	char all[1024];
	size_t len = nic_udp_advice(all, sizeof all);
	cr_assert(len > 0 && len == strlen(all) && all[len - 1] == '\n');
	cr_assert(strstr(all, "segmentation offload: ") && strstr(all, "IPv6: "));
	no_options = no_v6 = true;
	len = nic_udp_advice(all, sizeof all);
	cr_assert(strstr(all, "net.core.rmem_max=4194304") && strstr(all, "net.core.wmem_max=4194304"), "%s", all);
	cr_assert(strstr(all, "segmentation offload: no") && strstr(all, "receive offload: no") &&
		  strstr(all, "IPv6: no"));
	for (size_t cap = 0; cap < len + 2; cap++) {
		char *out = malloc(cap + 1);
		cr_assert_not_null(out);
		out[cap] = 'x';
		cr_assert(nic_udp_advice(out, cap) <= (cap ? cap - 1 : 0) && out[cap] == 'x');
		free(out);
	}
}

/* The limit of descriptors, the number that is needed, and whose right it takes. */
Test(udp_advice, descriptors)
{
	char all[1024];
	struct rlimit limit = {.rlim_cur = 4096, .rlim_max = 4096};
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		cr_skip_test("4096 descriptors: %s; needs a hard limit of as many (ulimit -Hn)", strerror(errno));
	nic_udp_advice(all, sizeof all);
	cr_assert(strstr(all, "descriptors: enough\n"), "%s", all);
	limit.rlim_cur = 4095;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	nic_udp_advice(all, sizeof all);
	cr_assert(strstr(all, "descriptors: 4095; large groups over shm need more: `ulimit -n 4096`\n"), "%s", all);
	limit.rlim_cur = limit.rlim_max = 1000;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	nic_udp_advice(all, sizeof all);
	cr_assert(strstr(all, "`ulimit -n 4096` (the hard limit is lower: root must raise it)\n"), "%s", all);
}
