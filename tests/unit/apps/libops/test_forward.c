/* SPDX-License-Identifier: BSD-3-Clause */
/** Results of libfarcall-ops against naive loops in f64, for each dtype, over views and broadcasts.
 * The test's thread. */
#include "tensors.h"

static void begin(void)
{
	setenv("FAR_OPS_BLAS", "none", 1); /* test_matmul compares it with the library's own loops */
}

TestSuite(forward, .init = begin, .fini = tensors_free);

static const enum far_dtype integers[] = {FAR_I8, FAR_I16, FAR_I32, FAR_I64, FAR_U8, FAR_U64};

/** Element of `t` where it is broadcast to the shape of `out`. */
static uint64_t broadcast_at(const struct far_tensor *t, const struct far_tensor *out, uint64_t i)
{
	uint64_t at = 0, scale = 1;
	for (unsigned k = out->ndim; k-- > 0; i /= out->shape[k]) {
		unsigned from_end = out->ndim - k;
		if (from_end > t->ndim)
			continue;
		uint64_t size = t->shape[t->ndim - from_end];
		at += size == 1 ? 0 : i % out->shape[k] * scale;
		scale *= size;
	}
	return at;
}

typedef enum far_status binary(const struct far_tensor *a, const struct far_tensor *b, struct far_tensor *out,
			       struct far_err *err);
typedef enum far_status unary(const struct far_tensor *x, struct far_tensor *out, struct far_err *err);

static const struct {
	const char *name;
	binary *f;
	char kind;
} operators[] = {{"add", far_op_add, '+'}, {"sub", far_op_sub, '-'}, {"mul", far_op_mul, '*'}, {"div", far_op_div, '/'},
		 {"min", far_op_min, 'm'}, {"max", far_op_max, 'M'}, {"eq", far_op_eq, '='},   {"ne", far_op_ne, '!'},
		 {"lt", far_op_lt, '<'},   {"le", far_op_le, 'l'},   {"gt", far_op_gt, '>'},   {"ge", far_op_ge, 'g'}};

static double naive(char kind, double a, double b)
{
	switch (kind) {
	case '+':
		return a + b;
	case '-':
		return a - b;
	case '*':
		return a * b;
	case '/':
		return a / b;
	case 'm':
		return a < b ? a : b;
	case 'M':
		return a > b ? a : b;
	case '=':
		return a == b;
	case '!':
		return a != b;
	case '<':
		return a < b;
	case 'l':
		return a <= b;
	case '>':
		return a > b;
	default:
		return a >= b;
	}
}

static const struct {
	unsigned na, nb;
	uint64_t a[4], b[4];
} pairs[] = {{2, 2, {3, 4}, {3, 4}},
	     {2, 1, {3, 4}, {4}},
	     {3, 2, {2, 1, 3}, {4, 1}},
	     {0, 1, {0}, {5}},
	     {0, 0, {0}, {0}},
	     {2, 1, {0, 3}, {3}},
	     {1, 1, {1000}, {1}},
	     {2, 1, {5, 300}, {300}},
	     {2, 2, {300, 5}, {300, 1}},
	     {2, 2, {1, 300}, {5, 1}},
	     {4, 3, {2, 3, 1, 2}, {3, 4, 1}}};

static void check_pair(size_t o, size_t k, enum far_dtype dtype, double low, double high)
{
	struct far_tensor a = random_tensor(dtype, pairs[k].na, pairs[k].a, low, high);
	struct far_tensor b = random_tensor(dtype, pairs[k].nb, pairs[k].b, low, high);
	struct far_tensor out = {0};
	OK(operators[o].f(&a, &b, &out, &err));
	allocate(&out);
	OK(operators[o].f(&a, &b, &out, &err));
	for (uint64_t i = 0; i < ops_count(&out); i++) {
		double x = get(&a, broadcast_at(&a, &out, i)), y = get(&b, broadcast_at(&b, &out, i));
		double exact = naive(operators[o].kind, x, y);
		if (exact < 0 && (dtype == FAR_U8 || dtype == FAR_U64))
			exact += dtype == FAR_U8 ? 0x1p8 : 0x1p64;
		cr_assert(near(get(&out, i), exact, tolerance(dtype)), "%s %s: %g and %g give %g (element %zu)",
			  operators[o].name, ops_dtype_name(dtype), x, y, get(&out, i), (size_t)i);
	}
}

