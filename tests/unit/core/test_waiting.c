/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls that wait, for their session to be set up or for a credit of it. The test's thread. */
#include "core/call.h"
#include "core/call_cancel.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <stdio.h>
#include <string.h>

TestSuite(core_waiting, .init = shard_setup, .fini = shard_teardown);

enum { FAR_ONE = 3, FAR_SHARD = 2, NIC_FAR_ONE = 7 };

static int call_far(struct result *r, uint64_t timeout, const void *data, size_t len)
{
	struct call_start start = {.worker = FAR_ONE,
				   .shard = FAR_SHARD,
				   .fn = MSG_ECHO,
				   .deadline = timeout == FAR_FOREVER ? TIME_NEVER : now_ns + timeout,
				   .left = timeout,
				   .done = take_result,
				   .user = r,
				   .id = &r->id,
				   .data = data,
				   .len = len};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

static struct session *far_session(void)
{
	return &shard->sessions[session_index(shard, FAR_ONE, FAR_SHARD)];
}

/* Number of session requests to the control thread; empties its mail. */
static unsigned connects(void)
{
	struct mail m;
	unsigned n = 0;
	while (mailbox_get(&shard->mail_out, &m)) {
		cr_assert_eq(m.type, MAIL_CONNECT);
		cr_assert_eq(m.worker, (uint32_t)FAR_ONE);
		cr_assert_eq(m.shard, FAR_SHARD);
		n++;
	}
	return n;
}

static void mail_with(enum mail_type type, enum far_status status)
{
	struct mail m = {
		.type = type, .worker = FAR_ONE, .shard = FAR_SHARD, .peer = NIC_FAR_ONE, .status = (uint8_t)status};
	snprintf(m.text, sizeof m.text, "of a reason");
	cr_assert(mailbox_put(&shard->mail_in, &m));
	shard_take_mail(shard);
}

static void ended(const struct result *r, enum far_status status, const char *part)
{
	cr_assert_eq(r->n, 1u);
	cr_assert_eq(r->status, status, "%s: %.*s", far_status_name(r->status), (int)r->len, r->bytes);
	cr_assert_eq(r->executed, FAR_EXECUTED_NO);
	cr_assert(memmem(r->bytes, r->len, part, strlen(part)), "\"%.*s\" lacks \"%s\"", (int)r->len, r->bytes, part);
}

/* The next packet is a request of this body; the peer answers it. */
static void sent_and_answered(const void *body, size_t len)
{
	union packet_head h;
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_not_null(p);
	cr_assert_eq(h.type, PACKET_REQUEST);
	cr_assert_eq(p->peer, (uint32_t)NIC_FAR_ONE);
	cr_assert_eq(p->body_len, len);
	cr_assert(len == 0 || memcmp(fake_body(p), body, len) == 0);
	union packet_head a = {.call = {.type = PACKET_REPLY, .slot = h.call.slot, .generation = h.call.generation}};
	put(NIC_FAR_ONE, a, "yes", 3);
}

Test(core_waiting, they_go_out_in_order_when_the_session_is_up)
{
	static struct result r[5];
	static char large[20000];
	char small[5] = "one";
	memset(large, 'l', sizeof large);
	cr_assert_eq(call_far(&r[0], FAR_FOREVER, small, 3), 0);
	cr_assert_eq(call_far(&r[1], FAR_SEC, large, sizeof large), 0);
	cr_assert_eq(call_far(&r[2], FAR_SEC, NULL, 0), 0);
	/* They were copied. */
	memset(small, 'x', sizeof small);
	large[0] = 'x';
	cr_assert_eq(connects(), 1u);
	passes(200);
	expect_nothing();
	cr_assert_eq(shard->counters.calls_waiting, 3u);
	cr_assert_eq(shard->counters.calls_sent, 0u);
	now_ns += 1000;
	mail_with(MAIL_PEER_UP, FAR_OK);
	cr_assert_eq(call_far(&r[3], FAR_SEC, "last", 4), 0);
	large[0] = 'l';
	sent_and_answered("one", 3);
	sent_and_answered(large, sizeof large);
	sent_and_answered(NULL, 0);
	sent_and_answered("last", 4);
	passes(1);
	for (int i = 0; i < 4; i++) {
		cr_assert_eq(r[i].n, 1u);
		cr_assert_eq(r[i].status, FAR_OK);
		cr_assert_eq(r[i].origin, FAR_ONE);
	}
	cr_assert_eq(shard->counters.calls_waiting, 0u);
	cr_assert_eq(shard->backpressured_n, 0u);
}

Test(core_waiting, the_time_they_waited_is_gone)
{
	struct result r;
	union packet_head h;
	call_far(&r, 1000, "x", 1);
	now_ns += 400;
	mail_with(MAIL_PEER_UP, FAR_OK);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	cr_assert_eq(h.request.time_left, 600u);
	put(NIC_FAR_ONE,
	    (union packet_head){.call = {.type = PACKET_REPLY, .slot = h.call.slot, .generation = h.call.generation}},
	    NULL, 0);
	passes(1);
	connects();
}

Test(core_waiting, deadlines_end_them_unsent)
{
	struct result r[3];
	call_far(&r[0], 500, "a", 1);
	call_far(&r[1], FAR_FOREVER, "b", 1);
	call_far(&r[2], 700, "c", 1);
	advance(499);
	cr_assert_eq(r[0].n, 0u);
	advance(1);
	ended(&r[0], FAR_TIMEOUT, "the session with the worker was not set up");
	cr_assert_eq(r[2].n, 0u);
	/* The last one is due when the session comes up: it is not sent. */
	now_ns += 200;
	mail_with(MAIL_PEER_UP, FAR_OK);
	ended(&r[2], FAR_TIMEOUT, "the session with the worker was not set up");
	sent_and_answered("b", 1);
	expect_nothing();
	passes(1);
	cr_assert_eq(r[1].status, FAR_OK);
	cr_assert_eq(far_session()->calls_max, FAR_SESSION_CALLS_MAX);
	connects();
}

static struct result restarted[3];
static unsigned restarts;

static void restart(void *user, const struct completion *o)
{
	cr_assert_eq(o->status, FAR_TIMEOUT);
	if (restarts < 3)
		call_far(&restarted[restarts], 100 * (uint64_t)(3 - restarts), user, 1);
	restarts++;
}

/* Callbacks of calls that are due call again, on the list that is looked through. Expect each to end at its own time.
 */
Test(core_waiting, deadlines_of_calls_that_callbacks_start)
{
	struct call_start start = {.worker = FAR_ONE,
				   .shard = FAR_SHARD,
				   .deadline = now_ns + 10,
				   .done = restart,
				   .user = (void *)(uintptr_t) "x"};
	for (int i = 0; i < 3; i++)
		cr_assert_eq(shard_call(shard, &start), 0);
	advance(10);
	cr_assert_eq(restarts, 3u);
	for (unsigned i = 0; i < 3; i++) {
		cr_assert_eq(far_session()->waiting_n, 3 - i);
		cr_assert_eq(shard->waiting_until, now_ns + 100);
		advance(100);
		ended(&restarted[2 - i], FAR_TIMEOUT, "the session with the worker was not set up");
	}
	cr_assert_eq(shard->waiting_until, TIME_NEVER);
	cr_assert_null(far_session()->waiting);
	connects();
}

Test(core_waiting, a_sleeper_wakes_for_the_deadline, .timeout = 60)
{
	struct result r;
	call_far(&r, 0, "a", 1);
	shard_sleep(shard, TIME_NEVER);
	ended(&r, FAR_TIMEOUT, "the session with the worker was not set up");
	connects();
}

Test(core_waiting, unreachable_and_again)
{
	struct result r[3];
	call_far(&r[0], FAR_FOREVER, "a", 1);
	call_far(&r[1], FAR_SEC, "b", 1);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_UNREACHABLE, FAR_UNREACHABLE);
	ended(&r[0], FAR_UNREACHABLE, "no session with worker 3, shard 2: of a reason");
	ended(&r[1], FAR_UNREACHABLE, "of a reason");
	cr_assert_eq(r[0].origin, FAR_ONE);
	cr_assert_eq(call_far(&r[2], FAR_FOREVER, "c", 1), 0);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_UP, FAR_OK);
	sent_and_answered("c", 1);
	passes(1);
	cr_assert_eq(r[2].status, FAR_OK);
	/* Late news change nothing. */
	mail_with(MAIL_PEER_UNREACHABLE, FAR_PEER_LOST);
	cr_assert_eq(far_session()->state, SESSION_UP);
}

