/* SPDX-License-Identifier: BSD-3-Clause */
/** Makes and frees tables and their rows, evicts, counts. The thread that owns the table. */
#include "pst_inner.h"

#include "pst_fail.h"
#include <errno.h>
#include <string.h>

#define CANDIDATES      (UINT64_C(1) << 20)
#define CANDIDATES_MAX  (UINT64_C(1) << 32)
#define SAMPLE          16u /* keys, in runs of neighbours: a sample of one run is not representative */
#define SAMPLE_RUN      4u
#define TICKS_PER_DECAY (60000u / PST_TICK_MS) /* LFU */

uint32_t pst_tick(uint64_t now_ms)
{
	return (uint32_t)(now_ms / PST_TICK_MS);
}

/* ---- Start and end ---- */

/* Bytes from one row to the next: whole lines, or a part of a line that divides it, if that wastes at most an eighth.
 */
static uint32_t stride_of(size_t bytes)
{
	for (uint32_t unit = 64; unit > 4; unit /= 2) {
		size_t padded = (bytes + unit - 1) / unit * unit;
		if (padded - bytes <= bytes / 8)
			return (uint32_t)padded;
	}
	return (uint32_t)((bytes + 3) / 4 * 4);
}

/* The greatest numbers of the types of rows. */
static const double stored_most[] = {[PST_F32] = 0x1.fffffep+127, [PST_BF16] = 0x1.fep+127, [PST_F16] = 65504};

enum far_status pst_schema_check(const struct pst_schema *s, struct far_err *err)
{
	if ((unsigned)s->kind > PST_VALUES || (unsigned)s->full > PST_FULL_LFU)
		return pst_fail(err, FAR_INVALID, 0, "full is %d in a table of kind %d; refuse, LRU or LFU",
				(int)s->full, (int)s->kind);
	if (s->rows_max > PST_ROWS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "rows_max is %llu; a table has at most %u rows",
				(unsigned long long)s->rows_max, PST_ROWS_MAX);
	if (s->admit > PST_ADMIT_MAX || s->candidates > CANDIDATES_MAX)
		return pst_fail(err, FAR_INVALID, 0,
				"admit is %u, and admit_candidates %llu; at most %u and 2^32 are possible", s->admit,
				(unsigned long long)s->candidates, PST_ADMIT_MAX);
	if (s->ttl_ms / PST_TICK_MS > UINT32_MAX / 2)
		return pst_fail(err, FAR_INVALID, 0, "ttl_ms is %llu; at most %llu are possible",
				(unsigned long long)s->ttl_ms, (unsigned long long)UINT32_MAX / 2 * PST_TICK_MS);
	if (s->kind == PST_VALUES) {
		if (s->value_max < 1 || s->value_max > PST_VALUE_MAX || s->dim || s->dense_rows || s->admit > 1)
			return pst_fail(err, FAR_INVALID, 0,
					"a table of values needs value_max in [1, %zu], and no dim, dense_rows or "
					"admit; it is %u",
					PST_VALUE_MAX, s->value_max);
		return FAR_OK;
	}
	if (s->dim < 1 || s->dim > PST_DIM_MAX || s->value_max)
		return pst_fail(err, FAR_INVALID, 0, "a table of rows needs dim in [1, %u] and no value_max; dim is %u",
				PST_DIM_MAX, s->dim);
	if ((unsigned)s->stored > PST_F16)
		return pst_fail(err, FAR_INVALID, 0, "rows cannot be stored as type %d: f32, bf16 or f16",
				(int)s->stored);
	bool dense = s->kind == PST_DENSE;
	if (dense &&
	    (s->dense_rows < 1 || s->dense_rows > PST_ROWS_MAX || s->rows_max || s->admit > 1 || s->ttl_ms || s->full))
		return pst_fail(
			err, FAR_INVALID, 0,
			"a dense table needs dense_rows in [1, %u], and no bound, admission or TTL; dense_rows is %llu",
			PST_ROWS_MAX, (unsigned long long)s->dense_rows);
	if (!dense && s->dense_rows)
		return pst_fail(err, FAR_INVALID, 0, "dense_rows is %llu in a table that is not dense",
				(unsigned long long)s->dense_rows);
	enum far_status status = pst_init_check(&s->init, err);
	if (!status && pst_init_most(&s->init) > stored_most[s->stored])
		return pst_fail(err, FAR_INVALID, 0,
				"init: values of up to %g are beyond the greatest number of the type stored, %g",
				pst_init_most(&s->init), stored_most[s->stored]);
	return status ? status : pst_rule_check(&s->rule, err);
}

