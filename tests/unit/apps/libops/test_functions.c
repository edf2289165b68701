/* SPDX-License-Identifier: BSD-3-Clause */
/** The functions of far:: on tensors, called by their handlers. The test's thread. */
#include "by_name.h"
#include "value/half.h"
#include "value/signature.h"

#include <math.h>

Test(functions, signatures_parse)
{
	for (size_t i = 0; i < far_ops_module.functions_n; i++) {
		const struct far_function *f = &far_ops_module.functions[i];
		struct signature s;
		struct far_err err;
		cr_expect_eq(signature_parse(f->signature, &s, &err), FAR_OK, "%s", err.text);
		cr_expect_eq(strncmp(s.name, "far::", 5), 0);
		cr_expect_eq(f->kind, strcmp(s.name, "far::matmul") ? FAR_KIND_INLINE : FAR_KIND_BLOCKING);
		cr_expect_not_null(f->fn);
	}
}

enum { MIN = 3, MAX = 4, OPERATIONS = 5 };
static const char *const names[OPERATIONS] = {"far::add", "far::sub", "far::mul", "far::min", "far::max"};

#define ARITHMETIC_TEST(T, dtype)                                                                                      \
	do {                                                                                                           \
		T a[37], b[37], want[OPERATIONS][37];                                                                  \
		for (int i = 0; i < 37; i++) {                                                                         \
			a[i] = (T)(3 * i + 1);                                                                         \
			b[i] = (T)(40 - i);                                                                            \
			want[0][i] = (T)(a[i] + b[i]);                                                                 \
			want[1][i] = (T)(a[i] - b[i]);                                                                 \
			want[2][i] = (T)(a[i] * b[i]);                                                                 \
			want[3][i] = a[i] < b[i] ? a[i] : b[i];                                                        \
			want[4][i] = a[i] > b[i] ? a[i] : b[i];                                                        \
		}                                                                                                      \
		for (int op = 0; op < OPERATIONS; op++)                                                                \
			for (size_t n = 0; n <= 37; n++)                                                               \
				expect_tensor(names[op], tensor(dtype, a, n), tensor(dtype, b, n), dtype, want[op],    \
					      n);                                                                      \
	} while (0)

Test(functions, every_operation_on_every_dtype)
{
	ARITHMETIC_TEST(float, FAR_F32);
	ARITHMETIC_TEST(double, FAR_F64);
	ARITHMETIC_TEST(int8_t, FAR_I8);
	ARITHMETIC_TEST(int16_t, FAR_I16);
	ARITHMETIC_TEST(int32_t, FAR_I32);
	ARITHMETIC_TEST(int64_t, FAR_I64);
	ARITHMETIC_TEST(uint8_t, FAR_U8);
	ARITHMETIC_TEST(uint64_t, FAR_U64);
}

Test(functions, integers_wrap_around)
{
	int8_t a8[2] = {127, -128}, b8[2] = {1, -1}, w8[2] = {-128, 127};
	expect_tensor("far::add", tensor(FAR_I8, a8, 2), tensor(FAR_I8, b8, 2), FAR_I8, w8, 2);
	int16_t a16[1] = {-32768}, w16[1] = {0};
	expect_tensor("far::mul", tensor(FAR_I16, a16, 1), tensor(FAR_I16, a16, 1), FAR_I16, w16, 1);
	int32_t a32[1] = {INT32_MAX}, w32[1] = {1};
	expect_tensor("far::mul", tensor(FAR_I32, a32, 1), tensor(FAR_I32, a32, 1), FAR_I32, w32, 1);
	int64_t a64[1] = {INT64_MIN}, b64[1] = {1}, w64[1] = {INT64_MAX};
	expect_tensor("far::sub", tensor(FAR_I64, a64, 1), tensor(FAR_I64, b64, 1), FAR_I64, w64, 1);
}

