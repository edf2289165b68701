/* SPDX-License-Identifier: BSD-3-Clause */
/** Members with several ports: which way a session takes, and what is reported. The test's thread. */
#include "fake_member.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

TestSuite(control_route, .init = members_setup, .fini = members_teardown);

static const struct ctl_route *way(int seen_by, int rank)
{
	const struct ctl_route *r = ctl_members(members[seen_by].ctl, NULL)[rank].route;
	cr_assert_not_null(r);
	return r;
}

static void has(const char *text, const char *part)
{
	cr_assert(strstr(text, part), "\"%s\" lacks \"%s\"", text, part);
}

/* The port of the session between i's shard and rank's. */
static unsigned port_of(int i, int rank)
{
	for (unsigned m = 0; m < members[i].posted_n; m++)
		if (members[i].posted[m].type == MAIL_PEER_UP && members[i].posted[m].worker == (uint32_t)rank)
			return members[i].posted[m].port;
	cr_assert_fail("no session of %d with %d", i, rank);
	return 0;
}

static void start_two(const char *zero, const char *one)
{
	drivers[0] = zero;
	drivers[1] = one;
	start(0, 2);
	start(1, 2);
	run(false);
}

static void ready_two(const char *zero, const char *one)
{
	start_two(zero, one);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(ctl_state(members[i].ctl), CTL_READY, "%s", members[i].err.text);
}

Test(control_route, the_best_that_both_have)
{
	ready_two("fake,other", "fake,other");
	for (int i = 0; i < 2; i++) {
		cr_assert_str_eq(way(i, !i)->nic, "fake");
		cr_assert_eq(port_of(i, !i), 0u);
	}
	has(way(1, 0)->why, "fake is the best that both have");
	has(way(1, 0)->address, "fake ");
	has(way(0, 0)->why, "sessions of a worker with itself");
}

Test(control_route, what_only_one_has_is_passed_over)
{
	ready_two("fake,other", "other");
	cr_assert_str_eq(way(0, 1)->nic, "other");
	cr_assert_str_eq(way(1, 0)->nic, "other");
	cr_assert_eq(port_of(0, 1), 1u);
	cr_assert_eq(port_of(1, 0), 0u);
	cr_assert_eq(port_of(0, 0), 0u);
	has(way(0, 1)->why, "fake: the other side has none");
	cr_assert_eq(fabric.connects[0], 1u, "to itself");
}

Test(control_route, what_is_out_of_reach_is_passed_over)
{
	fabric.unreachable_driver = "fake";
	ready_two("fake,other", "fake,other");
	cr_assert_str_eq(way(0, 1)->nic, "other");
	cr_assert_str_eq(way(1, 0)->nic, "other");
	has(way(1, 0)->why, "other is the best that is left: fake: ");
	has(way(1, 0)->why, "is out of reach");
	cr_assert_eq(port_of(0, 0), 0u, "no check whether oneself is in reach");
}

/* Who connects decides, also where the two see it differently. */
Test(control_route, both_sides_agree)
{
	ready_two("fake,other", "other,fake");
	cr_assert_str_eq(way(0, 1)->nic, "other");
	cr_assert_str_eq(way(1, 0)->nic, "other");
	cr_assert_eq(port_of(0, 1), 1u);
	cr_assert_eq(port_of(1, 0), 0u);
	cr_assert_eq(fake_port_peers(members[0].ports[1]), 1u);
	cr_assert_eq(fake_port_peers(members[0].ports[0]), 1u, "itself");
}

Test(control_route, out_of_reach_from_one_side_only)
{
	fabric.unreachable = 2; /* member 1, as member 0 sees it, who does not connect */
	ready_two("fake,other", "fake,other");
	cr_assert_str_eq(way(0, 1)->nic, "fake");
	cr_assert_str_eq(way(1, 0)->nic, "fake");
	has(way(0, 1)->why, "the other side connected by it");
}

