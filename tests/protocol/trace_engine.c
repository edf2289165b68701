/* SPDX-License-Identifier: BSD-3-Clause */
/** Requests between engines, and the answers; some of them wrong. Main thread. */
#include "trace.h"

#include "base/must.h"
#include "features/references/wire.h"
#include "value/encoding.h"

#include <farcall/status.h>
#include <stdalign.h>
#include <string.h>

enum { CALL_FIRST = 50, BODY_MAX = (RREF_OPS_MAX + 1) * sizeof(struct rref_op) };

static const struct rref_function function = {UINT64_C(0x1111222233334444), UINT64_C(0x5555666677778888)};
static const struct rref_id object = {UINT64_C(0x0002aabbccddeeff), UINT64_C(0x0103000000000021)};
static const struct rref_remote remote = {.owner = UINT64_C(0x0003a1a2a3a4a5a6),
					  .id = {UINT64_C(0x0001b1b2b3b4b5b6), UINT64_C(0x0103000000000007)},
					  .fork = {UINT64_C(0x0001b1b2b3b4b5b7), UINT64_C(0x0100000000000008)},
					  .function = {UINT64_C(0x9999aaaabbbbcccc), UINT64_C(0xddddeeeeffff0001)}};

/* The body of a message. */
struct body {
	alignas(64) uint8_t bytes[BODY_MAX];
	size_t len;
};

static void values_put(struct body *b, const struct far_val *v, size_t n)
{
	struct values_plan plan;
	b->len = values_size(v, n, &plan, NULL);
	must(b->len <= sizeof b->bytes);
	values_write(v, n, &plan, b->bytes);
}

static void bytes_put(struct body *b, const void *bytes, size_t len)
{
	must(len <= sizeof b->bytes - b->len);
	memcpy(b->bytes + b->len, bytes, len);
	b->len += len;
}

/* The request of a number; of words so many. */
static void request_put(struct body *b, uint16_t fn, unsigned words)
{
	const struct rref_fetch fetch = {remote.owner, remote.id};
	const struct rref_method method = {remote.owner, object, function};
	const struct rref_method_remote method_remote = {object, remote};
	struct far_val args[] = {far_int(fn), far_str("argument")};
	b->len = 0;
	if (fn != RREF_FETCH && fn != RREF_TYPE && fn != RREF_CONTROL)
		values_put(b, args, 2);
	switch ((enum rref_message)fn) {
	case RREF_CALL:
		bytes_put(b, &function, sizeof function);
		return;
	case RREF_REMOTE:
		bytes_put(b, &remote, sizeof remote);
		return;
	case RREF_FETCH:
	case RREF_TYPE:
		bytes_put(b, &fetch, sizeof fetch);
		return;
	case RREF_METHOD:
		bytes_put(b, &method, sizeof method);
		return;
	case RREF_METHOD_REMOTE:
		bytes_put(b, &method_remote, sizeof method_remote);
		return;
	case RREF_CONTROL:
		break;
	}
	for (unsigned i = 0; i < words; i++) {
		struct rref_op op = {RREF_FORK + i % RREF_RECALL, 0, remote.owner, remote.id, remote.fork};
		op.id.number += i;
		if (op.kind == RREF_FAILED)
			op.status = (FAR_TIMEOUT + i) % (FAR_STATUS_COUNT + 2);
		bytes_put(b, &op, sizeof op);
	}
}

static void reply_put(struct body *b, uint16_t fn, unsigned words)
{
	struct far_val value = fn == RREF_TYPE ? far_str("t::Class") : far_int(fn);
	b->len = 0;
	if (fn == RREF_CONTROL)
		for (unsigned i = 0; i < words; i++)
			b->bytes[b->len++] = (uint8_t)(i % (FAR_STATUS_COUNT + 1));
	else if (fn != RREF_REMOTE && fn != RREF_METHOD_REMOTE)
		values_put(b, &value, 1);
}

static union packet_head head_of(unsigned type, unsigned call, unsigned gen, uint16_t fn)
{
	return (union packet_head){.request = {.type = (uint8_t)type, .slot = call, .generation = gen, .handler = fn}};
}

static void request(unsigned call, uint16_t fn, const struct body *b)
{
	trace_send(head_of(PACKET_REQUEST, call, 9, fn), b->bytes, b->len);
}

static void answer(unsigned call, unsigned gen, const void *bytes, size_t len)
{
	trace_answer(head_of(PACKET_REPLY, call, gen, 0), bytes, len);
}

