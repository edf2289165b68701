/* SPDX-License-Identifier: BSD-3-Clause */
/** Conversion of bf16 and f16 elements. Any thread. */
#include "value/half.h"

static float float_of(uint32_t bits)
{
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

static uint32_t bits_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits;
}

float half_to_float(enum far_dtype dtype, uint16_t half)
{
	if (dtype == FAR_BF16)
		return float_of((uint32_t)half << 16);
	uint32_t sign = (uint32_t)(half & 0x8000) << 16;
	uint32_t exponent = half >> 10 & 31;
	uint32_t fraction = half & 0x3ff;
	if (exponent == 31)
		return float_of(sign | 0x7f800000 | fraction << 13);
	if (exponent != 0)
		return float_of(sign | (exponent + 112) << 23 | fraction << 13);
	/* Subnormals: multiples of 2^-24, exact in f32. */
	float x = (float)fraction * 0x1p-24f;
	return float_of(bits_of(x) | sign);
}

/** x without its last `drop` bits, rounded to even. A carry out of the fraction increments the exponent. */
static uint32_t round_off(uint32_t x, unsigned drop)
{
	uint32_t last = x >> drop & 1;
	return (x + (UINT32_C(1) << (drop - 1)) - 1 + last) >> drop;
}

static uint16_t f16_from_float(uint32_t bits)
{
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
	uint32_t x = bits & 0x7fffffff;
	if (x > 0x7f800000) /* NaN, made quiet */
		return (uint16_t)(sign | 0x7e00 | (x >> 13 & 0x1ff));
	if (x >= 0x477ff000) /* from 65520, the tie between 65504 and 65536: infinity */
		return (uint16_t)(sign | 0x7c00);
	if (x >= 0x38800000) /* 2^-14, the smallest normal number */
		return (uint16_t)(sign | round_off(x - (UINT32_C(112) << 23), 13));
	if (x < 0x33000000) /* 2^-25 itself is a tie with 0, which is even */
		return sign;
	unsigned exponent = x >> 23;
	uint32_t fraction = (x & 0x7fffff) | 0x800000;
	return (uint16_t)(sign | round_off(fraction, 126 - exponent));
}

uint16_t half_from_float(enum far_dtype dtype, float x)
{
	uint32_t bits = bits_of(x);
	if (dtype == FAR_F16)
		return f16_from_float(bits);
	if ((bits & 0x7fffffff) > 0x7f800000)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)round_off(bits, 16);
}
