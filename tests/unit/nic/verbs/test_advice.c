/* SPDX-License-Identifier: BSD-3-Clause */
/** The lines of `farcall info` about devices, ports and addresses. The test's thread. */
#include "verbs_fixture.h"

Test(verbs_advice, advice)
{
	char text[4096], small[100];
	fake_verbs.devices = 2;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "fake0: up to 1000 queue pairs") && strstr(text, "fake1 port 1: Ethernet, PORT_ACTIVE"));
	cr_assert(strstr(text, "fake0: memory windows of type 2; bulk="));
	cr_assert(strstr(text, "gid 2: 127.0.0.1 (RoCE v2, this host only"));
	cr_assert(strstr(text, "gid 1: 127.0.0.1 (RoCE v1, not used"));
	cr_assert_eq(text[strlen(text) - 1], '\n');
	fake_verbs.limits.max_mw = 0;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "fake0: no memory windows of type 2; messages go in packets"));
	verbs_advice(small, sizeof small);
	cr_assert(strlen(small) == 0 || small[strlen(small) - 1] == '\n');
	fake_verbs.open_error = EACCES;
	verbs_advice(text, sizeof text);
	cr_assert(strstr(text, "/dev/infiniband/uverbs0"), "%s", text);
	fake_verbs.devices = 0;
	verbs_advice(text, sizeof text);
	cr_assert_str_eq(text, "");
	cr_assert_eq(fake_verbs.contexts, 0);
}
