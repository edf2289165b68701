/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums gradients of equal keys, and fills requests with gradients, rows and state in the type of the wire. The thread
 * that has the operation. */
#include "psv_op.h"

#include "pst_copy.h"
#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>

#define TURN_BYTES ((size_t)1 << 20) /* of gradients between two looks at the deadline */

/* Keys whose gradients have as many. */
static uint32_t turn_keys(const struct psv_op *op)
{
	return (uint32_t)(TURN_BYTES / sizeof *op->in / op->dim) + 1;
}

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

/* Numbers of a key. */
static const float *numbers_of(const struct psv_op *op, uint32_t key)
{
	uint32_t at = op->source[key];
	return at < op->k.n ? op->in + (size_t)at * op->dim : op->sums + (size_t)(at - op->k.n) * op->dim;
}

static const float *state_of(const struct psv_op *op, uint32_t key)
{
	return op->state_floats ? op->state + (size_t)op->source[key] * op->state_floats : NULL;
}

/* Adds the gradients of later positions, [from, to) of `again`, to those of the first one. Returns the number of sums,
 * which was `sums`. */
static uint32_t add_again(const struct psv_op *op, uint32_t *source, uint32_t from, uint32_t to, uint32_t sums)
{
	const struct psv_keys *k = &op->k;
	const struct pst_kernels *kernels = pst_kernels_best();
	const size_t dim = op->dim;
	for (uint32_t i = from; i < to; i++) {
		uint32_t key = k->at[k->again[i]];
		if (source[key] < k->n) {
			pst_copy_row(op->sums + sums * dim, op->in + source[key] * dim, dim * sizeof(float));
			source[key] = k->n + sums++;
		}
		kernels->add(op->sums + (source[key] - k->n) * dim, op->in + k->again[i] * dim, dim, 1.0f);
	}
	return sums;
}

enum far_status psv_op_sums(struct psv_op *op, struct far_err *err)
{
	const struct psv_keys *k = &op->k;
	const size_t n = k->distinct, again = k->n - n, sums = again < n ? again : n;
	op->source = k->first;
	if (!again)
		return FAR_OK;
	op->sums_memory =
		psv_arena_get(&op->ps->arena, n * sizeof *op->source + sums * op->dim * sizeof *op->sums + 2 * 64);
	char *at = op->sums_memory.at;
	if (!at)
		return psv_op_no_room(op, err);
	uint32_t *source = psv_arena_part(&at, n * sizeof *source);
	memcpy(source, k->first, n * sizeof *source);
	op->sums = (float *)(void *)at;
	for (uint32_t i = 0; op->kind == PSV_ASSIGN && i < again; i++)
		source[k->at[k->again[i]]] = k->again[i];
	for (uint32_t i = 0, turn = turn_keys(op), end; op->kind != PSV_ASSIGN && i < again; i = end) {
		if (i && psv_op_in_time(op, err))
			return FAR_TIMEOUT;
		end = again - i < turn ? (uint32_t)again : i + turn;
		op->sums_n = add_again(op, source, i, end, op->sums_n);
	}
	op->source = source;
	return FAR_OK;
}

static enum far_status not_finite(const struct psv_op *op, uint32_t key, size_t element, struct far_err *err)
{
	return pst_fail(err, FAR_INVALID, 0, "element %zu of the %s of key %llu is not finite", element,
			op->kind == PSV_ASSIGN ? "row" : "gradient", (unsigned long long)op->k.key[key]);
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

/* The first of n elements of f32 that is not finite; n: none. TIMEOUT. */
static enum far_status first_bad(const struct psv_op *op, const float *in, size_t n, size_t *bad, struct far_err *err)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	for (size_t i = 0, turn; i < n; i += turn) {
		if (i && psv_op_in_time(op, err))
			return FAR_TIMEOUT;
		turn = n - i < TURN_BYTES / sizeof *in ? n - i : TURN_BYTES / sizeof *in;
		*bad = i + kernels->first_bad(PST_F32, in + i, turn);
		if (*bad < i + turn)
			return FAR_OK;
	}
	*bad = n;
	return FAR_OK;
}