Test(functions, bool_tensors)
{
	/* Bytes that are neither 0 nor 1 count as 1. */
	uint8_t a[20] = {0, 0, 1, 2}, b[20] = {0, 4, 0, 1}, any[20] = {0, 1, 1, 1}, all[20] = {0, 0, 0, 1};
	struct far_val args[2] = {tensor(FAR_BOOL, a, 20), tensor(FAR_BOOL, b, 20)};
	expect_tensor("far::add", args[0], args[1], FAR_BOOL, any, 20);
	expect_tensor("far::max", args[0], args[1], FAR_BOOL, any, 20);
	expect_tensor("far::mul", args[0], args[1], FAR_BOOL, all, 20);
	expect_tensor("far::min", args[0], args[1], FAR_BOOL, all, 20);
	expect_fail("far::sub", args, 2, "far::sub: bool tensors have no difference, convert one to an integer dtype");
	args[1] = far_bool(true);
	expect_fail("far::sub", args, 2, "far::sub: bool tensors have no difference, convert one to an integer dtype");
	int32_t i[2] = {5, 5}, sum[2] = {5, 6};
	expect_tensor("far::add", tensor(FAR_I32, i, 2), tensor(FAR_BOOL, a + 1, 2), FAR_I32, sum, 2);
}

Test(functions, nan_spreads_through_min_and_max)
{
	float a[40], b[40];
	for (int i = 0; i < 40; i++)
		a[i] = i % 2 ? NAN : 1.0f, b[i] = i % 2 ? 1.0f : NAN;
	struct far_val args[2] = {tensor(FAR_F32, a, 40), tensor(FAR_F32, b, 40)};
	for (int op = MIN; op <= MAX; op++) {
		struct far_req req;
		cr_assert_eq(fake_req_call(&req, names[op], args, 2), FAR_OK);
		for (int i = 0; i < 40; i++)
			cr_expect(isnan(((float *)(void *)req.data)[i]));
		fake_req_fini(&req);
	}
}

Test(functions, promotion_table)
{
	static const enum far_dtype order[9] = {FAR_BOOL, FAR_U8,  FAR_I8,  FAR_I16, FAR_I32,
						FAR_I64,  FAR_U64, FAR_F32, FAR_F64};
	static const char *const want[9] = {"bool u8 i8 i16 i32 i64 u64 f32 f64",
					    "u8 i16 i16 i32 i64 u64 f32 f64",
					    "i8 i16 i32 i64 f64 f32 f64",
					    "i16 i32 i64 f64 f32 f64",
					    "i32 i64 f64 f32 f64",
					    "i64 f64 f32 f64",
					    "u64 f32 f64",
					    "f32 f64",
					    "f64"};
	for (int i = 0; i < 9; i++) {
		char row[80];
		size_t at = 0;
		for (int k = i; k < 9; k++) {
			enum far_dtype d = ops_promote(order[i], order[k]);
			cr_expect_eq(d, ops_promote(order[k], order[i]));
			at += (size_t)sprintf(row + at, "%s%s", k > i ? " " : "", far_dtype_name(d));
		}
		cr_expect_str_eq(row, want[i]);
	}
}

static double element(const void *data, enum far_dtype dtype, size_t i)
{
	switch (dtype) {
	case FAR_F32:
		return (double)((const float *)data)[i];
	case FAR_F64:
		return ((const double *)data)[i];
	case FAR_I8:
		return ((const int8_t *)data)[i];
	case FAR_I16:
		return ((const int16_t *)data)[i];
	case FAR_I32:
		return ((const int32_t *)data)[i];
	case FAR_I64:
		return (double)((const int64_t *)data)[i];
	case FAR_U8:
		return ((const uint8_t *)data)[i];
	case FAR_U64:
		return (double)((const uint64_t *)data)[i];
	case FAR_BF16:
	case FAR_F16:
		return (double)half_to_float(dtype, ((const uint16_t *)data)[i]);
	default:
		return ((const uint8_t *)data)[i] != 0;
	}
}