Test(forward, two_operands)
{
	for (size_t o = 0; o < sizeof operators / sizeof operators[0]; o++)
		for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
			for (size_t d = 0; d < 4; d++)
				check_pair(o, k, floats[d], operators[o].kind == '/' ? 0.5 : -3, 3);
			for (size_t d = 0; d < 6 && operators[o].kind != '/'; d++)
				check_pair(o, k, integers[d], 0, 11);
		}
}

Test(forward, integers_wrap)
{
	struct far_tensor a = T(FAR_I8, 3), b = T(FAR_I8, 3), c = T(FAR_U64, 1), d = T(FAR_U64, 1), e = T(FAR_I32, 2);
	memcpy(a.data, (const int8_t[]){127, -128, 100}, 3);
	memcpy(b.data, (const int8_t[]){1, -1, 3}, 3);
	OK(far_op_add(&a, &b, &a, &err));
	cr_assert_eq(memcmp(a.data, (const int8_t[]){-128, 127, 103}, 3), 0);
	OK(far_op_mul(&a, &b, &a, &err));
	cr_assert_eq(memcmp(a.data, (const int8_t[]){-128, -127, 53}, 3), 0);
	set(&c, 0, 0);
	set(&d, 0, 1);
	OK(far_op_sub(&c, &d, &c, &err));
	cr_assert_eq(*(uint64_t *)c.data, UINT64_MAX);
	memcpy(e.data, (const int32_t[]){INT32_MIN, 5}, 8);
	OK(far_op_neg(&e, &e, &err));
	cr_assert_eq(memcmp(e.data, (const int32_t[]){INT32_MIN, -5}, 8), 0);
}

Test(forward, bools)
{
	struct far_tensor a = T(FAR_BOOL, 4), b = T(FAR_BOOL, 4), out = T(FAR_BOOL, 4);
	memcpy(a.data, (const uint8_t[]){0, 0, 1, 7}, 4); /* any byte but 0 is true */
	memcpy(b.data, (const uint8_t[]){0, 1, 0, 2}, 4);
	OK(far_op_add(&a, &b, &out, &err));
	cr_assert_eq(memcmp(out.data, (const uint8_t[]){0, 1, 1, 1}, 4), 0);
	OK(far_op_mul(&a, &b, &out, &err));
	cr_assert_eq(memcmp(out.data, (const uint8_t[]){0, 0, 0, 1}, 4), 0);
	OK(far_op_eq(&a, &b, &out, &err));
	cr_assert_eq(memcmp(out.data, (const uint8_t[]){1, 0, 0, 1}, 4), 0);
	OK(far_op_lt(&a, &b, &out, &err));
	cr_assert_eq(memcmp(out.data, (const uint8_t[]){0, 1, 0, 0}, 4), 0);
}

Test(forward, nan)
{
	struct far_tensor a = T(FAR_F32, 2), b = T(FAR_F32, 2), out = T(FAR_F32, 2), truth = T(FAR_BOOL, 2);
	memcpy(a.data, (const float[]){NAN, 1}, 8);
	memcpy(b.data, (const float[]){1, NAN}, 8);
	binary *const both[2] = {far_op_min, far_op_max};
	for (int k = 0; k < 2; k++) {
		OK(both[k](&a, &b, &out, &err));
		cr_assert(isnan(get(&out, 0)) && isnan(get(&out, 1)));
	}
	OK(far_op_ne(&a, &b, &truth, &err));
	cr_assert(get(&truth, 0) == 1 && get(&truth, 1) == 1);
	OK(far_op_ge(&a, &b, &truth, &err));
	cr_assert(get(&truth, 0) == 0 && get(&truth, 1) == 0);
}