Test(control_route, a_set_up_that_fails_is_tried_elsewhere)
{
	static const int errors[] = {-ETIMEDOUT, -ECONNREFUSED, -EACCES, -ENOENT};
	for (size_t e = 0; e < sizeof errors / sizeof *errors; e++) {
		fabric.deaf_driver = "other";
		fabric.deaf = errors[e];
		ready_two("other,fake,+fake", "other,fake,+fake");
		cr_assert_str_eq(way(1, 0)->nic, "fake");
		cr_assert_str_eq(way(0, 1)->nic, "fake");
		has(way(1, 0)->why, strerror(-errors[e]));
		for (int i = 0; i < 2; i++)
			member_end(&members[i]);
		fake_world_destroy(world);
		world = fake_world_create();
	}
}

Test(control_route, nothing_in_common)
{
	start_two("fake", "other");
	for (int i = 0; i < 2; i++) {
		result(i, FAR_UNREACHABLE, "no NIC driver is shared: ");
		has(members[i].err.text, "fake 1");
		has(members[i].err.text, "other");
		has(members[i].err.text, "worker \"w0\"");
		has(members[i].err.text, "worker \"w1\"");
	}
}

Test(control_route, nothing_leads_there)
{
	fabric.unreachable_driver = "fake";
	start_two("fake", "fake");
	for (int i = 0; i < 2; i++) {
		result(i, FAR_UNREACHABLE, "no NIC leads there: ");
		has(members[i].err.text, "fake 2 on one side, fake 1 on the other");
		has(members[i].err.text, "fake: 1 is out of reach");
	}
}

/* Either may see the cable that is pulled, and either may give up first: both are notified of it. */
Test(control_route, a_dead_cable_is_named_by_who_cannot_join)
{
	uint64_t first = incarnation;
	for (unsigned who = 1; who <= 2; who++) {
		incarnation = first;
		fabric.mute = true;
		fabric.remarkable = who;
		start_two("fake", "fake");
		for (int i = 0; i < 2; i++) {
			result(i, FAR_TIMEOUT, "no session within ");
			has(members[i].err.text,
			    who == 1 ? "fake: the link of 1 is down" : "fake: the link of 2 is down");
			member_end(&members[i]);
		}
		fake_world_destroy(world);
		world = fake_world_create();
	}
}

Test(control_route, many_long_addresses_are_cut)
{
	fabric.unreachable_driver = "fake";
	incarnation = UINT64_C(0xffffffffffffff00);
	start_two("fake,fake,fake,fake", "fake,fake,fake,fake");
	for (int i = 0; i < 2; i++) {
		result(i, FAR_UNREACHABLE, "no NIC leads there: ");
		cr_assert_lt(strlen(members[i].err.text), (size_t)FAR_ERR_TEXT_MAX);
	}
}

/* A port of the member's own is not published, and nobody else's session is there. */
Test(control_route, sessions_with_oneself)
{
	shards[0] = 2;
	ready_two("other,+fake", "other,+fake");
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(port_of(i, i), 1u);
		cr_assert_eq(port_of(i, !i), 0u);
		cr_assert_str_eq(way(i, i)->nic, "fake");
		cr_assert_str_eq(way(i, !i)->nic, "other");
	}
	cr_assert_eq(fake_port_peers(members[0].ports[1]), 4u);
	cr_assert_eq(fake_port_peers(members[1].ports[1]), 1u);
	cr_assert_eq(fake_port_peers(members[1].ports[0]), 2u);
}

/* ---- on demand ---- */

static void ready_lazily(const char *zero, const char *one)
{
	lazy[0] = true;
	ready_two(zero, one);
	cr_assert_eq(fabric.connects[0] + fabric.connects[1], 0u);
}

Test(control_route, what_is_expected_before_there_is_a_session)
{
	fabric.unreachable_driver = "fake";
	ready_lazily("fake,other", "fake,other");
	cr_assert_str_eq(way(0, 1)->nic, "other");
	has(way(0, 1)->why, "out of reach");
}

Test(control_route, the_next_way_after_a_failure)
{
	ready_lazily("fake,other", "fake,other");
	fabric.deaf_driver = "fake";
	fabric.deaf = -ETIMEDOUT;
	want_session(&members[0], 0, 1, 0);
	uint64_t from = world->now;
	run_ticks(10);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), 1u);
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UNREACHABLE), 0u);
		cr_assert_eq(port_of(i, !i), 1u);
		cr_assert_str_eq(way(i, !i)->nic, "other");
	}
	has(way(0, 1)->why, strerror(ETIMEDOUT));
	/* One way is not given all the time while there is another; the last is. */
	cr_assert_lt(fabric.deadline[0], from + FAR_CONNECT_TIMEOUT_NS / 2);
	cr_assert_geq(fabric.deadline[1], from + FAR_CONNECT_TIMEOUT_NS);
}

