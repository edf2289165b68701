/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Measures the table of a parameter server in one process, beside floors in the same run. Main thread of each process.
 *
 * usage: pstable [ROWS]...         pulls and pushes; default 630000 and 8000000 rows
 *        pstable grow ROWS [DIM]   work and processor time of each insert while a table grows, twice; rows of 1 number
 *        pstable slice ROWS        processor time of each operation while partitions are read in slices and change
 *
 * A pull reads 2000 keys of 16 floats, a push applies Adagrad to them. Keys are drawn before the clock starts, uniform
 * or Zipf 1.2 (the same keys for the table and its floors). A dense table, which has no index, is pulled as well. The
 * floors: a flat array whose row number is the key, aligned, on huge pages, with prefetch 32 keys ahead (no index at
 * all); the same behind an open-addressing index of 16-byte entries at half load, which is prefetched too; memcpy of as
 * many bytes in one piece; one pass of Adagrad over a flat array of rows and state with prefetch. Rounds of the table
 * and the floors alternate; printed is the median of the rounds and its ratio to the floor.
 */
#include "apps/libps/pst_cut.h"
#include "apps/libps/psv_wire.h"

#include "hist.h"
#include "ps_flat.h"
#include "ps_keys.h"
#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define KEYS     2000u
#define DIM      16u
#define ROUNDS   401u
#define ROWS_MAX 4000000000ull
#define BATCHES  97u /* of keys, drawn before */

struct flat_entry {
	uint64_t key;
	uint64_t row; /* 1 + number; 0: free */
};

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static void *huge(size_t bytes)
{
	return pst_memory_default.get(NULL, (bytes + PST_HUGE_BYTES - 1) & ~(PST_HUGE_BYTES - 1), PST_PAGES_HUGE);
}

static void unhuge(void *p, size_t bytes)
{
	pst_memory_default.put(NULL, p, (bytes + PST_HUGE_BYTES - 1) & ~(PST_HUGE_BYTES - 1), PST_PAGES_HUGE);
}

/* ---- A thread that prepares slabs ---- */

struct ahead {
	struct pst_table *table;
	atomic_bool stop;
};

static void *prepare(void *arg)
{
	struct ahead *a = arg;
	while (!atomic_load(&a->stop))
		if (!pst_table_ahead(a->table))
			nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL);
	return NULL;
}

static struct pst_table *new_table(unsigned dim, enum pst_rule_kind kind, uint64_t dense_rows)
{
	struct pst_schema s = {.kind = dense_rows ? PST_DENSE : PST_SPARSE, .dim = dim, .dense_rows = dense_rows};
	s.init = (struct pst_init){.kind = PST_INIT_UNIFORM, .a = -1, .b = 1, .seed = 1};
	pst_rule_defaults(&s.rule, kind);
	struct pst_table *t;
	struct far_err err;
	if (pst_table_new(&s, NULL, &t, &err)) {
		fprintf(stderr, "pstable: %s\n", err.text);
		exit(1);
	}
	return t;
}

static void must_ok(enum far_status status, const struct far_err *err)
{
	if (status) {
		fprintf(stderr, "pstable: %s\n", err->text);
		exit(1);
	}
}

/* ---- Pulls and pushes ---- */

static uint64_t keys[BATCHES][KEYS];
static float out[KEYS * DIM] __attribute__((aligned(64)));
static float grads[KEYS * DIM] __attribute__((aligned(64)));

static void pull_indexed(const struct flat_entry *index, uint64_t mask, const float *rows, const uint64_t *key)
{
	uint64_t at[64], row[64];
	for (unsigned i = 0; i < KEYS + 32; i++) {
		if (i >= 32)
			memcpy(&out[(i - 32) * DIM], &rows[row[(i - 32) % 64] * DIM], DIM * sizeof(float));
		if (i >= 16 && i - 16 < KEYS) {
			unsigned j = i - 16;
			uint64_t slot = at[j % 64];
			while (index[slot].key != key[j] || !index[slot].row)
				slot = (slot + 1) & mask;
			row[j % 64] = index[slot].row - 1;
			__builtin_prefetch(&rows[row[j % 64] * DIM], 0, 2);
		}
		if (i < KEYS) {
			at[i % 64] = pst_hash(key[i]) & mask;
			__builtin_prefetch(&index[at[i % 64]], 0, 2);
		}
	}
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *x)
{
	qsort(x, ROUNDS, sizeof *x, by_value);
	return x[ROUNDS / 2];
}