Test(functions, every_pair_of_dtypes_over_several_blocks)
{
	/* Element i is i % 2 in every dtype. */
	enum { N = 700 };
	static double storage[FAR_DTYPE_COUNT][N];
	for (size_t i = 0; i < N; i++) {
		((float *)(void *)storage[FAR_F32])[i] = (float)(i % 2);
		storage[FAR_F64][i] = (double)(i % 2);
		((int8_t *)(void *)storage[FAR_I8])[i] = (int8_t)(i % 2);
		((int16_t *)(void *)storage[FAR_I16])[i] = (int16_t)(i % 2);
		((int32_t *)(void *)storage[FAR_I32])[i] = (int32_t)(i % 2);
		((int64_t *)(void *)storage[FAR_I64])[i] = (int64_t)(i % 2);
		((uint8_t *)(void *)storage[FAR_U8])[i] = (uint8_t)(i % 2);
		((uint64_t *)(void *)storage[FAR_U64])[i] = i % 2;
		((uint8_t *)(void *)storage[FAR_BOOL])[i] = (uint8_t)(i % 2);
		((uint16_t *)(void *)storage[FAR_BF16])[i] = i % 2 ? 0x3f80 : 0;
		((uint16_t *)(void *)storage[FAR_F16])[i] = i % 2 ? 0x3c00 : 0;
	}
	for (unsigned a = 1; a < FAR_DTYPE_COUNT; a++) {
		for (unsigned b = 1; b < FAR_DTYPE_COUNT; b++) {
			struct far_req req;
			struct far_val args[2] = {tensor((enum far_dtype)a, storage[a], N),
						  tensor((enum far_dtype)b, storage[b], N)};
			enum far_dtype dtype = ops_promote((enum far_dtype)a, (enum far_dtype)b);
			cr_assert_eq(fake_req_call(&req, "far::add", args, 2), FAR_OK);
			cr_assert_eq(req.value.u.t.dtype, dtype);
			for (size_t i = 0; i < N; i++)
				cr_assert_eq(element(req.data, dtype, i), dtype == FAR_BOOL ? i % 2 : i % 2 * 2);
			fake_req_fini(&req);
		}
	}
}

Test(functions, a_tensor_of_one_element_goes_with_any)
{
	static float many[600], sum[600], difference[600];
	for (int i = 0; i < 600; i++)
		many[i] = (float)i, sum[i] = (float)i + 2, difference[i] = 2 - (float)i;
	float two[1] = {2};
	expect_tensor("far::add", tensor(FAR_F32, many, 600), tensor(FAR_F32, two, 1), FAR_F32, sum, 600);
	expect_tensor("far::sub", tensor(FAR_F32, two, 1), tensor(FAR_F32, many, 600), FAR_F32, difference, 600);
	expect_tensor("far::sub", tensor(FAR_F32, two, 1), tensor(FAR_F32, NULL, 0), FAR_F32, NULL, 0);
	struct far_tensor cube = far_tensor_1d(FAR_I8, "\1", 1);
	cube.ndim = 3;
	cube.shape[1] = cube.shape[2] = 1;
	struct far_val args[2] = {far_tensor_val(&cube), tensor(FAR_F32, many, 5)};
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, "far::mul", args, 2), FAR_OK);
	cr_expect_eq(req.value.u.t.ndim, 3);
	cr_expect(req.value.u.t.shape[0] == 1 && req.value.u.t.shape[1] == 1 && req.value.u.t.shape[2] == 5);
	cr_expect_eq(memcmp(req.data, many, 20), 0);
	fake_req_fini(&req);
}

Test(functions, shapes_broadcast)
{
	float x[6] = {1, 2, 3, 4, 5, 6}, row[3] = {10, 20, 30}, sums[6] = {11, 22, 33, 14, 25, 36};
	struct far_tensor t = far_tensor_2d(FAR_F32, x, 2, 3);
	struct far_val args[2] = {far_tensor_val(&t), tensor(FAR_F32, row, 3)};
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, "far::add", args, 2), FAR_OK);
	cr_assert(req.value.u.t.ndim == 2 && req.value.u.t.shape[0] == 2 && req.value.u.t.shape[1] == 3);
	cr_expect_eq(memcmp(req.data, sums, sizeof sums), 0);
	fake_req_fini(&req);
	args[1] = tensor(FAR_F32, row, 2);
	expect_fail("far::add", args, 2, "far::add: a f32[2,3] and b f32[2] do not broadcast: axis 1 of the result");
	args[0] = tensor(FAR_F32, NULL, 0);
	args[1] = tensor(FAR_F32, row, 3);
	expect_fail("far::max", args, 2, "far::max: a f32[0] and b f32[3] do not broadcast: axis 0 of the result");
}

