/* SPDX-License-Identifier: BSD-3-Clause */
/** Kernels: the same bits on every instruction set, errors of the functions, conversions of half types.
 * The test's thread. */
#include "dispatch.h"
#include "tensors.h"

#define N 1003 /* no multiple of a vector */

TestSuite(kernels, .fini = tensors_free);

/** Numbers of all magnitudes, and special ones. */
static double odd_number(size_t i)
{
	static const double special[] = {0.0,      -0.0,    INFINITY, -INFINITY, NAN,    1.0,   -1.0,   0x1p-149,
					 0x1p-126, 0x1p127, 88.8,     -103.9,    -104.5, 709.9, -745.2, 0x1p-1074};
	if (i % 7 == 0)
		return special[i / 7 % (sizeof special / sizeof special[0])];
	return i % 2 ? random_in(-5, 5) : ldexp(random_in(-1, 1), (int)(random_bits() % 300) - 150);
}

/** A NaN's bits may differ; all others may not. */
static bool same_bits(enum far_dtype dtype, const void *a, const void *b, size_t i)
{
	if (dtype == FAR_F64) {
		double x = ((const double *)a)[i], y = ((const double *)b)[i];
		return (x != x && y != y) || memcmp(&x, &y, sizeof x) == 0;
	}
	float x = ((const float *)a)[i], y = ((const float *)b)[i];
	return (x != x && y != y) || memcmp(&x, &y, sizeof x) == 0;
}

Test(kernels, every_instruction_set_returns_the_same_bits)
{
	static const char *const names[] = {
#define NAME(name, inputs, expr) #name,
		OPS_FLOAT_MAPS(NAME)
#undef NAME
	};
	static double in[3][N];
	static double expected[N], found[N];
	size_t compared = 0;
	for (size_t s = 1; s < ops_sets_n; s++) {
		if (!ops_sets[s].present()) {
			fprintf(stderr, "SKIP: this processor has no %s\n", ops_sets[s].kernels->name);
			continue;
		}
		const struct ops_kernels *base = ops_sets[0].kernels, *wide = ops_sets[s].kernels;
		for (int dtype = FAR_F32; dtype <= FAR_F64; dtype++) {
			for (size_t i = 0; i < N; i++)
				for (size_t k = 0; k < 3; k++)
					if (dtype == FAR_F64)
						in[k][i] = odd_number(i + k * 3);
					else
						((float *)in[k])[i] = (float)odd_number(i + k * 3);
			const void *from[3] = {in[0], in[1], in[2]};
			for (size_t map = 0; map < OPS_MAPS; map++) {
				base->map[map][dtype](expected, from, 0.3, N);
				wide->map[map][dtype](found, from, 0.3, N);
				for (size_t i = 0; i < N; i++)
					cr_assert(same_bits((enum far_dtype)dtype, expected, found, i),
						  "%s: %s of %s, element %zu", wide->name, names[map],
						  ops_dtype_name((enum far_dtype)dtype), i);
			}
			compared++;
		}
		for (size_t i = 0; i < N; i++)
			((float *)in[0])[i] = (float)random_in(-1, 1);
		cr_assert_eq(base->sum_f32((float *)in[0], N), wide->sum_f32((float *)in[0], N));
		cr_assert_eq(base->sum_f64(in[1], 5), wide->sum_f64(in[1], 5));
	}
	cr_assert(compared == 0 || compared >= 2);
}

/** Distance in units in the last place of `exact`. */
static double ulps(double x, long double exact, int bits, int exponent_min)
{
	int exponent;
	frexpl(exact, &exponent);
	exponent = exponent - bits > exponent_min ? exponent - bits : exponent_min;
	return (double)fabsl(((long double)x - exact) / ldexpl(1, exponent));
}

static long double sigmoidl(long double x)
{
	return 1 / (1 + expl(-x));
}

Test(kernels, functions_are_exact_to_a_few_units)
{
	static const struct {
		const char *name;
		enum ops_map map;
		long double (*exact)(long double x);
		double low, high;
	} functions[] = {{"exp", OPS_EXP, expl, -80, 80},
			 {"log", OPS_LOG, logl, 1e-30, 1e3},
			 {"log near 1", OPS_LOG, logl, 0.9, 1.1},
			 {"tanh", OPS_TANH, tanhl, -12, 12},
			 {"tanh near 0", OPS_TANH, tanhl, -1e-3, 1e-3},
			 {"sigmoid", OPS_SIGMOID, sigmoidl, -60, 60},
			 {"sqrt", OPS_SQRT, sqrtl, 0, 1e6}};
	static double in[N], out[N];
	for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++)
		for (int dtype = FAR_F32; dtype <= FAR_F64; dtype++) {
			const void *from = in;
			float *in_32 = (float *)in, *out_32 = (float *)out;
			for (size_t i = 0; i < N; i++)
				if (dtype == FAR_F64)
					in[i] = random_in(functions[f].low, functions[f].high);
				else
					in_32[i] = (float)random_in(functions[f].low, functions[f].high);
			ops_kernels()->map[functions[f].map][dtype](out, &from, 0, N);
			for (size_t i = 0; i < N; i++) {
				long double x = dtype == FAR_F64 ? in[i] : (long double)in_32[i];
				double y = dtype == FAR_F64 ? out[i] : (double)out_32[i];
				double error = ulps(y, functions[f].exact(x), dtype == FAR_F64 ? 53 : 24,
						    dtype == FAR_F64 ? -1074 : -149);
				cr_assert_leq(error, 4, "%s(%.17Lg) of %s is %.17g: %g units", functions[f].name, x,
					      ops_dtype_name((enum far_dtype)dtype), y, error);
			}
		}
}

