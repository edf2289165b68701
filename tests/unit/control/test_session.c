/* SPDX-License-Identifier: BSD-3-Clause */
/* Several shards, and sessions that are set up on demand. The test's thread. */
#include "base/limits.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(control_session, .init = members_setup, .fini = members_teardown);

/* ---- several shards ---- */

/* ---- on demand ---- */

Test(control_session, nothing_is_set_up_before_it_is_asked_for)
{
	shards[1] = 2;
	join_lazily(3);
	run_ticks((int)(INIT_NS / TICK) + 5);
	cr_assert_eq(round_robin(), TIME_NEVER);
	for (int i = 0; i < 3; i++) {
		cr_assert_eq(ctl_sessions(members[i].ctl), 0u);
		cr_assert_eq(members[i].posted_n, 0u);
		cr_assert_eq(fake_port_peers(members[i].port), 0u);
		for (int r = 0; r < 3; r++) {
			cr_assert(alive(i, r));
			cr_assert_str_eq(ctl_members(members[i].ctl, NULL)[r].route->nic, "fake");
		}
	}
	/* Upwards, downwards, and to oneself. */
	want_session(&members[0], 0, 1, 1);
	want_session(&members[2], 0, 1, 1);
	want_session(&members[1], 0, 1, 1);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 0, to(1, 1)), 1u);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 1, to(0, 0)), 1u);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 1, to(2, 0)), 1u);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 0, to(1, 1)), 1u);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 1, to(1, 0)), 1u);
	cr_assert_eq(members[0].posted_n, 1u);
	cr_assert_eq(members[1].posted_n, 4u);
	cr_assert_eq(members[2].posted_n, 1u);
	/* A request for a session that exists: nothing more. */
	want_session(&members[1], 1, 0, 0);
	run_ticks(5);
	cr_assert_eq(members[1].posted_n, 4u);
	cr_assert_eq(fake_port_peers(members[0].port), 1u);
}

Test(control_session, a_shard_to_itself)
{
	join_lazily(1);
	want_session(&members[0], 0, 0, 0);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 0, to(0, 0)), 1u);
	cr_assert_eq(fake_port_peers(members[0].port), 1u);
}

/*
 * Both sides request the session, each at its own time. A schedule has two bits a step: who runs, and whether it sees
 * one event of its port. Expect one session, known to both shards once, and no step due.
 */
enum { STEPS = 5, SCHEDULES = 1 << 2 * STEPS };

static void interleave(unsigned schedule, int ask_0, int ask_1, bool lose)
{
	members_teardown();
	members_setup();
	join_lazily(2);
	fabric.stepwise = true;
	for (int at = 0; at < STEPS; at++) {
		int who = schedule >> 2 * at & 1;
		if (at == ask_0)
			want_session(&members[0], 0, 1, 0);
		if (at == ask_1)
			want_session(&members[1], 0, 0, 0);
		fabric.lose_next |= lose && at == ask_1;
		if (schedule >> 2 * at & 2)
			fake_port_allow(members[who].port);
		ctl_step(members[who].ctl, world->now);
	}
	fabric.stepwise = false;
	run_ticks(30);
	fabric.lose_next = false;
	unsigned unreached =
		mails_of(&members[0], MAIL_PEER_UNREACHABLE) + mails_of(&members[1], MAIL_PEER_UNREACHABLE);
	if (lose && unreached) { /* the attempt that got lost was one's own */
		cr_assert_eq(unreached, 1u);
		want_session(&members[mails_of(&members[1], MAIL_PEER_UNREACHABLE)], 0,
			     mails_of(&members[0], MAIL_PEER_UNREACHABLE) ? 1 : 0, 0);
		run_ticks(30);
	}
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), 1u, "schedule %x, requested at %d and %d: member %d",
			     schedule, ask_0, ask_1, i);
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_DOWN), 0u);
		cr_assert_eq(fake_port_peers(members[i].port), 1u);
	}
	cr_assert(lose || !unreached);
	cr_assert_gt(round_robin(), world->now + 100 * FAR_MS, "nothing is left to be done");
}

/* A sanitizer makes steps slow: every fifth order. */
#ifdef UNDER_SANITIZER
#define SCHEDULE_STEP 5
#else
#define SCHEDULE_STEP 1
#endif

Test(control_session, both_sides_at_once, .timeout = 60)
{
	for (unsigned schedule = 0; schedule < SCHEDULES; schedule += SCHEDULE_STEP)
		for (int a = 0; a < 3; a++)
			for (int b = 0; b < 4; b++)
				interleave(schedule, a, b < 3 ? b : 99, false);
}

