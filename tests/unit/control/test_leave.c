/* SPDX-License-Identifier: BSD-3-Clause */
/* The way out, and beginning anew. The test's thread. */
#include "control/store.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(control_leave, .init = members_setup, .fini = members_teardown);

Test(control_leave, leave_waits_for_own_calls)
{
	join(2);
	members[1].calls = 2;
	leave_all(2, 5 * FAR_SEC);
	run_ticks(500);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_LEAVING);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEAVING);
	members[1].calls = 0;
	run(true);
	result(0, FAR_OK, "");
	result(1, FAR_OK, "");
}

Test(control_leave, leave_names_own_calls_at_the_deadline)
{
	join(2);
	members[1].calls = 2;
	leave_all(2, FAR_SEC);
	run(true);
	result(1, FAR_TIMEOUT, "2 calls of this worker are outstanding");
	result(0, FAR_TIMEOUT, "did not come: rank 1 (worker \"w1\")");
}

/* One that has sent bye is called once more, and calls on: the others wait for what comes of it, in every wave. */
Test(control_leave, leave_waits_for_calls_of_calls)
{
	join(3);
	members[2].calls = 1;
	leave_all(3, 60 * FAR_SEC);
	run_ticks(50);
	for (unsigned hop = 0; hop < 4; hop++) {
		/* Its call ends, but has led to one of the next, which has sent bye. */
		unsigned from = (2 + hop) % 3, to = (from + 1) % 3;
		members[to].begun++;
		members[to].calls = 1;
		members[from].calls = 0;
		run_ticks(200);
		for (int i = 0; i < 3; i++)
			cr_assert_eq(ctl_state(members[i].ctl), CTL_LEAVING, "hop %u", hop);
	}
	members[0].calls = members[1].calls = members[2].calls = 0;
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

/* The same, but it does not end. Expect who it is by name. */
Test(control_leave, leave_names_who_goes_on)
{
	join(3);
	members[2].calls = 1;
	leave_all(3, FAR_SEC);
	run_ticks(50);
	members[1].begun++;
	members[1].calls = 1;
	members[2].calls = 0;
	run(true);
	result(1, FAR_TIMEOUT, "1 calls of this worker are outstanding");
	result(0, FAR_TIMEOUT, "still have calls: rank 1 (worker \"w1\")");
}

/* One of `n` dies `steps` after all began to leave; `lazily`: nobody has a session with it. Returns what the others say
 * of that: all of them the same, and long before their deadline. FAR_PENDING: it had left before. */
static enum far_status dies_after(int n, int steps, bool lazily)
{
	enum far_status status = FAR_PENDING;
	(lazily ? join_lazily : join)(n);
	uint64_t began = world->now;
	leave_all(n, 60 * FAR_SEC);
	for (int t = 0; t < steps; t++)
		round_robin();
	if (ctl_state(members[n - 1].ctl) != CTL_LEFT) {
		member_end(&members[n - 1]);
		run(true);
		status = ctl_wait_settled(members[0].ctl, NULL);
		cr_assert(status == FAR_OK || status == FAR_PEER_LOST, "%s", far_status_name(status));
	}
	run(true);
	char lost[80];
	snprintf(lost, sizeof lost, "lost before the shutdown: rank %d (worker \"w%d\")", n - 1, n - 1);
	for (int i = 0; i < n - 1; i++)
		result(i, status == FAR_PENDING ? FAR_OK : status, status == FAR_PEER_LOST ? lost : "");
	cr_assert_lt(world->now - began, 10 * FAR_SEC, "nobody waits for the deadline");
	for (int i = 0; i < n; i++)
		member_end(&members[i]);
	run_ticks(10);
	return status;
}

/* It dies before its first bye, between that and its last, and after that. Expect that it is lost, and from its last
 * bye on no error: it had left in order. */
static void deaths(int n, bool lazily)
{
	int lost = 0, in_order = 0, steps = 0;
	for (; steps < 100; steps++) {
		enum far_status status = dies_after(n, steps, lazily);
		if (status == FAR_PENDING)
			break;
		lost += status == FAR_PEER_LOST;
		in_order += status == FAR_OK;
		cr_assert(status == FAR_OK || !in_order, "lost after %d steps, in order after fewer", steps);
	}
	cr_assert_lt(steps, 100);
	cr_assert_gt(lost, 0);
	cr_assert_gt(in_order, 0);
}

Test(control_leave, death_between_the_byes)
{
	deaths(3, false);
}

/* Nobody but rank 0 looks after those that they have no session with. */
Test(control_leave, death_between_the_byes_on_demand)
{
	deaths(4, true);
}

/* One has calls again and again after the first byes, and one that had said the first dies. Expect that the others wait
 * for these calls, and report it lost. */
static void many_waves(int n)
{
	join_lazily(n);
	members[1].calls = 1;
	leave_all(n, 60 * FAR_SEC);
	run_ticks(50);
	member_end(&members[n - 1]); /* it had said its first */
	for (unsigned hop = 0; hop < 6; hop++) {
		unsigned from = 1 + hop % 2, to = 3 - from;
		members[to].begun++;
		members[to].calls = 1;
		members[from].calls = 0;
		run_ticks(900);
		for (int i = 0; i < n - 1; i++)
			cr_assert_eq(ctl_state(members[i].ctl), CTL_LEAVING, "hop %u", hop);
	}
	members[1].calls = 0;
	uint64_t began = world->now;
	run(true);
	for (int i = 0; i < n - 1; i++)
		result(i, FAR_PEER_LOST, names[n - 1]);
	cr_assert_lt(world->now - began, 10 * FAR_SEC);
}

Test(control_leave, death_and_many_waves)
{
	many_waves(4);
}

Test(control_leave, death_and_many_waves_of_many)
{
	many_waves(70);
}

/* The last one's deadline comes first, before it has said anything, and after. Expect that the others hear of it at
 * once, and name it. */
static void one_is_late(int n, bool lazily, bool said)
{
	(lazily ? join_lazily : join)(n);
	members[said ? 1 : n - 1].calls = 1;
	for (int i = 0; i < n; i++)
		ctl_leave(members[i].ctl, i == n - 1 ? FAR_SEC : 60 * FAR_SEC);
	for (int t = 0; t < 1200; t++) {
		round_robin();
		if (ctl_state(members[n - 1].ctl) == CTL_LEFT)
			break;
	}
	char own[64], late[96];
	snprintf(own, sizeof own, "%s", said ? "did not come: rank 1 (worker \"w1\")" : "1 calls of this worker");
	result(n - 1, FAR_TIMEOUT, own);
	member_end(&members[n - 1]);
	members[1].calls = 0;
	uint64_t began = world->now;
	run(true);
	cr_assert_lt(world->now - began, 10 * FAR_SEC);
	snprintf(late, sizeof late, "left at the deadline of its own shutdown: rank %d (worker \"w%d\")", n - 1, n - 1);
	for (int i = 0; i < n - 1; i++)
		result(i, FAR_TIMEOUT, late);
}

Test(control_leave, one_is_late_before_its_bye)
{
	one_is_late(3, false, false);
}

Test(control_leave, one_is_late_after_its_bye)
{
	one_is_late(3, false, true);
}

Test(control_leave, one_is_late_on_demand)
{
	one_is_late(4, true, true);
}

/* A group that hears from rank 0. */
Test(control_leave, one_is_late_of_many)
{
	one_is_late(70, true, false);
}

/* Rank 0's deadline comes first. Expect that the others do not take it for lost. */
static void rank_0_is_late(int who, const char *own, const char *others)
{
	join(3);
	members[who].calls = 1;
	ctl_leave(members[0].ctl, FAR_SEC);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	ctl_leave(members[2].ctl, 60 * FAR_SEC);
	run_ticks(1200);
	result(0, FAR_TIMEOUT, own);
	member_end(&members[0]);
	run_ticks(10);
	members[2].calls = 0;
	run(true);
	for (int i = 1; i < 3; i++)
		result(i, FAR_TIMEOUT, others);
}

Test(control_leave, rank_0_is_late_after_its_bye)
{
	rank_0_is_late(2, "did not come: rank 2 (worker \"w2\")", "left at the deadline of its own shutdown");
}

Test(control_leave, rank_0_is_late_before_its_bye)
{
	rank_0_is_late(0, "1 calls of this worker", "\"w0\" (rank 0), which hosts the store");
}

Test(control_leave, leave_names_who_does_not_come)
{
	join(4);
	ctl_leave(members[0].ctl, FAR_SEC);
	ctl_leave(members[2].ctl, FAR_SEC);
	for (int t = 0; t < 1500; t++)
		round_robin();
	result(0, FAR_TIMEOUT, "did not come: rank 1 (worker \"w1\"), rank 3 (worker \"w3\")");
	result(2, FAR_TIMEOUT, "rank 1 (worker \"w1\"), rank 3 (worker \"w3\")");
	/* The store is gone with rank 0, which sent bye. */
	ctl_leave(members[1].ctl, FAR_SEC);
	ctl_leave(members[3].ctl, FAR_SEC);
	run(true);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEFT);
}

