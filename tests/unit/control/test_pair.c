/* SPDX-License-Identifier: BSD-3-Clause */
/* Pairs of shards: their table, and the end of their sessions. The test's thread. */
#include "control/group.h"
#include "fake_member.h"

#include <criterion/criterion.h>

TestSuite(control_pair, .init = members_setup, .fini = members_teardown);

Test(control_pair, death_of_a_peer_after_ready)
{
	join(3);
	member_end(&members[2]);
	run_ticks(10);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(ctl_state(members[i].ctl), CTL_READY);
		cr_assert_not(ctl_members(members[i].ctl, NULL)[2].alive);
		cr_assert(ctl_members(members[i].ctl, NULL)[1 - i].alive);
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_DOWN), 1);
		/* DETACHED has come back, and the port's peer is gone. */
		cr_assert_eq(fake_port_peers(members[i].port), 2);
	}
}

Test(control_pair, poisoned_peer_is_taken_down)
{
	join(2);
	for (unsigned k = 0; k < members[0].posted_n; k++) {
		if (members[0].posted[k].worker == 1)
			members[0].protocol_error = members[0].posted[k];
	}
	members[0].protocol_error.type = MAIL_PROTOCOL_ERROR;
	members[0].poison = true;
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 1);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 1);
	cr_assert_eq(fake_port_peers(members[0].port), 1);
	cr_assert_not(ctl_members(members[1].ctl, NULL)[0].alive);
}

Test(control_pair, death_of_a_peer_while_joining)
{
	for (int i = 0; i < 3; i++)
		start(i, 3);
	/* Member 1 has its sessions, but its shard takes no mail: it is not ready. */
	members[1].full = true;
	run_ticks(50);
	member_end(&members[2]);
	run(false);
	result(1, FAR_PEER_LOST, "worker \"w2\" (rank 2) was lost while joining");
}

Test(control_pair, death_ends_the_sessions_of_all_shards)
{
	shards[0] = 2;
	shards[1] = 3;
	join(2);
	member_end(&members[1]);
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 6u);
	cr_assert_eq(fake_port_peers(members[0].port), 4u, "its own, of two shards");
	cr_assert_not(alive(0, 1));
	cr_assert(alive(0, 0));
}

Test(control_pair, poison_of_one_session_takes_the_worker_down)
{
	shards[0] = shards[1] = 2;
	join(2);
	for (unsigned k = 0; k < members[0].posted_n; k++)
		if (members[0].posted[k].worker == 1 && members[0].posted_to[k] == 0)
			members[0].protocol_error = members[0].posted[k];
	members[0].protocol_error.type = MAIL_PROTOCOL_ERROR;
	members[0].poison = true;
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_DOWN), 4u);
	cr_assert_eq(mails_of(&members[1], MAIL_PEER_DOWN), 4u);
	cr_assert_not(alive(1, 0));
}

/* ---- the table ---- */

/* A group of two by hand: rank 0 is this worker, with one port. */
static struct group g;
static struct peer peers[2];
static struct ctl_member rows[2];
static struct nic_port *port;

static void group_begin(void)
{
	port = fake_port_create(&fabric, "fake", 1);
	g = (struct group){.phase = PHASE_READY, .url = {.rank = 0, .world = 2}};
	g.config.ports = &port;
	g.config.ports_n = 1;
	g.config.shards = 2;
	g.members = rows;
	g.peers = peers;
	for (int r = 0; r < 2; r++) {
		peers[r] = (struct peer){.group = &g, .rank = r};
		rows[r].name = "w";
		rows[r].shards = 2;
	}
}

static void group_end(void)
{
	session_free(&g);
	cr_assert(!peers[0].pairs && !peers[1].pairs && !peers[1].retired && !g.ports[0].by_peer);
	fake_port_destroy(port);
}

Test(control_pair, is_made_once)
{
	group_begin();
	cr_assert_null(pair_find(&peers[1], 0, 1));
	struct pair *p = pair_get(&peers[1], 0, 1);
	cr_assert_eq(pair_get(&peers[1], 0, 1), p);
	cr_assert_eq(pair_find(&peers[1], 0, 1), p);
	cr_assert_null(pair_find(&peers[1], 1, 0));
	cr_assert_null(pair_find(&peers[0], 0, 1));
	cr_assert(p->state == PAIR_NONE && p->handle == NIC_PEER_NONE && p->peer == &peers[1]);
	/* The higher rank wins, and of one worker the higher shard. */
	cr_assert_not(pair_is_higher(p));
	cr_assert(pair_is_higher(pair_get(&peers[0], 1, 0)));
	cr_assert_not(pair_is_higher(pair_get(&peers[0], 0, 1)));
	group_end();
}

