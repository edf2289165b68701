/* SPDX-License-Identifier: BSD-3-Clause */
/** A pool and a tape for each test, and variables with random elements. The test's thread. */
#ifndef FAR_TESTS_TRAIN_FIXTURE_H
#define FAR_TESTS_TRAIN_FIXTURE_H

#include <criterion/criterion.h>
#include <farcall/autograd.h>
#include <math.h>
#include <stdlib.h>

static struct far_pool *pool;
static struct far_tape *tape;
static struct far_grads *grads;
static struct far_err err;
static struct far_var *kept[256]; /* leaves, freed at the end */
static size_t kept_n;
static uint64_t random_state = 0x9e3779b97f4a7c15u;

#define OK(call)                                                                                                       \
	do {                                                                                                           \
		err = (struct far_err){0};                                                                             \
		enum far_status ok_status = (call);                                                                    \
		cr_assert_eq(ok_status, FAR_OK, "%s: %s", #call, err.text);                                            \
	} while (0)

/* A test between BEGIN and END, whose checks count: those of Criterion's own .fini do not. */
#ifndef BEGIN
#define BEGIN setup
#endif
#ifndef END
#define END teardown
#endif
#define CASE(suite, name)                                                                                              \
	static void suite##_##name(void);                                                                              \
	Test(suite, name)                                                                                              \
	{                                                                                                              \
		BEGIN();                                                                                               \
		suite##_##name();                                                                                      \
		END();                                                                                                 \
	}                                                                                                              \
	static void suite##_##name(void)

/* The call fails with this status and a text that contains `part`. */
#define FAILS(wanted, part, call)                                                                                      \
	do {                                                                                                           \
		err = (struct far_err){0};                                                                             \
		enum far_status fails_status = (call);                                                                 \
		cr_assert_eq(fails_status, wanted, "%s: %s: %s", #call, far_status_name(fails_status), err.text);      \
		cr_assert_eq(err.status, wanted);                                                                      \
		cr_assert(strstr(err.text, part), "%s: \"%s\" is not in \"%s\"", #call, part, err.text);               \
	} while (0)

__attribute__((unused)) static void setup(void)
{
	OK(far_pool_new(0, &pool, &err));
	OK(far_tape_new(pool, &tape, &err));
	OK(far_grads_new(pool, &grads, &err));
}

/* Everything that was made is freed: nothing of the pool is in use. */
__attribute__((unused)) static void teardown(void)
{
	struct far_pool_stats stats;
	while (kept_n > 0)
		far_var_free(kept[--kept_n]);
	far_tape_free(tape);
	far_grads_free(grads);
	far_pool_get_stats(pool, &stats);
	cr_assert_eq(stats.used_bytes, 0, "%zu bytes of the pool are in use", stats.used_bytes);
	far_pool_free(pool);
}

__attribute__((unused)) static double random_in(double low, double high)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return low + (high - low) * ((double)(random_state >> 11) * 0x1p-53);
}

__attribute__((unused)) static struct far_tensor shaped(enum far_dtype dtype, unsigned ndim, const uint64_t *shape)
{
	struct far_tensor t = {.dtype = (uint8_t)dtype, .ndim = (uint8_t)ndim};
	for (unsigned k = 0; k < ndim; k++)
		t.shape[k] = shape[k];
	return t;
}
#define SHAPE(dtype, ...)                                                                                              \
	shaped(dtype, sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (const uint64_t[]){__VA_ARGS__})

__attribute__((unused)) static struct far_var *keep(struct far_var *var)
{
	cr_assert_lt(kept_n, sizeof kept / sizeof *kept);
	return kept[kept_n++] = var;
}

__attribute__((unused)) static struct far_var *zeros(struct far_tensor t, bool requires_grad)
{
	struct far_var *var;
	OK(far_var_new(pool, &t, requires_grad, &var, &err));
	return keep(var);
}

/** A leaf with elements in [low, high), converted from f64. */
__attribute__((unused)) static struct far_var *leaf_in(struct far_tensor t, double low, double high)
{
	struct far_var *var = zeros(t, true);
	size_t n = far_tensor_count(&t);
	double *values = malloc(n * sizeof *values + 1);
	struct far_tensor from = t, to;
	from.dtype = FAR_F64;
	from.data = values;
	for (size_t i = 0; i < n; i++)
		values[i] = random_in(low, high);
	OK(far_var_edit(var, &to, &err));
	OK(far_op_copy(&from, &to, &err));
	free(values);
	return var;
}

__attribute__((unused)) static struct far_var *leaf(struct far_tensor t)
{
	return leaf_in(t, -1, 1);
}

/** Elements of a tensor as f64, in row-major order; `out` holds them all. */
__attribute__((unused)) static void read_f64(const struct far_tensor *t, double *out)
{
	struct far_tensor to = shaped(FAR_F64, t->ndim, t->shape);
	to.data = out;
	OK(far_op_copy(t, &to, &err));
}

__attribute__((unused)) static double *f64_of(struct far_var *var)
{
	cr_assert_eq(far_var_tensor(var)->dtype, FAR_F64);
	return far_var_tensor(var)->data;
}

/** Sum of all elements: a root. */
__attribute__((unused)) static struct far_var *sum_of(struct far_var *x)
{
	return far_tape_sum(tape, x, NULL, 0, false);
}

/** The dense gradient of a leaf as f64. */
__attribute__((unused)) static void gradient_of(struct far_var *var, double *out)
{
	struct far_gradient g;
	cr_assert(far_grads_get(grads, var, &g), "no gradient");
	cr_assert_eq(g.index.dtype, FAR_DTYPE_NONE, "the gradient is sparse");
	cr_assert_eq(g.values.dtype, far_var_tensor(var)->dtype);
	read_f64(&g.values, out);
}

#endif
