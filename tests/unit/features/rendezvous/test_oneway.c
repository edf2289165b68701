/* SPDX-License-Identifier: BSD-3-Clause */
/** One-way messages: their window, their order, and the credit that reopens it. The test's thread. */
#include "base/limits.h"
#include "rendezvous_fixture.h"

TestSuite(rendezvous_oneway, .init = setup, .fini = teardown);

Test(rendezvous_oneway, the_window_of_one_ways)
{
	union packet_head h;
	uint32_t tag, n = 0;
	while (oneway(n) == 0)
		n++;
	cr_assert_eq(n, FAR_ONEWAYS_WINDOW + FAR_ONEWAYS_QUEUED_MAX);
	passes(3);
	for (uint32_t i = 0; i < FAR_ONEWAYS_WINDOW; i++) {
		memcpy(&tag, fake_body(sent(&h, PACKET_ONEWAY)), sizeof tag);
		cr_assert_eq(tag, i);
	}
	expect_nothing();
	put_about(PACKET_CREDIT, 0, 0, 10, 0);
	passes(2);
	for (uint32_t i = 0; i < 10; i++) {
		memcpy(&tag, fake_body(sent(&h, PACKET_ONEWAY)), sizeof tag);
		cr_assert_eq(tag, FAR_ONEWAYS_WINDOW + i);
	}
	expect_nothing();
	cr_assert_eq(oneway(n), 0);
	put_about(PACKET_CREDIT, 0, 0, 9, 0);
	expect_poisoned("credit taken back");
	/* Somebody waits for all to be delivered. */
	atomic_store(&shard->acks_requested, true);
	passes(130);
	sent(&h, PACKET_CREDIT_REQUEST);
	atomic_store(&shard->acks_requested, true);
	passes(130);
	expect_nothing();
	cr_assert_neq(shard->counters.sends_begun, shard->counters.sends_ended);
}

Test(rendezvous_oneway, one_ways_are_run_in_order_and_not_answered)
{
	union packet_head h, one = request(MSG_TWICE, 0, UINT64_MAX);
	one.type = PACKET_ONEWAY;
	for (uint32_t i = 0; i < FAR_ONEWAYS_BATCH - 1; i++)
		put(NIC_PEER, one, &i, sizeof i);
	passes(4);
	expect_nothing();
	cr_assert_eq(ran, FAR_ONEWAYS_BATCH - 1u);
	cr_assert_eq(second_answer, FAR_INVALID);
	for (uint32_t i = 0; i < ran; i++)
		cr_assert_eq(order[i], i);
	one.oneway.handler = 900;
	put(NIC_PEER, one, NULL, 0);
	passes(1);
	sent(&h, PACKET_CREDIT);
	cr_assert_eq(h.credit.oneways, (uint64_t)FAR_ONEWAYS_BATCH);
	cr_assert_eq(shard->counters.oneways_dropped, 1u);
	one.oneway.handler = MSG_SILENT;
	one.oneway.time_left = 0; /* its time is used up */
	put(NIC_PEER, one, NULL, 0);
	put_about(PACKET_CREDIT_REQUEST, 0, 0, 0, 0);
	passes(1);
	cr_assert_eq(shard->counters.oneways_dropped, 2u);
	sent(&h, PACKET_CREDIT);
	cr_assert_eq(h.credit.oneways, FAR_ONEWAYS_BATCH + 1u);
	cr_assert(h.flags & PACKET_REQUESTED);
	one.flags = PACKET_TYPED;
	put(NIC_PEER, one, NULL, 0);
	expect_poisoned("a typed one-way");
	union packet_head unknown = request(MSG_ECHO, 1, UINT64_MAX);
	unknown.call.tlv_bytes = 8;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("fields that are not known");
	unknown.call.tlv_bytes = 0;
	unknown.flags = PACKET_TLV;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("the flag of such fields");
	unknown.flags = PACKET_RETRY;
	announce_as(unknown, PACKET_REQUEST, 0, 1, 100);
	expect_poisoned("one that may be retransmitted");
}