Test(control_route, the_next_way_after_a_refusal_at_once)
{
	ready_lazily("fake,other", "fake,other");
	fabric.refuse_driver = "fake";
	fabric.refuse = fabric.refuse_next = -EMFILE;
	want_session(&members[0], 0, 1, 0);
	run_ticks(10);
	cr_assert_eq(port_of(0, 1), 1u);
	has(way(0, 1)->why, strerror(EMFILE));
}

/* The first says that nobody is there: the others have little time to say otherwise. */
Test(control_route, gone_is_believed_when_no_way_is_left)
{
	ready_lazily("fake,other", "fake,other");
	fabric.deaf_driver = "fake";
	fabric.deaf = -ECONNREFUSED;
	fabric.refuse_driver = "other";
	fabric.refuse = fabric.refuse_next = -ETIMEDOUT;
	uint64_t from = world->now;
	want_session(&members[0], 0, 1, 0);
	run_ticks(1);
	cr_assert_leq(fabric.deadline[1], from + 10 * TICK + FAR_SEC);
	/* It holds its rank: it is there, and tried again. */
	run_ticks(30);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE), 0u);
	cr_assert_gt(fabric.connects[1], 1u);
	cr_assert(ctl_members(members[0].ctl, NULL)[1].alive);
	member_end(&members[1]);
	run_ticks(10);
	cr_assert_eq(mails_of(&members[0], MAIL_PEER_UNREACHABLE), 1u);
	cr_assert_eq(mail_last(&members[0], MAIL_PEER_UNREACHABLE)->status, FAR_PEER_LOST);
	cr_assert(!ctl_members(members[0].ctl, NULL)[1].alive);
}

Test(control_route, no_way_is_left)
{
	ready_lazily("fake,other", "fake,other");
	fabric.deaf_driver = "fake";
	fabric.deaf = -ETIMEDOUT;
	fabric.refuse_driver = "other";
	fabric.refuse = -EMFILE;
	want_session(&members[0], 0, 1, 0);
	run_ticks(10);
	const struct mail *m = mail_last(&members[0], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->status, FAR_UNREACHABLE);
	has(m->text, strerror(ETIMEDOUT));
	has(m->text, strerror(EMFILE));
	/* Another request begins with the best path again. */
	fabric.deaf_driver = NULL;
	want_session(&members[0], 0, 1, 0);
	run_ticks(10);
	cr_assert_eq(port_of(0, 1), 0u);
	has(way(0, 1)->why, "the best that both have");
}

/* Both begin at once and each by a way of its own: one session comes of it. */
Test(control_route, both_at_once)
{
	ready_lazily("fake,other", "other,fake");
	want_session(&members[0], 0, 1, 0);
	want_session(&members[1], 0, 0, 0);
	run_ticks(50);
	for (int i = 0; i < 2; i++)
		cr_assert_eq(mails_of(&members[i], MAIL_PEER_UP), 1u);
	cr_assert_str_eq(way(0, 1)->nic, way(1, 0)->nic);
	cr_assert_eq(fake_port_peers(members[0].ports[0]) + fake_port_peers(members[0].ports[1]), 1u);
	cr_assert_eq(fake_port_peers(members[1].ports[0]) + fake_port_peers(members[1].ports[1]), 1u);
}

Test(control_route, reported_by_the_call)
{
	fabric.unreachable_driver = "other";
	ready_lazily("other", "other");
	want_session(&members[0], 0, 1, 0);
	run_ticks(5);
	const struct mail *m = mail_last(&members[0], MAIL_PEER_UNREACHABLE);
	cr_assert_eq(m->status, FAR_UNREACHABLE);
	has(m->text, "no NIC leads there: other 1 on one side, other 2 on the other: other: 2 is out of reach");
}
