/* SPDX-License-Identifier: BSD-3-Clause */
/* A new incarnation joins the running group: what it reads, and which worker may come back. The test's thread. */
#include "fake_member.h"

#include <criterion/criterion.h>

TestSuite(control_rejoin, .init = members_setup, .fini = members_teardown);

/* Somebody else is dead meanwhile. Expect the one who comes back to know, and to see it come back too. */
Test(control_rejoin, comes_back_to_a_group_with_dead)
{
	join(4);
	run_ticks(5);
	member_end(&members[3]);
	run_ticks(3);
	again(2, 4);
	run_ticks(20);
	ready(2);
	cr_assert_not(row(2, 3)->alive);
	cr_assert(row(2, 1)->alive);
	start(3, 4);
	run_ticks(300);
	ready(3);
	known_to_all(3, 4);
	cr_assert_eq(mails_about(&members[2], MAIL_PEER_UP, 0, to(3, 0)), 1u);
}

/* Nobody has a session: the store alone shows that the other one is dead. */
Test(control_rejoin, knows_the_dead_by_their_claims)
{
	join_lazily(4);
	member_end(&members[3]);
	run_ticks(3);
	unsigned tried = fabric.connects[0];
	again(2, 4);
	run_ticks(20);
	ready(2);
	cr_assert_not(alive(2, 3));
	cr_assert(alive(2, 0) && alive(2, 1));
	want_session(&members[2], 0, 3, 0);
	run_ticks(5);
	cr_assert_eq(mail_last(&members[2], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	cr_assert_eq(fabric.connects[0], tried, "no request to a dead worker");
}

/* The holder runs. Expect the error of a rank that is taken, and no change in the group. */
Test(control_rejoin, the_rank_of_a_running_worker)
{
	join(3);
	ranks[3] = 2;
	names[3] = "w2";
	start(3, 3);
	run(false);
	result(3, FAR_NOT_UNIQUE, "rank 2 of group \"default\" is taken by worker \"w2\"");
	member_end(&members[3]);
	/* Nor does it keep others from coming back later. */
	again(1, 3);
	run_ticks(20);
	ready(1);
	known_to_all(1, 3);
	known_to_all(2, 3);
}

Test(control_rejoin, two_want_the_rank)
{
	join(3);
	member_end(&members[2]);
	ranks[3] = 2;
	names[3] = "w2";
	start(2, 3);
	start(3, 3);
	run(false);
	bool second = ctl_state(members[3].ctl) == CTL_READY;
	ready(second ? 3 : 2);
	result(second ? 2 : 3, FAR_NOT_UNIQUE, "is taken by worker \"w2\"");
	member_end(&members[second ? 2 : 3]);
	run_ticks(10);
	for (int i = 0; i < 2; i++) {
		cr_assert(row(i, 2)->alive);
		cr_assert_eq(row(i, 2)->incarnation, row(second ? 3 : 2, 2)->incarnation);
	}
}

Test(control_rejoin, not_who_it_was)
{
	join(3);
	member_end(&members[2]);
	names[2] = "other";
	start(2, 3);
	run(false);
	result(2, FAR_NOT_UNIQUE, "its successor must have the same name, not \"other\"");
	member_end(&members[2]);
	names[2] = "w2";
	shards[2] = 3;
	start(2, 3);
	run(false);
	result(2, FAR_INVALID, "worker \"w2\" had 1 shard before its restart");
	member_end(&members[2]);
	shards[2] = 0;
	start(2, 3);
	run_ticks(20);
	ready(2);
	known_to_all(2, 3);
}
