/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls: what the caller does with answers, deadlines and credits. The test's thread. */
#include "core/call.h"
#include "core/loop.h"
#include "core/packet.h"
#include "core/session.h"
#include "core/waiting.h"
#include "shard_fixture.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_call, .init = shard_setup, .fini = shard_teardown);

Test(core_call, call_and_reply)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	cr_assert_eq(h.request.handler, MSG_ECHO);
	cr_assert_eq(h.request.time_left, FAR_SEC);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 1u);
	answer(h, PACKET_REPLY, 0, 0, "fine");
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(r.len, 4u);
	cr_assert_eq(memcmp(r.bytes, "fine", 4), 0);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	cr_assert_eq(shard->counters.calls_completed, 1u);
	cr_assert_eq(shard->wheel.armed_n + shard->call_wheel.armed_n, 0u);
}

static uint64_t clock_reads;

static uint64_t counted_now(void *ctx)
{
	(void)ctx;
	clock_reads++;
	return now_ns;
}

/* Makes calls, one after the other, and takes their answers without a pass, which may read the clock by itself. */
static void calls_one_by_one(unsigned n)
{
	static struct result r;
	clock_reads = 0;
	for (unsigned i = 0; i < n; i++) {
		union packet_head h = called(&r, FAR_FOREVER);
		union packet_head a = {
			.reply = {.type = PACKET_REPLY, .slot = h.call.slot, .generation = h.call.generation}};
		call_on_answer(shard, &shard->sessions[session_index(shard, PEER, 0)], &a, (const uint8_t *)"", 0);
		cr_assert_eq(r.n, 1u);
	}
}

/* The latency of one call in so many is measured. Expect two readings of the clock for each of them, and none for the
 * others. */
Test(core_call, calls_that_are_not_measured_read_no_clock)
{
	static const struct clock_source counted = {counted_now, NULL};
	const struct clock_source *before = shard->config.clock;
	shard->config.clock = &counted;
	calls_one_by_one(500);
	cr_assert_eq(shard->latency.n, 0u);
	cr_assert_eq(clock_reads, 0u);
	shard->latency.every = 64;
	shard->latency.left = 0;
	shard->due_left = 0; /* the next call begins to count */
	calls_one_by_one(3200);
	cr_assert(shard->latency.n > 25 && shard->latency.n < 100, "%u calls were measured",
		  (unsigned)shard->latency.n);
	cr_assert_eq(clock_reads, 2 * shard->latency.n);
	shard->config.clock = before;
}

Test(core_call, call_and_error)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC);
	union packet_head a = {.error = {.type = PACKET_ERROR,
					 .executed = FAR_EXECUTED_YES,
					 .status = FAR_REMOTE,
					 .slot = h.call.slot,
					 .generation = h.call.generation,
					 .code = -5}};
	put(NIC_PEER, a, "why", 3);
	passes(1);
	cr_assert_eq(r.status, FAR_REMOTE);
	cr_assert_eq(r.executed, FAR_EXECUTED_YES);
	cr_assert_eq(r.code, -5);
	cr_assert_eq(r.origin, PEER);
	cr_assert_eq(shard->counters.calls_failed, 1u);
}

/* Receive ERROR with a status, an executed or a text that cannot be. Expect an error all the same. */
Test(core_call, errors_that_make_no_sense)
{
	static const uint16_t statuses[] = {FAR_OK, FAR_STATUS_COUNT, UINT16_MAX};
	static char long_text[5000];
	memset(long_text, 'x', sizeof long_text);
	for (size_t i = 0; i < 3; i++) {
		static struct result r;
		union packet_head h = called(&r, FAR_SEC);
		union packet_head a = {.error = {.type = PACKET_ERROR,
						 .executed = 3,
						 .status = statuses[i],
						 .slot = h.call.slot,
						 .generation = h.call.generation}};
		put(NIC_PEER, a, long_text, sizeof long_text);
		passes(1);
		cr_assert_eq(r.n, 1u);
		cr_assert_eq(r.status, FAR_PROTOCOL);
		cr_assert_eq(r.executed, FAR_EXECUTED_MAYBE);
		cr_assert_lt(r.len, (size_t)FAR_ERR_TEXT_MAX);
	}
}

/* Receive answers for a wrong generation, a wrong slot, from a wrong worker, for a free slot. Expect them counted, and
 * the call still open. */
