/* SPDX-License-Identifier: BSD-3-Clause */
/** Sessions that end, and what is pending then. The test's thread. */
#include "core/call.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "shard_fixture.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_session, .init = shard_setup, .fini = shard_teardown);

/* ---- sessions ---- */

/* DOWN with everything pending: calls, an ended one, open requests, a cached answer, paused requests. */
Test(core_session, session_down_with_everything_pending)
{
	static struct result r[3];
	static char body[100];
	for (int i = 0; i < 3; i++)
		called(&r[i], i == 0 ? 1 : FAR_FOREVER);
	advance(1);
	put_request(MSG_DEFER, 1, NULL, 0);
	put(NIC_PEER, request(MSG_DEFER, 2, FAR_SEC), NULL, 0);
	passes(1);
	queue->no_bulk = true;
	put_request(MSG_BIG, 3, NULL, 0);
	put_request(MSG_ECHO, 4, body, sizeof body);
	put_request(MSG_ECHO, 5, "x", 1);
	passes(1);
	cr_assert_eq(shard->sessions[PEER].paused_n, 2u);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_not(queue->attached[NIC_PEER]);
	cr_assert_eq(r[0].n, 1u);
	for (int i = 1; i < 3; i++) {
		cr_assert_eq(r[i].n, 1u);
		cr_assert_eq(r[i].status, FAR_PEER_LOST);
		cr_assert_eq(r[i].executed, FAR_EXECUTED_MAYBE);
	}
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	cr_assert(posted(MAIL_DETACHED));
	cr_assert_eq(shard->backpressured_n, 0u);
	/* The application learns it when it answers. */
	cr_assert_eq(far_deferred_reply(kept[0], "x", 1), FAR_CANCELLED);
	cr_assert_eq(far_deferred_reply(kept[1], "x", 1), FAR_CANCELLED);
	passes(1);
	struct result after;
	cr_assert_eq(call(&after, FAR_SEC, NULL, 0), -EPIPE);
	/* The other session is untouched. */
	put(NIC_OTHER, request(MSG_ECHO, 9, UINT64_MAX), NULL, 0);
	passes(1);
	cr_assert_eq(shard->sessions[OTHER].state, SESSION_UP);
}

/* DOWN while answers are still in the ring. Expect them to count. */
Test(core_session, answers_that_came_before_the_end_count)
{
	struct result r;
	union packet_head h = called(&r, FAR_SEC);
	put(NIC_PEER,
	    (union packet_head){.call = {.type = PACKET_REPLY, .slot = h.call.slot, .generation = h.call.generation}},
	    "ok", 2);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
}

/* PEER dies with everything under way, and is started again. Expect nothing of the first incarnation in the second:
 * neither calls, requests, numbers of functions, nor what is answered late. */
Test(core_session, another_incarnation)
{
	struct result r[2], after;
	for (int incarnation = 0; incarnation < 3; incarnation++) {
		kept_n = 0;
		called(&r[0], FAR_FOREVER);
		union packet_head late = called(&r[1], FAR_FOREVER);
		put_request(MSG_DEFER, 1, NULL, 0);
		passes(1);
		session_learn(shard, &shard->sessions[PEER], 3, 6);
		cr_assert_eq(session_functions(shard, &shard->sessions[PEER])[3], 7u);
		queue->no_bulk = true;
		put_request(MSG_BIG, 3, NULL, 0);
		put_request(MSG_ECHO, 5, "x", 1);
		passes(1);
		cr_assert_eq(shard->sessions[PEER].paused_n, 1u);
		mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
		queue->no_bulk = false;
		for (int i = 0; i < 2; i++) {
			cr_assert_eq(r[i].n, 1u);
			cr_assert_eq(r[i].status, FAR_PEER_LOST);
			cr_assert_eq(r[i].executed, FAR_EXECUTED_MAYBE);
		}
		cr_assert(posted(MAIL_DETACHED));
		cr_assert_eq(call(&after, FAR_SEC, NULL, 0), -EPIPE);
		mail(MAIL_PEER_UP, PEER, NIC_PEER);
		cr_assert_eq(shard->sessions[PEER].state, SESSION_DEAD, "the other incarnation was not reported to it");
		mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
		mail(MAIL_PEER_UP, PEER, NIC_PEER);
		cr_assert_eq(session_functions(shard, &shard->sessions[PEER])[3], 0u);
		while (fake_queue_sent(queue, &(union packet_head){0}))
			;
		/* Late: an answer of ours to the first incarnation, its answer to a call of ours. */
		cr_assert_eq(far_deferred_reply(kept[0], "x", 1), FAR_CANCELLED);
		uint64_t before = dropped();
		put(NIC_PEER,
		    (union packet_head){
			    .call = {.type = PACKET_REPLY, .slot = late.call.slot, .generation = late.call.generation}},
		    "no", 2);
		passes(1);
		cr_assert_eq(dropped(), before + 1);
		expect_nothing();
		/* It works, from the beginning. */
		union packet_head h = called(&after, FAR_SEC);
		answer(h, PACKET_REPLY, 0, 0, "yes");
		cr_assert_eq(after.status, FAR_OK);
		put_request(MSG_ECHO, 1, "again", 5);
		passes(1);
		expect_reply(1, "again", 5);
		cr_assert_eq(shard->sessions[PEER].calls_active, 0u);
	}
}

