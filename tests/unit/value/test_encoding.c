/* SPDX-License-Identifier: BSD-3-Clause */
/** The encoding of values against its documented bytes. The test's thread. */
#include "base/limits.h"
#include "encoded.h"

#include <errno.h>

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
		cr_assert_eq(decode(p, cut, out, FAR_ARGS_MAX, &n_out, NULL), -EBADMSG, "cut to %zu of %zu", cut, size);
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
