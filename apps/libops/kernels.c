/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Element-wise kernels. Any thread. meson compiles the file once per instruction set: OPS_SET names the set and
 * OPS_KERNELS the table.
 */
#include "kernels.h"

#include "vector_math.h"

extern const struct ops_kernels OPS_KERNELS;

/* A loop whose iterations are independent even if the result is one of the inputs. */
#ifdef __clang__
#define EACH(i, n) _Pragma("clang loop vectorize(assume_safety)") for (size_t i = 0; i < (n); i++)
#else
#define EACH(i, n) _Pragma("GCC ivdep") for (size_t i = 0; i < (n); i++)
#endif

/* ---- maps ---- */

/* T: type of an element. W: type of the arithmetic. D: type of the result. */
#define MAP_1(name, D, T, W, expr)                                                                                     \
	static void name(void *dst, const void *const *in, double factor, size_t n)                                    \
	{                                                                                                              \
		D *d = dst;                                                                                            \
		const T *a = in[0];                                                                                    \
		W p = (W)factor;                                                                                       \
		(void)p;                                                                                               \
		EACH(i, n)                                                                                             \
		{                                                                                                      \
			W x = (W)a[i];                                                                                 \
			d[i] = (D)(expr);                                                                              \
		}                                                                                                      \
	}

#define MAP_2(name, D, T, W, expr)                                                                                     \
	static void name(void *dst, const void *const *in, double factor, size_t n)                                    \
	{                                                                                                              \
		D *d = dst;                                                                                            \
		const T *a = in[0];                                                                                    \
		const T *b = in[1];                                                                                    \
		W p = (W)factor;                                                                                       \
		(void)p;                                                                                               \
		EACH(i, n)                                                                                             \
		{                                                                                                      \
			W x = (W)a[i];                                                                                 \
			W y = (W)b[i];                                                                                 \
			d[i] = (D)(expr);                                                                              \
		}                                                                                                      \
	}

#define MAP_3(name, D, T, W, expr)                                                                                     \
	static void name(void *dst, const void *const *in, double factor, size_t n)                                    \
	{                                                                                                              \
		D *d = dst;                                                                                            \
		const T *a = in[0];                                                                                    \
		const T *b = in[1];                                                                                    \
		const T *c = in[2];                                                                                    \
		W p = (W)factor;                                                                                       \
		(void)p;                                                                                               \
		EACH(i, n)                                                                                             \
		{                                                                                                      \
			W x = (W)a[i];                                                                                 \
			W y = (W)b[i];                                                                                 \
			W z = (W)c[i];                                                                                 \
			d[i] = (D)(expr);                                                                              \
		}                                                                                                      \
	}

#define M_EXP                         exp_f32
#define M_LOG                         log_f32
#define M_LOG1P                       log1p_f32
#define M_SIGMOID                     sigmoid_f32
#define M_SQRT                        sqrtf
#define M_TANH                        tanh_f32
#define FLOAT_MAP(name, inputs, expr) MAP_##inputs(name##_f32, float, float, float, expr)
OPS_FLOAT_MAPS(FLOAT_MAP)
#undef FLOAT_MAP
#undef M_EXP
#undef M_LOG
#undef M_LOG1P
#undef M_SIGMOID
#undef M_SQRT
#undef M_TANH

#define M_EXP                         exp_f64
#define M_LOG                         log_f64
#define M_LOG1P                       log1p_f64
#define M_SIGMOID                     sigmoid_f64
#define M_SQRT                        sqrt
#define M_TANH                        tanh_f64
#define FLOAT_MAP(name, inputs, expr) MAP_##inputs(name##_f64, double, double, double, expr)
OPS_FLOAT_MAPS(FLOAT_MAP)
#undef FLOAT_MAP

/* Integers wrap. U is unsigned and at least unsigned int, because narrower types are promoted to int, which overflows.
 */
