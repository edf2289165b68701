/* SPDX-License-Identifier: BSD-3-Clause */
/** Answers that come later: deferred, cancelled. The test's thread. */
#include "core/deferred.h"
#include "core/packet.h"
#include "core/session.h"
#include "shard_fixture.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_deferred, .init = shard_setup, .fini = shard_teardown);

/* ---- deferred ---- */

Test(core_deferred, deferred_is_answered_later)
{
	put_request(MSG_DEFER, 3, NULL, 0);
	passes(3);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 1u);
	cr_assert_eq(far_deferred_reply(kept[0], "later", 5), FAR_OK);
	passes(1);
	expect_reply(3, "later", 5);
	cr_assert_eq(shard->counters.requests_active, 0u);
}

Test(core_deferred, deferred_answers_leave_in_their_order)
{
	for (uint32_t i = 0; i < 10; i++)
		put_request(MSG_DEFER, i, NULL, 0);
	passes(1);
	for (int i = 9; i >= 0; i--)
		far_deferred_reply(kept[i], &i, sizeof i);
	passes(1);
	for (int i = 9; i >= 0; i--)
		expect_reply((uint32_t)i, &i, sizeof i);
}

Test(core_deferred, deferred_dropped_in_the_handler)
{
	put_request(MSG_DROP, 3, NULL, 0);
	passes(1);
	expect_error(3, FAR_REMOTE, FAR_EXECUTED_YES, "dropped the request");
}

Test(core_deferred, deferred_failed)
{
	put_request(MSG_DEFER, 3, NULL, 0);
	passes(1);
	cr_assert_eq(far_deferred_fail(kept[0], FAR_REMOTE, 5, "number %d", 17), FAR_OK);
	passes(1);
	expect_error(3, FAR_REMOTE, FAR_EXECUTED_YES, "number 17");
}

Test(core_deferred, deferred_message_answered_with_a_value)
{
	struct far_val v = far_int(1);
	put_request(MSG_DEFER, 3, NULL, 0);
	passes(1);
	far_deferred_return(kept[0], &v);
	passes(1);
	expect_error(3, FAR_INVALID, FAR_EXECUTED_YES, "far_deferred_reply");
}

Test(core_deferred, deferred_answer_too_large)
{
	static char large[FAR_MESSAGE_LIMIT_MIN + 1];
	shard->sessions[PEER].message_max = FAR_MESSAGE_LIMIT_MIN;
	put_request(MSG_DEFER, 3, NULL, 0);
	passes(1);
	cr_assert_eq(far_deferred_reply(kept[0], large, sizeof large), FAR_TOO_LARGE);
	passes(1);
	expect_error(3, FAR_TOO_LARGE, FAR_EXECUTED_YES, "larger");
}

/* The caller's deadline passes while the request is open. Expect CANCELLED, and the late answer dropped. */
Test(core_deferred, deferred_answered_after_the_deadline)
{
	union packet_head h;
	put(NIC_PEER, request(MSG_DEFER, 3, FAR_MS), NULL, 0);
	passes(1);
	advance(FAR_MS - 1);
	expect_nothing();
	advance(1);
	expect(&h, PACKET_CANCELLED, 3);
	cr_assert_eq(executed_of(&h), (unsigned)FAR_EXECUTED_MAYBE);
	cr_assert_eq(far_deferred_reply(kept[0], "late", 4), FAR_CANCELLED);
	passes(1);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 0u);
}

/* ---- cancel ---- */

/* Receive CANCEL for an open request. Expect CANCELLED once. */
Test(core_deferred, cancel_of_an_open_request)
{
	union packet_head h;
	put_request(MSG_DEFER, 3, NULL, 0);
	put_cancel(3);
	put_cancel(3);
	passes(1);
	expect(&h, PACKET_CANCELLED, 3);
	expect_nothing();
	cr_assert_eq(far_deferred_reply(kept[0], "x", 1), FAR_CANCELLED);
	passes(1);
	expect_nothing();
}

