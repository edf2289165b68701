/* SPDX-License-Identifier: BSD-3-Clause */
/** Records of values and forks of peers: how long each stays, and what ends it: "Receive X in state S. Expect Y.". The
 * test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

TestSuite(rref, .init = shard_setup, .fini = shard_teardown);

/* The worker that was to request the value is lost. Expect PEER_LOST for the fetch, and its forks gone. */
Test(rref, maker_lost)
{
	fetch(NIC_OTHER, 1, PEER, 7);
	make(2, PEER, 9, 10, OUR_INCARNATION);
	expect_made(2);
	control(NIC_OTHER, 3, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 9), ID(PEER, 11));
	expect_status(NIC_OTHER, 3, FAR_OK);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	union packet_head h;
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_PEER_LOST);
	cr_assert_eq(shard->rrefs->forks.n, 1u, "the value stays for the other");
	fetch(NIC_OTHER, 4, PEER, 9);
	expect_seven(NIC_OTHER, 4);
	control(NIC_OTHER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 9), ID(PEER, 11));
	expect_status(NIC_OTHER, 5, FAR_OK);
	expect_empty();
}

/* It was lost before. Expect PEER_LOST at once, but the value if it is there. */
Test(rref, maker_lost_before)
{
	make(1, PEER, 9, 10, OUR_INCARNATION);
	expect_made(1);
	control(NIC_OTHER, 2, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 9), ID(PEER, 11));
	expect_status(NIC_OTHER, 2, FAR_OK);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	for (uint32_t i = 0; i < 2; i++) { /* dead; then it may come back */
		fetch(NIC_OTHER, 3, PEER, 7);
		union packet_head h;
		sent_to(NIC_OTHER, &h, PACKET_ERROR);
		cr_assert_eq(h.error.status, FAR_PEER_LOST);
		fetch(NIC_OTHER, 4, PEER, 9);
		expect_seven(NIC_OTHER, 4);
		mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	}
	struct rref_id beyond = rref_name(INCARNATION_OF(77), 200, 0, 7); /* of nobody */
	control(NIC_OTHER, 5, RREF_FORK, 0, OUR_INCARNATION, beyond, ID(PEER, 12));
	expect_status(NIC_OTHER, 5, FAR_OK);
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	expect_empty();
}

/* An incarnation of a worker is lost while another worker fetches a value that the next incarnation is to have made.
 * Expect the fetch to wait for that. */
Test(rref, maker_restarts)
{
	struct rref_fetch f = {OUR_INCARNATION, rref_name(rref_incarnation(PEER, 6), 0, 0, 7)};
	from(NIC_OTHER, RREF_FETCH, 1, &f, sizeof f);
	fetch(NIC_OTHER, 2, PEER, 7);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	passes(2);
	union packet_head h;
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert(h.call.slot == 2 && h.error.status == FAR_PEER_LOST);
	expect_nothing();
	struct rref_op op = {RREF_FAILED, FAR_NO_FUNCTION, OUR_INCARNATION, f.id,
			     rref_name(rref_incarnation(PEER, 6), 0, 0, 8)};
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER);
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	from(NIC_PEER, RREF_CONTROL, 3, &op, sizeof op);
	expect_status(NIC_PEER, 3, FAR_OK);
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert(h.call.slot == 1 && h.error.status == FAR_NO_FUNCTION);
	op.kind = RREF_DELETE;
	op.status = 0;
	from(NIC_PEER, RREF_CONTROL, 4, &op, sizeof op);
	expect_status(NIC_PEER, 4, FAR_OK);
	expect_empty();
}

/* A holder is silent for a while, and is still a member. Expect its forks kept, and given back by its next session. */
Test(rref, forks_outlive_silence)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	mail_silent(PEER, NIC_PEER);
	passes(2);
	cr_assert_eq(shard->rrefs->forks.n, 1u);
	fetch(NIC_OTHER, 2, PEER, 7);
	expect_seven(NIC_OTHER, 2);
	fetch(NIC_OTHER, 3, PEER, 9); /* whose maker may still request it */
	expect_nothing();
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	make(4, PEER, 9, 10, OUR_INCARNATION);
	expect_made(4);
	expect_seven(NIC_OTHER, 3);
	control(NIC_PEER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 5, FAR_OK);
	control(NIC_PEER, 6, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 9), ID(PEER, 10));
	expect_status(NIC_PEER, 6, FAR_OK);
	expect_empty();
}

