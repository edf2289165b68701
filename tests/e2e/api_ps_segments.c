/* SPDX-License-Identifier: BSD-3-Clause */
/** Operations on many keys. Reads that the client goes through in segments: rows, repeats, statuses, values, ranges,
 * and deadlines that pass in the middle. Pushes: sums, and deadlines that pass before anything is sent. By one client
 * of api_ps. Main thread. */
#include "api_ps.h"

#include "apps/libps/psv_env.h"
#include <stdatomic.h>

enum { MADE = 20000, CYCLE = 40000, LONG = (1 << 18) + 5000 };

static uint64_t key_of(size_t i)
{
	return spread(i % CYCLE);
}

static float value_of(size_t i)
{
	return (float)(i % CYCLE + 1);
}

/* Keys [0, MADE) of the cycle have rows, the others have none. */
static void fill(struct far_ps_table *t, uint64_t *key)
{
	struct far_future *f;
	for (size_t i = 0; i < LONG; i++)
		key[i] = key_of(i);
	for (int i = 0; i < MADE * DIM; i++)
		rows[i] = value_of((size_t)i / DIM);
	DONE(far_ps_assign(t, key, MADE, rows, NULL, NULL, NULL, &f, &err), MADE);
}

static bool has_row(size_t i)
{
	return i % CYCLE < MADE;
}

/* Returns the number of answered positions. Every position has its row or the fallback row. */
static size_t check_rows(const float *row, const uint8_t *of, float fallback)
{
	size_t answered = 0;
	for (size_t i = 0; i < LONG; i++) {
		bool late = of[i] == FAR_PS_LATE;
		CHECK(late || of[i] == (has_row(i) ? FAR_PS_ROW : FAR_PS_MISSING));
		for (int d = 0; d < DIM; d++)
			CHECK(row[i * DIM + d] == (late || !has_row(i) ? fallback : value_of(i)));
		answered += !late;
	}
	return answered;
}

/* A clock of this client that advances with each reading: the deadline passes after a hundred requests at most. */
static uint64_t steps_now(void)
{
	static _Atomic uint64_t now;
	return atomic_fetch_add(&now, 100 * FAR_SEC) + FAR_SEC;
}

static void in_the_middle(struct far_ps_table *t, const uint64_t *key, float *row, uint8_t *of)
{
	struct far_ps_pull_opts opts = {.partial = true, .timeout_ns = 10000 * FAR_SEC};
	struct psv_env env = psv_env;
	struct far_future *f;
	psv_env.now_ns = steps_now;
	int64_t answered = done(far_ps_pull(t, key, LONG, &opts, row, of, &f, &err), &f);
	psv_env = env;
	CHECK(answered > 0 && answered < LONG);
	CHECK(check_rows(row, of, 0) == (size_t)answered);
}

static void deadlines(struct far_ps_table *t, const uint64_t *key, float *row, uint8_t *of)
{
	static const float fallback[DIM] = {7, 7, 7, 7};
	struct far_ps_pull_opts opts = {.partial = true, .timeout_ns = 1};
	struct far_future *f;
	DONE(far_ps_pull(t, key, LONG, &opts, row, of, &f, &err), 0);
	CHECK(check_rows(row, of, 0) == 0);
	opts.fallback = fallback;
	for (opts.timeout_ns = FAR_US; opts.timeout_ns < 100 * FAR_MS; opts.timeout_ns *= 8) {
		memset(row, 0xff, (size_t)LONG * DIM * sizeof *row);
		memset(of, 0xff, LONG);
		int64_t answered = done(far_ps_pull(t, key, LONG, &opts, row, of, &f, &err), &f);
		CHECK(check_rows(row, of, 7) == (size_t)answered);
	}
	opts.timeout_ns = 1;
	opts.partial = false;
	FAILS(far_ps_pull(t, key, LONG, &opts, row, of, &f, &err), FAR_TIMEOUT);
	CHECK_TEXT(&err, "0 of 267144 keys were answered");
	CHECK(check_rows(row, of, 7) == 0);
}

/* The sums of gradients of equal keys are exact: they are of small integers. */
static void sums(struct far_ps_table *t, const uint64_t *key, float *row)
{
	static float want[CYCLE];
	struct far_ps_push_opts opts = {.rate = 1};
	struct far_future *f;
	for (size_t i = 0; i < CYCLE; i++)
		want[i] = has_row(i) ? value_of(i) : 0;
	for (size_t i = 0; i < LONG; i++) {
		want[i % CYCLE] -= (float)(i % 5);
		for (int d = 0; d < DIM; d++)
			row[i * DIM + (size_t)d] = (float)(i % 5);
	}
	DONE(far_ps_push(t, key, LONG, row, &opts, NULL, &f, &err), LONG);
	DONE(far_ps_pull(t, key, LONG, NULL, row, NULL, &f, &err), LONG);
	for (size_t i = 0; i < LONG; i++)
		for (int d = 0; d < DIM; d++)
			CHECK(row[i * DIM + (size_t)d] == want[i % CYCLE]);
}

static int64_t push_late(struct far_ps_table *t, const uint64_t *key, const float *grad, unsigned readings, uint8_t *of)
{
	uint64_t token = 0;
	struct far_ps_push_opts opts = {.partial = true, .timeout_ns = readings * 100 * FAR_SEC, .token = &token};
	struct psv_env env = psv_env;
	struct far_future *f;
	memset(of, 0xff, LONG);
	psv_env.now_ns = steps_now;
	int64_t answered = done(far_ps_push(t, key, LONG, grad, &opts, of, &f, &err), &f), late = 0;
	psv_env = env;
	for (size_t i = 0; i < LONG; i++)
		late += of[i] == FAR_PS_LATE;
	CHECK(answered + late == LONG);
	CHECK(token || answered == 0);
	return answered;
}