Test(control_leave, leave_names_the_dead)
{
	join(4);
	member_end(&members[3]);
	run_ticks(5);
	leave_all(3, FAR_SEC);
	run_ticks(1);
	member_end(&members[1]);
	run(true);
	result(0, FAR_PEER_LOST, "rank 3 (worker \"w3\")");
	result(2, FAR_PEER_LOST, "rank 3 (worker \"w3\")");
	cr_assert_lt(world->now, 1000000000 + INIT_NS);
}

Test(control_leave, death_before_bye_ends_the_wait)
{
	join(3);
	ctl_leave(members[0].ctl, 60 * FAR_SEC);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	run_ticks(20);
	cr_assert_eq(ctl_state(members[0].ctl), CTL_LEAVING);
	member_end(&members[2]);
	run(true);
	result(0, FAR_PEER_LOST, "lost before the shutdown: rank 2 (worker \"w2\")");
	result(1, FAR_PEER_LOST, "lost before the shutdown: rank 2 (worker \"w2\")");
}

/* Its bye is stored; its process ends before the others leave. Their calls may still have led to it. */
Test(control_leave, death_after_a_bye_before_the_others_leave)
{
	join(3);
	ctl_leave(members[2].ctl, 60 * FAR_SEC);
	run_ticks(10);
	member_end(&members[2]);
	run_ticks(10);
	leave_all(2, FAR_SEC);
	run(true);
	result(0, FAR_PEER_LOST, "rank 2 (worker \"w2\")");
	result(1, FAR_PEER_LOST, "rank 2 (worker \"w2\")");
}

