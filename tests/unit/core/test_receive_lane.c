/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Lines that a peer writes, right and wrong, and packets that a driver laid out as lines: the fast path takes none that
 * the general code would treat in another way, and reads no byte behind a line. The test's thread.
 */
#include "base/must.h"
#include "lane_fixture.h"
#include "value/encoding.h"

TestSuite(core_receive_lane, .init = lane_setup, .fini = lane_teardown);

/* Receive requests and a reply that are right. Expect them handled, and each answer on the lane. */
Test(core_receive_lane, plain_lines)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct plain p;
	put_line(request(MSG_ECHO, 1, UINT64_MAX), "", 0);
	put_line(request(MSG_ECHO, 2, UINT64_MAX), body, sizeof body);
	put_line(typed(3), body, len);
	passes(1);
	expect_line(1, "", 0);
	expect_line(2, body, sizeof body);
	expect_line(3, body, len);
	put_line(sent(&p), "yes", 3);
	passes(1);
	cr_assert(p.n == 1 && p.len == 3);
	cr_assert_eq(opened, 0u);
	cr_assert_eq(dropped(), 0u);
	expect_nothing();
}

/* Receive lines whose words say more bytes than a line has, or that the driver is to open them, as the last of the
 * ring. Expect none handled: the driver finds them bad, and the peer is reported. */
Test(core_receive_lane, words_beyond_the_line)
{
	static const uint32_t words[] = {
		FAR_LINE_PAYLOAD + 1,     LANE_LEN_MASK, LANE_BULK, LANE_BULK | 8, LANE_BULK | FAR_LINE_PAYLOAD,
		LANE_BULK | LANE_LEN_MASK};
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct plain p;
	union packet_head reply = sent(&p);
	for (unsigned i = 0; i < sizeof words / sizeof *words; i++)
		for (unsigned kind = 0; kind < 3; kind++) {
			unsigned lines = opened, before = ran;
			uint64_t drops = dropped();
			session()->protocol_error = false;
			at_end();
			put_line_with(words[i],
				      kind == 0   ? request(MSG_ECHO, 1, UINT64_MAX)
				      : kind == 1 ? typed(1)
						  : reply,
				      body, kind == 1 ? len : sizeof body);
			passes(1);
			cr_assert_eq(opened, lines + 1, "word %#x, kind %u", words[i], kind);
			cr_assert_eq(dropped(), drops + 1, "word %#x, kind %u", words[i], kind);
			cr_assert(posted(MAIL_PROTOCOL_ERROR), "word %#x, kind %u", words[i], kind);
			cr_assert_eq(ran, before);
			cr_assert_eq(p.n, 0u);
			expect_no_line();
			expect_nothing();
		}
	at_end();
	put_line(reply, body, sizeof body);
	passes(1);
	cr_assert(p.n == 1 && p.len == sizeof body);
}

/* Receive plain heads that say there are fields behind the payload. Expect requests refused as by the general code, and
 * a reply dropped. */
Test(core_receive_lane, fields_without_their_flag)
{
	static const uint32_t bytes[] = {1, 8, FAR_TLV_BYTES_MAX, UINT32_MAX};
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct plain p;
	union packet_head right = sent(&p);
	for (unsigned i = 0; i < sizeof bytes / sizeof *bytes; i++) {
		union packet_head message = request(MSG_ECHO, 1, UINT64_MAX), function = typed(2), reply = right;
		message.call.tlv_bytes = function.call.tlv_bytes = reply.call.tlv_bytes = bytes[i];
		uint64_t drops = dropped();
		put_line(message, body, sizeof body);
		put_line(function, body, len);
		put_line(reply, body, sizeof body);
		passes(1);
		expect_error(1, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed fields");
		expect_error(2, FAR_PROTOCOL, FAR_EXECUTED_NO, "malformed fields");
		cr_assert_eq(dropped(), drops + 3);
		cr_assert_eq(ran, 0u);
		cr_assert_eq(p.n, 0u);
		expect_no_line();
		expect_nothing();
	}
	put_line(right, body, 5);
	passes(1);
	cr_assert(p.n == 1 && p.len == 5);
}

/* Receive lines of a lane that is of no session yet, or not any more. Expect the driver to open them. */
Test(core_receive_lane, without_a_session)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct plain p;
	union packet_head reply = sent(&p);
	lane.user = NULL;
	put_line(request(MSG_ECHO, 1, UINT64_MAX), body, sizeof body);
	put_line(typed(2), body, len);
	put_line(reply, body, sizeof body);
	passes(1);
	cr_assert_eq(opened, 3u);
	cr_assert_eq(dropped(), 3u);
	cr_assert_eq(ran, 0u);
	cr_assert_eq(p.n, 0u);
	lane.user = session();
	put_line(reply, body, 1);
	passes(1);
	cr_assert_eq(p.n, 1u);
}

