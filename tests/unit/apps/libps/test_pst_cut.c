/* SPDX-License-Identifier: BSD-3-Clause */
/** Cuts of a table that changes while they are read: what comes is what was there at one moment. The test's thread. */
#include "apps/libps/pst_cut.h"
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>

TestSuite(pst_cut);

enum { KEYS = 6000, SLICE = 100, DIM = 3, VALUE_MAX = 300, LOOKS = KEYS * 40 };

/* All that a range has, in the order of hashes. */
struct seen {
	uint32_t n;
	uint64_t keys[KEYS], ages[KEYS];
	uint16_t rows[KEYS * DIM]; /* as they are stored */
	float state[KEYS * DIM];
	uint32_t lens[KEYS];
	size_t bytes_n;
	char bytes[KEYS * VALUE_MAX];
};

static struct seen was, cut_of, second;

static struct pst_slice behind(struct seen *s)
{
	return (struct pst_slice){.keys = s->keys + s->n,
				  .ages_ms = s->ages + s->n,
				  .rows = s->rows + s->n * DIM,
				  .state = s->state + s->n * DIM,
				  .lens = s->lens + s->n,
				  .bytes = s->bytes + s->bytes_n,
				  .bytes_max = 4000};
}

static struct pst_table *table(enum pst_kind kind, uint64_t ttl_ms, const struct pst_memory *memory)
{
	struct pst_schema s = {.kind = kind, .ttl_ms = ttl_ms};
	if (kind == PST_VALUES) {
		s.value_max = VALUE_MAX;
	} else {
		s.dim = DIM;
		s.stored = PST_BF16;
		s.init = (struct pst_init){.kind = PST_INIT_UNIFORM, .a = -1, .b = 1};
	}
	pst_rule_defaults(&s.rule, PST_RULE_ADAGRAD);
	struct pst_table *t;
	struct far_err err;
	cr_assert_eq(pst_table_new(&s, memory, &t, &err), FAR_OK, "%s", err.text);
	return t;
}

/* One random change: pushes, assignments, functions, erasure, eviction of what has expired, pulls that make rows. */
static enum far_status run_one(void *ctx, uint32_t i, uint64_t key, bool made, float *row, float *state)
{
	(void)i, (void)made, (void)state;
	row[0] += (float)(key % 7) + 1;
	return *(uint64_t *)ctx % 5 ? FAR_OK : FAR_REMOTE;
}

static void ended(void *ctx, uint32_t i, enum far_status status)
{
	(void)ctx, (void)i, (void)status;
}

static void change(struct pst_table *t, uint64_t *seed, uint64_t now)
{
	static uint64_t keys[200];
	static float rows[200 * DIM];
	static char bytes[200 * VALUE_MAX];
	uint32_t offsets[201] = {0}, n = 1 + (uint32_t)(draw64(seed) % 200);
	bool values = pst_table_schema(t)->kind == PST_VALUES;
	for (uint32_t i = 0; i < n; i++) {
		keys[i] = draw64(seed) % KEYS;
		offsets[i + 1] = offsets[i] + (uint32_t)(draw64(seed) % (VALUE_MAX + 1));
		memset(bytes + offsets[i], (int)draw64(seed), offsets[i + 1] - offsets[i]);
		for (unsigned d = 0; d < DIM; d++)
			rows[i * DIM + d] = draw_float(seed, -1, 1);
	}
	struct pst_push push = {.wire = PST_F32, .now_ms = now};
	struct pst_pull make = {.miss = PST_MISS_MAKE, .now_ms = now};
	struct pst_call call = {.run = run_one, .ended = ended, .ctx = seed, .changes = true, .now_ms = now};
	enum far_status status = FAR_OK;
	switch (draw64(seed) % 7) {
	case 0:
		status = pst_erase(t, keys, n, NULL, NULL);
		break;
	case 1:
		(void)pst_evict(t, now, n);
		break;
	case 2:
		call.make = draw64(seed) % 2;
		status = values ? FAR_OK : pst_call(t, keys, n, &call, NULL, NULL);
		break;
	case 3:
		status = values ? FAR_OK : pst_pull(t, keys, n, &make, NULL, NULL, NULL, NULL);
		break;
	case 4:
		status = values ? FAR_OK : pst_assign(t, keys, n, &push, rows, NULL, NULL, NULL);
		break;
	default:
		status = values ? pst_value_put(t, keys, n, offsets, bytes, now, NULL, NULL)
				: pst_push(t, keys, n, &push, rows, NULL, NULL);
	}
	cr_assert_eq(status, FAR_OK);
}

