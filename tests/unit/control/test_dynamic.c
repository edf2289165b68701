/* SPDX-License-Identifier: BSD-3-Clause */
/* Dynamic groups: members that come and go. The test's thread. */
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static void setup(void)
{
	members_setup();
	for (int i = 0; i < 5; i++)
		sizes[i] = FAR_WORLD_DYNAMIC;
}

TestSuite(control_dynamic, .init = setup, .fini = members_teardown);

static void joins(int i)
{
	start(i, 0);
	for (int t = 0; t < 5000 && ctl_state(members[i].ctl) == CTL_JOINING; t++)
		run_ticks(1);
	run_ticks(5);
}

/* One that joins a dynamic group loses its session with a member before it has met the next one, which stands still.
 * Expect the member to stay one for it. */
Test(control_dynamic, silence_during_the_join_of_a_dynamic_group)
{
	silent = 1;
	joins(0);
	joins(1);
	members[1].frozen = true;
	start(2, 0);
	for (int i = 0; i < 100 && !mails_of(&members[2], MAIL_PEER_UP); i++)
		run_ticks(1);
	cr_assert_eq(ctl_state(members[2].ctl), CTL_JOINING);
	fake_port_cut(members[2].port, mail_last(&members[2], MAIL_PEER_UP)->peer);
	run_ticks(5);
	members[1].frozen = false;
	run(false);
	cr_assert_eq(ctl_state(members[2].ctl), CTL_READY);
	cr_assert(alive(2, 0) && alive(2, 1) && alive(0, 2) && alive(1, 2));
}

/* In any order, with ranks left out. Expect each member to know those that are there, and no others. */
Test(control_dynamic, members_come)
{
	static const int order[] = {0, 3, 1};
	for (int n = 0; n < 3; n++) {
		joins(order[n]);
		for (int a = 0; a <= n; a++) {
			ready(order[a]);
			for (int b = 0; b <= n; b++) {
				cr_assert(alive(order[a], order[b]), "%d of %d", order[b], order[a]);
				cr_assert_eq(row(order[a], order[b])->incarnation,
					     row(order[b], order[b])->incarnation);
			}
		}
	}
	cr_assert_eq(row(0, 2)->incarnation, 0u);
	cr_assert_not(alive(0, 2));
	/* Each has met the one that came last. */
	for (int i = 0; i < 4; i += 3)
		cr_assert_eq(mails_about(&members[i], MAIL_PEER_UP, 0, to(1, 0)), 1u);
}

Test(control_dynamic, members_go)
{
	for (int i = 0; i < 3; i++)
		joins(i);
	ctl_leave(members[1].ctl, FAR_SEC);
	run_ticks(50);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEFT, "it waits for nobody");
	result(1, FAR_OK, "");
	member_end(&members[1]);
	run_ticks(10);
	for (int i = 0; i < 3; i += 2) {
		cr_assert_not(alive(i, 1));
		cr_assert_not(row(i, 1)->lost_by_lease);
		cr_assert_eq(mails_about(&members[i], MAIL_PEER_DOWN, 0, to(1, 0)), 1u);
	}
	/* Another worker may take the rank, and the name. */
	names[1] = "another";
	joins(1);
	ready(1);
	char name[FAR_NAME_MAX];
	cr_assert_str_eq(ctl_member_name(row(2, 1), name), "another");
	cr_assert(alive(2, 1));
}

/* Without sessions the watch of the infos alone reports it. */
Test(control_dynamic, members_go_without_sessions)
{
	for (int i = 0; i < 3; i++) {
		lazy[i] = true;
		joins(i);
	}
	member_end(&members[1]);
	run_ticks(10);
	cr_assert(!alive(0, 1) && !alive(2, 1) && alive(0, 2) && alive(2, 0));
	cr_assert_eq(mails_of(&members[2], MAIL_PEER_UP), 0u);
}

Test(control_dynamic, names_are_unique)
{
	joins(0);
	joins(1);
	names[2] = "w1";
	joins(2);
	result(2, FAR_NOT_UNIQUE, "RPC worker name \"w1\" is not unique: rank 1 of group \"default\" has it");
	member_end(&members[2]);
	member_end(&members[1]);
	run_ticks(10);
	joins(2);
	ready(2);
}

Test(control_dynamic, ranks_are_unique)
{
	joins(0);
	joins(1);
	ranks[2] = 1;
	joins(2);
	result(2, FAR_NOT_UNIQUE, "rank 1 of group \"default\" is taken by worker \"w1\"");
	cr_assert_eq(members[2].err.code, EEXIST, "another rank may do");
}

/* A session with a rank that nobody has. Expect the shard to be answered. */
Test(control_dynamic, a_session_with_nobody)
{
	joins(0);
	want_session(&members[0], 0, 3, 0);
	run_ticks(5);
	const struct mail *m = mail_last(&members[0], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->worker, 3u);
	cr_assert_eq(m->status, FAR_UNREACHABLE);
	cr_assert(strstr(m->text, "no member of the group has this rank"), "%s", m->text);
	joins(3);
	want_session(&members[0], 0, 3, 0);
	run_ticks(5);
	cr_assert_geq(mails_about(&members[0], MAIL_PEER_UP, 0, to(3, 0)), 1u);
}

/* Members of both kinds cannot be one group. */
Test(control_dynamic, groups_are_of_one_kind)
{
	joins(0);
	sizes[1] = 2;
	start(1, 2);
	run(false);
	result(1, FAR_INVALID, "mixes statically and dynamically initialized members: worker \"w1\" is static");
	ready(0);
}

/* A member that does not answer delays nobody for longer than its introduction. */
Test(control_dynamic, one_that_does_not_answer)
{
	joins(0);
	joins(1);
	members[1].frozen = true;
	uint64_t from = world->now;
	joins(2);
	ready(2);
	cr_assert_geq(world->now, from + FAR_SEC);
	cr_assert_leq(world->now, from + FAR_SEC + 100 * FAR_MS);
	cr_assert(alive(2, 1) && alive(0, 2));
}
