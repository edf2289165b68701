/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that may be repeated: what the callee makes of each number, and what repeats do to everything else.
 * The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/deferred.h"
#include "core/packet.h"
#include "core/session.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

enum { MS = 1000000 };

TestSuite(retry, .init = shard_setup, .fini = shard_teardown);

/* A request of number `seq`; the call's slot is named after it. */
static void put_numbered(uint16_t fn, uint64_t seq, uint64_t floor, const void *body, size_t len)
{
	uint8_t bytes[512];
	struct packet_retry trailer = {.seq = seq, .floor = floor};
	union packet_head h = request(fn, (uint32_t)seq, UINT64_MAX);
	h.flags = PACKET_RETRY;
	if (len)
		memcpy(bytes, body, len);
	memcpy(bytes + len, &trailer, sizeof trailer);
	put(NIC_PEER, h, bytes, len + sizeof trailer);
}

static int call_repeated(struct result *r, uint64_t timeout, uint64_t retry_ns)
{
	struct call_start start = {.worker = PEER,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .retry_ns = retry_ns,
				   .done = take_result,
				   .user = r,
				   .id = &r->id,
				   .data = "hello",
				   .len = 5};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

/* ---- the callee ---- */

Test(retry, a_repeat_gets_the_same_answer)
{
	for (unsigned i = 0; i < 3; i++) {
		put_numbered(MSG_ECHO, 1, 1, "hi", 2);
		passes(2);
		expect_reply(1, "hi", 2);
	}
	cr_assert_eq(ran, 1u);
	cr_assert_eq(shard->counters.requests_duplicate, 2u);
}

Test(retry, a_repeat_of_a_running_one_says_nothing)
{
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(2);
	expect_nothing();
	cr_assert_eq(kept_n, 1u);
	far_deferred_reply(kept[0], "yes", 3);
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(2);
	expect_reply(1, "yes", 3);
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(2);
	expect_reply(1, "yes", 3);
	expect_nothing();
}

Test(retry, below_the_floor_nothing_is_said)
{
	for (uint64_t seq = 1; seq <= 3; seq++)
		put_numbered(MSG_ECHO, seq, seq, "hi", 2);
	passes(2);
	for (uint32_t seq = 1; seq <= 3; seq++)
		expect_reply(seq, "hi", 2);
	put_numbered(MSG_ECHO, 1, 1, "hi", 2);
	passes(2);
	expect_nothing();
	cr_assert_eq(ran, 3u);
}

/* Receive numbers that cannot be. Expect PROTOCOL, and nothing run. */
Test(retry, numbers_out_of_the_window)
{
	static const struct packet_retry bad[] = {
		{.seq = 0, .floor = 0},          {.seq = 5, .floor = 0},
		{.seq = 4, .floor = 5},          {.seq = 5 + FAR_RETRY_WINDOW, .floor = 5},
		{.seq = UINT64_MAX, .floor = 1},
	};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		put_numbered(MSG_ECHO, bad[i].seq, bad[i].floor, "hi", 2);
		passes(2);
		expect_error((uint32_t)bad[i].seq, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	}
	union packet_head h = request(MSG_ECHO, 9, UINT64_MAX);
	h.flags = PACKET_RETRY;
	put(NIC_PEER, h, "short", 5);
	passes(2);
	expect_error(9, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	cr_assert_eq(ran, 0u);
	/* The largest numbers there are. */
	put_numbered(MSG_ECHO, UINT64_MAX, UINT64_MAX, "hi", 2);
	passes(2);
	expect_reply(UINT32_MAX, "hi", 2);
	put_numbered(MSG_ECHO, 1, 1, "hi", 2);
	passes(2);
	expect_nothing();
}

Test(retry, a_cancelled_one_stays_cancelled)
{
	union packet_head h;
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(1);
	put_cancel(1);
	passes(1);
	expect(&h, PACKET_CANCELLED, 1);
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(2);
	expect(&h, PACKET_CANCELLED, 1);
	cr_assert_eq(far_deferred_reply(kept[0], "late", 4), FAR_CANCELLED);
	passes(2);
	expect_nothing();
	cr_assert_eq(kept_n, 1u);
}

Test(retry, the_peer_goes_while_one_runs)
{
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	put_numbered(MSG_ECHO, 2, 1, "hi", 2);
	passes(2);
	expect_reply(2, "hi", 2);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(far_deferred_reply(kept[0], "late", 4), FAR_CANCELLED);
	passes(2);
	expect_nothing();
}

/* A caller that is notified that a call did not run must not find that its repeat, on the way already, did. */
Test(retry, what_cannot_be_admitted_is_left_to_its_repeat)
{
	struct far_deferred *free_ones = shard->deferred_free;
	shard->deferred_free = NULL;
	put_numbered(MSG_ECHO, 1, 1, "hi", 2);
	passes(2);
	expect_nothing();
	shard->deferred_free = free_ones;
	struct packet_retry trailer = {.seq = 2, .floor = 1};
	union packet_head h = request(MSG_ECHO, 2, 0);
	h.flags = PACKET_RETRY;
	put(NIC_PEER, h, &trailer, sizeof trailer);
	passes(2);
	expect_nothing();
	cr_assert_eq(ran, 0u);
	put_numbered(MSG_ECHO, 1, 1, "hi", 2);
	put_numbered(MSG_ECHO, 2, 1, "hi", 2);
	passes(2);
	expect_reply(1, "hi", 2);
	expect_reply(2, "hi", 2);
	cr_assert_eq(ran, 2u);
}

/* ---- blocked sessions ---- */

static void block(void)
{
	queue->no_bulk = true;
	put_request(MSG_BIG, 999, NULL, 0);
	passes(1);
	cr_assert(shard->sessions[PEER].backpressured);
	ran = 0;
}

static void unblock(void)
{
	union packet_head h;
	queue->no_bulk = false;
	passes(2);
	expect(&h, PACKET_REPLY, 999);
}

/* Repeats have no credit: paused beside the first ones they would be more than there may be. */
Test(retry, repeats_of_paused_ones_take_no_place)
{
	enum { N = 200 };
	block();
	for (unsigned round = 0; round < 4; round++) {
		for (uint64_t seq = 1; seq <= N; seq++)
			put_numbered(MSG_ECHO, seq, 1, "hi", 2);
		passes(20);
	}
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(shard->sessions[PEER].paused_n, (uint32_t)N);
	cr_assert_eq(shard->counters.requests_duplicate, 3u * N);
	unblock();
	for (uint32_t seq = 1; seq <= N; seq++)
		expect_reply(seq, "hi", 2);
	expect_nothing();
	cr_assert_eq(ran, (unsigned)N);
}

Test(retry, repeats_of_running_ones_are_not_paused)
{
	put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(1);
	block();
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX + 1; i++)
		put_numbered(MSG_DEFER, 1, 1, NULL, 0);
	passes(20);
	cr_assert_not(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(shard->sessions[PEER].paused_n, 0u);
	far_deferred_reply(kept[0], "yes", 3);
	passes(2);
	expect_nothing();
	unblock();
	expect_reply(1, "yes", 3);
}

/* ---- the caller ---- */

Test(retry, repeats_carry_the_same_number_and_go_on_until_the_answer)
{
	struct result r;
	union packet_head first, h;
	struct packet_retry a, b;
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, MS), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &first);
	cr_assert(p && first.flags & PACKET_RETRY);
	memcpy(&a, (const uint8_t *)fake_body(p) + 5, sizeof a);
	for (unsigned i = 0; i < 5; i++) {
		advance((uint64_t)100 * MS);
		p = fake_queue_sent(queue, &h);
		cr_assert_not_null(p);
		cr_assert_eq(h.type, PACKET_REQUEST);
		cr_assert(h.call.slot == first.call.slot && h.call.generation == first.call.generation &&
			  h.flags == first.flags && h.request.handler == first.request.handler);
		cr_assert_eq(p->body_len, 5 + sizeof b);
		memcpy(&b, (const uint8_t *)fake_body(p) + 5, sizeof b);
		cr_assert_eq(memcmp(&a, &b, sizeof a), 0);
		expect_nothing();
	}
	answer(first, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
	advance((uint64_t)1000 * MS);
	expect_nothing();
	answer(first, PACKET_REPLY, 0, PACKET_RETRY, "fine"); /* to a repeat */
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(dropped(), 0u);
}

/* A repeat without time left would be refused as not run, though the first may be running. */
Test(retry, no_repeat_at_the_deadline)
{
	struct result r;
	union packet_head h;
	cr_assert_eq(call_repeated(&r, MS + MS / 2, MS), 0);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	advance(2 * MS);
	cr_assert_eq(r.status, FAR_TIMEOUT);
	cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.type, PACKET_CANCEL, "type %d was sent", h.type);
	expect_nothing();
	/* The cancel is what is repeated then. */
	advance((uint64_t)10 * MS);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.type, PACKET_CANCEL);
	cr_assert(h.flags & PACKET_RETRY);
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(shard->counters.calls_sent, shard->counters.calls_ended);
	cr_assert_eq(r.n, 1u);
}

