/* SPDX-License-Identifier: BSD-3-Clause */
/* Incarnations of members: their end, their successors, and what the other members do then. The test's thread. */
#include "base/hash.h"
#include "control/info.h"
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

TestSuite(control_incarnation, .init = members_setup, .fini = members_teardown);

/* ---- the end of an incarnation ---- */

/* Nobody has a session with it. Expect the end of its connection to the store to be enough. */
Test(control_incarnation, the_end_of_one_without_sessions)
{
	join_lazily(4);
	member_end(&members[2]);
	run_ticks(5);
	for (int i = 0; i < 4; i++)
		if (i != 2)
			cr_assert_not(row(i, 2)->alive, "at %d", i);
	unsigned tried = fabric.connects[0];
	want_session(&members[3], 0, 2, 0);
	run_ticks(3);
	const struct mail *m = mail_last(&members[3], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->status, FAR_PEER_LOST);
	cr_assert_eq(m->worker, 2u);
	cr_assert_eq(fabric.connects[0], tried, "no request to a dead worker");
}

/* It cannot reach the store any more, and has a session. Expect that to decide. */
Test(control_incarnation, a_session_outlives_the_store)
{
	join_lazily(3);
	want_session(&members[1], 0, 2, 0);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_UP), 1u);
	/* The store takes it for gone: somebody wanted its rank, waited, and went. */
	members[2].frozen = true;
	ranks[3] = 2;
	names[3] = "w2";
	start(3, 3);
	run_ticks(10);
	world->now += FAR_STORE_SILENT_NS;
	member_end(&members[3]);
	run_ticks(10);
	cr_assert_not(row(0, 2)->alive);
	cr_assert(row(1, 2)->alive);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 0u);
}

/* A connection that outlives its machine. Expect the next incarnation to have the rank after the bound, and the first
 * to find that it is not wanted. */
Test(control_incarnation, a_silent_incarnation_makes_room)
{
	join_lazily(3);
	uint64_t first = row(2, 2)->incarnation;
	members[2].frozen = true;
	ranks[3] = 2;
	names[3] = "w2";
	start(3, 3);
	for (int t = 0; t < 20000 && ctl_state(members[3].ctl) == CTL_JOINING; t++)
		round_robin();
	/* Its own time-out is shorter than the bound: it is notified, and tries again. The question stands. */
	result(3, FAR_TIMEOUT, "did not");
	member_end(&members[3]);
	world->now += FAR_STORE_SILENT_NS - INIT_NS;
	start(3, 3);
	for (int t = 0; t < 20000 && ctl_state(members[3].ctl) == CTL_JOINING; t++)
		round_robin();
	ready(3);
	run_ticks(5);
	cr_assert_neq(row(3, 2)->incarnation, first);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(row(i, 2)->incarnation, row(3, 2)->incarnation);
	/* The first wakes up: its sessions are refused. */
	members[2].frozen = false;
	want_session(&members[2], 0, 1, 0);
	run_ticks(10);
	cr_assert_eq(mail_last(&members[2], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	cr_assert_eq(mails_of(&members[2], MAIL_PEER_UP), 0u);
	cr_assert(row(1, 2)->alive);
}

/* ---- the next one ---- */

Test(control_incarnation, sessions_of_the_next_incarnation)
{
	join(3);
	run_ticks(5);
	uint64_t first = row(2, 2)->incarnation;
	unsigned peers = fake_port_peers(members[0].port);
	for (unsigned n = 1; n <= 5; n++) {
		again(2, 3);
		run_ticks(20);
		ready(2);
		known_to_all(2, 3);
		cr_assert_neq(row(0, 2)->incarnation, first);
		first = row(0, 2)->incarnation;
		/* They were set up at once, by the one who came. */
		for (int i = 0; i < 2; i++) {
			cr_assert_eq(mails_about(&members[i], MAIL_PEER_DOWN, 0, to(2, 0)), n);
			cr_assert_eq(mails_about(&members[i], MAIL_PEER_RESTARTED, 0, to(2, 0)), n);
			cr_assert_eq(mails_about(&members[i], MAIL_PEER_UP, 0, to(2, 0)), n + 1);
			cr_assert_eq(mails_about(&members[2], MAIL_PEER_UP, 0, to(i, 0)), 1u);
			cr_assert_eq(mail_last(&members[i], MAIL_PEER_UP)->incarnation, first);
		}
		cr_assert_eq(fake_port_peers(members[0].port), peers, "nothing is left of the incarnation before");
	}
	leave_all(3, FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

Test(control_incarnation, sessions_on_demand_with_the_next_incarnation)
{
	shards[0] = shards[2] = 2;
	join_lazily(3);
	want_session(&members[0], 1, 2, 0);
	run_ticks(5);
	again(2, 3);
	run_ticks(10);
	ready(2);
	known_to_all(2, 3);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_RESTARTED, 1, to(2, 0)), 1u);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UP), 1u, "no other session was requested");
	want_session(&members[0], 1, 2, 0);
	want_session(&members[2], 0, 1, 0);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_UP, 1, to(2, 0)), 2u);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 0, to(2, 0)), 1u);
}

