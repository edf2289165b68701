/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner of references: "Receive X in state S. Expect Y.". The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

TestSuite(rref_serve, .init = shard_setup, .fini = shard_teardown);

/* ---- the owner ---- */

/* Receive a request to make. Expect the value kept until its fork is deleted. */
Test(rref_serve, made_fetched_deleted)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	cr_assert_eq(shard->rrefs->records.n, 1u);
	fetch(NIC_PEER, 2, PEER, 7);
	expect_seven(NIC_PEER, 2);
	fetch(NIC_OTHER, 3, PEER, 7);
	expect_seven(NIC_OTHER, 3);
	control(NIC_PEER, 4, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 4, FAR_OK);
	expect_empty();
}

/* Receive a fetch and a fork before the request to make, in every order. Expect the same in the end. */
Test(rref_serve, every_order)
{
	static const char *const orders[] = {"MFK", "MKF", "FMK", "FKM", "KMF", "KFM"};
	for (unsigned i = 0; i < 6; i++) {
		for (const char *c = orders[i]; *c; c++) {
			if (*c == 'M') {
				make(1, PEER, 100 + i, 200 + i, OUR_INCARNATION);
			} else if (*c == 'F') {
				fetch(NIC_OTHER, 2, PEER, 100 + i);
			} else {
				control(NIC_OTHER, 3, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 100 + i),
					ID(PEER, 300 + i));
			}
		}
		bool made = false, fetched = false, forked = false;
		for (int k = 0; k < 3; k++) {
			union packet_head h;
			cr_assert_not_null(fake_queue_sent(queue, &h), "order %s", orders[i]);
			cr_assert_eq(h.type, PACKET_REPLY);
			made |= h.call.slot == 1;
			fetched |= h.call.slot == 2;
			forked |= h.call.slot == 3;
		}
		cr_assert(made && fetched && forked);
		/* Its maker lets go first, then last. */
		bool first = i % 2;
		control(first ? NIC_PEER : NIC_OTHER, 4, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 100 + i),
			ID(PEER, (first ? 200 : 300) + i));
		expect_status(first ? NIC_PEER : NIC_OTHER, 4, FAR_OK);
		cr_assert_eq(shard->rrefs->records.n, 1u);
		control(first ? NIC_OTHER : NIC_PEER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 100 + i),
			ID(PEER, (first ? 300 : 200) + i));
		expect_status(first ? NIC_OTHER : NIC_PEER, 5, FAR_OK);
		expect_empty();
	}
}

/* Receive a fetch of a value without a request to make it, whose time passes. Expect CANCELLED, and the record gone. */
Test(rref_serve, fetch_of_nothing)
{
	struct rref_fetch f = {OUR_INCARNATION, ID(PEER, 7)};
	put(NIC_OTHER, request(RREF_FETCH, 1, FAR_MS), &f, sizeof f);
	passes(2);
	expect_nothing();
	advance(2 * FAR_MS);
	union packet_head h;
	sent_to(NIC_OTHER, &h, PACKET_CANCELLED);
	expect_empty();
}

/* Receive DELETEs that mean nothing. Expect OK, and what there is kept. */
Test(rref_serve, deletes_of_others)
{
	control(NIC_PEER, 1, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 1, FAR_OK);
	make(2, PEER, 7, 8, OUR_INCARNATION);
	expect_made(2);
	control(NIC_OTHER, 3, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_OTHER, 3, FAR_OK);
	control(NIC_PEER, 4, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 9), ID(PEER, 8));
	expect_status(NIC_PEER, 4, FAR_OK);
	control(NIC_OTHER, 5, RREF_FAILED, FAR_TIMEOUT, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
	expect_status(NIC_OTHER, 5, FAR_PROTOCOL);
	fetch(NIC_PEER, 6, PEER, 7);
	expect_seven(NIC_PEER, 6);
	control(NIC_PEER, 7, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 7, FAR_OK);
	expect_empty();
}