static void *heap(struct pst_table *t, size_t bytes)
{
	return t->memory->get(t->memory->ctx, bytes, PST_PAGES_HEAP);
}

static void unheap(struct pst_table *t, void *p, size_t bytes)
{
	if (p)
		t->memory->put(t->memory->ctx, p, bytes, PST_PAGES_HEAP);
}

/* The arrays of one call. */
static bool get_scratch(struct pst_table *t)
{
	size_t padded = (t->schema.dim + 15) / 16 * 16;
	t->scratch_bytes = (4 * padded + 16) * sizeof(float);
	t->ids = heap(t, PST_CHUNK_KEYS * sizeof *t->ids);
	t->missed = heap(t, PST_CHUNK_KEYS * sizeof *t->missed);
	t->made = heap(t, PST_CHUNK_KEYS * sizeof *t->made);
	t->status = heap(t, PST_CHUNK_KEYS);
	t->scratch = heap(t, t->scratch_bytes);
	if (t->schema.admit > 1)
		t->undo = heap(t, PST_CHUNK_KEYS * sizeof *t->undo);
	return t->ids && t->missed && t->made && t->status && t->scratch && (t->schema.admit <= 1 || t->undo);
}

static bool fill_dense(struct pst_table *t)
{
	t->dense_rows = t->schema.dense_rows;
	t->rows.eager = t->state.eager = true;
	if (pst_slabs_reserve(&t->rows, t->dense_rows) ||
	    (t->state_floats && pst_slabs_reserve(&t->state, t->dense_rows)))
		return false;
	t->rows_top = (uint32_t)t->dense_rows;
	t->rows_n = t->dense_rows;
	for (uint32_t i = 0; i < t->rows_top; i++)
		pst_row_begin(t, i, i);
	return true;
}

enum far_status pst_table_new(const struct pst_schema *schema, const struct pst_memory *memory,
			      struct pst_table **table, struct far_err *err)
{
	enum far_status status = pst_schema_check(schema, err);
	if (status)
		return status;
	if (!memory)
		memory = &pst_memory_default;
	struct pst_table *t = memory->get(memory->ctx, sizeof *t, PST_PAGES_HEAP);
	if (!t)
		return pst_fail(err, FAR_RESOURCE, ENOMEM, "no memory for a table");
	memset(t, 0, sizeof *t);
	t->schema = *schema;
	t->memory = memory;
	t->kernels = pst_kernels_best();
	t->rows_free = PST_NO_ROW;
	pst_table_bound(t, UINT64_MAX);
	t->random = schema->init.seed;
	t->has_touched = schema->full != PST_FULL_REFUSE;
	t->ttl_ticks = (uint32_t)((schema->ttl_ms + PST_TICK_MS - 1) / PST_TICK_MS);
	pst_values_init(&t->values, memory);
	bool ok = get_scratch(t);
	if (schema->kind != PST_VALUES) {
		t->row_bytes = schema->dim * pst_type_bytes(schema->stored);
		t->state_floats = pst_rule_state(&schema->rule, schema->dim);
		pst_slabs_init(&t->rows, stride_of(t->row_bytes), memory);
		pst_slabs_init(&t->state, stride_of(t->state_floats ? t->state_floats * sizeof(float) : 4), memory);
		pst_slabs_init(&t->touched, sizeof(uint32_t), memory);
		pst_slabs_init(&t->written, sizeof(uint32_t), memory);
	}
	if (ok && schema->admit > 1)
		ok = pst_admit_init(&t->admit, schema->candidates ? schema->candidates : CANDIDATES, memory) == 0;
	if (ok)
		ok = schema->kind == PST_DENSE ? fill_dense(t) : pst_index_init(&t->index, memory) == 0;
	if (!ok) {
		pst_table_free(t);
		return pst_fail(err, FAR_RESOURCE, ENOMEM,
				"no memory for a table of %u elements a row and %llu dense rows", schema->dim,
				(unsigned long long)schema->dense_rows);
	}
	*table = t;
	return FAR_OK;
}