/* Receive requests while an answer before them waits for memory. Expect them paused, and all in order. A reply goes
 * on. */
Test(core_receive_lane, requests_are_paused)
{
	union packet_head h;
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	struct plain p;
	union packet_head reply = sent(&p);
	queue->no_bulk = true;
	put_line(request(MSG_BIG, 1, UINT64_MAX), body, 4);
	put_line(request(MSG_ECHO, 2, UINT64_MAX), body, 4);
	put_line(typed(3), body, len);
	put_line(reply, body, 2);
	passes(2);
	cr_assert_eq(ran, 1u, "the first one blocks the session");
	cr_assert_eq(session()->paused_n, 2u);
	cr_assert_eq(p.n, 1u);
	expect_no_line();
	expect_nothing();
	queue->no_bulk = false;
	passes(2);
	cr_assert_eq(ran, 3u);
	expect(&h, PACKET_REPLY, 1);
	expect_line(2, body, 4);
	expect_reply(3, body, len);
}

/* Receive requests when the lane has no room for their answers. Expect them to leave by the general code. */
Test(core_receive_lane, answers_without_room)
{
	uint8_t body[FAR_LINE_PAYLOAD];
	size_t len = floats(body);
	lane.room = 0;
	put_line(typed(1), body, len);
	put_line(request(MSG_ECHO, 2, UINT64_MAX), body, 7);
	passes(1);
	cr_assert_eq(ran, 2u);
	cr_assert_eq(lane.room, 0u);
	expect_reply(1, body, len);
	expect_reply(2, body, 7);
	lane.room = 2;
	put_line(typed(3), body, len);
	put_line(typed(4), body, len);
	put_line(typed(5), body, len);
	passes(1);
	expect_line(3, body, len);
	expect_line(4, body, len);
	expect_reply(5, body, len);
	expect_no_line();
}

/* Receive the reply of a call whose timer runs. Expect it stopped. */
Test(core_receive_lane, a_call_with_a_timer)
{
	struct plain p;
	union packet_head reply = sent_for(&p, FAR_SEC);
	call_arm_all(shard, now_ns);
	cr_assert_eq(shard->call_wheel.armed_n, 1u);
	put_line(reply, "yes", 3);
	passes(1);
	cr_assert_eq(p.n, 1u);
	cr_assert_eq(shard->call_wheel.armed_n, 0u);
	advance(2 * FAR_SEC);
	cr_assert_eq(p.n, 1u);
}

/* `n` tensors of one number each. Returns their size. */
static size_t tensors(uint8_t body[FAR_LINE_PAYLOAD], size_t n)
{
	static const float one = 1;
	const struct far_tensor t = far_tensor_1d(FAR_F32, (void *)(uintptr_t)&one, 1);
	const struct far_val v[] = {far_tensor_val(&t), far_tensor_val(&t), far_tensor_val(&t)};
	struct values_plan plan;
	struct far_err err;
	size_t len = values_size(v, n, &plan, &err);
	cr_assert_leq(len, FAR_LINE_PAYLOAD);
	values_write(v, n, &plan, body);
	return len;
}

/* Receive requests of a function with too few tensors, one too many, and two, by turns with two whose second has
 * another length than the payload has room for. Expect only the right ones to run. */
