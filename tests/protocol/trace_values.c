/* SPDX-License-Identifier: BSD-3-Clause */
/** Rare packets: each kind of value and of message, some of them wrong. Main thread. */
#include "fake_bulk.h"
#include "trace.h"

#include "base/must.h"
#include "features/references/wire.h"
#include "value/encoding.h"

#include <stdlib.h>
#include <string.h>

bool trace_sample_values;

static void put_rref(void *ctx, const struct far_rref *rref, uint8_t *dst)
{
	const struct rref_wire *w = (const void *)rref;
	rref_put(dst, w);
}

/* With what the flags say behind the values. */
static void send_call(const struct far_val *v, size_t n, unsigned flags)
{
	struct rref_id object = {UINT64_C(0x0001aabbccddeeff), UINT64_C(0x0301000000000007)};
	struct rref_named named = {9};
	struct values_plan plan;
	struct far_err err;
	size_t len = values_size(v, n, &plan, &err);
	must(len != SIZE_MAX);
	uint8_t *body = aligned_alloc(64, (len + sizeof object + 63) & ~(size_t)63);
	must(body);
	plan.put_rref = put_rref;
	values_write(v, n, &plan, body);
	if (flags & PACKET_NAMED)
		memcpy(body + len, &named, sizeof named);
	else
		memcpy(body + len, &object, sizeof object);
	trace_send((union packet_head){.request = {.type = PACKET_REQUEST,
						   .flags = (uint8_t)(PACKET_TYPED | flags),
						   .handler = 7,
						   .slot = 1,
						   .generation = 2}},
		   body,
		   len + (flags & PACKET_NAMED    ? sizeof named
			  : flags & PACKET_METHOD ? sizeof object
						  : 0));
	free(body);
}

static void send_values(const struct far_val *v, size_t n)
{
	send_call(v, n, 0);
}

static size_t custom_size(const void *object, void *user)
{
	return strlen(object);
}

static void custom_encode(const void *object, void *dst, size_t len, void *user)
{
	memcpy(dst, object, len);
}

void trace_every_value(void)
{
	static uint8_t elements[6 * 8];
	for (unsigned i = 0; i < sizeof elements; i++)
		elements[i] = (uint8_t)(i + 1);
	for (unsigned dtype = FAR_F32; dtype < FAR_DTYPE_COUNT; dtype++) {
		uint64_t shape[] = {1u + dtype % 2, 3};
		struct far_tensor tensor = far_tensor_nd((enum far_dtype)dtype, elements, 2, shape, NULL);
		struct far_val v[2] = {far_tensor_val(&tensor), far_int(-(int64_t)dtype)};
		send_values(v, 2);
	}
	static const struct far_custom_type type = {.name = "t::Custom", .size = custom_size, .encode = custom_encode};
	struct far_val items[] = {far_none(), far_bool(true), far_bool(false), far_float(-0.1), far_str("a \"b\"\n")};
	struct far_dict_entry entries[] = {{far_str("k"), far_list(items, 5)},
					   {far_float(1.5), far_bytes(elements, 40)}};
	struct far_val v[] = {far_dict(entries, 2), far_list(NULL, 0), far_float(1e300), far_int(INT64_MIN),
			      far_custom(&type, "encoded")};
	trace_sample_values = true;
	send_values(v, 5);
	trace_sample_values = false;
	struct rref_wire w = {.owner = UINT64_C(0x0002112233445566),
			      .id = {UINT64_C(0x0001aabbccddeeff), UINT64_C(0x0301000000000007)},
			      .fork = {UINT64_C(0x0001aabbccddeeff), UINT64_C(0x0300000000000008)},
			      .types = 0x0204,
			      .cls = UINT64_C(0x0123456789abcdef)};
	struct far_val rref = far_rref_val((struct far_rref *)(void *)&w);
	struct far_val two[] = {rref, far_list(&rref, 1)};
	send_values(two, 2);
	send_call(v, 2, PACKET_METHOD);
	send_call(v + 3, 1, PACKET_METHOD);
	send_call(v, 2, PACKET_METHOD | PACKET_NAMED);
	send_call(v + 3, 1, PACKET_NAMED);
	send_values(v, 0);
	uint64_t none[] = {0, UINT64_MAX};
	struct far_tensor empty = far_tensor_nd(FAR_F64, elements, 2, none, NULL);
	struct far_val nothing = far_tensor_val(&empty);
	send_values(&nothing, 1);
}

