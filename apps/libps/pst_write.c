/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Pushes and assignments: all checks, then the rows of all keys, then the change itself, which cannot fail. The thread
 * that owns the table.
 */
#include "pst_inner.h"

#include "pst_fail.h"
#include <errno.h>
#include <math.h>
#include <string.h>

#define KEEP_AHEAD 16u /* rows prefetched before a cut copies them */

static enum far_status check_numbers(const struct pst_table *t, const uint64_t *keys, uint32_t n,
				     const struct pst_push *how, const void *numbers, const char *what,
				     struct far_err *err)
{
	if (t->schema.kind == PST_VALUES)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "a table of values takes no %ss", what);
	if ((unsigned)how->wire >= PST_TYPES)
		return pst_fail(err, FAR_INVALID, 0, "no type has the number %d", (int)how->wire);
	if ((how->wire == PST_INT8) != (how->scales != NULL))
		return pst_fail(err, FAR_INVALID, 0, "scales come with int8 %ss, and with no others", what);
	if (!isfinite(how->rate) || how->rate < 0)
		return pst_fail(err, FAR_INVALID, 0, "the rate is %g; it must be finite and at least 0",
				(double)how->rate);
	enum far_status status = pst_keys_check(t, keys, n, err);
	if (status)
		return status;
	size_t all = (size_t)n * t->schema.dim, bad;
	if (how->wire == PST_INT8) {
		bad = t->kernels->first_bad(PST_F32, how->scales, n);
		if (bad < n)
			return pst_fail(err, FAR_INVALID, 0, "the scale of the %s of key %llu is not finite", what,
					(unsigned long long)keys[bad]);
		return FAR_OK;
	}
	bad = t->kernels->first_bad(how->wire, numbers, all);
	if (bad < all)
		return pst_fail(err, FAR_INVALID, 0, "element %zu of the %s of key %llu is not finite",
				bad % t->schema.dim, what, (unsigned long long)keys[bad / t->schema.dim]);
	return FAR_OK;
}

/* ---- Rows of all keys ---- */

/* Not shared, so it stays in registers. */
struct resolve {
	uint32_t *ids, *missed_at, missed, tick;
	bool expire; /* the table has a TTL */
};

PST_INLINE void visit(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	struct resolve *r = ctx;
	if (r->expire && id != PST_NO_ROW && pst_expired(t, id, r->tick))
		id = PST_NO_ROW;
	r->ids[i] = id;
	if (__builtin_expect(id == PST_NO_ROW, 0))
		r->missed_at[r->missed++] = i;
}

/* For the cuts, before they change. */
static void keep_rows(struct pst_table *t, const uint64_t *keys, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t ahead = i + KEEP_AHEAD < n ? t->ids[i + KEEP_AHEAD] : PST_NO_ROW;
		if (ahead != PST_NO_ROW) {
			pst_prefetch(pst_slabs_at(&t->rows, ahead), t->row_bytes);
			if (t->state_floats)
				pst_prefetch(pst_slabs_at(&t->state, ahead), t->state_floats * sizeof(float));
		}
		if (t->ids[i] != PST_NO_ROW)
			pst_cuts_keep(t, pst_hash(keys[i]), keys[i], t->ids[i]);
	}
}

int pst_resolve(struct pst_table *t, const uint64_t *keys, uint32_t n, bool counts, uint32_t tick)
{
	struct resolve r = {.ids = t->ids, .missed_at = t->missed, .tick = tick, .expire = t->ttl_ticks > 0};
	struct pst_change c = {.was = t->counts};
	memset(t->status, PST_ROW, n);
	if (t->has_touched || t->ttl_ticks)
		pst_walk(t, keys, n, 0, false, visit, &r);
	else
		pst_walk(t, keys, n, 0, true, visit, &r);
	for (uint32_t m = 0; m < r.missed; m++) {
		uint32_t i = t->missed[m];
		uint64_t hash = pst_hash(keys[i]);
		const uint32_t *row = pst_index_find(&t->index, hash, keys[i]);
		if (row && pst_expired(t, *row, tick)) {
			pst_remove(t, hash, keys[i]);
			t->counts.expired++;
			row = NULL;
		}
		if (row) {
			t->ids[i] = *row;
			t->status[i] = PST_NEW;
		} else if (pst_make(t, &c, keys, i, counts, tick, &t->ids[i])) {
			pst_undo(t, &c, keys);
			return -ENOMEM;
		}
	}
	if (t->cuts)
		keep_rows(t, keys, n);
	return 0;
}