/* The end of the first incarnation and the beginning of the second come at once: say, after a pause of the machine that
 * looks. Expect the one to be notified before the other. */
Test(control_incarnation, both_are_learned_at_once)
{
	join(3);
	run_ticks(5);
	members[1].frozen = true;
	for (int n = 0; n < 3; n++) {
		again(2, 3);
		run_ticks(20);
		ready(2);
	}
	members[1].frozen = false;
	run_ticks(300);
	known_to_all(2, 3);
	const struct member *m = &members[1];
	enum mail_type last = MAIL_PEER_UP;
	for (unsigned i = 0; i < m->posted_n; i++) {
		if (m->posted[i].worker != 2)
			continue;
		enum mail_type type = m->posted[i].type;
		cr_assert(last == MAIL_PEER_UP     ? type == MAIL_PEER_DOWN || type == MAIL_PEER_UP
			  : last == MAIL_PEER_DOWN ? type == MAIL_PEER_RESTARTED
						   : type == MAIL_PEER_UP || type == MAIL_PEER_RESTARTED);
		last = type;
	}
	cr_assert_eq(last, MAIL_PEER_UP, "%d", (int)last);
}

/* The shard's mailbox is full while an incarnation ends and the next begins. Expect the order to hold. */
Test(control_incarnation, a_full_mailbox_keeps_the_order)
{
	join(2);
	run_ticks(5);
	unsigned before = members[0].posted_n;
	members[0].full = true;
	again(1, 2);
	run_ticks(30);
	cr_assert_eq(members[0].posted_n, before);
	members[0].full = false;
	run_ticks(30);
	static const enum mail_type want[] = {MAIL_PEER_DOWN, MAIL_PEER_RESTARTED, MAIL_PEER_UP};
	cr_assert_eq(members[0].posted_n, before + 3);
	for (int i = 0; i < 3; i++)
		cr_assert_eq(members[0].posted[before + (unsigned)i].type, want[i]);
	cr_assert(strlen(members[0].posted[before].text) > 0);
}

/* The shard reports on the incarnation before, late: that has no effect on the next one. */
Test(control_incarnation, what_the_incarnation_before_broke)
{
	join(2);
	run_ticks(5);
	struct mail broken = *mail_last(&members[0], MAIL_PEER_UP);
	cr_assert_eq(broken.worker, 1u);
	broken.type = MAIL_PROTOCOL_ERROR;
	members[0].full = true; /* the shard still has the first incarnation's peer */
	again(1, 2);
	run_ticks(30);
	known_to_all(1, 2);
	members[0].protocol_error = broken;
	members[0].poison = true;
	run_ticks(5);
	known_to_all(1, 2);
	members[0].full = false;
	run_ticks(10);
	known_to_all(1, 2);
	cr_assert_eq(mails_about(&members[0], MAIL_PEER_DOWN, 0, to(1, 0)), 1u);
	/* And what the next one breaks is. */
	members[0].protocol_error = *mail_last(&members[0], MAIL_PEER_UP);
	members[0].protocol_error.type = MAIL_PROTOCOL_ERROR;
	members[0].poison = true;
	run_ticks(5);
	cr_assert_not(row(0, 1)->alive);
}

