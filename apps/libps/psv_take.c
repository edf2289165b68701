/* SPDX-License-Identifier: BSD-3-Clause */
/** Takes the answers of an operation over. The thread that polls the shard. */
#include "psv_op.h"

#include "ps_mutant.h"
#include "pst_copy.h"
#include <stdio.h>
#include <string.h>

size_t psv_op_request_bytes(const struct psv_op *op, const struct psv_chunk *c)
{
	if (op->kind == PSV_CREATE || op->kind == PSV_OPEN || op->kind == PSV_BARRIER)
		return sizeof(struct psv_request) + PSV_NAME_BYTES +
		       (op->kind == PSV_CREATE ? sizeof(struct psv_schema) : 0);
	if (op->kind == PSV_BAGS)
		return psv_bags_request_bytes(c->n, psv_bags_of(op, c), op->bags.weights);
	if (psv_is_call(op->kind))
		return psv_call_request_bytes(c->n, op->arg_bytes);
	if (psv_is_values(op->kind))
		return psv_values_request_bytes(op, c);
	return psv_request_bytes(op->kind, c->n, op->dim, op->wire, op->state_floats);
}

/* Of a reply that is no view. */
size_t psv_op_reply_bytes(const struct psv_op *op, const struct psv_chunk *c)
{
	if (op->kind == PSV_CREATE || op->kind == PSV_OPEN)
		return sizeof(struct psv_reply) + sizeof(struct psv_schema);
	if (op->kind == PSV_STATS)
		return sizeof(struct psv_reply) + sizeof(struct psv_stats);
	if (op->kind == PSV_BAGS)
		return psv_bags_reply_bytes(psv_bags_of(op, c), op->dim, op->wire);
	if (psv_is_call(op->kind))
		return psv_call_reply_bytes(c->n, op->members, op->reduce);
	if (op->kind == PSV_GET_VALUES) /* at most */
		return sizeof(struct psv_reply) + c->n * (sizeof(uint32_t) + 1) + psv_values_room(op->value_max);
	return psv_reply_bytes(op->kind, c->n, op->dim, op->wire);
}

static void note_error(struct psv_op *op, enum far_status status, const struct far_target_result *r, const char *text)
{
	if (op->err.status)
		return;
	op->err = (struct far_err){.status = status, .executed = r->executed, .code = r->code};
	snprintf(op->err.text, sizeof op->err.text, "shard %d of worker %d: %.300s", r->from.shard, r->from.worker,
		 text);
}

void psv_stats_add(struct far_ps_stats *to, const struct psv_stats *s)
{
	to->rows += s->rows;
	to->bytes += s->bytes;
	to->row_bytes += s->row_bytes;
	to->state_bytes += s->state_bytes;
	to->index_bytes += s->index_bytes;
	to->made += s->made;
	to->erased += s->erased;
	to->evicted += s->evicted;
	to->expired += s->expired;
	to->refused += s->refused;
	to->waited += s->waited;
	to->keys_pulled += s->keys_pulled;
	to->keys_pushed += s->keys_pushed;
	to->duplicates += s->duplicates;
	to->pulls += s->pulls;
	to->pushes += s->pushes;
	to->scans += s->scans;
	to->served += s->served;
	to->served_ns += s->served_ns;
	to->clock = s->clock < to->clock ? s->clock : to->clock;
}

/* The answer of a shard to an operation without keys. */
static void take_shard(struct psv_op *op, const struct far_target_result *r, const char *body)
{
	if (op->kind == PSV_STATS) {
		struct psv_stats stats;
		memcpy(&stats, body, sizeof stats);
		psv_stats_add(op->stats, &stats);
	} else if (op->kind == PSV_CREATE || op->kind == PSV_OPEN) {
		struct psv_schema schema;
		struct far_err err;
		memcpy(&schema, body, sizeof schema);
		if (psv_schema_decode(&schema, op->schema, &err)) {
			note_error(op, FAR_PROTOCOL, r, err.text);
			return;
		}
	}
	op->answered++;
}

static void take_statuses(struct psv_op *op, const struct psv_chunk *c, const uint8_t *status)
{
	const uint32_t *order = op->k.order + c->from;
	const bool dense = op->dense;
	const uint32_t n = c->n;
	uint8_t *key_status = op->key_status;
	bool *open = op->open;
	if (op->k.in_order) {
		uint8_t *restrict to = key_status + c->from;
		for (uint32_t i = 0; i < n; i++)
			to[i] = psv_key_status(dense, status[i]);
		memset(open + c->from, false, n * sizeof *open);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		key_status[order[i]] = psv_key_status(dense, status[i]);
		open[order[i]] = false;
	}
}

