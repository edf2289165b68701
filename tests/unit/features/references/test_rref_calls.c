/* SPDX-License-Identifier: BSD-3-Clause */
/* Requests with references: "Receive X in state S. Expect Y.". The test's thread. */
#include "core/packet.h"
#include "rref_fixture.h"

TestSuite(rref_calls, .init = shard_setup, .fini = shard_teardown);

/* Receive a call with another's reference. Expect FORK; on OK the handler, then DELETE. */
Test(rref_calls, runs_when_confirmed)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	cr_assert_eq(runs, 0u);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_OK);
	expect_ran(1, 1);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* Two of different owners, one of them ourselves. Expect it to wait for the other only. */
Test(rref_calls, runs_when_all_are)
{
	struct rref_wire w[3] = {wire(OTHER, 7, 8), wire(SELF, 9, 10), wire(PEER, 11, 12)};
	add_function("t::known(rref a, rref b, rref c) -> int");
	call_with(1, w, 3);
	struct rref_op op;
	union packet_head first, second;
	expect_controls(NIC_OTHER, &op, &first);
	expect_controls(NIC_PEER, &op, &second);
	answer_controls(NIC_PEER, second, (const uint8_t[]){FAR_OK}, 1);
	cr_assert_eq(runs, 0u);
	answer_controls(NIC_OTHER, first, (const uint8_t[]){FAR_OK}, 1);
	expect_ran(1, 3);
	for (int i = 0; i < 2; i++) {
		const struct fake_packet *p = fake_queue_sent(queue, &first);
		cr_assert_not_null(p);
		memcpy(&op, fake_body(p), sizeof op);
		cr_assert_eq(op.kind, (uint32_t)RREF_DELETE);
		answer_controls(p->peer, first, (const uint8_t[]){FAR_OK}, 1);
	}
	expect_empty();
}

/* The owner does not know it. Expect the error, executed NO. */
Test(rref_calls, owner_says_no)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	expect_control(NIC_OTHER, RREF_FORK, w.fork, FAR_PEER_LOST);
	expect_error(1, FAR_PEER_LOST, FAR_EXECUTED_NO, "does not know");
	cr_assert_eq(runs, 0u);
	expect_empty();
}

/* The owner answers fewer entries than were sent, or nonsense. Expect PROTOCOL. */
Test(rref_calls, owner_says_nonsense)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	struct rref_op op;
	union packet_head h;
	add_function("t::known(rref r) -> int");
	for (uint32_t i = 1; i <= 2; i++) {
		call_with(i, &w, 1);
		expect_controls(NIC_OTHER, &op, &h);
		answer_controls(NIC_OTHER, h, (const uint8_t[]){200}, i - 1);
		expect_error(i, FAR_PROTOCOL, FAR_EXECUTED_NO, "does not know");
	}
	expect_empty();
}

/* The owner is lost meanwhile. Expect the error at once. */
Test(rref_calls, owner_lost)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	struct rref_op op;
	union packet_head h;
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	expect_controls(NIC_OTHER, &op, &h);
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	passes(2);
	expect_error(1, FAR_PEER_LOST, FAR_EXECUTED_NO, "");
	expect_empty();
}

/* Cancelled while it waits. Expect CANCELLED, no run, and the fork given back when the owner has answered. */
Test(rref_calls, cancelled_while_it_waits)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	struct rref_op op;
	union packet_head fork, h;
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	expect_controls(NIC_OTHER, &op, &fork);
	put_cancel(1);
	passes(2);
	sent_to(NIC_PEER, &h, PACKET_CANCELLED);
	answer_controls(NIC_OTHER, fork, (const uint8_t[]){FAR_OK}, 1);
	cr_assert_eq(runs, 0u);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* The sender is lost while the call waits. Expect nothing run, and the fork released. */
Test(rref_calls, caller_lost_while_it_waits)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	struct rref_op op;
	union packet_head fork;
	add_function("t::known(rref r) -> int");
	call_with(1, &w, 1);
	expect_controls(NIC_OTHER, &op, &fork);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	answer_controls(NIC_OTHER, fork, (const uint8_t[]){FAR_OK}, 1);
	cr_assert_eq(runs, 0u);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	expect_empty();
}

/* Receive references that cannot be: of another's giving, of a worker or shard that is not there, cut off. */
Test(rref_calls, references_that_cannot_be)
{
	struct rref_wire good = wire(OTHER, 7, 8), w;
	add_function("t::known(rref r) -> int");
	for (int i = 0; i < 6; i++) {
		w = good;
		if (i == 0)
			w.fork = ID(OTHER, 8);
		if (i == 1)
			w.owner = rref_incarnation(WORLD, 5);
		if (i == 2)
			w.id.incarnation = rref_incarnation(WORLD, 5);
		if (i == 3)
			w.id = rref_name(INCARNATION_OF(PEER), 0, FAR_SHARDS_MAX, 7);
		if (i == 4)
			w.id.number = 0;
		uint8_t body[512];
		size_t len = payload(body, &w, 1, "t::known");
		if (i == 5) { /* shorter by a byte of the reference */
			memmove(body + RREF_WIRE_BYTES + 1, body + RREF_WIRE_BYTES + 2, sizeof(struct rref_function));
			len--;
		}
		from(NIC_PEER, RREF_CALL, 1, body, len);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "");
	}
	cr_assert_eq(runs, 0u);
	expect_empty();
}

/* A good reference before a bad one. Expect the error, and the good one given back. */
Test(rref_calls, good_before_bad)
{
	struct rref_wire w[2] = {wire(OTHER, 7, 8), wire(OTHER, 9, 10)};
	w[1].fork = ID(OTHER, 10);
	add_function("t::known(rref a, rref b) -> int");
	call_with(1, w, 2);
	expect_control(NIC_OTHER, RREF_FORK, w[0].fork, FAR_OK);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "");
	passes(1); /* which has nothing else to do */
	expect_control(NIC_OTHER, RREF_DELETE, w[0].fork, FAR_OK);
	expect_empty();
}

/* A plain typed request must not hold any. Expect it refused as malformed. */
Test(rref_calls, not_in_plain_requests)
{
	struct rref_wire w = wire(OTHER, 7, 8);
	uint8_t body[512];
	add_function("t::known(rref r) -> int");
	size_t len = payload(body, &w, 1, "t::known");
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_HASHED;
	put(NIC_PEER, h, body, len);
	passes(2);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	cr_assert_eq(runs, 0u);
	expect_empty();
}