static double relu(double x)
{
	return x > 0 ? x : 0;
}

static double negative(double x)
{
	return -x;
}

Test(forward, one_operand)
{
	static const struct {
		const char *name;
		unary *f;
		double (*exact)(double x);
		double low, high;
	} functions[] = {{"neg", far_op_neg, negative, -3, 3},
			 {"relu", far_op_relu, relu, -3, 3},
			 {"sigmoid", far_op_sigmoid, sigmoid, -6, 6},
			 {"tanh", far_op_tanh, tanh, -3, 3},
			 {"exp", far_op_exp, exp, -3, 3},
			 {"log", far_op_log, log, 0.1, 9},
			 {"sqrt", far_op_sqrt, sqrt, 0, 9}};
	for (size_t f = 0; f < sizeof functions / sizeof functions[0]; f++)
		for (size_t d = 0; d < 4; d++)
			for (unsigned ndim = 0; ndim <= FAR_DIMS_MAX; ndim++) {
				uint64_t shape[FAR_DIMS_MAX];
				random_shape(ndim, ndim == 1 ? 600 : ndim < 4 ? 12 : 3, shape);
				struct far_tensor x =
					random_tensor(floats[d], ndim, shape, functions[f].low, functions[f].high);
				struct far_tensor out = {0};
				OK(functions[f].f(&x, &out, &err));
				allocate(&out);
				OK(functions[f].f(&x, &out, &err));
				for (uint64_t i = 0; i < ops_count(&out); i++)
					cr_assert(near(get(&out, i), functions[f].exact(get(&x, i)),
						       tolerance(floats[d])),
						  "%s %s of %g is %g", functions[f].name, ops_dtype_name(floats[d]),
						  get(&x, i), get(&out, i));
			}
}

Test(forward, in_place)
{
	for (size_t d = 0; d < 4; d++) {
		struct far_tensor x = T(floats[d], 7, 100), y = T(floats[d], 7, 100), expected = T(floats[d], 7, 100);
		fill(&x, -1, 1);
		fill(&y, -1, 1);
		OK(far_op_mul(&x, &y, &expected, &err));
		OK(far_op_mul(&x, &y, &x, &err));
		cr_assert_eq(memcmp(x.data, expected.data, 700 * ops_size(floats[d])), 0);
		OK(far_op_add(&y, &y, &expected, &err));
		OK(far_op_add(&y, &y, &y, &err));
		cr_assert_eq(memcmp(y.data, expected.data, 700 * ops_size(floats[d])), 0);
	}
}

/* ---- reductions ---- */

/** Element of the result to which element `i` of `x` belongs. */
static uint64_t reduced_at(const struct far_tensor *x, unsigned dims, uint64_t i)
{
	uint64_t at = 0, scale = 1;
	for (unsigned k = x->ndim; k-- > 0; i /= x->shape[k])
		if (!(dims & 1u << k)) {
			at += i % x->shape[k] * scale;
			scale *= x->shape[k];
		}
	return at;
}