Test(control_pair, is_found_by_its_handle)
{
	group_begin();
	struct pair *p = pair_get(&peers[1], 0, 0), *q = pair_get(&peers[1], 1, 0);
	cr_assert_null(pair_of_handle(&g, 0, 0));
	cr_assert(pair_register(&g.ports[0], 3, p));
	cr_assert(pair_register(&g.ports[0], 100, q));
	cr_assert_eq(pair_of_handle(&g, 0, 3), p);
	cr_assert_eq(pair_of_handle(&g, 0, 100), q);
	for (uint32_t h = 0; h < 300; h++)
		cr_assert(h == 3 || h == 100 || !pair_of_handle(&g, 0, h), "%u", (unsigned)h);
	cr_assert_null(pair_of_handle(&g, 1, 3), "there is no such port");
	group_end();
}

/* A shard waits for it. Expect the error once, with the text of the last failure. */
Test(control_pair, unreachable)
{
	group_begin();
	struct pair *p = pair_get(&peers[1], 0, 0);
	pair_unreachable(p, FAR_UNREACHABLE, "nobody waits");
	cr_assert_not(p->queued);
	p->requested = true;
	pair_unreachable(p, FAR_UNREACHABLE, "no route");
	cr_assert(p->queued && p->due_unreachable && !p->requested && p->state == PAIR_NONE);
	cr_assert_str_eq(p->text, "no route");
	p->requested = true;
	pair_unreachable(p, FAR_PEER_LOST, "it is gone");
	cr_assert(p->state == PAIR_DEAD && p->status == FAR_PEER_LOST);
	cr_assert_str_eq(p->text, "it is gone");
	group_end();
}

/* Between two shards of this worker one pair makes the attempt for both. */
Test(control_pair, both_shards_are_notified)
{
	group_begin();
	struct pair *p = pair_get(&peers[0], 1, 0), *other = pair_get(&peers[0], 0, 1);
	p->requested = other->requested = true;
	pair_unreachable(p, FAR_UNREACHABLE, "no room");
	cr_assert(other->due_unreachable && !other->requested);
	cr_assert_str_eq(other->text, "no room");
	group_end();
}

/* Another incarnation. Expect a fresh pair, and the former one to stay until port and shard have released it. */
Test(control_pair, restarted)
{
	group_begin();
	struct pair *p = pair_get(&peers[1], 0, 0), *unused = pair_get(&peers[1], 1, 0);
	p->state = PAIR_DEAD;
	p->attempt = true;
	peers[1].up_n = 1;
	peer_restarted(&peers[1]);
	cr_assert_eq(peers[1].up_n, 0);
	struct pair *fresh = pair_find(&peers[1], 0, 0);
	cr_assert(fresh && fresh != p && fresh->state == PAIR_NONE);
	cr_assert(fresh->due_restarted && fresh->queued);
	cr_assert_eq(peers[1].retired, p, "the other one is released already");
	cr_assert_neq(pair_find(&peers[1], 1, 0), unused);
	pair_free_if_unused(p);
	cr_assert_eq(peers[1].retired, p);
	p->attempt = false;
	pair_free_if_unused(p);
	cr_assert_null(peers[1].retired);
	group_end();
}

/* The session has ended, the membership has not. Expect the shard's state to be known to the next pair. */
Test(control_pair, disconnected)
{
	group_begin();
	struct pair *p = pair_get(&peers[1], 0, 0);
	p->state = PAIR_UP;
	p->up_posted = true;
	peers[1].up_n = 1;
	cr_assert(pair_disconnect(p, "silence"));
	cr_assert_eq(peers[1].up_n, 0);
	cr_assert(p->is_retired && p->state == PAIR_DEAD && p->due_down && p->status == FAR_UNREACHABLE);
	cr_assert_str_eq(p->text, "silence");
	struct pair *fresh = pair_find(&peers[1], 0, 0);
	cr_assert(fresh && fresh->leftover && fresh->state == PAIR_NONE);
	/* The member dies: the shard is notified of what the former session left. */
	peer_lost(&peers[1], "its process is gone");
	cr_assert(fresh->state == PAIR_DEAD && fresh->due_unreachable && fresh->status == FAR_PEER_LOST);
	cr_assert_eq(rows[1].alive, 0);
	cr_assert(peers[1].dead);
	group_end();
}
