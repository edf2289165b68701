/* SPDX-License-Identifier: BSD-3-Clause */
/** Fan-outs on a shard: answers made by hand, a clock that the test moves, and peers that lie. The test's thread. */
#include "fanout_fixture.h"
#include "value/encoding.h"

#include <stdio.h>
#include <string.h>

TestSuite(fanout, .init = shard_setup, .fini = shard_teardown);

Test(fanout, replies_in_any_order_fill_their_slices)
{
	union packet_head calls[TARGETS];
	launch(make(false, TARGETS, 1000000, 0));
	all_sent(calls);
	for (int i = TARGETS; i-- > 0;) {
		cr_assert_eq(end.n, 0);
		char text[CAP + 1];
		snprintf(text, sizeof text, "answer %c", '0' + i);
		reply_from(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i], text, CAP);
	}
	cr_assert_eq(end.n, 1);
	cr_assert_eq(end.status, FAR_OK);
	for (int i = 0; i < TARGETS; i++) {
		cr_assert_eq(results[i].status, FAR_OK);
		cr_assert_eq(slices[i][7], '0' + i);
		cr_assert_eq(slices[i][CAP], 0xa5);
	}
	struct far_val v;
	size_t n;
	cr_assert_eq(values_read(end.bytes, end.len, &v, 1, &n, NULL), 0);
	cr_assert(v.type == FAR_TYPE_INT && v.u.i == TARGETS);
	cr_assert_null(shard->state[FEATURE_FANOUT]);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
}

Test(fanout, one_byte_beyond_the_slice_is_refused_and_not_written)
{
	union packet_head calls[TARGETS];
	struct fanout *fo = make(false, TARGETS, 1000000, 0);
	fo->errors = FAR_ERRORS_COLLECT;
	launch(fo);
	all_sent(calls);
	reply_from(NIC_PEER, &calls[0], "123456789", CAP + 1);
	cr_assert_eq(results[0].status, FAR_TOO_LARGE);
	cr_assert_eq(results[0].len, CAP + 1);
	cr_assert_eq(results[0].executed, FAR_EXECUTED_YES);
	cr_assert(untouched(0));
	for (int i = 1; i < TARGETS; i++)
		reply_from(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i], "", 0);
	cr_assert_eq(end.status, FAR_TOO_LARGE);
	cr_assert(strstr(end.bytes, "1 of 4 targets failed"), "%s", end.bytes);
}

/* Typed answers that lie about their type, shape or length. */
Test(fanout, malformed_values_are_refused)
{
	static const uint8_t bad[TARGETS][8] = {
		{0x01, 0x06, 0x11, 0x00, 0xff, 0xff, 0x03, 0}, /* a tensor of 65535 elements in no bytes */
		{0x01, 0x04, 0x7f, 'x', 0},                    /* a string that is longer than the answer */
		{0x02, 0x00, 0x00},                            /* two values */
		{0x01, 0x3f},                                  /* no such type */
	};
	union packet_head calls[TARGETS];
	struct fanout *fo = make(true, TARGETS, 1000000, 0);
	struct call_start request = {.fn = FN, .data = "\0", .len = 1};
	fo->errors = FAR_ERRORS_COLLECT;
	fanout_begin(fo);
	for (uint32_t i = 0; i < TARGETS; i++)
		fanout_launch(fo, i, &request, true);
	fanout_launched(fo);
	all_sent(calls);
	for (int i = 0; i < TARGETS; i++) {
		reply_from(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i], bad[i], 8);
		cr_assert_eq(results[i].status, FAR_PROTOCOL);
		cr_assert(untouched(i));
	}
	cr_assert_eq(end.status, FAR_PROTOCOL);
}