Test(core_waiting, a_lost_worker_stays_lost)
{
	struct result r;
	call_far(&r, FAR_FOREVER, "a", 1);
	mail_with(MAIL_PEER_UNREACHABLE, FAR_PEER_LOST);
	ended(&r, FAR_PEER_LOST, "of a reason");
	cr_assert_eq(call_far(&r, FAR_FOREVER, "a", 1), -EPIPE);
	mail_with(MAIL_PEER_UP, FAR_OK);
	cr_assert_eq(far_session()->state, SESSION_DEAD);
	cr_assert_not(queue->attached[NIC_FAR_ONE]);
	connects();
}

static bool renewed(const struct far_agent *agent, uint32_t worker, uint64_t incarnation)
{
	return true;
}

static bool not_renewed(const struct far_agent *agent, uint32_t worker, uint64_t incarnation)
{
	return false;
}

/* It is a member again, and the mail about that has not been read. Expect a call to wait for the next session, where
 * one to a worker that is lost ends at once. */
Test(core_waiting, a_lost_worker_is_back_before_the_mail)
{
	struct result r;
	call_far(&r, FAR_FOREVER, "a", 1);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_UNREACHABLE, FAR_PEER_LOST);
	shard->config.renewed = not_renewed;
	cr_assert_eq(call_far(&r, FAR_FOREVER, "a", 1), -EPIPE);
	shard->config.renewed = renewed;
	cr_assert_eq(call_far(&r, FAR_FOREVER, "b", 1), 0);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_RESTARTED, FAR_OK);
	cr_assert_eq(far_session()->state, SESSION_CONNECTING);
	mail_with(MAIL_PEER_UP, FAR_OK);
	sent_and_answered("b", 1);
	passes(1);
	cr_assert_eq(r.status, FAR_OK);
}

