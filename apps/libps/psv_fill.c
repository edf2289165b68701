/* SPDX-License-Identifier: BSD-3-Clause */
/** Fills requests with gradients, rows and state: sums of equal keys, in the type of the wire. The thread that has the
 * operation. */
#include "psv_op.h"

#include "pst_copy.h"
#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

/* Where a key's numbers and state are in the requests. */
struct spots {
	struct psv_block_memory memory;
	char **numbers; /* [distinct]; NULL: not in this round */
	char **scale;   /* of int8 */
	float **state;  /* of operations with state */
	float *sums;    /* [distinct * dim], unless the requests have f32 */
	bool *begun;    /* of operations with equal keys */
};

static bool spots_new(const struct psv_op *op, struct spots *s)
{
	size_t n = op->k.distinct, sums = op->wire == PST_F32 ? 0 : n * op->dim * sizeof *s->sums;
	*s = (struct spots){.memory = psv_arena_get(&op->ps->arena, n * (3 * sizeof(char *) + 1) + sums + 5 * 64)};
	char *at = s->memory.at;
	if (!at)
		return false;
	s->numbers = psv_arena_part(&at, n * sizeof *s->numbers);
	s->scale = psv_arena_part(&at, n * sizeof *s->scale);
	s->state = psv_arena_part(&at, n * sizeof *s->state);
	s->begun = psv_arena_part(&at, n);
	s->sums = sums ? (float *)(void *)at : NULL;
	memset(s->numbers, 0, n * sizeof *s->numbers);
	memset(s->begun, 0, n);
	return true;
}

static void find_spots(const struct psv_op *op, struct spots *s)
{
	size_t row_bytes = op->dim * pst_type_bytes(op->wire);
	char *at = op->requests;
	for (uint32_t c = op->from; c < op->to; c++) {
		const struct psv_chunk *chunk = &op->d.chunk[c];
		char *numbers = at + sizeof(struct psv_request) + chunk->n * sizeof(uint64_t);
		char *scales = numbers + psv_numbers_bytes(chunk->n, op->dim, op->wire);
		char *state = scales + (op->wire == PST_INT8 ? chunk->n * sizeof(float) : 0);
		memset(scales - sizeof(uint32_t), 0, sizeof(uint32_t)); /* what is padded */
		for (uint32_t i = 0; i < chunk->n; i++) {
			uint32_t key = op->k.order[chunk->from + i];
			s->numbers[key] = numbers + i * row_bytes;
			s->scale[key] = scales + i * sizeof(float);
			s->state[key] = (float *)(void *)state + (size_t)i * op->state_floats;
		}
		at += (psv_op_request_bytes(op, chunk) + 7) / 8 * 8;
	}
}

static float *sum_of(const struct psv_op *op, const struct spots *s, uint32_t key)
{
	return s->sums ? s->sums + (size_t)key * op->dim : (float *)(void *)s->numbers[key];
}

static enum far_status not_finite(const struct psv_op *op, uint32_t key, size_t element, struct far_err *err)
{
	return pst_fail(err, FAR_INVALID, 0, "element %zu of the %s of key %llu is not finite", element,
			op->kind == PSV_ASSIGN ? "row" : "gradient", (unsigned long long)op->k.key[key]);
}

/* Adds the gradients of a position to those of its key; a row takes the place of an earlier one. */
static void put_position(const struct psv_op *op, const struct spots *s, uint32_t i)
{
	uint32_t key = op->k.at[i];
	const float *from = op->in + (size_t)i * op->dim;
	if (!s->numbers[key])
		return;
	if (s->begun[key] && op->kind != PSV_ASSIGN)
		pst_kernels_best()->add(sum_of(op, s, key), from, op->dim, 1.0f);
	else
		pst_copy_row(sum_of(op, s, key), from, op->dim * sizeof *from);
	s->begun[key] = true;
	if (op->state_floats)
		memcpy(s->state[key], op->state + (size_t)i * op->state_floats, op->state_floats * sizeof *op->state);
}

/* Checks numbers and state of a key, and writes the numbers to `to` as the wire has them, with their scale. */
static enum far_status put_wire(const struct psv_op *op, uint32_t key, const float *sum, const float *state, char *to,
				char *to_scale, struct far_err *err)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	size_t bad = kernels->first_bad(PST_F32, sum, op->dim);
	if (bad == op->dim && op->wire != PST_F32) {
		float scale = kernels->narrow(op->wire, to, sum, op->dim);
		if (op->wire == PST_INT8)
			memcpy(to_scale, &scale, sizeof scale);
		else
			bad = kernels->first_bad(op->wire, to, op->dim);
	}
	if (bad < op->dim)
		return not_finite(op, key, bad, err);
	bad = op->state_floats ? kernels->first_bad(PST_F32, state, op->state_floats) : 0;
	if (bad < op->state_floats)
		return pst_fail(err, FAR_INVALID, 0, "element %zu of the state of key %llu is not finite", bad,
				(unsigned long long)op->k.key[key]);
	return FAR_OK;
}

/* Sums of gradients, or the last rows; then as the wire has them. */
static enum far_status put_numbers(const struct psv_op *op, const struct spots *s, struct far_err *err)
{
	bool merged = op->k.distinct < op->k.n; /* else the number of a key is its position */
	enum far_status status = FAR_OK;
	for (uint32_t i = 0; merged && i < op->k.n; i++)
		put_position(op, s, i);
	for (uint32_t c = op->from; c < op->to; c++)
		for (uint32_t i = op->d.chunk[c].from; !status && i < op->d.chunk[c].from + op->d.chunk[c].n; i++) {
			uint32_t key = op->k.order[i];
			if (!merged)
				put_position(op, s, key);
			status = put_wire(op, key, sum_of(op, s, key), s->state[key], s->numbers[key], s->scale[key],
					  err);
		}
	return status;
}

enum far_status psv_op_check(const struct psv_op *op, struct far_err *err)
{
	enum far_status status = FAR_OK;
	float scale, *wire = malloc(op->dim * sizeof *wire);
	if (!wire)
		return psv_op_no_room(op, err);
	for (uint32_t i = 0; i < op->k.n && !status; i++)
		status = put_wire(op, i, op->in + (size_t)i * op->dim,
				  op->state_floats ? op->state + (size_t)i * op->state_floats : NULL, (char *)wire,
				  (char *)&scale, err);
	free(wire);
	return status;
}

enum far_status psv_op_no_room(const struct psv_op *op, struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for the %u requests of an operation", op->d.n);
}

enum far_status psv_op_numbers(const struct psv_op *op, struct far_err *err)
{
	struct spots spots;
	if (!spots_new(op, &spots))
		return psv_op_no_room(op, err);
	find_spots(op, &spots);
	enum far_status status = put_numbers(op, &spots, err);
	psv_arena_put(&op->ps->arena, spots.memory);
	return status;
}
