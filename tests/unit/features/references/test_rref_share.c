/* SPDX-License-Identifier: BSD-3-Clause */
/* Results with references, and calls that hold some: "Receive X in state S. Expect Y.". The test's thread. */
#include "core/packet.h"
#include "rref_fixture.h"

TestSuite(rref_share, .init = shard_setup, .fini = shard_teardown);

/* Receive a result with another's reference, that nobody keeps. Expect FORK, then ACCEPT to its sender and DELETE. */
Test(rref_share, result_is_taken_over)
{
	struct result r;
	struct rref_wire w = wire(OTHER, 7, 8);
	uint8_t body[64];
	for (int late = 0; late < 2; late++) {
		union packet_head h = called(&r, late ? FAR_MS : FAR_FOREVER), fork, accept;
		struct rref_op op;
		if (late) {
			advance(2 * FAR_MS);
			sent_to(NIC_PEER, &accept, PACKET_CANCEL);
		}
		size_t len = result_of(body, &w);
		h.type = PACKET_REPLY;
		h.flags = PACKET_RREFS;
		h.reply.function = 0;
		put(NIC_PEER, h, body, len);
		passes(2);
		expect_controls(NIC_OTHER, &op, &fork);
		cr_assert_eq(op.kind, (uint32_t)RREF_FORK);
		expect_nothing();
		answer_controls(NIC_OTHER, fork, (const uint8_t[]){FAR_OK}, 1);
		expect_control(NIC_PEER, RREF_ACCEPT, w.fork, FAR_OK);
		expect_control(NIC_OTHER, RREF_DELETE, w.fork, FAR_OK);
		expect_empty();
	}
}

/* The same, the value being ours. Expect ACCEPT only. */
Test(rref_share, result_comes_home)
{
	struct result r;
	struct rref_wire w = wire(SELF, 7, 8);
	uint8_t body[64];
	union packet_head h = called(&r, FAR_FOREVER);
	size_t len = result_of(body, &w);
	h.type = PACKET_REPLY;
	h.flags = PACKET_RREFS;
	h.reply.function = 0;
	put(NIC_PEER, h, body, len);
	passes(2);
	expect_control(NIC_PEER, RREF_ACCEPT, w.fork, FAR_OK);
	expect_empty();
}

/* Malformed. Expect the call to fail with PROTOCOL. */
Test(rref_share, result_is_malformed)
{
	struct result r;
	struct rref_wire w = wire(OTHER, 7, 8);
	uint8_t body[64];
	union packet_head h = called(&r, FAR_FOREVER);
	size_t len = result_of(body, &w);
	h.type = PACKET_REPLY;
	h.flags = PACKET_RREFS;
	h.reply.function = 0;
	put(NIC_PEER, h, body, len - 1);
	passes(2);
	cr_assert_eq(r.n, 1u);
	cr_assert_eq(r.status, FAR_PROTOCOL);
	expect_empty();
}

/* ---- the caller ---- */

static uint32_t refs_at_the_end;

static void ended(void *user, const struct completion *o)
{
	const struct far_rref *r = user;
	cr_assert_eq(o->status, FAR_OK);
	refs_at_the_end = atomic_load(&r->base.refs);
}

/* A call ends that held a reference. Expect it given back before anybody is notified. */
Test(rref_share, given_back_before_it_has_ended)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	struct rref_record *record = rref_find(shard, ID(PEER, 7));
	struct far_rref *r = record ? &record->rref : NULL;
	struct far_buf *buf = buf_alloc(sizeof(struct rref_call));
	struct far_buf *pins_buf = buf_alloc(sizeof(struct rref_pins) + sizeof(struct far_rref *));
	cr_assert(r && buf && pins_buf && atomic_load(&r->base.refs) == 2);
	struct rref_pins *pins = buf_data(pins_buf);
	*pins = (struct rref_pins){.buf = pins_buf, .n = 1, .left = 1};
	pins->at[0] = r;
	struct rref_call *call = buf_data(buf);
	*call = (struct rref_call){.done = ended, .user = r, .pins = pins, .buf = buf};
	rref_call_done(call, &(struct completion){.status = FAR_OK});
	cr_assert_eq(refs_at_the_end, 1u, "the fork's alone");
	control(NIC_PEER, 2, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 2, FAR_OK);
	expect_empty();
}
