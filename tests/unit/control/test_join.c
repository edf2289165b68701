/* SPDX-License-Identifier: BSD-3-Clause */
/* A join: the store, the claims of ranks, and the errors of each step. The test's thread. */
#include "base/error.h"
#include "base/limits.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(control_join, .init = members_setup, .fini = members_teardown);

Test(control_join, order_of_start_does_not_matter)
{
	start(2, 3);
	run_ticks(100);
	start(1, 3);
	run_ticks(100);
	start(0, 3);
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

/* What passes by itself is tried again, without a busy loop. */
Test(control_join, accept_fails_for_a_while)
{
	start(0, 2);
	world->accept_error = -ENOBUFS;
	start(1, 2);
	run_ticks(10);
	world->now += TICK;
	cr_assert_gt(ctl_step(members[0].ctl, world->now), world->now);
	run_ticks(200);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_JOINING);
	world->accept_error = 0;
	run(false);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

Test(control_join, taken_rank_names_its_holder)
{
	ranks[3] = 1;
	start(0, 3);
	start(1, 3);
	run_ticks(20);
	start(3, 3);
	run(false);
	result(3, FAR_NOT_UNIQUE, "rank 1 of group \"default\" is taken by worker \"w1\"");
	/* The others need not wait for their deadline. */
	result(0, FAR_NOT_UNIQUE, "rank 1");
	result(1, FAR_NOT_UNIQUE, "rank 1");
	cr_assert_lt(world->now, 1000000000 + INIT_NS);
}

Test(control_join, late_non_member_does_not_harm_a_ready_group)
{
	join(2);
	ranks[3] = 1;
	start(3, 2);
	run(false);
	result(3, FAR_NOT_UNIQUE, "taken by worker \"w1\"");
	member_end(&members[3]);
	leave_all(2, FAR_SEC);
	run(true);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

Test(control_join, world_sizes_must_agree)
{
	sizes[1] = 3;
	start(0, 2);
	run_ticks(5);
	start(1, 2);
	run(false);
	result(1, FAR_INVALID, "world_size is 3 for worker \"w1\" but 2 for the members that came before");
	result(0, FAR_INVALID, "world_size is 3 for worker \"w1\" but 2");
}

Test(control_join, missing_members_are_named_at_the_deadline)
{
	uint64_t from = world->now;
	start(0, 5);
	start(1, 5);
	start(3, 5);
	run(false);
	cr_assert_geq(world->now, from + INIT_NS);
	cr_assert_leq(world->now, from + INIT_NS + FAR_SEC);
	for (int i = 0; i < 4; i += i ? 2 : 1)
		result(i, FAR_TIMEOUT, "missing rank 2, rank 4");
}

Test(control_join, missing_rank_0_is_named_with_its_address)
{
	start(1, 2);
	run(false);
	result(1, FAR_TIMEOUT, "rank 0, which hosts the store at 127.0.0.1:29500, did not answer within 2 s");
	cr_assert(strstr(members[1].err.text, strerror(ECONNREFUSED)));
}

Test(control_join, death_of_the_store_while_joining)
{
	start(0, 3);
	start(1, 3);
	run_ticks(10);
	member_end(&members[0]);
	run(false);
	result(1, FAR_PEER_LOST, "the store at 127.0.0.1:29500 (rank 0) was lost while joining");
}

/* Whichever reply was its last. */
Test(control_join, death_of_the_store_at_any_time)
{
	for (int ticks = 1; ticks < 12; ticks++) {
		start(0, 3);
		start(1, 3);
		run_ticks(ticks);
		ctl_step(members[0].ctl, world->now);
		member_end(&members[0]);
		run(false);
		enum far_status why = ctl_wait_settled(members[1].ctl, &members[1].err);
		cr_assert(why == FAR_PEER_LOST || why == FAR_TIMEOUT, "after %d: %s", ticks, members[1].err.text);
		member_end(&members[1]);
	}
}

Test(control_join, port_in_use)
{
	start(0, 1);
	run(false);
	ranks[1] = 0;
	start(1, 1);
	run(false);
	result(1, FAR_SYSTEM, "the store cannot listen on 127.0.0.1:29500");
	cr_assert(strstr(members[1].err.text, "choose another port"));
}

Test(control_join, beyond_loopback_only_when_open)
{
	method = "tcp://10.0.0.1:29500";
	security = KEY_AUTO;
	start(0, 2);
	start(1, 2);
	run(false);
	result(0, FAR_DENIED, "without a group key the store listens on loopback only, unless security=none");
	result(1, FAR_DENIED, "10.0.0.1:29500");
	member_end(&members[0]);
	member_end(&members[1]);
	security = KEY_NONE;
	join(2);
	member_end(&members[0]);
	member_end(&members[1]);
	security = KEY_GIVEN;
	join(2);
}

Test(control_join, unknown_host)
{
	method = "tcp://nowhere:1";
	security = KEY_AUTO;
	start(1, 2);
	run(false);
	result(1, FAR_UNREACHABLE, "\"nowhere\" does not resolve");
	member_end(&members[1]);
	security = KEY_NONE;
	start(1, 2);
	run(false);
	result(1, FAR_UNREACHABLE, "\"nowhere\" does not resolve");
}

/* ---- without descriptors ---- */

/* Rank 0 is out of descriptors when the last member connects. Expect its error at once, with the remedy. */
static void out_of_descriptors(int error, const char *remedy)
{
	start(0, 3);
	start(1, 3);
	run_ticks(20);
	world->accept_error = error;
	start(2, 3);
	run_ticks(1000);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_FAILED);
		result(i, FAR_RESOURCE, "worker \"w0\" (rank 0) cannot accept the members' connections");
		result(i, FAR_RESOURCE, remedy);
	}
}

