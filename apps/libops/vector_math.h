/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * exp, log, tanh, sigmoid of f32 and f64 without branches and calls, so that loops over them vectorise. Any thread.
 *
 * Built of IEEE additions, multiplications and divisions alone: every machine returns the same bits. Errors stay below
 * 4 units in the last place. Reduction and coefficients of log: FreeBSD's e_log.c and e_logf.c.
 */
#ifndef FAR_LIBOPS_VECTOR_MATH_H
#define FAR_LIBOPS_VECTOR_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_f32(float x)
{
	uint32_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static inline float f32_of_bits(uint32_t u)
{
	float x;
	memcpy(&x, &u, sizeof x);
	return x;
}

static inline uint64_t bits_f64(double x)
{
	uint64_t u;
	memcpy(&u, &x, sizeof u);
	return u;
}

static inline double f64_of_bits(uint64_t u)
{
	double x;
	memcpy(&x, &u, sizeof x);
	return x;
}

/* Adding it rounds to an integer, which the low bits of the sum then hold. */
#define ROUND_F32 12582912.0f
#define ROUND_F64 6755399441055744.0

/* 2^k for an integral k in [-126, 127] or [-1022, 1023]. */
static inline float power_f32(float k)
{
	return f32_of_bits((bits_f32(k + ROUND_F32) - bits_f32(ROUND_F32) + 127u) << 23);
}

static inline double power_f64(double k)
{
	return f64_of_bits((bits_f64(k + ROUND_F64) - bits_f64(ROUND_F64) + 1023u) << 52);
}

/* exp(r) - 1 for |r| <= ln(2) / 2. Cephes' expf for f32, the Taylor series for f64. */
static inline float expm1_reduced_f32(float r)
{
	float p = 1.9875691500E-4f;
	p = p * r + 1.3981999507E-3f;
	p = p * r + 8.3334519073E-3f;
	p = p * r + 4.1665795894E-2f;
	p = p * r + 1.6666665459E-1f;
	p = p * r + 5.0000001201E-1f;
	return r + r * r * p;
}

static inline double expm1_reduced_f64(double r)
{
	double p = 1.0 / 6227020800.0;
	p = p * r + 1.0 / 479001600.0;
	p = p * r + 1.0 / 39916800.0;
	p = p * r + 1.0 / 3628800.0;
	p = p * r + 1.0 / 362880.0;
	p = p * r + 1.0 / 40320.0;
	p = p * r + 1.0 / 5040.0;
	p = p * r + 1.0 / 720.0;
	p = p * r + 1.0 / 120.0;
	p = p * r + 1.0 / 24.0;
	p = p * r + 1.0 / 6.0;
	p = p * r + 0.5;
	return r + r * r * p;
}

/* x = k ln(2) + r. */
static inline float reduce_f32(float x, float *k)
{
	*k = (x * 1.44269504088896341f + ROUND_F32) - ROUND_F32;
	return (x - *k * 0.693359375f) - *k * -2.12194440e-4f;
}

static inline double reduce_f64(double x, double *k)
{
	*k = (x * 1.4426950408889634074 + ROUND_F64) - ROUND_F64;
	return (x - *k * 6.93147180369123816490e-01) - *k * 1.90821492927058770002e-10;
}

/* 2^k by two factors: k is beyond the exponents of one for the largest and the subnormal results. */
static inline float exp_f32(float x)
{
	float k;
	x = x < -105 ? -105 : x;
	x = x > 89 ? 89 : x;
	float e = 1 + expm1_reduced_f32(reduce_f32(x, &k));
	float half = (k * 0.5f + ROUND_F32) - ROUND_F32;
	return e * power_f32(half) * power_f32(k - half);
}

static inline double exp_f64(double x)
{
	double k;
	x = x < -747 ? -747 : x;
	x = x > 710 ? 710 : x;
	double e = 1 + expm1_reduced_f64(reduce_f64(x, &k));
	double half = (k * 0.5 + ROUND_F64) - ROUND_F64;
	return e * power_f64(half) * power_f64(k - half);
}

/* tanh(|x|) = t / (t + 2) with t = exp(2 |x|) - 1. */
static inline float tanh_f32(float x)
{
	float k;
	float y = 2 * f32_of_bits(bits_f32(x) & 0x7fffffffu);
	y = y > 40 ? 40 : y;
	float m = expm1_reduced_f32(reduce_f32(y, &k));
	float power = power_f32(k);
	float t = power * m + (power - 1);
	return f32_of_bits(bits_f32(t / (t + 2)) | (bits_f32(x) & 0x80000000u));
}

static inline double tanh_f64(double x)
{
	double k;
	double y = 2 * f64_of_bits(bits_f64(x) & 0x7fffffffffffffffu);
	y = y > 40 ? 40 : y;
	double m = expm1_reduced_f64(reduce_f64(y, &k));
	double power = power_f64(k);
	double t = power * m + (power - 1);
	return f64_of_bits(bits_f64(t / (t + 2)) | (bits_f64(x) & 0x8000000000000000u));
}

static inline float sigmoid_f32(float x)
{
	float e = exp_f32(x < 0 ? x : -x);
	return (x < 0 ? e : 1) / (1 + e);
}

static inline double sigmoid_f64(double x)
{
	double e = exp_f64(x < 0 ? x : -x);
	return (x < 0 ? e : 1) / (1 + e);
}

static inline float log_f32(float x)
{
	float scaled = x < 1.17549435e-38f ? x * 33554432.0f : x; /* subnormal: 2^25 */
	float bias = x < 1.17549435e-38f ? 25.0f : 0.0f;
	uint32_t u = bits_f32(scaled) + (0x3f800000u - 0x3f3504f3u);
	float k = f32_of_bits(0x4b000000u | (u >> 23)) - (8388608.0f + 127.0f) - bias;
	float f = f32_of_bits((u & 0x007fffffu) + 0x3f3504f3u) - 1;
	float s = f / (2 + f);
	float z = s * s;
	float w = z * z;
	float r = z * (0.66666662693f + w * 0.28498786688f) + w * (0.40000972152f + w * 0.24279078841f);
	float h = 0.5f * f * f;
	float l = k * 6.9313812256e-01f - ((h - (s * (h + r) + k * 9.0580006145e-06f)) - f);
	l = x == HUGE_VALF ? x : l;
	l = x == 0 ? -HUGE_VALF : l;
	return x >= 0 ? l : f32_of_bits(0x7fc00000u);
}

static inline double log_f64(double x)
{
	double scaled = x < 2.2250738585072014e-308 ? x * 18014398509481984.0 : x; /* subnormal: 2^54 */
	double bias = x < 2.2250738585072014e-308 ? 54.0 : 0.0;
	uint64_t u = bits_f64(scaled) + ((0x3ff00000ull - 0x3fe6a09eull) << 32);
	double k = f64_of_bits(0x4330000000000000ull | (u >> 52)) - (4503599627370496.0 + 1023.0) - bias;
	double f = f64_of_bits((u & 0x000fffffffffffffull) + (0x3fe6a09eull << 32)) - 1;
	double s = f / (2 + f);
	double z = s * s;
	double w = z * z;
	double odd =
		z * (6.666666666666735130e-01 +
		     w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860511658591e-01)));
	double even = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
	double h = 0.5 * f * f;
	double l = k * 6.93147180369123816490e-01 - ((h - (s * (h + odd + even) + k * 1.90821492927058770002e-10)) - f);
	l = x == HUGE_VAL ? x : l;
	l = x == 0 ? -HUGE_VAL : l;
	return x >= 0 ? l : f64_of_bits(0x7ff8000000000000ull);
}

