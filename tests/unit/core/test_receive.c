/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets that are dropped on receipt. The test's thread. */
#include "core/packet.h"
#include "core/session.h"
#include "shard_fixture.h"

#include <criterion/criterion.h>

TestSuite(core_receive, .init = shard_setup, .fini = shard_teardown);

/* Receive a packet of unknown type. Expect it counted and the peer reported. */
Test(core_receive, unknown_type)
{
	for (unsigned type = 0; type < 256; type += type == 0 ? PACKET_ABORT + 1 : 40) {
		uint64_t before = dropped();
		put(NIC_PEER, (union packet_head){.type = (uint8_t)type}, NULL, 0);
		passes(1);
		cr_assert_eq(dropped(), before + 1);
	}
	expect_nothing();
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(ctl_wakes, 1u, "said once");
}

/* Receive a large TLV request, and packets of a peer that has no session. Expect them released all the same. */
Test(core_receive, what_is_dropped_is_released)
{
	static char body[1000];
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	h.call.tlv_bytes = 1;
	put(NIC_PEER, h, body, sizeof body);
	put(3, request(MSG_ECHO, 1, UINT64_MAX), body, sizeof body);
	put(NIC_PEER, (union packet_head){.type = 99}, body, sizeof body);
	put(NIC_PEER, (union packet_head){.reply = {.type = PACKET_REPLY, .slot = 5}}, body, sizeof body);
	queue->attached[3] = true;
	passes(1);
	queue->attached[3] = false;
	cr_assert_eq(dropped(), 4u);
	cr_assert_eq(queue->in_held, 0u);
}

/* Receive what the driver found to break its rules. Expect it counted and the peer reported. */
Test(core_receive, bad_packets_of_the_driver)
{
	static const union packet_head none;
	fake_queue_put(queue, NIC_PEER, &none, NULL, 0);
	queue->bad_next = true;
	passes(1);
	cr_assert_eq(dropped(), 1u);
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
}
