/* SPDX-License-Identifier: BSD-3-Clause */
/* RECALL, sent and received: "Receive X in state S. Expect Y.". The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

TestSuite(rref_recall, .init = shard_setup, .fini = shard_teardown);

/* The sender of a result sends RECALL, after its session has ended. Expect BUSY as long as the owner has not
 * answered, of names before the one in question only; then OK. */
Test(rref_recall, recalled_while_the_owner_is_asked)
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
	mail_silent(PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	control(NIC_PEER, 1, RREF_RECALL, 0, 0, (struct rref_id){0}, ID(PEER, 8));
	expect_status(NIC_PEER, 1, FAR_OK);
	control(NIC_PEER, 2, RREF_RECALL, 0, 0, (struct rref_id){0}, ID(PEER, 9));
	expect_status(NIC_PEER, 2, FAR_BUSY);
	control(NIC_PEER, 3, RREF_RECALL, 0, 0, (struct rref_id){0}, ID(OTHER, 9));
	expect_status(NIC_PEER, 3, FAR_PROTOCOL);
	answer_controls(NIC_OTHER, fork, (const uint8_t[]){FAR_OK}, 1);
	expect_control(NIC_PEER, RREF_ACCEPT, w.fork, FAR_OK);
	expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
	control(NIC_PEER, 4, RREF_RECALL, 0, 0, (struct rref_id){0}, ID(PEER, 9));
	expect_status(NIC_PEER, 4, FAR_OK);
	expect_empty();
}

/* Results left with references, and their session ended. Expect RECALL to the receiver: those are kept while it
 * says BUSY, given back when it says OK, and one that was sent later stays. */
Test(rref_recall, results_are_recalled)
{
	struct session *se = &shard->sessions[session_index(shard, PEER, 0)];
	struct values_plan plan = {.rrefs = 1};
	struct rref_sharing early, late;
	struct rref_op op;
	union packet_head h;
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	struct rref_record *r = rref_find(shard, ID(PEER, 7));
	cr_assert_eq(rref_share(shard, &plan, &early), 0);
	uint8_t at[RREF_WIRE_BYTES];
	plan.put_rref(plan.put_ctx, &r->rref, at);
	early.pins->prev = &se->rref_pins;
	se->rref_pins = early.pins;
	mail_silent(PEER, NIC_PEER);
	cr_assert_eq(rref_share(shard, &plan, &late), 0);
	plan.put_rref(plan.put_ctx, &r->rref, at);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	late.pins->next = early.pins;
	early.pins->prev = &late.pins->next;
	late.pins->prev = &se->rref_pins;
	se->rref_pins = late.pins;
	for (unsigned i = 0; i < 2; i++) {
		advance(4 * FAR_MS);
		cr_assert_eq(expect_controls(NIC_PEER, &op, &h), 1u);
		cr_assert_eq(op.kind, (uint32_t)RREF_RECALL);
		cr_assert_eq(op.fork.incarnation, OUR_INCARNATION);
		cr_assert_gt(op.fork.number & RREF_COUNT_MASK, early.pins->first);
		cr_assert_lt(op.fork.number & RREF_COUNT_MASK, late.pins->first);
		answer_controls(NIC_PEER, h, &(uint8_t){FAR_BUSY}, 1);
		cr_assert_eq(late.pins->next, early.pins);
	}
	mail_silent(PEER, NIC_PEER); /* of all that left by then */
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	advance(100 * FAR_MS);
	cr_assert_eq(expect_controls(NIC_PEER, &op, &h), 1u);
	cr_assert_gt(op.fork.number & RREF_COUNT_MASK, late.pins->first);
	answer_controls(NIC_PEER, h, &(uint8_t){FAR_OK}, 1);
	cr_assert_null(se->rref_pins);
	rref_unref(&r->rref.base);
	control(NIC_PEER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 5, FAR_OK);
	expect_empty();
}