Test(core_receive_lane, other_arguments_than_the_last)
{
	uint8_t right[FAR_LINE_PAYLOAD], wrong[FAR_LINE_PAYLOAD];
	for (unsigned i = 0; i < 2; i++) {
		for (size_t n = 1; n <= 3; n += 2) {
			size_t len = tensors(wrong, n);
			put_line(typed_of(sum, (uint32_t)n), wrong, len);
			passes(1);
			expect_error((uint32_t)n, FAR_PROTOCOL, FAR_EXECUTED_NO, "t::sum");
		}
		cr_assert_eq(ran, i);
		size_t len = tensors(right, 2);
		put_line(typed_of(sum, 2), right, len);
		passes(1);
		cr_assert_eq(ran, i + 1);
		cr_assert(lane_published(&peer, lane_word(&peer)));
		lane_take(&peer);
		memcpy(wrong, right, len);
		cr_assert_eq(wrong[8], 1u, "the count of the second tensor, in the second word");
		wrong[8] = 100;
		put_line(typed_of(sum, 4), wrong, len);
		passes(1);
		expect_error(4, FAR_PROTOCOL, FAR_EXECUTED_NO, "t::sum");
		cr_assert_eq(ran, i + 1);
	}
}

/* Receive a message of an id without a handler. Expect the general code's answer. */
Test(core_receive_lane, no_handler)
{
	put_line(request(MSG_CALL + 1, 1, UINT64_MAX), "x", 1);
	put_line(request(UINT16_MAX, 2, UINT64_MAX), "x", 1);
	passes(1);
	expect_error(1, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "");
	expect_error(2, FAR_NO_FUNCTION, FAR_EXECUTED_NO, "");
	cr_assert_eq(ran, 0u);
}

/* Receive lines while the latency of a call is measured. Expect only its reply to end the measurement. */
Test(core_receive_lane, a_call_that_is_measured)
{
	uint8_t body[FAR_LINE_PAYLOAD] = {0};
	struct plain p;
	struct result r;
	struct latency *l = &shard->latency;
	union packet_head other = called(&r, FAR_FOREVER);
	other.type = PACKET_REPLY;
	other.request.handler = 0;
	other.request.time_left = 0;
	l->every = 1;
	l->left = 0;
	shard->due_left = 0;
	union packet_head right = sent(&p), wrong = right;
	cr_assert_eq(l->open_n, 1u);
	put_line_with(FAR_LINE_PAYLOAD + 1, right, body, sizeof body);
	put_line_with(LANE_BULK, right, body, sizeof body);
	wrong.reply.generation++;
	put_line(wrong, body, 1);
	wrong.reply.slot = UINT32_MAX;
	put_line(wrong, body, 1);
	wrong = right;
	wrong.type = PACKET_CANCEL;
	put_line(wrong, body, 1);
	put_line(other, body, 1); /* of a call that is not measured */
	passes(1);
	lane.user = NULL;
	put_line(right, body, 1);
	passes(1);
	cr_assert_eq(opened, 3u);
	cr_assert_eq(r.n, 1u);
	cr_assert(l->open_n == 1 && l->n == 0);
	cr_assert_eq(p.n, 0u);
	lane.user = session();
	now_ns += 1000;
	put_line(right, body, 1);
	passes(1);
	cr_assert(l->open_n == 0 && l->n == 1 && l->sum_ns == 1000);
	cr_assert_eq(p.n, 1u);
	cr_assert_eq(opened, 3u);
}

