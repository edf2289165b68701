/* SPDX-License-Identifier: BSD-3-Clause */
/** Payloads that a peer got wrong are refused, and no pointer leaves a payload. The test's thread. */
#include "base/limits.h"
#include "encoded.h"

#include <errno.h>

Test(encoding_read, strings_are_copied_and_bounded)
{
	struct far_val v[2] = {far_str("abc"), far_str("de")}, out[2];
	char strings[7];
	struct values_arena arena = {.strings = strings, .strings_cap = 7};
	size_t size, n;
	uint8_t *p = encode(v, 2, &size);
	cr_assert_eq(values_read(p, size, out, 2, &n, &arena), 0);
	cr_assert_eq(out[0].u.s.data, strings);
	cr_assert_eq(memcmp(strings, "abc\0de", 7), 0);
	arena.strings_cap = 6;
	cr_assert_eq(values_read(p, size, out, 2, &n, &arena), -ENOBUFS);
	arena.strings_cap = 7;
	cr_assert_eq(values_read(p, size, out, 1, &n, &arena), -E2BIG);
	free(p);
}

#define BYTES(...)                                                                                                     \
	sizeof((const uint8_t[]){__VA_ARGS__}),                                                                        \
	{                                                                                                              \
		__VA_ARGS__                                                                                            \
	}

Test(encoding_read, malformed_payloads_are_refused)
{
	static const struct {
		const char *what;
		size_t size;
		uint8_t data[24];
	} table[] = {
		{"count beyond 16", BYTES(17)},
		{"items announced, none there", BYTES(0x20)},
		{"reserved bit 6", BYTES(0x41, 0)},
		{"wide but short", BYTES(0x81, 0)},
		{"type 10", BYTES(1, 10)},
		{"type with bit 7", BYTES(1, 0x80)},
		{"bool 2", BYTES(1, 1, 2)},
		{"trailing byte", BYTES(1, 0, 0)},
		{"varint with a zero tail", BYTES(1, 2, 0x80, 0)},
		{"varint of 11 bytes", BYTES(1, 2, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1)},
		{"varint beyond 64 bits", BYTES(1, 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2)},
		{"float cut", BYTES(1, 3, 0, 0, 0, 0, 0, 0, 0)},
		{"string past the end", BYTES(1, 4, 2, 'a', 0)},
		{"string without NUL", BYTES(1, 4, 2, 'a', 'b', 'c')},
		{"string of 2^64-1", BYTES(1, 4, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0)},
		{"bytes past the end", BYTES(1, 5, 3, 1, 2)},
		{"bytes of 2^64-1", BYTES(1, 5, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0)},
		{"dtype 0", BYTES(1, 6, 0x01, 0, 0)},
		{"dtype 12", BYTES(1, 6, 0xc1, 0, 0)},
		{"9 dimensions", BYTES(1, 6, 0x19, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)},
		{"domain 1", BYTES(1, 6, 0x71, 1, 1, 0)},
		{"shape cut", BYTES(1, 6, 0x72, 0, 1)},
		{"elements past the end", BYTES(1, 6, 0x71, 0, 2, 0)},
		{"elements past the end by the padding", BYTES(1, 6, 0x11, 0, 1, 0, 0, 0)},
		{"shape overflows to 0",
		 BYTES(1, 6, 0x22, 0, 0x80, 0x80, 0x80, 0x80, 0x10, 0x80, 0x80, 0x80, 0x80, 0x10)},
		{"shape overflows by the element",
		 BYTES(1, 6, 0x21, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20)},
	};
	struct far_val v[FAR_ARGS_MAX];
	size_t n;
	for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
		cr_expect_eq(decode(table[i].data, table[i].size, v, FAR_ARGS_MAX, &n, NULL), -EBADMSG, "%s",
			     table[i].what);
	cr_expect_eq(decode("", 0, v, FAR_ARGS_MAX, &n, NULL), -EBADMSG);
	uint8_t narrow[FAR_LINE_PAYLOAD + 1] = {1, 5, FAR_LINE_PAYLOAD - 2};
	cr_expect_eq(decode(narrow, sizeof narrow, v, FAR_ARGS_MAX, &n, NULL), -EBADMSG, "long but not wide");
}

static void expect_inside(const void *p, size_t len, const uint8_t *src, size_t size)
{
	uintptr_t at = (uintptr_t)p, from = (uintptr_t)src;
	cr_assert(at >= from && at <= from + size && len <= from + size - at);
}

Test(encoding_read, any_byte_may_change_and_no_pointer_leaves_the_payload)
{
	double data[9] = {0};
	struct far_tensor t = far_tensor_2d(FAR_F64, data, 3, 3);
	struct far_val v[4] = {far_tensor_val(&t), far_str("text"), far_bytes(data, 5), far_float(1.5)}, out[16];
	size_t size, n;
	uint8_t *p = encode(v, 4, &size);
	for (size_t at = 0; at < size; at++) {
		uint8_t old = p[at];
		for (unsigned b = 0; b < 256; b++) {
			p[at] = (uint8_t)b;
			if (values_read(p, size, out, 16, &n, NULL) != 0)
				continue;
			for (size_t i = 0; i < n; i++) {
				if (out[i].type == FAR_TYPE_TENSOR)
					expect_inside(out[i].u.t.data, far_tensor_bytes(&out[i].u.t), p, size);
				else if (out[i].type == FAR_TYPE_STRING || out[i].type == FAR_TYPE_BYTES)
					expect_inside(out[i].u.s.data, out[i].u.s.len, p, size);
			}
		}
		p[at] = old;
	}
	free(p);
}
