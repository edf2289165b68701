/* SPDX-License-Identifier: BSD-3-Clause */
/** Bags of an operation: the parts that shards have pooled become sums and means. The thread that has the operation. */
#include "psv_op.h"

#include <stdlib.h>
#include <string.h>

bool psv_bags_init(struct psv_op *op)
{
	const struct far_ps_bags *bags = &op->bags;
	op->bag = malloc((op->n + 1) * sizeof *op->bag);
	op->missing = calloc(bags->n + 1, sizeof *op->missing);
	op->wide = malloc(op->dim * sizeof *op->wide);
	if (!op->bag || !op->missing || !op->wide)
		return false;
	for (size_t b = 0; b < bags->n; b++)
		for (uint64_t i = bags->offsets[b]; i < bags->offsets[b + 1]; i++)
			op->bag[i] = (uint32_t)b;
	if (bags->n)
		memset(op->out, 0, bags->n * op->dim * sizeof *op->out);
	return true;
}

/* End of the run of positions of one bag that begins at place `from` of the order. */
static uint32_t run_end(const struct psv_op *op, const struct psv_chunk *c, uint32_t from)
{
	uint32_t to = from + 1;
	while (to < c->from + c->n && op->bag[op->k.order[to]] == op->bag[op->k.order[from]])
		to++;
	return to;
}

uint32_t psv_bags_of(const struct psv_op *op, const struct psv_chunk *c)
{
	uint32_t bags = 0;
	for (uint32_t i = c->from; i < c->from + c->n; i = run_end(op, c, i))
		bags++;
	return bags;
}

static float weight_of(const struct psv_op *op, uint32_t position)
{
	return op->bags.weights ? op->bags.weights[position] : 1.0f;
}

void psv_bags_fill(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	for (uint32_t i = c->from, end; i < c->from + c->n; i = end) {
		uint32_t offset = i - c->from;
		memcpy(to, &offset, sizeof offset);
		to += sizeof offset;
		end = run_end(op, c, i);
	}
	memcpy(to, &c->n, sizeof c->n);
	to += sizeof c->n;
	for (uint32_t i = 0; op->bags.weights && i < c->n; i++)
		memcpy(to + i * sizeof(float), &op->bags.weights[op->k.order[c->from + i]], sizeof(float));
}

/* Adds a row of the wire to a bag's. `wide` [dim] is overwritten. */
static void add_row(struct psv_op *op, uint32_t bag, const char *row, float scale, float *wide)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	kernels->widen(op->wire, wide, row, op->dim, scale);
	kernels->add(op->out + (size_t)bag * op->dim, wide, op->dim, 1.0f);
}

void psv_take_bags(struct psv_op *op, const struct psv_chunk *c, const char *body)
{
	uint32_t bags = psv_bags_of(op, c);
	const char *scales = body + psv_numbers_bytes(bags, op->dim, op->wire);
	const char *missing = scales + (op->wire == PST_INT8 ? bags * sizeof(float) : 0);
	const char *status = missing + bags * sizeof(float);
	op->some_answered = true;
	for (uint32_t b = 0, i = c->from, end; b < bags; b++, i = end) {
		uint32_t bag = op->bag[op->k.order[i]];
		uint8_t s = (uint8_t)status[b];
		float scale = 0, weight;
		end = run_end(op, c, i);
		if (op->wire == PST_INT8)
			memcpy(&scale, scales + b * sizeof scale, sizeof scale);
		memcpy(&weight, missing + b * sizeof weight, sizeof weight);
		add_row(op, bag, body + (size_t)b * op->dim * pst_type_bytes(op->wire), scale, op->wide);
		op->missing[bag] += weight;
		for (; i < end; i++) {
			op->key_status[op->k.order[i]] = psv_key_status(op->dense, s);
			op->open[op->k.order[i]] = false;
		}
	}
}

size_t psv_bags_settle(struct psv_op *op)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	size_t answered = 0;
	for (size_t b = 0; b < op->bags.n; b++) {
		float *row = op->out + b * op->dim, weight = 0;
		uint8_t most = FAR_PS_ROW;
		for (uint64_t i = op->bags.offsets[b]; i < op->bags.offsets[b + 1]; i++) {
			uint8_t s = op->key_status[i];
			weight += weight_of(op, (uint32_t)i);
			if (s >= FAR_PS_LATE)
				op->missing[b] += weight_of(op, (uint32_t)i);
			most = s > most ? s : most;
		}
		if (op->fallback)
			kernels->add(row, op->fallback, op->dim, op->missing[b]);
		for (unsigned d = 0; op->bags.pool == FAR_PS_MEAN && d < op->dim; d++)
			row[d] = weight < 0 || weight > 0 ? row[d] / weight : 0.0f;
		if (op->status)
			op->status[b] = most;
		answered += most < FAR_PS_LATE;
	}
	return answered;
}
