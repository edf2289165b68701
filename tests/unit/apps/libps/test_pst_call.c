/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions at rows: on copies, which count when they succeed. */
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>

TestSuite(pst_call);

struct calls {
	unsigned n, ended[64];
	bool made[64];
	enum far_status end[64];
	uint64_t fails; /* this key */
	float adds;
};

static enum far_status run(void *ctx, uint32_t i, uint64_t key, bool made, float *row, float *state)
{
	struct calls *c = ctx;
	c->n++;
	c->made[i] = made;
	row[0] += c->adds;
	if (state)
		state[0] += 1;
	return key == c->fails ? FAR_DENIED : FAR_OK;
}

static void ended(void *ctx, uint32_t i, enum far_status status)
{
	struct calls *c = ctx;
	c->ended[i]++;
	c->end[i] = status;
}

static struct pst_table *table_of(struct pst_schema s, const struct pst_memory *memory)
{
	struct pst_table *t;
	struct far_err err;
	s.dim = 3;
	s.init = (struct pst_init){.kind = PST_INIT_CONSTANT, .a = 2};
	pst_rule_defaults(&s.rule, PST_RULE_ADAGRAD);
	cr_assert_eq(pst_table_new(&s, memory, &t, &err), FAR_OK, "%s", err.text);
	return t;
}

static void call(struct pst_table *t, const uint64_t *keys, uint32_t n, struct calls *c, struct pst_call how,
		 uint8_t *status)
{
	struct far_err err;
	how.run = run;
	how.ended = ended;
	how.ctx = c;
	memset(c->ended, 0, sizeof c->ended);
	c->n = 0;
	cr_assert_eq(pst_call(t, keys, n, &how, status, &err), FAR_OK, "%s", err.text);
	for (uint32_t i = 0; i < n; i++)
		cr_assert_leq(c->ended[i], 1);
}

static float first_of(struct pst_table *t, uint64_t key, uint8_t *status)
{
	float row[3];
	cr_assert_eq(pst_pull(t, &key, 1, &(struct pst_pull){.now_ms = 0}, row, NULL, status, NULL), FAR_OK);
	return row[0];
}

static uint64_t rows_of(const struct pst_table *t)
{
	struct pst_stats s;
	pst_table_stats(t, &s);
	cr_assert_eq(s.made - s.erased - s.evicted - s.expired, s.rows);
	return s.rows;
}

Test(pst_call, keys_without_rows_are_missing_or_made)
{
	struct pst_table *t = table_of((struct pst_schema){0}, NULL);
	struct calls c = {.adds = 1, .fails = UINT64_MAX};
	uint64_t keys[4] = {1, 2, 3, 4};
	uint8_t status[4];
	call(t, keys, 4, &c, (struct pst_call){.changes = true}, status);
	cr_assert(c.n == 0 && status[0] == PST_MISSING && rows_of(t) == 0);
	call(t, keys, 2, &c, (struct pst_call){.changes = true, .make = true}, status);
	cr_assert(c.n == 2 && status[0] == PST_NEW && c.made[1] && c.end[1] == FAR_OK);
	call(t, keys, 4, &c, (struct pst_call){.changes = true}, status);
	cr_assert(c.n == 2 && status[1] == PST_ROW && !c.made[1] && status[3] == PST_MISSING);
	cr_assert_float_eq(first_of(t, 2, NULL), 4, 0);
	call(t, keys, 4, &c, (struct pst_call){.initial = true}, status);
	cr_assert(c.n == 4 && c.made[3] && status[3] == PST_MISSING && rows_of(t) == 2);
	cr_assert_float_eq(first_of(t, 2, NULL), 4, 0, "what a function writes that reads is dropped");
	pst_table_free(t);
}

Test(pst_call, a_function_that_fails_changes_nothing_and_its_new_row_goes)
{
	for (enum pst_type stored = PST_F32; stored <= PST_F16; stored++) {
		struct pst_table *t = table_of((struct pst_schema){.stored = stored}, NULL);
		struct calls c = {.adds = 1, .fails = UINT64_MAX};
		uint64_t keys[5] = {1, 7, 3, 7, 9};
		uint8_t status[5];
		call(t, keys, 1, &c, (struct pst_call){.changes = true, .make = true}, status);
		c.fails = 7;
		call(t, keys, 5, &c, (struct pst_call){.changes = true, .make = true}, status);
		cr_assert(status[0] == PST_ROW && status[2] == PST_NEW && status[4] == PST_NEW);
		cr_assert(status[1] == PST_FAILED + FAR_DENIED && status[3] == PST_FAILED + FAR_DENIED);
		cr_assert_eq(rows_of(t), 3);
		first_of(t, 7, status);
		cr_assert_eq(status[0], PST_MISSING);
		/* A number that is not finite, or not as it is stored. */
		c.fails = UINT64_MAX;
		c.adds = stored == PST_F16 ? 70000 : INFINITY;
		call(t, keys, 5, &c, (struct pst_call){.changes = true, .make = true}, status);
		cr_assert(status[0] == PST_FAILED + FAR_INVALID && c.end[1] == FAR_INVALID && rows_of(t) == 3);
		cr_assert_float_eq(first_of(t, 1, NULL), 4, 0);
		c.fails = 1;
		c.adds = 1;
		call(t, keys, 1, &c, (struct pst_call){.changes = true}, status);
		float state[1];
		struct pst_cursor cursor;
		uint64_t key;
		float row[3], states[3];
		(void)state;
		pst_scan_all(t, &cursor);
		while (!cursor.done)
			if (pst_scan(t, &cursor, 0, 1, &key, row, states, NULL) && key == 1)
				cr_assert_float_eq(states[0], 2, 0, "%g", (double)states[0]);
		pst_table_free(t);
	}
}