enum { TABLE, DENSE, FLAT, INDEXED, COPY, PUSH, APPLY, WAYS };

static void measure(uint64_t rows, bool is_zipf, struct pst_table *t, struct pst_table *dense,
		    const struct ps_flat *flat, const struct flat_entry *index, uint64_t mask)
{
	static double us[WAYS][ROUNDS];
	static float copy[KEYS * DIM];
	uint64_t seed = 7;
	for (unsigned b = 0; b < BATCHES; b++)
		ps_keys_draw(&seed, rows, is_zipf, keys[b], KEYS);
	const float *flat_rows = (const float *)(const void *)flat->at[0];
	for (unsigned r = 0; r < ROUNDS; r++) {
		struct far_err err;
		struct pst_pull pull = {.wire = PST_F32};
		struct pst_push push = {.wire = PST_F32};
		for (unsigned way = 0; way < WAYS; way++) {
			const uint64_t *key = keys[(r * WAYS + way) % BATCHES];
			double start = now_us();
			switch (way) {
			case TABLE:
				must_ok(pst_pull(t, key, KEYS, &pull, out, NULL, NULL, &err), &err);
				break;
			case DENSE:
				must_ok(pst_pull(dense, key, KEYS, &pull, out, NULL, NULL, &err), &err);
				break;
			case FLAT:
				ps_flat_pull(flat, key, KEYS, DIM * sizeof(float), out);
				break;
			case INDEXED:
				pull_indexed(index, mask, flat_rows, key);
				break;
			case COPY:
				memcpy(copy, out, sizeof copy);
				__asm__ volatile("" : : "r"(copy) : "memory");
				break;
			case PUSH:
				must_ok(pst_push(t, key, KEYS, &push, grads, NULL, &err), &err);
				break;
			default:
				ps_flat_push(flat, key, KEYS, DIM * sizeof(float), grads);
				break;
			}
			us[way][r] = now_us() - start;
		}
	}
	double m[WAYS];
	for (unsigned way = 0; way < WAYS; way++)
		m[way] = median(us[way]);
	printf("%-8s %9llu rows  pull %6.1f us: %.2f x indexed %.1f, %.2f x flat %.1f; dense %.1f: %.2f x flat; memcpy "
	       "%.1f\n",
	       is_zipf ? "zipf 1.2" : "uniform", (unsigned long long)rows, m[TABLE], m[TABLE] / m[INDEXED], m[INDEXED],
	       m[TABLE] / m[FLAT], m[FLAT], m[DENSE], m[DENSE] / m[FLAT], m[COPY]);
	printf("%24s  push %6.1f us: %.2f x one pass %.1f\n", "", m[PUSH], m[PUSH] / m[APPLY], m[APPLY]);
}

static struct pst_table *filled(uint64_t rows)
{
	struct pst_table *t = new_table(DIM, PST_RULE_ADAGRAD, 0);
	struct far_err err;
	struct pst_pull make = {.miss = PST_MISS_MAKE};
	for (uint64_t i = 0; i < rows;) {
		uint32_t n = 0;
		for (; n < KEYS && i < rows; n++)
			keys[0][n] = i++;
		must_ok(pst_pull(t, keys[0], n, &make, NULL, NULL, NULL, &err), &err);
		/* In a server another thread does this. */
		while (pst_table_ahead(t))
			;
	}
	return t;
}

