/* SPDX-License-Identifier: BSD-3-Clause */
/** Values: types, counts, texts. The test's thread. */
#include <criterion/criterion.h>
#include <farcall/value.h>
#include <math.h>
#include <stdlib.h>

static void expect_print(struct far_val v, const char *want)
{
	char *text = NULL;
	size_t len;
	FILE *f = open_memstream(&text, &len);
	cr_assert_not_null(f);
	far_val_print(f, &v);
	fclose(f);
	cr_expect_str_eq(text, want);
	free(text);
}

Test(value, dtypes)
{
	cr_expect_eq(far_dtype_size(FAR_F32), 4);
	cr_expect_eq(far_dtype_size(FAR_U64), 8);
	cr_expect_eq(far_dtype_size(FAR_BOOL), 1);
	cr_expect_eq(far_dtype_size(FAR_DTYPE_NONE), 0);
	cr_expect_eq(far_dtype_size(FAR_DTYPE_COUNT), 0);
	cr_expect_str_eq(far_dtype_name(FAR_I16), "i16");
	cr_expect_str_eq(far_dtype_name(FAR_DTYPE_NONE), "?");
	cr_expect_str_eq(far_dtype_name((enum far_dtype)99), "?");
	cr_expect_str_eq(far_type_name(FAR_TYPE_NONE), "none");
	cr_expect_str_eq(far_type_name(FAR_TYPE_TENSOR), "tensor");
	cr_expect_str_eq(far_type_name(FAR_TYPE_COUNT), "?");
}

Test(value, counts_and_bytes)
{
	struct far_tensor t = {.dtype = FAR_F64};
	cr_expect_eq(far_tensor_count(&t), 1);
	cr_expect_eq(far_tensor_bytes(&t), 8);
	t = far_tensor_2d(FAR_I16, NULL, 3, 4);
	cr_expect_eq(far_tensor_count(&t), 12);
	cr_expect_eq(far_tensor_bytes(&t), 24);
	t.shape[0] = UINT64_C(1) << 61;
	cr_expect_eq(far_tensor_count(&t), UINT64_C(1) << 63);
	cr_expect_eq(far_tensor_bytes(&t), SIZE_MAX);
	t.shape[1] = 8;
	cr_expect_eq(far_tensor_count(&t), SIZE_MAX);
	t.ndim = 3;
	t.shape[2] = 0;
	cr_expect_eq(far_tensor_count(&t), 0);
	cr_expect_eq(far_tensor_bytes(&t), 0);
}

Test(value, prints_scalars)
{
	expect_print(far_none(), "none");
	expect_print(far_bool(true), "true");
	expect_print(far_int(INT64_MIN), "-9223372036854775808");
	expect_print(far_float(0.1), "0.1");
	expect_print(far_float(1.0 / 3), "0.3333333333333333");
	expect_print(far_float(INFINITY), "inf");
	struct far_val v = {.type = 99};
	expect_print(v, "?");
}

Test(value, prints_texts)
{
	expect_print(far_str("a \"b\"\n\x01"), "\"a \\\"b\\\"\\n\\x01\"");
	char text[80];
	memset(text, 'x', 79);
	text[79] = '\0';
	char want[80] = "\"";
	memset(want + 1, 'x', 64);
	strcpy(want + 65, "\"...");
	expect_print(far_str(text), want);
	/* A character of two bytes at the cut is left out whole. */
	memcpy(text + 63, "\xc3\xa9", 2);
	strcpy(want + 64, "\"...");
	expect_print(far_str(text), want);
	expect_print(far_bytes("\x00\xff", 2), "bytes[2] 00 ff");
	expect_print(far_bytes(NULL, 0), "bytes[0]");
	expect_print(far_bytes(text, 20), "bytes[20] 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 78 ...");
}

