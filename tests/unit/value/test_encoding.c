/* SPDX-License-Identifier: BSD-3-Clause */
/** The encoding of values against its documented bytes. The test's thread. */
#include "base/limits.h"
#include "value/encoding.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <farcall/message.h>
#include <stdlib.h>

/* Allocated to the byte, so that ASan sees a read past the end; aligned as a wide payload is. */
static uint8_t *payload_alloc(size_t size)
{
	void *p = NULL;
	cr_assert_eq(posix_memalign(&p, 64, size ? size : 1), 0);
	return p;
}

static uint8_t *encode(const struct far_val *v, size_t n, size_t *size)
{
	struct far_err err;
	struct values_plan plan;
	*size = values_size(v, n, &plan, &err);
	cr_assert_neq(*size, SIZE_MAX, "%s", err.text);
	cr_assert_eq(*size, plan.size);
	uint8_t *p = payload_alloc(*size);
	memset(p, 0xee, *size);
	values_write(v, n, &plan, p);
	return p;
}

static int decode(const void *bytes, size_t size, struct far_val *v, size_t cap, size_t *n)
{
	uint8_t *p = payload_alloc(size);
	memcpy(p, bytes, size);
	int rc = values_read(p, size, v, cap, n, NULL);
	free(p);
	return rc;
}

static void expect_same(const struct far_val *a, const struct far_val *b)
{
	cr_assert_eq(a->type, b->type);
	cr_assert_null(b->kw);
	cr_assert_null(b->own);
	switch ((enum far_type)a->type) {
	case FAR_TYPE_BOOL:
		cr_assert_eq(a->u.b, b->u.b);
		break;
	case FAR_TYPE_INT:
		cr_assert_eq(a->u.i, b->u.i);
		break;
	case FAR_TYPE_FLOAT:
		cr_assert_eq(memcmp(&a->u.f, &b->u.f, 8), 0);
		break;
	case FAR_TYPE_STRING:
		cr_assert_eq(((const char *)b->u.s.data)[b->u.s.len], '\0');
		/* fall through */
	case FAR_TYPE_BYTES:
		cr_assert_eq(a->u.s.len, b->u.s.len);
		cr_assert(a->u.s.len == 0 || memcmp(a->u.s.data, b->u.s.data, a->u.s.len) == 0);
		break;
	case FAR_TYPE_TENSOR:
		cr_assert_eq(a->u.t.dtype, b->u.t.dtype);
		cr_assert_eq(a->u.t.ndim, b->u.t.ndim);
		cr_assert_eq(memcmp(a->u.t.shape, b->u.t.shape, 8 * a->u.t.ndim), 0);
		size_t bytes = far_tensor_bytes(&a->u.t);
		cr_assert(bytes == 0 || memcmp(a->u.t.data, b->u.t.data, bytes) == 0);
		break;
	default:
		break;
	}
}

static void round_trip(const struct far_val *v, size_t n)
{
	struct far_val out[FAR_ARGS_MAX];
	char strings[512];
	size_t size, n_out = 99;
	uint8_t *p = encode(v, n, &size);
	for (int copied = 0; copied < 2; copied++) {
		struct values_arena arena = {.strings = copied ? strings : NULL, .strings_cap = sizeof strings};
		cr_assert_eq(values_read(p, size, out, FAR_ARGS_MAX, &n_out, &arena), 0);
		cr_assert_eq(n_out, n);
		for (size_t i = 0; i < n; i++)
			expect_same(&v[i], &out[i]);
	}
	/* A payload cut anywhere, or one byte longer, is malformed. */
	uint8_t *longer = payload_alloc(size + 1);
	memcpy(longer, p, size);
	longer[size] = 0;
	cr_assert_eq(values_read(longer, size + 1, out, FAR_ARGS_MAX, &n_out, NULL), -EBADMSG);
	for (size_t cut = 0; cut < size; cut++)
		cr_assert_eq(decode(p, cut, out, FAR_ARGS_MAX, &n_out), -EBADMSG, "cut to %zu of %zu", cut, size);
	free(longer);
	free(p);
}

Test(encoding, two_small_tensors_have_the_documented_bytes)
{
	float a[2] = {1, 2}, b[2] = {3, 4};
	struct far_val v[2];
	struct far_tensor t = far_tensor_1d(FAR_F32, a, 2);
	v[0] = far_tensor_val(&t);
	t.data = b;
	v[1] = far_tensor_val(&t);
	static const uint8_t head[12] = {2, 6, 0x11, 0, 2, 6, 0x11, 0, 2, 0, 0, 0};
	size_t size;
	uint8_t *p = encode(v, 2, &size);
	cr_assert_eq(size, 28);
	cr_assert_eq(memcmp(p, head, sizeof head), 0);
	cr_assert_eq(memcmp(p + 12, a, 8), 0);
	cr_assert_eq(memcmp(p + 20, b, 8), 0);
	free(p);
	round_trip(v, 2);
}