/* After the change. */
static void finish(struct pst_table *t, uint32_t n, uint32_t tick, uint8_t *status)
{
	if (t->has_touched || t->ttl_ticks)
		for (uint32_t i = 0; i < n; i++) {
			if (t->ids[i] == PST_NO_ROW)
				continue;
			if (t->has_touched)
				pst_touch(t, t->ids[i], tick);
			if (t->ttl_ticks)
				*pst_written(t, t->ids[i]) = tick;
		}
	if (status)
		memcpy(status, t->status, n);
	pst_trim(t, tick);
}

static enum far_status no_memory(const struct pst_table *t, struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, ENOMEM, "no memory for new rows: the table has %llu; nothing was changed",
			(unsigned long long)t->rows_n);
}

enum far_status pst_push(struct pst_table *t, const uint64_t *keys, uint32_t n, const struct pst_push *push,
			 const void *grads, uint8_t *status, struct far_err *err)
{
	enum far_status bad = check_numbers(t, keys, n, push, grads, "gradient", err);
	if (bad)
		return bad;
	uint32_t tick = pst_tick(push->now_ms);
	if (pst_resolve(t, keys, n, true, tick))
		return no_memory(t, err);
	struct pst_apply a = {.rule = &t->schema.rule,
			      .rate = push->rate > 0 ? push->rate : t->schema.rule.rate,
			      .dim = t->schema.dim,
			      .stored = t->schema.stored,
			      .rows = &t->rows,
			      .state = t->state_floats ? &t->state : NULL,
			      .ids = t->ids,
			      .n = n,
			      .wire = push->wire,
			      .grads = grads,
			      .scales = push->scales,
			      .scratch = t->scratch};
	t->kernels->apply(&a);
	finish(t, n, tick, status);
	return FAR_OK;
}

enum far_status pst_assign(struct pst_table *t, const uint64_t *keys, uint32_t n, const struct pst_push *how,
			   const void *rows, const float *state, uint8_t *status, struct far_err *err)
{
	enum far_status bad = check_numbers(t, keys, n, how, rows, "row", err);
	if (bad)
		return bad;
	size_t states = (size_t)n * t->state_floats;
	if (state && states) {
		size_t at = t->kernels->first_bad(PST_F32, state, states);
		if (at < states)
			return pst_fail(err, FAR_INVALID, 0, "element %zu of the state of key %llu is not finite",
					at % t->state_floats, (unsigned long long)keys[at / t->state_floats]);
	}
	uint32_t tick = pst_tick(how->now_ms);
	if (pst_resolve(t, keys, n, false, tick))
		return no_memory(t, err);
	unsigned dim = t->schema.dim;
	for (uint32_t i = 0; i < n; i++) {
		if (t->ids[i] == PST_NO_ROW)
			continue;
		const char *from = (const char *)rows + (size_t)i * dim * pst_type_bytes(how->wire);
		void *to = pst_slabs_at(&t->rows, t->ids[i]);
		if (how->wire == t->schema.stored) {
			memcpy(to, from, t->row_bytes);
		} else {
			t->kernels->widen(how->wire, t->scratch, from, dim, how->scales ? how->scales[i] : 0.0f);
			t->kernels->narrow(t->schema.stored, to, t->scratch, dim);
		}
		if (!t->state_floats)
			continue;
		float *to_state = pst_slabs_at(&t->state, t->ids[i]);
		if (state)
			memcpy(to_state, state + (size_t)i * t->state_floats, t->state_floats * sizeof *state);
		else
			memset(to_state, 0, t->state_floats * sizeof *state);
	}
	finish(t, n, tick, status);
	return FAR_OK;
}

