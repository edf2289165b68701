/* SPDX-License-Identifier: BSD-3-Clause */
/** Tables: schemas, and allocations that fail. The test's thread. */
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

TestSuite(pst_table);

static struct pst_schema sparse(unsigned dim, enum pst_rule_kind kind)
{
	struct pst_schema s = {
		.kind = PST_SPARSE, .dim = dim, .init = {.kind = PST_INIT_UNIFORM, .a = -1, .b = 1, .seed = 5}};
	pst_rule_defaults(&s.rule, kind);
	return s;
}

static struct pst_table *table(const struct pst_schema *s)
{
	struct pst_table *t;
	struct far_err err;
	cr_assert_eq(pst_table_new(s, NULL, &t, &err), FAR_OK, "%s", err.text);
	return t;
}

static void make(struct pst_table *t, uint64_t from, uint64_t to, uint64_t now)
{
	uint64_t keys[PST_CHUNK_KEYS];
	struct pst_pull how = {.miss = PST_MISS_MAKE, .now_ms = now};
	while (from < to) {
		uint32_t n = 0;
		for (; n < PST_CHUNK_KEYS && from < to; n++)
			keys[n] = from++;
		cr_assert_eq(pst_pull(t, keys, n, &how, NULL, NULL, NULL, NULL), FAR_OK);
	}
}

static bool exists(struct pst_table *t, uint64_t key, uint64_t now)
{
	struct pst_pull how = {.miss = PST_MISS_FALLBACK, .now_ms = now};
	uint8_t status;
	cr_assert_eq(pst_pull(t, &key, 1, &how, NULL, NULL, &status, NULL), FAR_OK);
	return status == PST_ROW;
}

