/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Pulls in steps: the keys of a step are looked at, divided and sent while the servers work on those of the step
 * before. Equal keys are found across all steps. The thread that starts the operation.
 */
#include "psv_op.h"

#include <string.h>

/* Positions of the first step, by which the servers begin, and of each later one. */
struct steps {
	uint32_t first, later;
	uint32_t most; /* keys of a chunk */
};

static size_t key_bytes(const struct psv_op *op)
{
	return psv_reply_bytes(op->kind, 1, op->dim, op->wire) - sizeof(struct psv_reply);
}

static struct steps steps_of(const struct psv_op *op)
{
	uint32_t slots = op->view->slots, keys = (uint32_t)psv_turn_keys(key_bytes(op));
	return (struct steps){(keys + 1) / 2 * slots, keys * slots, keys};
}

bool psv_has_steps(const struct psv_op *op)
{
	return op->kind == PSV_PULL && op->keys && op->n == op->all && op->n * key_bytes(op) <= PSV_LANE_BYTES &&
	       op->n > steps_of(op).first;
}

enum far_status psv_steps_begin(struct psv_op *op, bool *over, struct far_err *err)
{
	const struct steps s = steps_of(op);
	const uint32_t n = op->k.n, slots = op->view->slots, steps = 1 + (n - s.first + s.later - 1) / s.later;
	/* Of a step a slot has one chunk, and as many more as the step has whole ones: one for each slot. */
	const uint32_t chunks = steps * (slots == 1 ? 1 : 2 * slots);
	const size_t of_chunk = psv_lanes_bytes(1) + sizeof *op->targets + sizeof *op->results;
	const size_t out = chunks * (sizeof(struct psv_request) + 8) + n * sizeof(uint64_t);
	const size_t in = chunks * psv_reply_room(op, &(struct psv_chunk){0}) +
			  psv_reply_bytes(op->kind, n, op->dim, op->wire) + chunks * (sizeof(struct psv_reply) + 16);
	op->large = op->parts = false;
	op->lane_bytes = 0;
	op->from = op->to = 0;
	op->round_memory = psv_arena_get(&op->ps->arena, chunks * of_chunk + out + in + 5 * 64);
	char *at = op->round_memory.at, *requests;
	if (!at || !psv_division_room(&op->d, chunks))
		return psv_op_no_room(op, err);
	op->targets = psv_arena_part(&at, chunks * sizeof *op->targets);
	op->results = psv_arena_part(&at, chunks * sizeof *op->results);
	requests = op->requests = psv_arena_part(&at, out);
	psv_lanes_begin(op, psv_arena_part(&at, psv_lanes_bytes(chunks)));
	op->replies = at;
	memset(op->results, 0, chunks * sizeof *op->results);
	while (op->k.numbered < n) {
		uint32_t step = op->k.numbered ? s.later : s.first, left = n - op->k.numbered, from = op->to;
		psv_keys_number(&op->k, op->k.numbered + (step < left ? step : left));
		(void)psv_keys_divide(&op->k, NULL, op->view, s.most, &op->d); /* there is room */
		op->to = op->d.n;
		psv_op_address(op, from, &requests, &at);
		psv_lanes_send(op, from);
	}
	*over = psv_lanes_end(op);
	return FAR_OK;
}
