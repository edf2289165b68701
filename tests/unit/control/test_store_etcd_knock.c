/* SPDX-License-Identifier: BSD-3-Clause */
/* Queries through etcd whether a client is alive: which it answers. The test's thread. */
#include "etcd_fixture.h"

#include <inttypes.h>

TestSuite(store_etcd_knock, .init = etcd_setup, .fini = etcd_teardown);

static void knock(const char *group, uint64_t holder, bool answered)
{
	static char key[128];
	snprintf(key, sizeof key, "farcall/%s/knock/%016" PRIx64 "/%016x", group, holder, 0x99);
	deleted[0] = 0;
	change(key, 0x99, false);
	take();
	cr_assert_str_eq(deleted, answered ? key : "", "%s", key);
}

Test(store_etcd_knock, answers_knocks_at_itself)
{
	knock("g", 0, true);
	knock("g", LEASE, true);
	knock("g", LEASE + 1, false);
	knock("h", 0, false);
}

Test(store_etcd_knock, answers_no_end_of_a_knock)
{
	change("farcall/g/knock/0000000000000000/0000000000000099", 0, true);
	deleted[0] = 0;
	take();
	cr_assert_str_eq(deleted, "");
}
