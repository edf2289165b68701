/* SPDX-License-Identifier: BSD-3-Clause */
/** Pulls and pooled pulls. The thread that owns the table. */
#include "pst_inner.h"

#include "pst_copy.h"
#include "pst_fail.h"
#include <errno.h>
#include <string.h>

/* ---- Pull ---- */

struct pull {
	const struct pst_pull *how;
	const uint64_t *keys;
	char *out; /* NULL: nothing is copied */
	float *scales;
	uint32_t row_bytes; /* of `wire` */
	uint32_t missed;    /* entries of table->missed */
	uint32_t tick;
	bool stamps; /* the table has a TTL, LRU or LFU */
	bool lines;  /* rows are whole lines as they are stored, `out` is aligned to 16 */
};

/* A stored row, or one of f32 if `stored` is NULL, to place i of the result. */
static void put_row(const struct pst_table *t, const struct pull *p, uint32_t i, const void *stored, const float *wide)
{
	char *to = p->out + (size_t)i * p->row_bytes;
	if (stored && p->lines) {
		pst_stream_lines(to, stored, p->row_bytes);
		return;
	}
	if (stored && t->schema.stored == p->how->wire) {
		pst_copy_row(to, stored, p->row_bytes);
		return;
	}
	if (stored && t->schema.stored == PST_F32) {
		wide = stored;
	} else if (stored) {
		t->kernels->widen(t->schema.stored, t->scratch, stored, t->schema.dim, 0);
		wide = t->scratch;
	}
	float scale = t->kernels->narrow(p->how->wire, to, wide, t->schema.dim);
	if (p->scales)
		p->scales[i] = scale;
}

/* What a key without a row gets. */
static void put_miss(struct pst_table *t, const struct pull *p, uint32_t i)
{
	const float *wide = p->how->fallback;
	if (p->how->miss == PST_MISS_FALLBACK && !wide) {
		memset(t->scratch, 0, t->schema.dim * sizeof *t->scratch);
		wide = t->scratch;
	} else if (p->how->miss != PST_MISS_FALLBACK) {
		pst_init_row(&t->schema.init, p->keys[i], t->scratch, t->schema.dim);
		wide = t->scratch;
		/* As if it had been stored. */
		if (t->schema.stored != PST_F32) {
			char *narrow = (char *)(t->scratch + (t->schema.dim + 15) / 16 * 16);
			t->kernels->narrow(t->schema.stored, narrow, wide, t->schema.dim);
			t->kernels->widen(t->schema.stored, t->scratch, narrow, t->schema.dim, 0);
		}
	}
	put_row(t, p, i, NULL, wide);
}

/* False: the key has no row, or its time is over. */
PST_INLINE bool is_row(struct pst_table *t, struct pull *p, uint32_t i, uint32_t id)
{
	if (id == PST_NO_ROW || (p->stamps && pst_expired(t, id, p->tick))) {
		t->missed[p->missed++] = i;
		t->status[i] = PST_MISSING;
		return false;
	}
	t->status[i] = PST_ROW;
	if (p->stamps && t->has_touched)
		pst_touch(t, id, p->tick);
	return true;
}

PST_INLINE void visit_copy(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	struct pull *p = ctx;
	if (is_row(t, p, i, id))
		put_row(t, p, i, pst_slabs_at(&t->rows, id), NULL);
}

PST_INLINE void visit_check(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	is_row(t, ctx, i, id);
}

/* The same key may have been made for an earlier position. */
static int make_missed(struct pst_table *t, struct pull *p, struct pst_change *c)
{
	for (uint32_t m = 0; m < p->missed; m++) {
		uint32_t i = t->missed[m], id;
		uint64_t hash = pst_hash(p->keys[i]);
		const uint32_t *row = pst_index_find(&t->index, hash, p->keys[i]);
		if (row && pst_expired(t, *row, p->tick)) {
			pst_remove(t, hash, p->keys[i]);
			t->counts.expired++;
			row = NULL;
		}
		if (row) {
			t->status[i] = PST_NEW;
			continue;
		}
		if (pst_make(t, c, p->keys, i, false, p->tick, &id))
			return -ENOMEM;
	}
	return 0;
}