Test(retry, no_repeat_without_room_to_spare)
{
	struct result r;
	union packet_head h;
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, MS), 0);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	queue->no_slots = true; /* and tx_room() reports it */
	advance((uint64_t)10 * MS);
	expect_nothing();
	queue->no_slots = false;
	advance((uint64_t)10 * MS);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(shard->counters.calls_retried, 1u);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.status, FAR_OK);
}

/* The oldest one is still open: the window ends before it. */
Test(retry, the_window_is_bounded)
{
	struct result oldest, r;
	union packet_head first, h;
	struct packet_retry trailer;
	cr_assert_eq(call_repeated(&oldest, FAR_FOREVER, FAR_SEC), 0);
	cr_assert_not_null(fake_queue_sent(queue, &first));
	for (unsigned i = 1; i < FAR_RETRY_WINDOW; i++) {
		cr_assert_eq(call_repeated(&r, FAR_FOREVER, FAR_SEC), 0);
		cr_assert_not_null(fake_queue_sent(queue, &h));
		answer(h, PACKET_REPLY, 0, 0, "fine");
	}
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, FAR_SEC), -EAGAIN);
	cr_assert_eq(call(&r, FAR_FOREVER, "hello", 5), 0, "others go on");
	cr_assert_not_null(fake_queue_sent(queue, &h));
	answer(h, PACKET_REPLY, 0, 0, "fine");
	answer(first, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, FAR_SEC), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	memcpy(&trailer, (const uint8_t *)fake_body(p) + 5, sizeof trailer);
	cr_assert_eq(trailer.seq, FAR_RETRY_WINDOW + 1);
	cr_assert_eq(trailer.floor, FAR_RETRY_WINDOW + 1);
	answer(h, PACKET_REPLY, 0, 0, "fine");
}