void pst_table_free(struct pst_table *t)
{
	if (!t)
		return;
	pst_cuts_free(t);
	if (t->schema.kind != PST_DENSE && t->index.part)
		pst_index_fini(&t->index);
	if (t->schema.kind != PST_VALUES) {
		pst_slabs_fini(&t->rows);
		pst_slabs_fini(&t->state);
		pst_slabs_fini(&t->touched);
		pst_slabs_fini(&t->written);
	}
	pst_values_fini(&t->values);
	pst_admit_fini(&t->admit);
	unheap(t, t->ids, PST_CHUNK_KEYS * sizeof *t->ids);
	unheap(t, t->missed, PST_CHUNK_KEYS * sizeof *t->missed);
	unheap(t, t->made, PST_CHUNK_KEYS * sizeof *t->made);
	unheap(t, t->status, PST_CHUNK_KEYS);
	unheap(t, t->scratch, t->scratch_bytes);
	unheap(t, t->undo, PST_CHUNK_KEYS * sizeof *t->undo);
	unheap(t, t, sizeof *t);
}

bool pst_table_ahead(struct pst_table *t)
{
	if (t->schema.kind == PST_DENSE)
		return false;
	bool done = pst_slabs_ahead(&t->index.lines.slabs);
	if (t->schema.kind == PST_VALUES)
		return pst_slabs_ahead(&t->values.slabs) || done;
	done = pst_slabs_ahead(&t->rows) || done;
	done = pst_slabs_ahead(&t->state) || done;
	done = pst_slabs_ahead(&t->touched) || done;
	return pst_slabs_ahead(&t->written) || done;
}

const struct pst_schema *pst_table_schema(const struct pst_table *t)
{
	return &t->schema;
}

unsigned pst_table_state(const struct pst_table *t)
{
	return t->state_floats;
}

uint64_t pst_table_rows(const struct pst_table *t)
{
	return t->rows_n;
}

uint64_t pst_table_value_bytes(const struct pst_table *t)
{
	return t->values.bytes;
}

void pst_table_bound(struct pst_table *t, uint64_t room)
{
	uint64_t most = t->schema.rows_max ? t->schema.rows_max : PST_ROWS_MAX;
	t->rows_max = room < most && t->rows_n + room < most ? t->rows_n + room : most;
}

uint32_t pst_table_partition_keys(const struct pst_table *t, unsigned partition)
{
	return t->schema.kind == PST_DENSE ? 0 : pst_index_keys(&t->index, partition);
}

void pst_table_stats(const struct pst_table *t, struct pst_stats *s)
{
	size_t padded = (t->schema.dim + 15) / 16 * 16;
	*s = t->counts;
	s->rows = t->rows_n;
	if (t->schema.kind == PST_VALUES) {
		s->value_bytes = pst_values_bytes(&t->values);
	} else {
		s->row_bytes = pst_slabs_bytes(&t->rows, t->rows_top);
		s->state_bytes = pst_slabs_bytes(&t->state, t->rows_top);
		s->stamp_bytes = pst_slabs_bytes(&t->touched, t->rows_top) + pst_slabs_bytes(&t->written, t->rows_top);
	}
	if (t->schema.kind != PST_DENSE) {
		s->index_bytes = pst_index_bytes(&t->index);
		s->index = t->index.work;
	}
	s->bytes = s->value_bytes + s->row_bytes + s->state_bytes + s->stamp_bytes + s->index_bytes + t->admit.bytes +
		   pst_cuts_bytes(t) + sizeof *t +
		   PST_CHUNK_KEYS * (3 * sizeof *t->ids + 1 + (t->undo ? sizeof *t->undo : 0)) +
		   (4 * padded + 16) * sizeof(float);
}

enum far_status pst_keys_check(const struct pst_table *t, const uint64_t *keys, uint32_t n, struct far_err *err)
{
	if (n > PST_CHUNK_KEYS)
		return pst_fail(err, FAR_INVALID, 0, "%u keys in one call; at most %u are possible", n, PST_CHUNK_KEYS);
	if (t->schema.kind == PST_DENSE)
		for (uint32_t i = 0; i < n; i++)
			if (keys[i] >= t->dense_rows)
				return pst_fail(err, FAR_INVALID, 0,
						"key %llu is out of the %llu rows of a dense table",
						(unsigned long long)keys[i], (unsigned long long)t->dense_rows);
	return FAR_OK;
}

/* ---- Stamps ---- */

static uint64_t draw(struct pst_table *t)
{
	t->random += UINT64_C(0x9e3779b97f4a7c15);
	return pst_hash(t->random);
}

/* LFU: the count in the lowest 8 bits, the tick without its lowest 8 bits above. */
static uint32_t lfu_count(uint32_t stamp, uint32_t tick)
{
	uint32_t idle = ((tick & ~UINT32_C(255)) - (stamp & ~UINT32_C(255))) / TICKS_PER_DECAY, count = stamp & 255;
	return count > idle ? count - idle : 0;
}