/* Another incarnation of it has begun. Expect the next call to request a session, and nothing of the incarnation before
 * to matter. */
Test(core_waiting, a_lost_worker_comes_back)
{
	struct result r;
	mail_with(MAIL_PEER_RESTARTED, FAR_OK);
	cr_assert_eq(far_session()->state, SESSION_CLOSED, "no call had requested it");
	call_far(&r, FAR_FOREVER, "a", 1);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_RESTARTED, FAR_OK);
	cr_assert_eq(far_session()->state, SESSION_CONNECTING);
	mail_with(MAIL_PEER_UNREACHABLE, FAR_PEER_LOST);
	cr_assert_eq(r.executed, FAR_EXECUTED_NO);
	cr_assert_eq(call_far(&r, FAR_FOREVER, "a", 1), -EPIPE);
	mail_with(MAIL_PEER_RESTARTED, FAR_OK);
	cr_assert_eq(call_far(&r, FAR_FOREVER, "b", 1), 0);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_UP, FAR_OK);
	sent_and_answered("b", 1);
	passes(1);
	cr_assert_eq(r.status, FAR_OK);
	mail_with(MAIL_PEER_RESTARTED, FAR_OK);
	cr_assert_eq(far_session()->state, SESSION_UP);
}

Test(core_waiting, the_list_is_bounded)
{
	static struct result r[FAR_SESSION_CALLS_MAX + 1];
	shard->config.limits.peer_waiting = FAR_SESSION_CALLS_MAX;
	cr_assert_eq(call_far(&r[0], FAR_FOREVER, NULL, FAR_MSG_EAGER_MAX + 1), -EMSGSIZE, "and takes no place");
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		cr_assert_eq(call_far(&r[i], FAR_FOREVER, &i, sizeof i), 0);
	cr_assert_eq(call_far(&r[FAR_SESSION_CALLS_MAX], FAR_FOREVER, "x", 1), -EAGAIN);
	cr_assert_eq(call_far(&r[FAR_SESSION_CALLS_MAX], FAR_FOREVER, NULL, FAR_MSG_EAGER_MAX + 1), -EMSGSIZE);
	mail_with(MAIL_PEER_UP, FAR_OK);
	cr_assert_eq(call_far(&r[FAR_SESSION_CALLS_MAX], FAR_FOREVER, "x", 1), 0, "no credit is left: it waits");
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		sent_and_answered(&i, sizeof i);
	expect_nothing();
	passes(20);
	sent_and_answered("x", 1);
	passes(1);
	for (unsigned i = 0; i <= FAR_SESSION_CALLS_MAX; i++)
		cr_assert_eq(r[i].status, FAR_OK);
	connects();
}

