/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables against a plain model: every operation at random, every result and every row compared. The test's thread. */
#include "apps/libps/pst_table.h"
#include "pst_fixture.h"
#include <criterion/criterion.h>
#include <math.h>

#define KEYS 6000u /* possible ones */
#define DIM  5u
#define MAX  64u /* keys of one operation */
#define NONE UINT64_MAX

TestSuite(pst_model);

struct model_row {
	bool there;
	float row[DIM], squares[DIM];
	uint64_t written_ms;
	unsigned pushes; /* before the row is admitted */
};

struct model {
	struct pst_schema schema;
	struct pst_table *table;
	struct model_row *rows;
	uint64_t now_ms, seed;
	uint64_t n;
};

static uint64_t key_at(uint32_t i)
{
	return i % 2 ? i : pst_hash(i);
}

static bool expired(const struct model *m, uint32_t k, bool surely)
{
	uint64_t ttl = m->schema.ttl_ms, age = m->now_ms - m->rows[k].written_ms;
	return ttl && (surely ? age > ttl + 128 : age > ttl);
}

static void drop_expired(struct model *m, uint32_t k)
{
	if (m->rows[k].there && expired(m, k, true)) {
		m->rows[k].there = false;
		m->n--;
	}
}

static void begin(struct model *m, uint32_t k)
{
	struct model_row *r = &m->rows[k];
	pst_init_row(&m->schema.init, key_at(k), r->row, DIM);
	memset(r->squares, 0, sizeof r->squares);
	r->there = true;
	r->written_ms = m->now_ms;
	r->pushes = 0;
	m->n++;
}

static void pull(struct model *m, const uint32_t *which, const uint64_t *keys, uint32_t n)
{
	float out[MAX * DIM], fallback[DIM] = {9, 8, 7, 6, 5}, fresh[DIM];
	uint8_t status[MAX];
	enum pst_miss miss = draw64(&m->seed) % 3;
	bool makes = miss == PST_MISS_MAKE && m->schema.admit <= 1;
	bool was_there[MAX];
	for (uint32_t i = 0; i < n; i++) {
		drop_expired(m, which[i]);
		was_there[i] = m->rows[which[i]].there;
	}
	struct pst_pull how = {.wire = PST_F32, .miss = miss, .fallback = fallback, .now_ms = m->now_ms};
	cr_assert_eq(pst_pull(m->table, keys, n, &how, out, NULL, status, NULL), FAR_OK);
	for (uint32_t i = 0; i < n; i++) {
		struct model_row *r = &m->rows[which[i]];
		const float *want = r->row;
		if (!was_there[i]) {
			if (makes && !r->there)
				begin(m, which[i]);
			cr_assert_eq(status[i], makes ? PST_NEW : PST_MISSING);
			pst_init_row(&m->schema.init, keys[i], fresh, DIM);
			want = miss == PST_MISS_FALLBACK ? fallback : fresh;
		} else {
			cr_assert_eq(status[i], PST_ROW);
		}
		cr_assert_eq(memcmp(out + i * DIM, want, sizeof fresh), 0, "key %lu", (unsigned long)keys[i]);
	}
}

static void push(struct model *m, const uint32_t *which, const uint64_t *keys, uint32_t n)
{
	float grads[MAX * DIM];
	uint8_t status[MAX];
	for (uint32_t i = 0; i < n * DIM; i++)
		grads[i] = draw_float(&m->seed, -1, 1);
	uint32_t bad = draw64(&m->seed) % 20 ? n : (uint32_t)(draw64(&m->seed) % n);
	if (bad < n)
		grads[bad * DIM + 3] = draw64(&m->seed) % 2 ? NAN : -INFINITY;
	for (uint32_t i = 0; i < n; i++)
		drop_expired(m, which[i]);
	struct pst_push how = {.wire = PST_F32, .now_ms = m->now_ms};
	struct far_err err;
	enum far_status rc = pst_push(m->table, keys, n, &how, grads, status, &err);
	if (bad < n) {
		char text[64];
		snprintf(text, sizeof text, "element 3 of the gradient of key %lu ", (unsigned long)keys[bad]);
		cr_assert_eq(rc, FAR_INVALID);
		cr_assert(strstr(err.text, text), "%s", err.text);
		return;
	}
	cr_assert_eq(rc, FAR_OK);
	bool was_there[MAX];
	for (uint32_t i = 0; i < n; i++)
		was_there[i] = m->rows[which[i]].there;
	for (uint32_t i = 0; i < n; i++) {
		struct model_row *r = &m->rows[which[i]];
		enum pst_key_status want = was_there[i] ? PST_ROW : PST_NEW;
		if (!r->there) {
			if (m->schema.admit > 1 && ++r->pushes < m->schema.admit) {
				cr_assert_eq(status[i], PST_WAITING);
				continue;
			}
			begin(m, which[i]);
		}
		cr_assert_eq(status[i], want);
		for (unsigned d = 0; d < DIM; d++) {
			float g = grads[i * DIM + d];
			r->squares[d] += g * g;
			r->row[d] -= m->schema.rule.rate * g / (sqrtf(r->squares[d]) + m->schema.rule.epsilon);
		}
		r->written_ms = m->now_ms;
	}
}

