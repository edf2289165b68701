/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Kernels over contiguous arrays, compiled once per instruction set. The functions run on any thread.
 *
 * Maps compute d[i] = f(x[i], y[i], z[i], p) for i in [0, n). `d` may be one of the inputs, but must not overlap them
 * otherwise. Maps, comparisons, conversions and sums return the same bits on every instruction set: multiplications and
 * additions are not contracted. Matrix products are, and differ by rounding.
 */
#ifndef FAR_LIBOPS_KERNELS_H
#define FAR_LIBOPS_KERNELS_H

#include <farcall/value.h>
#include <stdatomic.h>

/* Maps of f32 and f64: name, number of inputs, expression over x, y, z and p. M_*: functions of vector_math.h.
 * In derivatives x is the gradient of the result. */
#define OPS_FLOAT_MAPS(X)                                                                                              \
	X(NEG, 1, -x)                                                                                                  \
	X(RELU, 1, x <= 0 ? 0 : x)                                                                                     \
	X(SIGMOID, 1, M_SIGMOID(x))                                                                                    \
	X(TANH, 1, M_TANH(x))                                                                                          \
	X(EXP, 1, M_EXP(x))                                                                                            \
	X(LOG, 1, M_LOG(x))                                                                                            \
	X(SQRT, 1, M_SQRT(x))                                                                                          \
	X(SCALE, 1, x *p)                                                                                              \
	X(ADD, 2, x + y)                                                                                               \
	X(SUB, 2, x - y)                                                                                               \
	X(MUL, 2, x *y)                                                                                                \
	X(DIV, 2, x / y)                                                                                               \
	X(MIN, 2, x < y || x != x ? x : y)                                                                             \
	X(MAX, 2, x > y || x != x ? x : y)                                                                             \
	X(RELU_D, 2, y <= 0 ? 0 : x)                  /* y: input or result */                                         \
	X(SIGMOID_D, 2, x *y *(1 - y))                /* y: result */                                                  \
	X(TANH_D, 2, x *(1 - y * y))                  /* y: result */                                                  \
	X(SQRT_D, 2, x / (2 * y))                     /* y: result */                                                  \
	X(DIV_DB, 3, -x *(y / z) / z)                 /* y / z: the quotient */                                        \
	X(MIN_D, 3, y == z ? x / 2 : (y > z ? 0 : x)) /* of y; z: the other operand */                                 \
	X(MAX_D, 3, y == z ? x / 2 : (y < z ? 0 : x))                                                                  \
	X(EXP_DIFF, 2, M_EXP(x - y))                                                                                   \
	X(EXP_DIFF_SCALED, 2, M_EXP(x - y) * p)                                                                        \
	X(SOFTMAX, 3, M_EXP(x - y) / z)                                     /* y: maximum, z: sum */                   \
	X(LOG_SOFTMAX, 3, x - y - z)                                        /* y: maximum, z: logarithm of the sum */  \
	X(SOFTMAX_D, 3, y *(x - z))                                         /* y: result, z: sum of x * y */           \
	X(LOG_SOFTMAX_D, 3, x - M_EXP(y) * z)                               /* y: result, z: sum of x */               \
	X(BCE, 2, (x > 0 ? x : 0) - x * y + M_LOG1P(M_EXP(x < 0 ? x : -x))) /* x: logit, y: target */                  \
	X(BCE_D, 3, (M_SIGMOID(y) - z) * x * p)                             /* y: logit, z: target */                  \
	X(BCE_DT, 2, -y *x *p)                                              /* y: logit */                             \
	X(MSE, 2, (x - y) * (x - y))                                                                                   \
	X(MSE_D, 3, 2 * (y - z) * x * p)     /* of y */                                                                \
	X(GRU_BLEND, 3, (1 - x) * y + x * z) /* x: z gate, y: new, z: old state */

enum ops_map {
#define OPS_MAP_ENUM(name, inputs, expr) OPS_##name,
	OPS_FLOAT_MAPS(OPS_MAP_ENUM)
#undef OPS_MAP_ENUM
		OPS_MAPS
};

enum ops_compare { OPS_EQ, OPS_NE, OPS_LT, OPS_LE, OPS_GT, OPS_GE, OPS_COMPARES };

typedef void ops_map_kernel(void *d, const void *const *in, double p, size_t n);

/* A matrix product c = a · b, or c += a · b: c is m × n with unit stride along a row, a is m × k, b is k × n. */
struct ops_product {
	size_t m, n, k;
	const void *a, *b;
	void *c;
	ptrdiff_t a_row, a_column; /* strides, elements */
	ptrdiff_t b_row, b_column;
	ptrdiff_t c_row;
	bool accumulate;
};

struct ops_gemm {
	/** `work`: aligned to 64 bytes, as large as ops_gemm_work_bytes(). */
	void (*f32)(const struct ops_product *product, void *work);
	void (*f64)(const struct ops_product *product, void *work);
	size_t rows;         /* of the register tile */
	size_t column_bytes; /* of a row of the register tile */
};

/* Blocks of a matrix product: the packed part of b fits the second-level cache, that of a the first to second. */
#define OPS_GEMM_M 96
#define OPS_GEMM_K 256
#define OPS_GEMM_N 512

struct ops_kernels {
	const char *name;
	/* By map and dtype of the arithmetic; NULL: none. Integers have ADD, SUB, MUL, MIN, MAX; bool all but SUB. */
	ops_map_kernel *map[OPS_MAPS][FAR_DTYPE_COUNT];
	/* d is bool. */
	ops_map_kernel *compare[OPS_COMPARES][FAR_DTYPE_COUNT];
	void (*f32_from_bf16)(float *d, const uint16_t *s, size_t n);
	void (*f32_from_f16)(float *d, const uint16_t *s, size_t n);
	void (*bf16_from_f32)(uint16_t *d, const float *s, size_t n); /* to nearest, ties to even; NaN stays NaN */
	void (*f16_from_f32)(uint16_t *d, const float *s, size_t n);
	/* Sums in f64, in the same order on every instruction set. */
	double (*sum_f32)(const float *s, size_t n);
	double (*sum_f64)(const double *s, size_t n);
	void (*accumulate_f32)(double *d, const float *s, size_t n); /* d[i] += s[i] */
	void (*accumulate_f64)(double *d, const double *s, size_t n);
};

/* NULL before the first use. All threads store the same value, and what it points to is constant: relaxed. */
extern const struct ops_kernels *_Atomic ops_kernels_chosen;
const struct ops_kernels *ops_kernels_choose(void);

/** The kernels of the widest instruction set that this processor has, chosen once. */
static inline const struct ops_kernels *ops_kernels(void)
{
	const struct ops_kernels *kernels = atomic_load_explicit(&ops_kernels_chosen, memory_order_relaxed);
	return kernels ? kernels : ops_kernels_choose();
}
const struct ops_gemm *ops_gemm(void);

#endif
