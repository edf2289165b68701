/* SPDX-License-Identifier: BSD-3-Clause */
/** Tensors of the tests of libfarcall-ops: random, dense or views, in memory of exactly their size.
 * The test's thread. */
#ifndef FAR_TESTS_LIBOPS_TENSORS_H
#define FAR_TESTS_LIBOPS_TENSORS_H

#include <criterion/criterion.h>
#include <farcall/ops.h>
#include <math.h>
#include <stdlib.h>

#include "tensor.h"

#define MEMORY_MAX 65536

static void *memory[MEMORY_MAX];
static size_t memory_n;
static int64_t strides_pool[4096][FAR_DIMS_MAX];
static size_t strides_n;
static uint64_t random_state = 0x9e3779b97f4a7c15u;

__attribute__((unused)) static uint64_t random_bits(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

__attribute__((unused)) static double random_in(double low, double high)
{
	return low + (high - low) * ((double)(random_bits() >> 11) * 0x1p-53);
}

__attribute__((unused)) static void *take(size_t bytes)
{
	cr_assert_lt(memory_n, MEMORY_MAX);
	void *p = malloc(bytes ? bytes : 1);
	cr_assert_not_null(p);
	memory[memory_n++] = p;
	return p;
}

__attribute__((unused)) static void tensors_free(void)
{
	while (memory_n > 0)
		free(memory[--memory_n]);
	strides_n = 0;
}

/** Gives memory to a tensor that an operator's question has shaped. */
__attribute__((unused)) static void allocate(struct far_tensor *t)
{
	t->data = take(ops_count(t) * ops_size((enum far_dtype)t->dtype));
}

__attribute__((unused)) static struct far_tensor tensor(enum far_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct far_tensor t = ops_dense(dtype, NULL, ndim, shape);
	allocate(&t);
	return t;
}

/* A tensor of the given dimensions: T(FAR_F64, 2, 3). */
#define T(dtype, ...)                                                                                                  \
	tensor(dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (const uint64_t[]){__VA_ARGS__})
#define SCALAR(dtype) tensor(dtype, 0, NULL)

/** A view of this shape: axes stored in the reverse order, a step of 2, and the first axis backwards. */
__attribute__((unused)) static struct far_tensor view(enum far_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct far_tensor t = ops_dense(dtype, NULL, ndim, shape);
	int64_t *strides = strides_pool[strides_n++ % 4096];
	int64_t stride = 2;
	for (unsigned k = 0; k < ndim; k++) {
		strides[k] = stride;
		stride *= (int64_t)shape[k];
	}
	if (ops_count(&t) == 0)
		return t;
	char *data = take((size_t)(stride > 2 ? stride : 2) * ops_size(dtype));
	t.data = data;
	t.strides = strides;
	if (ndim > 0 && shape[0] > 1) {
		t.data = data + (int64_t)(shape[0] - 1) * strides[0] * (int64_t)ops_size(dtype);
		strides[0] = -strides[0];
	}
	return t;
}

/** Memory of element `i` in row-major order. */
__attribute__((unused)) static void *element(const struct far_tensor *t, uint64_t i)
{
	int64_t at = 0;
	for (unsigned k = t->ndim; k-- > 0; i /= t->shape[k])
		at += (int64_t)(i % t->shape[k]) * ops_stride(t, k);
	return (char *)t->data + at * (int64_t)ops_size((enum far_dtype)t->dtype);
}

__attribute__((unused)) static double half_value(enum far_dtype dtype, uint16_t bits)
{
	if (dtype == FAR_BF16) {
		uint32_t u = (uint32_t)bits << 16;
		float f;
		memcpy(&f, &u, sizeof f);
		return (double)f;
	}
	int exponent = bits >> 10 & 31;
	double fraction = bits & 1023;
	double x = exponent == 31 ? (fraction > 0 ? NAN : INFINITY)
		   : exponent     ? ldexp(1024 + fraction, exponent - 25)
				  : ldexp(fraction, -24);
	return bits >> 15 ? -x : x;
}

__attribute__((unused)) static double get(const struct far_tensor *t, uint64_t i)
{
	const void *p = element(t, i);
	switch (t->dtype) {
	case FAR_F32:
		return (double)*(const float *)p;
	case FAR_F64:
		return *(const double *)p;
	case FAR_I8:
		return *(const int8_t *)p;
	case FAR_I16:
		return *(const int16_t *)p;
	case FAR_I32:
		return *(const int32_t *)p;
	case FAR_I64:
		return (double)*(const int64_t *)p;
	case FAR_U8:
	case FAR_BOOL:
		return *(const uint8_t *)p;
	case FAR_U64:
		return (double)*(const uint64_t *)p;
	default:
		return half_value((enum far_dtype)t->dtype, *(const uint16_t *)p);
	}
}

/** The nearest bf16 or f16, by trying the two beside it: slow, and independent of the library. */
__attribute__((unused)) static uint16_t half_bits(enum far_dtype dtype, double x)
{
	uint16_t low = 0;
	uint16_t high = dtype == FAR_BF16 ? 0x7f80 : 0x7c00;
	uint16_t infinite = high;
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double magnitude = fabs(x);
	if (x != x)
		return (uint16_t)(infinite | 0x40 | (dtype == FAR_F16 ? 0x200 : 0));
	while (high - low > 1) {
		uint16_t middle = (uint16_t)((high + low) / 2);
		if (half_value(dtype, middle) <= magnitude)
			low = middle;
		else
			high = middle;
	}
	double below = half_value(dtype, low);
	double above = high == infinite ? 2 * half_value(dtype, (uint16_t)(infinite - 1)) -
						  half_value(dtype, (uint16_t)(infinite - 2))
					: half_value(dtype, high);
	bool up = magnitude - below > above - magnitude || (magnitude - below == above - magnitude && (low & 1));
	return (uint16_t)(sign | (up ? high : low));
}

__attribute__((unused)) static void set(const struct far_tensor *t, uint64_t i, double x)
{
	void *p = element(t, i);
	switch (t->dtype) {
	case FAR_F32:
		*(float *)p = (float)x;
		break;
	case FAR_F64:
		*(double *)p = x;
		break;
	case FAR_I8:
		*(int8_t *)p = (int8_t)x;
		break;
	case FAR_I16:
		*(int16_t *)p = (int16_t)x;
		break;
	case FAR_I32:
		*(int32_t *)p = (int32_t)x;
		break;
	case FAR_I64:
		*(int64_t *)p = (int64_t)x;
		break;
	case FAR_U8:
	case FAR_BOOL:
		*(uint8_t *)p = (uint8_t)x;
		break;
	case FAR_U64:
		*(uint64_t *)p = (uint64_t)x;
		break;
	default:
		*(uint16_t *)p = half_bits((enum far_dtype)t->dtype, x);
	}
}

__attribute__((unused)) static void fill(const struct far_tensor *t, double low, double high)
{
	for (uint64_t i = 0; i < ops_count(t); i++)
		set(t, i, random_in(low, high));
}

/** A random shape of `ndim` dimensions of [1, most]. */
__attribute__((unused)) static void random_shape(unsigned ndim, uint64_t most, uint64_t *shape)
{
	for (unsigned k = 0; k < ndim; k++)
		shape[k] = 1 + random_bits() % most;
}

/** A random tensor, dense or a view. */
__attribute__((unused)) static struct far_tensor random_tensor(enum far_dtype dtype, unsigned ndim,
							       const uint64_t *shape, double low, double high)
{
	struct far_tensor t = random_bits() % 2 ? tensor(dtype, ndim, shape) : view(dtype, ndim, shape);
	fill(&t, low, high);
	return t;
}

/* The call succeeds. `err` is in scope. */
#define OK(call)                                                                                                       \
	do {                                                                                                           \
		struct far_err err = {0};                                                                              \
		enum far_status status = (call);                                                                       \
		cr_assert_eq(status, FAR_OK, "%s: %s", #call, err.text);                                               \
	} while (0)

/* What follows a workspace, and must not change. */
#define GUARD 8192

__attribute__((unused)) static struct far_op_work work_of(size_t bytes)
{
	struct far_op_work work = {malloc(bytes + GUARD), bytes};
	cr_assert_not_null(work.data);
	memset(work.data, 0xff, bytes + GUARD);
	return work;
}

__attribute__((unused)) static void work_end(struct far_op_work *work)
{
	const unsigned char *guard = (unsigned char *)work->data + work->bytes;
	for (size_t i = 0; i < GUARD; i++)
		cr_assert_eq(guard[i], 0xff, "byte %zu after the workspace was written", i);
	free(work->data);
}

/* Likewise with a workspace `work` of the requested size; only the request for it if `question`. */
#define WITH_WORK(question, call)                                                                                      \
	do {                                                                                                           \
		struct far_op_work work = {0};                                                                         \
		bool only = question;                                                                                  \
		OK(call);                                                                                              \
		cr_assert_geq(work.bytes, 64);                                                                         \
		if (only)                                                                                              \
			break;                                                                                         \
		work = work_of(work.bytes);                                                                            \
		OK(call);                                                                                              \
		work_end(&work);                                                                                       \
	} while (0)

__attribute__((unused)) static const enum far_dtype floats[] = {FAR_F32, FAR_F64, FAR_BF16, FAR_F16};

__attribute__((unused)) static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* Relative error of results computed in this dtype. */
__attribute__((unused)) static double tolerance(enum far_dtype dtype)
{
	return dtype == FAR_F64 ? 1e-13 : dtype == FAR_F32 ? 3e-6 : dtype == FAR_BF16 ? 0x1p-8 : 0x1p-11;
}

__attribute__((unused)) static bool near(double a, double b, double relative)
{
	return a == b || (a != a && b != b) || fabs(a - b) <= relative * (1 + fabs(b));
}

#endif