Test(control_join, out_of_descriptors_of_the_process)
{
	out_of_descriptors(-EMFILE, "RLIMIT_NOFILE");
}

Test(control_join, out_of_descriptors_of_the_system)
{
	out_of_descriptors(-ENFILE, "fs.file-max");
}

/* ---- a worker that cannot open its NIC ---- */

static void refuse(int i)
{
	err_set(&refused[i], FAR_UNREACHABLE, "nic \"pigeon\" cannot be opened: no loft");
}

/* Expect all members to fail at once, by its name and with the driver's reason, whichever it is, first or last. */
static void a_refused_worker(int who, bool first)
{
	uint64_t from = world->now;
	char text[96];
	refuse(who);
	for (int i = 0; i < 3; i++)
		if ((i == who) == first)
			start(i, 3);
	run_ticks(100);
	for (int i = 0; i < 3; i++)
		if ((i == who) != first)
			start(i, 3);
	run_ticks(1000);
	snprintf(text, sizeof text, "worker \"w%d\" (rank %d) cannot join: nic \"pigeon\" cannot be opened: no loft",
		 who, who);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_FAILED, "%d", i);
		result(i, FAR_UNREACHABLE, text);
	}
	cr_assert_lt(world->now, from + INIT_NS);
}

Test(control_join, a_refused_worker_comes_first)
{
	a_refused_worker(2, true);
}

Test(control_join, a_refused_worker_comes_last)
{
	a_refused_worker(2, false);
}

Test(control_join, rank_0_is_refused_first)
{
	a_refused_worker(0, true);
}

Test(control_join, rank_0_is_refused_last)
{
	a_refused_worker(0, false);
}

/* Nobody comes to hear it. */
Test(control_join, a_refused_worker_alone)
{
	refuse(0);
	start(0, 3);
	run_ticks((int)(FAR_STORE_REFUSED_NS / TICK) + 10);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_FAILED);
	result(0, FAR_UNREACHABLE, "no loft");
	member_end(&members[0]);
	refuse(1);
	start(1, 3);
	run_ticks((int)(INIT_NS / TICK) + 10);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_FAILED);
}

/* A group that runs goes on without it. */
Test(control_join, a_refused_worker_cannot_come_back)
{
	join(3);
	member_end(&members[2]);
	run_ticks(10);
	refuse(2);
	start(2, 3);
	run_ticks(1000);
	cr_assert_eq(ctl_state(members[2].ctl), CTL_FAILED);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_READY);
	member_end(&members[2]);
	refused[2].status = FAR_OK;
	start(2, 3);
	run(false);
	result(2, FAR_OK, "");
}