static void assign(struct model *m, const uint32_t *which, const uint64_t *keys, uint32_t n)
{
	float rows[MAX * DIM], state[MAX * DIM];
	bool with_state = draw64(&m->seed) % 2;
	for (uint32_t i = 0; i < n * DIM; i++) {
		rows[i] = draw_float(&m->seed, -1, 1);
		state[i] = draw_float(&m->seed, 0, 1);
	}
	for (uint32_t i = 0; i < n; i++)
		drop_expired(m, which[i]);
	struct pst_push how = {.wire = PST_F32, .now_ms = m->now_ms};
	cr_assert_eq(pst_assign(m->table, keys, n, &how, rows, with_state ? state : NULL, NULL, NULL), FAR_OK);
	for (uint32_t i = 0; i < n; i++) {
		struct model_row *r = &m->rows[which[i]];
		unsigned pushes = r->pushes;
		if (!r->there)
			begin(m, which[i]);
		r->pushes = pushes;
		memcpy(r->row, rows + i * DIM, sizeof r->row);
		memset(r->squares, 0, sizeof r->squares);
		if (with_state)
			memcpy(r->squares, state + i * DIM, sizeof r->squares);
		r->written_ms = m->now_ms;
	}
}

static void erase(struct model *m, const uint32_t *which, const uint64_t *keys, uint32_t n)
{
	uint8_t status[MAX];
	/* Whether a row that expired is still there to be erased is open. */
	cr_assert_eq(pst_erase(m->table, keys, n, status, NULL), FAR_OK);
	for (uint32_t i = 0; i < n; i++) {
		struct model_row *r = &m->rows[which[i]];
		if (!m->schema.ttl_ms)
			cr_assert_eq(status[i], r->there ? PST_ROW : PST_MISSING);
		m->n -= r->there;
		r->there = false;
	}
}

static void scan(struct model *m)
{
	struct pst_cursor c;
	pst_scan_all(m->table, &c);
	uint64_t keys[100], sum = 0;
	float rows[100 * DIM], state[100 * DIM];
	while (!c.done) {
		uint32_t n = pst_scan(m->table, &c, m->now_ms, 100, keys, rows, state, NULL);
		for (uint32_t i = 0; i < n; i++) {
			uint32_t k = 0;
			if (keys[i] < KEYS && keys[i] % 2)
				k = (uint32_t)keys[i];
			else
				while (k < KEYS && key_at(k) != keys[i])
					k += 2;
			cr_assert_lt(k, KEYS);
			cr_assert(m->rows[k].there);
			cr_assert_eq(memcmp(rows + i * DIM, m->rows[k].row, sizeof m->rows[k].row), 0);
			cr_assert_eq(memcmp(state + i * DIM, m->rows[k].squares, sizeof m->rows[k].row), 0);
		}
		sum += n;
	}
	uint64_t least = 0;
	for (uint32_t k = 0; k < KEYS; k++)
		least += m->rows[k].there && !expired(m, k, false);
	cr_assert_leq(sum, m->n);
	cr_assert_geq(sum, least);
}

/* Times in steps of 64 ms, and rows of the doubtful 128 ms after their TTL are not touched: the model need not know. */
static bool doubtful(const struct model *m, uint32_t k)
{
	return m->rows[k].there && expired(m, k, false) && !expired(m, k, true);
}

static void run(struct pst_schema schema, uint64_t seed, uint32_t operations)
{
	struct fake_memory f;
	fake_memory_init(&f);
	struct model m = {.schema = schema, .seed = seed};
	m.rows = calloc(KEYS, sizeof *m.rows);
	cr_assert_eq(pst_table_new(&schema, &f.memory, &m.table, NULL), FAR_OK);
	for (uint32_t done = 0; done < operations;) {
		uint32_t which[MAX], n = 0, want = 1 + (uint32_t)(draw64(&m.seed) % MAX);
		uint64_t keys[MAX];
		for (uint32_t i = 0; i < want; i++) {
			/* Half of the keys are from a few. */
			uint32_t k = (uint32_t)(draw64(&m.seed) % (draw64(&m.seed) % 2 ? KEYS : 50));
			if (doubtful(&m, k))
				continue;
			which[n] = k;
			keys[n++] = key_at(k);
		}
		if (!n)
			continue;
		done += n;
		switch (draw64(&m.seed) % 8) {
		case 0:
		case 1:
		case 2:
			pull(&m, which, keys, n);
			break;
		case 3:
		case 4:
		case 5:
			push(&m, which, keys, n);
			break;
		case 6:
			assign(&m, which, keys, n);
			break;
		default:
			erase(&m, which, keys, n);
			break;
		}
		if (draw64(&m.seed) % 2000 == 0)
			scan(&m);
		if (schema.ttl_ms && draw64(&m.seed) % 4 == 0) {
			m.now_ms += 64 * (draw64(&m.seed) % 20);
			pst_evict(m.table, m.now_ms, (uint32_t)(draw64(&m.seed) % 200));
		}
		if (!schema.ttl_ms) {
			struct pst_stats s;
			pst_table_stats(m.table, &s);
			cr_assert_eq(s.rows, m.n);
		}
	}
	scan(&m);
	free(m.rows);
	pst_table_free(m.table);
	cr_assert_eq(f.blocks, 0);
}

#ifdef UNDER_SANITIZER
#define OPERATIONS 100000u
#else
#define OPERATIONS 1000000u
#endif

static struct pst_schema schema_of(void)
{
	struct pst_schema s = {
		.kind = PST_SPARSE, .dim = DIM, .init = {.kind = PST_INIT_UNIFORM, .a = -1, .b = 1, .seed = 5}};
	pst_rule_defaults(&s.rule, PST_RULE_ADAGRAD);
	return s;
}

Test(pst_model, plain)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run(schema_of(), seed, OPERATIONS / 4);
}

Test(pst_model, admission)
{
	struct pst_schema s = schema_of();
	s.admit = 3;
	for (uint64_t seed = 11; seed <= 14; seed++)
		run(s, seed, OPERATIONS / 4);
}

Test(pst_model, ttl)
{
	struct pst_schema s = schema_of();
	s.ttl_ms = 64 * 200;
	for (uint64_t seed = 21; seed <= 24; seed++)
		run(s, seed, OPERATIONS / 4);
}