/* More than there are credits for. Expect the rest in order as answers come, and what is cancelled or due to leave the
 * middle and the end of the queue unsent. */
Test(core_waiting, for_a_credit)
{
	enum { MORE = 6 };
	static struct result r[FAR_SESSION_CALLS_MAX], more[MORE], last;
	shard->config.limits.peer_waiting = MORE;
	mail_with(MAIL_PEER_UP, FAR_OK);
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		cr_assert_eq(call_far(&r[i], FAR_FOREVER, "r", 1), 0);
	for (unsigned i = 0; i < MORE; i++)
		cr_assert_eq(call_far(&more[i], i == 1 ? 500 : FAR_FOREVER, &i, sizeof i), 0);
	cr_assert_eq(call_far(&last, FAR_FOREVER, "l", 1), -EAGAIN);
	cr_assert_eq(shard->counters.calls_waiting, (uint64_t)MORE);
	cr_assert_eq(waiting_slots_used(shard, far_session()->index), (uint32_t)MORE);
	cr_assert_not(waiting_stalled(shard), "an answer ends it: nobody need look before");
	advance(500);
	ended(&more[1], FAR_TIMEOUT, "or had no room: message");
	cr_assert(call_cancel(shard, &more[3].id));
	ended(&more[3], FAR_CANCELLED, "before it was sent");
	cr_assert(call_cancel(shard, &more[MORE - 1].id));
	ended(&more[MORE - 1], FAR_CANCELLED, "before it was sent");
	cr_assert_eq(call_far(&last, FAR_FOREVER, "l", 1), 0, "their places are free, behind the rest");
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		sent_and_answered("r", 1);
	expect_nothing();
	passes(20);
	for (unsigned i = 0; i < MORE - 1; i++)
		if (i != 1 && i != 3)
			sent_and_answered(&i, sizeof i);
	sent_and_answered("l", 1);
	passes(20);
	cr_assert(last.n == 1 && last.status == FAR_OK);
	cr_assert_eq(waiting_slots_used(shard, far_session()->index), 0u);
	cr_assert_eq(far_session()->calls_max, FAR_SESSION_CALLS_MAX, "straight again");
	cr_assert(shard->backpressured_n == 0 && shard->draining_n == 0);
}

