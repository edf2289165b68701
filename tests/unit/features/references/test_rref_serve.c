/* SPDX-License-Identifier: BSD-3-Clause */
/* The owner of references: "Receive X in state S. Expect Y.". The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "rref_fixture.h"

TestSuite(rref_serve, .init = shard_setup, .fini = shard_teardown);

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