/* It was killed and started again before anybody saw the first incarnation end. Expect its calls to end with that. */
Test(control_incarnation, an_incarnation_that_is_replaced_unseen)
{
	join(3);
	run_ticks(5);
	/* The port's news do not come, the store's do. */
	fabric.stepwise = true;
	again(2, 3);
	run_ticks(10);
	cr_assert(strstr(mail_last(&members[1], MAIL_PEER_DOWN)->text, "peer restarted"), "%s",
		  mail_last(&members[1], MAIL_PEER_DOWN)->text);
	fabric.stepwise = false;
	run_ticks(300);
	known_to_all(2, 3);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_DOWN, 0, to(2, 0)), 1u,
		     "the port's news are of the incarnation before");
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 0, to(2, 0)), 2u);
}

/* An attempt towards the first incarnation hangs; its end decides, where both attempt. Expect the next incarnation not
 * to wait. */
Test(control_incarnation, an_attempt_to_the_incarnation_before)
{
	join_lazily(3);
	fabric.stepwise = true;
	want_session(&members[2], 0, 1, 0);
	run_ticks(3);
	cr_assert_eq(mails_of(&members[2], MAIL_PEER_UP), 0u);
	again(1, 3);
	fabric.stepwise = false;
	run_ticks(10);
	ready(1);
	known_to_all(1, 3);
	cr_assert_eq(mail_last(&members[2], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	want_session(&members[1], 0, 2, 0);
	run_ticks(5);
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_UP, 0, to(2, 0)), 1u);
	cr_assert_eq(mails_about(&members[2], MAIL_PEER_UP, 0, to(1, 0)), 1u);
}

Test(control_incarnation, two_begin_again_at_once)
{
	join(4);
	run_ticks(5);
	member_end(&members[2]);
	member_end(&members[3]);
	run_ticks(3);
	start(2, 4);
	start(3, 4);
	run_ticks(400);
	for (int i = 2; i < 4; i++) {
		ready(i);
		known_to_all(i, 4);
	}
	for (int i = 2; i < 4; i++)
		cr_assert_eq(mails_about(&members[i], MAIL_PEER_UP, 0, to(5 - i, 0)), 1u);
}

/* Rank 0 collects for all: its list is of the first incarnations. */
Test(control_incarnation, in_a_large_group)
{
	for (int i = 0; i < 70; i++)
		lazy[i] = true;
	join(70);
	run_ticks(5);
	again(69, 70);
	run_ticks(30);
	ready(69);
	known_to_all(69, 70);
	for (int i = 0; i < 70; i++)
		cr_assert_eq(row(69, i)->incarnation, row(i, i)->incarnation);
	want_session(&members[69], 0, 33, 0);
	want_session(&members[12], 0, 69, 0);
	run_ticks(5);
	cr_assert_eq(mails_of(&members[69], MAIL_PEER_UP), 2u);
	leave_all(70, 10 * FAR_SEC);
	run(true);
	for (int i = 0; i < 70; i++)
		result(i, FAR_OK, "");
}

static int refused_with(void *ctx, const struct nic_event *ev)
{
	*(int *)ctx = ev->type == NIC_EVENT_UP ? 0 : ev->error;
	return 0;
}

static int send_connect(struct nic_port *rogue, const struct handshake *h)
{
	struct nic_addr at;
	uint8_t handshake[HANDSHAKE_BYTES];
	int error = 1;
	handshake_encode(h, handshake);
	members[0].port->ops->address(members[0].port, &at);
	cr_assert_eq(
		rogue->ops->connect(
			rogue, &(struct nic_connect){0, &at, 0, handshake, sizeof handshake, TIME_NEVER, NULL}, NULL),
		0);
	run_ticks(2);
	rogue->ops->step(rogue, world->now, refused_with, &error);
	return error;
}