Test(forward, sums_means_and_best_elements)
{
	for (int again = 0; again < 60; again++)
		for (size_t d = 0; d < 4; d++) {
			unsigned ndim = (unsigned)(random_bits() % 5);
			uint64_t shape[FAR_DIMS_MAX];
			random_shape(ndim, ndim == 1 ? 2000 : ndim == 2 ? 90 : 9, shape);
			struct far_tensor x = random_tensor(floats[d], ndim, shape, -1, 1);
			unsigned dims = (unsigned)random_bits() & ((1u << ndim) - 1);
			int axes[FAR_DIMS_MAX];
			size_t n = 0;
			for (unsigned k = 0; k < ndim; k++)
				if (dims & 1u << k)
					axes[n++] = (int)k;
			if (n == 0)
				dims = (1u << ndim) - 1;
			struct far_tensor sum = {0}, mean = {0};
			bool keep = random_bits() % 2;
			OK(far_op_sum(&x, axes, n, keep, &sum, &err));
			OK(far_op_mean(&x, axes, n, keep, &mean, &err));
			cr_assert_eq(sum.ndim, keep ? ndim : ndim - (unsigned)__builtin_popcount(dims));
			allocate(&sum);
			allocate(&mean);
			OK(far_op_sum(&x, axes, n, keep, &sum, &err));
			OK(far_op_mean(&x, axes, n, keep, &mean, &err));
			uint64_t results = ops_count(&sum);
			double *exact = take(results * sizeof *exact);
			memset(exact, 0, results * sizeof *exact);
			for (uint64_t i = 0; i < ops_count(&x); i++)
				exact[reduced_at(&x, dims, i)] += get(&x, i);
			for (uint64_t i = 0; i < results; i++) {
				cr_assert(near(get(&sum, i), exact[i], tolerance(floats[d])), "sum %s: %g, not %g",
					  ops_dtype_name(floats[d]), get(&sum, i), exact[i]);
				cr_assert(near(get(&mean, i), exact[i] * (double)results / (double)ops_count(&x),
					       tolerance(floats[d])));
			}
			tensors_free();
		}
	/* A sum in bf16 would stand still at 256. */
	struct far_tensor many = T(FAR_BF16, 5000), one = SCALAR(FAR_BF16);
	OK(far_op_fill(1, &many, &err));
	OK(far_op_sum(&many, NULL, 0, false, &one, &err));
	cr_assert_eq(get(&one, 0), half_value(FAR_BF16, half_bits(FAR_BF16, 5000)));
	struct far_tensor none = T(FAR_F32, 3, 0), nothing = T(FAR_F32, 3);
	OK(far_op_sum(&none, (const int[]){1}, 1, false, &nothing, &err));
	cr_assert_eq(get(&nothing, 2), 0);
	OK(far_op_mean(&none, (const int[]){1}, 1, false, &nothing, &err));
	cr_assert(isnan(get(&nothing, 2)));
}

Test(forward, best_along_an_axis)
{
	static const enum far_dtype all[] = {FAR_F32, FAR_F64, FAR_BF16, FAR_F16, FAR_I8,  FAR_I16,
					     FAR_I32, FAR_I64, FAR_U8,   FAR_U64, FAR_BOOL};
	for (size_t d = 0; d < sizeof all / sizeof all[0]; d++)
		for (int again = 0; again < 30; again++) {
			unsigned ndim = 1 + (unsigned)(random_bits() % 4);
			uint64_t shape[FAR_DIMS_MAX];
			random_shape(ndim, ndim == 1 ? 500 : 9, shape);
			struct far_tensor x = random_tensor(all[d], ndim, shape, 0, all[d] == FAR_BOOL ? 2 : 5);
			int axis = (int)(random_bits() % ndim);
			for (int largest = 0; largest < 2; largest++) {
				struct far_tensor out = {0}, index = {0};
				OK((largest ? far_op_max_axis : far_op_min_axis)(&x, axis, true, &out, &index, &err));
				allocate(&out);
				allocate(&index);
				OK((largest ? far_op_max_axis : far_op_min_axis)(&x, axis, true, &out, &index, &err));
				uint64_t n = ops_count(&out);
				double *best = take(n * sizeof *best), *where = take(n * sizeof *where);
				bool *seen = take(n);
				memset(seen, 0, n);
				uint64_t inner = 1;
				for (unsigned k = (unsigned)axis + 1; k < ndim; k++)
					inner *= shape[k];
				for (uint64_t i = 0; i < ops_count(&x); i++) {
					uint64_t at = reduced_at(&x, 1u << axis, i);
					double v = get(&x, i);
					if (seen[at] && !(largest ? v > best[at] : v < best[at]))
						continue;
					seen[at] = true;
					best[at] = v;
					where[at] = (double)(i / inner % shape[axis]);
				}
				for (uint64_t i = 0; i < n; i++) {
					cr_assert_eq(get(&out, i), best[i], "%s", ops_dtype_name(all[d]));
					cr_assert_eq(get(&index, i), where[i], "%s", ops_dtype_name(all[d]));
				}
			}
			tensors_free();
		}
	struct far_tensor x = T(FAR_F32, 5), out = SCALAR(FAR_F32), index = SCALAR(FAR_I64);
	memcpy(x.data, (const float[]){1, NAN, 9, NAN, 0}, 20);
	OK(far_op_max_axis(&x, 0, false, &out, &index, &err));
	cr_assert(isnan(get(&out, 0)) && get(&index, 0) == 1);
	OK(far_op_min_axis(&x, 0, false, &out, &index, &err));
	cr_assert(isnan(get(&out, 0)) && get(&index, 0) == 1);
}