/* Rank 0 dies `steps` after all began to leave, one of them with calls up to the middle. Expect that the others report
 * it lost, unless they have left. True: rank 0 had left. */
static bool rank_0_dies_after(int n, int steps, bool lazily, unsigned *lost)
{
	(lazily ? join_lazily : join)(n);
	members[1].calls = 1;
	leave_all(n, 60 * FAR_SEC);
	for (int t = 0; t < steps; t++) {
		members[1].calls = t < steps / 2;
		round_robin();
	}
	members[1].calls = 0;
	bool over = ctl_state(members[0].ctl) == CTL_LEFT;
	enum ctl_state before[MEMBERS_MAX];
	for (int i = 1; i < n; i++)
		before[i] = ctl_state(members[i].ctl);
	member_end(&members[0]);
	run(true);
	for (int i = 1; i < n; i++) {
		bool left = before[i] == CTL_LEFT;
		result(i, left ? FAR_OK : FAR_PEER_LOST, left ? "" : "\"w0\" (rank 0), which hosts the store");
		*lost += !left;
		member_end(&members[i]);
	}
	run_ticks(10);
	return over;
}

static void deaths_of_rank_0(int n, bool lazily)
{
	unsigned lost = 0;
	int steps = 0;
	while (steps < 100 && !rank_0_dies_after(n, steps, lazily, &lost))
		steps++;
	cr_assert_lt(steps, 100);
	cr_assert_gt(lost, 3u * (unsigned)(n - 1), "before and after its first bye");
}

Test(control_leave, rank_0_dies_between_the_byes)
{
	deaths_of_rank_0(3, false);
}

Test(control_leave, rank_0_dies_between_the_byes_on_demand)
{
	deaths_of_rank_0(3, true);
}

/* A group that reads rank 0's lists. */
Test(control_leave, rank_0_dies_between_the_byes_of_many)
{
	deaths_of_rank_0(70, true);
}

Test(control_leave, death_of_rank_0_while_leaving)
{
	join(3);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	run_ticks(10);
	member_end(&members[0]);
	run_ticks(10);
	result(1, FAR_PEER_LOST, "worker \"w0\" (rank 0)");
}

Test(control_leave, rank_0_leaves_last)
{
	join(3);
	leave_all(3, FAR_SEC);
	for (int t = 0; t < 1000 && ctl_state(members[0].ctl) != CTL_LEFT; t++) {
		for (int i = 0; i < 3; i++) {
			ctl_step(members[i].ctl, world->now);
			if (i == 0 && ctl_state(members[0].ctl) == CTL_LEFT)
				cr_assert(ctl_state(members[1].ctl) == CTL_LEFT &&
					  ctl_state(members[2].ctl) == CTL_LEFT);
		}
		world->now += TICK;
	}
	run(true);
	result(0, FAR_OK, "");
}

/* A member that is quick begins anew while rank 0 still holds the old store: it must find the new one. */
Test(control_leave, begin_anew_at_the_same_address)
{
	join(3);
	for (int round = 0; round < 3; round++) {
		leave_all(3, FAR_SEC);
		for (int t = 0; t < 1000; t++) {
			round_robin();
			int again = 0;
			for (int i = 2; i >= 0; i--) {
				if (ctl_state(members[i].ctl) == CTL_LEFT) {
					result(i, FAR_OK, "");
					member_end(&members[i]);
					start(i, 3);
				}
				again += ctl_state(members[i].ctl) == CTL_READY;
			}
			if (again == 3)
				break;
		}
		for (int i = 0; i < 3; i++) {
			cr_assert_eq(ctl_state(members[i].ctl), CTL_READY);
			result(i, FAR_OK, "");
		}
	}
}