/* What could not be sent has no number and leaves nothing. */
Test(retry, a_call_that_was_not_sent)
{
	struct result r;
	union packet_head h;
	struct packet_retry trailer;
	queue->no_slots = true;
	cr_assert_neq(call_repeated(&r, FAR_FOREVER, MS), 0);
	queue->no_slots = false;
	queue->commit_error = -EAGAIN;
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, MS), -EAGAIN);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
	cr_assert_eq(call_repeated(&r, FAR_FOREVER, MS), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	memcpy(&trailer, (const uint8_t *)fake_body(p) + 5, sizeof trailer);
	cr_assert(trailer.seq == 1 && trailer.floor == 1);
	answer(h, PACKET_REPLY, 0, 0, "fine");
}

/* Pending, ended, and the peer goes. */
Test(retry, a_lost_peer_ends_them_once)
{
	struct result r[3];
	for (unsigned i = 0; i < 3; i++)
		cr_assert_eq(call_repeated(&r[i], i == 1 ? MS : FAR_FOREVER, 10 * MS), 0);
	cr_assert(call_cancel(shard, &r[2].id));
	advance(2 * MS);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert(r[0].n == 1 && r[0].status == FAR_PEER_LOST && r[0].executed == FAR_EXECUTED_MAYBE);
	cr_assert(r[1].n == 1 && r[1].status == FAR_TIMEOUT);
	cr_assert(r[2].n == 1 && r[2].status == FAR_CANCELLED);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
	cr_assert_eq(shard->sessions[PEER].retry_caller, NULL);
}