Test(forward, softmax)
{
	for (int again = 0; again < 40; again++)
		for (size_t d = 0; d < 4; d++) {
			unsigned ndim = 1 + (unsigned)(random_bits() % 3);
			uint64_t shape[FAR_DIMS_MAX];
			random_shape(ndim, ndim == 1 ? 900 : 20, shape);
			/* Large logits: their exponentials alone overflow. */
			struct far_tensor x = random_tensor(floats[d], ndim, shape, 100, 110);
			int axis = (int)(random_bits() % ndim);
			struct far_tensor y = tensor(floats[d], ndim, shape), l = tensor(floats[d], ndim, shape);
			OK(far_op_softmax(&x, axis, &y, &err));
			OK(far_op_log_softmax(&x, axis, &l, &err));
			uint64_t n = ops_count(&x);
			double *sum = take(n * sizeof *sum);
			memset(sum, 0, n * sizeof *sum);
			for (uint64_t i = 0; i < n; i++)
				sum[reduced_at(&x, 1u << axis, i)] += exp(get(&x, i) - 100);
			for (uint64_t i = 0; i < n; i++) {
				double total = sum[reduced_at(&x, 1u << axis, i)];
				cr_assert(near(get(&y, i), exp(get(&x, i) - 100) / total, tolerance(floats[d])));
				cr_assert(near(get(&l, i), get(&x, i) - 100 - log(total), 4 * tolerance(floats[d])));
			}
			tensors_free();
		}
}

