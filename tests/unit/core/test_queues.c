/* SPDX-License-Identifier: BSD-3-Clause */
/** A shard of two ports: PEER's session is at the first, OTHER's at the second. The test's thread. */
#include "core/call.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/queues.h"
#include "features/rendezvous/rendezvous.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void setup_cheap(void)
{
	shard_setup_second(false);
}

static void setup_costs(void)
{
	shard_setup_second(true);
}

TestSuite(core_queues, .init = setup_costs, .fini = shard_teardown);
TestSuite(core_queues_cheap, .init = setup_cheap, .fini = shard_teardown);

/* Polls of the second queue in so many passes. */
static unsigned polls_in(unsigned n)
{
	unsigned before = queue2->recvs;
	passes(n);
	return queue2->recvs - before;
}

/* From here on it is cold, and the next poll is `most` passes away, while the clock stands. */
static void cool_for(unsigned most)
{
	unsigned before, i = 0;
	passes(2 * FAR_HOT_POLLS);
	before = queue2->recvs;
	for (; queue2->recvs == before && i <= most; i++)
		passes(1);
	cr_assert_leq(i, most);
	cr_assert_eq(queue2->recvs, before + 1);
}

static void cool(void)
{
	cool_for(FAR_COLD_PASSES);
}

static int call_to(uint32_t worker, struct result *r)
{
	struct call_start start = {.worker = worker,
				   .fn = MSG_ECHO,
				   .deadline = now_ns + FAR_RPC_TIMEOUT_NS,
				   .left = FAR_RPC_TIMEOUT_NS,
				   .done = take_result,
				   .user = r,
				   .data = "abc",
				   .len = 3};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

static union packet_head sent_by(struct fake_queue *q)
{
	union packet_head h;
	cr_assert_not_null(fake_queue_sent(q, &h));
	return h;
}

static void reply_from(struct fake_queue *q, uint32_t peer, union packet_head h)
{
	h.type = PACKET_REPLY;
	fake_queue_put(q, peer, &h, "answer", 6);
}

static uint64_t real_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

/* ---- the schedule ---- */

Test(core_queues_cheap, one_that_is_free_is_polled_in_every_pass)
{
	passes(1);
	cr_assert_eq(polls_in(1000), 1000u);
}

Test(core_queues_cheap, without_peers_it_is_cold)
{
	union packet_head h;
	mail_at(MAIL_PEER_DOWN, OTHER, NIC_OTHER, 1);
	cr_assert(!queue2->attached[NIC_OTHER]);
	cr_assert(!fake_queue_sent(queue2, &h));
	cool_for(FAR_COLD_PASSES * FAR_COLD_ALONE);
	cr_assert_eq(polls_in(3 * FAR_COLD_PASSES * FAR_COLD_ALONE), 3u);
	mail_at(MAIL_PEER_UP, 3, 4, 1);
	passes(1);
	cr_assert_eq(polls_in(1000), 1000u);
}

/* What the shard sends to itself makes the queue hot: there is nothing to look for at other times. */
Test(core_queues_cheap, with_itself_alone_it_is_hot_while_it_sends)
{
	struct result r;
	union packet_head h;
	enum { NIC_SELF = 7 };
	mail_at(MAIL_PEER_UP, SELF, NIC_SELF, 1);
	passes(1);
	cr_assert_eq(polls_in(1000), 1000u, "another peer is there");
	mail_at(MAIL_PEER_DOWN, OTHER, NIC_OTHER, 1);
	cool();
	cr_assert_eq(polls_in(FAR_COLD_PASSES), 1u);
	cr_assert_eq(call_to(SELF, &r), 0);
	cr_assert_eq(polls_in(FAR_HOT_POLLS), FAR_HOT_POLLS);
	h = sent_by(queue2);
	cr_assert_eq(polls_in(2 * FAR_HOT_POLLS), 2 * FAR_HOT_POLLS, "it owes an answer");
	reply_from(queue2, NIC_SELF, h);
	passes(1);
	cr_assert_eq(r.n, 1u);
	cool();
	/* Without itself a cheap queue with a peer is as it was. */
	mail_at(MAIL_PEER_DOWN, SELF, NIC_SELF, 1);
	mail_at(MAIL_PEER_UP, 3, 4, 1);
	passes(1);
	cr_assert_eq(polls_in(1000), 1000u);
}

Test(core_queues, one_that_costs_is_polled_now_and_then)
{
	cool();
	cr_assert_eq(polls_in(FAR_COLD_PASSES - 1), 0u);
	cr_assert_eq(polls_in(1), 1u);
	cr_assert_eq(polls_in(10 * FAR_COLD_PASSES), 10u);
	cr_assert_gt(queue->recvs, 10 * FAR_COLD_PASSES, "the first was polled in every pass");
}

Test(core_queues, a_packet_makes_it_hot_for_a_while)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	cool();
	fake_queue_put(queue2, NIC_OTHER, &h, "a", 1);
	passes(FAR_COLD_PASSES - 1);
	cr_assert_eq(ran, 0u);
	passes(1);
	cr_assert_eq(ran, 1u);
	/* The answer touches it, in the pass of the poll. */
	cr_assert_eq(polls_in(FAR_HOT_POLLS), FAR_HOT_POLLS);
	cr_assert_eq(polls_in(FAR_COLD_PASSES - 1), 0u);
	cr_assert_eq(polls_in(1), 1u);
	sent_by(queue2);
}