/* Receive control messages and requests about another incarnation, another shard, another's name. Expect refusals. */
Test(rref_serve, unknown_workers)
{
	struct rref_id id = ID(PEER, 7), elsewhere = rref_name(INCARNATION_OF(PEER), 0, 3, 7);
	control(NIC_PEER, 1, RREF_FORK, 0, OUR_INCARNATION ^ 1, id, ID(PEER, 8));
	expect_status(NIC_PEER, 1, FAR_PEER_LOST);
	control(NIC_PEER, 2, RREF_FORK, 0, OUR_INCARNATION, elsewhere, ID(PEER, 8));
	expect_status(NIC_PEER, 2, FAR_INVALID);
	control(NIC_PEER, 3, (enum rref_kind)9, 0, OUR_INCARNATION, id, id);
	expect_status(NIC_PEER, 3, FAR_PROTOCOL);
	control(NIC_PEER, 4, RREF_ACCEPT, 0, 0, id, rref_name(OUR_INCARNATION, 0, 0, 77));
	expect_status(NIC_PEER, 4, FAR_OK);
	make(5, PEER, 7, 8, OUR_INCARNATION ^ 1);
	expect_error(5, FAR_PEER_LOST, FAR_EXECUTED_NO, "former incarnation");
	make(6, OTHER, 7, 8, OUR_INCARNATION);
	expect_error(6, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	struct rref_fetch f = {OUR_INCARNATION ^ 1, id};
	from(NIC_PEER, RREF_FETCH, 7, &f, sizeof f);
	expect_error(7, FAR_PEER_LOST, FAR_EXECUTED_NO, "former incarnation");
	from(NIC_PEER, RREF_FETCH, 8, &f, sizeof f - 1);
	expect_error(8, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	from(NIC_PEER, RREF_CALL, 9, "x", 1);
	expect_error(9, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	from(NIC_PEER, RREF_REMOTE, 10, "x", 1);
	expect_error(10, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	from(NIC_PEER, RREF_CONTROL, 11, NULL, 0);
	expect_error(11, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	static uint8_t many[(RREF_OPS_MAX + 1) * sizeof(struct rref_op)];
	from(NIC_PEER, RREF_CONTROL, 12, many, sizeof many);
	expect_error(12, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed");
	from(NIC_PEER, RREF_LAST + 1, 13, NULL, 0);
	expect_error(13, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "no handler");
	expect_empty();
}

/* Receive a second request to make the same. Expect INVALID, the first kept. */
Test(rref_serve, made_twice)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	make(2, PEER, 7, 9, OUR_INCARNATION);
	expect_error(2, FAR_INVALID, FAR_EXECUTED_NO, "made before");
	cr_assert_eq(shard->rrefs->forks.n, 1u);
	control(NIC_PEER, 3, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_OK);
	expect_empty();
}

/* Receive, in state EXPECTED, FAILED for it. Expect the fetch to fail with that. */
Test(rref_serve, making_failed)
{
	fetch(NIC_OTHER, 1, PEER, 7);
	control(NIC_PEER, 2, RREF_FAILED, FAR_NO_FUNCTION, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	union packet_head h;
	expect_status(NIC_PEER, 2, FAR_OK);
	const struct fake_packet *p = sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_NO_FUNCTION);
	cr_assert_gt(p->body_len, 0u);
	control(NIC_PEER, 3, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_OK);
	expect_empty();
}

/* Receive FAILED first of all, then a fork and a fetch of another's, and the request to make at last.
 * Expect the failure for all, nothing run, and the record to live as long as its forks. */
Test(rref_serve, making_failed_before_all)
{
	union packet_head h;
	control(NIC_PEER, 1, RREF_FAILED, FAR_TIMEOUT, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 1, FAR_OK);
	control(NIC_OTHER, 2, RREF_FORK, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
	expect_status(NIC_OTHER, 2, FAR_OK);
	fetch(NIC_OTHER, 3, PEER, 7);
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_TIMEOUT);
	make(4, PEER, 7, 8, OUR_INCARNATION);
	expect_error(4, FAR_INVALID, FAR_EXECUTED_NO, "made before");
	cr_assert_eq(ran, 0u);
	control(NIC_PEER, 5, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 5, FAR_OK);
	fetch(NIC_OTHER, 6, PEER, 7);
	sent_to(NIC_OTHER, &h, PACKET_ERROR);
	cr_assert_eq(h.error.status, FAR_TIMEOUT);
	control(NIC_OTHER, 7, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 9));
	expect_status(NIC_OTHER, 7, FAR_OK);
	expect_empty();
}

/* Receive it without a status, with one that there is not, of another incarnation. Expect refusals. */
Test(rref_serve, making_failed_and_malformed)
{
	control(NIC_PEER, 1, RREF_FAILED, FAR_OK, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 1, FAR_PROTOCOL);
	control(NIC_PEER, 2, RREF_FAILED, FAR_STATUS_COUNT, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 2, FAR_PROTOCOL);
	control(NIC_PEER, 3, RREF_FAILED, FAR_TIMEOUT, OUR_INCARNATION ^ 1, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 3, FAR_PEER_LOST);
	expect_empty();
}

/* Receive it while the function runs, and when it has returned. Expect what came first to stay. */
Test(rref_serve, making_failed_too_late)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	control(NIC_PEER, 2, RREF_FAILED, FAR_TIMEOUT, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 2, FAR_OK);
	fetch(NIC_OTHER, 3, PEER, 7);
	expect_seven(NIC_OTHER, 3);
	control(NIC_PEER, 4, RREF_DELETE, 0, OUR_INCARNATION, ID(PEER, 7), ID(PEER, 8));
	expect_status(NIC_PEER, 4, FAR_OK);
	expect_empty();
}

/* The worker that was to request the value is lost. Expect PEER_LOST for the fetch, and its forks gone. */
Test(rref_serve, maker_lost)
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
Test(rref_serve, maker_lost_before)
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
Test(rref_serve, maker_restarts)
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
Test(rref_serve, forks_outlive_silence)
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
Test(rref_serve, forks_end_with_a_silent_member)
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
Test(rref_serve, forks_end_with_another_incarnation)
{
	make(1, PEER, 7, 8, OUR_INCARNATION);
	expect_made(1);
	mail_silent(PEER, NIC_PEER);
	mail(MAIL_PEER_RESTARTED, PEER, NIC_PEER); /* which makes the next one of another */
	mail(MAIL_PEER_UP, PEER, NIC_PEER);
	expect_empty();
}

/* The same fork sent twice. Expect one. */
Test(rref_serve, fork_twice)
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

/* ---- room ---- */

/* Every credit is used up. Expect control messages to go all the same, and a second batch to wait for the first. */
Test(rref_serve, control_messages_need_no_credit)
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
Test(rref_serve, control_messages_wait_for_room)
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

/* More than the bound of records. Expect RESOURCE; and none twice, none lost. */
Test(rref_serve, records_are_bounded)
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

/* ---- names ---- */

/* The counter of names comes to the end of its 48 bits. Expect none to be 0, none twice, and each found again when its
 * receiver says that it has come. */
Test(rref_serve, names_wrap)
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

/* Results left with references, and their session ended. Expect RECALL to the receiver: those are kept while it
 * says BUSY, given back when it says OK, and one that was sent later stays. */
Test(rref_serve, results_are_recalled)
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
