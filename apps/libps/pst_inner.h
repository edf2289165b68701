/* SPDX-License-Identifier: BSD-3-Clause */
/** What the files of the table share. The thread that owns the table. */
#ifndef PST_INNER_H
#define PST_INNER_H

#include "ps_mutant.h"
#include "pst_admit.h"
#include "pst_cut.h"
#include "pst_table.h"

#define PST_TICK_MS   64u
#define PST_LFU_BEGIN 5u
#define PST_GROUP     32u /* keys of a stage of the pipeline */
#define PST_INLINE    static inline __attribute__((always_inline))

struct pst_table {
	/* Read by every lookup. */
	struct pst_index index; /* not of dense tables */
	struct pst_slabs rows, state, touched, written;
	const struct pst_kernels *kernels;
	uint64_t dense_rows; /* 0: not dense */
	uint32_t row_bytes;  /* of `dim` elements */
	uint32_t ttl_ticks;  /* rounded up; 0: none */
	bool has_touched;    /* LRU, LFU */
	unsigned state_floats;

	struct pst_schema schema;
	const struct pst_memory *memory;
	struct pst_values values;
	struct pst_admit admit;
	uint32_t rows_top;  /* row numbers [0, rows_top) were in use once */
	uint32_t rows_free; /* first of the freed ones, PST_NO_ROW: none; the next is in the row's first bytes */
	uint64_t rows_n;
	uint64_t rows_max;
	uint64_t random;     /* state of the eviction's choices */
	uint64_t evict_from; /* hash where pst_evict goes on */
	struct pst_cut *cuts;
	struct pst_cut *cut_spare; /* memory of a cut that has ended; NULL: none */
	struct pst_stats counts;

	/* Of one call, [PST_CHUNK_KEYS] each. */
	uint32_t *ids;
	uint32_t *missed; /* positions of keys without a row; of pst_call: whose function failed at a new row */
	uint32_t failed_n;
	uint32_t *made; /* positions of keys whose rows this call made */
	uint8_t *status;
	struct pst_admit_undo *undo; /* with admission */
	float *scratch;              /* [4 * (dim rounded up to 16)] */
	size_t scratch_bytes;
};

/* A change that can still be taken back. */
struct pst_change {
	uint32_t made, counted; /* entries of table->made and table->undo */
	struct pst_stats was;
};

uint32_t pst_tick(uint64_t now_ms);

/** Stamps of a row or value; of rows NULL is not returned: check has_touched and ttl_ticks first. */
static inline uint32_t *pst_touched(const struct pst_table *t, uint32_t id)
{
	return t->schema.kind == PST_VALUES ? &pst_values_at(&t->values, id)->touched : pst_slabs_at(&t->touched, id);
}

static inline uint32_t *pst_written(const struct pst_table *t, uint32_t id)
{
	return t->schema.kind == PST_VALUES ? &pst_values_at(&t->values, id)->written : pst_slabs_at(&t->written, id);
}

/** Whether a row's time is over. A tick is cut, so one more must have passed. */
static inline bool pst_expired(const struct pst_table *t, uint32_t id, uint32_t tick)
{
	return t->ttl_ticks && (int32_t)(tick - *pst_written(t, id)) > (int32_t)t->ttl_ticks >> PS_MUTANT(TTL_EARLY);
}

/** Notes a use for LRU or LFU. */
void pst_touch(struct pst_table *t, uint32_t id, uint32_t tick);
/** The stamps of a new row. */
void pst_stamp_new(struct pst_table *t, uint32_t id, uint32_t tick);

/** A free row number with its memory, or PST_NO_ROW. Its row, state and stamps are to be set by the caller. */
uint32_t pst_row_get(struct pst_table *t);
void pst_row_put(struct pst_table *t, uint32_t id);
/** Sets a row to its initial values and its state to zeros. */
void pst_row_begin(struct pst_table *t, uint32_t id, uint64_t key);

/** Removes a key that is there. */
void pst_remove(struct pst_table *t, uint64_t hash, uint64_t key);

