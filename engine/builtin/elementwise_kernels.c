/* SPDX-License-Identifier: BSD-3-Clause */
/** Arithmetic kernels and conversions of element-wise functions. Any thread. */
#include "builtin/elementwise.h"

#include "value/half.h"

/* The first loop runs over a multiple of this: at -O2 gcc vectorizes only loops without a remainder. */
#define CHUNK 16

/* One function per operation and dtype. T: type of an element. W: type of the arithmetic. */
#define KERNEL(name, T, W, expr)                                                                                       \
	static void name(void *restrict dst, const void *restrict left, const void *restrict right, size_t n)          \
	{                                                                                                              \
		T *restrict d = dst;                                                                                   \
		const T *restrict a = left;                                                                            \
		const T *restrict b = right;                                                                           \
		size_t chunks = n / CHUNK * CHUNK;                                                                     \
		for (size_t i = 0; i < chunks; i++) {                                                                  \
			W x = (W)a[i];                                                                                 \
			W y = (W)b[i];                                                                                 \
			d[i] = (T)(expr);                                                                              \
		}                                                                                                      \
		for (size_t i = chunks; i < n; i++) {                                                                  \
			W x = (W)a[i];                                                                                 \
			W y = (W)b[i];                                                                                 \
			d[i] = (T)(expr);                                                                              \
		}                                                                                                      \
	}

/* Sums, differences and products of integers wrap. U is unsigned and at least unsigned int, because narrower types are
 * promoted to int, which overflows. */
