/* SPDX-License-Identifier: BSD-3-Clause */
/** Pulls from a table: types on the wire, missing keys, dense tables, bags. The test's thread. */
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>

TestSuite(pst_read);

static struct pst_table *table(enum pst_kind kind, unsigned dim, enum pst_type stored)
{
	struct pst_schema s = {.kind = kind, .dim = dim, .stored = stored, .dense_rows = kind == PST_DENSE ? 3000 : 0};
	s.init = (struct pst_init){.kind = PST_INIT_NORMAL, .a = 0, .b = 1, .seed = 9};
	pst_rule_defaults(&s.rule, PST_RULE_SGD);
	struct pst_table *t;
	struct far_err err;
	cr_assert_eq(pst_table_new(&s, NULL, &t, &err), FAR_OK, "%s", err.text);
	return t;
}

/* What a row made of initial values is, as f32, stored in a type. */
static void fresh(const struct pst_table *t, uint64_t key, float *row)
{
	const struct pst_schema *s = pst_table_schema(t);
	const struct pst_kernels *k = pst_kernels_nth(0);
	char narrow[4 * 600];
	pst_init_row(&s->init, key, row, s->dim);
	k->narrow(s->stored, narrow, row, s->dim);
	k->widen(s->stored, row, narrow, s->dim, 0);
}

/* More keys with one home line than its five places: the others are in the lines behind. */
Test(pst_read, keys_far_from_their_home_lines_are_found)
{
	enum { N = 400 };
	static uint64_t keys[N];
	static float out[N][16];
	uint8_t status[N];
	struct pst_table *t = table(PST_SPARSE, 16, PST_F32);
	for (unsigned i = 0; i < N; i++)
		keys[i] = key_of((UINT64_C(77) << 52) + i);
	struct pst_pull how = {.miss = PST_MISS_MAKE};
	cr_assert_eq(pst_pull(t, keys, N / 2, &how, NULL, NULL, NULL, NULL), FAR_OK);
	how.miss = PST_MISS_FALLBACK;
	cr_assert_eq(pst_pull(t, keys, N, &how, out, NULL, status, NULL), FAR_OK);
	for (unsigned i = 0; i < N; i++) {
		float want[16] = {0};
		if (i < N / 2)
			fresh(t, keys[i], want);
		cr_assert_eq(status[i], i < N / 2 ? PST_ROW : PST_MISSING, "key %u", i);
		cr_assert_arr_eq(out[i], want, sizeof want);
	}
	pst_table_free(t);
}

/* Every stored type in every wire type, rows of all sorts of sizes, keys with repeats, more than the pipeline holds. */
Test(pst_read, every_type_on_the_wire)
{
	static const unsigned dims[] = {1, 3, 16, 17, 32, 128, 512};
	enum { N = 1500 };
	static uint64_t keys[N];
	for (unsigned d = 0; d < sizeof dims / sizeof *dims; d++)
		for (unsigned stored = PST_F32; stored <= PST_F16; stored++)
			for (unsigned wire = PST_F32; wire <= PST_INT8; wire++) {
				unsigned dim = dims[d];
				struct pst_table *t = table(PST_SPARSE, dim, stored);
				uint64_t seed = d;
				for (unsigned i = 0; i < N; i++)
					keys[i] = draw64(&seed) % 900;
				struct pst_pull how = {.wire = wire, .miss = PST_MISS_MAKE};
				char *out = calloc(N * dim, 4), *want = calloc(dim, 4);
				float scales[N], row[512];
				uint8_t status[N];
				for (int round = 0; round < 2; round++) {
					memset(out, 0, N * dim * 4);
					cr_assert_eq(pst_pull(t, keys, N, &how, out, wire == PST_INT8 ? scales : NULL,
							      status, NULL),
						     FAR_OK);
					for (unsigned i = 0; i < N; i++) {
						cr_assert_eq(status[i], round ? PST_ROW : PST_NEW);
						fresh(t, keys[i], row);
						float scale = pst_kernels_nth(0)->narrow(wire, want, row, dim);
						size_t bytes = dim * pst_type_bytes(wire);
						cr_assert_eq(memcmp(out + i * bytes, want, bytes), 0,
							     "dim %u, %u as %u", dim, stored, wire);
						if (wire == PST_INT8)
							cr_assert(scales[i] == scale);
					}
				}
				free(out);
				free(want);
				pst_table_free(t);
			}
}

