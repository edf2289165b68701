/* SPDX-License-Identifier: BSD-3-Clause */
/** Fields of interceptors in packets: what a head may announce, and a body be. The test's thread. */
#include "core/tlv.h"

#include <criterion/criterion.h>
#include <string.h>

static union packet_head head(enum packet_type type, uint8_t flags, unsigned bytes)
{
	union packet_head h;
	memset(&h, 0, sizeof h);
	h.type = (uint8_t)type;
	h.flags = flags;
	h.call.tlv_bytes = (uint16_t)bytes;
	return h;
}

static bool fits(enum packet_type type, uint8_t flags, unsigned bytes, uint64_t len)
{
	union packet_head h = head(type, flags, bytes);
	return tlv_head_fits(&h, len);
}

Test(tlv, flag_and_length_come_together)
{
	cr_assert(fits(PACKET_REQUEST, 0, 0, 100));
	cr_assert(fits(PACKET_REQUEST, PACKET_TLV, 8, 100));
	cr_assert_not(fits(PACKET_REQUEST, PACKET_TLV, 0, 100));
	cr_assert_not(fits(PACKET_REQUEST, 0, 8, 100));
}

Test(tlv, length_is_within_the_body_and_the_limit)
{
	cr_assert(fits(PACKET_REPLY, PACKET_TLV, 100, 100));
	cr_assert_not(fits(PACKET_REPLY, PACKET_TLV, 101, 100));
	cr_assert(fits(PACKET_REPLY, PACKET_TLV, FAR_TLV_BYTES_MAX, UINT64_MAX));
	cr_assert_not(fits(PACKET_REPLY, PACKET_TLV, FAR_TLV_BYTES_MAX + 1, UINT64_MAX));
}

Test(tlv, only_packets_of_calls_carry_fields)
{
	static const enum packet_type carry[] = {PACKET_REQUEST, PACKET_REPLY, PACKET_ERROR, PACKET_ONEWAY};
	for (unsigned type = 0; type < 256; type++) {
		bool carries = false;
		for (unsigned i = 0; i < sizeof carry / sizeof *carry; i++)
			carries |= type == carry[i];
		cr_assert_eq(fits((enum packet_type)type, PACKET_TLV, 8, 8), carries, "packet %u", type);
	}
}

static size_t field(uint8_t *at, uint16_t type, const char *value)
{
	struct tlv_head h = {type, (uint16_t)strlen(value)};
	memcpy(at, &h, sizeof h);
	memcpy(at + sizeof h, value, h.length);
	return sizeof h + h.length;
}

/* Cut anywhere else than between two fields, it is malformed. */
Test(tlv, whole_fields)
{
	uint8_t data[64];
	size_t first = field(data, 7, "value"), bytes = first + field(data + first, 8 | FAR_TLV_MANDATORY, "");
	for (size_t len = 0; len <= bytes; len++)
		cr_assert_eq(tlv_well_formed(data, len), len == 0 || len == first || len == bytes, "%zu bytes", len);
}

Test(tlv, type_0_is_none)
{
	uint8_t data[64];
	cr_assert_not(tlv_well_formed(data, field(data, 0, "x")));
	cr_assert_not(tlv_well_formed(data, field(data, FAR_TLV_MANDATORY, "x")));
	cr_assert(tlv_well_formed(data, field(data, FAR_TLV_TYPE_MAX | FAR_TLV_MANDATORY, "x")));
}

Test(tlv, fields_in_order)
{
	uint8_t data[64];
	size_t bytes = field(data, 7, "value"), at = 0, len;
	bytes += field(data + bytes, FAR_TLV_TYPE_MAX | FAR_TLV_MANDATORY, "");
	const void *value;
	bool mandatory;
	cr_assert_eq(tlv_take(data, &at, &value, &len, &mandatory), 7);
	cr_assert(len == 5 && memcmp(value, "value", 5) == 0 && !mandatory && at == 9);
	cr_assert_eq(tlv_take(data, &at, &value, &len, &mandatory), FAR_TLV_TYPE_MAX);
	cr_assert(len == 0 && mandatory && at == bytes);
}

Test(tlv, a_block_of_what_was_written)
{
	static struct far_tlv_out out;
	bool failed = true;
	cr_assert_null(tlv_block_of(&out, &failed));
	cr_assert_not(failed);
	out.bytes = (uint32_t)field(out.data, 7, "value");
	struct far_buf *buf = tlv_block_of(&out, &failed);
	cr_assert(buf && !failed);
	cr_assert_eq(tlv_block_in(buf)->bytes, out.bytes);
	cr_assert_eq(memcmp(tlv_block_in(buf)->data, out.data, out.bytes), 0);
	buf_unref(buf);
}