Test(core_queues, what_is_awaited_keeps_it_hot)
{
	struct result r;
	cool();
	cr_assert_eq(call_to(OTHER, &r), 0);
	cr_assert_eq(polls_in(20 * FAR_HOT_POLLS), 20 * FAR_HOT_POLLS);
	reply_from(queue2, NIC_OTHER, sent_by(queue2));
	passes(1);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(polls_in(FAR_HOT_POLLS), FAR_HOT_POLLS);
	cr_assert_eq(polls_in(FAR_COLD_PASSES - 1), 0u);
}

Test(core_queues, what_is_awaited_elsewhere_does_not)
{
	struct result r;
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	cr_assert_eq(call_to(PEER, &r), 0);
	cool();
	cr_assert_eq(ran, 1u);
	sent_by(queue2);
	cr_assert_eq(polls_in(4 * FAR_COLD_PASSES), 4u);
	reply_from(queue, NIC_PEER, sent_by(queue));
	passes(1);
	cr_assert_eq(r.n, 1u);
}

Test(core_queues, time_makes_it_due)
{
	cool();
	passes(64);
	unsigned before = queue2->recvs;
	now_ns += FAR_COLD_NS;
	passes(64 + 1);
	cr_assert_eq(queue2->recvs, before + 1);
	cr_assert_eq(polls_in(128), 0u, "once");
}

Test(core_queues, its_deadline_makes_it_due)
{
	cool();
	passes(64);
	unsigned before = queue2->recvs;
	queue2->deadline = now_ns + 1000;
	passes(64 + 1);
	cr_assert_eq(queue2->recvs, before);
	now_ns += 1000;
	passes(64 + 1);
	cr_assert_eq(queue2->recvs, before + 1);
	queue2->deadline = UINT64_MAX;
}

Test(core_queues, slow_passes_of_an_application_find_it)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	cool();
	shard_idle(shard);
	fake_queue_put(queue2, NIC_OTHER, &h, "a", 1);
	now_ns += FAR_COLD_NS;
	shard_idle(shard);
	passes(1);
	cr_assert_eq(ran, 1u);
	sent_by(queue2);
}

/* ---- packets ---- */

Test(core_queues, each_answer_goes_back_where_its_request_came_from)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	passes(1);
	queues_poll_all(shard);
	fake_queue_put(queue2, NIC_OTHER, &h, "second", 6);
	put_request(MSG_ECHO, 7, "first", 5);
	passes(1);
	cr_assert_eq(ran, 2u, "both in one pass");
	expect_reply(7, "first", 5);
	const struct fake_packet *p = fake_queue_sent(queue2, &h);
	cr_assert_not_null(p);
	cr_assert_eq(p->peer, (uint32_t)NIC_OTHER);
	cr_assert_eq(memcmp(fake_body(p), "second", 6), 0);
	cr_assert_eq(queue2->out_flushed, queue2->out_n);
}

/* Where sending is a system call, a pass takes several full bursts. Of answers to its own calls half of them at most.
 */