Test(pst_read, missing_keys_get_what_the_caller_chose)
{
	struct pst_table *t = table(PST_SPARSE, 2, PST_BF16);
	uint64_t keys[2] = {1, 2};
	float out[4], row[2], fallback[2] = {5, 6};
	uint8_t status[2];
	struct pst_pull how = {.miss = PST_MISS_FALLBACK};
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, status, NULL), FAR_OK);
	cr_assert(out[0] == 0 && out[3] == 0 && status[0] == PST_MISSING);
	how.fallback = fallback;
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, status, NULL), FAR_OK);
	cr_assert(out[0] == 5 && out[3] == 6 && status[1] == PST_MISSING);
	how.miss = PST_MISS_INITIAL;
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, status, NULL), FAR_OK);
	fresh(t, 2, row);
	cr_assert(out[2] == row[0] && out[3] == row[1] && status[1] == PST_MISSING);
	struct pst_stats stats;
	pst_table_stats(t, &stats);
	cr_assert_eq(stats.rows, 0);
	pst_table_free(t);
}

Test(pst_read, dense_tables_have_all_their_rows_and_no_others)
{
	struct pst_table *t = table(PST_DENSE, 3, PST_F32);
	uint64_t keys[3] = {0, 2999, 1500}, out_of_range[2] = {5, 3000};
	float out[9], row[3];
	uint8_t status[3];
	struct far_err err;
	struct pst_pull how = {0};
	cr_assert_eq(pst_pull(t, keys, 3, &how, out, NULL, status, NULL), FAR_OK);
	for (int i = 0; i < 3; i++) {
		fresh(t, keys[i], row);
		cr_assert_eq(memcmp(out + 3 * i, row, sizeof row), 0);
		cr_assert_eq(status[i], PST_ROW);
	}
	cr_assert_eq(pst_pull(t, out_of_range, 2, &how, out, NULL, status, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "3000"), "%s", err.text);
	cr_assert_eq(pst_erase(t, keys, 1, NULL, &err), FAR_UNSUPPORTED);
	struct pst_cursor c;
	pst_scan_all(t, &c);
	uint64_t found[700], next = 0;
	float rows[700 * 3];
	while (!c.done) {
		uint32_t n = pst_scan(t, &c, 0, 700, found, rows, NULL, NULL);
		for (uint32_t i = 0; i < n; i++, next++) {
			cr_assert_eq(found[i], next);
			fresh(t, next, row);
			cr_assert_eq(memcmp(rows + 3 * i, row, sizeof row), 0);
		}
	}
	cr_assert_eq(next, 3000);
	pst_table_free(t);
}

