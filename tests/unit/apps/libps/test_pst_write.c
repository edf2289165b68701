/* SPDX-License-Identifier: BSD-3-Clause */
/** Pushes to a table, scans, assignments. The test's thread. */
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>

TestSuite(pst_write);

static struct pst_table *table_of(struct pst_schema s, enum pst_rule_kind kind)
{
	s.init = (struct pst_init){.kind = PST_INIT_UNIFORM, .a = -1, .b = 1, .seed = 9};
	pst_rule_defaults(&s.rule, kind);
	struct pst_table *t;
	struct far_err err;
	cr_assert_eq(pst_table_new(&s, NULL, &t, &err), FAR_OK, "%s", err.text);
	return t;
}

static uint64_t rows_of(const struct pst_table *t)
{
	struct pst_stats s;
	pst_table_stats(t, &s);
	return s.rows;
}

Test(pst_write, a_gradient_that_is_not_finite_is_refused_by_its_key_and_changes_nothing)
{
	struct pst_table *t = table_of((struct pst_schema){.dim = 3}, PST_RULE_ADAGRAD);
	uint64_t keys[3] = {10, 11, 12};
	float grads[9] = {1, 2, 3, 4, NAN, 6, 7, 8, 9}, scales[3] = {1, INFINITY, 1};
	uint16_t half[9] = {0, 0, 0, 0, 0x7c00, 0};
	int8_t bytes[9] = {1};
	struct far_err err;
	struct pst_push how = {.wire = PST_F32};
	cr_assert_eq(pst_push(t, keys, 3, &how, grads, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "element 1 of the gradient of key 11"), "%s", err.text);
	how.wire = PST_F16;
	cr_assert_eq(pst_push(t, keys, 3, &how, half, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "key 11"), "%s", err.text);
	how.wire = PST_BF16;
	half[4] = 0xff80;
	cr_assert_eq(pst_push(t, keys, 3, &how, half, NULL, &err), FAR_INVALID);
	how.wire = PST_INT8;
	cr_assert_eq(pst_push(t, keys, 3, &how, bytes, NULL, &err), FAR_INVALID, "int8 without scales");
	how.scales = scales;
	cr_assert_eq(pst_push(t, keys, 3, &how, bytes, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "scale of the gradient of key 11"), "%s", err.text);
	how = (struct pst_push){.rate = NAN};
	cr_assert_eq(pst_push(t, keys, 1, &how, grads, NULL, &err), FAR_INVALID);
	how.rate = -1;
	cr_assert_eq(pst_push(t, keys, 1, &how, grads, NULL, &err), FAR_INVALID);
	how.rate = 0;
	cr_assert_eq(pst_assign(t, keys, 3, &how, grads, NULL, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "element 1 of the row of key 11"), "%s", err.text);
	float state[9] = {0, 0, 0, 0, 0, 0, 0, INFINITY, 0};
	grads[4] = 5;
	cr_assert_eq(pst_assign(t, keys, 3, &how, grads, state, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "element 1 of the state of key 12"), "%s", err.text);
	cr_assert_eq(rows_of(t), 0);
	pst_table_free(t);
}

Test(pst_write, a_key_that_comes_twice_in_a_push_is_updated_twice)
{
	struct pst_table *a = table_of((struct pst_schema){.dim = 5}, PST_RULE_ADAM);
	struct pst_table *b = table_of((struct pst_schema){.dim = 5}, PST_RULE_ADAM);
	uint64_t keys[200];
	float grads[200 * 5], x[5], y[5];
	uint64_t seed = 2;
	struct pst_push how = {0};
	for (unsigned i = 0; i < 200; i++)
		keys[i] = draw64(&seed) % 20;
	for (unsigned i = 0; i < 1000; i++)
		grads[i] = draw_float(&seed, -1, 1);
	cr_assert_eq(pst_push(a, keys, 200, &how, grads, NULL, NULL), FAR_OK);
	for (unsigned i = 0; i < 200; i++)
		cr_assert_eq(pst_push(b, keys + i, 1, &how, grads + 5 * i, NULL, NULL), FAR_OK);
	struct pst_pull pull = {0};
	for (uint64_t key = 0; key < 20; key++) {
		pst_pull(a, &key, 1, &pull, x, NULL, NULL, NULL);
		pst_pull(b, &key, 1, &pull, y, NULL, NULL, NULL);
		cr_assert_eq(memcmp(x, y, sizeof x), 0);
	}
	pst_table_free(a);
	pst_table_free(b);
}