/* One slice behind what was seen; sometimes it is read twice. Returns its rows. */
static uint32_t slice(struct pst_table *t, struct pst_cut *cut, struct pst_cursor *c, uint64_t now, struct seen *s,
		      bool twice)
{
	struct pst_cursor again = *c;
	struct pst_slice out = behind(s);
	uint32_t n = pst_slice(t, cut, c, now, SLICE, &out);
	if (twice) {
		*c = again;
		out = behind(s);
		cr_assert_eq(pst_slice(t, cut, c, now, SLICE, &out), n);
	}
	cr_assert(n <= SLICE && (out.bytes_n <= 4000 || n == 1), "%u rows, %zu bytes", n, out.bytes_n);
	s->n += n;
	s->bytes_n += out.bytes_n;
	return n;
}

static void equal(const struct pst_table *t, const struct seen *a, const struct seen *b)
{
	cr_assert_eq(a->n, b->n, "%u rows, not %u", a->n, b->n);
	cr_assert_eq(memcmp(a->keys, b->keys, a->n * sizeof *a->keys), 0);
	cr_assert_eq(memcmp(a->ages, b->ages, a->n * sizeof *a->ages), 0);
	if (pst_table_schema(t)->kind == PST_VALUES) {
		cr_assert_eq(memcmp(a->lens, b->lens, a->n * sizeof *a->lens), 0);
		cr_assert(a->bytes_n == b->bytes_n && memcmp(a->bytes, b->bytes, a->bytes_n) == 0);
		return;
	}
	cr_assert_eq(memcmp(a->rows, b->rows, a->n * DIM * sizeof *a->rows), 0);
	cr_assert_eq(memcmp(a->state, b->state, a->n * DIM * sizeof *a->state), 0);
}

/* Two cuts begin at different moments and overlap; between slices come changes. */
static void overlapping_cuts(enum pst_kind kind, uint64_t ttl_ms, uint64_t seed)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_table *t = table(kind, ttl_ms, &f.memory);
	uint64_t now = 100000;
	for (int i = 0; i < 60; i++)
		change(t, &seed, now += draw64(&seed) % 40);
	struct pst_cursor all = {.last = UINT64_MAX}, first = all, other = all;
	was.n = cut_of.n = second.n = 0;
	was.bytes_n = cut_of.bytes_n = second.bytes_n = 0;
	while (!all.done)
		slice(t, NULL, &all, now, &was, false);
	cr_assert(was.n > 3 * SLICE, "%u rows", was.n);
	struct pst_cut *cut = pst_cut_begin(t, &first, now), *later = NULL;
	cr_assert(cut && pst_cuts(t) == cut);
	unsigned slices = 0;
	while (!first.done) {
		slice(t, cut, &first, now, &cut_of, draw64(&seed) % 4 == 0);
		for (unsigned i = (unsigned)(draw64(&seed) % 3); i-- > 0;)
			change(t, &seed, now += draw64(&seed) % 40);
		if (++slices == 5)
			later = pst_cut_begin(t, &other, now);
		cr_assert(slices < LOOKS);
	}
	cr_assert_not(cut->torn);
	equal(t, &cut_of, &was);
	pst_cut_end(t, cut);
	/* The second one saw what a scan would have seen then; it goes on while the first one is gone. */
	struct pst_cursor rest = other;
	while (!other.done)
		slice(t, later, &other, now, &second, false);
	cr_assert(rest.from == 0 && second.n > SLICE && pst_cuts(t) == later);
	pst_table_free(t); /* with a cut that was not ended */
	cr_assert_eq(f.bytes, 0);
}

Test(pst_cut, a_cut_is_the_table_at_one_moment)
{
	for (uint64_t seed = 1; seed <= 12; seed++) {
		overlapping_cuts(PST_SPARSE, 0, seed);
		overlapping_cuts(PST_SPARSE, 900, seed);
		overlapping_cuts(PST_VALUES, 0, seed);
		overlapping_cuts(PST_VALUES, 900, seed);
	}
}

