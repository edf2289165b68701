/* SPDX-License-Identifier: BSD-3-Clause */
/* Control messages about references: when they leave, and that none is lost. The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

TestSuite(rref_control, .init = shard_setup, .fini = shard_teardown);

/* Every credit is used up. Expect control messages to go all the same, and a second batch to wait for the first. */
Test(rref_control, control_messages_need_no_credit)
{
	static struct result r[FAR_SESSION_CALLS_MAX];
	static union packet_head calls[FAR_SESSION_CALLS_MAX];
	struct rref_wire w[2] = {wire(PEER, 7, 8), wire(PEER, 9, 10)};
	struct rref_op op;
	union packet_head first, second;
	add_function("t::known(rref a, rref b) -> int");
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		calls[i] = called(&r[i], FAR_FOREVER);
	call_with(1, w, 2);
	cr_assert_eq(expect_controls(NIC_PEER, &op, &first), 1u);
	expect_nothing();
	answer_controls(NIC_PEER, first, (const uint8_t[]){FAR_OK}, 1);
	cr_assert_eq(expect_controls(NIC_PEER, &op, &second), 1u);
	answer_controls(NIC_PEER, second, (const uint8_t[]){FAR_OK}, 1);
	expect_ran(1, 2);
	for (int i = 0; i < 2; i++) {
		unsigned n = expect_controls(NIC_PEER, &op, &first);
		cr_assert_eq(op.kind, (uint32_t)RREF_DELETE);
		answer_controls(NIC_PEER, first, (const uint8_t[]){FAR_OK, FAR_OK}, n);
		if (n == 2)
			break;
	}
	for (unsigned i = 0; i < FAR_SESSION_CALLS_MAX; i++)
		answer(calls[i], PACKET_REPLY, 0, 0, "");
	passes(20);
	expect_empty();
}

/* No call slot is free. Expect control messages to wait, and go by themselves. */
Test(rref_control, control_messages_wait_for_room)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	struct call *free_slot = shard->calls_free;
	uint32_t used = shard->calls_used, all = shard->calls_n;
	shard->calls_free = NULL;
	shard->calls_n = used;
	call_with(1, &w, 1);
	expect_nothing();
	shard->calls_free = free_slot;
	shard->calls_n = all;
	advance(FAR_RREF_AGAIN_NS + 100000);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* A session ends by silence before a control message was answered. Expect it sent again by the next one, and no error.
 */
Test(rref_control, words_outlive_silence)
{
	struct result r;
	struct rref_wire w = wire(OTHER, 7, 8);
	union packet_head h = called(&r, FAR_FOREVER), fork;
	struct rref_op op;
	uint8_t body[64];
	size_t len = result_of(body, &w);
	h.type = PACKET_REPLY;
	h.flags = PACKET_RREFS;
	h.reply.function = 0;
	put(NIC_PEER, h, body, len);
	passes(2);
	expect_controls(NIC_OTHER, &op, &fork);
	mail_silent(OTHER, NIC_OTHER);
	advance(FAR_MS);
	passes(2);
	expect_nothing(); /* a session was requested: mail_out */
	mail(MAIL_PEER_UP, OTHER, NIC_OTHER);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_control(NIC_PEER, RREF_ACCEPT, w.fork, FAR_OK);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}