/* The ring is full when the session comes up. Expect the rest to follow later, before calls that came after. */
Test(core_waiting, those_without_room_go_later_and_keep_their_place)
{
	struct result r[4];
	call_far(&r[0], FAR_FOREVER, "a", 1);
	call_far(&r[1], FAR_FOREVER, "b", 1);
	queue->no_slots = true;
	mail_with(MAIL_PEER_UP, FAR_OK);
	expect_nothing();
	cr_assert_eq(shard->backpressured_n, 1u);
	cr_assert_eq(call_far(&r[2], FAR_FOREVER, "c", 1), 0);
	passes(3);
	queue->no_slots = false;
	passes(1);
	sent_and_answered("a", 1);
	sent_and_answered("b", 1);
	sent_and_answered("c", 1);
	cr_assert_eq(shard->backpressured_n, 0u);
	cr_assert_eq(call_far(&r[3], FAR_FOREVER, "d", 1), 0);
	sent_and_answered("d", 1);
	passes(1);
	for (int i = 0; i < 4; i++)
		cr_assert_eq(r[i].status, FAR_OK);
	connects();
}

Test(core_waiting, the_worker_dies_while_some_wait_for_room)
{
	struct result r[2];
	union packet_head h;
	call_far(&r[0], FAR_FOREVER, "a", 1);
	mail_with(MAIL_PEER_UP, FAR_OK);
	cr_assert_not_null(fake_queue_sent(queue, &h));
	queue->no_slots = true;
	far_session()->calls_max = 0; /* as while flushing */
	cr_assert_eq(waiting_put(shard, far_session(),
				 &(struct call_start){.worker = FAR_ONE,
						      .shard = FAR_SHARD,
						      .deadline = TIME_NEVER,
						      .done = take_result,
						      .user = memset(&r[1], 0, sizeof r[1])}),
		     0);
	mail_with(MAIL_PEER_DOWN, FAR_OK);
	cr_assert_eq(r[0].status, FAR_PEER_LOST);
	cr_assert_eq(r[0].executed, FAR_EXECUTED_MAYBE);
	ended(&r[1], FAR_PEER_LOST, "connection to the worker lost: of a reason");
	cr_assert_eq(r[1].executed, FAR_EXECUTED_NO);
	cr_assert_eq(shard->backpressured_n, 0u);
}

/* A typed call does not know the function's number before the session is up. */
Test(core_waiting, typed)
{
	struct result r;
	union packet_head h;
	struct call_start start = {.worker = FAR_ONE,
				   .shard = FAR_SHARD,
				   .fn = 1,
				   .typed = true,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = memset(&r, 0, sizeof r)};
	cr_assert_eq(shard_call(shard, &start), 0);
	mail_with(MAIL_PEER_UP, FAR_OK);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_eq(h.flags, PACKET_TYPED | PACKET_HASHED);
	cr_assert_eq(p->body_len, sizeof(struct packet_hash));
	put(NIC_FAR_ONE,
	    (union packet_head){.call = {.type = PACKET_REPLY, .slot = h.call.slot, .generation = h.call.generation}},
	    NULL, 0);
	passes(1);
	connects();
}

Test(core_waiting, stopping_ends_them)
{
	struct result r;
	call_far(&r, FAR_FOREVER, "a", 1);
	session_close_all(shard);
	ended(&r, FAR_SHUTDOWN, "shut down");
	cr_assert_eq(call_far(&r, FAR_FOREVER, "a", 1), -ESHUTDOWN);
	struct call_start never = {.worker = 4, .done = take_result, .user = &r};
	cr_assert_eq(shard_call(shard, &never), -ESHUTDOWN);
	connects();
}