static enum far_status check_pull(const struct pst_table *t, const struct pst_pull *how, const float *scales,
				  bool copies, struct far_err *err)
{
	if (t->schema.kind == PST_VALUES && (copies || how->miss == PST_MISS_MAKE))
		return pst_fail(err, FAR_UNSUPPORTED, 0, "a table of values has no rows to pull");
	if ((unsigned)how->wire >= PST_TYPES || (unsigned)how->miss > PST_MISS_MAKE)
		return pst_fail(err, FAR_INVALID, 0, "no pull of type %d with rule %d for missing rows", (int)how->wire,
				(int)how->miss);
	if (copies && (how->wire == PST_INT8) != (scales != NULL))
		return pst_fail(err, FAR_INVALID, 0, "scales come with int8 rows, and with no others");
	return FAR_OK;
}

/* Makes the missing rows, if that is wanted. */
static enum far_status make_rows(struct pst_table *t, struct pull *p, struct far_err *err)
{
	struct pst_change c = {.was = t->counts};
	if (p->how->miss != PST_MISS_MAKE || t->schema.admit > 1 || !p->missed)
		return FAR_OK;
	if (make_missed(t, p, &c)) {
		pst_undo(t, &c, p->keys);
		return pst_fail(err, FAR_RESOURCE, ENOMEM, "no memory for new rows: the table has %llu",
				(unsigned long long)t->rows_n);
	}
	return FAR_OK;
}

static struct pull pull_of(const struct pst_table *t, const uint64_t *keys, const struct pst_pull *how, void *out,
			   float *scales)
{
	return (struct pull){.how = how,
			     .keys = keys,
			     .out = out,
			     .scales = scales,
			     .row_bytes = t->schema.dim * pst_type_bytes(how->wire),
			     .tick = pst_tick(how->now_ms),
			     .stamps = t->ttl_ticks || t->has_touched,
			     .lines = t->schema.stored == how->wire && t->row_bytes % 64 == 0 &&
				      (uintptr_t)out % 16 == 0};
}

/* A pull of rows as they are stored, without stamps, of a size that the compiler knows: most are of one line, or of one
 * number. Not shared, so it stays in registers. */
struct rows {
	struct pst_walk_view rows;
	char *out;
	uint8_t *status;
	uint32_t *missed_at, missed;
};

PST_INLINE void visit_row(void *ctx, uint32_t i, uint32_t id, size_t bytes)
{
	struct rows *r = ctx;
	if (__builtin_expect(id == PST_NO_ROW, 0)) {
		r->missed_at[r->missed++] = i;
		r->status[i] = PST_MISSING;
		return;
	}
	r->status[i] = PST_ROW;
	if (bytes == 64)
		pst_stream_lines(r->out + (size_t)i * 64, pst_walk_at(&r->rows, id), 64);
	else
		memcpy(r->out + i * bytes, pst_walk_at(&r->rows, id), bytes);
}

PST_INLINE void visit_line(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	(void)t;
	visit_row(ctx, i, id, 64);
}

PST_INLINE void visit_number(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	(void)t;
	visit_row(ctx, i, id, sizeof(float));
}

PST_INLINE void pull_rows(struct pst_table *t, struct pull *p, uint32_t n, uint32_t bytes,
			  void (*visit)(struct pst_table *, void *, uint32_t, uint32_t))
{
	struct rows r = {.rows = pst_walk_view(t, true), .out = p->out, .status = t->status, .missed_at = t->missed};
	r.rows.stride = bytes;
	pst_walk(t, p->keys, n, bytes, true, visit, &r);
	p->missed = r.missed;
}

enum far_status pst_pull(struct pst_table *t, const uint64_t *keys, uint32_t n, const struct pst_pull *how, void *out,
			 float *scales, uint8_t *status, struct far_err *err)
{
	enum far_status bad = check_pull(t, how, scales, out != NULL, err);
	if (!bad)
		bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	struct pull p = pull_of(t, keys, how, out, scales);
	if (!out)
		pst_walk(t, keys, n, 0, false, visit_check, &p);
	else if (p.row_bytes == 64 && p.lines && !p.stamps)
		pull_rows(t, &p, n, 64, visit_line);
	else if (p.row_bytes == sizeof(float) && t->schema.stored == how->wire && !p.stamps)
		pull_rows(t, &p, n, sizeof(float), visit_number);
	else
		pst_walk(t, keys, n, t->row_bytes, false, visit_copy, &p);
	bad = make_rows(t, &p, err);
	if (bad)
		return bad;
	for (uint32_t m = 0; out && m < p.missed; m++)
		put_miss(t, &p, t->missed[m]);
	pst_stream_end();
	if (status)
		memcpy(status, t->status, n);
	pst_trim(t, p.tick);
	return FAR_OK;
}