/* A byte too many; from the front, as the layout is what ends it, one too few, and all; next to nothing. */
static void wrong_lengths(uint16_t fn, unsigned words)
{
	static struct body b;
	request_put(&b, fn, words);
	bytes_put(&b, "", 1);
	request(CALL_FIRST, fn, &b);
	for (unsigned k = 0; k < 2; k++) {
		request_put(&b, fn, words);
		size_t cut = k ? b.len : 1;
		memmove(b.bytes, b.bytes + cut, b.len -= cut);
		request(CALL_FIRST, fn, &b);
	}
	b.len = 15;
	request(CALL_FIRST, fn, &b);
}

static void wrong_replies(void)
{
	static struct body b;
	struct far_val two[] = {far_int(1), far_int(2)};
	values_put(&b, two, 2);
	answer(CALL_FIRST + RREF_FETCH - RREF_CALL, 9, b.bytes, b.len);
	answer(CALL_FIRST + RREF_FETCH - RREF_CALL, 9, NULL, 0);
	answer(CALL_FIRST + RREF_TYPE - RREF_CALL, 9, "\x01\x63", 2);
	answer(CALL_FIRST + RREF_REMOTE - RREF_CALL, 9, "x", 1);
	answer(CALL_FIRST + RREF_CONTROL - RREF_CALL, 9, NULL, 0);
	reply_put(&b, RREF_CONTROL, RREF_OPS_MAX + 1);
	answer(CALL_FIRST + RREF_CONTROL - RREF_CALL, 9, b.bytes, b.len);
	/* Of another generation of the slot, of another slot, in the wrong direction: no request has it. */
	answer(CALL_FIRST + RREF_FETCH - RREF_CALL, 8, b.bytes, 3);
	answer(CALL_FIRST - 1, 9, b.bytes, 3);
	trace_send(head_of(PACKET_REPLY, CALL_FIRST, 9, 0), b.bytes, 3);
}

void trace_every_engine_call(void)
{
	static struct body b;
	for (unsigned fn = RREF_CALL; fn <= RREF_LAST; fn++) {
		unsigned call = CALL_FIRST + fn - RREF_CALL;
		request_put(&b, (uint16_t)fn, 5);
		request(call, (uint16_t)fn, &b);
		reply_put(&b, (uint16_t)fn, 4);
		answer(call, 9, b.bytes, b.len);
	}
	wrong_replies();
	for (unsigned fn = RREF_CALL; fn <= RREF_LAST; fn++)
		wrong_lengths((uint16_t)fn, 2);
	request_put(&b, RREF_CONTROL, 1);
	b.bytes[0] = RREF_RECALL + 1;
	request(CALL_FIRST, RREF_CONTROL, &b);
	request_put(&b, RREF_CONTROL, RREF_OPS_MAX); /* in fragments: their heads say what it is */
	request(CALL_FIRST + 20, RREF_CONTROL, &b);
	for (unsigned i = 0; i < 20; i++)
		trace_turn();
	reply_put(&b, RREF_CONTROL, RREF_OPS_MAX);
	answer(CALL_FIRST + 20, 9, b.bytes, b.len);
	/* Announced; of no number that there is; and one that may be repeated. */
	const union packet_head announced = head_of(PACKET_REQUEST, CALL_FIRST + 21, 9, RREF_METHOD);
	trace_send(
		(union packet_head){
			.rendezvous = {.type = PACKET_RENDEZVOUS, .lane = 1, .epoch = 1, .total = UINT64_C(1) << 20}},
		&announced, sizeof announced);
	reply_put(&b, RREF_METHOD, 0);
	answer(CALL_FIRST + 21, 9, b.bytes, b.len);
	request_put(&b, RREF_FETCH, 0);
	request(CALL_FIRST + 22, RREF_LAST + 1, &b);
	answer(CALL_FIRST + 22, 9, b.bytes, 3);
	union packet_head h = head_of(PACKET_REQUEST, CALL_FIRST + 23, 9, RREF_TYPE);
	h.flags = PACKET_RETRY;
	const struct packet_retry retry = {5, 3};
	bytes_put(&b, &retry, sizeof retry);
	trace_send(h, b.bytes, b.len);
	reply_put(&b, RREF_TYPE, 0);
	answer(CALL_FIRST + 23, 9, b.bytes, b.len);
}