Test(pst_write, a_waiting_key_has_no_row_and_gets_the_nth_gradient_alone)
{
	struct pst_table *t = table_of((struct pst_schema){.dim = 1, .admit = 3}, PST_RULE_SGD);
	uint64_t keys[4] = {7, 7, 8, 7};
	float grads[4] = {100, 100, 100, 1}, row, want;
	uint8_t status[4], expected[4] = {PST_WAITING, PST_WAITING, PST_WAITING, PST_NEW};
	struct pst_push how = {.rate = 1};
	cr_assert_eq(pst_push(t, keys, 4, &how, grads, status, NULL), FAR_OK);
	cr_assert_eq(memcmp(status, expected, 4), 0);
	struct pst_pull pull = {.miss = PST_MISS_MAKE};
	cr_assert_eq(pst_pull(t, keys, 1, &pull, &row, NULL, status, NULL), FAR_OK);
	pst_init_row(&pst_table_schema(t)->init, 7, &want, 1);
	cr_assert(row == want - 1);
	cr_assert_eq(pst_pull(t, keys + 2, 1, &pull, &row, NULL, status, NULL), FAR_OK);
	cr_assert_eq(status[0], PST_MISSING, "a pull makes no rows in a table with admission");
	pst_init_row(&pst_table_schema(t)->init, 8, &want, 1);
	cr_assert(row == want);
	cr_assert_eq(rows_of(t), 1);
	pst_table_free(t);
}

/* All of a table, scanned, assigned to another: every bit is the same, and so is what later pushes do. */
static void copied(enum pst_type stored, enum pst_rule_kind kind, unsigned dim)
{
	struct pst_table *a = table_of((struct pst_schema){.dim = dim, .stored = stored, .ttl_ms = 100000}, kind);
	struct pst_table *b = table_of((struct pst_schema){.dim = dim, .stored = stored, .ttl_ms = 100000}, kind);
	unsigned states = pst_table_state(a);
	uint64_t keys[300], seed = 4, found[64], ages[64];
	float *grads = calloc(300 * dim, sizeof *grads), *state = calloc(64 * (states + 1), sizeof *state),
	      *wide = calloc(2 * dim, sizeof *wide);
	char *rows = calloc(64 * dim, 4);
	for (int round = 0; round < 6; round++) {
		for (unsigned i = 0; i < 300; i++)
			keys[i] = draw64(&seed) % 1000;
		for (unsigned i = 0; i < 300 * dim; i++)
			grads[i] = draw_float(&seed, -1, 1);
		struct pst_push how = {.now_ms = (uint64_t)round * 640};
		cr_assert_eq(pst_push(a, keys, 300, &how, grads, NULL, NULL), FAR_OK);
		if (round == 5)
			cr_assert_eq(pst_push(b, keys, 300, &how, grads, NULL, NULL), FAR_OK);
		if (round != 4)
			continue;
		struct pst_cursor c;
		pst_scan_all(a, &c);
		while (!c.done) {
			uint32_t n = pst_scan(a, &c, 2560, 64, found, rows, state, ages);
			for (uint32_t i = 0; i < n; i++) {
				cr_assert(ages[i] % 640 == 0 && ages[i] <= 2560);
				struct pst_push as = {.wire = stored, .now_ms = 2560 - ages[i]};
				cr_assert_eq(pst_assign(b, &found[i], 1, &as, rows + i * dim * pst_type_bytes(stored),
							states ? state + i * states : NULL, NULL, NULL),
					     FAR_OK);
			}
		}
	}
	cr_assert_eq(rows_of(a), rows_of(b));
	struct pst_pull pull = {0};
	for (uint64_t key = 0; key < 1000; key++) {
		uint8_t sa, sb;
		pst_pull(a, &key, 1, &pull, wide, NULL, &sa, NULL);
		pst_pull(b, &key, 1, &pull, wide + dim, NULL, &sb, NULL);
		cr_assert_eq(sa, sb);
		cr_assert_eq(memcmp(wide, wide + dim, dim * sizeof *wide), 0);
	}
	free(grads);
	free(state);
	free(wide);
	free(rows);
	pst_table_free(a);
	pst_table_free(b);
}

Test(pst_write, a_scanned_table_assigned_elsewhere_is_the_same_to_the_bit)
{
	copied(PST_F32, PST_RULE_ADAM, 16);
	copied(PST_BF16, PST_RULE_ADAGRAD, 7);
	copied(PST_F16, PST_RULE_FTRL, 33);
	copied(PST_F32, PST_RULE_SGD, 1);
	copied(PST_F32, PST_RULE_ROWWISE_ADAGRAD, 20);
}