enum far_status pst_restore(struct pst_table *t, const uint64_t *keys, uint32_t n, const void *rows, const float *state,
			    const uint64_t *ages_ms, uint64_t now_ms, uint8_t *status, struct far_err *err)
{
	uint32_t tick = pst_tick(now_ms);
	if (t->schema.kind == PST_VALUES)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "a table of values takes no rows");
	enum far_status bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if (pst_resolve(t, keys, n, false, tick))
		return no_memory(t, err);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t id = t->ids[i];
		if (id == PST_NO_ROW)
			continue;
		memcpy(pst_slabs_at(&t->rows, id), (const char *)rows + (size_t)i * t->row_bytes, t->row_bytes);
		if (t->state_floats)
			memcpy(pst_slabs_at(&t->state, id), state + (size_t)i * t->state_floats,
			       t->state_floats * sizeof *state);
		if (t->has_touched)
			pst_touch(t, id, tick);
		if (t->ttl_ticks)
			*pst_written(t, id) = tick - (uint32_t)(ages_ms[i] / PST_TICK_MS);
	}
	if (status)
		memcpy(status, t->status, n);
	pst_trim(t, tick);
	return FAR_OK;
}

/* ---- Values ---- */

/* A key of an earlier position of the same call may have a new value already: the block is replaced once more. */
enum far_status pst_value_put(struct pst_table *t, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
			      const void *bytes, uint64_t now_ms, uint8_t *status, struct far_err *err)
{
	enum far_status bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if (t->schema.kind != PST_VALUES)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "this table has rows, not values");
	for (uint32_t i = 0; i < n; i++)
		if (offsets[i + 1] < offsets[i] || offsets[i + 1] - offsets[i] > t->schema.value_max)
			return pst_fail(err, FAR_INVALID, 0,
					"the value of key %llu has %lld bytes; at most %u are possible",
					(unsigned long long)keys[i], (long long)offsets[i + 1] - offsets[i],
					t->schema.value_max);
	/* First the blocks of all values, and slots of the index for keys that have none: these point to the new
	 * blocks. */
	uint32_t tick = pst_tick(now_ms), got = 0;
	struct pst_change c = {.was = t->counts};
	bool ok = true;
	for (; got < n && ok; got++) {
		uint64_t hash = pst_hash(keys[got]);
		uint32_t *slot = pst_index_find(&t->index, hash, keys[got]);
		if (slot && pst_expired(t, *slot, tick)) {
			pst_remove(t, hash, keys[got]);
			t->counts.expired++;
			slot = NULL;
		}
		t->ids[got] = PST_NO_ROW;
		t->status[got] = slot ? PST_ROW : PST_NEW;
		if (!slot && t->schema.full == PST_FULL_REFUSE && t->rows_n >= t->rows_max) {
			t->status[got] = PST_REFUSED;
			t->counts.refused++;
			continue;
		}
		if (!slot && pst_index_reserve(&t->index, hash)) {
			ok = false;
			break;
		}
		uint32_t block = pst_values_get(&t->values, offsets[got + 1] - offsets[got]);
		if (block == PST_VALUES_NONE) {
			ok = false;
			break;
		}
		t->ids[got] = block;
		if (slot)
			continue;
		if (t->cuts)
			pst_cuts_keep(t, hash, keys[got], PST_NO_ROW);
		/* The index owns this block; a key that comes again gets a further one. */
		pst_stamp_new(t, block, tick);
		pst_index_put(&t->index, hash, keys[got], block);
		t->rows_n++;
		t->counts.made++;
		t->made[c.made++] = got;
	}
	if (!ok) {
		/* Blocks of keys that are in the index by this call go with their keys. */
		uint32_t m = c.made;
		for (uint32_t i = got; i-- > 0;)
			if (m && t->made[m - 1] == i)
				m--;
			else if (t->ids[i] != PST_NO_ROW)
				pst_values_put(&t->values, t->ids[i]);
		pst_undo(t, &c, keys);
		return no_memory(t, err);
	}
	for (uint32_t i = 0; i < n; i++) {
		if (t->ids[i] == PST_NO_ROW)
			continue;
		uint32_t *slot = pst_index_find(&t->index, pst_hash(keys[i]), keys[i]);
		struct pst_value *v = pst_values_at(&t->values, t->ids[i]);
		memcpy(v->data, (const char *)bytes + offsets[i], v->bytes);
		if (*slot != t->ids[i]) {
			if (t->cuts)
				pst_cuts_keep(t, pst_hash(keys[i]), keys[i], *slot);
			v->touched = pst_values_at(&t->values, *slot)->touched;
			if (PS_MUTANT(VALUE_SHORT) && pst_values_at(&t->values, *slot)->bytes < v->bytes)
				v->bytes = pst_values_at(&t->values, *slot)->bytes;
			pst_values_put(&t->values, *slot);
			*slot = t->ids[i];
		}
		v->written = tick;
		if (t->has_touched)
			pst_touch(t, t->ids[i], tick);
	}
	if (status)
		memcpy(status, t->status, n);
	pst_trim(t, tick);
	return FAR_OK;
}