/* Receive CANCEL for what was answered, or never was. Expect nothing: the answer is on its way. */
Test(core_deferred, cancel_of_nothing)
{
	put_request(MSG_ECHO, 3, NULL, 0);
	put_cancel(3);
	put_cancel(77);
	passes(1);
	expect_reply(3, "", 0);
	expect_nothing();
}

/* Receive CANCEL with the right slot and another generation of it. Expect nothing. */
Test(core_deferred, cancel_of_another_generation)
{
	put_request(MSG_DEFER, 3, NULL, 0);
	put(NIC_PEER, (union packet_head){.call = {.type = PACKET_CANCEL, .slot = 3, .generation = 104}}, NULL, 0);
	put(NIC_OTHER, (union packet_head){.call = {.type = PACKET_CANCEL, .slot = 3, .generation = 103}}, NULL, 0);
	passes(1);
	expect_nothing();
	cr_assert_eq(far_deferred_reply(kept[0], "x", 1), FAR_OK);
	passes(1);
	expect_reply(3, "x", 1);
}

/* The application answers, and a CANCEL comes before the shard has seen it. Expect one packet. */
Test(core_deferred, cancel_crosses_the_answer)
{
	union packet_head h;
	put_request(MSG_DEFER, 3, NULL, 0);
	passes(1);
	cr_assert_eq(far_deferred_reply(kept[0], "x", 1), FAR_OK);
	put_cancel(3);
	passes(2);
	expect(&h, PACKET_CANCELLED, 3);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_active, 0u);
}

/* ---- the deferred pool ---- */

/* Every record is used, and again: none is handed out twice, and the one too many is refused. */
Test(core_deferred, deferred_records_are_bounded)
{
	static struct far_deferred *d[FAR_DEFERRED];
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < FAR_DEFERRED; i++) {
			struct session *se = &shard->sessions[i / FAR_SESSION_CALLS_MAX];
			se->worker = i / FAR_SESSION_CALLS_MAX;
			d[i] = deferred_alloc(shard, se, i, i, NULL, false);
			cr_assert_not_null(d[i]);
			cr_assert_eq(d[i]->call, i);
		}
		cr_assert_null(deferred_alloc(shard, &shard->sessions[WORLD - 1], 0, 0, NULL, false));
		for (uint32_t i = 0; i < FAR_DEFERRED; i++)
			cr_assert_eq(d[i]->call, i);
		for (uint32_t i = 0; i < FAR_DEFERRED; i++)
			deferred_free(shard, d[round == 1 ? FAR_DEFERRED - 1 - i : i]);
	}
}

/* Receive more open REQUESTs than credits. Expect the peer reported. */
Test(core_deferred, open_requests_are_bounded_by_credits)
{
	struct session *se = &shard->sessions[PEER];
	struct far_deferred *d[FAR_SESSION_REQUESTS_MAX];
	for (uint32_t i = 0; i < FAR_SESSION_REQUESTS_MAX; i++)
		cr_assert_not_null(d[i] = deferred_alloc(shard, se, i, i, NULL, false));
	cr_assert_null(deferred_alloc(shard, se, 0, 0, NULL, false));
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
	for (uint32_t i = 0; i < FAR_SESSION_REQUESTS_MAX; i++)
		deferred_free(shard, d[i]);
}

/* As above, given back before all are used. */
Test(core_deferred, deferred_records_grow_after_reuse)
{
	struct session *se = &shard->sessions[PEER];
	static struct far_deferred *d[200];
	for (uint32_t n = 1; n < 200; n++) {
		for (uint32_t i = 0; i < n; i++) {
			d[i] = deferred_alloc(shard, se, i, n, NULL, false);
			cr_assert_not_null(d[i]);
		}
		for (uint32_t i = 0; i < n; i++)
			cr_assert_eq(d[i]->call, i);
		for (uint32_t i = 0; i < n; i++)
			deferred_free(shard, d[i]);
	}
}