Test(forward, losses)
{
	for (size_t d = 0; d < 4; d++)
		for (int reduction = 0; reduction < 3; reduction++) {
			enum far_op_reduction r = (enum far_op_reduction)reduction;
			uint64_t shape[2] = {5, 37};
			struct far_tensor x = random_tensor(floats[d], 2, shape, -20, 20);
			struct far_tensor y = random_tensor(floats[d], 2, shape, 0, 1);
			struct far_tensor target = random_tensor(FAR_I64, 1, shape, 0, 37);
			struct far_tensor bce = {0}, mse = {0}, ce = {0};
			double sums[3] = {0}, n[3] = {185, 185, 5};
			OK(far_op_bce_with_logits(&x, &y, r, &bce, &err));
			OK(far_op_mse(&x, &y, r, &mse, &err));
			OK(far_op_cross_entropy(&x, &target, r, &ce, &err));
			allocate(&bce);
			allocate(&mse);
			allocate(&ce);
			OK(far_op_bce_with_logits(&x, &y, r, &bce, &err));
			OK(far_op_mse(&x, &y, r, &mse, &err));
			OK(far_op_cross_entropy(&x, &target, r, &ce, &err));
			for (uint64_t i = 0; i < 185; i++) {
				double a = get(&x, i), b = get(&y, i);
				double loss = -b * log(sigmoid(a)) - (1 - b) * log(sigmoid(-a));
				sums[0] += loss;
				sums[1] += (a - b) * (a - b);
				if (r == FAR_OP_REDUCE_NONE) {
					cr_assert(near(get(&bce, i), loss, 2 * tolerance(floats[d])));
					cr_assert(near(get(&mse, i), (a - b) * (a - b), 2 * tolerance(floats[d])));
				}
			}
			for (uint64_t row = 0; row < 5; row++) {
				double total = 0;
				for (uint64_t k = 0; k < 37; k++)
					total += exp(get(&x, row * 37 + k));
				double loss = log(total) - get(&x, row * 37 + (uint64_t)get(&target, row));
				sums[2] += loss;
				if (r == FAR_OP_REDUCE_NONE)
					cr_assert(near(get(&ce, row), loss, 2 * tolerance(floats[d])));
			}
			const struct far_tensor *all[3] = {&bce, &mse, &ce};
			for (int k = 0; k < 3 && r != FAR_OP_REDUCE_NONE; k++)
				cr_assert(near(get(all[k], 0), r == FAR_OP_REDUCE_MEAN ? sums[k] / n[k] : sums[k],
					       2 * tolerance(floats[d])),
					  "loss %d: %g, not %g", k, get(all[k], 0), sums[k]);
		}
	/* Far from 0 neither term overflows. */
	struct far_tensor x = T(FAR_F32, 2), y = T(FAR_F32, 2), out = T(FAR_F32, 2);
	memcpy(x.data, (const float[]){1000, -1000}, 8);
	memcpy(y.data, (const float[]){0, 1}, 8);
	OK(far_op_bce_with_logits(&x, &y, FAR_OP_REDUCE_NONE, &out, &err));
	cr_assert(get(&out, 0) == 1000 && get(&out, 1) == 1000);
}

/* ---- copies ---- */

Test(forward, conversions)
{
	static const double numbers[] = {0,        1,
					 2,        3,
					 100,      127,
					 128,      255,
					 256,      257,
					 32767,    32768,
					 -1,       -128,
					 -129,     -32769,
					 0.5,      1.5,
					 -0.5,     65504,
					 65520,    1e6,
					 3e9,      -3e9,
					 1e19,     -1e19,
					 2e19,     1e30,
					 257.5,    NAN,
					 INFINITY, -INFINITY,
					 0x1.01p0, 0x1.0100000001p0};
	static const struct {
		double least, most;
	} limits[FAR_DTYPE_COUNT] = {
		[FAR_I8] = {-128, 127},        [FAR_I16] = {-32768, 32767}, [FAR_I32] = {-2147483648.0, 2147483647},
		[FAR_I64] = {-0x1p63, 0x1p63}, [FAR_U8] = {0, 255},         [FAR_U64] = {0, 0x1p64}};
	uint64_t n = sizeof numbers / sizeof numbers[0];
	for (int from = FAR_F32; from < FAR_DTYPE_COUNT; from++)
		for (int to = FAR_F32; to < FAR_DTYPE_COUNT; to++) {
			bool from_float = ops_is_float((enum far_dtype)from),
			     to_float = ops_is_float((enum far_dtype)to);
			struct far_tensor x = view((enum far_dtype)from, 1, &n), out = view((enum far_dtype)to, 1, &n);
			for (uint64_t i = 0; i < n; i++) {
				double limited = numbers[i];
				if (from == FAR_BOOL)
					limited = limited != 0;
				else if (!from_float) /* a number that the source holds */
					limited = limited != limited                 ? 0
						  : limited < limits[from].least     ? limits[from].least
						  : limited >= limits[from].most / 2 ? trunc(limits[from].most / 4)
										     : trunc(limited);
				set(&x, i, limited);
			}
			OK(far_op_copy(&x, &out, &err));
			for (uint64_t i = 0; i < n; i++) {
				double v = get(&x, i), got = get(&out, i), exact = v;
				if (to == FAR_F32)
					exact = (double)(float)v;
				else if (to == FAR_BF16 || to == FAR_F16)
					exact = half_value((enum far_dtype)to, half_bits((enum far_dtype)to, v));
				else if (to == FAR_BOOL)
					exact = v != 0;
				else if (!to_float && from_float)
					exact = v != v ? 0 : fmin(fmax(trunc(v), limits[to].least), limits[to].most);
				else if (!to_float) /* the low bits */
					exact = to == FAR_I8    ? (int8_t)(int64_t)v
						: to == FAR_I16 ? (int16_t)(int64_t)v
						: to == FAR_I32 ? (int32_t)(int64_t)v
						: to == FAR_U8  ? (uint8_t)(int64_t)v
						: to == FAR_U64 ? (double)(uint64_t)(int64_t)v
								: v;
				cr_assert(got == exact || (isnan(got) && isnan(exact)),
					  "%g from %s to %s: %.17g, not %.17g", v, ops_dtype_name((enum far_dtype)from),
					  ops_dtype_name((enum far_dtype)to), got, exact);
			}
		}
}