#define INTEGER_KERNELS(name, T, U)                                                                                    \
	KERNEL(add_##name, T, U, x + y)                                                                                \
	KERNEL(sub_##name, T, U, x - y)                                                                                \
	KERNEL(mul_##name, T, U, x *y)                                                                                 \
	KERNEL(min_##name, T, T, x < y ? x : y)                                                                        \
	KERNEL(max_##name, T, T, x > y ? x : y)

#define FLOAT_KERNELS(name, T)                                                                                         \
	KERNEL(add_##name, T, T, x + y)                                                                                \
	KERNEL(sub_##name, T, T, x - y)                                                                                \
	KERNEL(mul_##name, T, T, x *y)                                                                                 \
	KERNEL(min_##name, T, T, x < y || x != x ? x : y)                                                              \
	KERNEL(max_##name, T, T, x > y || x != x ? x : y)

FLOAT_KERNELS(f32, float)
FLOAT_KERNELS(f64, double)
INTEGER_KERNELS(i8, int8_t, unsigned)
INTEGER_KERNELS(i16, int16_t, unsigned)
INTEGER_KERNELS(i32, int32_t, unsigned)
INTEGER_KERNELS(i64, int64_t, uint64_t)
INTEGER_KERNELS(u8, uint8_t, unsigned)
INTEGER_KERNELS(u64, uint64_t, uint64_t)

/* The bytes of a received bool tensor are not checked: any but 0 counts as 1. */
KERNEL(or_bool, uint8_t, unsigned, (x | y) != 0)
KERNEL(and_bool, uint8_t, unsigned, (x != 0) & (y != 0))

#define KERNEL_ROW(op, on_bool)                                                                                        \
	{                                                                                                              \
		[FAR_F32] = op##_f32, [FAR_F64] = op##_f64, [FAR_I8] = op##_i8, [FAR_I16] = op##_i16,                  \
		[FAR_I32] = op##_i32, [FAR_I64] = op##_i64, [FAR_U8] = op##_u8, [FAR_U64] = op##_u64,                  \
		[FAR_BOOL] = (on_bool),                                                                                \
	}

elementwise_kernel *const elementwise_kernels[ELEMENTWISE_OPS][FAR_DTYPE_COUNT] = {
	[ELEMENTWISE_ADD] = KERNEL_ROW(add, or_bool),  [ELEMENTWISE_SUB] = KERNEL_ROW(sub, NULL),
	[ELEMENTWISE_MUL] = KERNEL_ROW(mul, and_bool), [ELEMENTWISE_MIN] = KERNEL_ROW(min, and_bool),
	[ELEMENTWISE_MAX] = KERNEL_ROW(max, or_bool),
};

/* ---- dtypes ---- */

enum far_dtype elementwise_promote(enum far_dtype a, enum far_dtype b)
{
	/* The higher rank wins, except for the pairs below, where neither dtype holds the other. */
	static const uint8_t rank[FAR_DTYPE_COUNT] = {
		[FAR_BOOL] = 1, [FAR_U8] = 2,  [FAR_I8] = 3,   [FAR_I16] = 4,  [FAR_I32] = 5, [FAR_I64] = 6,
		[FAR_U64] = 7,  [FAR_F16] = 8, [FAR_BF16] = 9, [FAR_F32] = 10, [FAR_F64] = 11};
	enum far_dtype low = rank[a] < rank[b] ? a : b;
	enum far_dtype high = rank[a] < rank[b] ? b : a;
	if (low == FAR_U8 && high == FAR_I8)
		return FAR_I16;
	if (high == FAR_U64 && rank[low] >= rank[FAR_I8] && low != FAR_U64)
		return FAR_F64;
	if (low == FAR_F16 && high == FAR_BF16)
		return FAR_F32;
	return high;
}

/* `dst`, `src`, `n`: parameters of elementwise_convert(). */
#define CONVERT(T, S, expr)                                                                                            \
	do {                                                                                                           \
		T *restrict d = dst;                                                                                   \
		const S *restrict s = src;                                                                             \
		for (size_t i = 0; i < n; i++)                                                                         \
			d[i] = (T)(expr);                                                                              \
	} while (0)

/* All targets of one source type; `expr` converts its element s[i]. Promotion never needs a narrower target. */
#define CONVERT_FROM(S, expr)                                                                                          \
	switch (to) {                                                                                                  \
	case FAR_F32:                                                                                                  \
		CONVERT(float, S, expr);                                                                               \
		return;                                                                                                \
	case FAR_F64:                                                                                                  \
		CONVERT(double, S, expr);                                                                              \
		return;                                                                                                \
	case FAR_I16:                                                                                                  \
		CONVERT(int16_t, S, expr);                                                                             \
		return;                                                                                                \
	case FAR_I32:                                                                                                  \
		CONVERT(int32_t, S, expr);                                                                             \
		return;                                                                                                \
	case FAR_I64:                                                                                                  \
		CONVERT(int64_t, S, expr);                                                                             \
		return;                                                                                                \
	case FAR_U64:                                                                                                  \
		CONVERT(uint64_t, S, expr);                                                                            \
		return;                                                                                                \
	case FAR_I8:                                                                                                   \
	case FAR_U8:                                                                                                   \
		CONVERT(uint8_t, S, expr); /* the same for both: only bool converts to these */                        \
		return;                                                                                                \
	case FAR_BF16:                                                                                                 \
	case FAR_F16:                                                                                                  \
		CONVERT(uint16_t, S, half_from_float(to, (float)(expr)));                                              \
		return;                                                                                                \
	case FAR_DTYPE_NONE:                                                                                           \
	case FAR_BOOL:                                                                                                 \
	case FAR_DTYPE_COUNT:                                                                                          \
		return;                                                                                                \
	}                                                                                                              \
	return

void elementwise_convert(enum far_dtype to, void *restrict dst, enum far_dtype from, const void *restrict src, size_t n)
{
	switch (from) {
	case FAR_BOOL:
		CONVERT_FROM(uint8_t, s[i] != 0);
	case FAR_U8:
		CONVERT_FROM(uint8_t, s[i]);
	case FAR_I8:
		CONVERT_FROM(int8_t, s[i]);
	case FAR_I16:
		CONVERT_FROM(int16_t, s[i]);
	case FAR_I32:
		CONVERT_FROM(int32_t, s[i]);
	case FAR_I64:
		CONVERT_FROM(int64_t, s[i]);
	case FAR_U64:
		CONVERT_FROM(uint64_t, s[i]);
	case FAR_F32: /* to f64, or to a half type */
		if (to == FAR_F64)
			CONVERT(double, float, s[i]);
		else
			CONVERT(uint16_t, float, half_from_float(to, s[i]));
		return;
	case FAR_BF16:
	case FAR_F16:
		if (to == FAR_F64)
			CONVERT(double, uint16_t, half_to_float(from, s[i]));
		else
			CONVERT(float, uint16_t, half_to_float(from, s[i]));
		return;
	case FAR_F64:
	case FAR_DTYPE_NONE:
	case FAR_DTYPE_COUNT:
		return;
	}
}
