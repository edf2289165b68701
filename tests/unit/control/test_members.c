/* SPDX-License-Identifier: BSD-3-Clause */
/* The list of members of a group so large that rank 0 collects for all. The test's thread. */
#include "base/limits.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(control_members, .init = members_setup, .fini = members_teardown);

enum { LARGE = FAR_GATHER_DIRECT_MAX + 6 };

Test(control_members, a_large_group_joins_and_leaves)
{
	static char long_name[FAR_NAME_MAX];
	memset(long_name, 'n', sizeof long_name - 1);
	names[40] = long_name;
	shards[3] = 5; /* 5 * (70 + 4) is too much for all at once */
	uint64_t from = world->now;
	join(LARGE);
	cr_assert_lt(world->now, from + INIT_NS, "by the list, not by the infos that are read after the deadline");
	for (int i = 0; i < LARGE; i++) {
		cr_assert_eq(ctl_sessions(members[i].ctl), 0u);
		for (int r = 0; r < LARGE; r++) {
			const struct ctl_member *m = &ctl_members(members[i].ctl, NULL)[r];
			cr_assert_str_eq(m->name, names[r]);
			cr_assert_eq(m->shards, r == 3 ? 5u : 1u);
			cr_assert_eq(m->incarnation, ctl_members(members[r].ctl, NULL)[r].incarnation);
		}
	}
	want_session(&members[69], 0, 3, 4);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[3], MAIL_PEER_UP, 4, to(69, 0)), 1u);
	member_end(&members[50]);
	leave_all(LARGE, 60 * FAR_SEC);
	run(true);
	for (int i = 0; i < LARGE; i++)
		if (i != 50)
			result(i, FAR_PEER_LOST, "lost before the shutdown: rank 50 (worker \"w50\")");
}

Test(control_members, a_large_group_names_who_is_missing)
{
	for (int i = 0; i < LARGE; i++)
		if (i != 7 && i != 66)
			start(i, LARGE);
	run(false);
	for (int i = 0; i < LARGE; i += 23)
		result(i, FAR_TIMEOUT, "missing rank 7, rank 66");
}

Test(control_members, a_large_group_leaves_without_one)
{
	join(LARGE);
	members[9].calls = 1;
	leave_all(LARGE, FAR_SEC);
	run(true);
	result(0, FAR_TIMEOUT, "rank 9");
	result(9, FAR_TIMEOUT, "1 calls of this worker are outstanding");
}

/* ---- malformed lists ---- */

/* Another client writes this chunk in place of rank 0. Expect the join of rank 1 to fail. */
static void refuses(const char *what, const uint8_t *chunk, size_t len)
{
	const struct store_identity who = {.rank = STORE_RANK_NONE};
	start(0, LARGE);
	start(1, LARGE);
	write_record(&who, "default/list/0", chunk, len);
	for (int i = 0; i < 500 && ctl_state(members[1].ctl) == CTL_JOINING; i++)
		run_ticks(1);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_FAILED, "%s", what);
	result(1, FAR_PROTOCOL, "rank 0's list of members is malformed");
	members_teardown();
	members_setup();
}

Test(control_members, malformed_lists)
{
	static const struct {
		const char *what;
		uint8_t chunk[12];
		size_t len;
	} cases[] = {{"nothing", {0}, 0},
		     {"half a head", {2, 0, 1, 0, 0, 0, 1}, 7},
		     {"no infos", {2, 0, 1, 0, 0, 0, 0, 0}, 8},
		     {"a rank beyond the group", {2, 0, 1, 0, LARGE, 0, 1, 0, 1, 0, 0}, 11},
		     {"more infos than the group", {2, 0, 1, 0, 1, 0, LARGE, 0, 1, 0, 0}, 11},
		     {"an info without bytes", {2, 0, 1, 0, 0, 0, 1, 0, 0, 0}, 10},
		     {"an info that is cut", {2, 0, 1, 0, 0, 0, 1, 0, 3, 0, 0, 0}, 12},
		     {"no length", {2, 0, 1, 0, 0, 0, 1, 0, 0}, 9}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		refuses(cases[i].what, cases[i].chunk, cases[i].len);
	/* Chunks that are sound but for one thing. */
	uint8_t chunk[256] = {2, 0, 1, 0, 5, 0, 1, 0};
	size_t len = sealed_info(chunk + 10, "w5", 5);
	chunk[8] = (uint8_t)len;
	refuses("a byte more", chunk, 10 + len + 1);
	chunk[0] = 1;
	refuses("another version", chunk, 10 + len);
}