Test(pst_call, a_key_that_comes_twice_and_fails_once_leaves_the_table_whole)
{
	struct pst_table *t = table_of((struct pst_schema){.rows_max = 8, .full = PST_FULL_LRU}, NULL);
	struct calls c = {.adds = 1};
	uint64_t seed = 4, keys[40];
	uint8_t status[40];
	for (int r = 0; r < 500; r++) {
		for (int i = 0; i < 40; i++)
			keys[i] = draw64(&seed) % 20;
		c.fails = draw64(&seed) % 20;
		call(t, keys, 40, &c, (struct pst_call){.changes = true, .make = true, .now_ms = (uint64_t)r}, status);
		cr_assert_leq(rows_of(t), 8);
		first_of(t, c.fails, status);
	}
	pst_table_free(t);
}

Test(pst_call, a_change_is_written_and_a_read_is_not)
{
	struct pst_table *t = table_of((struct pst_schema){.ttl_ms = 1000}, NULL);
	struct calls c = {.adds = 1, .fails = UINT64_MAX};
	uint64_t key = 5;
	uint8_t status;
	call(t, &key, 1, &c, (struct pst_call){.changes = true, .make = true, .now_ms = 64}, &status);
	call(t, &key, 1, &c, (struct pst_call){.changes = true, .now_ms = 960}, &status);
	call(t, &key, 1, &c, (struct pst_call){.now_ms = 1856}, &status);
	cr_assert_eq(status, PST_ROW, "it was changed 896 ms ago");
	c.fails = key;
	call(t, &key, 1, &c, (struct pst_call){.changes = true, .now_ms = 1856}, &status);
	c.fails = 0;
	call(t, &key, 1, &c, (struct pst_call){.now_ms = 2752}, &status);
	cr_assert_eq(status, PST_MISSING, "neither a read nor a failure keeps it");
	call(t, &key, 1, &c, (struct pst_call){.changes = true, .make = true, .now_ms = 2752}, &status);
	cr_assert_eq(status, PST_NEW);
	pst_table_free(t);
}

Test(pst_call, no_memory_runs_nothing)
{
	for (uint64_t at = 1; at <= 2; at++) {
		struct fake_memory f;
		fake_memory_init(&f);
		struct pst_table *t = table_of((struct pst_schema){0}, &f.memory);
		struct calls c = {.adds = 1};
		uint64_t keys[2] = {1, 2};
		struct far_err err;
		struct pst_call how = {.run = run, .ended = ended, .ctx = &c, .changes = true, .make = true};
		f.fail_at = f.gets + at;
		cr_assert_eq(pst_call(t, keys, 2, &how, NULL, &err), FAR_RESOURCE);
		cr_assert(strstr(err.text, "did not run"), "%s", err.text);
		cr_assert(c.n == 0 && rows_of(t) == 0);
		pst_table_free(t);
		cr_assert_eq(f.blocks, 0);
	}
}

Test(pst_call, values_and_dense_keys_out_of_range_are_refused)
{
	struct pst_schema s = {.kind = PST_VALUES, .value_max = 9};
	struct pst_table *t, *dense = table_of((struct pst_schema){.kind = PST_DENSE, .dense_rows = 4}, NULL);
	struct calls c = {.adds = 1, .fails = UINT64_MAX};
	uint64_t key = 4;
	struct far_err err;
	struct pst_call how = {.run = run, .ended = ended, .ctx = &c, .changes = true};
	cr_assert_eq(pst_table_new(&s, NULL, &t, &err), FAR_OK);
	cr_assert_eq(pst_call(t, &key, 1, &how, NULL, &err), FAR_UNSUPPORTED);
	cr_assert_eq(pst_call(dense, &key, 1, &how, NULL, &err), FAR_INVALID);
	key = 3;
	cr_assert_eq(pst_call(dense, &key, 1, &how, NULL, &err), FAR_OK);
	cr_assert_float_eq(first_of(dense, 3, NULL), 3, 0);
	pst_table_free(t);
	pst_table_free(dense);
}