static void try_bags(enum pst_type stored, enum pst_pool pool, bool weighted, enum pst_miss miss, uint64_t seed)
{
	enum { N = 700, BAGS = 120, DIM = 19 };
	struct pst_table *t = table(PST_SPARSE, DIM, stored);
	static uint64_t keys[N];
	uint32_t offsets[BAGS + 1] = {0};
	static float weights[N], out[BAGS * DIM];
	uint8_t status[N];
	float fallback[DIM];
	for (unsigned i = 0; i < DIM; i++)
		fallback[i] = (float)i;
	for (unsigned i = 0; i < N; i++) {
		keys[i] = draw64(&seed) % 500;
		weights[i] = draw_float(&seed, -1, 1);
	}
	for (unsigned b = 0; b < BAGS; b++) {
		uint32_t next = offsets[b] + (uint32_t)(draw64(&seed) % 3 ? draw64(&seed) % 12 : 0);
		offsets[b + 1] = b == BAGS - 4 || next > N ? N : next; /* the last ones are empty */
	}
	struct pst_pull make = {.miss = PST_MISS_MAKE}, how = {.miss = miss, .fallback = fallback};
	cr_assert_eq(pst_pull(t, keys, N / 2, &make, NULL, NULL, NULL, NULL), FAR_OK);
	bool there[500] = {false};
	for (unsigned i = 0; i < N / 2; i++)
		there[keys[i]] = true;
	cr_assert_eq(pst_pull_bags(t, keys, N, offsets, BAGS, weighted ? weights : NULL, pool, &how, out, NULL, status,
				   NULL),
		     FAR_OK);
	for (unsigned b = 0; b < BAGS; b++) {
		float sum[DIM] = {0}, total = 0, row[DIM];
		for (uint32_t i = offsets[b]; i < offsets[b + 1]; i++) {
			float w = weighted ? weights[i] : 1;
			fresh(t, keys[i], row);
			if (!there[keys[i]])
				cr_assert_eq(status[i], miss == PST_MISS_MAKE ? PST_NEW : PST_MISSING);
			else
				cr_assert_eq(status[i], PST_ROW);
			for (unsigned d = 0; d < DIM; d++)
				sum[d] += w * (there[keys[i]] || miss != PST_MISS_FALLBACK ? row[d] : fallback[d]);
			total += w;
		}
		for (unsigned d = 0; d < DIM; d++) {
			float want = pool == PST_POOL_SUM ? sum[d] : total < 0 || total > 0 ? sum[d] / total : 0;
			cr_assert(out[b * DIM + d] == want, "bag %u: %a, not %a", b, (double)out[b * DIM + d],
				  (double)want);
		}
	}
	pst_table_free(t);
}

Test(pst_read, bags_are_pooled)
{
	for (unsigned stored = PST_F32; stored <= PST_F16; stored++)
		for (unsigned pool = PST_POOL_SUM; pool <= PST_POOL_MEAN; pool++)
			for (unsigned weighted = 0; weighted < 2; weighted++)
				for (unsigned miss = PST_MISS_FALLBACK; miss <= PST_MISS_MAKE; miss++)
					try_bags(stored, pool, weighted, miss, 10 * stored + miss);
}

Test(pst_read, bad_requests_are_refused)
{
	struct pst_table *t = table(PST_SPARSE, 2, PST_F32);
	static uint64_t keys[PST_CHUNK_KEYS + 1];
	float out[4], scales[2];
	struct far_err err;
	struct pst_pull how = {.wire = PST_INT8};
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, NULL, &err), FAR_INVALID);
	how.wire = PST_F32;
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, scales, NULL, &err), FAR_INVALID);
	cr_assert_eq(pst_pull(t, keys, PST_CHUNK_KEYS + 1, &how, NULL, NULL, NULL, &err), FAR_INVALID);
	cr_assert(strstr(err.text, "8193"), "%s", err.text);
	how.wire = PST_TYPES;
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, NULL, &err), FAR_INVALID);
	how.wire = PST_F32;
	how.miss = 3;
	cr_assert_eq(pst_pull(t, keys, 2, &how, out, NULL, NULL, &err), FAR_INVALID);
	how.miss = PST_MISS_FALLBACK;
	uint32_t bad[4][3] = {{1, 1, 2}, {0, 1, 1}, {0, 2, 1}, {0, 3, 2}};
	for (int i = 0; i < 4; i++)
		cr_assert_eq(pst_pull_bags(t, keys, 2, bad[i], 2, NULL, PST_POOL_SUM, &how, out, NULL, NULL, &err),
			     FAR_INVALID, "%d", i);
	uint32_t good[3] = {0, 1, 2};
	cr_assert_eq(pst_pull_bags(t, keys, 2, good, 2, NULL, 2, &how, out, NULL, NULL, &err), FAR_INVALID);
	cr_assert_eq(pst_pull(t, keys, 0, &how, out, NULL, NULL, &err), FAR_OK);
	pst_table_free(t);
}