#define INTEGER_MAPS(name, T, U)                                                                                       \
	MAP_2(ADD_##name, T, T, U, x + y)                                                                              \
	MAP_2(SUB_##name, T, T, U, x - y)                                                                              \
	MAP_2(MUL_##name, T, T, U, x *y)                                                                               \
	MAP_2(MIN_##name, T, T, T, x < y ? x : y)                                                                      \
	MAP_2(MAX_##name, T, T, T, x > y ? x : y)                                                                      \
	MAP_1(NEG_##name, T, T, U, 0 - x)

INTEGER_MAPS(i8, int8_t, unsigned)
INTEGER_MAPS(i16, int16_t, unsigned)
INTEGER_MAPS(i32, int32_t, unsigned)
INTEGER_MAPS(i64, int64_t, uint64_t)
INTEGER_MAPS(u8, uint8_t, unsigned)
INTEGER_MAPS(u64, uint64_t, uint64_t)

/* Any byte but 0 counts as true: those of a received tensor are not checked. */
MAP_2(or_bool, uint8_t, uint8_t, unsigned, (x | y) != 0)
MAP_2(and_bool, uint8_t, uint8_t, unsigned, (x != 0) & (y != 0))

#define COMPARES(name, T, W)                                                                                           \
	MAP_2(eq_##name, uint8_t, T, W, x == y)                                                                        \
	MAP_2(ne_##name, uint8_t, T, W, x != y)                                                                        \
	MAP_2(lt_##name, uint8_t, T, W, x < y)                                                                         \
	MAP_2(le_##name, uint8_t, T, W, x <= y)                                                                        \
	MAP_2(gt_##name, uint8_t, T, W, x > y)                                                                         \
	MAP_2(ge_##name, uint8_t, T, W, x >= y)

COMPARES(f32, float, float)
COMPARES(f64, double, double)
COMPARES(i8, int8_t, int8_t)
COMPARES(i16, int16_t, int16_t)
COMPARES(i32, int32_t, int32_t)
COMPARES(i64, int64_t, int64_t)
COMPARES(u8, uint8_t, uint8_t)
COMPARES(u64, uint64_t, uint64_t)
COMPARES(bool, uint8_t, bool)

/* ---- conversions ---- */

static void f32_from_bf16(float *d, const uint16_t *s, size_t n)
{
	EACH(i, n)
	d[i] = f32_of_bits((uint32_t)s[i] << 16);
}

static void bf16_from_f32(uint16_t *d, const float *s, size_t n)
{
	EACH(i, n)
	{
		uint32_t u = bits_f32(s[i]);
		uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1)) >> 16;
		uint32_t nan = (u >> 16) | 0x40; /* quiet, and never infinite */
		d[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? nan : rounded);
	}
}

static void f32_from_f16(float *d, const uint16_t *s, size_t n)
{
	EACH(i, n)
	{
		uint32_t h = s[i];
		/* The exponent is moved by a multiplication, which also makes subnormal numbers normal. */
		uint32_t magnitude = bits_f32(f32_of_bits((h & 0x7fffu) << 13) * 0x1p112f);
		magnitude |= (h & 0x7c00u) == 0x7c00u ? 0x7f800000u : 0;
		d[i] = f32_of_bits(magnitude | (h & 0x8000u) << 16);
	}
}

static void f16_from_f32(uint16_t *d, const float *s, size_t n)
{
	EACH(i, n)
	{
		uint32_t u = bits_f32(s[i]) & 0x7fffffffu;
		/* Subnormal results: an addition rounds at their last bit. */
		uint32_t small = bits_f32(f32_of_bits(u) + 0.5f) - bits_f32(0.5f);
		uint32_t normal = (u - (112u << 23) + 0xfffu + ((u >> 13) & 1)) >> 13;
		uint32_t h = u < (113u << 23) ? small : normal;
		h = u >= 0x47800000u ? 0x7c00u : h; /* 65536 and more */
		h = u > 0x7f800000u ? (0x7e00u | ((u >> 13) & 0x3ffu)) : h;
		d[i] = (uint16_t)(h | (bits_f32(s[i]) >> 16 & 0x8000u));
	}
}

/* ---- sums ---- */

#define LANES 8

#define SUMS(name, T)                                                                                                  \
	static double sum_##name(const T *s, size_t n)                                                                 \
	{                                                                                                              \
		double lane[LANES] = {0};                                                                              \
		size_t i = 0;                                                                                          \
		for (; i + LANES <= n; i += LANES)                                                                     \
			for (size_t k = 0; k < LANES; k++)                                                             \
				lane[k] += (double)s[i + k];                                                           \
		for (size_t k = 0; i < n; i++, k++)                                                                    \
			lane[k] += (double)s[i];                                                                       \
		return ((lane[0] + lane[4]) + (lane[1] + lane[5])) + ((lane[2] + lane[6]) + (lane[3] + lane[7]));      \
	}                                                                                                              \
	static void accumulate_##name(double *d, const T *s, size_t n)                                                 \
	{                                                                                                              \
		EACH(i, n)                                                                                             \
		d[i] += (double)s[i];                                                                                  \
	}

SUMS(f32, float)
SUMS(f64, double)

/* ---- the table ---- */

#define INTEGER_ROW(op)                                                                                                \
	[FAR_I8] = op##_i8, [FAR_I16] = op##_i16, [FAR_I32] = op##_i32, [FAR_I64] = op##_i64, [FAR_U8] = op##_u8,      \
	[FAR_U64] = op##_u64
#define FLOAT_ROW(op) [FAR_F32] = op##_f32, [FAR_F64] = op##_f64
#define COMPARE_ROW(op)                                                                                                \
	{                                                                                                              \
		FLOAT_ROW(op), INTEGER_ROW(op), [FAR_BOOL] = op##_bool                                                 \
	}

#define INTEGER_ENTRIES(op)                                                                                            \
	[OPS_##op][FAR_I8] = op##_i8, [OPS_##op][FAR_I16] = op##_i16, [OPS_##op][FAR_I32] = op##_i32,                  \
	[OPS_##op][FAR_I64] = op##_i64, [OPS_##op][FAR_U8] = op##_u8, [OPS_##op][FAR_U64] = op##_u64
#define TABLE_ENTRY(name, inputs, expr) [OPS_##name] = {FLOAT_ROW(name)},

const struct ops_kernels OPS_KERNELS = {
	.name = OPS_SET,
	.map = {OPS_FLOAT_MAPS(TABLE_ENTRY) INTEGER_ENTRIES(ADD), INTEGER_ENTRIES(SUB), INTEGER_ENTRIES(MUL),
		INTEGER_ENTRIES(MIN), INTEGER_ENTRIES(MAX), INTEGER_ENTRIES(NEG), [OPS_ADD][FAR_BOOL] = or_bool,
		[OPS_MAX][FAR_BOOL] = or_bool, [OPS_MUL][FAR_BOOL] = and_bool, [OPS_MIN][FAR_BOOL] = and_bool},
	.compare = {[OPS_EQ] = COMPARE_ROW(eq),
		    [OPS_NE] = COMPARE_ROW(ne),
		    [OPS_LT] = COMPARE_ROW(lt),
		    [OPS_LE] = COMPARE_ROW(le),
		    [OPS_GT] = COMPARE_ROW(gt),
		    [OPS_GE] = COMPARE_ROW(ge)},
	.f32_from_bf16 = f32_from_bf16,
	.f32_from_f16 = f32_from_f16,
	.bf16_from_f32 = bf16_from_f32,
	.f16_from_f32 = f16_from_f32,
	.sum_f32 = sum_f32,
	.sum_f64 = sum_f64,
	.accumulate_f32 = accumulate_f32,
	.accumulate_f64 = accumulate_f64,
};
