/* SPDX-License-Identifier: BSD-3-Clause */
/** The lease of a worker as its shard keeps it: what ends when it has run out. The test's thread. */
#include "base/limits.h"
#include "core/lease.h"
#include "core/loop.h"
#include "core/session.h"
#include "shard_fixture.h"
#include "sync/mailbox.h"

#include <criterion/criterion.h>
#include <string.h>

enum { LEASE_NS = 10000000 };

static _Atomic uint64_t until;
static struct result r;

static void setup(void)
{
	shard_setup();
	atomic_store(&until, now_ns + LEASE_NS);
	shard->config.lease = &until;
	ctl_wakes = 0;
	memset(&r, 0, sizeof r);
}

/* The timer of the lease looks once more, and ends. */
static void teardown(void)
{
	atomic_store(&until, LEASE_OVER);
	advance(2 * LEASE_NS);
	shard_teardown();
}

TestSuite(core_lease, .init = setup, .fini = teardown);

static bool up(uint32_t worker)
{
	return shard->sessions[session_index(shard, worker, 0)].state == SESSION_UP;
}

static void expect_over(void)
{
	cr_assert(shard->evicted);
	cr_assert(!up(PEER) && !up(OTHER));
	cr_assert_eq(atomic_load(&until), LEASE_OVER, "for the other shards and the control thread, too");
	cr_assert_geq(ctl_wakes, 1u);
}

/* By the timer alone. Expect nothing before the end, then every session and call ended. */
Test(core_lease, its_end_ends_the_sessions)
{
	lease_watch(shard);
	cr_assert_eq(call(&r, FAR_FOREVER, "hello", 5), 0);
	advance(LEASE_NS - 200000);
	cr_assert(up(PEER) && up(OTHER) && !shard->evicted);
	cr_assert_eq(r.n, 0u);
	advance(400000);
	expect_over();
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	cr_assert(strstr(r.bytes, "the lease of this worker has run out"), "%s", r.bytes);
}

/* The control thread extends it. Expect the timer to follow, any number of times. */
Test(core_lease, extended_in_time)
{
	lease_watch(shard);
	lease_watch(shard); /* of each session that begins: one timer */
	for (unsigned i = 0; i < 5; i++) {
		advance(LEASE_NS - 200000);
		atomic_store(&until, now_ns + LEASE_NS);
	}
	cr_assert(up(PEER) && up(OTHER) && !shard->evicted);
	advance(LEASE_NS + 400000);
	expect_over();
}

/* The shard stood still over the end. Expect the first look to find it, before any timer. */
Test(core_lease, a_pause_over_the_end)
{
	lease_watch(shard);
	now_ns += LEASE_NS - 1;
	cr_assert_not(lease_is_over(shard));
	now_ns += 1;
	cr_assert(lease_is_over(shard));
	expect_over();
	unsigned wakes = ctl_wakes;
	cr_assert(lease_is_over(shard));
	cr_assert_eq(ctl_wakes, wakes, "once");
}

/* Another shard has seen its end. Expect that to count, whatever the clock of this one shows. */
Test(core_lease, over_for_all)
{
	atomic_store(&until, LEASE_OVER);
	cr_assert(lease_is_over(shard));
	expect_over();
}

/* Mail of the control thread opens a session. Expect none until the worker is a member again. */
Test(core_lease, nothing_opens_before_it_is_renewed)
{
	now_ns += LEASE_NS;
	cr_assert(lease_is_over(shard));
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	cr_assert_not(up(PEER));
	put_request(MSG_ECHO, 1, "hi", 2);
	passes(1);
	cr_assert_eq(ran, 0u);
	atomic_store(&until, now_ns + LEASE_NS);
	lease_renew(shard, 1234);
	cr_assert_not(shard->evicted);
	cr_assert_eq(shard->config.incarnation, 1234u);
	mail(MAIL_PEER_RESTARTED, OTHER, NIC_OTHER);
	mail(MAIL_PEER_UP, OTHER, NIC_OTHER);
	cr_assert(up(OTHER));
}

/* A static group. Expect no timer, and no end. */
Test(core_lease, without_one)
{
	shard->config.lease = NULL;
	lease_watch(shard);
	cr_assert_null(shard->lease_timer.timer.at_prev);
	now_ns += UINT64_C(1) << 60;
	cr_assert_not(lease_is_over(shard));
	atomic_store(&until, TIME_NEVER);
	shard->config.lease = &until;
	lease_watch(shard);
	cr_assert_null(shard->lease_timer.timer.at_prev, "not joined yet");
	cr_assert_not(lease_is_over(shard));
}
