/* SPDX-License-Identifier: BSD-3-Clause */
/** Fills requests with gradients, rows and state: sums of equal keys, in the type of the wire. The thread that has the
 * operation. */
#include "psv_op.h"

#include "pst_copy.h"
#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

/* Where a request has its numbers and state. */
struct place {
	char *numbers, *scales;
	float *state;
};

static struct place place_of(const struct psv_op *op, const struct psv_chunk *c, char *request)
{
	struct place p = {.numbers = request + sizeof(struct psv_request) + c->n * sizeof(uint64_t)};
	p.scales = p.numbers + psv_numbers_bytes(c->n, op->dim, op->wire);
	p.state = (float *)(void *)(p.scales + (op->wire == PST_INT8 ? c->n * sizeof(float) : 0));
	memset(p.scales - sizeof(uint32_t), 0, sizeof(uint32_t)); /* what is padded */
	return p;
}

static size_t padded_request(const struct psv_op *op, const struct psv_chunk *c)
{
	return (psv_op_request_bytes(op, c) + 7) / 8 * 8;
}

/* Where a key's numbers and state are in the requests. */
struct spots {
	struct psv_block_memory memory;
	char **numbers; /* [distinct]; NULL: not in this round */
	char **scale;   /* of int8 */
	float **state;  /* of operations with state */
	float *sums;    /* [distinct * dim], unless the requests have f32 */
	const struct pst_kernels *kernels;
};

static bool spots_new(const struct psv_op *op, struct spots *s)
{
	size_t n = op->k.distinct, sums = op->wire == PST_F32 ? 0 : n * op->dim * sizeof *s->sums;
	*s = (struct spots){.memory = psv_arena_get(&op->ps->arena, n * 3 * sizeof(char *) + sums + 4 * 64),
			    .kernels = pst_kernels_best()};
	char *at = s->memory.at;
	if (!at)
		return false;
	s->numbers = psv_arena_part(&at, n * sizeof *s->numbers);
	s->scale = psv_arena_part(&at, n * sizeof *s->scale);
	s->state = psv_arena_part(&at, n * sizeof *s->state);
	s->sums = sums ? (float *)(void *)at : NULL;
	memset(s->numbers, 0, n * sizeof *s->numbers);
	return true;
}