enum far_status pst_value_restore(struct pst_table *t, const uint64_t *keys, uint32_t n, const uint32_t *offsets,
				  const void *bytes, const uint64_t *ages_ms, uint64_t now_ms, uint8_t *status,
				  struct far_err *err)
{
	enum far_status bad = pst_value_put(t, keys, n, offsets, bytes, now_ms, status, err);
	for (uint32_t i = 0; !bad && t->ttl_ticks && i < n; i++) {
		const uint32_t *slot = pst_index_find(&t->index, pst_hash(keys[i]), keys[i]);
		if (slot) /* else it is refused or evicted */
			*pst_written(t, *slot) = pst_tick(now_ms) - (uint32_t)(ages_ms[i] / PST_TICK_MS);
	}
	return bad;
}

static void visit_value(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	const uint32_t *tick = ctx;
	if (id != PST_NO_ROW && pst_expired(t, id, *tick))
		id = PST_NO_ROW;
	t->ids[i] = id;
	t->status[i] = id == PST_NO_ROW ? PST_MISSING : PST_ROW;
}

enum far_status pst_value_get(struct pst_table *t, const uint64_t *keys, uint32_t n, uint32_t *offsets, void *bytes,
			      size_t bytes_max, size_t *needed, uint64_t now_ms, uint8_t *status, struct far_err *err)
{
	enum far_status bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if (t->schema.kind != PST_VALUES)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "this table has rows, not values");
	uint32_t tick = pst_tick(now_ms);
	pst_walk(t, keys, n, PST_PREFETCH_BYTES, false, visit_value, &tick);
	size_t all = 0;
	for (uint32_t i = 0; i < n; i++)
		all += t->ids[i] == PST_NO_ROW ? 0 : pst_values_at(&t->values, t->ids[i])->bytes;
	*needed = all;
	if (all > bytes_max || all > UINT32_MAX)
		return pst_fail(err, FAR_TOO_LARGE, 0, "the values of %u keys take %zu bytes; there is room for %zu", n,
				all, bytes_max);
	uint32_t at = 0;
	for (uint32_t i = 0; i < n; i++) {
		offsets[i] = at;
		if (t->ids[i] == PST_NO_ROW)
			continue;
		const struct pst_value *v = pst_values_at(&t->values, t->ids[i]);
		memcpy((char *)bytes + at, v->data, v->bytes);
		at += v->bytes;
		if (t->has_touched)
			pst_touch(t, t->ids[i], tick);
	}
	offsets[n] = at;
	if (status)
		memcpy(status, t->status, n);
	return FAR_OK;
}