Test(functions, tensor_with_scalar)
{
	float f[3] = {1, 2, 3}, f_add[3] = {2.5f, 3.5f, 4.5f}, f_sub[3] = {0.5f, -0.5f, -1.5f};
	expect_tensor("far::add", tensor(FAR_F32, f, 3), far_float(1.5), FAR_F32, f_add, 3);
	expect_tensor("far::sub", far_float(1.5), tensor(FAR_F32, f, 3), FAR_F32, f_sub, 3);
	double d[1] = {0.1}, d_add[1] = {0.1 + 3};
	expect_tensor("far::add", tensor(FAR_F64, d, 1), far_int(3), FAR_F64, d_add, 1);
	int8_t i[2] = {1, -2}, i_mul[2] = {-3, 6};
	float i_float[2] = {1.5f, -1.5f};
	expect_tensor("far::mul", tensor(FAR_I8, i, 2), far_int(-3), FAR_I8, i_mul, 2);
	expect_tensor("far::add", tensor(FAR_I8, i, 2), far_float(0.5), FAR_F32, i_float, 2);
	uint8_t b[2] = {0, 1};
	int64_t b_add[2] = {7, 8};
	float b_float[2] = {0.5f, 1.5f};
	expect_tensor("far::add", tensor(FAR_BOOL, b, 2), far_int(7), FAR_I64, b_add, 2);
	expect_tensor("far::add", tensor(FAR_BOOL, b, 2), far_float(0.5), FAR_F32, b_float, 2);
	expect_tensor("far::mul", tensor(FAR_BOOL, b, 2), far_bool(true), FAR_BOOL, b, 2);
	uint64_t u[1] = {UINT64_MAX}, u_add[1] = {1};
	expect_tensor("far::add", tensor(FAR_U64, u, 1), far_int(2), FAR_U64, u_add, 1);
	int32_t s[1] = {5}, s_add[1] = {6};
	expect_tensor("far::add", tensor(FAR_I32, s, 1), far_bool(true), FAR_I32, s_add, 1);
}

Test(functions, an_int_that_the_tensor_cannot_hold)
{
	int8_t i[1] = {1};
	struct far_val args[2] = {tensor(FAR_I8, i, 1), far_int(128)};
	expect_fail("far::add", args, 2,
		    "far::add: argument 2 is the int 128, which the tensor's dtype i8 cannot hold");
	args[1] = tensor(FAR_U8, i, 1);
	args[0] = far_int(-1);
	expect_fail("far::min", args, 2, "far::min: argument 1 is the int -1, which the tensor's dtype u8 cannot hold");
}

Test(functions, two_scalars)
{
	struct far_val v = scalar("far::add", far_int(INT64_MAX), far_int(1));
	cr_expect(v.type == FAR_TYPE_INT && v.u.i == INT64_MIN);
	v = scalar("far::mul", far_int(INT64_MIN), far_int(-1));
	cr_expect(v.type == FAR_TYPE_INT && v.u.i == INT64_MIN);
	v = scalar("far::sub", far_bool(false), far_bool(true));
	cr_expect(v.type == FAR_TYPE_INT && v.u.i == -1);
	v = scalar("far::max", far_bool(true), far_int(-4));
	cr_expect(v.type == FAR_TYPE_INT && v.u.i == 1);
	v = scalar("far::min", far_int(2), far_float(2.5));
	cr_expect(v.type == FAR_TYPE_FLOAT && v.u.f == 2.0);
	v = scalar("far::add", far_bool(true), far_float(0.5));
	cr_expect(v.type == FAR_TYPE_FLOAT && v.u.f == 1.5);
	v = scalar("far::max", far_int(2), far_float(NAN));
	cr_expect(v.type == FAR_TYPE_FLOAT && isnan(v.u.f));
}