Test(value, prints_tensors)
{
	float f[12] = {0.1f, 2, -3.5f, 4, 5, 6, 7, 8, 9, 10, 11, 12};
	struct far_tensor t = far_tensor_1d(FAR_F32, f, 3);
	expect_print(far_tensor_val(&t), "f32[3] [0.1, 2, -3.5]");
	t = far_tensor_2d(FAR_F32, f, 2, 3);
	expect_print(far_tensor_val(&t), "f32[2,3] [[0.1, 2, -3.5], [4, 5, 6]]");
	t = far_tensor_2d(FAR_F32, f, 3, 4);
	expect_print(far_tensor_val(&t), "f32[3,4] [[0.1, 2, -3.5, 4], [5, 6, 7, 8], ...]");
	t = far_tensor_2d(FAR_F32, f, 2, 6);
	expect_print(far_tensor_val(&t), "f32[2,6] [[0.1, 2, -3.5, 4, 5, 6], [7, 8, ...]]");
	t = far_tensor_1d(FAR_F32, NULL, 0);
	expect_print(far_tensor_val(&t), "f32[0] []");
	t = far_tensor_1d(FAR_F32, NULL, 2);
	expect_print(far_tensor_val(&t), "f32[2] (null)");
	bool b[2] = {true, false};
	t = far_tensor_1d(FAR_BOOL, b, 2);
	expect_print(far_tensor_val(&t), "bool[2] [true, false]");
	t.ndim = 0;
	expect_print(far_tensor_val(&t), "bool[] true");
	uint64_t u[1] = {UINT64_MAX};
	t = far_tensor_2d(FAR_U64, u, 1, 1);
	expect_print(far_tensor_val(&t), "u64[1,1] [[18446744073709551615]]");
	t.dtype = 77;
	expect_print(far_tensor_val(&t), "tensor(invalid)");
	t = far_tensor_2d(FAR_U64, u, SIZE_MAX, 2);
	expect_print(far_tensor_val(&t), "u64[18446744073709551615,2] (too large)");
}

Test(value, builders)
{
	struct far_tensor t = far_tensor_1d(FAR_F32, NULL, 0);
	const struct far_val v[] = {FAR_MAP(&t, 3, 2.5f, "s", far_bool(true), (uint8_t)7)};
	static const enum far_type want[] = {FAR_TYPE_TENSOR, FAR_TYPE_INT,  FAR_TYPE_FLOAT,
					     FAR_TYPE_STRING, FAR_TYPE_BOOL, FAR_TYPE_INT};
	cr_assert_eq(FAR_COUNT(&t, 3, 2.5f, "s", far_bool(true), (uint8_t)7), 6);
	for (size_t i = 0; i < 6; i++)
		cr_expect_eq(v[i].type, want[i]);
	cr_expect_eq(v[2].u.f, 2.5);
	cr_expect_eq(v[3].u.s.len, 1);
}

Test(value, prints_trees)
{
	float x[6] = {0, 1, 2, 3, 4, 5};
	struct far_tensor t = far_tensor_1d(FAR_F32, x, 2);
	struct far_custom_type type = {.name = "geo::Polygon"};
	expect_print(far_list(NULL, 0), "[]");
	expect_print(far_dict(NULL, 0), "{}");
	expect_print(FAR_LIST(1, "a", FAR_LIST(far_none(), &t)), "[1, \"a\", [none, f32[2] [0, 1]]]");
	expect_print(FAR_DICT(FAR_ENTRY("k", 1.5), FAR_ENTRY(2, FAR_LIST(far_bool(true)))), "{\"k\": 1.5, 2: [true]}");
	expect_print(far_custom(&type, x), "geo::Polygon(...)");
	expect_print(far_custom(NULL, x), "?(...)");
	expect_print(FAR_LIST(0, 1, 2, 3, 4, 5, 6, 7, 8, 9), "[0, 1, 2, 3, 4, 5, 6, 7, ...]");
	expect_print(FAR_LIST(FAR_LIST(FAR_LIST(FAR_LIST(FAR_LIST(1), far_dict(NULL, 0))))), "[[[[[...], {...}]]]]");
	expect_print(far_list(NULL, 5), "[]");
}

Test(value, prints_views_and_halves)
{
	float x[6] = {0, 1, 2, 3, 4, 5};
	uint16_t one[2] = {0x3f80, 0xc000}, half[2] = {0x3c00, 0x2e66};
	uint64_t shape[2] = {3, 2};
	int64_t strides[2] = {1, 3}, back[2] = {-2, 0};
	struct far_tensor t = far_tensor_nd(FAR_F32, x, 2, shape, strides);
	expect_print(far_tensor_val(&t), "f32[3,2] [[0, 3], [1, 4], [2, 5]]");
	t = far_tensor_nd(FAR_F32, &x[5], 2, shape, back);
	expect_print(far_tensor_val(&t), "f32[3,2] [[5, 5], [3, 3], [1, 1]]");
	t = far_tensor_1d(FAR_BF16, one, 2);
	expect_print(far_tensor_val(&t), "bf16[2] [1, -2]");
	t = far_tensor_1d(FAR_F16, half, 2);
	expect_print(far_tensor_val(&t), "f16[2] [1, 0.099975586]");
}