Test(pst_write, assigning_without_state_begins_it_anew)
{
	struct pst_table *t = table_of((struct pst_schema){.dim = 1}, PST_RULE_ADAGRAD);
	uint64_t key = 3;
	float grad = 2, row = 10, out, first;
	struct pst_push how = {.rate = 1};
	struct pst_pull pull = {0};
	pst_assign(t, &key, 1, &how, &row, NULL, NULL, NULL);
	pst_push(t, &key, 1, &how, &grad, NULL, NULL);
	pst_pull(t, &key, 1, &pull, &first, NULL, NULL, NULL);
	cr_assert(first == 9);
	pst_push(t, &key, 1, &how, &grad, NULL, NULL);
	pst_assign(t, &key, 1, &how, &row, NULL, NULL, NULL);
	pst_push(t, &key, 1, &how, &grad, NULL, NULL);
	pst_pull(t, &key, 1, &pull, &out, NULL, NULL, NULL);
	cr_assert(out == first);
	pst_table_free(t);
}

Test(pst_write, dense_rows_learn_too)
{
	struct pst_table *t =
		table_of((struct pst_schema){.kind = PST_DENSE, .dim = 4, .dense_rows = 10}, PST_RULE_LAMB);
	uint64_t keys[2] = {9, 0}, bad = 10;
	float grads[8] = {1, 1, 1, 1, 1, 1, 1, 1}, before[8], after[8];
	struct pst_pull pull = {0};
	struct pst_push how = {0};
	struct far_err err;
	pst_pull(t, keys, 2, &pull, before, NULL, NULL, NULL);
	cr_assert_eq(pst_push(t, keys, 2, &how, grads, NULL, NULL), FAR_OK);
	pst_pull(t, keys, 2, &pull, after, NULL, NULL, NULL);
	for (int i = 0; i < 8; i++)
		cr_assert(after[i] < before[i]);
	cr_assert_eq(pst_push(t, &bad, 1, &how, grads, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "key 10"), "%s", err.text);
	pst_table_free(t);
}

/* ---- Values ---- */

static struct pst_table *values(uint32_t value_max, uint64_t rows_max, enum pst_full full, uint64_t ttl_ms)
{
	return table_of((struct pst_schema){.kind = PST_VALUES,
					    .value_max = value_max,
					    .rows_max = rows_max,
					    .full = full,
					    .ttl_ms = ttl_ms},
			PST_RULE_SGD);
}

/* Against a plain array. */
Test(pst_write, values_of_random_lengths)
{
	enum { KEYS = 400, MAX = 3000, BATCH = 20 };
	static unsigned char model[KEYS][MAX], bytes[BATCH * MAX];
	static int length[KEYS]; /* -1: none */
	memset(length, 0xff, sizeof length);
	struct pst_table *t = values(MAX, 0, PST_FULL_REFUSE, 0);
	uint64_t seed = 5, n = 0;
	for (int step = 0; step < 20000; step++) {
		uint64_t keys[BATCH];
		uint32_t count = 1 + (uint32_t)(draw64(&seed) % BATCH), offsets[BATCH + 1] = {0};
		uint8_t status[BATCH];
		for (uint32_t i = 0; i < count; i++)
			keys[i] = draw64(&seed) % KEYS;
		size_t needed;
		switch (draw64(&seed) % 3) {
		case 0: {
			bool had[KEYS];
			for (unsigned k = 0; k < KEYS; k++)
				had[k] = length[k] >= 0;
			for (uint32_t i = 0; i < count; i++) {
				uint32_t len = (uint32_t)(draw64(&seed) % (draw64(&seed) % 4 ? 200 : MAX + 1));
				offsets[i + 1] = offsets[i] + len;
				for (uint32_t j = 0; j < len; j++)
					bytes[offsets[i] + j] = (unsigned char)draw64(&seed);
				memcpy(model[keys[i]], bytes + offsets[i], len);
				n += length[keys[i]] < 0;
				length[keys[i]] = (int)len;
			}
			cr_assert_eq(pst_value_put(t, keys, count, offsets, bytes, 0, status, NULL), FAR_OK);
			for (uint32_t i = 0; i < count; i++)
				cr_assert(status[i] == (had[keys[i]] ? PST_ROW : PST_NEW) ||
					  (!had[keys[i]] && status[i] == PST_ROW));
			break;
		}
		case 1:
			cr_assert_eq(
				pst_value_get(t, keys, count, offsets, bytes, sizeof bytes, &needed, 0, status, NULL),
				FAR_OK);
			cr_assert_eq(needed, offsets[count]);
			for (uint32_t i = 0; i < count; i++) {
				int len = length[keys[i]];
				cr_assert_eq(status[i], len < 0 ? PST_MISSING : PST_ROW);
				cr_assert_eq(offsets[i + 1] - offsets[i], len < 0 ? 0u : (uint32_t)len);
				cr_assert(len <= 0 || memcmp(bytes + offsets[i], model[keys[i]], (size_t)len) == 0);
			}
			break;
		default:
			count = count / 8 + 1;
			cr_assert_eq(pst_erase(t, keys, count, status, NULL), FAR_OK);
			for (uint32_t i = 0; i < count; i++) {
				n -= length[keys[i]] >= 0;
				length[keys[i]] = -1;
			}
			break;
		}
		cr_assert_eq(rows_of(t), n);
	}
	pst_table_free(t);
}