/* It is lost while it has no session. Expect its forks gone, and what it would have made settled. */
Test(rref, forks_end_with_a_silent_member)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	fetch(NIC_OTHER, 2, PEER, 9);
	mail_silent(PEER, NIC_PEER);
	passes(2);
	expect_nothing();
	mail_lost(PEER);
	passes(2);
	union packet_head h;
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_PEER_LOST);
	expect_empty();
}

/* The next session is with another incarnation, and nobody has reported it. Expect the forks of the one before gone. */
Test(rref, forks_end_with_another_incarnation)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	mail_silent(PEER, NIC_PEER);
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER); /* which makes the next one of another */
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	expect_empty();
}

/* The same fork sent twice. Expect one. */
Test(rref, fork_twice)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	for (uint32_t i = 0; i < 2; i++) {
		control(NIC_OTHER, 2 + i, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
		expect_status(NIC_OTHER, 2 + i, FAR_OK);
	}
	control(NIC_PEER, 4, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
	expect_status(NIC_PEER, 4, FAR_RESOURCE); /* another's name */
	cr_assert_eq(shard->rrefs->forks.n, 2u);
	mail(MAIL_PEER_DOWN, PEER, NIC_PEER);
	mail(MAIL_PEER_DOWN, OTHER, NIC_OTHER);
	expect_empty();
}

/* More than the bound of records. Expect RESOURCE; and none twice, none lost. */
Test(rref, records_are_bounded)
{
	shard->rrefs->records.n = shard->rrefs->records.slots_n / 2;
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_error(1, FAR_RESOURCE, FAR_EXECUTED_NO, "no room");
	fetch(NIC_PEER, 2, PEER, 7);
	expect_error(2, FAR_RESOURCE, FAR_EXECUTED_NO, "no room");
	control(NIC_PEER, 3, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_RESOURCE);
	shard->rrefs->records.n = 0;
	shard->rrefs->forks.n = shard->rrefs->forks.slots_n / 2;
	make(4, PEER, 7, 8, OUR_INCARNATION);
	expect_error(4, FAR_RESOURCE, FAR_EXECUTED_NO, "no room");
	shard->rrefs->forks.n = 0;
	expect_empty();
}

/* The counter of names comes to the end of its 48 bits. Expect none to be 0, none twice, and each found again when its
 * receiver says that it has come. */
Test(rref, names_wrap)
{
	uint64_t seen_before = 0;
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	struct rref_record *r = rref_find(shard, ID(PEER, 7));
	struct session *se = &shard->sessions[session_index(shard, PEER, 0)];
	shard->rrefs->count = RREF_COUNT_MASK - 4;
	for (int round = 0; round < 4; round++) {
		struct values_plan plan = {.rrefs = 3};
		struct rref_sharing sharing;
		struct rref_wire w[3];
		uint8_t bytes[RREF_WIRE_BYTES];
		cr_assert_eq(rref_share(shard, &plan, &sharing), 0);
		for (int i = 0; i < 3; i++) {
			plan.put_rref(plan.put_ctx, &r->rref, bytes);
			rref_get(bytes, &w[i]);
			uint64_t count = w[i].fork.number & RREF_COUNT_MASK;
			cr_assert_neq(count, 0u);
			cr_assert_neq(count, seen_before);
			seen_before = count;
		}
		struct rref_pins *p = sharing.pins;
		p->next = NULL;
		p->prev = &se->rref_pins;
		se->rref_pins = p;
		for (int i = 2; i >= 0; i--) {
			cr_assert_eq(p->left, (unsigned)i + 1);
			rref_pins_accepted(shard, se, w[i].fork);
		}
		cr_assert_null(se->rref_pins);
	}
	rref_unref(&r->rref.base);
	control(NIC_PEER, 3, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_OK);
	expect_empty();
}