Test(forward, conversions_round_once)
{
	/* f32 rounds these to numbers half way between two of bf16, whose even one is below. */
	struct far_tensor x = T(FAR_F64, 1), out = T(FAR_BF16, 1), big = T(FAR_I64, 1);
	set(&x, 0, 1 + 0x1p-8 + 0x1p-40);
	OK(far_op_copy(&x, &out, &err));
	cr_assert_eq(get(&out, 0), 1 + 0x1p-7);
	*(int64_t *)big.data = ((int64_t)1 << 60) + ((int64_t)1 << 52) + 1;
	OK(far_op_copy(&big, &out, &err));
	cr_assert_eq(get(&out, 0), 0x1p60 * (1 + 0x1p-7));
}

Test(forward, views_of_the_same_memory)
{
	struct far_tensor x = T(FAR_I32, 4, 6), part, turned, wide, flat, all = {0};
	int64_t strides[FAR_DIMS_MAX], others[FAR_DIMS_MAX];
	for (uint64_t i = 0; i < 24; i++)
		set(&x, i, (double)i);
	OK(far_op_slice(&x, 1, 1, 6, 2, strides, &part, &err)); /* columns 1, 3, 5 */
	cr_assert(part.shape[1] == 3 && get(&part, 4) == 9);
	OK(far_op_transpose(&part, 0, 1, strides, &turned, &err)); /* its strides are those of `part` */
	cr_assert(turned.shape[0] == 3 && turned.shape[1] == 4 && get(&turned, 1) == 7);
	OK(far_op_copy(&turned, &all, &err));
	allocate(&all);
	OK(far_op_copy(&turned, &all, &err));
	cr_assert_eq(get(&all, 11), 23);
	OK(far_op_reshape(&all, 3, (const uint64_t[]){2, 1, 6}, &flat, &err));
	cr_assert(flat.data == all.data && flat.ndim == 3);
	OK(far_op_expand(&flat, 4, (const uint64_t[]){5, 2, 3, 6}, others, &wide, &err));
	cr_assert_eq(get(&wide, 36 * 4 + 18 + 12 + 5), get(&flat, 11));
	OK(far_op_fill(-1, &turned, &err)); /* through a view */
	OK(far_op_slice(&x, 0, 4, 4, 1, others, &part, &err));
	cr_assert_eq(ops_count(&part), 0);
	for (uint64_t i = 0; i < 24; i++)
		cr_assert_eq(get(&x, i), i % 2 ? -1 : (double)i);
	const struct far_tensor *xs[2] = {&x, &x};
	struct far_tensor both = T(FAR_I32, 4, 12);
	OK(far_op_cat(xs, 2, 1, &both, &err));
	for (uint64_t i = 0; i < 48; i++)
		cr_assert_eq(get(&both, i), get(&x, i / 12 * 6 + i % 6));
}
