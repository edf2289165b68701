/* SPDX-License-Identifier: BSD-3-Clause */
/** Conversions of 16 elements, which become vectors. Included by files that are compiled for each instruction set. The
 * thread that owns the table. */
#ifndef PST_VECTOR_H
#define PST_VECTOR_H

#include "pst_kernels.h"
#include <string.h>

#define LANES  16u
#define INLINE static inline __attribute__((always_inline))

INLINE float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

INLINE uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

/* A half without its sign, moved to the place of an f32, is 2^-112 times its value, subnormals too. */
INLINE float f16_to_float(uint16_t h)
{
	uint32_t shifted = (uint32_t)(h & 0x7fff) << 13;
	uint32_t finite = bits_of(float_of(shifted) * 0x1p112f);
	uint32_t special = shifted | 0x7f800000;
	uint32_t mask = -(uint32_t)((h & 0x7c00) == 0x7c00);
	return float_of((finite & ~mask) | (special & mask) | (uint32_t)(h & 0x8000) << 16);
}

/* Adding 0.5 to a number below 2^-14 leaves its multiple of 2^-24 in the last bits, rounded. */
INLINE uint16_t f16_of_float(float f)
{
	uint32_t bits = bits_of(f), x = bits & 0x7fffffff;
	uint32_t normal = (x - (UINT32_C(112) << 23) + 0xfff + (x >> 13 & 1)) >> 13;
	uint32_t subnormal = bits_of(float_of(x) + 0.5f) - 0x3f000000;
	uint32_t nan = 0x7e00 | (x >> 13 & 0x1ff);
	uint32_t is_small = -(uint32_t)(x < 0x38800000), is_large = -(uint32_t)(x >= 0x477ff000);
	uint32_t is_nan = -(uint32_t)(x > 0x7f800000);
	uint32_t h = (subnormal & is_small) | (normal & ~is_small);
	h = (h & ~is_large) | (0x7c00 & is_large);
	h = (h & ~is_nan) | (nan & is_nan);
	return (uint16_t)(h | (bits >> 16 & 0x8000));
}

INLINE uint16_t bf16_of_float(float f)
{
	uint32_t x = bits_of(f);
	uint32_t rounded = (x + 0x7fff + (x >> 16 & 1)) >> 16;
	uint32_t nan = x >> 16 | 0x40;
	uint32_t is_nan = -(uint32_t)((x & 0x7fffffff) > 0x7f800000);
	return (uint16_t)((rounded & ~is_nan) | (nan & is_nan));
}

/* Widens n <= LANES elements to LANES; those behind are 0. */
INLINE void load(enum pst_type type, float *restrict to, const void *restrict from, unsigned n, float scale)
{
	union {
		float f[LANES];
		uint16_t h[LANES];
		int8_t b[LANES];
	} in;
	if (n < LANES)
		memset(&in, 0, sizeof in);
	memcpy(&in, from, n * pst_type_bytes(type));
	for (unsigned j = 0; j < LANES; j++)
		switch (type) {
		case PST_F32:
			to[j] = in.f[j];
			break;
		case PST_BF16:
			to[j] = float_of((uint32_t)in.h[j] << 16);
			break;
		case PST_F16:
			to[j] = f16_to_float(in.h[j]);
			break;
		default:
			to[j] = (float)in.b[j] * scale;
			break;
		}
}

INLINE void store(enum pst_type type, void *restrict to, const float *restrict from, unsigned n)
{
	union {
		float f[LANES];
		uint16_t h[LANES];
	} out;
	for (unsigned j = 0; j < LANES; j++)
		switch (type) {
		case PST_F32:
			out.f[j] = from[j];
			break;
		case PST_BF16:
			out.h[j] = bf16_of_float(from[j]);
			break;
		default:
			out.h[j] = f16_of_float(from[j]);
			break;
		}
	memcpy(to, &out, n * pst_type_bytes(type));
}

#endif
