/* SPDX-License-Identifier: BSD-3-Clause */
/* The infos of a join: unique names, what the group decides by them, malformed ones. The test's thread. */
#include "base/limits.h"
#include "fake_member.h"

#include <criterion/criterion.h>

TestSuite(control_join_info, .init = members_setup, .fini = members_teardown);

Test(control_join_info, duplicate_name_is_seen_by_all)
{
	names[2] = "w1";
	for (int i = 0; i < 3; i++)
		start(i, 3);
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_NOT_UNIQUE, "RPC worker name \"w1\" is not unique: ranks 1 and 2 share it");
}

/* One member is enough, and so is a group that needs many sessions. */
Test(control_join_info, the_group_decides_together)
{
	lazy[1] = true;
	join(3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(ctl_sessions(members[i].ctl), 0u);
	members_teardown();
	members_setup();
	/* 16 * (16 + 1) is just too much, 16 * 16 is not. */
	shards[1] = 16;
	cr_assert_gt(16 * 17, FAR_SESSIONS_EAGER_MAX);
	join(2);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(ctl_sessions(members[i].ctl), 0u);
	members_teardown();
	members_setup();
	shards[0] = shards[1] = 11;
	join(2);
	cr_assert_eq(ctl_sessions(members[1].ctl), 22u);
}

/* ---- infos that no member would publish ---- */

/* Member 0 of 2 reads this info of rank 1, from a process that has the key. */
static void receives(const uint8_t *value, size_t len)
{
	const struct store_identity who = {.rank = 1, .incarnation = 7, .group = "default", .name = "w1"};
	start(0, 2);
	write_record(&who, "default/info/1", value, len);
	run(false);
}

Test(control_join_info, a_proof_for_another_rank)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	receives(value, sealed_info(value, "w1", 0));
	result(0, FAR_DENIED, "the info of rank 1 does not prove the group's key");
}

Test(control_join_info, a_name_that_no_worker_has)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	receives(value, sealed_info(value, "a name", 1));
	result(0, FAR_PROTOCOL, "the info of rank 1 is malformed");
}

Test(control_join_info, bytes_that_are_no_info)
{
	security = KEY_NONE;
	receives((const uint8_t *)"info", 4);
	result(0, FAR_PROTOCOL, "the info of rank 1 is malformed; run one version of the library in all members");
}

Test(control_join_info, a_name_that_is_taken)
{
	uint8_t value[FAR_STORE_VALUE_MAX];
	receives(value, sealed_info(value, "w0", 1));
	result(0, FAR_NOT_UNIQUE, "RPC worker name \"w0\" is not unique: ranks 0 and 1 share it");
}

/* All that the members' tables show comes from the infos. */
Test(control_join_info, what_members_show)
{
	shards[1] = 3;
	join(2);
	const struct ctl_member *m = row(0, 1);
	char name[FAR_NAME_MAX];
	cr_assert_str_eq(ctl_member_name(m, name), "w1");
	cr_assert_eq(m->shards, 3u);
	cr_assert_eq(m->rank, 1);
	cr_assert_eq(m->incarnation, row(1, 1)->incarnation);
	cr_assert_eq(m->message_bytes_max, 0u);
	struct ctl_route route;
	cr_assert(ctl_member_route(m, &route));
	cr_assert_str_eq(route.nic, "fake");
}