Test(control_session, both_sides_at_once_and_one_attempt_is_lost, .timeout = 60)
{
	for (unsigned schedule = 0; schedule < SCHEDULES; schedule += SCHEDULE_STEP)
		for (int a = 0; a < 3; a++)
			for (int b = 0; b < 3; b++)
				interleave(schedule, a, b, true);
}

/* The two shards of one worker, each requesting a session with the other. */
Test(control_session, both_shards_of_one_worker)
{
	for (int who = 1; who < 4; who++) {
		members_teardown();
		members_setup();
		shards[0] = 2;
		join_lazily(1);
		if (who & 1)
			want_session(&members[0], 0, 0, 1);
		if (who & 2)
			want_session(&members[0], 1, 0, 0);
		run_ticks(10);
		cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 0, to(0, 1)), 1u);
		cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 1, to(0, 0)), 1u);
		cr_assert_eq(fake_port_peers(members[0].port), 2u);
	}
}

/* ---- set-ups that fail ---- */

Test(control_session, dead_before_it_was_ever_connected)
{
	shards[0] = 2;
	join_lazily(3);
	member_end(&members[2]);
	run_ticks(5);
	cr_assert_not(alive(0, 2), "its connection to the store has ended");
	cr_assert_not(alive(1, 2));
	want_session(&members[0], 0, 2, 0);
	run_ticks(5);
	const struct mail *m = mail_last(&members[0], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->worker, 2u);
	cr_assert_eq(m->status, FAR_PEER_LOST);
	cr_assert(strstr(m->text, "gone"), "%s", m->text);
	cr_assert_not(alive(0, 2));
	/* Now it is known. */
	want_session(&members[0], 1, 2, 0);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UNREACHABLE, 1, to(2, 0)), 1u);
	cr_assert_eq(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
}

Test(control_session, a_refusal_is_reported_and_the_next_call_connects_again)
{
	join_lazily(2);
	fabric.refuse = -EMFILE;
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	const struct mail *m = mail_last(&members[0], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->status, FAR_UNREACHABLE);
	cr_assert_str_eq(m->text, strerror(EMFILE));
	cr_assert(alive(0, 1));
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UP), 1u);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_UP), 1u);
}

/* Between two shards of one worker one end makes the attempt for both. */
Test(control_session, a_refusal_among_own_shards)
{
	shards[0] = 2;
	join_lazily(1);
	fabric.refuse = -EMFILE;
	want_session(&members[0], 0, 0, 1);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UNREACHABLE, 0, to(0, 1)), 1u);
	cr_assert(alive(0, 0));
	want_session(&members[0], 0, 0, 1);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 0, to(0, 1)), 1u);
}

Test(control_session, no_common_driver_is_reported_by_the_call)
{
	drivers[1] = "other";
	join_lazily(2);
	cr_assert_str_eq(ctl_members(members[0].ctl, NULL)[1].route->nic, "");
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->status, FAR_UNREACHABLE);
	cr_assert(strstr(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->text, "no NIC driver is shared"));
}

Test(control_session, a_session_on_demand_that_ends)
{
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	member_end(&members[1]);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 1u);
	cr_assert_eq(fake_port_peers(members[0].port), 0u);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
}

/* Their session ends, and both are members still. Expect both to be notified, and the next call to get another. */
Test(control_session, silence_ends_a_session_and_no_membership)
{
	silent = 1;
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	fake_port_cut(members[0].port, mail_last(&members[0], MAIL_PEER_UP)->peer);
	run_ticks(5);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_DOWN), 1u);
		cr_assert_eq(mail_last(&members[i], MAIL_PEER_DOWN)->status, FAR_UNREACHABLE);
		cr_assert_eq(fake_port_peers(members[i].port), 0u);
		cr_assert(alive(i, !i));
	}
	want_session(&members[1], 0, 0, 0);
	run_ticks(10);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), 2u);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE) + mails_of(&members[1], MAIL_PEER_UNREACHABLE), 0u);
	leave_all(2, FAR_SEC);
	run(true);
	for (int i = 0; i < 2; i++)
		result(i, FAR_OK, "");
}