Test(encoding, scalars_have_the_documented_bytes)
{
	struct far_val v[6] = {far_none(),   far_bool(true), far_int(-1),
			       far_int(300), far_str("hi"),  far_bytes("xyz", 3)};
	static const uint8_t want[] = {6, 0, 1, 1, 2, 1, 2, 0xd8, 4, 4, 2, 'h', 'i', 0, 5, 3, 'x', 'y', 'z'};
	size_t size;
	uint8_t *p = encode(v, 6, &size);
	cr_assert_eq(size, sizeof want);
	cr_assert_eq(memcmp(p, want, size), 0);
	free(p);
	round_trip(v, 6);
}

Test(encoding, no_values)
{
	size_t size;
	uint8_t *p = encode(NULL, 0, &size);
	cr_assert_eq(size, 1);
	cr_assert_eq(p[0], 0);
	free(p);
	round_trip(NULL, 0);
}

Test(encoding, ints_at_the_edges_of_their_varints)
{
	for (unsigned bit = 0; bit < 64; bit++) {
		int64_t base = (int64_t)(UINT64_C(1) << bit);
		for (int d = -1; d <= 1; d++) {
			struct far_val v[2] = {far_int((int64_t)((uint64_t)base + (uint64_t)d)),
					       far_int((int64_t)(0 - (uint64_t)base + (uint64_t)d))};
			round_trip(v, 2);
		}
	}
}

Test(encoding, every_dtype_and_ndim)
{
	double data[512] = {0};
	for (unsigned dtype = 1; dtype < FAR_DTYPE_COUNT; dtype++) {
		for (unsigned ndim = 0; ndim <= FAR_DIMS_MAX; ndim++) {
			struct far_tensor t = {.data = data, .dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim};
			for (unsigned k = 0; k < ndim; k++)
				t.shape[k] = k < 4 ? 1 + k % 3 : 2;
			struct far_val v[3] = {far_int(5), far_tensor_val(&t), far_tensor_val(&t)};
			if (far_tensor_bytes(&t) <= sizeof data)
				round_trip(v, 3);
		}
	}
}

Test(encoding, data_is_aligned)
{
	static double data[100];
	struct far_val v[4], out[4];
	for (size_t elements = 1; elements < 40; elements++) {
		struct far_tensor t = far_tensor_1d(FAR_F64, data, elements);
		v[0] = far_bytes(data, 1 + elements % 3);
		v[1] = far_tensor_val(&t);
		t.dtype = FAR_I16;
		v[2] = far_tensor_val(&t);
		size_t n = elements < 3 ? 2 : 3, size, n_out;
		uint8_t *p = encode(v, n, &size);
		cr_assert_eq((p[0] & 0x80) != 0, size > FAR_LINE_PAYLOAD);
		cr_assert_eq(values_read(p, size, out, 4, &n_out, NULL), 0);
		size_t mask = size > FAR_LINE_PAYLOAD ? 63 : 7;
		cr_assert_eq((uintptr_t)out[1].u.t.data & mask, 0);
		if (n == 3)
			cr_assert_eq((uintptr_t)out[2].u.t.data & (mask == 63 ? 63 : 1), 0);
		free(p);
		round_trip(v, n);
	}
}

Test(encoding, values_without_bytes_point_into_the_payload)
{
	struct far_tensor t = far_tensor_2d(FAR_F64, NULL, 0, 1000);
	struct far_val v[3] = {far_tensor_val(&t), far_bytes(NULL, 0), far_str("")}, out[3];
	size_t size, n;
	uint8_t *p = encode(v, 3, &size);
	cr_assert_eq(values_read(p, size, out, 3, &n, NULL), 0);
	cr_assert_eq(out[0].u.t.data, p);
	cr_assert_eq(out[1].u.s.data, p);
	free(p);
	round_trip(v, 3);
}

Test(encoding, strings_are_copied_and_bounded)
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

Test(encoding, malformed_payloads_are_refused)
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
		cr_expect_eq(decode(table[i].data, table[i].size, v, FAR_ARGS_MAX, &n), -EBADMSG, "%s", table[i].what);
	cr_expect_eq(decode("", 0, v, FAR_ARGS_MAX, &n), -EBADMSG);
	uint8_t narrow[FAR_LINE_PAYLOAD + 1] = {1, 5, FAR_LINE_PAYLOAD - 2};
	cr_expect_eq(decode(narrow, sizeof narrow, v, FAR_ARGS_MAX, &n), -EBADMSG, "long but not wide");
}

static void expect_inside(const void *p, size_t len, const uint8_t *src, size_t size)
{
	uintptr_t at = (uintptr_t)p, from = (uintptr_t)src;
	cr_assert(at >= from && at <= from + size && len <= from + size - at);
}