void trace_every_message(void)
{
	static const struct packet_rendezvous announced[] = {
		{.type = PACKET_RENDEZVOUS, .lane = 0, .epoch = 1, .total = 1000},
		{.type = PACKET_RENDEZVOUS,
		 .flags = PACKET_REFERRED,
		 .lane = 3,
		 .epoch = 9,
		 .total = UINT64_C(1) << 33},
		{.type = PACKET_RENDEZVOUS, .lane = 4, .epoch = 1, .total = 1},
		{.type = PACKET_RENDEZVOUS, .lane = 0, .epoch = 1, .total = 0}};
	static const uint8_t announced_types[] = {PACKET_ONEWAY, PACKET_REPLY, PACKET_REQUEST, PACKET_ERROR};
	static const struct packet_acked acked = {77};
	static const struct packet_retry retries[] = {{5, 3}, {2000, 3}, {0, 0}};
	union packet_head h;
	for (unsigned status = FAR_OK; status <= FAR_STATUS_COUNT; status++) {
		h.error = (struct packet_error){.type = PACKET_ERROR,
						.status = (uint16_t)status,
						.slot = 3,
						.generation = 4,
						.code = -1,
						.executed = status % 4};
		trace_send(h, "text", status % 5);
	}
	for (unsigned executed = 0; executed < 4; executed++) {
		h.cancelled = (struct packet_cancelled){
			.type = PACKET_CANCELLED, .slot = 3, .generation = 4, .executed = executed};
		trace_send(h, NULL, 0);
	}
	h.request = (struct packet_request){.slot = 3, .generation = 4, .time_left = UINT64_MAX};
	for (unsigned type = 0; type <= PACKET_ABORT + 1; type++) {
		h.type = (uint8_t)type;
		h.flags = PACKET_TLV | 16;
		h.request.handler = 0x1234;
		h.request.tlv_bytes = 0x01020304;
		h.request.reserved = 0x05060708;
		trace_send(h, &acked, sizeof acked);
	}
	h.request.tlv_bytes = h.request.reserved = 0;
	for (unsigned i = 0; i < 4; i++) {
		h.type = announced_types[i];
		h.flags = PACKET_TYPED | PACKET_HASHED;
		trace_send((union packet_head){.rendezvous = announced[i]}, &h, sizeof h);
		trace_send((union packet_head){.rendezvous = announced[i]}, &h, sizeof h - 1);
	}
	for (unsigned i = 0; i < 2; i++)
		trace_send((union packet_head){.grant = {.type = PACKET_GRANT,
							 .flags = PACKET_PULLED | (i ? PACKET_KEPT : 0),
							 .epoch = 1,
							 .granted = 9}},
			   &acked, sizeof acked);
	h.flags = 0;
	for (unsigned i = 0; i < 3; i++) {
		h.type = PACKET_REQUEST;
		h.flags = PACKET_RETRY;
		trace_send(h, &retries[i], sizeof retries[i]);
	}
	h.flags = PACKET_RETRY | PACKET_HASHED;
	trace_send(h, &retries[0], sizeof retries[0]);
	h.flags = PACKET_TYPED | PACKET_METHOD;
	trace_send(h, &retries[0], sizeof retries[0] - 1);
	h.flags = PACKET_TYPED | PACKET_NAMED;
	trace_send(h, &retries[0], 3);
	trace_send(h, "\0\0\0", 4);
	h.flags = PACKET_TYPED;
	trace_send(h, "\x01\x0a", 2);
	trace_send(h, NULL, 0);
}

/* One that is read where it lies; and one that cannot be, after its first packet. */
void trace_exposed(void)
{
	static uint8_t body[12000];
	union packet_head h = {.request = {.type = PACKET_REQUEST, .slot = 5, .generation = 6}};
	for (size_t i = 0; i < sizeof body; i++)
		body[i] = (uint8_t)(i >> 4);
	fake_bulk.expose_error = 0;
	for (unsigned k = 0; k < 2; k++) {
		trace_send(h, body, sizeof body);
		for (unsigned i = 0; i < 200; i++)
			trace_turn();
		fake_bulk.fail_of = 1000;
	}
	must(fake_bulk.reads >= 2 && fake_bulk.exposes == 2 && fake_bulk_n() == 0);
}