Test(pst_table, bad_schemas_are_refused_with_the_field)
{
	struct pst_schema good = sparse(4, PST_RULE_ADAGRAD), s;
	struct pst_table *t = NULL;
	struct far_err err;
#define REFUSED(change, word)                                                                                          \
	do {                                                                                                           \
		s = good;                                                                                              \
		change;                                                                                                \
		cr_assert_eq(pst_table_new(&s, NULL, &t, &err), FAR_INVALID, #change);                                 \
		cr_assert(strstr(err.text, word), "%s: %s", #change, err.text);                                        \
		cr_assert_null(t);                                                                                     \
	} while (0)
	REFUSED(s.dim = 0, "dim");
	REFUSED(s.dim = PST_DIM_MAX + 1, "65537");
	REFUSED(s.stored = PST_INT8, "type 3");
	REFUSED(s.kind = 9, "kind 9");
	REFUSED(s.full = 9, "full is 9");
	REFUSED(s.admit = 256, "admit is 256");
	REFUSED(s.candidates = UINT64_MAX, "admit_candidates 18446744073709551615");
	REFUSED(s.rows_max = UINT64_C(1) << 33, "rows_max");
	REFUSED(s.dense_rows = 5, "dense_rows");
	REFUSED(s.rule.kind = PST_RULE_LAMB; s.rule.decay = -1, "decay");
	REFUSED(s.rule.rate = 0, "rate");
	REFUSED(s.rule.rate = NAN, "rate");
	REFUSED(s.rule.epsilon = 0, "epsilon");
	REFUSED(s.rule.l1 = -1, "l1");
	REFUSED(s.rule.clip_norm = INFINITY, "clip_norm");
	REFUSED(s.rule.kind = PST_RULE_USER, "function");
	REFUSED(s.rule.kind = PST_RULE_ADAM; s.rule.beta2 = 1, "beta2");
	REFUSED(s.rule.kind = PST_RULE_MOMENTUM; s.rule.beta1 = -0.1f, "beta1");
	REFUSED(s.init.a = NAN, "init.a is nan");
	REFUSED(s.init.kind = 3, "init.kind is 3");
	REFUSED(s.init = ((struct pst_init){PST_INIT_NORMAL, 0, -1, 0}), "init.b is -1");
	REFUSED(s.init = ((struct pst_init){PST_INIT_UNIFORM, 1, 0, 0}), "from a, 1, to b, 0");
	/* Values that are infinite as they are stored. */
	REFUSED(s.init = ((struct pst_init){PST_INIT_NORMAL, 0, 1e38f, 0}), "up to 6.4e+38");
	REFUSED(s.stored = PST_F16;
		s.init = ((struct pst_init){PST_INIT_CONSTANT, -65505, 0, 0}), "up to 65505 are beyond");
	REFUSED(s.stored = PST_F16; s.init = ((struct pst_init){PST_INIT_UNIFORM, -1e6f, 1, 0}), "up to 1e+06");
	REFUSED(s.stored = PST_BF16; s.init = ((struct pst_init){PST_INIT_CONSTANT, -3.4e38f, 0, 0}), "up to 3.4e+38");
	REFUSED(s.value_max = 5, "value_max");
	REFUSED(s.ttl_ms = UINT64_MAX, "ttl_ms is 18446744073709551615");
	REFUSED(s.kind = PST_DENSE, "dense_rows");
	REFUSED(s.kind = PST_DENSE; s.dense_rows = 5; s.ttl_ms = 1, "TTL");
	REFUSED(s.kind = PST_VALUES, "value_max");
	REFUSED(s.kind = PST_VALUES; s.dim = 0; s.value_max = PST_VALUE_MAX + 1, "value_max");
}

Test(pst_table, every_failed_allocation_of_a_new_table_is_reported)
{
	struct pst_schema schemas[3] = {sparse(16, PST_RULE_ADAGRAD), sparse(16, PST_RULE_ADAGRAD),
					sparse(16, PST_RULE_LAMB)};
	schemas[0].admit = 3;
	schemas[1] = (struct pst_schema){.kind = PST_VALUES, .value_max = 100};
	schemas[2].kind = PST_DENSE;
	schemas[2].dense_rows = 70000;
	for (int i = 0; i < 3; i++) {
		struct fake_memory f;
		fake_memory_init(&f);
		struct pst_table *t = NULL;
		for (uint64_t at = 1;; at++) {
			struct far_err err;
			f.fail_at = f.gets + at;
			enum far_status rc = pst_table_new(&schemas[i], &f.memory, &t, &err);
			if (rc == FAR_OK) {
				cr_assert_geq(at, 6);
				break;
			}
			cr_assert_eq(rc, FAR_RESOURCE);
			cr_assert_null(t);
			cr_assert_eq(f.blocks, 0, "allocation %lu", (unsigned long)at);
		}
		pst_table_free(t);
		cr_assert_eq(f.blocks, 0);
		cr_assert_eq(f.bytes, 0);
	}
}

/* A digest of all that can be read of a table. */
static uint64_t digest(struct pst_table *t)
{
	struct pst_cursor c;
	pst_scan_all(t, &c);
	uint64_t keys[64], h = 1;
	float rows[64 * 16], state[64 * 16];
	bool values = pst_table_schema(t)->kind == PST_VALUES;
	while (!c.done) {
		uint32_t n = pst_scan(t, &c, 0, 64, keys, rows, state, NULL);
		for (uint32_t i = 0; i < n; i++)
			h = pst_hash(h ^ keys[i]);
		for (uint32_t i = 0; i < n * 16 && !values; i++) {
			uint32_t a, b;
			memcpy(&a, &rows[i], 4);
			memcpy(&b, &state[i], 4);
			h = pst_hash(h ^ ((uint64_t)a << 32 | b));
		}
		for (uint32_t i = 0; i < n && values; i++) {
			unsigned char bytes[70000];
			uint32_t offsets[2];
			size_t needed;
			cr_assert_eq(
				pst_value_get(t, &keys[i], 1, offsets, bytes, sizeof bytes, &needed, 0, NULL, NULL),
				FAR_OK);
			h = pst_hash(h ^ needed);
			for (size_t j = 0; j < needed; j += 1 + needed / 20)
				h = pst_hash(h ^ bytes[j]);
		}
	}
	struct pst_stats s;
	pst_table_stats(t, &s);
	return pst_hash(h ^ s.rows) ^ pst_hash(s.made * 3 + s.waited * 5 + s.refused * 7);
}

/* One operation on many new keys in a new table, with the n-th allocation failing, for all n. */
static void fail_each(const struct pst_schema *s, enum far_status (*operation)(struct pst_table *, struct far_err *),
		      uint64_t least)
{
	struct pst_table *whole = table(s);
	cr_assert_eq(operation(whole, NULL), FAR_OK);
	uint64_t want = digest(whole);
	pst_table_free(whole);
	for (uint64_t n = 1;; n++) {
		struct fake_memory f;
		fake_memory_init(&f);
		struct pst_table *t;
		cr_assert_eq(pst_table_new(s, &f.memory, &t, NULL), FAR_OK);
		uint64_t before = digest(t);
		struct far_err err;
		f.fail_at = f.gets + n;
		enum far_status rc = operation(t, &err);
		bool failed = f.gets >= f.fail_at;
		f.fail_at = 0;
		if (failed) {
			cr_assert_eq(rc, FAR_RESOURCE);
			cr_assert(strstr(err.text, "no memory"), "%s", err.text);
			cr_assert_eq(digest(t), before, "allocation %lu", (unsigned long)n);
			cr_assert_eq(operation(t, &err), FAR_OK, "the next attempt succeeds");
		}
		cr_assert_eq(digest(t), want, "what failed has left no trace");
		pst_table_free(t);
		cr_assert_eq(f.blocks, 0);
		cr_assert_eq(f.bytes, 0);
		if (failed)
			continue;
		cr_assert_eq(rc, FAR_OK);
		cr_assert_gt(n, least);
		break;
	}
}

#define MANY 8192u
static uint64_t many_keys[MANY];
static float many_numbers[MANY * 16];

static void many(void)
{
	for (uint32_t i = 0; i < MANY; i++)
		many_keys[i] = i % (MANY / 2) * 3; /* each twice, far apart */
	for (uint32_t i = 0; i < MANY * 16; i++)
		many_numbers[i] = (float)(i % 100) * 0.01f;
}

static enum far_status many_pulled(struct pst_table *t, struct far_err *err)
{
	static float out[MANY * 16];
	struct pst_pull how = {.miss = PST_MISS_MAKE};
	return pst_pull(t, many_keys, MANY, &how, out, NULL, NULL, err);
}

static enum far_status many_pushed(struct pst_table *t, struct far_err *err)
{
	struct pst_push how = {0};
	return pst_push(t, many_keys, MANY, &how, many_numbers, NULL, err);
}

static enum far_status many_assigned(struct pst_table *t, struct far_err *err)
{
	struct pst_push how = {0};
	return pst_assign(t, many_keys, MANY, &how, many_numbers, many_numbers, NULL, err);
}

static enum far_status many_put(struct pst_table *t, struct far_err *err)
{
	static uint32_t offsets[MANY + 1];
	static char bytes[MANY * 2000];
	for (uint32_t i = 0; i <= MANY; i++)
		offsets[i] = i * 1999;
	return pst_value_put(t, many_keys, MANY, offsets, bytes, 0, NULL, err);
}

Test(pst_table, an_allocation_that_fails_changes_nothing)
{
	many();
	struct pst_schema s = sparse(16, PST_RULE_ADAGRAD);
	fail_each(&s, many_pulled, 5);
	fail_each(&s, many_pushed, 6);
	fail_each(&s, many_assigned, 6);
	s.admit = 2;
	fail_each(&s, many_pushed, 6);
	s.admit = 0;
	s.full = PST_FULL_LFU;
	s.ttl_ms = 1000;
	s.rows_max = 100;
	fail_each(&s, many_pushed, 10);
	struct pst_schema v = {.kind = PST_VALUES, .value_max = 2000};
	fail_each(&v, many_put, 10);
}

/* Bytes of the process' anonymous memory in the table's pages: those of /proc/self/statm. */
static size_t resident(void)
{
	unsigned long size, pages;
	FILE *f = fopen("/proc/self/statm", "r");
	cr_assert_eq(fscanf(f, "%lu %lu", &size, &pages), 2);
	fclose(f);
	return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* From a million rows of 16 floats on, at every 50 000. */
static void memory_is_bounded(enum pst_rule_kind kind, size_t state_bytes, bool ahead)
{
	struct pst_schema s = sparse(16, kind);
	size_t before = resident();
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_table *t;
	cr_assert_eq(pst_table_new(&s, &f.memory, &t, NULL), FAR_OK);
	for (uint64_t rows = 0; rows < 2500000;) {
		make(t, rows, rows + 5000, 0);
		rows += 5000;
		while (ahead && pst_table_ahead(t))
			;
		if (rows < 1000000 || rows % 50000)
			continue;
		struct pst_stats stats;
		pst_table_stats(t, &stats);
		double bound = 1.25 * (double)rows * (64 + (double)state_bytes + 8 + 8);
		cr_assert_eq(stats.rows, rows);
		cr_assert_leq((double)stats.bytes, bound,
			      "%.2f bytes a row by the table's count, bound %.2f, at %lu rows",
			      (double)stats.bytes / (double)rows, bound / (double)rows, (unsigned long)rows);
#ifndef UNDER_SANITIZER
		size_t now = resident() - before;
		cr_assert_leq((double)now, bound + (4 << 20),
			      "%.2f bytes a row by the system's count, bound %.2f, at %lu rows",
			      (double)now / (double)rows, bound / (double)rows, (unsigned long)rows);
		cr_assert_leq((double)now, 1.02 * (double)stats.bytes + (4 << 20),
			      "the table holds more than it counts");
#else
		(void)before;
#endif
		cr_assert_leq(stats.bytes, f.bytes + 4096 * 64, "it counts no more than it has");
	}
	pst_table_free(t);
}

Test(pst_table, memory_without_state)
{
	memory_is_bounded(PST_RULE_SGD, 0, false);
}

Test(pst_table, memory_with_state_and_prepared_slabs)
{
	memory_is_bounded(PST_RULE_ADAGRAD, 64, true);
}

Test(pst_table, prepared_slabs_are_used)
{
	struct pst_schema s = sparse(16, PST_RULE_ADAGRAD);
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_table *t;
	cr_assert_eq(pst_table_new(&s, &f.memory, &t, NULL), FAR_OK);
	cr_assert_not(pst_table_ahead(t), "a new table wants nothing");
	make(t, 0, 20000, 0);
	cr_assert(pst_table_ahead(t));
	cr_assert_not(pst_table_ahead(t));
	uint64_t gets = f.gets;
	make(t, 20000, 33000, 0);
	cr_assert_eq(f.gets, gets, "the owner mapped a slab");
	pst_table_free(t);
	cr_assert_eq(f.blocks, 0);
}

Test(pst_table, a_full_table_that_refuses)
{
	struct pst_schema s = sparse(1, PST_RULE_SGD);
	s.rows_max = 3;
	s.init = (struct pst_init){.kind = PST_INIT_CONSTANT, .a = 4};
	struct pst_table *t = table(&s);
	uint64_t keys[5] = {1, 2, 1, 3, 4};
	float grads[5] = {1, 1, 1, 1, 1}, out[5];
	uint8_t status[5];
	struct pst_push push = {.rate = 1};
	cr_assert_eq(pst_push(t, keys, 5, &push, grads, status, NULL), FAR_OK);
	uint8_t want[5] = {PST_NEW, PST_NEW, PST_NEW, PST_NEW, PST_REFUSED};
	cr_assert_eq(memcmp(status, want, 5), 0);
	float fallback = -7;
	struct pst_pull pull = {.miss = PST_MISS_MAKE, .fallback = &fallback};
	cr_assert_eq(pst_pull(t, keys, 5, &pull, out, NULL, status, NULL), FAR_OK);
	cr_assert_eq(status[4], PST_REFUSED);
	cr_assert(out[0] == 2 && out[1] == 3 && out[2] == 2 && out[3] == 3);
	cr_assert(out[4] == 4, "%g", (double)out[4]);
	cr_assert_eq(pst_erase(t, keys, 1, status, NULL), FAR_OK);
	cr_assert_eq(pst_push(t, keys + 4, 1, &push, grads, status, NULL), FAR_OK);
	cr_assert_eq(status[0], PST_NEW);
	pst_table_free(t);
}

/* 1000 rows are used all the time; of 20 000 others each is used once. */
static double kept(enum pst_full full)
{
	struct pst_schema s = sparse(4, PST_RULE_SGD);
	s.rows_max = 2000;
	s.full = full;
	struct pst_table *t = table(&s);
	uint64_t now = 0;
	for (int round = 0; round < 5; round++, now += 64)
		make(t, 0, 1000, now);
	for (uint64_t i = 0; i < 20000; i += 100) {
		now += full == PST_FULL_LRU ? 640 : 64; /* a minute without use would count */
		make(t, 10000 + i, 10100 + i, now);
		/* LFU keeps the frequent ones although they are silent. */
		if (full == PST_FULL_LRU)
			make(t, 0, 1000, now);
		struct pst_stats stats;
		pst_table_stats(t, &stats);
		cr_assert_leq(stats.rows, 2000);
	}
	unsigned n = 0;
	for (uint64_t i = 0; i < 1000; i++)
		n += exists(t, i, now);
	struct pst_stats stats;
	pst_table_stats(t, &stats);
	cr_assert_eq(stats.rows, 2000);
	cr_assert_geq(stats.evicted, 19000);
	pst_table_free(t);
	return n / 1000.0;
}

Test(pst_table, lru_keeps_what_is_used)
{
	cr_assert_geq(kept(PST_FULL_LRU), 0.99);
}

Test(pst_table, lfu_keeps_what_was_used_often)
{
	cr_assert_geq(kept(PST_FULL_LFU), 0.9);
}

Test(pst_table, lfu_forgets_what_is_silent_for_long)
{
	struct pst_schema s = sparse(4, PST_RULE_SGD);
	s.rows_max = 100;
	s.full = PST_FULL_LFU;
	struct pst_table *t = table(&s);
	for (int round = 0; round < 50; round++)
		make(t, 0, 100, 0);
	uint64_t later = 60 * 60000;
	make(t, 1000, 1100, later);
	unsigned old = 0;
	for (uint64_t i = 0; i < 100; i++)
		old += exists(t, i, later);
	cr_assert_leq(old, 25, "%u", old);
	pst_table_free(t);
}

Test(pst_table, a_row_stays_as_long_as_its_ttl_after_its_last_push)
{
	struct pst_schema s = sparse(2, PST_RULE_SGD);
	s.ttl_ms = 1000;
	struct pst_table *t = table(&s);
	float grad[2] = {1, 1};
	uint64_t key = 5;
	for (uint64_t start = 0; start < 300; start += 7) {
		uint64_t base = start * 10007;
		struct pst_push push = {.now_ms = base};
		cr_assert_eq(pst_push(t, &key, 1, &push, grad, NULL, NULL), FAR_OK);
		for (uint64_t age = 900; age <= 1000; age++)
			cr_assert(exists(t, 5, base + age), "gone after %lu ms", (unsigned long)age);
		push.now_ms = base + 1000;
		cr_assert_eq(pst_push(t, &key, 1, &push, grad, NULL, NULL), FAR_OK);
		cr_assert(exists(t, 5, base + 2000), "a push renews it");
		cr_assert_not(exists(t, 5, base + 2129));
		uint8_t status;
		push.now_ms = base + 2129;
		cr_assert_eq(pst_push(t, &key, 1, &push, grad, &status, NULL), FAR_OK);
		cr_assert_eq(status, PST_NEW, "it begins anew");
		float row[2], want[2];
		struct pst_pull pull = {.now_ms = base + 2129};
		cr_assert_eq(pst_pull(t, &key, 1, &pull, row, NULL, NULL, NULL), FAR_OK);
		pst_init_row(&s.init, 5, want, 2);
		cr_assert(row[0] == want[0] - s.rule.rate * 1);
	}
	pst_table_free(t);
}

Test(pst_table, eviction_goes_round_the_table)
{
	struct pst_schema s = sparse(2, PST_RULE_SGD);
	s.ttl_ms = 1000;
	struct pst_table *t = table(&s);
	make(t, 0, 5000, 0);
	make(t, 5000, 8000, 5000);
	uint32_t removed = 0;
	for (int i = 0; i < 20; i++) {
		uint32_t one = pst_evict(t, 5000, 1000);
		cr_assert_leq(one, 1000);
		removed += one;
	}
	cr_assert_eq(removed, 5000);
	struct pst_stats stats;
	pst_table_stats(t, &stats);
	cr_assert_eq(stats.rows, 3000);
	cr_assert_eq(stats.expired, 5000);
	pst_table_free(t);
}

Test(pst_table, rows_are_whole_lines_where_their_size_permits)
{
	static const unsigned dims[] = {1, 2, 4, 8, 15, 16, 31, 32, 48, 64, 500};
	for (unsigned i = 0; i < sizeof dims / sizeof *dims; i++) {
		struct pst_schema s = sparse(dims[i], PST_RULE_SGD);
		struct pst_table *t = table(&s);
		make(t, 0, 100000, 0);
		struct pst_stats stats;
		pst_table_stats(t, &stats);
		double bytes = (double)stats.row_bytes / 100000;
		cr_assert_leq(bytes, 1.25 * 4 * dims[i] + 4, "dim %u: %g", dims[i], bytes);
		if (dims[i] == 15)
			cr_assert_geq(bytes, 64);
		pst_table_free(t);
	}
}

Test(pst_table, erased_rows_are_used_again)
{
	struct pst_schema s = sparse(16, PST_RULE_ADAGRAD);
	struct pst_table *t = table(&s);
	struct pst_stats first, last;
	make(t, 0, 50000, 0);
	pst_table_stats(t, &first);
	for (uint64_t round = 1; round < 5; round++) {
		for (uint64_t key = (round - 1) * 50000; key < round * 50000; key++)
			pst_erase(t, &key, 1, NULL, NULL);
		make(t, round * 50000, (round + 1) * 50000, 0);
	}
	pst_table_stats(t, &last);
	cr_assert_eq(last.rows, 50000);
	cr_assert_eq(last.row_bytes, first.row_bytes);
	cr_assert_leq(last.bytes, first.bytes * 11 / 10);
	pst_table_free(t);
}