/* A DOWN and a PROBE of PEER's former incarnation arrive while the next one is up under the same handle. Expect
 * nothing. */
Test(core_session, late_mail_about_a_former_incarnation)
{
	struct result r;
	union packet_head h;
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert(posted(MAIL_DETACHED));
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	called(&r, FAR_FOREVER);
	static const enum mail_type late[] = {MAIL_PROBE, MAIL_PEER_DOWN};
	for (size_t i = 0; i < sizeof late / sizeof *late; i++) {
		struct mail m = {.type = late[i], .worker = PEER, .peer = NIC_PEER, .incarnation = 5};
		cr_assert(mailbox_put(&shard->mail_in, &m));
	}
	shard_take_mail(shard);
	cr_assert_eq(shard->sessions[PEER].state, SESSION_UP);
	cr_assert_eq(r.n, 0u);
	cr_assert_not(posted(MAIL_DETACHED));
	cr_assert_not(fake_queue_sent(queue, &h), "the PROBE was answered");
	/* That of its own incarnation ends it. */
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_PEER_LOST);
}

/* The control thread does not read its mail while a session ends and the next incarnation is there. Expect the end to
 * be reported for the former peer, before any event of the next one, and errors of the first not to count for the
 * second. */
Test(core_session, another_incarnation_waits_until_the_end_is_reported)
{
	struct mail filler = {.type = MAIL_PROBE, .worker = OTHER}, m;
	struct result r;
	while (mailbox_put(&shard->mail_out, &filler))
		;
	called(&r, FAR_FOREVER);
	session_protocol_error(shard, &shard->sessions[PEER]);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(r.n, 1u);
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER + 2);
	cr_assert_eq(shard->sessions[PEER].state, SESSION_DEAD);
	while (mailbox_get(&shard->mail_out, &m) && m.type == MAIL_PROBE)
		;
	shard_take_mail(shard);
	cr_assert_eq(shard->sessions[PEER].state, SESSION_UP);
	cr_assert_eq(shard->sessions[PEER].peer, NIC_PEER + 2u);
	cr_assert(mailbox_get(&shard->mail_out, &m));
	cr_assert_eq(m.type, MAIL_DETACHED);
	cr_assert_eq(m.peer, (uint32_t)NIC_PEER);
	cr_assert_not(mailbox_get(&shard->mail_out, &m));
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER + 2);
	cr_assert(mailbox_get(&shard->mail_out, &m));
	cr_assert_eq(m.type, MAIL_DETACHED);
}

/* A handler of the first incarnation ends in the second, whose caller uses the same number. Expect the second's to be
 * its own.
 */
Test(core_session, a_repeated_call_of_the_incarnation_before)
{
	struct packet_retry trailer = {.seq = 1, .floor = 1};
	union packet_head h = request(MSG_DEFER, 1, UINT64_MAX);
	h.flags |= PACKET_RETRY;
	put(NIC_PEER, h, &trailer, sizeof trailer);
	passes(1);
	cr_assert_eq(kept_n, 1u);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert(posted(MAIL_DETACHED));
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	put(NIC_PEER, h, &trailer, sizeof trailer);
	passes(1);
	cr_assert_eq(kept_n, 2u, "it runs: it is another call");
	cr_assert_eq(far_deferred_reply(kept[0], "old", 3), FAR_CANCELLED);
	passes(1);
	expect_nothing();
	/* A repeat of the second's says nothing while it runs, and gets the answer afterwards. */
	put(NIC_PEER, h, &trailer, sizeof trailer);
	passes(1);
	expect_nothing();
	cr_assert_eq(far_deferred_reply(kept[1], "new", 3), FAR_OK);
	passes(1);
	expect_reply(1, "new", 3);
	cr_assert_eq(kept_n, 2u);
}

Test(core_session, down_of_another_peer_is_ignored)
{
	mail(MAIL_PEER_DOWN, PEER, NIC_OTHER);
	mail(MAIL_PEER_DOWN, 3, 7);
	cr_assert_eq(shard->sessions[PEER].state, SESSION_UP);
	cr_assert_not(posted(MAIL_DETACHED));
}

Test(core_session, stopping_fails_what_is_pending)
{
	struct result r;
	called(&r, FAR_FOREVER);
	session_close_all(shard);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_SHUTDOWN);
}

static unsigned restarts;

static void call_again(void *user, const struct completion *o)
{
	struct call_start start = {
		.worker = PEER, .fn = 1, .deadline = now_ns + 1, .left = 1, .done = call_again, .user = user};
	if (++restarts < 5)
		shard_call(shard, &start);
}

/* A callback starts the next call, also when the session is going down. Expect an end. */
Test(core_session, callbacks_may_call)
{
	call_again(NULL, NULL);
	advance(1);
	advance(1);
	cr_assert_eq(restarts, 3u);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	cr_assert_eq(restarts, 4u);
}

/* The control thread's mail was still in the box when the shard ended. */
Test(core_session, none_opens_after_the_end)
{
	session_close_all(shard);
	mail(MAIL_PEER_UP, 3, 7);
	cr_assert_not(queue->attached[7]);
	cr_assert_neq(shard->sessions[session_index(shard, 3, 0)].state, SESSION_UP);
	put(7, request(MSG_ECHO, 1, UINT64_MAX), "hi", 2);
	passes(1);
	expect_nothing();
	cr_assert_eq(ran, 0u);
}