/* Copies the row of each key to its first position; psv_repeat() copies it to the others. */
static void take_rows(struct psv_op *op, const struct psv_chunk *c, const char *rows, const char *scales)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	const uint32_t *order = op->k.order + c->from, *first = op->k.first;
	const enum pst_type wire = op->wire;
	const size_t dim = op->dim, row_bytes = dim * pst_type_bytes(wire);
	float *out = op->out, scale = 0;
	if (wire == PST_F32) {
		for (uint32_t i = 0, n = c->n; i < n; i++, rows += row_bytes)
			pst_copy_row(out + first[order[i]] * dim, rows, row_bytes);
		return;
	}
	for (uint32_t i = 0, n = c->n; i < n; i++, rows += row_bytes) {
		if (wire == PST_INT8)
			memcpy(&scale, scales + i * sizeof scale, sizeof scale);
		kernels->widen(wire, out + first[order[i]] * dim, rows, dim, scale);
	}
}

/* The caller's row, which the server does not have; it sent zeros. */
static void take_fallbacks(const struct psv_op *op, const struct psv_chunk *c)
{
	const uint32_t *order = op->k.order + c->from;
	if (op->kind != PSV_PULL || op->miss != FAR_PS_FALLBACK || !op->fallback)
		return;
	for (uint32_t i = 0; i < c->n; i++)
		if (op->key_status[order[i]] == FAR_PS_MISSING)
			psv_put_fallback(op, op->out + (size_t)op->k.first[order[i]] * op->dim);
}

static void take_keys(struct psv_op *op, const struct psv_chunk *c, const char *body)
{
	const char *status = body, *scales = body;
	if (psv_has_rows(op->kind)) {
		scales = body + psv_numbers_bytes(c->n, op->dim, op->wire);
		status = scales + (op->wire == PST_INT8 ? c->n * sizeof(float) : 0);
	}
	op->some_answered = true;
	take_statuses(op, c, (const uint8_t *)status);
	if (psv_has_rows(op->kind)) {
		take_rows(op, c, body, scales);
		take_fallbacks(op, c);
	}
}

static void lose(struct psv_op *op, const struct psv_chunk *c, bool late)
{
	op->some_answered = true;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		op->key_status[key] = PS_MUTANT(PARTIAL_STATUS) ? FAR_PS_ROW : late ? FAR_PS_LATE : FAR_PS_LOST;
		op->open[key] = false;
	}
}

/* The keys of an answer with a newer view stay open. */
void psv_take(struct psv_op *op, uint32_t c, const char *reply)
{
	const struct psv_chunk *chunk = &op->d.chunk[op->from + c];
	const struct far_target_result *r = &op->results[c];
	struct psv_reply head = {0};
	if (r->status) {
		bool late = r->status == FAR_TIMEOUT || r->status == FAR_PENDING || r->status == FAR_CANCELLED;
		note_error(op, late ? FAR_TIMEOUT : r->status, r, r->text);
		lose(op, chunk, late);
		return;
	}
	if (r->len >= sizeof head)
		memcpy(&head, reply, sizeof head);
	if (head.magic == PSV_MAGIC && head.answer == PSV_STALE &&
	    psv_adopt(op->ps, reply + sizeof head, r->len - sizeof head, op->view->epoch)) {
		op->again = true;
	} else if (head.magic == PSV_MAGIC && head.answer == PSV_DONE && op->kind == PSV_GET_VALUES &&
		   psv_take_values(op, chunk, reply + sizeof head, r->len - sizeof head)) {
		op->some_answered = true;
	} else if (head.magic == PSV_MAGIC && head.answer == PSV_DONE && op->kind != PSV_GET_VALUES &&
		   r->len == psv_op_reply_bytes(op, chunk)) {
		if (!psv_has_keys(op->kind))
			take_shard(op, r, reply + sizeof head);
		else
			(op->kind == PSV_BAGS    ? psv_take_bags
			 : psv_is_call(op->kind) ? psv_take_call
						 : take_keys)(op, chunk, reply + sizeof head);
	} else {
		note_error(op, FAR_PROTOCOL, r, "the reply is malformed");
		lose(op, chunk, false);
	}
}

void psv_put_fallback(const struct psv_op *op, float *to)
{
	if (op->fallback)
		memcpy(to, op->fallback, op->dim * sizeof *to);
	else
		memset(to, 0, op->dim * sizeof *to);
}

/* Copies rows from the first positions of their keys to the others. */
void psv_repeat(const struct psv_op *op)
{
	const uint32_t *first = op->k.first, *again = op->k.again, *at = op->k.at, n = op->k.n - op->k.distinct;
	const size_t dim = op->dim;
	float *out = op->out;
	for (uint32_t i = 0; i < n; i++)
		pst_copy_row(out + again[i] * dim, out + first[at[again[i]]] * dim, dim * sizeof *out);
}
