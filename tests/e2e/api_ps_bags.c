/* SPDX-License-Identifier: BSD-3-Clause */
/** Bags of a parameter server: sums, means and weights over all shards, the status of a bag, keys without a row.
 * Main thread of each process. */
#include "api_ps.h"

#include <math.h>

enum { STORED = 500, BAGS = 700, EACH = 12 };

static uint64_t offsets[BAGS + 1];
static float weights[BAGS * EACH];
static struct far_ps_bags bags = {.offsets = offsets, .n = BAGS};

/* Key numbers from STORED on have no row. */
static uint64_t number_at(int i, int numbers)
{
	return (uint64_t)(i * i + 3 * i) % (uint64_t)numbers;
}

static float element(uint64_t number, int d)
{
	return (float)((int)(number * 7 + (uint64_t)d) % 21 - 10);
}

/* Bags of 0 to EACH - 1 keys; some keys repeat. */
static int fill(int numbers)
{
	int n = 0;
	for (int b = 0; b < BAGS; b++) {
		offsets[b] = (uint64_t)n;
		for (int i = 0; i < b % EACH; i++, n++) {
			keys[n] = spread(number_at(n, numbers));
			weights[n] = (float)(n % 5 - 2);
		}
	}
	offsets[BAGS] = (uint64_t)n;
	return n;
}

/* What each bag must be; fallback 0: rows that are missing are zeros. */
static void check_bags(int numbers, bool weighted, float fallback)
{
	for (int b = 0; b < BAGS; b++) {
		float want[DIM] = {0}, weight = 0;
		bool missing = false;
		for (int i = (int)offsets[b]; i < (int)offsets[b + 1]; i++) {
			uint64_t number = number_at(i, numbers);
			float w = weighted ? weights[i] : 1;
			for (int d = 0; d < DIM; d++)
				want[d] += w * (number < STORED ? element(number, d) : fallback);
			weight += w;
			missing = missing || number >= STORED;
		}
		for (int d = 0; d < DIM; d++) {
			if (bags.pool == FAR_PS_MEAN)
				want[d] = fabsf(weight) > 0 ? want[d] / weight : 0;
			CHECK(rows[b * DIM + d] == want[d]);
		}
		CHECK(status[b] == (missing ? FAR_PS_MISSING : FAR_PS_ROW));
	}
}

static void pools(struct far_ps_table *t)
{
	static const float fallback[DIM] = {3, 3, 3, 3};
	struct far_future *f;
	for (int variant = 0; variant < 8; variant++) {
		struct far_ps_pull_opts opts = {.fallback = variant & 4 ? fallback : NULL};
		int numbers = variant & 4 ? 2 * STORED : STORED;
		fill(numbers);
		bags.weights = variant & 1 ? weights : NULL;
		bags.pool = variant & 2 ? FAR_PS_MEAN : FAR_PS_SUM;
		DONE(far_ps_pull_bags(t, keys, &bags, &opts, rows, status, &f, &err), BAGS);
		check_bags(numbers, variant & 1, variant & 4 ? 3 : 0);
	}
	/* Initial values, 2, and then rows of them. */
	bags.weights = NULL;
	bags.pool = FAR_PS_SUM;
	struct far_ps_pull_opts opts = {.miss = FAR_PS_INITIAL, .fallback = fallback};
	fill(2 * STORED);
	DONE(far_ps_pull_bags(t, keys, &bags, &opts, rows, status, &f, &err), BAGS);
	check_bags(2 * STORED, false, 2);
	/* All types of the wire: few small numbers are exact but in int8. */
	static const enum far_dtype wires[] = {FAR_BF16, FAR_F16, FAR_I8};
	static float exact[BAGS * DIM];
	memcpy(exact, rows, sizeof exact);
	for (int w = 0; w < 3; w++) {
		opts.wire = wires[w];
		DONE(far_ps_pull_bags(t, keys, &bags, &opts, rows, NULL, &f, &err), BAGS);
		for (int i = 0; i < BAGS * DIM; i++)
			CHECK(fabsf(rows[i] - exact[i]) <= (w == 2 ? 2.0f : 0.0f));
	}
}

