/* SPDX-License-Identifier: BSD-3-Clause */
/* The lease of a member of a dynamic group: extended while it runs, over after silence, kept while there is no store.
 * The test's thread. */
#include "control/lease.h"
#include "fake_member.h"

#include <criterion/criterion.h>

#define LEASE (400 * FAR_MS)

static void setup(void)
{
	members_setup();
	lease_ns = LEASE;
	for (int i = 0; i < 4; i++)
		sizes[i] = FAR_WORLD_DYNAMIC;
}

TestSuite(control_lease, .init = setup, .fini = members_teardown);

static uint64_t lease_of(int i)
{
	return atomic_load(&members[i].lease);
}

/* Members come one after the other, rank 0 first. */
static void join_in_turn(int n)
{
	for (int i = 0; i < n; i++) {
		start(i, 0);
		run(false);
		ready(i);
	}
	run_ticks(5);
}

static void run_for(uint64_t ns)
{
	run_ticks((int)(ns / TICK));
}

/* Runs until member i is a member again, as another incarnation; a bound in ticks stands for "never". */
static void comes_back(int i)
{
	for (int t = 0; t < 5000 && !(members[i].renewed && lease_of(i) > world->now); t++)
		run_ticks(1);
	run_ticks(5);
	ready(i);
	cr_assert_eq(row(i, i)->incarnation, members[i].renewed);
}

Test(control_lease, is_extended_while_the_member_runs)
{
	join_in_turn(2);
	uint64_t before = lease_of(1);
	for (int i = 0; i < 20; i++) {
		run_for(LEASE / 2);
		cr_assert_gt(lease_of(1), before);
		cr_assert_gt(lease_of(1), world->now);
		cr_assert_leq(lease_of(1), world->now + LEASE);
		before = lease_of(1);
	}
	cr_assert_eq(members[1].renewed, 0u);
	/* Nobody ends the lease of rank 0 in the store that it hosts. */
	cr_assert_eq(lease_of(0), TIME_NEVER);
}

/* It stands still beyond its lease. Expect the others to lose it, and it to come back as another incarnation. */
Test(control_lease, is_over_after_silence)
{
	join_in_turn(3);
	uint64_t former = row(2, 1)->incarnation;
	members[1].frozen = true;
	run_for(lease_with_margin(LEASE) + LEASE);
	cr_assert_not(alive(2, 1));
	cr_assert_eq(row(2, 1)->lost_incarnation, former);
	cr_assert(row(2, 1)->lost_by_lease);
	members[1].frozen = false;
	run_ticks(1);
	cr_assert_eq(lease_of(1), LEASE_OVER, "the shards are to stop before anything else");
	cr_assert_eq(mails_about(&members[1], MAIL_PEER_DOWN, 0, to(2, 0)), 1u);
	comes_back(1);
	known_to_all(1, 3);
	cr_assert_neq(row(2, 1)->incarnation, former);
	const struct mail *m = mail_last(&members[1], MAIL_RENEWED);
	cr_assert_eq(m->incarnation, members[1].renewed);
}

/* It stands still for less. Expect nothing. */
Test(control_lease, outlives_a_pause)
{
	join_in_turn(2);
	members[1].frozen = true;
	run_for(LEASE / 2);
	members[1].frozen = false;
	run_for(2 * LEASE);
	cr_assert_eq(members[1].renewed, 0u);
	cr_assert(alive(0, 1));
	cr_assert_gt(lease_of(1), world->now);
}

/* Runs until the lease of member i is extended; returns the ticks. */
static int extended_after(int i)
{
	uint64_t before = lease_of(i);
	int n = 0;
	for (; lease_of(i) == before; n++)
		run_ticks(1);
	return n;
}

/* A shard has seen the end first, in the moment of a renewal. Expect the control thread to follow, and not to extend
 * that lease again. */
Test(control_lease, a_shard_may_end_it)
{
	join_in_turn(2);
	extended_after(1);
	int interval = extended_after(1);
	cr_assert_eq(extended_after(1), interval);
	run_ticks(interval - 1);
	atomic_store(&members[1].lease, LEASE_OVER);
	run_ticks(1);
	cr_assert_eq(lease_of(1), LEASE_OVER);
	cr_assert_neq(members[1].renewed, 0u);
	comes_back(1);
	known_to_all(1, 2);
}

