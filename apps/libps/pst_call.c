/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs a function at the rows of keys: on a copy, which takes the place of the row when the function has succeeded.
 * The thread that owns the table. */
#include "pst_inner.h"

#include "pst_fail.h"
#include <errno.h>
#include <string.h>

struct present {
	uint32_t tick;
};

static void visit(struct pst_table *t, void *ctx, uint32_t i, uint32_t id)
{
	const struct present *p = ctx;
	bool there = id != PST_NO_ROW && !pst_expired(t, id, p->tick);
	t->ids[i] = there ? id : PST_NO_ROW;
	t->status[i] = there ? PST_ROW : PST_MISSING;
}

/* The row of `id`, or what a new one would have, as f32. */
static void copy_row(const struct pst_table *t, uint32_t id, uint64_t key, float *row, float *state)
{
	if (id == PST_NO_ROW) {
		pst_init_row(&t->schema.init, key, row, t->schema.dim);
		memset(state, 0, t->state_floats * sizeof *state);
		return;
	}
	t->kernels->widen(t->schema.stored, row, pst_slabs_at(&t->rows, id), t->schema.dim, 0);
	if (t->state_floats)
		memcpy(state, pst_slabs_at(&t->state, id), t->state_floats * sizeof *state);
}

static void keep_row(struct pst_table *t, uint64_t key, uint32_t id, const float *row, const float *state,
		     uint32_t tick)
{
	if (t->cuts)
		pst_cuts_keep(t, pst_hash(key), key, id);
	if (t->schema.stored == PST_F32)
		memcpy(pst_slabs_at(&t->rows, id), row, t->row_bytes);
	else
		t->kernels->narrow(t->schema.stored, pst_slabs_at(&t->rows, id), row, t->schema.dim);
	if (t->state_floats)
		memcpy(pst_slabs_at(&t->state, id), state, t->state_floats * sizeof *state);
	if (t->ttl_ticks)
		*pst_written(t, id) = tick;
}

/* As the row is stored. */
static bool is_finite(const struct pst_table *t, const float *row, const float *state)
{
	size_t dim = t->schema.dim;
	if (t->kernels->first_bad(PST_F32, row, dim) < dim ||
	    t->kernels->first_bad(PST_F32, state, t->state_floats) < t->state_floats)
		return false;
	if (t->schema.stored == PST_F32)
		return true;
	t->kernels->narrow(t->schema.stored, t->scratch, row, dim);
	return t->kernels->first_bad(t->schema.stored, t->scratch, dim) == dim;
}

static void call_one(struct pst_table *t, const struct pst_call *how, uint32_t i, uint64_t key, float *state,
		     uint32_t tick)
{
	size_t padded = (t->schema.dim + 15) / 16 * 16;
	float *row = t->scratch + padded;
	uint32_t id = t->ids[i];
	copy_row(t, id, key, row, state);
	enum far_status status =
		how->run(how->ctx, i, key, t->status[i] != PST_ROW, row, t->state_floats ? state : NULL);
	if (status == FAR_OK && how->changes && !is_finite(t, row, state))
		status = FAR_INVALID;
	how->ended(how->ctx, i, status);
	if (status != FAR_OK) {
		if (PS_MUTANT(FAILED_KEPT) && id != PST_NO_ROW)
			keep_row(t, key, id, row, state, tick);
		if (t->status[i] == PST_NEW)
			t->missed[t->failed_n++] = i;
		t->status[i] = (uint8_t)(PST_FAILED + status);
		return;
	}
	if (id == PST_NO_ROW)
		return;
	if (how->changes || PS_MUTANT(READ_KEPT))
		keep_row(t, key, id, row, state, tick);
	if (t->has_touched)
		pst_touch(t, id, tick);
}

/* Rows that were made for keys whose function failed. A key that came twice may be gone already. */
static void remove_failed(struct pst_table *t, const uint64_t *keys)
{
	for (uint32_t m = 0; m < t->failed_n; m++) {
		uint64_t key = keys[t->missed[m]], hash = pst_hash(key);
		if (!pst_index_find(&t->index, hash, key))
			continue;
		pst_remove(t, hash, key);
		t->counts.made--;
	}
}

enum far_status pst_call(struct pst_table *t, const uint64_t *keys, uint32_t n, const struct pst_call *how,
			 uint8_t *status, struct far_err *err)
{
	uint32_t tick = pst_tick(how->now_ms);
	enum far_status bad = pst_keys_check(t, keys, n, err);
	if (bad)
		return bad;
	if (t->schema.kind == PST_VALUES)
		return pst_fail(err, FAR_UNSUPPORTED, 0, "functions run at rows, and this table has values");
	size_t bytes = (t->state_floats + 1) * sizeof(float);
	float *state = t->memory->get(t->memory->ctx, bytes, PST_PAGES_HEAP);
	if (!state || (how->make && pst_resolve(t, keys, n, false, tick))) {
		if (state)
			t->memory->put(t->memory->ctx, state, bytes, PST_PAGES_HEAP);
		return pst_fail(err, FAR_RESOURCE, ENOMEM, "no memory for a call of a function; it did not run");
	}
	if (!how->make)
		pst_walk(t, keys, n, t->row_bytes, false, visit, &(struct present){tick});
	t->failed_n = 0;
	for (uint32_t i = 0; i < n; i++)
		if (t->ids[i] != PST_NO_ROW || (how->initial && t->status[i] == PST_MISSING))
			call_one(t, how, i, keys[i], state, tick);
	remove_failed(t, keys);
	t->memory->put(t->memory->ctx, state, bytes, PST_PAGES_HEAP);
	if (status)
		memcpy(status, t->status, n);
	pst_trim(t, tick);
	return FAR_OK;
}