/** Evicts until the bound holds. */
void pst_trim(struct pst_table *t, uint32_t tick);

/** Row of the key at position i, which has none: makes one if the bound and (`counts`) the admission allow it, and sets
 * the key's status. PST_NO_ROW: none. -ENOMEM: the change is to be undone. */
int pst_make(struct pst_table *t, struct pst_change *c, const uint64_t *keys, uint32_t i, bool counts, uint32_t tick,
	     uint32_t *id);
void pst_undo(struct pst_table *t, const struct pst_change *c, const uint64_t *keys);

/** Fills table->ids and table->status; makes rows. -ENOMEM: nothing was changed. `counts`: for admission. A row that
 * expired is removed: for callers it was gone before. */
int pst_resolve(struct pst_table *t, const uint64_t *keys, uint32_t n, bool counts, uint32_t tick);

/** Checks the number of keys, the table's kind, and that dense keys are in range. */
enum far_status pst_keys_check(const struct pst_table *t, const uint64_t *keys, uint32_t n, struct far_err *err);

/** Bytes of a row that a stage of the pipeline prefetches at most. */
#define PST_PREFETCH_BYTES 512u

/** To the first level: the second is no faster, and slower for lines that the first one has (perf/NOTES.md, 71, 102).
 */
PST_INLINE void pst_prefetch(const void *p, size_t bytes)
{
	for (size_t i = 0; i < bytes && i < PST_PREFETCH_BYTES; i += 64)
		__builtin_prefetch((const char *)p + i);
}

/* The stages of pst_walk. Each is PST_GROUP keys behind the one before it; a slot is a key's number modulo
 * PST_WALK_SLOTS. */
#define PST_WALK_SLOTS (4 * PST_GROUP)

struct pst_walk {
	uint64_t hash[PST_WALK_SLOTS];
	const struct pst_line *line[PST_WALK_SLOTS];
	uint32_t id[PST_WALK_SLOTS];
	uint32_t far[PST_GROUP], far_n; /* positions of keys of one group that may be behind their home lines */
};

/* What a walk reads for each key. A copy: whatever `visit` writes, the compiler need not read it again. */
struct pst_walk_view {
	const uint64_t *keys; /* set by pst_walk() */
	struct pst_part *part;
	char *const *lines;
	char *const *rows;
	uint32_t shift, stride; /* of the rows */
	bool values, stamps;    /* the rows are values; they have stamps */
};

/* `plain`: the compiler knows that the rows are neither values nor have stamps. */
PST_INLINE struct pst_walk_view pst_walk_view(const struct pst_table *t, bool plain)
{
	return (struct pst_walk_view){.part = t->index.part,
				      .lines = t->index.lines.slabs.at,
				      .rows = t->rows.at,
				      .shift = t->rows.shift,
				      .stride = t->rows.stride,
				      .values = !plain && t->schema.kind == PST_VALUES,
				      .stamps = !plain && (t->has_touched || t->ttl_ticks)};
}

/** The row of a table without values. */
PST_INLINE const void *pst_walk_at(const struct pst_walk_view *v, uint32_t id)
{
	return v->rows[id >> v->shift] + (size_t)(id & ((UINT32_C(1) << v->shift) - 1)) * v->stride;
}

PST_INLINE void pst_walk_row(const struct pst_table *t, const struct pst_walk_view *v, uint32_t id, size_t row_bytes)
{
	if (id == PST_NO_ROW)
		return;
	if (v->values) {
		pst_prefetch(pst_values_at(&t->values, id), row_bytes);
		return;
	}
	pst_prefetch(pst_walk_at(v, id), row_bytes);
	if (!v->stamps)
		return;
	if (t->has_touched)
		__builtin_prefetch(pst_slabs_at(&t->touched, id), 1);
	if (t->ttl_ticks)
		__builtin_prefetch(pst_slabs_at(&t->written, id), 1);
}

