/* SPDX-License-Identifier: BSD-3-Clause */
/** Dense tables of a parameter server: ranges of several rounds of requests, single rows, refusals.
 * Main thread of each process. */
#include "api_ps.h"

#include <math.h>
#include <stdlib.h>

enum { ROWS = 7000, WIDTH = 1000 };

static float *values;

static float grad_at(size_t row, size_t d)
{
	return (float)((row * 31 + d) % 17) - 8;
}

/* The rows [first, first + n) after `pushes` pushes. */
static void check_range(struct far_ps_table *t, uint64_t first, size_t n, float pushes)
{
	struct far_future *f;
	memset(values, 0, n * WIDTH * sizeof *values);
	DONE(far_ps_pull_range(t, first, n, NULL, values, &f, &err), n);
	for (size_t i = 0; i < n; i++)
		for (size_t d = 0; d < WIDTH; d++)
			CHECK(values[i * WIDTH + d] == 1 - pushes * grad_at(first + i, d));
}

static void push_all(struct far_ps_table *t, const struct far_ps_push_opts *opts)
{
	struct far_future *f;
	for (size_t i = 0; i < (size_t)ROWS * WIDTH; i++)
		values[i] = grad_at(i / WIDTH, i % WIDTH);
	DONE(far_ps_push_range(t, 0, ROWS, values, opts, &f, &err), ROWS);
}

/* Nothing of a push is sent that has a wrong number in a later round. */
static void not_finite(struct far_ps_table *t)
{
	struct far_future *f;
	uint64_t before = stats_of(t).keys_pushed;
	struct far_ps_push_opts opts = {.wire = FAR_F16};
	memset(values, 0, (size_t)ROWS * WIDTH * sizeof *values);
	values[(size_t)(ROWS - 1) * WIDTH + 7] = NAN;
	BAD(far_ps_push_range(t, 0, ROWS, values, NULL, &f, &err), FAR_INVALID,
	    "element 7 of the gradient of key 6999 is not finite");
	values[(size_t)(ROWS - 1) * WIDTH + 7] = 70000;
	BAD(far_ps_push_range(t, 0, ROWS, values, &opts, &f, &err), FAR_INVALID,
	    "element 7 of the gradient of key 6999 is not finite");
	CHECK(stats_of(t).keys_pushed == before);
}

static void single_rows(struct far_ps_table *t)
{
	static const float fallback[WIDTH];
	struct far_future *f;
	struct far_ps_pull_opts opts = {.fallback = fallback};
	keys[0] = 5, keys[1] = ROWS - 1, keys[2] = 5;
	DONE(far_ps_pull(t, keys, 3, &opts, values, status, &f, &err), 3);
	for (int i = 0; i < 3; i++)
		CHECK(status[i] == FAR_PS_ROW && values[i * WIDTH + 3] == 1 - 2 * grad_at(keys[i], 3));
	DONE(far_ps_erase(t, keys, 2, NULL, status, &f, &err), 2);
	DONE(far_ps_pull(t, keys, 2, &opts, values, status, &f, &err), 2);
	CHECK(status[0] == FAR_PS_ROW && values[0] == 1 && values[WIDTH] == 1);
	DONE(far_ps_exists(t, keys, 3, NULL, status, &f, &err), 3);
	CHECK(status[0] == FAR_PS_ROW);
	memset(values, 0, 2 * WIDTH * sizeof *values);
	DONE(far_ps_push_pull(t, keys, 2, values, NULL, values, status, &f, &err), 2);
	CHECK(status[1] == FAR_PS_ROW && values[WIDTH] == 1);
	struct far_ps_bags one = {.offsets = (const uint64_t[]){0, 3}, .n = 1};
	keys[1] = 6, keys[2] = 7;
	DONE(far_ps_pull_bags(t, keys, &one, &opts, values, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_ROW && values[2] == 3 - 2 * grad_at(6, 2) - 2 * grad_at(7, 2));
}

static void refusals(struct far_ps_table *t)
{
	struct far_future *f;
	struct far_ps_pull_opts pull = {.partial = true};
	struct far_ps_push_opts push = {.partial = true};
	struct far_ps_schema sparse = schema_of(FAR_PS_SGD);
	struct far_ps_table *other = table("sparse", &sparse);
	BAD(far_ps_pull_range(t, ROWS - 2, 3, NULL, values, &f, &err), FAR_INVALID, "3 rows from 6998 on");
	BAD(far_ps_pull_range(t, UINT64_MAX, 1, NULL, values, &f, &err), FAR_INVALID, "has 7000 dense rows");
	BAD(far_ps_pull_range(t, 0, 1, &pull, values, &f, &err), FAR_INVALID, "partial");
	BAD(far_ps_pull_range(t, 0, 1, NULL, NULL, &f, &err), FAR_INVALID, "rows is NULL");
	BAD(far_ps_pull_range(NULL, 0, 1, NULL, values, &f, &err), FAR_INVALID, "NULL");
	BAD(far_ps_push_range(t, ROWS, 1, values, NULL, &f, &err), FAR_INVALID, "1 rows from 7000 on");
	BAD(far_ps_push_range(t, 0, 1, values, &push, &f, &err), FAR_INVALID, "partial");
	BAD(far_ps_push_range(other, 0, 1, values, NULL, &f, &err), FAR_INVALID, "has 0 dense rows");
	DONE(far_ps_pull_range(t, ROWS, 0, NULL, NULL, &f, &err), 0);
	keys[0] = ROWS;
	BAD(far_ps_pull(t, keys, 1, NULL, values, status, &f, &err), FAR_INVALID, "key 7000");
	far_ps_table_free(other);
}

void dense(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.dim = WIDTH;
	schema.dense_rows = ROWS;
	schema.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 1, 0, 0};
	struct far_ps_table *t = table("dense", &schema), *same;
	values = malloc((size_t)ROWS * WIDTH * sizeof *values);
	CHECK(values);
	CHECK_STATUS(far_ps_table_open(ps, "dense", 0, &same, &err), FAR_OK, &err);
	CHECK(far_ps_table_schema(same)->dense_rows == ROWS && far_ps_table_schema(same)->rows_max == 0);
	far_ps_table_free(same);
	check_range(t, 0, ROWS, 0);
	push_all(t, NULL);
	push_all(t, &(struct far_ps_push_opts){.wire = FAR_BF16});
	check_range(t, 0, ROWS, 2);
	check_range(t, 1234, 77, 2);
	not_finite(t);
	check_range(t, ROWS - 100, 100, 2);
	single_rows(t);
	refusals(t);
	CHECK_STATUS(far_ps_table_drop(ps, "dense", 0, &err), FAR_OK, &err);
	far_ps_table_free(t);
	free(values);
}