/* A push looks at the clock while it prepares its requests, and returns at its deadline with nothing sent. */
static void late_pushes(struct far_ps_table *t, const uint64_t *key, float *row, uint8_t *of)
{
	struct far_ps_call_opts call = {.partial = true, .timeout_ns = 1, .errors = of};
	struct far_ps_push_opts opts = {.timeout_ns = 1};
	struct far_future *f;
	uint64_t pushed = stats_of(t).keys_pushed;
	for (unsigned readings = 1; readings <= 80; readings += readings < 8 ? 1 : 24)
		CHECK(push_late(t, key, row, readings, of) == 0);
	FAILS(far_ps_push(t, key, LONG, row, &opts, of, &f, &err), FAR_TIMEOUT);
	CHECK_TEXT(&err, "0 of 267144 keys were answered");
	memset(row, 0xff, (size_t)LONG * DIM * sizeof *row);
	FAILS(far_ps_push_pull(t, key, LONG, row, &opts, row, of, &f, &err), FAR_TIMEOUT);
	for (size_t i = 0; i < (size_t)LONG * DIM; i++)
		CHECK(row[i] == 0);
	memset(of, 0xff, LONG);
	DONE(far_ps_call(t, "none", key, LONG, &call, NULL, NULL, &f, &err), 0);
	for (size_t i = 0; i < LONG; i++)
		CHECK(of[i] == 0);
	CHECK(stats_of(t).keys_pushed == pushed);
	for (unsigned readings = 100; readings < 1000; readings += 60)
		push_late(t, key, row, readings, of);
}

static void of_rows(uint64_t *key)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("segments", &schema);
	float *row = calloc((size_t)LONG * DIM, sizeof *row);
	uint8_t *of = calloc(LONG, 1);
	struct far_future *f;
	CHECK(row && of);
	fill(t, key);
	uint64_t before = stats_of(t).keys_pulled;
	DONE(far_ps_pull(t, key, LONG, NULL, row, of, &f, &err), LONG);
	CHECK(check_rows(row, of, 0) == LONG);
	CHECK(stats_of(t).keys_pulled - before == LONG); /* no key repeats within a segment */
	deadlines(t, key, row, of);
	in_the_middle(t, key, row, of);
	sums(t, key, row);
	late_pushes(t, key, row, of);
	for (size_t i = 0; i < LONG; i++)
		key[i] = key_of(0);
	before = stats_of(t).keys_pulled;
	DONE(far_ps_pull(t, key, LONG, NULL, row, NULL, &f, &err), LONG);
	CHECK(stats_of(t).keys_pulled - before == (LONG + (1 << 14) - 1) / (1 << 14));
	for (size_t i = 0; i < (size_t)LONG * DIM; i++)
		CHECK(row[i] == value_of(0));
	free(row);
	free(of);
	far_ps_table_free(t);
}

static void of_values(uint64_t *key)
{
	struct far_ps_schema schema = {.value_max = 8};
	struct far_ps_table *t = table("segments of values", &schema);
	uint64_t *value = calloc(LONG, sizeof *value), *offset = calloc(MADE + 1, sizeof *offset);
	uint32_t *len = calloc(LONG, sizeof *len);
	struct far_future *f;
	CHECK(value && offset && len);
	for (size_t i = 0; i <= MADE; i++)
		offset[i] = 8 * i;
	for (size_t i = 0; i < LONG; i++)
		key[i] = key_of(i);
	DONE(far_ps_assign_values(t, key, MADE, key, offset, NULL, NULL, &f, &err), MADE);
	DONE(far_ps_pull_values(t, key, LONG, NULL, value, sizeof *value, len, NULL, &f, &err), LONG);
	for (size_t i = 0; i < LONG; i++)
		CHECK(len[i] == (has_row(i) ? 8 : 0) && value[i] == (has_row(i) ? key[i] : 0));
	memset(len, 0xff, LONG * sizeof *len);
	struct far_ps_pull_opts opts = {.partial = true, .timeout_ns = 1};
	DONE(far_ps_pull_values(t, key, LONG, &opts, value, sizeof *value, len, NULL, &f, &err), 0);
	for (size_t i = 0; i < LONG; i++)
		CHECK(len[i] == 0);
	free(value);
	free(offset);
	free(len);
	far_ps_table_free(t);
}

static void of_a_range(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.dense_rows = LONG;
	struct far_ps_table *t = table("segments of a range", &schema);
	float *row = calloc((size_t)LONG * DIM, sizeof *row);
	struct far_future *f;
	CHECK(row);
	for (size_t i = 0; i < (size_t)LONG * DIM; i++)
		row[i] = (float)i;
	struct far_ps_push_opts opts = {.rate = 1};
	DONE(far_ps_push_range(t, 0, LONG, row, &opts, &f, &err), LONG);
	memset(row, 0, (size_t)LONG * DIM * sizeof *row);
	DONE(far_ps_pull_range(t, 0, LONG, NULL, row, &f, &err), LONG);
	for (size_t i = 0; i < (size_t)LONG * DIM; i++)
		CHECK(row[i] == -(float)i);
	free(row);
	far_ps_table_free(t);
}

void segments(void)
{
	uint64_t *key = calloc(LONG, sizeof *key);
	CHECK(key);
	of_rows(key);
	of_values(key);
	of_a_range();
	free(key);
}