/* Cuts of single partitions follow each other, as those of a save, and have their memory one after the other. */
static void following_cuts(enum pst_kind kind, uint64_t seed)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct pst_table *t = table(kind, 0, &f.memory);
	for (int i = 0; i < 100; i++)
		change(t, &seed, 1);
	uint64_t changed = 0;
	cr_assert_eq(pst_cuts_bytes(t), 0);
	for (uint64_t from = 0; from < 64; from++) {
		const uint64_t last = (from << 58) + (UINT64_MAX >> 6);
		struct pst_cursor all = {.from = from << 58, .last = last}, c = all;
		was.n = cut_of.n = 0;
		was.bytes_n = cut_of.bytes_n = 0;
		while (!all.done)
			slice(t, NULL, &all, 1, &was, false);
		struct pst_cut *cut = pst_cut_begin(t, &c, 1);
		cr_assert(cut && cut->changed_n == 0 && cut->copies_n == 0);
		for (int i = 0; i < 20; i++)
			change(t, &seed, 1);
		while (!c.done)
			slice(t, cut, &c, 1, &cut_of, false);
		cr_assert_not(cut->torn);
		changed += cut->changed_n;
		equal(t, &cut_of, &was);
		pst_cut_end(t, cut);
	}
	cr_assert_gt(changed, 100);
	size_t kept = pst_cuts_bytes(t);
	struct pst_cut *cut = pst_cut_begin(t, &(struct pst_cursor){.last = UINT64_MAX >> 6}, 1);
	cr_assert(kept > 0 && pst_cuts_bytes(t) == kept, "%zu bytes, then %zu", kept, pst_cuts_bytes(t));
	pst_cut_end(t, cut);
	pst_table_free(t);
	cr_assert_eq(f.bytes, 0);
}

Test(pst_cut, a_cut_has_nothing_of_the_one_before)
{
	for (uint64_t seed = 1; seed <= 3; seed++) {
		following_cuts(PST_SPARSE, seed);
		following_cuts(PST_VALUES, seed);
	}
}

/* Of many rows a call looks at few, whatever they are: live, expired, or gone since the cut. */
Test(pst_cut, a_slice_is_bounded)
{
	enum { MANY = 300000, MOST = 64 };
	struct pst_table *t = table(PST_SPARSE, 1000, NULL);
	static uint64_t keys[PST_CHUNK_KEYS], found[MOST];
	struct pst_pull make = {.miss = PST_MISS_MAKE, .now_ms = 1000};
	for (uint64_t key = 0; key < MANY;) {
		uint32_t n = 0;
		while (n < PST_CHUNK_KEYS && key < MANY)
			keys[n++] = key++;
		cr_assert_eq(pst_pull(t, keys, n, &make, NULL, NULL, NULL, NULL), FAR_OK);
	}
	struct pst_cursor c, all;
	pst_scan_all(t, &all);
	uint64_t rows = 0, calls = 0;
	for (c = all; !c.done; calls++)
		rows += pst_scan(t, &c, 1000, MOST, found, NULL, NULL, NULL);
	cr_assert(rows == MANY && calls >= MANY / MOST, "%lu rows in %lu calls", rows, calls);
	/* Expired: no row comes, and yet each call ends. */
	calls = rows = 0;
	for (c = all; !c.done; calls++)
		rows += pst_scan(t, &c, 100000, MOST, found, NULL, NULL, NULL);
	cr_assert(rows == 0 && calls >= MANY / MOST, "%lu rows in %lu calls", rows, calls);
	cr_assert(pst_evict(t, 100000, MOST) <= MOST);
	/* A cut of rows that are all gone comes from copies alone. */
	struct pst_cut *cut = pst_cut_begin(t, &all, 1000);
	while (pst_evict(t, 100000, PST_CHUNK_KEYS))
		;
	cr_assert_eq(pst_table_rows(t), 0);
	calls = rows = 0;
	struct pst_slice out = {.keys = found};
	for (c = all; !c.done; calls++)
		rows += pst_slice(t, cut, &c, 0, MOST, &out);
	cr_assert(rows >= MANY - MOST && calls >= rows / MOST, "%lu rows in %lu calls", rows, calls);
	pst_table_free(t);
}

/* Without memory for a copy the change is made, and the cut is of no use. */
Test(pst_cut, a_cut_without_memory_is_torn)
{
	bool torn = false, whole = false;
	for (uint64_t nth = 1; nth < 40 && !(torn && whole); nth++) {
		struct fake_memory f;
		fake_memory_init(&f);
		struct pst_table *t = table(PST_SPARSE, 0, &f.memory);
		uint64_t key = 7;
		float row[DIM] = {1, 2, 3};
		struct pst_push push = {.wire = PST_F32};
		cr_assert_eq(pst_push(t, &key, 1, &push, row, NULL, NULL), FAR_OK);
		f.fail_at = f.gets + nth;
		struct pst_cut *cut = pst_cut_begin(t, &(struct pst_cursor){.last = UINT64_MAX}, 0);
		cr_assert_eq(pst_push(t, &key, 1, &push, row, NULL, NULL), FAR_OK);
		torn = torn || (cut && cut->torn);
		whole = cut && !cut->torn;
		pst_table_free(t);
		cr_assert_eq(f.bytes, 0);
	}
	cr_assert(torn && whole);
}