static void pulls(uint64_t rows)
{
	struct pst_table *t = filled(rows);
	struct pst_stats s;
	pst_table_stats(t, &s);
	printf("%llu rows: %.1f bytes a row (rows %.1f, state %.1f, index %.1f), bound %.1f; %s\n",
	       (unsigned long long)rows, (double)s.bytes / (double)rows, (double)s.row_bytes / (double)rows,
	       (double)s.state_bytes / (double)rows, (double)s.index_bytes / (double)rows, 1.25 * (64 + 64 + 8 + 8),
	       pst_kernels_best()->name);
	struct pst_table *dense = new_table(DIM, PST_RULE_SGD, rows);
	struct ps_flat flat;
	if (ps_flat_open(&flat, rows, DIM * sizeof(float))) {
		fprintf(stderr, "pstable: no memory for %llu rows\n", (unsigned long long)rows);
		exit(1);
	}
	uint64_t mask = 1;
	while (mask < 2 * rows)
		mask *= 2;
	struct flat_entry *index = huge(mask * sizeof *index);
	if (!index) {
		fprintf(stderr, "pstable: no memory for an index\n");
		exit(1);
	}
	mask--;
	for (uint64_t i = 0; i < rows; i++) {
		uint64_t slot = pst_hash(i) & mask;
		while (index[slot].row)
			slot = (slot + 1) & mask;
		index[slot] = (struct flat_entry){i, 1 + i};
		pst_init_row(&pst_table_schema(t)->init, i, (float *)(void *)(flat.at[0] + i * DIM * sizeof(float)),
			     DIM);
	}
	for (unsigned i = 0; i < KEYS * DIM; i++)
		grads[i] = (float)(i % 17) * 0.001f;
	for (int is_zipf = 1; is_zipf >= 0; is_zipf--)
		measure(rows, is_zipf, t, dense, &flat, index, mask);
	unhuge(index, (mask + 1) * sizeof *index);
	ps_flat_close(&flat);
	pst_table_free(dense);
	pst_table_free(t);
}

/* ---- Growth ---- */

#define LIMIT_US 200.0 /* of an operation */
#define SLOW_MAX 65536u

struct times {
	struct hist ns;
	uint64_t over, most_at;
	double total_us;
};

/* An operation that began at `start` of now_us(). Returns its end. */
static double took(struct times *t, double start)
{
	double end = now_us(), us = end - start;
	uint64_t ns = (uint64_t)(us * 1e3);
	t->total_us += us;
	t->over += us > LIMIT_US;
	if (ns > t->ns.max)
		t->most_at = t->ns.count;
	hist_record(&t->ns, ns);
	return end;
}

static void print_times(const struct times *t, const char *what)
{
	const struct hist *h = &t->ns;
	printf("%llu %s: %.3f us each; p50 %.1f, p99 %.1f, p99.9 %.1f, most %.1f us (number %llu), over %.0f us: "
	       "%llu\n",
	       (unsigned long long)h->count, what, h->count ? t->total_us / (double)h->count : 0,
	       (double)hist_quantile(h, 0.5) / 1e3, (double)hist_quantile(h, 0.99) / 1e3,
	       (double)hist_quantile(h, 0.999) / 1e3, (double)h->max / 1e3, (unsigned long long)t->most_at, LIMIT_US,
	       (unsigned long long)t->over);
}

/* Inserts over the limit, in the order of their numbers. */
struct slow {
	uint64_t at[SLOW_MAX];
	double us[SLOW_MAX];
	uint32_t n;
};