/* Receive messages whose handlers do not answer at once. Expect the shard to end or to keep each. */
Test(core_receive_lane, handlers_that_do_not_answer)
{
	union packet_head h;
	uint32_t tag = 7;
	put_line(request(MSG_SILENT, 1, UINT64_MAX), NULL, 0);
	put_line(request(MSG_ALLOC, 2, UINT64_MAX), NULL, 0);
	put_line(request(MSG_DEFER, 3, UINT64_MAX), &tag, sizeof tag);
	put_line(request(MSG_ECHO, 4, 0), NULL, 0);
	passes(1);
	expect_error(1, FAR_REMOTE, FAR_EXECUTED_YES, "without an answer");
	cr_assert_eq(expect(&h, PACKET_REPLY, 2)->body_len, 1000u);
	expect_error(4, FAR_TIMEOUT, FAR_EXECUTED_NO, "");
	cr_assert_eq(ran, 3u);
	expect_nothing();
	cr_assert_eq(far_deferred_reply(kept[0], "late", 4), FAR_OK);
	passes(1);
	expect_reply(3, "late", 4);
}

/* ---- packets that lie as lines ---- */

static struct nic_pkt given[4];
static unsigned given_n, released;

static unsigned recv_given(struct nic_queue *q, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = given_n;
	must(n <= max);
	memcpy(pkts, given, n * sizeof *pkts);
	given_n = 0;
	return n;
}

static void release(struct nic_queue *q, uint32_t from, uint64_t cookie)
{
	must(from == NIC_PEER && cookie == 9);
	released++;
}

/* The driver has no lanes to read: it hands out packets. */
static void by_packets(void)
{
	queue->base.lanes.hot = NULL;
	queue->base.lanes.hot_n = 0;
	ops.recv = recv_given;
	ops.release = release;
}

/* A packet whose body lies behind its head. */
static struct nic_pkt *as_line(struct nic_line *at, union packet_head h, const void *body, size_t len)
{
	struct nic_pkt *pkt = &given[given_n++];
	memcpy(at->bytes, &h, sizeof h);
	if (len)
		memcpy(fast_body(at), body, len);
	*pkt = (struct nic_pkt){
		.head = at->bytes, .body = len ? fast_body(at) : NULL, .body_len = len, .peer = NIC_PEER};
	return pkt;
}

/* Receive such packets that are plain, and others: with memory to release, with the body elsewhere, longer, of a peer
 * without a session. Expect each answered, released or dropped as it should be. */
Test(core_receive_lane, packets_as_lines)
{
	static struct nic_line at[8];
	static uint8_t apart[] = "elsewhere", body[200];
	union packet_head none = {0};
	memset(body, 'b', sizeof body);
	by_packets();
	as_line(&at[0], request(MSG_ECHO, 1, UINT64_MAX), "as a line", 9);
	as_line(&at[1], request(MSG_ECHO, 2, UINT64_MAX), "released", 8)->cookie = 9;
	as_line(&at[2], request(MSG_ECHO, 3, UINT64_MAX), "behind it", 9)->body = apart;
	passes(1);
	cr_assert_eq(released, 1u);
	cr_assert_eq(ran, 3u);
	expect_line(1, "as a line", 9);
	expect_line(2, "released", 8);
	expect_line(3, "elsewhere", 9);
	/* A length whose low bits are those of a line's. */
	as_line(&at[0], request(MSG_ECHO, 4, UINT64_MAX), body, LANE_LEN_MASK + LANE_BULK + 1 + 5);
	passes(1);
	expect_reply(4, body, LANE_LEN_MASK + LANE_BULK + 1 + 5);
	as_line(&at[0], request(MSG_ECHO, 5, UINT64_MAX), "of nobody", 9)->peer = 3;
	passes(1);
	cr_assert_eq(dropped(), 1u);
	as_line(&at[0], none, NULL, 0)->head = NULL;
	passes(1);
	cr_assert_eq(dropped(), 2u);
	cr_assert(posted(MAIL_PROTOCOL_ERROR));
	cr_assert_eq(ran, 4u);
	expect_no_line();
	expect_nothing();
}

/* The session is not up. Expect the packet dropped, no handler run. */
Test(core_receive_lane, a_session_that_is_not_up)
{
	static struct nic_line at;
	by_packets();
	session()->state = SESSION_CONNECTING;
	as_line(&at, request(MSG_ECHO, 1, UINT64_MAX), "early", 5);
	passes(1);
	session()->state = SESSION_UP;
	cr_assert(ran == 0 && dropped() == 1);
}