static void makes(struct far_ps_table *t)
{
	struct far_future *f;
	struct far_ps_pull_opts opts = {.miss = FAR_PS_MAKE};
	struct far_ps_bags three = {.offsets = (const uint64_t[]){0, 2, 2, 3}, .n = 3};
	keys[0] = spread(1), keys[1] = keys[2] = 99;
	DONE(far_ps_pull_bags(t, keys, &three, &opts, rows, status, &f, &err), 3);
	CHECK(status[0] == FAR_PS_NEW && status[1] == FAR_PS_ROW && status[2] == FAR_PS_NEW);
	CHECK(rows[1] == element(1, 1) + 2 && rows[DIM] == 0 && rows[2 * DIM] == 2);
	DONE(far_ps_pull_bags(t, keys, &three, &opts, rows, status, &f, &err), 3);
	CHECK(status[0] == FAR_PS_ROW && status[2] == FAR_PS_ROW);
	/* Bags without any key. */
	static const uint64_t none[3];
	three = (struct far_ps_bags){.offsets = none, .n = 2};
	rows[0] = 5;
	DONE(far_ps_pull_bags(t, NULL, &three, NULL, rows, status, &f, &err), 2);
	CHECK(rows[0] == 0 && status[0] == FAR_PS_ROW);
	three.n = 0;
	DONE(far_ps_pull_bags(t, NULL, &three, NULL, NULL, NULL, &f, &err), 0);
}

static void refusals(struct far_ps_table *t)
{
	struct far_future *f;
	struct far_ps_bags b = {.offsets = (const uint64_t[]){0, 2, 1}, .n = 2};
	BAD(far_ps_pull_bags(t, keys, NULL, NULL, rows, NULL, &f, &err), FAR_INVALID, "NULL");
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "offset 2 is 1, less than");
	b.offsets = (const uint64_t[]){1, 2, 3};
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "offset 0 is 1");
	b.offsets = (const uint64_t[]){0, 1, FAR_PS_KEYS_MAX + 1};
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "67108865 keys");
	b.offsets = (const uint64_t[]){0, 1, 2};
	BAD(far_ps_pull_bags(t, keys, &b, NULL, NULL, NULL, &f, &err), FAR_INVALID, "rows is NULL");
	BAD(far_ps_pull_bags(t, NULL, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "NULL");
	b.weights = (const float[]){1, INFINITY};
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "weight 1 is not finite");
	b.weights = NULL;
	b.pool = (enum far_ps_pool)2;
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "pool is 2");
	b = (struct far_ps_bags){.offsets = (const uint64_t[]){0, 1}, .n = 1, .reserved = {0, 1}};
	BAD(far_ps_pull_bags(t, keys, &b, NULL, rows, NULL, &f, &err), FAR_INVALID, "reserved");
}

void pooled(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 2, 0, 0};
	struct far_ps_table *t = table("bags", &schema);
	struct far_future *f;
	for (int i = 0; i < STORED; i++) {
		keys[i] = spread((uint64_t)i);
		for (int d = 0; d < DIM; d++)
			rows[i * DIM + d] = element((uint64_t)i, d);
	}
	DONE(far_ps_assign(t, keys, STORED, rows, NULL, NULL, NULL, &f, &err), STORED);
	pools(t);
	makes(t);
	refusals(t);
	far_ps_table_free(t);
}

void pooled_stopped(struct far_ps_table *t)
{
	static const float fallback[DIM] = {1000, 1000, 1000, 1000};
	struct far_future *f;
	struct far_ps_pull_opts opts = {.partial = true, .timeout_ns = FAR_SEC / 2, .fallback = fallback};
	struct far_ps_bags two = {.offsets = offsets, .n = BAGS, .pool = FAR_PS_MEAN};
	int64_t answered;
	for (int b = 0; b <= BAGS; b++)
		offsets[b] = (uint64_t)b;
	answered = done(far_ps_pull_bags(t, keys, &two, &opts, rows, status, &f, &err), &f);
	CHECK(answered > 0 && answered < BAGS);
	for (int b = 0; b < BAGS; b++) {
		answered -= status[b] == FAR_PS_ROW;
		CHECK(status[b] == FAR_PS_ROW || status[b] == FAR_PS_LATE);
		CHECK(rows[b * DIM] == (status[b] == FAR_PS_ROW ? 3 : 1000));
	}
	CHECK(answered == 0);
	/* One bag of all: what came is in it. */
	two.n = 1;
	two.offsets = (const uint64_t[]){0, BAGS};
	CHECK(done(far_ps_pull_bags(t, keys, &two, &opts, rows, status, &f, &err), &f) == 0);
	CHECK(status[0] == FAR_PS_LATE && rows[0] > 3 && rows[0] < 1000);
	opts.partial = false;
	FAILS(far_ps_pull_bags(t, keys, &two, &opts, rows, status, &f, &err), FAR_TIMEOUT);
	CHECK_TEXT(&err, "0 of 1 bags were answered");
}