/* Rank 0 is gone, and its host refuses connections: nobody can end the lease. Expect the members to serve on, and to
 * give the next store their records, as the same incarnations. */
Test(control_lease, goes_on_without_a_store)
{
	join_in_turn(3);
	member_end(&members[0]);
	run_for(5 * LEASE);
	for (int i = 1; i < 3; i++) {
		ready(i);
		cr_assert_gt(lease_of(i), world->now);
		cr_assert_not(alive(i, 0));
		cr_assert(alive(i, 3 - i));
	}
	start(0, 0);
	run(false);
	run_for(2 * LEASE);
	for (int i = 0; i < 3; i++)
		known_to_all(i, 3);
	cr_assert_eq(members[1].renewed + members[2].renewed, 0u);
	/* The store ends leases again. */
	members[2].frozen = true;
	run_for(lease_with_margin(LEASE) + LEASE);
	cr_assert_not(alive(1, 2));
}

/* Rank 0 hangs: it may end the lease when it runs again. Expect the member to stop by its own clock. */
Test(control_lease, is_over_when_the_store_hangs)
{
	join_in_turn(2);
	world->unacknowledged = 100; /* nor has its host received the renewals */
	members[0].frozen = true;
	run_for(LEASE + 50 * FAR_MS);
	cr_assert_eq(lease_of(1), LEASE_OVER);
	members[0].frozen = false;
	world->unacknowledged = 0;
	comes_back(1);
	known_to_all(1, 2);
}

Test(control_lease, leaves_while_it_is_over)
{
	join_in_turn(2);
	member_end(&members[0]);
	atomic_store(&members[1].lease, LEASE_OVER);
	run_ticks(5);
	ctl_leave(members[1].ctl, FAR_SEC);
	run_ticks(5);
	cr_assert_eq(ctl_state(members[1].ctl), CTL_LEFT);
	result(1, FAR_OK, "");
}

/* Rank 0 is restarted, and another worker takes a rank in the new store before its member has connected again. Then it
 * ends, or stands still until the store ends its lease. Expect the former member to come back as another incarnation:
 * the others have seen it replaced. */
static void replaced_in_a_new_store(bool ends)
{
	join_in_turn(3);
	uint64_t former = row(1, 2)->incarnation;
	member_end(&members[0]);
	run_ticks(20);
	members[2].frozen = true;
	start(0, 0);
	ranks[3] = 2;
	names[3] = names[2];
	lease_ns = FAR_LEASE_NS_MIN; /* it ends before that of the other */
	start(3, 0);
	for (int t = 0; t < 300 && ctl_state(members[3].ctl) != CTL_READY; t++)
		run_ticks(1);
	ready(3);
	members[3].frozen = true;
	if (ends)
		member_end(&members[3]);
	run_ticks(2);
	members[2].frozen = false;
	cr_assert_gt(lease_of(2), world->now + lease_with_margin(lease_ns));
	comes_back(2);
	cr_assert_neq(row(1, 2)->incarnation, former);
	cr_assert_eq(row(1, 2)->incarnation, members[2].renewed);
}

Test(control_lease, another_has_the_rank_in_a_new_store)
{
	replaced_in_a_new_store(false);
}

Test(control_lease, another_had_the_rank_in_a_new_store)
{
	replaced_in_a_new_store(true);
}

/* Another worker takes its rank while it cannot reach the store. Expect it not to take it back. */
Test(control_lease, another_has_the_rank)
{
	join_in_turn(2);
	members[1].frozen = true;
	run_for(lease_with_margin(LEASE) + LEASE);
	ranks[2] = 1;
	names[2] = "successor";
	start(2, 0);
	for (int t = 0; t < 2000 && ctl_state(members[2].ctl) != CTL_READY; t++)
		run_ticks(1);
	ready(2);
	members[1].frozen = false;
	run_for(5 * LEASE);
	cr_assert_eq(lease_of(1), LEASE_OVER);
	uint64_t tried = members[1].renewed;
	run_for(LEASE);
	cr_assert_neq(members[1].renewed, tried, "others may have seen the end of what a failed try published");
	char name[FAR_NAME_MAX];
	cr_assert_str_eq(ctl_member_name(row(0, 1), name), "successor");
	cr_assert_eq(row(0, 1)->incarnation, row(2, 1)->incarnation);
}