Test(core_call, answers_out_of_place)
{
	static struct result r;
	union packet_head h = called(&r, FAR_SEC), bad = h;
	bad.type = PACKET_REPLY;
	bad.call.generation++;
	put(NIC_PEER, bad, NULL, 0);
	bad = h;
	bad.type = PACKET_REPLY;
	put(NIC_OTHER, bad, NULL, 0);
	bad.call.slot = h.call.slot + 1;
	put(NIC_PEER, bad, NULL, 0);
	bad.call.slot = FAR_CALLS_MAX;
	put(NIC_PEER, bad, NULL, 0);
	bad.call.slot = UINT32_MAX;
	put(NIC_PEER, bad, NULL, 0);
	passes(1);
	cr_assert_eq(dropped(), 5u);
	cr_assert_eq(r.n, 0u);
	answer(h, PACKET_REPLY, 0, 0, "");
	cr_assert_eq(r.n, 1u);
	answer(h, PACKET_REPLY, 0, 0, "");
	answer(h, PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(r.n, 1u, "once");
	cr_assert_eq(dropped(), 7u);
}

/* As many calls are under way as there are credits, and one more waits. Expect the next refused until one is answered,
 * ended ones included. */
Test(core_call, credits)
{
	static struct result r[FAR_SESSION_CALLS_MAX + 1], one;
	union packet_head h[FAR_SESSION_CALLS_MAX];
	shard->config.limits.peer_waiting = 1;
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		h[i] = called(&r[i], i == 0 ? 1 : FAR_FOREVER);
	cr_assert_eq(call(&one, FAR_SEC, NULL, 0), 0);
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), -EAGAIN);
	advance(1);
	cr_assert_eq(r[0].status, FAR_TIMEOUT);
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), -EAGAIN, "its slot waits for the last word");
	answer(h[0], PACKET_CANCELLED, 0, 0, "");
	cr_assert_eq(call(&r[FAR_SESSION_CALLS_MAX], FAR_SEC, NULL, 0), 0);
	/* Another worker's credits are its own. */
	struct call_start start = {.worker = OTHER,
				   .fn = 1,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = &r[0]};
	cr_assert_eq(shard_call(shard, &start), 0);
}

Test(core_call, calls_that_cannot_be_sent)
{
	static struct result r;
	static char large[FAKE_BODY + 1];
	cr_assert_eq(call(&r, FAR_SEC, large, sizeof large), -EMSGSIZE);
	queue->no_bulk = true;
	cr_assert_eq(call(&r, FAR_SEC, large, 1000), -EAGAIN, "bulk memory comes back: back-pressure");
	queue->no_bulk = false;
	queue->no_slots = true;
	cr_assert_eq(call(&r, FAR_SEC, large, 1), -EAGAIN);
	queue->no_slots = false;
	queue->commit_error = -EAGAIN;
	cr_assert_eq(call(&r, FAR_SEC, large, 1000), -EAGAIN);
	cr_assert_eq(r.n, 0u);
	cr_assert_eq(shard->counters.calls_sent - shard->counters.calls_ended, 0u);
	expect_nothing();
}

/* ---- typed calls learn numbers ---- */

static int call_typed(struct result *r)
{
	uint8_t body[64];
	size_t len = two_ints(body, 1, 2);
	struct call_start start = {.worker = PEER,
				   .fn = (uint16_t)registry_find(&registry, "t::add")->index,
				   .typed = true,
				   .deadline = TIME_NEVER,
				   .left = TIME_NEVER,
				   .done = take_result,
				   .user = r,
				   .data = body,
				   .len = len};
	memset(r, 0, sizeof *r);
	return shard_call(shard, &start);
}

Test(core_call, the_first_reply_teaches_the_number)
{
	static struct result r;
	union packet_head h;
	struct packet_hash hash;
	const struct function *fn = registry_find(&registry, "t::add");
	cr_assert_eq(call_typed(&r), 0);
	const struct fake_packet *p = fake_queue_sent(queue, &h);
	cr_assert_eq(h.flags, PACKET_TYPED | PACKET_HASHED);
	memcpy(&hash, (const uint8_t *)fake_body(p) + p->body_len - sizeof hash, sizeof hash);
	cr_assert_eq(hash.name, fn->signature.name_hash);
	cr_assert_eq(hash.signature, fn->signature.canonical_hash);
	answer(h, PACKET_REPLY, 321, PACKET_HASHED, "");
	cr_assert_eq(call_typed(&r), 0);
	p = fake_queue_sent(queue, &h);
	cr_assert_eq(h.flags, PACKET_TYPED);
	cr_assert_eq(h.request.handler, 321);
	answer(h, PACKET_REPLY, 0, 0, "");
}

/* Receive a number that cannot be. Expect it not learnt. */
Test(core_call, an_impossible_number_is_not_learnt)
{
	static struct result r;
	union packet_head h;
	cr_assert_eq(call_typed(&r), 0);
	fake_queue_sent(queue, &h);
	answer(h, PACKET_REPLY, FAR_FUNCTIONS_MAX, PACKET_HASHED, "");
	cr_assert_eq(r.status, FAR_OK);
	cr_assert_eq(call_typed(&r), 0);
	fake_queue_sent(queue, &h);
	cr_assert(h.flags & PACKET_HASHED);
	answer(h, PACKET_REPLY, 0, 0, "");
}
