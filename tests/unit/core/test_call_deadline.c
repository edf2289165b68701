/* SPDX-License-Identifier: BSD-3-Clause */
/** Deadlines of pending calls: when they pass, what the caller gets, what the peer may still send. The test's thread.
 */
#include "core/call.h"
#include "core/call_deadline.h"
#include "core/packet.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(core_call_deadline, .init = shard_setup, .fini = shard_teardown);

/* The deadline passes. Expect TIMEOUT, a CANCEL, and the slot kept until the peer's last word. */
Test(core_call_deadline, late_reply_after_the_deadline)
{
	static struct result r;
	union packet_head h = called(&r, FAR_MS), c;
	advance(FAR_MS - 1);
	cr_assert_eq(r.n, 0u);
	advance(1);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	cr_assert_not_null(fake_queue_sent(queue, &c));
	cr_assert_eq(c.type, PACKET_CANCEL);
	cr_assert_eq(c.call.slot, h.call.slot);
	cr_assert_eq(c.call.generation, h.call.generation);
	cr_assert_eq(shard->counters.calls_timed_out, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 1u);
	answer(h, PACKET_REPLY, 0, 0, "late");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(shard->counters.replies_late, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	answer(h, PACKET_REPLY, 0, 0, "later still");
	cr_assert_eq(dropped(), 1u);
}

/* The peer answers CANCELLED instead. Expect the slot free. */
Test(core_call_deadline, cancelled_after_the_deadline)
{
	static struct result r;
	union packet_head h = called(&r, 1);
	advance(1);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
}

/* Receive CANCELLED before our own timer. Expect TIMEOUT, no CANCEL. */
Test(core_call_deadline, the_callee_gives_up_first)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	advance(2 * FAR_SEC);
	cr_assert_eq(r.n, 1u);
	expect_nothing();
}

Test(core_call_deadline, deadlines_of_one_nanosecond_and_for_ever)
{
	struct result one, forever, distant;
	called(&one, 1);
	union packet_head h = called(&forever, FAR_FOREVER);
	cr_assert_eq(h.request.time_left, UINT64_MAX);
	union packet_head d = called(&distant, UINT64_C(1) << 60);
	advance(1);
	cr_assert_eq(one.n, 1u);
	for (int i = 0; i < 100; i++)
		advance(UINT64_C(3600) * FAR_SEC);
	cr_assert_eq(forever.n, 0u);
	cr_assert_eq(distant.n, 0u);
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(forever.status, FAR_OK);
	advance(UINT64_C(1) << 60);
	cr_assert_eq(distant.status, FAR_TIMEOUT);
	(void)d;
}

static unsigned armed(void)
{
	return shard->call_wheel.armed_n;
}

/* A call whose deadline is far. Expect no timer before it has been pending for a while. */
Test(core_call_deadline, a_timer_is_armed_late)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	cr_assert_eq(armed(), 0u);
	call_stamp(shard, now_ns);
	cr_assert_eq(armed(), 0u);
	call_stamp(shard, now_ns + CALL_NEAR_NS / 2 - 1);
	cr_assert_eq(armed(), 0u);
	call_stamp(shard, now_ns + CALL_NEAR_NS / 2);
	cr_assert_eq(armed(), 1u);
	advance(FAR_SEC - 1);
	cr_assert_eq(r.n, 0u);
	advance(1);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	answer(h, PACKET_CANCELLED, 0, 0, "");
}

/* Before a sleep. Expect all of them armed but one that waits for ever, and none that was answered. */
Test(core_call_deadline, all_are_armed_before_a_sleep)
{
	static struct result r[4];
	union packet_head h[4];
	for (unsigned i = 0; i < 4; i++)
		h[i] = called(&r[i], i == 3 ? FAR_FOREVER : FAR_SEC);
	call_stamp(shard, now_ns);
	answer(h[1], PACKET_REPLY, 0, 0, "");
	call_arm_all(shard, now_ns);
	cr_assert_eq(armed(), 2u);
	call_arm_all(shard, now_ns);
	cr_assert_eq(armed(), 2u);
	answer(h[0], PACKET_REPLY, 0, 0, "");
	answer(h[2], PACKET_REPLY, 0, 0, "");
	cr_assert_eq(armed(), 0u);
	answer(h[3], PACKET_REPLY, 0, 0, "");
}

/* A call of the fast path notes its time left. Expect its deadline from the next reading of the clock on; a slot that
 * is used again meanwhile is listed once. */
Test(core_call_deadline, a_time_left_becomes_a_deadline)
{
	static struct result r[2];
	answer(called(&r[0], FAR_SEC), PACKET_REPLY, 0, 0, "");
	uint32_t young = shard->young_n;
	union packet_head h = called(&r[1], FAR_SEC);
	struct call *c = &shard->calls[h.call.slot];
	cr_assert_eq(shard->young_n, young, "it has the slot of the first");
	c->timer.at = FAR_SEC | CALL_UNSTAMPED;
	now_ns += 3 * FAR_SEC;
	call_stamp(shard, now_ns);
	cr_assert_eq(c->timer.at, now_ns + FAR_SEC);
	cr_assert_eq(shard->young_n, 0u);
	advance(FAR_SEC - 1);
	cr_assert_eq(r[1].n, 0u);
	advance(1);
	cr_assert_eq(r[1].status, FAR_TIMEOUT);
	cr_assert(strstr(r[1].bytes, "no answer to "), "%s", r[1].bytes);
	answer(h, PACKET_CANCELLED, 0, 0, "");
}

/* More calls than the ring of pending ones wraps at. Expect each deadline to pass, in order. */
Test(core_call_deadline, the_ring_of_pending_calls_wraps)
{
	static struct result r;
	shard->aging_first = shard->calls_n - 1;
	for (unsigned i = 0; i < 3; i++) {
		union packet_head h = called(&r, FAR_SEC), cancel;
		call_stamp(shard, now_ns);
		const struct aging_call *last = &shard->aging[(shard->calls_n - 1 + i) % shard->calls_n];
		cr_assert(last->slot == h.call.slot && last->since == now_ns, "%u", i);
		advance(FAR_SEC);
		cr_assert_eq(r.status, FAR_TIMEOUT, "%u", i);
		fake_queue_sent(queue, &cancel);
		answer(h, PACKET_CANCELLED, 0, 0, "");
	}
	cr_assert_eq(shard->aging_n, 0u);
	cr_assert_eq(shard->counters.calls_timed_out, 3u);
}
