/* SPDX-License-Identifier: BSD-3-Clause */
/** Compressed gradients as they come from other workers: what is one, and what is refused. The test's thread. */
#include "compress.h"
#include "train_fixture.h"

static float elements[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static double wide[8] = {1, 2, 3, 4, 5, 6, 7, 8};
static uint16_t bf16[8] = {0x3f80, 0x4000, 0x4040, 0x4080}; /* 1 to 4 */
static int32_t positions[3] = {0, 2, 5};
static int64_t rows[2] = {3, 1};

static struct far_tensor of(enum far_dtype dtype, void *data, unsigned ndim, uint64_t a, uint64_t b)
{
	struct far_tensor t = shaped(dtype, ndim, (uint64_t[]){a, b});
	t.data = data;
	return t;
}

static enum far_status decoded(struct far_tensor variable, struct far_tensor values, struct far_tensor *index,
			       struct gradient *g)
{
	cr_assert(is_compressed(&variable, &values, index));
	return decompress(pool, &variable, &values, index, g, &err);
}

CASE(compress, top_k)
{
	struct gradient g = {0};
	struct far_tensor table = of(FAR_F32, NULL, 2, 2, 3), at = of(FAR_I32, positions, 1, 3, 0);
	OK(decoded(table, of(FAR_F32, elements, 1, 3, 0), &at, &g));
	cr_assert(g.set && g.index.t.dtype == FAR_DTYPE_NONE && g.values.t.ndim == 2);
	cr_assert_arr_eq((float *)g.values.t.data, ((float[]){1, 0, 2, 0, 0, 3}), 6 * sizeof(float));
	gradient_drop(&g);
	OK(decoded(of(FAR_F64, NULL, 1, 6, 0), of(FAR_F64, wide, 1, 3, 0), &at, &g));
	cr_assert_arr_eq((double *)g.values.t.data, ((double[]){1, 0, 2, 0, 0, 3}), 6 * sizeof(double));
	gradient_drop(&g);
}

CASE(compress, bad_top_k)
{
	struct gradient g = {0};
	struct far_tensor v = of(FAR_F32, NULL, 2, 2, 3), at = of(FAR_I32, positions, 1, 3, 0);
	const struct far_tensor three = of(FAR_F32, elements, 1, 3, 0);
	FAILS(FAR_INVALID, "elements f32[2] do not fit", decoded(v, of(FAR_F32, elements, 1, 2, 0), &at, &g));
	FAILS(FAR_INVALID, "elements f64[3] do not fit", decoded(v, of(FAR_F64, wide, 1, 3, 0), &at, &g));
	FAILS(FAR_INVALID, "do not fit", decoded(v, of(FAR_F32, elements, 2, 3, 1), &at, &g));
	FAILS(FAR_INVALID, "do not fit",
	      decoded(of(FAR_BF16, NULL, 1, 6, 0), of(FAR_BF16, bf16, 1, 3, 0), &at, &g)); /* not of that dtype */
	positions[2] = 6;
	FAILS(FAR_INVALID, "position 6", decoded(v, three, &at, &g));
	positions[2] = 2;
	FAILS(FAR_INVALID, "position 2", decoded(v, three, &at, &g));
	positions[2] = 5;
	positions[0] = -1;
	FAILS(FAR_INVALID, "position -1", decoded(v, three, &at, &g));
	positions[0] = 0;
	at.ndim = 2;
	at.shape[1] = 1;
	FAILS(FAR_INVALID, "do not fit", decoded(v, three, &at, &g));
}

CASE(compress, bf16_values)
{
	struct gradient g = {0};
	struct far_tensor at = of(FAR_I64, rows, 1, 2, 0), short_at = of(FAR_I64, rows, 1, 1, 0);
	const struct far_tensor table = of(FAR_F32, NULL, 2, 4, 2), two = of(FAR_BF16, bf16, 2, 2, 2);
	OK(decoded(of(FAR_F64, NULL, 2, 2, 2), two, NULL, &g));
	cr_assert_arr_eq((double *)g.values.t.data, wide, 4 * sizeof(double));
	gradient_drop(&g);
	OK(decoded(table, two, &at, &g));
	cr_assert_arr_eq((float *)g.values.t.data, elements, 4 * sizeof(float));
	cr_assert_arr_eq((int64_t *)g.index.t.data, rows, sizeof rows);
	gradient_drop(&g);
	FAILS(FAR_INVALID, "does not fit", decoded(table, two, NULL, &g));
	FAILS(FAR_INVALID, "does not fit", decoded(table, two, &short_at, &g));
	FAILS(FAR_INVALID, "no gradient of bf16", decoded(of(FAR_F16, NULL, 2, 2, 2), two, NULL, &g));
	rows[0] = 4;
	FAILS(FAR_INVALID, "row 4", decoded(table, two, &at, &g));
	rows[0] = 3;
}