void pst_touch(struct pst_table *t, uint32_t id, uint32_t tick)
{
	uint32_t *stamp = pst_touched(t, id);
	if (t->schema.full == PST_FULL_LRU) {
		*stamp = tick;
		return;
	}
	uint32_t count = lfu_count(*stamp, tick);
	uint32_t odds = count < PST_LFU_BEGIN ? 1 : 1 + 10 * (count - PST_LFU_BEGIN);
	if (count < 255 && draw(t) % odds == 0)
		count++;
	*stamp = (tick & ~UINT32_C(255)) | count;
}

void pst_stamp_new(struct pst_table *t, uint32_t id, uint32_t tick)
{
	if (t->has_touched)
		*pst_touched(t, id) = t->schema.full == PST_FULL_LRU ? tick : (tick & ~UINT32_C(255)) | PST_LFU_BEGIN;
	if (t->ttl_ticks)
		*pst_written(t, id) = tick;
}

/* ---- Rows ---- */

uint32_t pst_row_get(struct pst_table *t)
{
	uint32_t id = t->rows_free;
	if (id != PST_NO_ROW) {
		memcpy(&t->rows_free, pst_slabs_at(&t->rows, id), sizeof t->rows_free);
		t->rows_n++;
		return id;
	}
	id = t->rows_top;
	uint64_t n = (uint64_t)id + 1;
	if (n > PST_ROWS_MAX || pst_slabs_reserve(&t->rows, n) ||
	    (t->state_floats && pst_slabs_reserve(&t->state, n)) ||
	    (t->has_touched && pst_slabs_reserve(&t->touched, n)) ||
	    (t->ttl_ticks && pst_slabs_reserve(&t->written, n)))
		return PST_NO_ROW;
	t->rows_top++;
	t->rows_n++;
	pst_slabs_used(&t->rows, n);
	pst_slabs_used(&t->state, n);
	pst_slabs_used(&t->touched, n);
	pst_slabs_used(&t->written, n);
	return id;
}

void pst_row_put(struct pst_table *t, uint32_t id)
{
	memcpy(pst_slabs_at(&t->rows, id), &t->rows_free, sizeof t->rows_free);
	t->rows_free = id;
	t->rows_n--;
}

void pst_row_begin(struct pst_table *t, uint32_t id, uint64_t key)
{
	if (t->schema.stored == PST_F32) {
		pst_init_row(&t->schema.init, key, pst_slabs_at(&t->rows, id), t->schema.dim);
	} else {
		pst_init_row(&t->schema.init, key, t->scratch, t->schema.dim);
		t->kernels->narrow(t->schema.stored, pst_slabs_at(&t->rows, id), t->scratch, t->schema.dim);
	}
	if (t->state_floats)
		memset(pst_slabs_at(&t->state, id), 0, t->state_floats * sizeof(float));
}

void pst_remove(struct pst_table *t, uint64_t hash, uint64_t key)
{
	uint32_t id = pst_index_remove(&t->index, hash, key);
	if (t->cuts)
		pst_cuts_keep(t, hash, key, id);
	if (t->schema.kind == PST_VALUES) {
		pst_values_put(&t->values, id);
		t->rows_n--;
	} else {
		pst_row_put(t, id);
	}
}

int pst_make(struct pst_table *t, struct pst_change *c, const uint64_t *keys, uint32_t i, bool counts, uint32_t tick,
	     uint32_t *id)
{
	uint64_t hash = pst_hash(keys[i]);
	*id = PST_NO_ROW;
	if (t->schema.full == PST_FULL_REFUSE && t->rows_n >= t->rows_max) {
		t->status[i] = PST_REFUSED;
		t->counts.refused++;
		return 0;
	}
	if (counts && t->schema.admit > 1 &&
	    !pst_admit_push(&t->admit, hash, t->schema.admit, &t->undo[c->counted++])) {
		t->status[i] = PST_WAITING;
		t->counts.waited++;
		return 0;
	}
	if (pst_index_reserve(&t->index, hash))
		return -ENOMEM;
	uint32_t row = pst_row_get(t);
	if (row == PST_NO_ROW)
		return -ENOMEM;
	if (t->cuts)
		pst_cuts_keep(t, hash, keys[i], PST_NO_ROW);
	pst_row_begin(t, row, keys[i]);
	pst_stamp_new(t, row, tick);
	pst_index_put(&t->index, hash, keys[i], row);
	t->made[c->made++] = i;
	t->counts.made++;
	t->status[i] = PST_NEW;
	*id = row;
	return 0;
}