/* ---- Bags ---- */

struct bags {
	struct pull pull;
	const uint32_t *offsets;
	const float *weights;
	uint32_t bag, bags;
	enum pst_pool pool;
	float *sum; /* behind two padded rows of the scratch */
	float weight;
};

static void end_bag(struct pst_table *t, struct bags *b)
{
	unsigned dim = t->schema.dim;
	if (b->pool == PST_POOL_MEAN)
		for (unsigned d = 0; d < dim; d++)
			b->sum[d] = b->weight < 0 || b->weight > 0 ? b->sum[d] / b->weight : 0.0f;
	put_row(t, &b->pull, b->bag++, NULL, b->sum);
	memset(b->sum, 0, dim * sizeof *b->sum);
	b->weight = 0;
}

static void visit_bag(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	struct bags *b = ctx;
	while (i >= b->offsets[b->bag + 1])
		end_bag(t, b);
	float weight = b->weights ? b->weights[i] : 1.0f;
	const float *row = t->scratch;
	if (!is_row(t, &b->pull, i, id)) {
		struct pull to_scratch = b->pull;
		struct pst_pull how = *b->pull.how;
		size_t padded = (t->schema.dim + 15) / 16 * 16;
		float *wide = t->scratch + 3 * padded;
		how.wire = PST_F32;
		to_scratch.how = &how;
		to_scratch.row_bytes = 0;
		to_scratch.scales = NULL;
		to_scratch.out = (char *)wide;
		put_miss(t, &to_scratch, i);
		row = wide;
	} else if (t->schema.stored == PST_F32) {
		row = pst_slabs_at(&t->rows, id);
	} else {
		t->kernels->widen(t->schema.stored, t->scratch, pst_slabs_at(&t->rows, id), t->schema.dim, 0);
	}
	t->kernels->add(b->sum, row, t->schema.dim, weight);
	b->weight += weight;
}

enum far_status pst_pull_bags(struct pst_table *t, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
			      uint32_t bags, const float *weights, enum pst_pool pool, const struct pst_pull *how,
			      void *out, float *scales, uint8_t *status, struct far_err *err)
{
	enum far_status bad = check_pull(t, how, scales, true, err);
	if (!bad)
		bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if ((unsigned)pool > PST_POOL_MEAN)
		return pst_fail(err, FAR_INVALID, 0, "no pooling has the number %d", (int)pool);
	bool ordered = offsets[0] == 0 && offsets[bags] == n;
	for (uint32_t b = 0; b < bags; b++)
		ordered = ordered && offsets[b] <= offsets[b + 1];
	if (!ordered)
		return pst_fail(err, FAR_INVALID, 0, "the offsets of %u bags do not cut %u keys in order", bags, n);
	size_t padded = (t->schema.dim + 15) / 16 * 16;
	struct bags b = {.pull = pull_of(t, keys, how, out, scales),
			 .offsets = offsets,
			 .weights = weights,
			 .bags = bags,
			 .pool = pool,
			 .sum = t->scratch + 2 * padded};
	bool makes = how->miss == PST_MISS_MAKE && t->schema.admit <= 1 && t->schema.kind == PST_SPARSE;
	if (makes) {
		pst_walk(t, keys, n, 0, false, visit_check, &b.pull);
		bad = make_rows(t, &b.pull, err);
		if (bad)
			return bad;
		if (status)
			memcpy(status, t->status, n);
		b.pull.missed = 0;
	}
	memset(b.sum, 0, t->schema.dim * sizeof *b.sum);
	pst_walk(t, keys, n, t->row_bytes, false, visit_bag, &b);
	while (b.bag < bags)
		end_bag(t, &b);
	if (status && !makes)
		memcpy(status, t->status, n);
	pst_trim(t, b.pull.tick);
	return FAR_OK;
}