Test(core_queues, several_bursts)
{
	enum { CALLS = 60 };
	struct result done[CALLS];
	union packet_head h, sent[CALLS];
	passes(1);
	for (unsigned i = 0; i < 80; i++) {
		h = request(MSG_ECHO, i, UINT64_MAX);
		fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	}
	queues_poll_all(shard);
	passes(1);
	cr_assert_eq(queue2->out_n, FAR_BURSTS_COSTLY * FAR_BURST);
	passes(2);
	cr_assert_eq(queue2->out_n, 80u);
	queue2->out_read = queue2->out_n;
	for (unsigned i = 0; i < CALLS; i++) {
		cr_assert_eq(call_to(OTHER, &done[i]), 0);
		sent[i] = sent_by(queue2);
	}
	for (unsigned i = 0; i < CALLS; i++)
		reply_from(queue2, NIC_OTHER, sent[i]);
	passes(1);
	unsigned n = 0;
	for (unsigned i = 0; i < CALLS; i++)
		n += done[i].n;
	cr_assert_eq(n, 2 * FAR_BURST);
	passes(3);
	cr_assert_eq(done[CALLS - 1].n, 1u);
}

/* Answers do not wait for a system call that may find nothing. */
Test(core_queues, one_read_in_a_pass)
{
	passes(1);
	for (unsigned i = 0; i < 2 * FAR_BURST; i++) {
		union packet_head h = request(MSG_ECHO, i, UINT64_MAX);
		fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	}
	queue2->base.drained = true;
	queues_poll_all(shard);
	passes(1);
	cr_assert_eq(queue2->out_flushed, FAR_BURST);
	passes(1);
	cr_assert_eq(queue2->out_flushed, 2 * FAR_BURST);
}

/* A full ring of one does not hold up the other. */
Test(core_queues_cheap, fair)
{
	passes(1);
	for (unsigned i = 0; i < 64; i++) {
		union packet_head h = request(MSG_ECHO, i, UINT64_MAX);
		put_request(MSG_ECHO, i, NULL, 0);
		fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	}
	for (unsigned pass = 1; pass <= 4; pass++) {
		passes(1);
		cr_assert_eq(queue->out_n, pass * FAR_BURST);
		cr_assert_eq(queue2->out_n, pass * FAR_BURST);
	}
	queue->out_read = queue->out_n;
}

Test(core_queues, peers_are_numbered_by_port)
{
	struct result first, other;
	union packet_head h = request(MSG_ECHO, 9, UINT64_MAX);
	mail_at(MAIL_PEER_UP, 3, NIC_PEER, 1);
	cr_assert_eq(call_to(PEER, &first), 0);
	cr_assert_eq(call_to(3, &other), 0);
	union packet_head to_first = sent_by(queue), to_other = sent_by(queue2);
	reply_from(queue2, NIC_PEER, to_first); /* another's call */
	passes(2);
	cr_assert_eq(first.n, 0u);
	reply_from(queue2, NIC_PEER, to_other);
	reply_from(queue, NIC_PEER, to_first);
	passes(2);
	cr_assert_eq(first.n, 1u);
	cr_assert_eq(other.n, 1u);
	/* The end of one is not the other's. */
	mail_at(MAIL_PEER_DOWN, 3, NIC_PEER, 1);
	cr_assert(!queue2->attached[NIC_PEER]);
	cr_assert(queue->attached[NIC_PEER]);
	put_request(MSG_ECHO, 9, NULL, 0);
	passes(1);
	cr_assert_eq(fake_queue_sent(queue, &h)->peer, (uint32_t)NIC_PEER);
}

Test(core_queues, a_broken_packet_is_reported_with_its_port)
{
	union packet_head h = request(MSG_ECHO, 9, UINT64_MAX);
	struct mail m;
	queue2->bad_next = true;
	fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	queues_poll_all(shard);
	passes(1);
	cr_assert(mailbox_get(&shard->mail_out, &m));
	cr_assert_eq(m.type, MAIL_PROTOCOL_ERROR);
	cr_assert_eq(m.worker, (uint32_t)OTHER);
	cr_assert_eq(m.port, 1);
	cr_assert_eq(m.peer, (uint32_t)NIC_OTHER);
}

/* What a peer sent before it went is received, though its queue is cold. */
Test(core_queues, what_came_before_the_end)
{
	struct result r;
	cr_assert_eq(call_to(OTHER, &r), 0);
	union packet_head h = sent_by(queue2);
	passes(1);
	shard->queues[1].hot = 0;
	shard->queues[1].left = FAR_COLD_PASSES;
	shard->others_left = shard->others_step = FAR_COLD_PASSES;
	reply_from(queue2, NIC_OTHER, h);
	mail_at(MAIL_PEER_DOWN, OTHER, NIC_OTHER, 1);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
}