/* Rank 0 holds the store for a member that is slow to go. A quick one that begins anew must not join what ends. */
Test(control_leave, begin_anew_while_the_old_store_is_held)
{
	join(3);
	leave_all(3, 60 * FAR_SEC);
	for (int t = 0; t < 100 && ctl_state(members[1].ctl) != CTL_LEFT; t++) {
		static const int order[] = {2, 0, 1}; /* it says its last bye, and has not heard the others' */
		for (int i = 0; i < 3; i++)
			ctl_step(members[order[i]].ctl, world->now);
		world->now += TICK;
	}
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEFT);
	cr_assert_eq(ctl_state(members[2].ctl), CTL_LEAVING);
	member_end(&members[1]);
	start(1, 3);
	for (int t = 0; t < 100; t++) {
		ctl_step(members[0].ctl, world->now);
		ctl_step(members[1].ctl, world->now);
		world->now += TICK;
	}
	cr_assert_eq(ctl_state(members[0].ctl), CTL_LEAVING);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_JOINING);
	for (int t = 0; t < 100 && ctl_state(members[0].ctl) != CTL_LEFT; t++)
		round_robin();
	for (int i = 0; i < 3; i += 2) {
		result(i, FAR_OK, "");
		member_end(&members[i]);
		start(i, 3);
	}
	run(false);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

/* A frame of somebody's who is no member. */
static void request_by_a_non_member(struct ctl_net *net, int h, enum store_op op, const char *key)
{
	uint8_t f[STORE_FRAME_MAX];
	struct store_msg m = {.op = op, .id = 1, .key = (const uint8_t *)key, .key_len = strlen(key)};
	size_t len = store_msg_encode(&m, f);
	for (long n = -EAGAIN; n == -EAGAIN; n = net->ops->send(net, h, f, len))
		round_robin();
}

/* Somebody who is no member leaves a connection open. Expect nobody to wait for it. */
Test(control_leave, a_connection_left_open)
{
	struct ctl_net *net = fake_net_create(world);
	security = KEY_NONE;
	join(3);
	int h = net->ops->connect(net, "127.0.0.1", 29500);
	cr_assert_geq(h, 0);
	request_by_a_non_member(net, h, STORE_LOGIN, "");
	run_ticks(5);
	uint64_t from = world->now;
	leave_all(3, 60 * FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
	cr_assert_lt(world->now - from, FAR_STORE_CLOSE_NS);
	net->ops->destroy(net);
}

/* A member stands still before it has read the last word. Expect rank 0 to go after a while, and the member to find
 * what it has to read. */
Test(control_leave, the_store_ends_after_the_last_request)
{
	join(3);
	leave_all(3, 60 * FAR_SEC);
	for (int t = 0; t < 100 && ctl_state(members[1].ctl) != CTL_LEFT; t++) {
		static const int order[] = {2, 0, 1}; /* it says its last bye, and has not heard the others' */
		for (int i = 0; i < 3; i++)
			ctl_step(members[order[i]].ctl, world->now);
		world->now += TICK;
	}
	cr_assert_eq(ctl_state(members[2].ctl), CTL_LEAVING);
	members[2].frozen = true;
	uint64_t from = world->now;
	while (ctl_state(members[0].ctl) != CTL_LEFT && world->now < from + 50 * FAR_SEC)
		round_robin();
	cr_assert_eq(ctl_state(members[0].ctl), CTL_LEFT);
	result(0, FAR_OK, "");
	cr_assert_geq(world->now + 100 * TICK, from + FAR_STORE_CLOSE_NS);
	cr_assert_lt(world->now, from + 2 * FAR_STORE_CLOSE_NS);
	members[2].frozen = false;
	run(true);
	result(2, FAR_OK, "");
}

/* Somebody has filled the store. Expect the group to leave in order, members that came back included. */
Test(control_leave, of_a_full_store)
{
	struct ctl_net *net = fake_net_create(world);
	char key[24], replies[4096];
	security = KEY_NONE;
	join(3);
	int h = net->ops->connect(net, "127.0.0.1", 29500);
	request_by_a_non_member(net, h, STORE_LOGIN, "");
	for (int i = 0; i < FAR_STORE_KEYS_MAX + 1; i++) {
		snprintf(key, sizeof key, "junk%d", i);
		request_by_a_non_member(net, h, STORE_SET, key);
		if (i % 64 == 0)
			round_robin();
		while (net->ops->recv(net, h, replies, sizeof replies) > 0)
			;
	}
	run_ticks(100);
	member_end(&members[2]);
	run_ticks(10);
	start(2, 3);
	run(false);
	result(2, FAR_OK, "");
	leave_all(3, 10 * FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
	net->ops->destroy(net);
}