/* Receive CONNECT of any incarnation, when there have been three. Expect the present one to be taken and no other. */
Test(control_incarnation, receive_connect_of_an_incarnation)
{
	join_lazily(2);
	uint64_t incarnations[3];
	for (int i = 0; i < 3; i++) {
		incarnations[i] = row(1, 1)->incarnation;
		if (i == 2)
			break;
		again(1, 2);
		run_ticks(20);
	}
	struct handshake h = {.group = hash64("default", 7), .world = 2, .rank = 1, .to = row(0, 0)->incarnation};
	struct nic_port *rogue = fake_port_create(&fabric, "fake", 1000);
	h.from = incarnations[1];
	cr_assert_eq(send_connect(rogue, &h), -ESTALE, "the incarnation before");
	h.from = incarnations[0];
	cr_assert_eq(send_connect(rogue, &h), -EINPROGRESS, "forgotten: the store is queried");
	run_ticks(3);
	cr_assert_eq(send_connect(rogue, &h), -ESTALE);
	h.from = 12345;
	cr_assert_eq(send_connect(rogue, &h), -EINPROGRESS);
	run_ticks(3);
	cr_assert_eq(send_connect(rogue, &h), -ESTALE);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UP), 0u);
	cr_assert(row(0, 1)->alive);
	h.to++;
	h.from = incarnations[2];
	cr_assert_eq(send_connect(rogue, &h), -ESTALE, "not for this incarnation of ours");
	h.to--;
	cr_assert_eq(send_connect(rogue, &h), -EACCES, "without its name");
	h.name = hash64(row(0, 1)->name, strlen(row(0, 1)->name));
	cr_assert_eq(send_connect(rogue, &h), 0);
	fake_port_destroy(rogue);
}

/* ---- the way out ---- */

/* Everybody leaves but the one who has just come back. Expect them to wait for it. */
Test(control_incarnation, leaving_waits_for_the_next_incarnation)
{
	join(3);
	again(2, 3);
	run_ticks(20);
	ready(2);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	run_ticks(50);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEAVING);
	/* And for another one, begun while it waits. */
	again(2, 3);
	run_ticks(50);
	ready(2);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEAVING);
	ctl_leave(members[2].ctl, 60 * FAR_SEC);
	ctl_leave(members[0].ctl, 60 * FAR_SEC);
	run(true);
	for (int i = 0; i < 3; i++)
		result(i, FAR_OK, "");
}

/* It sent bye, died, and came back: the bye of the incarnation before is not counted for this one. */
Test(control_incarnation, a_bye_of_the_incarnation_before)
{
	join(3);
	ctl_leave(members[2].ctl, 60 * FAR_SEC);
	run_ticks(20);
	again(2, 3);
	run_ticks(20);
	ready(2);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	ctl_leave(members[0].ctl, 200 * FAR_MS);
	for (int t = 0; t < 1000 && ctl_state(members[0].ctl) != CTL_LEFT; t++)
		round_robin();
	result(0, FAR_TIMEOUT, "did not come: rank 2 (worker \"w2\")");
}

/* It dies while the others leave, and cannot come back. Expect the end within the deadline, and its name. */
Test(control_incarnation, dead_while_the_others_leave)
{
	join_lazily(3);
	ctl_leave(members[0].ctl, 60 * FAR_SEC);
	ctl_leave(members[1].ctl, 60 * FAR_SEC);
	run_ticks(20);
	uint64_t from = world->now;
	again(2, 3);
	run(true);
	for (int i = 0; i < 2; i++)
		result(i, FAR_PEER_LOST, "lost before the shutdown: rank 2 (worker \"w2\")");
	cr_assert_lt(world->now, from + 3 * FAR_SEC);
	result(2, FAR_TIMEOUT, "rank 0, which hosts the store");
}