static double apply(enum ops_map map, enum far_dtype dtype, double x)
{
	double in = x, out;
	float in_32 = (float)x, out_32;
	const void *from = dtype == FAR_F64 ? (const void *)&in : (const void *)&in_32;
	ops_kernels()->map[map][dtype](dtype == FAR_F64 ? (void *)&out : (void *)&out_32, &from, 0, 1);
	return dtype == FAR_F64 ? out : (double)out_32;
}

Test(kernels, special_numbers)
{
	for (int d = FAR_F32; d <= FAR_F64; d++) {
		enum far_dtype dtype = (enum far_dtype)d;
		cr_assert_eq(apply(OPS_EXP, dtype, -INFINITY), 0);
		cr_assert_eq(apply(OPS_EXP, dtype, INFINITY), INFINITY);
		cr_assert_eq(apply(OPS_EXP, dtype, 1000), INFINITY);
		cr_assert_eq(apply(OPS_EXP, dtype, -1000), 0);
		cr_assert_eq(apply(OPS_EXP, dtype, 0), 1);
		cr_assert(isnan(apply(OPS_EXP, dtype, NAN)));
		cr_assert_eq(apply(OPS_LOG, dtype, 0), -INFINITY);
		cr_assert_eq(apply(OPS_LOG, dtype, INFINITY), INFINITY);
		cr_assert_eq(apply(OPS_LOG, dtype, 1), 0);
		cr_assert(isnan(apply(OPS_LOG, dtype, -1)));
		cr_assert(isnan(apply(OPS_LOG, dtype, NAN)));
		cr_assert_eq(apply(OPS_TANH, dtype, INFINITY), 1);
		cr_assert_eq(apply(OPS_TANH, dtype, -INFINITY), -1);
		cr_assert(isnan(apply(OPS_TANH, dtype, NAN)));
		cr_assert(signbit(apply(OPS_TANH, dtype, -0.0)));
		cr_assert_eq(apply(OPS_SIGMOID, dtype, INFINITY), 1);
		cr_assert_eq(apply(OPS_SIGMOID, dtype, -INFINITY), 0);
		cr_assert(isnan(apply(OPS_SIGMOID, dtype, NAN)));
		cr_assert(isnan(apply(OPS_RELU, dtype, NAN)));
		cr_assert_eq(apply(OPS_RELU, dtype, -3), 0);
	}
	/* Subnormal numbers. */
	cr_assert(near(apply(OPS_LOG, FAR_F64, 0x1p-1074), -1074 * log(2), 1e-15));
	cr_assert(near(apply(OPS_LOG, FAR_F32, 0x1p-149), -149 * log(2), 1e-7));
	cr_assert_eq(apply(OPS_EXP, FAR_F64, -1074 * log(2)), 0x1p-1074);
}

Test(kernels, half_types)
{
	for (size_t s = 0; s < ops_sets_n; s++) {
		const struct ops_kernels *k = ops_sets[s].kernels;
		if (!ops_sets[s].present())
			continue;
		for (int half = FAR_BF16; half <= FAR_F16; half++) {
			enum far_dtype dtype = (enum far_dtype)half;
			for (unsigned bits = 0; bits < 65536; bits++) {
				uint16_t h = (uint16_t)bits, back;
				float f;
				(dtype == FAR_BF16 ? k->f32_from_bf16 : k->f32_from_f16)(&f, &h, 1);
				double exact = half_value(dtype, h);
				cr_assert(isnan(exact) ? isnan(f)
						       : (double)f == exact && !signbit(f) == !signbit(exact),
					  "%s %04x is %g", ops_dtype_name(dtype), bits, (double)f);
				(dtype == FAR_BF16 ? k->bf16_from_f32 : k->f16_from_f32)(&back, &f, 1);
				cr_assert(isnan(exact) ? isnan(half_value(dtype, back)) : back == h,
					  "%s %04x returns as %04x", ops_dtype_name(dtype), bits, back);
			}
			for (unsigned i = 0; i < 40000; i++) {
				/* Any bits; then numbers half way between two. */
				uint32_t bits = (uint32_t)random_bits();
				if (i % 2)
					bits = dtype == FAR_BF16 ? (bits & ~0xffffu) | 0x8000
								 : (bits & ~0x1fffu) | 0x1000;
				float f;
				uint16_t h;
				memcpy(&f, &bits, sizeof f);
				(dtype == FAR_BF16 ? k->bf16_from_f32 : k->f16_from_f32)(&h, &f, 1);
				uint16_t exact = half_bits(dtype, (double)f);
				cr_assert(isnan(f) ? isnan(half_value(dtype, h)) : h == exact,
					  "%s: %a is %04x, not %04x", ops_dtype_name(dtype), (double)f, h, exact);
			}
		}
	}
}