/* Each insert alone: processor time, and the entries that the index moved. */
static void grow_once(uint64_t rows, unsigned dim, struct times *inserts, struct slow *slow)
{
	struct pst_table *t = new_table(dim, PST_RULE_SGD, 0);
	struct ahead a = {.table = t};
	pthread_t thread;
	if (pthread_create(&thread, NULL, prepare, &a)) {
		fprintf(stderr, "pstable: no thread\n");
		exit(1);
	}
	struct far_err err;
	struct pst_pull make = {.miss = PST_MISS_MAKE};
	struct pst_stats s;
	double start = now_us();
	for (uint64_t i = 0; i < rows; i++) {
		must_ok(pst_pull(t, &i, 1, &make, NULL, NULL, NULL, &err), &err);
		double end = took(inserts, start), us = end - start;
		start = end;
		if (us <= LIMIT_US || slow->n == SLOW_MAX)
			continue;
		slow->at[slow->n] = i;
		slow->us[slow->n++] = us;
	}
	atomic_store(&a.stop, true);
	pthread_join(thread, NULL);
	pst_table_stats(t, &s);
	print_times(inserts, "inserts");
	printf("index: %llu segments grown, %llu split, %llu directories doubled; %.2f entries moved for each insert, "
	       "at most %u by one, "
	       "at most %u pointers copied by one; %.1f bytes a key, %.1f with the row of %u numbers\n",
	       (unsigned long long)s.index.grown, (unsigned long long)s.index.split,
	       (unsigned long long)s.index.doubled, (double)s.index.moved / (double)rows, s.index.moved_most,
	       s.index.copied_most, (double)s.index_bytes / (double)rows, (double)s.bytes / (double)rows, dim);
	pst_table_free(t);
}

/* Twice, since what the system takes for itself counts as the thread's processor time: an insert that takes long in
 * both has a reason in the table. */
static void grow(uint64_t rows, unsigned dim)
{
	static struct times inserts[2];
	static struct slow slow[2];
	for (unsigned i = 0; i < 2; i++)
		grow_once(rows, dim, &inserts[i], &slow[i]);
	uint32_t both = 0;
	for (uint32_t i = 0, j = 0; i < slow[0].n && j < slow[1].n;) {
		if (slow[0].at[i] == slow[1].at[j]) {
			printf("insert %llu: %.0f and %.0f us\n", (unsigned long long)slow[0].at[i], slow[0].us[i],
			       slow[1].us[j]);
			both++;
		}
		bool first = slow[0].at[i] <= slow[1].at[j], second = slow[1].at[j] <= slow[0].at[i];
		i += first;
		j += second;
	}
	printf("over %.0f us both times: %u of %u and %u%s\n", LIMIT_US, both, slow[0].n, slow[1].n,
	       slow[0].n == SLOW_MAX || slow[1].n == SLOW_MAX ? ", the first of them" : "");
}

/* ---- Slices ---- */

#define CHANGED (FAR_PS_CHUNK_BYTES / (sizeof(uint64_t) + DIM * sizeof(float))) /* keys of one request of a push */

#define SLICE_ROWS (PSV_SLICE_BYTES / (sizeof(uint64_t) + 2 * DIM * sizeof(float))) /* with the state of Adagrad */
static_assert(SLICE_ROWS <= PSV_SLICE_ROWS, "rows of a slice");

static struct {
	uint64_t keys[SLICE_ROWS];
	float rows[SLICE_ROWS * DIM], state[SLICE_ROWS * DIM];
} sliced;

/* The keys at the end of a partition, which are read last: [CHANGED], repeated if there are fewer. */
static void last_keys(struct pst_table *t, struct pst_cursor c, uint64_t *key)
{
	struct pst_slice slice = {.keys = sliced.keys};
	uint64_t n = 0;
	while (!c.done) {
		uint32_t got = pst_slice(t, NULL, &c, 1, SLICE_ROWS, &slice);
		for (uint32_t i = 0; i < got; i++)
			key[n++ % CHANGED] = sliced.keys[i];
	}
	for (uint64_t i = n; n && i < CHANGED; i++)
		key[i] = key[i % n];
}

static void push_timed(struct pst_table *t, const uint64_t *key, struct times *times)
{
	struct pst_push push = {.wire = PST_F32, .now_ms = 1};
	struct far_err err;
	double start = now_us();
	must_ok(pst_push(t, key, CHANGED, &push, grads, NULL, &err), &err);
	took(times, start);
}