static void expect_filled(const char *name, struct far_val shape, unsigned ndim, size_t n, float value)
{
	struct far_req req;
	cr_assert_eq(fake_req_call(&req, name, &shape, 1), FAR_OK);
	cr_assert_eq(req.answers, 1);
	cr_assert_eq(req.status, FAR_OK, "%s", req.err.text);
	cr_expect_eq(req.value.u.t.dtype, FAR_F32);
	cr_expect_eq(req.value.u.t.ndim, ndim);
	cr_assert_eq(far_tensor_count(&req.value.u.t), n);
	for (size_t i = 0; i < n; i++)
		cr_assert_eq(((float *)(void *)req.data)[i], value);
	fake_req_fini(&req);
}

Test(functions, zeros_and_ones)
{
	int64_t shape[3] = {2, 3, 5};
	expect_filled("far::zeros", far_int(5), 1, 5, 0.0f);
	expect_filled("far::ones", far_int(1000), 1, 1000, 1.0f);
	expect_filled("far::ones", far_int(0), 1, 0, 1.0f);
	expect_filled("far::ones", tensor(FAR_I64, shape, 3), 3, 30, 1.0f);
	expect_filled("far::zeros", tensor(FAR_I64, NULL, 0), 0, 1, 0.0f);
}

Test(functions, shapes_that_zeros_refuses)
{
	int64_t shape[9] = {2, -3, 1, 1, 1, 1, 1, 1, 1}, huge[2] = {INT64_C(1) << 40, INT64_C(1) << 40};
	struct far_val v = far_int(-1);
	expect_fail("far::zeros", &v, 1, "far::zeros: dimension -1 of the shape is negative");
	v = tensor(FAR_I64, shape, 2);
	expect_fail("far::ones", &v, 1, "far::ones: dimension -3 of the shape is negative");
	v = tensor(FAR_I64, shape, 9);
	expect_fail("far::ones", &v, 1, "far::ones: a shape of 9 dimensions, at most 8 are possible");
	v = tensor(FAR_I64, huge, 2);
	expect_fail("far::ones", &v, 1,
		    "far::ones: the result f32[1099511627776,1099511627776] has more than 9223372036854775807 bytes");
	v = far_int(INT64_MAX);
	expect_fail("far::ones", &v, 1,
		    "far::ones: the result f32[9223372036854775807] has more than 9223372036854775807 bytes");
	v = tensor(FAR_I32, shape, 1);
	expect_fail(
		"far::ones", &v, 1,
		"far::ones: the shape is a tensor of dtype i32 with ndim 1, wanted an int or dtype i64 with ndim 1");
}

Test(functions, a_result_too_large_is_left_to_the_engine)
{
	struct far_req req;
	struct far_val v[2] = {far_int(INT64_C(1) << 30), far_none()};
	cr_expect_eq(fake_req_call(&req, "far::zeros", v, 1), FAR_TOO_LARGE);
	cr_expect_eq(req.answers, 0);
	static const double nothing;
	struct far_tensor t = far_tensor_1d(FAR_F32, &nothing, (size_t)1 << 30);
	v[0] = v[1] = far_tensor_val(&t);
	cr_expect_eq(fake_req_call(&req, "far::add", v, 2), FAR_TOO_LARGE);
	v[1] = far_int(1);
	cr_expect_eq(fake_req_call(&req, "far::add", v, 2), FAR_TOO_LARGE);
	t.dtype = FAR_F64;
	v[1] = far_tensor_val(&t);
	cr_expect_eq(fake_req_call(&req, "far::add", v, 2), FAR_TOO_LARGE);
	cr_expect_eq(req.answers, 0);
}

