/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests: "Receive X in state S. Expect Y.". The test's thread, and threads that it starts. */
#include "core/call.h"
#include "core/packet.h"
#include "shard_fixture.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <string.h>

TestSuite(core_dispatch, .init = shard_setup, .fini = shard_teardown);

/* Receive REQUEST in UP. Expect the handler's REPLY. */
Test(core_dispatch, request_is_answered)
{
	put_request(MSG_ECHO, 7, "abc", 3);
	passes(1);
	expect_reply(7, "abc", 3);
	expect_nothing();
	cr_assert_eq(shard->counters.requests_received, 1u);
	cr_assert_eq(shard->counters.replies_sent, 1u);
}

/* Receive REQUESTs of every size around the line. Expect each body whole, and each packet released. */
Test(core_dispatch, requests_of_every_size)
{
	static char body[5000];
	static const size_t sizes[] = {0, 1, FAKE_INLINE - 1, FAKE_INLINE, FAKE_INLINE + 1, 64, sizeof body};
	for (size_t i = 0; i < sizeof body; i++)
		body[i] = (char)(i * 3);
	for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		put_request(MSG_ECHO, i, body, sizes[i]);
		passes(1);
		expect_reply(i, body, sizes[i]);
	}
}

/* Receive requests whose TLV flag and bytes do not fit each other or the body. Expect them refused unread. */
Test(core_dispatch, tlv_heads_that_do_not_fit_are_refused)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	h.flags = PACKET_TLV;
	put(NIC_PEER, h, "abc", 3);
	h.flags = 0;
	h.call.tlv_bytes = 8;
	put(NIC_PEER, h, "abc", 3);
	h.flags = PACKET_TLV;
	put(NIC_PEER, h, "abc", 3);
	passes(1);
	cr_assert_eq(ran, 0u);
	cr_assert_eq(dropped(), 3u);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed fields");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed fields");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed fields");
	expect_nothing();
}

/* Receive a request with a field that nobody has, then with a mandatory one, then with malformed ones. Expect the first
 * one run without the field, the others refused. */
Test(core_dispatch, unknown_fields_are_skipped_unless_mandatory)
{
	union packet_head h = request(MSG_ECHO, 1, UINT64_MAX);
	h.flags = PACKET_TLV;
	h.call.tlv_bytes = 5;
	put(NIC_PEER, h, "abc\x09\x02\x01\x00x", 8);
	passes(1);
	cr_assert_eq(ran, 1u);
	expect_reply(1, "abc", 3);
	put(NIC_PEER, h, "abc\x09\x82\x01\x00x", 8);
	put(NIC_PEER, h, "abc\x09\x02\x02\x00x", 8);
	put(NIC_PEER, h, "abc\x00\x80\x01\x00x", 8);
	passes(1);
	cr_assert_eq(ran, 1u);
	expect_error(1, FAR_UNSUPPORTED, FAR_EXECUTED_NO, "mandatory field 0x209");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed request: its fields");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed request: its fields");
	expect_nothing();
}

/* Receive a REQUEST for a message without a handler. Expect NO_FUNCTION, not run. */
Test(core_dispatch, message_without_handler)
{
	put_request(900, 3, NULL, 0);
	put_request(UINT16_MAX, 4, NULL, 0);
	passes(1);
	expect_error(3, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "message 900");
	expect_error(4, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "\"me\"");
	cr_assert_eq(ran, 0u);
}

/* Receive a REQUEST whose handler answers nothing. Expect REMOTE, run, naming the handler. */
Test(core_dispatch, handler_without_answer)
{
	put_request(MSG_SILENT, 3, NULL, 0);
	passes(1);
	expect_error(3, FAR_REMOTE, FAR_EXECUTED_YES, "message 3 returned without an answer");
}

/* The handler answers twice. Expect the first answer only. */
Test(core_dispatch, answering_twice)
{
	put_request(MSG_TWICE, 3, NULL, 0);
	passes(1);
	cr_assert_eq(second_answer, FAR_INVALID);
	expect_reply(3, "one", 3);
	expect_nothing();
}

Test(core_dispatch, failing_carries_code_and_text)
{
	union packet_head h;
	put_request(MSG_FAIL, 3, NULL, 0);
	passes(1);
	const struct fake_packet *p = expect(&h, PACKET_ERROR, 3);
	cr_assert_eq(h.error.status, FAR_REMOTE);
	cr_assert_eq(h.error.code, -42);
	cr_assert_eq(executed_of(&h), (unsigned)FAR_EXECUTED_YES);
	cr_assert_eq(p->body_len, strlen("because"));
}

/* Receive a REQUEST with no time left. Expect TIMEOUT, not run. */
Test(core_dispatch, request_without_time)
{
	put(NIC_PEER, request(MSG_ECHO, 3, 0), NULL, 0);
	passes(1);
	expect_error(3, FAR_TIMEOUT, FAR_EXECUTED_NO, "before the handler was started");
	cr_assert_eq(ran, 0u);
}

Test(core_dispatch, the_handler_sees_the_time_left)
{
	put(NIC_PEER, request(MSG_ECHO, 3, UINT64_C(0x123456789a)), NULL, 0);
	passes(1);
	cr_assert_eq(time_left, UINT64_C(0x123456789a));
	put_request(MSG_ECHO, 4, NULL, 0);
	passes(1);
	cr_assert_eq(time_left, FAR_FOREVER);
}