Test(encoding, any_byte_may_change_and_no_pointer_leaves_the_payload)
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

static void expect_refused(struct far_val v, enum far_status status, const char *text)
{
	struct far_val two[2] = {far_int(1), v};
	struct far_err err;
	struct values_plan plan;
	cr_expect_eq(values_size(two, 2, &plan, &err), SIZE_MAX, "%s", text);
	cr_expect_eq(err.status, status, "%s", text);
	cr_expect_eq(strncmp(err.text, "argument 2: ", 12), 0, "%s", err.text);
	cr_expect_not_null(strstr(err.text, text), "%s", err.text);
	cr_expect_eq(values_size(two, 2, &plan, NULL), SIZE_MAX);
}

Test(encoding, values_that_an_application_got_wrong_are_named)
{
	float x = 0;
	struct far_tensor good = far_tensor_1d(FAR_F32, &x, 1), t;
	struct far_val v = far_int(1);
	v.kw = "alpha";
	expect_refused(v, FAR_INVALID, "keyword");
	v = far_none();
	v.type = FAR_TYPE_COUNT;
	expect_refused(v, FAR_INVALID, "type");
	t = good, t.dtype = 0;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dtype");
	t = good, t.dtype = FAR_DTYPE_COUNT;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dtype");
	t = good, t.ndim = FAR_DIMS_MAX + 1;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "dimensions");
	t = good, t.domain = 1;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "domain");
	t = good, t.data = NULL;
	expect_refused(far_tensor_val(&t), FAR_INVALID, "NULL");
	t = good, t.shape[0] = UINT64_C(1) << 62;
	expect_refused(far_tensor_val(&t), FAR_TOO_LARGE, "tensor");
	expect_refused(far_bytes(&x, FAR_MSG_BYTES_MAX + 1), FAR_TOO_LARGE, "bytes");
	expect_refused(far_bytes(NULL, 1), FAR_INVALID, "NULL");
	v = far_bytes(&x, FAR_STRINGS_BYTES_MAX);
	v.type = FAR_TYPE_STRING;
	expect_refused(v, FAR_TOO_LARGE, "strings");
	struct far_val many[FAR_ARGS_MAX + 1] = {{0}};
	struct values_plan plan;
	cr_expect_eq(values_size(many, FAR_ARGS_MAX + 1, &plan, NULL), SIZE_MAX);
	cr_expect_eq(values_size(many, FAR_ARGS_MAX, &plan, NULL), 1 + FAR_ARGS_MAX);
	struct far_err err;
	struct far_val sum[2] = {far_bytes(&x, FAR_MSG_BYTES_MAX / 2), far_bytes(&x, FAR_MSG_BYTES_MAX / 2)};
	cr_expect_eq(values_size(sum, 2, &plan, &err), SIZE_MAX);
	cr_expect_eq(err.status, FAR_TOO_LARGE);
}

Test(encoding, a_tensor_written_in_place_has_the_same_bytes)
{
	static double data[64];
	for (size_t i = 0; i < 64; i++)
		data[i] = (double)i;
	for (unsigned dtype = 1; dtype < FAR_DTYPE_COUNT; dtype++) {
		for (uint64_t n = 0; n <= 64; n++) {
			struct far_tensor t = far_tensor_2d((enum far_dtype)dtype, data, 1, n);
			struct far_val v = far_tensor_val(&t);
			size_t size, offset = 0;
			uint8_t *want = encode(&v, 1, &size);
			cr_assert_eq(values_tensor_size((enum far_dtype)dtype, 2, t.shape, &offset), size);
			uint8_t *p = payload_alloc(size);
			memset(p, 0xee, size);
			memcpy(p + offset, data, far_tensor_bytes(&t));
			values_tensor_write((enum far_dtype)dtype, 2, t.shape, p, size);
			cr_assert_eq(memcmp(p, want, size), 0, "%u %zu", dtype, (size_t)n);
			free(p);
			free(want);
		}
	}
}

Test(encoding, shapes_that_cannot_be_laid_out)
{
	uint64_t shape[FAR_DIMS_MAX + 1] = {UINT64_C(1) << 61, 8, 1, 1, 1, 1, 1, 1, 1};
	size_t offset;
	cr_expect_eq(values_tensor_size(FAR_F64, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_U8, 2, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_DTYPE_NONE, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_DTYPE_COUNT, 1, shape, &offset), SIZE_MAX);
	cr_expect_eq(values_tensor_size(FAR_U8, FAR_DIMS_MAX + 1, shape, &offset), SIZE_MAX);
	shape[0] = UINT64_MAX - 8;
	cr_expect_eq(values_tensor_size(FAR_U8, 1, shape, &offset), SIZE_MAX);
	shape[1] = 0;
	cr_expect_neq(values_tensor_size(FAR_U8, 2, shape, &offset), SIZE_MAX);
}