void pst_undo(struct pst_table *t, const struct pst_change *c, const uint64_t *keys)
{
	for (uint32_t i = c->made; i-- > 0;)
		pst_remove(t, pst_hash(keys[t->made[i]]), keys[t->made[i]]);
	for (uint32_t i = c->counted; i-- > 0;)
		*t->undo[i].candidate = t->undo[i].was;
	uint64_t expired = t->counts.expired; /* these rows were gone already */
	t->counts = c->was;
	t->counts.expired = expired;
}

/* ---- Eviction ---- */

/* Whether row a is to go before row b: an expired one first, then the least used, then the one used longest ago. */
static bool goes_first(const struct pst_table *t, uint32_t a, uint32_t b, uint32_t tick)
{
	bool expired_a = pst_expired(t, a, tick), expired_b = pst_expired(t, b, tick);
	if (expired_a != expired_b)
		return expired_a;
	uint32_t stamp_a = *pst_touched(t, a), stamp_b = *pst_touched(t, b);
	if (t->schema.full == PST_FULL_LFU) {
		uint32_t count_a = lfu_count(stamp_a, tick), count_b = lfu_count(stamp_b, tick);
		if (count_a != count_b)
			return count_a < count_b;
		stamp_a &= ~UINT32_C(255);
		stamp_b &= ~UINT32_C(255);
	}
	return tick - stamp_a > tick - stamp_b;
}

static void evict_one(struct pst_table *t, uint32_t tick)
{
	struct pst_entry sample[SAMPLE] = {{0}};
	struct pst_entry *out = &sample[0];
	uint32_t n = 0, run = t->rows_n < SAMPLE_RUN ? (uint32_t)t->rows_n : SAMPLE_RUN;
	bool done;
	for (uint32_t end = run; end <= SAMPLE / SAMPLE_RUN * run; end += run)
		for (uint64_t from = draw(t); n < end; from = done ? 0 : from)
			n += pst_index_scan(&t->index, &from, UINT64_MAX, sample + n, end - n, &done);
	for (uint32_t i = 0; i < n; i++)
		__builtin_prefetch(pst_touched(t, sample[i].row));
	for (uint32_t i = 1; i < n; i++)
		if (goes_first(t, sample[i].row, out->row, tick))
			out = &sample[i];
	if (pst_expired(t, out->row, tick))
		t->counts.expired++;
	else
		t->counts.evicted++;
	pst_remove(t, pst_hash(out->key), out->key);
}

void pst_trim(struct pst_table *t, uint32_t tick)
{
	while (t->rows_n > t->rows_max)
		evict_one(t, tick);
}

uint32_t pst_evict(struct pst_table *t, uint64_t now_ms, uint32_t keys)
{
	if (!t->ttl_ticks || t->schema.kind == PST_DENSE)
		return 0;
	uint32_t tick = pst_tick(now_ms), removed = 0;
	if (keys > PST_CHUNK_KEYS)
		keys = PST_CHUNK_KEYS;
	struct pst_entry entries[64];
	for (uint32_t want; keys; keys -= want) {
		bool done;
		want = keys < 64 ? keys : 64;
		uint32_t n = pst_index_scan(&t->index, &t->evict_from, UINT64_MAX, entries, want, &done);
		for (uint32_t i = 0; i < n; i++)
			if (pst_expired(t, entries[i].row, tick)) {
				pst_remove(t, pst_hash(entries[i].key), entries[i].key);
				removed++;
			}
		if (done) {
			t->evict_from = 0;
			break;
		}
	}
	t->counts.expired += removed;
	return removed;
}

enum far_status pst_erase(struct pst_table *t, const uint64_t *keys, uint32_t n, uint8_t *status, struct far_err *err)
{
	enum far_status bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if (t->schema.kind == PST_DENSE)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "a dense table keeps its rows: assign them instead");
	for (uint32_t i = 0; i < n; i++) {
		uint64_t hash = pst_hash(keys[i]);
		bool there = pst_index_find(&t->index, hash, keys[i]) != NULL;
		if (there) {
			pst_remove(t, hash, keys[i]);
			t->counts.erased++;
		}
		if (status)
			status[i] = there ? PST_ROW : PST_MISSING;
	}
	return FAR_OK;
}