Test(functions, halves_are_computed_in_f32_and_rounded_once)
{
	static const enum far_dtype dtypes[2] = {FAR_BF16, FAR_F16};
	enum { N = 600 };
	static uint16_t a[N], b[N], want[N];
	static float wide[N], sums[N];
	for (int d = 0; d < 2; d++) {
		enum far_dtype dtype = dtypes[d], other = dtypes[1 - d];
		for (unsigned i = 0; i < N; i++) {
			a[i] = half_from_float(dtype, (float)i * 1.25f);
			b[i] = half_from_float(dtype, 3.0f - (float)i * 0.75f);
			wide[i] = (float)i * 0.125f;
		}
		for (int op = 0; op < OPERATIONS; op++) {
			for (unsigned i = 0; i < N; i++) {
				float x = half_to_float(dtype, a[i]), y = half_to_float(dtype, b[i]);
				float results[OPERATIONS] = {x + y, x - y, x * y, x < y ? x : y, x > y ? x : y};
				want[i] = half_from_float(dtype, results[op]);
			}
			expect_tensor(names[op], tensor(dtype, a, N), tensor(dtype, b, N), dtype, want, N);
		}
		for (unsigned i = 0; i < N; i++)
			want[i] = half_from_float(dtype, half_to_float(dtype, a[i]) + 2.5f);
		expect_tensor("far::add", tensor(dtype, a, N), far_float(2.5), dtype, want, N);
		for (unsigned i = 0; i < N; i++)
			sums[i] = half_to_float(dtype, a[i]) + wide[i];
		expect_tensor("far::add", tensor(dtype, a, N), tensor(FAR_F32, wide, N), FAR_F32, sums, N);
		cr_expect_eq(ops_promote(dtype, other), FAR_F32);
		cr_expect_eq(ops_promote(dtype, FAR_U64), dtype);
		cr_expect_eq(ops_promote(FAR_F64, dtype), FAR_F64);
		cr_expect_eq(ops_promote(FAR_BOOL, dtype), dtype);
	}
}

static void expect_alpha(const char *name, struct far_val a, struct far_val b, struct far_val alpha,
			 enum far_dtype dtype, const void *want, size_t n)
{
	struct far_req req;
	struct far_val args[3] = {a, b, alpha};
	cr_assert_eq(fake_req_call(&req, name, args, 3), FAR_OK);
	cr_assert_eq(req.status, FAR_OK, "%s", req.err.text);
	cr_assert_eq(req.value.u.t.dtype, dtype);
	cr_assert_eq(far_tensor_count(&req.value.u.t), n);
	cr_expect_eq(memcmp(req.data, want, n * far_dtype_size(dtype)), 0);
	fake_req_fini(&req);
}

static void expect_scalar(const char *name, struct far_val a, struct far_val b, struct far_val alpha,
			  struct far_val want)
{
	struct far_req req;
	struct far_val args[3] = {a, b, alpha};
	cr_assert_eq(fake_req_call(&req, name, args, 3), FAR_OK);
	cr_assert_eq(req.value.type, want.type);
	cr_expect(want.type == FAR_TYPE_INT ? req.value.u.i == want.u.i : req.value.u.f == want.u.f);
}