Test(core_waiting, submissions_wait_too)
{
	struct result r;
	struct call_start start = {.worker = FAR_ONE,
				   .shard = FAR_SHARD,
				   .fn = MSG_ECHO,
				   .deadline = TIME_NEVER,
				   .done = take_result,
				   .user = memset(&r, 0, sizeof r),
				   .data = "s",
				   .len = 1};
	cr_assert_eq(waiting_submit(shard, &start), 0);
	passes(1);
	cr_assert_eq(submit_waiting(&shard->submit), 0u);
	cr_assert_eq(shard->counters.calls_waiting, 1u);
	mail_with(MAIL_PEER_UP, FAR_OK);
	sent_and_answered("s", 1);
	passes(1);
	cr_assert_eq(r.status, FAR_OK);
	connects();
}

static unsigned again_n;

static void again(void *user, const struct completion *o)
{
	struct call_start start = {
		.worker = FAR_ONE, .shard = FAR_SHARD, .deadline = TIME_NEVER, .done = again, .user = user};
	again_n++;
	if (o->status == FAR_UNREACHABLE)
		cr_assert_eq(shard_call(shard, &start), 0);
	else
		cr_assert(shard_call(shard, &start) < 0);
}

/* The callback of a call that could not be sent calls again. Expect it to wait for another set-up. */
Test(core_waiting, callbacks_may_call)
{
	struct completion o = {.status = FAR_UNREACHABLE};
	again(NULL, &o);
	again(NULL, &o);
	cr_assert_eq(connects(), 1u);
	mail_with(MAIL_PEER_UNREACHABLE, FAR_UNREACHABLE);
	cr_assert_eq(again_n, 4u);
	cr_assert_eq(far_session()->waiting_n, 2u);
	cr_assert_eq(connects(), 1u);
	session_close_all(shard);
	cr_assert_eq(again_n, 6u);
}

/* The first, one between and the last are cancelled. Expect the rest to go out in order. */
Test(core_waiting, cancelled_while_they_wait)
{
	static struct result r[5], late;
	for (uint32_t i = 0; i < 5; i++)
		cr_assert_eq(call_far(&r[i], FAR_FOREVER, &i, sizeof i), 0);
	cr_assert_not(call_cancel(shard, &late.id));
	for (unsigned i = 0; i < 5; i += 2) {
		cr_assert(call_cancel(shard, &r[i].id));
		cr_assert(r[i].n == 1 && r[i].status == FAR_CANCELLED && r[i].executed == FAR_EXECUTED_NO);
		cr_assert_not(call_cancel(shard, &r[i].id), "once");
	}
	cr_assert_eq(call_far(&late, FAR_FOREVER, &(uint32_t){9}, sizeof(uint32_t)), 0);
	cr_assert_eq(shard->counters.calls_waiting, 3u);
	mail_with(MAIL_PEER_UP, FAR_OK);
	static const uint32_t left[] = {1, 3, 9};
	for (unsigned i = 0; i < 3; i++)
		sent_and_answered(&left[i], sizeof left[i]);
	expect_nothing();
	cr_assert_eq(shard->counters.calls_waiting, 0u);
}

/* The mailbox is full when a session is wanted. Expect it to be requested later. */
Test(core_waiting, a_full_mailbox_is_tried_again)
{
	struct mail filler = {.type = MAIL_DETACHED}, m;
	struct result r;
	while (mailbox_put(&shard->mail_out, &filler))
		;
	call_far(&r, FAR_FOREVER, "a", 1);
	shard_take_mail(shard);
	for (unsigned i = 0; i < FAR_MAILBOX_SLOTS; i++) {
		cr_assert(mailbox_get(&shard->mail_out, &m));
		cr_assert_eq(m.type, MAIL_DETACHED);
	}
	cr_assert_not(mailbox_get(&shard->mail_out, &m));
	unsigned wakes = ctl_wakes;
	shard_take_mail(shard);
	cr_assert_eq(connects(), 1u);
	cr_assert_eq(ctl_wakes, wakes + 1);
	shard_take_mail(shard);
	cr_assert_eq(connects(), 0u);
	session_close_all(shard);
	cr_assert_eq(r.n, 1u);
}
