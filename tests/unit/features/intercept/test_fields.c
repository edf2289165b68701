/* SPDX-License-Identifier: BSD-3-Clause */
/** Fields that an interceptor writes and reads: its own alone, and no more than there is room for. The test's thread.
 */
#include "core/tlv.h"

#include <criterion/criterion.h>
#include <string.h>

static struct far_tlv_out out;

static void setup(void)
{
	out.first = 10;
	out.last = 20;
	out.bytes = 0;
}

TestSuite(intercept_fields, .init = setup);

static struct far_tlv_in in_of(uint16_t first, uint16_t last)
{
	return (struct far_tlv_in){.first = first, .last = last, .bytes = out.bytes, .data = out.data};
}

Test(intercept_fields, written_and_read_in_order)
{
	struct far_tlv_in in;
	const void *value;
	size_t len, cursor = 0;
	uint16_t type;
	cr_assert_eq(far_tlv_put(&out, 10, "first", 5), FAR_OK);
	cr_assert_eq(far_tlv_put(&out, 20 | FAR_TLV_MANDATORY, NULL, 0), FAR_OK);
	cr_assert_eq(far_tlv_put(&out, 10, "again", 5), FAR_OK);
	in = in_of(10, 20);
	cr_assert(far_tlv_next(&in, &cursor, &type, &value, &len) && type == 10 && len == 5);
	cr_assert_eq(memcmp(value, "first", 5), 0);
	cr_assert(far_tlv_next(&in, &cursor, &type, &value, &len) && type == 20 && len == 0);
	cr_assert(far_tlv_next(&in, &cursor, &type, &value, &len) && type == 10);
	cr_assert_eq(memcmp(value, "again", 5), 0);
	cr_assert_not(far_tlv_next(&in, &cursor, &type, &value, &len));
	cr_assert_not(far_tlv_next(&in, &cursor, &type, &value, &len));
	cr_assert(far_tlv_find(&in, 10, &value, &len));
	cr_assert_eq(memcmp(value, "first", 5), 0, "the first of the type");
	cr_assert(far_tlv_find(&in, 20, &value, &len) && len == 0);
	cr_assert_not(far_tlv_find(&in, 11, &value, &len));
}

Test(intercept_fields, types_of_others)
{
	struct far_tlv_in in;
	const void *value;
	size_t len, cursor = 0;
	uint16_t type;
	static const uint16_t bad[] = {0, 9, 21, FAR_TLV_MANDATORY, 9 | FAR_TLV_MANDATORY, FAR_TLV_TYPE_MAX};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		cr_assert_eq(far_tlv_put(&out, bad[i], "x", 1), FAR_INVALID, "type %u", bad[i]);
	cr_assert_eq(out.bytes, 0u);
	far_tlv_put(&out, 12, "ours", 4);
	out.first = out.last = 30; /* of another interceptor */
	far_tlv_put(&out, 30, "theirs", 6);
	in = in_of(30, 30);
	cr_assert(far_tlv_next(&in, &cursor, &type, &value, &len) && type == 30 && len == 6);
	cr_assert_not(far_tlv_next(&in, &cursor, &type, &value, &len));
	cr_assert_not(far_tlv_find(&in, 12, &value, &len));
}

/* As many bytes as fit, to the last one. Expect one more refused, and nothing changed by that. */
Test(intercept_fields, room)
{
	static uint8_t bytes[FAR_TLV_BYTES_MAX + 1];
	size_t most = FAR_TLV_BYTES_MAX - sizeof(struct tlv_head);
	cr_assert_eq(far_tlv_put(&out, 10, bytes, most + 1), FAR_TOO_LARGE);
	cr_assert_eq(far_tlv_put(&out, 10, bytes, SIZE_MAX), FAR_TOO_LARGE);
	cr_assert_eq(out.bytes, 0u);
	cr_assert_eq(far_tlv_put(&out, 10, bytes, most - sizeof(struct tlv_head)), FAR_OK);
	cr_assert_eq(far_tlv_put(&out, 11, bytes, 1), FAR_TOO_LARGE);
	cr_assert_eq(far_tlv_put(&out, 11, NULL, 0), FAR_OK);
	cr_assert_eq(out.bytes, FAR_TLV_BYTES_MAX);
	cr_assert_eq(far_tlv_put(&out, 11, NULL, 0), FAR_TOO_LARGE);
	cr_assert(tlv_well_formed(out.data, out.bytes));
}