/* A call to a peer of the first port does not flush the second, and the other way round what is sent leaves. */
Test(core_queues, flush)
{
	struct result r;
	cool();
	passes(1);
	queue2->out_flushed = 77;
	cr_assert_eq(call_to(PEER, &r), 0);
	shard_flush(shard);
	cr_assert_eq(queue->out_flushed, 1u);
	cr_assert_eq(queue2->out_flushed, 77u);
	reply_from(queue, NIC_PEER, sent_by(queue));
	cr_assert_eq(call_to(OTHER, &r), 0);
	shard_flush(shard);
	cr_assert_eq(queue2->out_flushed, 1u);
	reply_from(queue2, NIC_OTHER, sent_by(queue2));
	passes(2);
}

/* ---- who owes ---- */

Test(core_queues, watch)
{
	struct result r;
	cr_assert_not_null(queue->awaits_reply);
	cr_assert_not_null(queue2->awaits_reply);
#define OWES(q, peer) (q)->awaits_reply((q)->awaits_reply_ctx, peer)
	cr_assert(!OWES(queue, NIC_PEER));
	cr_assert(!OWES(queue2, NIC_OTHER));
	cr_assert(!OWES(queue2, FAKE_PEERS));
	cr_assert(!OWES(queue2, NIC_PEER_NONE));
	cr_assert_eq(call_to(OTHER, &r), 0);
	cr_assert(OWES(queue2, NIC_OTHER));
	cr_assert(!OWES(queue2, NIC_PEER));
	cr_assert(!OWES(queue, NIC_PEER));
	cr_assert(!OWES(queue, NIC_OTHER), "another port's");
	reply_from(queue2, NIC_OTHER, sent_by(queue2));
	passes(1);
	cr_assert(!OWES(queue2, NIC_OTHER));
	/* One-way messages: what is acknowledged in batches is not owed before the batch is full. */
	struct call_start oneway = {.worker = OTHER, .fn = MSG_ECHO, .left = TIME_NEVER, .deadline = TIME_NEVER};
	for (unsigned i = 1; i <= FAR_ONEWAYS_BATCH; i++) {
		cr_assert_eq(oneway_send_now(shard, &oneway), 0);
		cr_assert_eq(OWES(queue2, NIC_OTHER), i == FAR_ONEWAYS_BATCH);
	}
	mail_at(MAIL_PEER_DOWN, OTHER, NIC_OTHER, 1);
	cr_assert(!OWES(queue2, NIC_OTHER));
#undef OWES
}

/* ---- sleep ---- */

static bool armed(void)
{
	return queue->armed || queue2->armed;
}

Test(core_queues, either_wakes_the_sleeper)
{
	for (unsigned i = 0; i < 4; i++) {
		struct fake_queue *q = i % 2 ? queue2 : queue, *silent = i % 2 ? queue : queue2;
		unsigned arms = q->arms, clears = silent->clears, wakeups = (unsigned)shard->counters.wakeups;
		q->base.ops->wake(&q->base);
		shard_sleep(shard, TIME_NEVER);
		cr_assert_eq(q->arms, arms + 1);
		cr_assert_eq(silent->arms, arms + 1);
		cr_assert(!armed());
		cr_assert_eq(shard->counters.wakeups, wakeups + 1);
		cr_assert_eq(silent->clears, clears, "only what woke is cleared");
		uint64_t count;
		cr_assert_eq(read(q->wake_fd, &count, sizeof count), -1);
		cr_assert_eq(polls_in(1), 1u, "all are polled after a sleep");
	}
}

/* What came just before is found by the look between arm() and the sleep. */
Test(core_queues, one_more_look)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	cool();
	fake_queue_put(queue2, NIC_OTHER, &h, NULL, 0);
	shard_sleep(shard, TIME_NEVER);
	cr_assert_eq(ran, 1u);
	cr_assert_eq(queue2->arms, 1u);
	cr_assert(!armed());
	sent_by(queue2);
}

/* The sleep ends at the deadline of either; the clock of this test stands, so that is so long after its beginning. */
Test(core_queues, the_deadline_of_a_queue_ends_the_sleep)
{
	for (unsigned i = 0; i < 2; i++) {
		struct fake_queue *q = i ? queue2 : queue;
		uint64_t from = real_ns();
		q->deadline = now_ns + 3 * 1000000;
		shard_sleep(shard, TIME_NEVER);
		cr_assert_geq(real_ns() - from, 3 * 1000000u);
		q->deadline = UINT64_MAX;
	}
	cr_assert_eq(queue->clears + queue2->clears, 0u);
}