/* It dies while they have no session. Expect the shard to be notified, for what the former session left there. */
Test(control_session, death_after_silence)
{
	silent = 1;
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	fake_port_cut(members[0].port, mail_last(&members[0], MAIL_PEER_UP)->peer);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE), 0u);
	member_end(&members[1]);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE), 1u);
	cr_assert_eq(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	cr_assert_not(alive(0, 1));
}

/* An ICMP error reports a member's port as closed. Expect a query of the store, and the session to stay while that has
 * the member. */
Test(control_session, a_refused_port_proves_nothing)
{
	silent = 1;
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	uint32_t peer = mail_last(&members[0], MAIL_PEER_UP)->peer;
	for (int i = 0; i < 3; i++) {
		fake_port_refuse(members[0].port, peer);
		run_ticks(5);
	}
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 0u);
	cr_assert(alive(0, 1));
}

/* Its claim is gone, and its port: without a word from its session. Expect it to be dead, whichever is known first. */
Test(control_session, a_refused_port_of_one_without_a_claim)
{
	for (int first = 0; first < 2; first++) {
		silent = 1;
		join_lazily(3);
		want_session(&members[0], 0, 1, 0);
		run_ticks(5);
		uint32_t peer = mail_last(&members[0], MAIL_PEER_UP)->peer;
		/* The store takes it for gone: somebody wanted its rank, waited, and went. */
		members[1].frozen = true;
		ranks[3] = 1;
		names[3] = names[1];
		start(3, 3);
		run_ticks(10);
		world->now += FAR_STORE_SILENT_NS;
		if (first)
			fake_port_refuse(members[0].port, peer);
		member_end(&members[3]);
		run_ticks(10);
		if (!first) {
			cr_assert(alive(0, 1));
			fake_port_refuse(members[0].port, peer);
			run_ticks(5);
		}
		cr_assert_not(alive(0, 1));
		cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 1u);
		cr_assert_eq(mail_last(&members[0], MAIL_PEER_DOWN)->status, FAR_PEER_LOST);
		members_teardown();
		members_setup();
	}
}

/* Who has lost its claim of the rank, and then its session. Expect it to be lost. */
Test(control_session, silence_of_one_without_a_claim)
{
	silent = 1;
	join_lazily(2);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	member_end(&members[1]);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 1u);
	run_ticks(5);
	cr_assert_not(alive(0, 1));
}

/* ---- leaving ---- */

Test(control_session, sessions_while_leaving)
{
	join_lazily(2);
	members[0].calls = 1;
	leave_all(1, 5 * FAR_SEC);
	run_ticks(5);
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UP), 1u);
	members[0].calls = 0;
	leave_all(2, 5 * FAR_SEC);
	run(true);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

/* Nobody has a session with the dead one. Expect rank 0 to find out, and to publish it. */
Test(control_session, a_member_that_nobody_saw_die)
{
	join_lazily(4);
	member_end(&members[2]);
	uint64_t from = world->now;
	leave_all(4, 60 * FAR_SEC);
	run(true);
	cr_assert_lt(world->now, from + 5 * FAR_SEC);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			result(i, FAR_PEER_LOST, "worker \"w2\"");
}

/* A one-way message waits for a session with a worker whose host loses its power while the group leaves, when the store
 * notifies rank 0 alone. Expect its sender to query the store, and to leave. */
Test(control_session, a_host_without_power_answers_nothing)
{
	join_lazily(3);
	fabric.mute = true;
	members[1].calls = 1;
	want_session(&members[1], 0, 2, 0);
	leave_all(2, 60 * FAR_SEC);
	for (int second = 0; second < 3; second++) {
		world->now += FAR_SEC;
		run_ticks(5);
		cr_assert(alive(1, 2), "it has its claim");
	}
	member_end(&members[2]);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_UNREACHABLE), 0u);
	world->now += FAR_SEC;
	run_ticks(5);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_UNREACHABLE), 1u);
	cr_assert_eq(mail_last(&members[1], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	members[1].calls = 0;
	fabric.mute = false;
	uint64_t from = world->now;
	run(true);
	cr_assert_lt(world->now, from + 5 * FAR_SEC);
	for (int i = 0; i < 2; i++)
		result(i, FAR_PEER_LOST, "worker \"w2\"");
}

/* A member that is late is not taken for dead. */
Test(control_session, a_member_that_comes_late)
{
	join_lazily(3);
	members[2].calls = 1;
	leave_all(3, 60 * FAR_SEC);
	run_ticks(3000);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(ctl_state(members[i].ctl), CTL_LEAVING);
	members[2].calls = 0;
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}
