/* SPDX-License-Identifier: BSD-3-Clause */
/** Operations on values of bytes: requests, answers, results. The thread that has the operation. */
#include "ps_mutant.h"
#include "psv_op.h"

#include <stdlib.h>
#include <string.h>

#define GUESS_BYTES 512u /* of a value that was not read yet, for the number of keys of a request */

bool psv_is_values(unsigned kind)
{
	return kind == PSV_GET_VALUES || kind == PSV_PUT_VALUES;
}

bool psv_values_init(struct psv_op *op)
{
	if (!op->bag) /* else a longer segment has made it */
		op->bag = malloc((size_t)op->k.n * sizeof *op->bag + 1);
	if (!op->bag)
		return false;
	if (op->value_lens && op->k.n)
		memset(op->value_lens, 0, op->k.n * sizeof *op->value_lens);
	return true;
}

void psv_values_last(struct psv_op *op)
{
	for (uint32_t i = 0; i < op->k.n; i++)
		op->bag[op->k.at[PS_MUTANT(VALUE_FIRST) ? op->k.n - 1 - i : i]] =
			PS_MUTANT(VALUE_FIRST) ? op->k.n - 1 - i : i;
}

/* Of PUT_VALUES: bytes of the value of a key. */
static uint32_t len_of(const struct psv_op *op, uint32_t key)
{
	const uint64_t *at = op->value_offsets + op->bag[key];
	return (uint32_t)(at[1] - at[0]);
}

uint32_t psv_values_keys(const struct psv_op *op)
{
	size_t longest = op->value_max < GUESS_BYTES ? op->value_max : GUESS_BYTES;
	if (op->kind == PSV_PUT_VALUES)
		longest = 0;
	for (uint32_t i = 0; op->kind == PSV_PUT_VALUES && i < op->k.distinct; i++)
		longest = len_of(op, i) > longest ? len_of(op, i) : longest;
	size_t keys = FAR_PS_CHUNK_BYTES / (sizeof(uint64_t) + sizeof(uint32_t) + 1 + longest);
	return keys < 1 ? 1 : (uint32_t)keys;
}

size_t psv_values_request_bytes(const struct psv_op *op, const struct psv_chunk *c)
{
	size_t bytes = sizeof(struct psv_request) + c->n * sizeof(uint64_t), values = 0;
	if (op->kind == PSV_GET_VALUES)
		return bytes;
	for (uint32_t i = c->from; i < c->from + c->n; i++)
		values += len_of(op, op->k.order[i]);
	return bytes + c->n * sizeof(uint32_t) + (values + 7) / 8 * 8;
}

void psv_values_fill(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	char *value = to + c->n * sizeof(uint32_t);
	size_t all = 0;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i], len = len_of(op, key);
		memcpy(to + i * sizeof len, &len, sizeof len);
		if (len)
			memcpy(value + all, (const char *)op->arg + op->value_offsets[op->bag[key]], len);
		all += len;
	}
	memset(value + all, 0, (all + 7) / 8 * 8 - all);
}

bool psv_take_values(struct psv_op *op, const struct psv_chunk *c, const char *body, size_t len)
{
	size_t fixed = c->n * (sizeof(uint32_t) + 1), all = 0;
	const uint32_t *lens = (const uint32_t *)(const void *)body;
	if (len < fixed)
		return false;
	const char *value = body + c->n * sizeof *lens;
	const uint8_t *status = (const uint8_t *)body + len - c->n;
	bool some = false;
	for (uint32_t i = 0; i < c->n; i++) {
		if (lens[i] > op->value_max || (lens[i] && status[i] != FAR_PS_ROW))
			return false;
		all += lens[i];
		some = some || status[i] != PSV_LATER;
	}
	if (all != len - fixed || !some)
		return false;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		if (status[i] == PSV_LATER) {
			op->more = op->more || !PS_MUTANT(VALUE_LATER);
			continue;
		}
		op->open[key] = false;
		op->key_status[key] = psv_key_status(op->dense, status[i]);
		op->bag[key] = lens[i];
		op->row[key] = value;
		value += lens[i];
	}
	return true;
}

void psv_values_scatter(const struct psv_op *op)
{
	for (uint32_t i = 0; i < op->k.n; i++) {
		uint32_t key = op->k.at[i];
		if (!op->row[key])
			continue;
		uint32_t len = op->bag[key];
		size_t copied = len < op->value_stride ? len : op->value_stride;
		op->value_lens[i] = len;
		if (copied)
			memcpy(op->value_out + (size_t)i * op->value_stride, op->row[key], copied);
	}
}