Test(functions, alpha)
{
	float a[3] = {1, 2, 3}, b[3] = {10, 20, 30}, one[1] = {10};
	int32_t i[3] = {1, 2, 3}, k[3] = {4, 5, 6};
	uint8_t t[2] = {1, 1}, f[2] = {1, 0};
	expect_alpha("far::add", tensor(FAR_F32, a, 3), tensor(FAR_F32, b, 3), far_float(0.5), FAR_F32,
		     (const float[]){6, 12, 18}, 3);
	expect_alpha("far::sub", tensor(FAR_F32, a, 3), tensor(FAR_F32, one, 1), far_int(2), FAR_F32,
		     (const float[]){-19, -18, -17}, 3);
	expect_alpha("far::add", far_float(1), tensor(FAR_F32, a, 3), far_int(2), FAR_F32, (const float[]){3, 5, 7}, 3);
	expect_alpha("far::add", tensor(FAR_F32, a, 3), far_int(3), far_float(2), FAR_F32, (const float[]){7, 8, 9}, 3);
	expect_alpha("far::sub", tensor(FAR_I32, i, 3), tensor(FAR_I32, k, 3), far_int(-1), FAR_I32,
		     (const int32_t[]){5, 7, 9}, 3);
	expect_alpha("far::add", tensor(FAR_BOOL, f, 2), tensor(FAR_BOOL, t, 2), far_bool(false), FAR_BOOL, f, 2);
	expect_scalar("far::add", far_int(1), far_int(2), far_int(3), far_int(7));
	expect_scalar("far::sub", far_int(1), far_int(2), far_float(0.5), far_float(0));
	expect_scalar("far::add", far_int(INT64_MAX), far_int(INT64_MAX), far_int(2), far_int(INT64_MAX - 2));
	struct far_val args[3] = {tensor(FAR_I32, i, 3), tensor(FAR_I32, k, 3), far_float(1.5)};
	expect_fail("far::add", args, 3, "far::add: alpha is a float, which the result's dtype i32 cannot hold");
	args[2] = far_int(INT64_C(1) << 40);
	expect_fail("far::add", args, 3,
		    "far::add: alpha is an int out of range, which the result's dtype i32 cannot hold");
	/* One rounding: 1 + 2^-8 is not a bf16, 256 times what is left of it shows. */
	uint16_t x[1] = {half_from_float(FAR_BF16, -256.0f)}, y[1] = {0x3f81};
	float sum = -256.0f + 256.0f * half_to_float(FAR_BF16, y[0]);
	uint16_t want[1] = {half_from_float(FAR_BF16, sum)};
	expect_alpha("far::add", tensor(FAR_BF16, x, 1), tensor(FAR_BF16, y, 1), far_int(256), FAR_BF16, want, 1);
}

static void expect_nonzero(struct far_tensor t, const int64_t *want, size_t rows)
{
	struct far_req req;
	struct far_val v = far_tensor_val(&t);
	cr_assert_eq(fake_req_call(&req, "far::nonzero", &v, 1), FAR_OK);
	cr_assert_eq(req.answers, 1);
	cr_expect_eq(req.value.u.t.dtype, FAR_I64);
	cr_expect_eq(req.value.u.t.ndim, 2);
	cr_expect_eq(req.value.u.t.shape[0], rows);
	cr_expect_eq(req.value.u.t.shape[1], t.ndim);
	cr_expect(rows * t.ndim == 0 || memcmp(req.data, want, rows * t.ndim * sizeof *want) == 0);
	fake_req_fini(&req);
}

Test(functions, nonzero)
{
	float x[6] = {0, 1, -0.0f, (float)NAN, 2, 0};
	int64_t rows[] = {0, 1, 1, 0, 1, 1}, flat[] = {1, 3, 4};
	expect_nonzero(far_tensor_2d(FAR_F32, x, 2, 3), rows, 3);
	expect_nonzero(far_tensor_1d(FAR_F32, x, 6), flat, 3);
	expect_nonzero(far_tensor_1d(FAR_F32, x, 0), NULL, 0);
	struct far_tensor scalar = far_tensor_1d(FAR_F32, &x[1], 0);
	scalar.ndim = 0;
	expect_nonzero(scalar, NULL, 1);
	scalar.data = &x[0];
	expect_nonzero(scalar, NULL, 0);
	static double storage[8];
	for (unsigned d = 1; d < FAR_DTYPE_COUNT; d++) {
		memset(storage, 0, sizeof storage);
		((uint8_t *)storage)[2 * far_dtype_size((enum far_dtype)d)] = 1;
		expect_nonzero(far_tensor_1d((enum far_dtype)d, storage, 5), (const int64_t[]){2}, 1);
	}
	uint16_t halves[4] = {0x8000, 0x0001, 0, 0xffff};
	expect_nonzero(far_tensor_1d(FAR_F16, halves, 4), (const int64_t[]){1, 3}, 2);
}