/* log(1 + x) for x in [0, 1]. The second term is what 1 + x lost. */
static inline float log1p_f32(float x)
{
	float u = 1 + x;
	return log_f32(u) + (x - (u - 1)) / u;
}

static inline double log1p_f64(double x)
{
	double u = 1 + x;
	return log_f64(u) + (x - (u - 1)) / u;
}

/* cos and sin of 2 pi u for u in [0, 1). Taylor series on a quarter turn around each multiple of it. */
static inline void turn_f64(double u, double *cosine, double *sine)
{
	double quarter = (4 * u + ROUND_F64) - ROUND_F64;
	double r = (u - quarter * 0.25) * 6.283185307179586477;
	double z = r * r;
	double s = -1.0 / 1307674368000.0;
	s = s * z + 1.0 / 6227020800.0;
	s = s * z - 1.0 / 39916800.0;
	s = s * z + 1.0 / 362880.0;
	s = s * z - 1.0 / 5040.0;
	s = s * z + 1.0 / 120.0;
	s = s * z - 1.0 / 6.0;
	s = r + r * z * s;
	double c = 1.0 / 20922789888000.0;
	c = c * z - 1.0 / 87178291200.0;
	c = c * z + 1.0 / 479001600.0;
	c = c * z - 1.0 / 3628800.0;
	c = c * z + 1.0 / 40320.0;
	c = c * z - 1.0 / 720.0;
	c = c * z + 1.0 / 24.0;
	c = 1 - 0.5 * z + z * z * c;
	int q = (int)quarter & 3;
	*cosine = q == 0 ? c : q == 1 ? -s : q == 2 ? -c : s;
	*sine = q == 0 ? s : q == 1 ? c : q == 2 ? -s : -c;
}

#endif