Test(fanout, no_room_waits_for_its_worker_only)
{
	static struct result held[FAR_SESSION_CALLS_MAX];
	static union packet_head full[FAR_SESSION_CALLS_MAX];
	union packet_head calls[TARGETS], h;
	for (int i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		full[i] = called(&held[i], UINT64_C(3600000000000));
	launch(make(false, TARGETS, 100000000, 0));
	calls[1] = sent(NIC_OTHER);
	calls[3] = sent(NIC_OTHER);
	expect_nothing();
	reply_from(NIC_OTHER, &calls[1], "b", 1);
	expect_nothing(); /* room at another worker is of no use */
	reply_from(NIC_OTHER, &calls[3], "d", 1);
	/* Room that other calls leave is found by the timer, one call for each. */
	reply_from(NIC_PEER, &full[0], "", 0);
	expect_nothing();
	advance(1000000);
	calls[0] = sent(NIC_PEER);
	expect_nothing();
	advance(1000000);
	expect_nothing();
	/* Room that its own answer leaves is used at once. */
	reply_from(NIC_PEER, &calls[0], "a", 1);
	calls[2] = sent(NIC_PEER);
	cr_assert_eq(end.n, 0);
	reply_from(NIC_PEER, &calls[2], "c", 1);
	cr_assert_eq(end.status, FAR_OK);
	cr_assert_eq(slices[2][0], 'c');
	for (int i = 1; i < FAR_SESSION_CALLS_MAX; i++)
		reply_from(NIC_PEER, &full[i], "", 0);
	cr_assert_null(fake_queue_sent(queue, &h));
}

Test(fanout, hedges_go_out_on_time_and_the_first_answer_counts)
{
	union packet_head calls[TARGETS], second[TARGETS];
	launch(make(false, TARGETS, 100000000, 3000000));
	all_sent(calls);
	reply_from(NIC_PEER, &calls[0], "a", 1);
	advance(2999999);
	expect_nothing();
	advance(1);
	second[1] = sent(NIC_PEER);
	second[2] = sent(NIC_OTHER);
	second[3] = sent(NIC_PEER);
	expect_nothing();
	cr_assert(!results[0].hedged && results[1].hedged);
	/* The second wins, the first wins, the second fails and the first goes on. */
	reply_from(NIC_PEER, &second[1], "B", 1);
	cancelled(&calls[1]);
	reply_from(NIC_PEER, &calls[2], "c", 1);
	cancelled(&second[2]);
	error_from(NIC_PEER, &second[3], FAR_RESOURCE, FAR_EXECUTED_NO);
	cr_assert_eq(results[3].status, FAR_PENDING);
	reply_from(NIC_OTHER, &calls[3], "d", 1);
	cr_assert_eq(end.status, FAR_OK);
	cr_assert_eq(slices[1][0], 'B');
	cr_assert(results[1].from.worker == PEER && results[2].from.worker == PEER && results[3].from.worker == OTHER);
	cr_assert_eq(shard->counters.hedges_sent, 3);
	cr_assert_eq(shard->counters.hedges_won, 1);
	last_word(NIC_OTHER, &calls[1]);
	last_word(NIC_OTHER, &second[2]);
}

Test(fanout, a_failure_before_the_function_ran_calls_the_second_at_once)
{
	union packet_head calls[TARGETS], second;
	launch(make(false, 1, 100000000, 50000000));
	all_sent(calls);
	error_from(NIC_PEER, &calls[0], FAR_RESOURCE, FAR_EXECUTED_NO);
	second = sent(NIC_OTHER);
	cr_assert_eq(results[0].status, FAR_PENDING);
	/* The function's own error is an answer: no other target is called. */
	error_from(NIC_OTHER, &calls[1], FAR_REMOTE, FAR_EXECUTED_YES);
	expect_nothing();
	cr_assert_eq(results[1].status, FAR_REMOTE);
	reply_from(NIC_OTHER, &second, "x", 1);
	cr_assert_eq(end.status, FAR_OK);
	cr_assert(results[0].hedged && results[0].from.worker == OTHER);
	for (int i = 2; i < TARGETS; i++) {
		cancelled(&calls[i]);
		last_word(i % 2 ? NIC_OTHER : NIC_PEER, &calls[i]);
	}
}

Test(fanout, a_session_that_ends_fails_its_targets)
{
	union packet_head calls[TARGETS];
	struct fanout *fo = make(false, TARGETS, 100000000, 0);
	fo->errors = FAR_ERRORS_COLLECT;
	launch(fo);
	all_sent(calls);
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	cr_assert_eq(end.n, 0);
	cr_assert_eq(results[1].status, FAR_PEER_LOST);
	cr_assert_eq(results[1].executed, FAR_EXECUTED_MAYBE);
	reply_from(NIC_PEER, &calls[0], "a", 1);
	reply_from(NIC_PEER, &calls[2], "c", 1);
	cr_assert_eq(end.status, FAR_PEER_LOST);
	cr_assert_eq(end.origin, OTHER);
	cr_assert_eq(end.executed, FAR_EXECUTED_MAYBE);
}