Test(pst_write, values_have_bounds)
{
	struct pst_table *t = values(10, 2, PST_FULL_REFUSE, 0);
	uint64_t keys[3] = {1, 2, 3};
	uint32_t offsets[4] = {0, 10, 13, 13}, longer[4] = {0, 2, 13, 13}, got[4];
	uint8_t status[3];
	char out[20];
	size_t needed;
	struct far_err err;
	cr_assert_eq(pst_value_put(t, keys, 3, longer, "abcdefghijklm", 0, status, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "key 2 has 11 bytes"), "%s", err.text);
	cr_assert_eq(rows_of(t), 0);
	cr_assert_eq(pst_value_put(t, keys, 3, offsets, "abcdefghijklm", 0, status, &err), FAR_OK);
	cr_assert_eq(status[2], PST_REFUSED);
	cr_assert_eq(pst_value_get(t, keys, 3, got, out, 12, &needed, 0, status, &err), FAR_TOO_LARGE);
	cr_assert_eq(needed, 13);
	cr_assert_eq(pst_value_get(t, keys, 3, got, out, 13, &needed, 0, status, &err), FAR_OK);
	cr_assert_eq(memcmp(out, "abcdefghijklm", 13), 0);
	cr_assert_eq(status[2], PST_MISSING);
	pst_table_free(t);
	t = values(10, 2, PST_FULL_LRU, 1000);
	cr_assert_eq(pst_value_put(t, keys, 1, offsets, "abcdefghijklm", 0, status, &err), FAR_OK);
	cr_assert_eq(pst_value_put(t, keys + 1, 1, offsets, "abcdefghijklm", 640, status, &err), FAR_OK);
	cr_assert_eq(pst_value_get(t, keys, 1, got, out, 20, &needed, 720, status, &err), FAR_OK);
	cr_assert_eq(pst_value_put(t, keys + 2, 1, offsets, "abcdefghijklm", 800, status, &err), FAR_OK);
	cr_assert_eq(rows_of(t), 2);
	cr_assert_eq(pst_value_get(t, keys, 3, got, out, 20, &needed, 800, status, &err), FAR_OK);
	cr_assert(status[0] == PST_ROW && status[1] == PST_MISSING && status[2] == PST_ROW);
	cr_assert_eq(pst_value_get(t, keys, 3, got, out, 20, &needed, 1300, status, &err), FAR_OK);
	cr_assert(status[0] == PST_MISSING && status[2] == PST_ROW, "its time is over");
	pst_table_free(t);
}

Test(pst_write, rows_and_values_are_not_mixed_up)
{
	struct pst_table *rows = table_of((struct pst_schema){.dim = 1}, PST_RULE_SGD),
			 *bytes = values(10, 0, PST_FULL_REFUSE, 0);
	uint64_t key = 1;
	uint32_t offsets[2] = {0, 1};
	float x = 1;
	size_t needed;
	struct pst_push push = {0};
	struct pst_pull pull = {0};
	struct far_err err;
	cr_assert_eq(pst_push(bytes, &key, 1, &push, &x, NULL, &err), FAR_UNSUPPORTED);
	cr_assert_eq(pst_assign(bytes, &key, 1, &push, &x, NULL, NULL, &err), FAR_UNSUPPORTED);
	cr_assert_eq(pst_pull(bytes, &key, 1, &pull, &x, NULL, NULL, &err), FAR_UNSUPPORTED);
	cr_assert_eq(pst_value_put(rows, &key, 1, offsets, "a", 0, NULL, &err), FAR_UNSUPPORTED);
	cr_assert_eq(pst_value_get(rows, &key, 1, offsets, &x, 4, &needed, 0, NULL, &err), FAR_UNSUPPORTED);
	pst_table_free(rows);
	pst_table_free(bytes);
}