static void find_spots(const struct psv_op *op, struct spots *s)
{
	size_t row_bytes = op->dim * pst_type_bytes(op->wire);
	char *at = op->requests;
	for (uint32_t c = op->from; c < op->to; c++) {
		const struct psv_chunk *chunk = &op->d.chunk[c];
		struct place p = place_of(op, chunk, at);
		for (uint32_t i = 0; i < chunk->n; i++) {
			uint32_t key = op->k.order[chunk->from + i];
			s->numbers[key] = p.numbers + i * row_bytes;
			s->scale[key] = p.scales + i * sizeof(float);
			s->state[key] = p.state + (size_t)i * op->state_floats;
		}
		at += padded_request(op, chunk);
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

/* Gradients or rows of the first position of a key, or of a later one, which adds to the gradients and takes the place
 * of rows. */
static void put_position(const struct psv_op *op, const struct spots *s, uint32_t key, uint32_t i, bool later)
{
	const float *from = op->in + (size_t)i * op->dim;
	if (!s->numbers[key])
		return;
	if (later && op->kind != PSV_ASSIGN)
		s->kernels->add(sum_of(op, s, key), from, op->dim, 1.0f);
	else
		pst_copy_row(sum_of(op, s, key), from, op->dim * sizeof *from);
	if (op->state_floats)
		memcpy(s->state[key], op->state + (size_t)i * op->state_floats, op->state_floats * sizeof *op->state);
}

/* Numbers and state of a key, and where they go. */
struct key_numbers {
	const float *sum, *state;
	char *wire, *scale; /* scale: of int8 */
};

/* Checks numbers and state of a key, and writes the numbers as the wire has them, with their scale. */
static enum far_status put_wire(const struct psv_op *op, const struct pst_kernels *kernels, uint32_t key,
				const struct key_numbers *n, struct far_err *err)
{
	size_t bad = kernels->first_bad(PST_F32, n->sum, op->dim);
	if (bad == op->dim && op->wire != PST_F32) {
		float scale = kernels->narrow(op->wire, n->wire, n->sum, op->dim);
		if (op->wire == PST_INT8)
			memcpy(n->scale, &scale, sizeof scale);
		else
			bad = kernels->first_bad(op->wire, n->wire, op->dim);
	}
	if (bad < op->dim)
		return not_finite(op, key, bad, err);
	bad = op->state_floats ? kernels->first_bad(PST_F32, n->state, op->state_floats) : 0;
	if (bad < op->state_floats)
		return pst_fail(err, FAR_INVALID, 0, "element %zu of the state of key %llu is not finite", bad,
				(unsigned long long)op->k.key[key]);
	return FAR_OK;
}

/* Checks the numbers of a chunk, of f32. */
static enum far_status check_rows(const struct psv_op *op, const struct pst_kernels *kernels, const struct psv_chunk *c,
				  const char *numbers, struct far_err *err)
{
	size_t all = (size_t)c->n * op->dim, bad = kernels->first_bad(PST_F32, numbers, all);
	return bad < all ? not_finite(op, op->k.order[c->from + bad / op->dim], bad % op->dim, err) : FAR_OK;
}

/* Checks the numbers of a chunk, and writes them as the wire has them. */
static enum far_status put_chunk(const struct psv_op *op, const struct spots *s, const struct psv_chunk *c,
				 struct far_err *err)
{
	const uint32_t *order = op->k.order + c->from;
	enum far_status status = FAR_OK;
	if (psv_is_plain(op)) /* they are there already, one behind the other */
		return check_rows(op, s->kernels, c, s->numbers[order[0]], err);
	for (uint32_t i = 0; !status && i < c->n; i++) {
		uint32_t key = order[i];
		status = put_wire(
			op, s->kernels, key,
			&(struct key_numbers){sum_of(op, s, key), s->state[key], s->numbers[key], s->scale[key]}, err);
	}
	return status;
}

/* Sums of gradients, or the last rows; then as the wire has them. */
static enum far_status put_numbers(const struct psv_op *op, const struct spots *s, struct far_err *err)
{
	const struct psv_keys *k = &op->k;
	enum far_status status = FAR_OK;
	for (uint32_t c = op->from; c < op->to; c++)
		for (uint32_t i = op->d.chunk[c].from; i < op->d.chunk[c].from + op->d.chunk[c].n; i++)
			put_position(op, s, k->order[i], k->first[k->order[i]], false);
	for (uint32_t i = 0; i < k->n - k->distinct; i++)
		put_position(op, s, k->at[k->again[i]], k->again[i], true);
	for (uint32_t c = op->from; !status && c < op->to; c++)
		status = put_chunk(op, s, &op->d.chunk[c], err);
	return status;
}

/* Copies the numbers of a chunk, of f32. */
static void copy_rows(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	const uint32_t *order = op->k.order + c->from, *first = op->k.first;
	const size_t dim = op->dim, bytes = dim * sizeof(float);
	const float *in = op->in;
	for (uint32_t i = 0, n = c->n; i < n; i++, to += bytes)
		pst_copy_row(to, in + first[order[i]] * dim, bytes);
}

enum far_status psv_op_numbers_once(const struct psv_op *op, const struct psv_chunk *c, char *request,
				    struct far_err *err)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	const struct place p = place_of(op, c, request);
	const size_t row_bytes = op->dim * pst_type_bytes(op->wire), floats = op->state_floats;
	enum far_status status = FAR_OK;
	if (op->wire == PST_F32)
		copy_rows(op, c, p.numbers);
	if (psv_is_plain(op))
		return FAR_OK;
	for (uint32_t i = 0; !status && i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		size_t at = op->k.first[key];
		if (floats)
			memcpy(p.state + i * floats, op->state + at * floats, floats * sizeof *p.state);
		status = put_wire(op, kernels, key,
				  &(struct key_numbers){op->in + at * op->dim, p.state + i * floats,
							p.numbers + i * row_bytes, p.scales + i * sizeof(float)},
				  err);
	}
	return status;
}

static enum far_status put_all_once(const struct psv_op *op, struct far_err *err)
{
	enum far_status status = FAR_OK;
	char *at = op->requests;
	for (uint32_t c = op->from; !status && c < op->to; c++) {
		status = psv_op_numbers_once(op, &op->d.chunk[c], at, err);
		at += padded_request(op, &op->d.chunk[c]);
	}
	return status;
}

enum far_status psv_op_check(const struct psv_op *op, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (psv_is_plain(op)) {
		size_t all = (size_t)op->k.n * op->dim, bad = pst_kernels_best()->first_bad(PST_F32, op->in, all);
		return bad < all ? not_finite(op, (uint32_t)(bad / op->dim), bad % op->dim, err) : FAR_OK;
	}
	float scale, *wire = malloc(op->dim * sizeof *wire);
	if (!wire)
		return psv_op_no_room(op, err);
	for (uint32_t i = 0; i < op->k.n && !status; i++)
		status = put_wire(
			op, pst_kernels_best(), i,
			&(struct key_numbers){op->in + (size_t)i * op->dim,
					      op->state_floats ? op->state + (size_t)i * op->state_floats : NULL,
					      (char *)wire, (char *)&scale},
			err);
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
	if (op->k.distinct == op->k.n)
		return put_all_once(op, err);
	if (!spots_new(op, &spots))
		return psv_op_no_room(op, err);
	find_spots(op, &spots);
	enum far_status status = put_numbers(op, &spots, err);
	psv_arena_put(&op->ps->arena, spots.memory);
	return status;
}
