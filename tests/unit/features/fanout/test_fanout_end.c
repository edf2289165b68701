/* SPDX-License-Identifier: BSD-3-Clause */
/** The end of a fan-out: what is under way is cancelled, what waits is not sent, and late answers find nothing. The
 * test's thread. */
#include "core/call_cancel.h"
#include "fanout_fixture.h"
#include "features/features.h"

TestSuite(fanout_end, .init = shard_setup, .fini = shard_teardown);

Test(fanout_end, k_answers_cancel_the_rest_and_late_ones_find_nothing)
{
	union packet_head calls[TARGETS];
	launch(make(false, 2, 1000000, 0));
	all_sent(calls);
	reply_from(NIC_OTHER, &calls[1], "b", 1);
	reply_from(NIC_OTHER, &calls[3], "d", 1);
	cr_assert_eq(end.n, 1);
	cr_assert_eq(end.status, FAR_OK);
	cancelled(&calls[0]);
	cancelled(&calls[2]);
	expect_nothing();
	cr_assert_eq(results[0].status, FAR_CANCELLED);
	cr_assert_eq(results[0].executed, FAR_EXECUTED_MAYBE);
	/* One crossed the cancel, and one comes twice. */
	reply_from(NIC_PEER, &calls[0], "late", 4);
	last_word(NIC_PEER, &calls[2]);
	cr_assert(untouched(0) && untouched(2));
	cr_assert_eq(end.n, 1);
	uint64_t before = dropped();
	reply_from(NIC_OTHER, &calls[1], "again", 5);
	cr_assert_eq(dropped(), before + 1);
	cr_assert_eq(slices[1][1], 0xa5);
}

Test(fanout_end, the_deadline_ends_those_that_wait_too)
{
	static struct result held[FAR_SESSION_CALLS_MAX];
	static union packet_head full[FAR_SESSION_CALLS_MAX];
	union packet_head calls[TARGETS];
	for (int i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		full[i] = called(&held[i], UINT64_C(3600000000000));
	struct fanout *fo = make(false, TARGETS, 5000000, 0);
	fo->partial = true;
	launch(fo);
	calls[1] = sent(NIC_OTHER);
	calls[3] = sent(NIC_OTHER);
	reply_from(NIC_OTHER, &calls[1], "b", 1);
	advance(4999999);
	cr_assert_eq(end.n, 0);
	advance(1);
	cr_assert_eq(end.n, 1);
	cr_assert_eq(end.status, FAR_OK);
	cancelled(&calls[3]);
	cr_assert_eq(results[0].status, FAR_TIMEOUT);
	cr_assert_eq(results[0].executed, FAR_EXECUTED_NO);
	cr_assert_eq(results[3].status, FAR_TIMEOUT);
	cr_assert_eq(results[3].executed, FAR_EXECUTED_MAYBE);
	last_word(NIC_OTHER, &calls[3]);
	for (int i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		reply_from(NIC_PEER, &full[i], "", 0);
}

Test(fanout_end, cancelled_by_its_future)
{
	union packet_head calls[TARGETS];
	struct fanout *fo = make(false, TARGETS, 100000000, 0);
	struct far_future *f = fo->future;
	launch(fo);
	all_sent(calls);
	cr_assert(call_cancel_future(shard, f));
	cr_assert_eq(end.status, FAR_CANCELLED);
	cr_assert(!call_cancel_future(shard, f));
	for (int i = 0; i < TARGETS; i++) {
		cancelled(&calls[i]);
		last_word(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i]);
	}
}

/* The agent ends. Expect each target with that, run or not, its calls cancelled, and the deadline's timer gone. */
Test(fanout_end, at_the_end_of_the_agent)
{
	union packet_head calls[TARGETS];
	struct fanout *fo = make(false, TARGETS, 100000000, 0);
	launch(fo);
	all_sent(calls);
	reply_from(NIC_PEER, &calls[0], "a", 1);
	fanout_conclude(fo, true, FAR_SHUTDOWN);
	cr_assert(end.n == 1 && end.status == FAR_SHUTDOWN && end.executed == FAR_EXECUTED_MAYBE);
	cr_assert_eq(results[0].status, FAR_OK);
	for (int i = 1; i < TARGETS; i++) {
		cr_assert(results[i].status == FAR_SHUTDOWN && results[i].executed == FAR_EXECUTED_MAYBE);
		cr_assert(strstr(results[i].text, FANOUT_STOPPED), "%s", results[i].text);
		cancelled(&calls[i]);
		last_word(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i]);
	}
	cr_assert_null(shard->state[FEATURE_FANOUT]);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
}

/* A failure ends the rest before its deadline, and after it. Expect what was not needed cancelled, what was late timed
 * out, and the failure's status for the future. */
Test(fanout_end, the_rest_after_a_failure)
{
	for (unsigned late = 0; late < 2; late++) {
		union packet_head calls[TARGETS];
		struct fanout *fo = make(false, TARGETS, 100000000, 0);
		launch(fo);
		all_sent(calls);
		now_ns += late ? 100000000 : 0;
		error_from(NIC_OTHER, &calls[1], FAR_REMOTE, FAR_EXECUTED_YES);
		cr_assert(end.n == 1 && end.status == FAR_REMOTE);
		for (int i = 0; i < TARGETS; i++) {
			if (i == 1)
				continue;
			cr_assert_eq(results[i].status, late ? FAR_TIMEOUT : FAR_CANCELLED, "late %u", late);
			cancelled(&calls[i]);
			last_word(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i]);
		}
	}
}