/* Each partition as a save reads it; beside it pushes change rows: of the whole table, and all rows of the partition,
 * which are still to be read, so that each is copied. */
static void slices(uint64_t rows)
{
	static struct times begins, reads, uniform, copied, after, ends;
	struct pst_table *t = filled(rows);
	uint64_t seed = 7, rows_n = 0;
	for (unsigned p = 0; p < FAR_PS_PARTITIONS; p++) {
		struct pst_cursor c = {.from = (uint64_t)p << 52, .last = ((uint64_t)(p + 1) << 52) - 1};
		last_keys(t, c, keys[0]);
		ps_keys_draw(&seed, rows, false, keys[1], CHANGED);
		double start = now_us();
		struct pst_cut *cut = pst_cut_begin(t, &c, 1);
		took(&begins, start);
		struct pst_slice slice = {.keys = sliced.keys, .rows = sliced.rows, .state = sliced.state};
		push_timed(t, keys[1], &uniform);
		push_timed(t, keys[0], &copied);
		while (cut && !c.done) {
			start = now_us();
			rows_n += pst_slice(t, cut, &c, 1, SLICE_ROWS, &slice);
			took(&reads, start);
		}
		if (!cut || cut->torn) {
			fprintf(stderr, "pstable: no memory for a cut\n");
			exit(1);
		}
		start = now_us();
		pst_cut_end(t, cut);
		took(&ends, start);
		push_timed(t, keys[0], &after);
	}
	if (rows_n != rows) {
		fprintf(stderr, "pstable: %llu of %llu rows were read\n", (unsigned long long)rows_n,
			(unsigned long long)rows);
		exit(1);
	}
	print_times(&begins, "cuts begun");
	print_times(&reads, "slices of 64 KiB");
	print_times(&uniform, "pushes of 64 KiB beside cuts, keys of the whole table");
	print_times(&copied, "pushes of 64 KiB beside cuts, each row copied");
	print_times(&after, "pushes of 64 KiB of the same keys, without a cut");
	print_times(&ends, "cuts ended");
	pst_table_free(t);
}

/* A number of rows, with room for the keys of a pull. 0: it is none, with a message. */
static uint64_t rows_of(const char *text)
{
	char *end;
	unsigned long long n = strtoull(text, &end, 10);
	if (*text >= '0' && *text <= '9' && !*end && n >= KEYS && n <= ROWS_MAX)
		return n;
	fprintf(stderr, "pstable: \"%s\" is no number of rows; give one from %u to %llu\n", text, KEYS, ROWS_MAX);
	return 0;
}

int main(int argc, char **argv)
{
	bool help = argc == 2 && strcmp(argv[1], "--help") == 0, grows = argc > 1 && strcmp(argv[1], "grow") == 0,
	     cuts = argc > 1 && strcmp(argv[1], "slice") == 0;
	setvbuf(stdout, NULL, _IOLBF, 0);
	unsigned long dim = grows && argc == 4 ? strtoul(argv[3], NULL, 10) : 1;
	if (help || ((grows || cuts) && argc != 3 && !(grows && argc == 4)) || dim < 1 || dim > PST_DIM_MAX) {
		fprintf(help ? stdout : stderr,
			"usage: pstable [ROWS]...         pulls and pushes\n"
			"       pstable grow ROWS [DIM]   each insert while a table grows, twice; rows of 1 number\n"
			"       pstable slice ROWS        each operation while partitions are read\n");
		return help ? 0 : 2;
	}
	for (int i = 1 + (grows || cuts); i < (grows ? 3 : argc); i++)
		if (!rows_of(argv[i]))
			return 2;
	if (grows || cuts) {
		if (grows)
			grow(rows_of(argv[2]), (unsigned)dim);
		else
			slices(rows_of(argv[2]));
		return 0;
	}
	for (int i = 1; i < argc; i++)
		pulls(rows_of(argv[i]));
	if (argc == 1) {
		pulls(630000);
		pulls(8000000);
	}
	return 0;
}