/* Checks all positions of f32 at once, and the sums: a position that is not finite leaves no finite sum. */
static enum far_status check_plain(const struct psv_op *op, struct far_err *err)
{
	const struct psv_keys *k = &op->k;
	size_t all = (size_t)k->n * op->dim, bad;
	enum far_status status = first_bad(op, op->in, all, &bad, err);
	if (status)
		return status;
	if (bad < all)
		return not_finite(op, k->at[bad / op->dim], bad % op->dim, err);
	all = (size_t)op->sums_n * op->dim;
	status = first_bad(op, op->sums, all, &bad, err);
	if (status)
		return status;
	for (uint32_t key = 0; bad < all && key < k->distinct; key++)
		if (op->source[key] == k->n + bad / op->dim)
			return not_finite(op, key, bad % op->dim, err);
	return FAR_OK;
}

/* Of an assignment, whose numbers are finite: as the table stores them they are too, and its optimizer can go on.
 * `row`: room for it in 16 bits. */
static enum far_status check_assigned(const struct psv_op *op, uint32_t key, void *row, struct far_err *err)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	const float *numbers = numbers_of(op, key), *state = state_of(op, key);
	size_t bad = op->dim;
	if (op->stored != PST_F32) {
		kernels->narrow(op->stored, row, numbers, op->dim);
		bad = kernels->first_bad(op->stored, row, op->dim);
	}
	if (bad < op->dim)
		return pst_fail(err, FAR_INVALID, 0,
				"element %zu of the row of key %llu is %g: more than the %s of table \"%s\" can hold",
				bad, (unsigned long long)op->k.key[key], (double)numbers[bad],
				op->stored == PST_F16 ? "f16" : "bf16", op->table_name);
	bad = pst_rule_negative(op->rule, op->dim, state, op->state_floats);
	if (bad < op->state_floats)
		return pst_fail(err, FAR_INVALID, 0, "element %zu of the state of key %llu is %g: %s takes its root",
				bad, (unsigned long long)op->k.key[key], (double)state[bad], pst_rule_name(op->rule));
	return FAR_OK;
}

enum far_status psv_op_check(const struct psv_op *op, struct far_err *err)
{
	enum far_status status = FAR_OK;
	bool assign = op->kind == PSV_ASSIGN;
	if (psv_is_plain(op) && (!assign || (op->k.distinct == op->k.n && op->stored == PST_F32)))
		return check_plain(op, err);
	float scale, *wire = malloc(op->dim * sizeof *wire);
	if (!wire)
		return psv_op_no_room(op, err);
	const uint32_t turn = turn_keys(op);
	for (uint32_t key = 0; key < op->k.distinct && !status; key++) {
		status = put_wire(
			op, pst_kernels_best(), key,
			&(struct key_numbers){numbers_of(op, key), state_of(op, key), (char *)wire, (char *)&scale},
			err);
		if (!status && assign)
			status = check_assigned(op, key, wire, err);
		if (!status && key % turn == turn - 1)
			status = psv_op_in_time(op, err);
	}
	free(wire);
	return status;
}

/* Copies the numbers of a chunk, of f32. */
static void copy_rows(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	const uint32_t *order = op->k.order + c->from, n = op->k.n, *source = op->source;
	const size_t dim = op->dim, bytes = dim * sizeof(float);
	const float *in = op->in, *sums = op->sums;
	for (uint32_t i = 0, keys = c->n; i < keys; i++, to += bytes) {
		uint32_t at = source[order[i]];
		pst_copy_row(to, at < n ? in + at * dim : sums + (at - n) * dim, bytes);
	}
}

enum far_status psv_op_numbers(const struct psv_op *op, const struct psv_chunk *c, char *request, struct far_err *err)
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
		if (floats)
			memcpy(p.state + i * floats, state_of(op, key), floats * sizeof *p.state);
		status = put_wire(op, kernels, key,
				  &(struct key_numbers){numbers_of(op, key), p.state + i * floats,
							p.numbers + i * row_bytes, p.scales + i * sizeof(float)},
				  err);
	}
	return status;
}

enum far_status psv_op_no_room(const struct psv_op *op, struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for the %u requests of an operation", op->d.n);
}