/* ---- typed requests ---- */

Test(core_dispatch, typed_request)
{
	uint8_t body[64];
	union packet_head h;
	put_typed(registry_find(&registry, "t::add")->index, body, two_ints(body, 40, 2));
	passes(1);
	const struct fake_packet *p = expect(&h, PACKET_REPLY, 1);
	struct far_val v;
	size_t n;
	cr_assert_eq(values_read(fake_body(p), p->body_len, &v, 1, &n, NULL), 0);
	cr_assert_eq(v.u.i, 42);
}

/* Receive a HASHED request. Expect the function's number in the reply. */
Test(core_dispatch, hashed_request_learns_the_number)
{
	uint8_t body[64];
	const struct function *fn = registry_find(&registry, "t::add");
	size_t len = two_ints(body, 1, 2);
	struct packet_hash hash = {fn->signature.name_hash, fn->signature.canonical_hash};
	memcpy(body + len, &hash, sizeof hash);
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_HASHED;
	put(NIC_PEER, h, body, len + sizeof hash);
	passes(1);
	expect(&h, PACKET_REPLY, 1);
	cr_assert(h.flags & PACKET_HASHED);
	cr_assert_eq(h.reply.function, fn->index);
}

static void put_hashed(uint64_t name, uint64_t signature, size_t cut)
{
	uint8_t body[64];
	size_t len = two_ints(body, 1, 2);
	struct packet_hash hash = {name, signature};
	memcpy(body + len, &hash, sizeof hash);
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_HASHED;
	put(NIC_PEER, h, body, cut ? cut : len + sizeof hash);
	passes(1);
}

Test(core_dispatch, hashed_request_that_does_not_match)
{
	const struct function *fn = registry_find(&registry, "t::add");
	put_hashed(1234, fn->signature.canonical_hash, 0);
	expect_error(1, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "register it there too");
	put_hashed(fn->signature.name_hash, 1234, 0);
	expect_error(1, FAR_SIGNATURE, FAR_EXECUTED_NO, fn->signature.text);
	/* A trailer that is cut off anywhere. */
	for (size_t cut = 1; cut < sizeof(struct packet_hash); cut++) {
		put_hashed(fn->signature.name_hash, fn->signature.canonical_hash, cut);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed request");
	}
	union packet_head h = request(0, 1, UINT64_MAX);
	h.flags = PACKET_TYPED | PACKET_HASHED;
	put(NIC_PEER, h, NULL, 0);
	passes(1);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed request");
	cr_assert_eq(ran, 0u);
}

Test(core_dispatch, function_number_that_is_none)
{
	put_typed(3, NULL, 0);
	put_typed(FAR_FUNCTIONS_MAX, NULL, 0);
	put_typed(UINT16_MAX, NULL, 0);
	passes(1);
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "no function number 3");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "4096");
	expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "65535");
}

/* Receive arguments that are no values. Expect PROTOCOL, not run, counted. */
Test(core_dispatch, malformed_values)
{
	uint8_t body[64];
	unsigned fn = registry_find(&registry, "t::add")->index;
	size_t len = two_ints(body, 1000, 2000);
	for (size_t cut = 0; cut < len; cut++) {
		put_typed(fn, body, cut);
		passes(1);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments for t::add");
	}
	for (unsigned bad = 0; bad < 256; bad++) {
		uint8_t copy[64];
		memcpy(copy, body, len);
		copy[1] = (uint8_t)bad; /* the first type */
		if (bad == FAR_TYPE_INT)
			continue; /* as it was */
		put_typed(fn, copy, len);
		passes(1);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments");
	}
	cr_assert_eq(ran, 0u);
	cr_assert_gt(dropped(), 0u);
}

/* A hostile caller sends well-formed values that the signature does not take. Expect the handler not to see them. */
Test(core_dispatch, wrong_argument_types)
{
	struct far_val v[] = {far_int(1), far_str("x"), far_int(3)};
	unsigned fn = registry_find(&registry, "t::add")->index;
	static const unsigned counts[] = {0, 1, 2, 3};
	for (unsigned i = 0; i < 4; i++) {
		uint8_t body[64];
		struct values_plan plan;
		size_t len = values_size(v, counts[i], &plan, NULL);
		values_write(v, counts[i], &plan, body);
		put_typed(fn, body, len);
		passes(1);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed arguments");
	}
	cr_assert_eq(ran, 0u);
}

Test(core_dispatch, status_and_result_of_a_handler)
{
	uint8_t none[8];
	struct values_plan plan;
	size_t len = values_size(NULL, 0, &plan, NULL);
	values_write(NULL, 0, &plan, none);
	put_typed(registry_find(&registry, "t::busy")->index, none, len);
	put_typed(registry_find(&registry, "t::wrong")->index, none, len);
	passes(1);
	expect_error(1, FAR_BUSY, FAR_EXECUTED_YES, "t::busy failed");
	expect_error(1, FAR_SIGNATURE, FAR_EXECUTED_YES, "returned a str");
}