PST_INLINE uint32_t pst_least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Looks for the keys [from, end) in their home lines. */
PST_INLINE void pst_walk_home(const struct pst_table *t, const struct pst_walk_view *v, struct pst_walk *w,
			      uint32_t from, uint32_t end, size_t row_bytes)
{
	for (uint32_t i = from; i < end; i++) {
		uint32_t slot = i % PST_WALK_SLOTS;
		const struct pst_line *home = w->line[slot];
		unsigned equal = pst_line_match(home, v->keys[i]);
		if (__builtin_expect(equal != 0, 1)) {
			w->id[slot] = home->row[pst_line_first(equal)];
			pst_walk_row(t, v, w->id[slot], row_bytes);
			continue;
		}
		w->id[slot] = PST_NO_ROW;
		if (!home->over)
			continue;
		__builtin_prefetch(home + 1);
		__builtin_prefetch(home + 2);
		w->far[w->far_n++] = i;
	}
}

/* Looks for the keys that have waited for the lines behind. */
PST_INLINE void pst_walk_far(const struct pst_table *t, const struct pst_walk_view *v, struct pst_walk *w,
			     size_t row_bytes)
{
	for (uint32_t f = 0; f < w->far_n; f++) {
		uint32_t i = w->far[f], slot = i % PST_WALK_SLOTS;
		const uint32_t *row = pst_index_find(&t->index, w->hash[slot], v->keys[i]);
		if (row) {
			w->id[slot] = *row;
			pst_walk_row(t, v, *row, row_bytes);
		}
	}
	w->far_n = 0;
}

/**
 * Visits the row number of each key (PST_NO_ROW: none) in order, in four stages: hash, and prefetch of the partition;
 * prefetch of the index line; match, and prefetch of the row (`row_bytes` of it) and its stamps; `visit`. A key that is
 * not in its home line is found one group later, when the lines behind have come (perf/NOTES.md, 87). `visit` must not
 * change the index. `plain`: a constant; the table has neither values nor stamps.
 */
PST_INLINE void pst_walk(struct pst_table *t, const uint64_t *keys, uint32_t n, size_t row_bytes, bool plain,
			 void (*visit)(struct pst_table *t, void *ctx, uint32_t i, uint32_t id), void *ctx)
{
	struct pst_walk w;
	struct pst_walk_view v = pst_walk_view(t, plain);
	v.keys = keys;
	w.far_n = 0;
	if (t->dense_rows) {
		for (uint32_t i = 0; i < n; i++) {
			if (i + 2 * PST_GROUP < n)
				pst_prefetch(pst_walk_at(&v, (uint32_t)keys[i + 2 * PST_GROUP]), row_bytes);
			visit(t, ctx, i, (uint32_t)keys[i]);
		}
		return;
	}
	for (uint32_t b = 0; b < n + 3 * PST_GROUP; b += PST_GROUP) {
		pst_walk_far(t, &v, &w, row_bytes);
		uint32_t end = pst_least(b + PST_GROUP, n);
		for (uint32_t i = b; i < end; i++) {
			uint64_t hash = pst_hash(keys[i]);
			w.hash[i % PST_WALK_SLOTS] = hash;
			__builtin_prefetch(&v.part[pst_partition(hash)]);
		}
		if (b < PST_GROUP)
			continue;
		end = pst_least(b, n);
		for (uint32_t i = b - PST_GROUP; i < end; i++) {
			uint32_t slot = i % PST_WALK_SLOTS;
			w.line[slot] = pst_index_at(v.part, v.lines, w.hash[slot]);
			pst_prefetch(w.line[slot], sizeof *w.line[slot]);
		}
		if (b < 2 * PST_GROUP)
			continue;
		end = pst_least(b - PST_GROUP, n);
		pst_walk_home(t, &v, &w, b - 2 * PST_GROUP, end, row_bytes);
		if (b < 3 * PST_GROUP)
			continue;
		end = pst_least(b - 2 * PST_GROUP, n);
		for (uint32_t i = b - 3 * PST_GROUP; i < end; i++)
			visit(t, ctx, i, w.id[i % PST_WALK_SLOTS]);
	}
}

#endif
