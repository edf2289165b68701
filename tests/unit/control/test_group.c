/* SPDX-License-Identifier: BSD-3-Clause */
/* Groups as a whole: their phases, and the first failure of a join that all members report. The test's thread. */
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>

TestSuite(control_group, .init = members_setup, .fini = members_teardown);

Test(control_group, join_and_leave)
{
	for (int n = 1; n <= 5; n++) {
		join(n);
		for (int i = 0; i < n; i++) {
			int world_size;
			const struct ctl_member *table = ctl_members(members[i].ctl, &world_size);
			result(i, FAR_OK, "");
			cr_assert_eq(world_size, n);
			cr_assert_eq(ctl_rank(members[i].ctl), i);
			cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), (unsigned)n);
			cr_assert_eq(fake_port_peers(members[i].port), (unsigned)n);
			for (int r = 0; r < n; r++) {
				cr_assert_str_eq(table[r].name, names[r]);
				cr_assert_str_eq(table[r].route->nic, "fake");
				cr_assert_eq(table[r].rank, r);
				cr_assert(table[r].alive);
				cr_assert_eq(table[r].incarnation, ctl_members(members[r].ctl, NULL)[r].incarnation);
			}
		}
		leave_all(n, FAR_SEC);
		run(true);
		for (int i = 0; i < n; i++) {
			result(i, FAR_OK, "");
			cr_assert_eq(ctl_state(members[i].ctl), CTL_LEFT);
			member_end(&members[i]);
		}
	}
}

Test(control_group, small_sends)
{
	world->chunk = 3;
	join(3);
	leave_all(3, FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

Test(control_group, idle_members_ask_for_no_wake_up)
{
	join(3);
	/* Requests that wait for the join end with its deadline; afterwards nothing is left. */
	run_ticks((int)(INIT_NS / TICK) + 5);
	cr_assert_eq(round_robin(), TIME_NEVER);
}

Test(control_group, refused_session_ends_the_join)
{
	fabric.refuse = fabric.refuse_next = -EACCES;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "cannot connect");
	result(1, FAR_DENIED, "cannot connect");
}

Test(control_group, death_of_rank_0_after_ready_leaves_calls_working)
{
	join(3);
	member_end(&members[0]);
	run_ticks(10);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_READY);
	cr_assert(ctl_members(members[1].ctl, NULL)[2].alive);
	leave_all(3, FAR_SEC);
	run(true);
	result(1, FAR_PEER_LOST, "worker \"w0\" (rank 0)");
	result(2, FAR_PEER_LOST, "worker \"w0\" (rank 0)");
}

Test(control_group, the_first_reason_reaches_who_suffers_from_it)
{
	fabric.refuse = -EACCES;
	fabric.refuse_next = -ECONNREFUSED;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "worker \"w0\" cannot connect to worker \"w0\"");
	result(1, FAR_DENIED, "worker \"w0\" cannot connect to worker \"w0\" (rank 0): Permission denied (reported by");
}
