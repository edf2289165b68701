/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Operations of a client: rounds of requests, each a fan-out, until every key is answered or the deadline has passed. A
 * further round follows when a server answers with a newer view, and when the operation is large. Started by any
 * thread; replies are handled by the thread that polls the shard.
 */
#include "psv_op.h"

#include "ps_mutant.h"
#include "pst_fail.h"
#include "psv_env.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BARRIER_GRACE_NS (2 * FAR_SEC) /* after the wait of a barrier, for the answer */
#define PART_DEPTH       64u           /* chunks of a slot in a round */
#define VALUES_DEPTH     8u            /* likewise of values, each with room for the longest one */
#define LARGE_CHUNKS     1024u         /* most of an operation of one round */
#define CHUNK_BYTES_MAX  ((size_t)8 << 20)
#define SEGMENTS_FROM    ((size_t)1 << 18) /* keys of a read with segments, at least */
#define SEGMENT_KEYS     ((size_t)1 << 14) /* their distinct keys are found in the cache, in less than a millisecond */

static_assert(LARGE_CHUNKS + FAR_PS_SHARDS_MAX <= FAR_FANOUT_MAX, "all chunks are one fan-out");

/* ---- Memory ---- */

static void round_free(struct psv_op *op)
{
	psv_arena_put(&op->ps->arena, op->round_memory);
	op->round_memory = (struct psv_block_memory){0};
	op->targets = NULL;
	op->results = NULL;
	op->requests = op->replies = NULL;
}

static void division_free(struct psv_op *op)
{
	free(op->d.chunk);
	op->d = (struct psv_division){0};
	op->from = op->to = 0;
}

static void op_free(struct psv_op *op)
{
	round_free(op);
	division_free(op);
	psv_arena_put(&op->ps->arena, op->memory);
	psv_arena_put(&op->ps->arena, op->sums_memory);
	free(op->bag);
	free(op->missing);
	free(op->wide);
	far_future_free(op->done);
	pthread_mutex_destroy(&op->lanes_lock);
	psv_unref(op->ps);
	free(op);
}

/* Of the kinds whose results wait for the end of a round. */
static void forget_rows(const struct psv_op *op)
{
	if (psv_is_call(op->kind) || psv_is_values(op->kind))
		memset(op->row, 0, op->k.n * sizeof *op->row);
}

/* The keys of the segment, whose distinct ones are found later; all are to be sent. False: no memory. */
static bool begin_keys(struct psv_op *op)
{
	size_t n = op->n, keys = psv_keys_bytes(n, op->kind != PSV_BAGS && op->keys);
	char *at = (char *)op->memory.at + keys / 64 * 64 + 64;
	psv_keys_init(&op->k, op->memory.at, op->keys, op->first_key, n, op->kind != PSV_BAGS);
	op->key_status = psv_arena_part(&at, n);
	op->key_error = psv_arena_part(&at, n);
	op->open = psv_arena_part(&at, n);
	op->row = (const char **)(void *)at;
	op->some_answered = false;
	memset(op->key_status, FAR_PS_LATE, n);
	memset(op->open, true, n);
	if (psv_is_call(op->kind))
		psv_call_init(op);
	forget_rows(op);
	return !psv_is_values(op->kind) || psv_values_init(op);
}

/* The operation with its keys, or those of its first segment. */
static struct psv_op *op_new(const struct psv_op *from)
{
	struct psv_op *op = malloc(sizeof *op);
	if (!op)
		return NULL;
	*op = *from;
	psv_ref(op->ps);
	pthread_mutex_init(&op->lanes_lock, NULL);
	op->all = op->n;
	if (op->n > SEGMENTS_FROM && (op->kind == PSV_PULL || op->kind == PSV_EXISTS || op->kind == PSV_GET_VALUES))
		op->n = SEGMENT_KEYS;
	op->view = atomic_load_explicit(&op->ps->view, memory_order_acquire);
	op->steps = psv_has_steps(op);
	size_t n = op->n, keys = psv_keys_bytes(n, op->kind != PSV_BAGS && op->keys);
	op->memory = psv_arena_get(&op->ps->arena, keys + n * (3 + sizeof *op->row) + 5 * 64);
	if (!op->memory.at || (op->kind == PSV_BAGS && !psv_bags_init(op)) || !begin_keys(op)) {
		op_free(op);
		return NULL;
	}
	return op;
}

/* ---- Division ---- */

/* Keys of a chunk of an operation in which a key takes `bytes`. */
static size_t chunk_keys_by(struct psv_op *op, size_t bytes)
{
	size_t keys = psv_is_change(op->kind) ? FAR_PS_CHUNK_BYTES / bytes : psv_turn_keys(bytes);
	size_t least = op->parts ? 0 : op->k.distinct / LARGE_CHUNKS + 1;
	size_t all = op->all > op->n ? op->all : op->k.distinct;
	op->large = op->large || bytes * all > op->view->slots * PSV_LANE_BYTES;
	keys = keys ? keys : 1;
	if (op->large && keys > FAR_PS_PART_KEYS)
		keys = FAR_PS_PART_KEYS;
	if (keys < least)
		keys = least < CHUNK_BYTES_MAX / bytes ? least : CHUNK_BYTES_MAX / bytes;
	op->depth = (uint32_t)((PSV_LANE_BYTES / bytes + keys - 1) / keys);
	return keys;
}

/* Keys of a chunk. */
static uint32_t chunk_keys(struct psv_op *op)
{
	bool bags = op->kind == PSV_BAGS, call = psv_is_call(op->kind);
	if (psv_is_values(op->kind))
		return psv_values_keys(op);
	size_t request = bags ? psv_bags_request_bytes(1, 1, op->bags.weights)
			      : psv_request_bytes(op->kind, 1, op->dim, op->wire, op->state_floats);
	size_t reply =
		bags ? psv_bags_reply_bytes(1, op->dim, op->wire) : psv_reply_bytes(op->kind, 1, op->dim, op->wire);
	request -= sizeof(struct psv_request);
	reply -= sizeof(struct psv_reply);
	if (call)
		reply = 1 + psv_call_values(1, op->members, op->reduce) * sizeof(double);
	if (call && op->reduce != FAR_PS_EACH)
		reply = 1;
	size_t per = request > reply ? request : reply, keys = chunk_keys_by(op, per);
	return keys < 1 ? 1 : keys > PST_CHUNK_KEYS ? PST_CHUNK_KEYS : (uint32_t)keys;
}

static enum far_status divide_by(struct psv_op *op, uint32_t keys, struct far_err *err)
{
	op->k.divided = 0;
	op->d.short_first = psv_is_change(op->kind);
	if (psv_keys_divide(&op->k, op->some_answered ? op->open : NULL, op->view, keys, &op->d))
		return FAR_OK;
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for an operation on %zu keys", op->n);
}

enum far_status psv_op_in_time(const struct psv_op *op, struct far_err *err)
{
	return psv_now_ns() < op->deadline_ns ? FAR_OK : pst_fail(err, FAR_TIMEOUT, 0, "the deadline has passed");
}

/* Finds the distinct keys. */
static enum far_status number_keys(struct psv_op *op, struct far_err *err)
{
	while (psv_keys_go_on(&op->k))
		if (psv_op_in_time(op, err))
			return FAR_TIMEOUT;
	if (op->kind == PSV_PUT_VALUES)
		psv_values_last(op);
	return FAR_OK;
}

static enum far_status divide_keys(struct psv_op *op, struct far_err *err)
{
	enum far_status status = op->k.numbered < op->k.n ? number_keys(op, err) : FAR_OK;
	if (status)
		return status;
	op->parts = !psv_is_change(op->kind) || (!op->token && op->k.distinct == op->k.n);
	op->large = false;
	op->depth = PSV_LANE_BYTES / FAR_PS_CHUNK_BYTES;
	status = divide_by(op, chunk_keys(op), err);
	if (!status && !op->large && op->d.deepest > op->depth) { /* for one shard, if not for all */
		division_free(op);
		op->large = true;
		status = divide_by(op, chunk_keys(op), err);
	}
	if (status)
		return status;
	if (!op->parts && op->d.n > LARGE_CHUNKS + FAR_PS_SHARDS_MAX)
		return pst_fail(err, FAR_TOO_LARGE, 0,
				"%u distinct keys take %u requests; at most %u are possible with a token or repeated "
				"keys",
				op->k.distinct, op->d.n, LARGE_CHUNKS);
	return FAR_OK;
}

/* Chunks [from, to) are the next round's: all, or a part in which each shard has few, so that others' requests pass. */
static void select_part(struct psv_op *op)
{
	const struct psv_chunk *chunk = op->d.chunk;
	uint32_t depth = op->kind == PSV_GET_VALUES ? VALUES_DEPTH : PART_DEPTH;
	op->from = op->to;
	op->to = op->parts ? op->from : op->d.n;
	while (op->to < op->d.n && op->to - op->from < LARGE_CHUNKS &&
	       chunk[op->to].index - chunk[op->from].index < depth)
		op->to++;
}

/* Shards of an operation without keys. Slot 0 has the barriers. */
static uint32_t shards_of(const struct psv_op *op)
{
	return op->kind == PSV_BARRIER ? 1 : op->view->slots;
}

/* The numbers of each request are filled when it is sent: to check all before is no conversion, or is needed for later
 * rounds. */
static bool fills_late(const struct psv_op *op)
{
	return psv_has_numbers(op->kind) && (psv_is_plain(op) || op->d.n > op->to - op->from);
}

static enum far_status divide(struct psv_op *op, struct far_err *err)
{
	enum far_status status = FAR_OK;
	if (op->d.chunk) {
		select_part(op);
		return FAR_OK;
	}
	op->view = atomic_load_explicit(&op->ps->view, memory_order_acquire);
	if (psv_has_keys(op->kind)) {
		status = divide_keys(op, err);
		if (!status)
			select_part(op);
		if (!status && psv_has_numbers(op->kind) && !op->source)
			status = psv_op_sums(op, err);
		if (!status && (fills_late(op) || op->kind == PSV_ASSIGN))
			status = psv_op_check(op, err);
		return status;
	}
	uint32_t shards = shards_of(op);
	op->d.chunk = calloc(shards, sizeof *op->d.chunk);
	if (!op->d.chunk)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for %u requests", shards);
	for (uint32_t s = 0; s < shards; s++)
		op->d.chunk[op->d.n++].slot = s;
	op->to = op->d.n;
	return FAR_OK;
}

/* ---- Requests ---- */

size_t psv_reply_room(const struct psv_op *op, const struct psv_chunk *c)
{
	size_t bytes = psv_op_reply_bytes(op, c), view = sizeof(struct psv_reply) + PSV_VIEW_BYTES_MAX;
	return ((bytes > view ? bytes : view) + 7) / 8 * 8;
}

static void put_head(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	struct psv_request q = {.magic = PSV_MAGIC,
				.kind = (uint8_t)op->kind,
				.wire = (uint8_t)(psv_is_call(op->kind) ? (unsigned)op->reduce : (unsigned)op->wire),
				.miss = (uint8_t)op->miss,
				.flags = op->make           ? PSV_MAKE
					 : op->state_floats ? PSV_STATE
					 : op->bags.weights ? PSV_WEIGHTS
							    : 0,
				.service = op->ps->service,
				.table = op->table,
				.epoch = op->view->epoch,
				.client = op->ps->client,
				.token = psv_is_change(op->kind) ? op->first + c->index - op->d.chunk[op->from].index
								 : 0,
				.clock = op->clock,
				.n = c->n,
				.rate = op->rate,
				.worker = psv_is_call(op->kind)    ? op->members
					  : psv_has_keys(op->kind) ? op->dim
								   : op->worker,
				.bags = op->kind == PSV_BAGS         ? psv_bags_of(op, c)
					: op->kind == PSV_GET_VALUES ? psv_values_room(op->value_max)
					: psv_is_call(op->kind)      ? op->arg_bytes
								     : op->members};
	memcpy(to, &q, sizeof q);
	to += sizeof q;
	if (op->k.in_order)
		memcpy(to, op->k.key + c->from, c->n * sizeof(uint64_t));
	for (uint32_t i = 0; !op->k.in_order && i < c->n; i++)
		memcpy(to + i * sizeof(uint64_t), &op->k.key[op->k.order[c->from + i]], sizeof(uint64_t));
	if (op->kind == PSV_BAGS)
		psv_bags_fill(op, c, to + c->n * sizeof(uint64_t));
	if (psv_is_call(op->kind))
		psv_call_fill(op, to + c->n * sizeof(uint64_t));
	if (op->kind == PSV_PUT_VALUES)
		psv_values_fill(op, c, to + c->n * sizeof(uint64_t));
	if (op->kind != PSV_CREATE && op->kind != PSV_OPEN && op->kind != PSV_BARRIER)
		return;
	memcpy(to, op->kind == PSV_BARRIER ? op->barrier : op->name, PSV_NAME_BYTES);
	struct psv_schema schema;
	if (op->kind == PSV_CREATE) {
		psv_schema_encode(op->schema, &schema);
		memcpy(to + PSV_NAME_BYTES, &schema, sizeof schema);
	}
}

/* Of chunk c of the round; not const. */
static char *request_of(const struct psv_op *op, uint32_t c)
{
	return op->requests + ((const char *)op->targets[c].data - op->requests);
}

enum far_status psv_op_fill(struct psv_op *op, uint32_t c, struct far_err *err)
{
	const struct psv_chunk *chunk = &op->d.chunk[op->from + c];
	char *to = request_of(op, c);
	put_head(op, chunk, to);
	return fills_late(op) ? psv_op_numbers(op, chunk, to, err) : FAR_OK;
}

/* Memory of the round; numbers that are not filled late. */
static enum far_status build(struct psv_op *op, struct far_err *err)
{
	size_t out = 0, in = 0, n = op->to - op->from;
	size_t lanes = psv_lanes_bytes(op->large ? op->view->slots : op->to - op->from);
	for (uint32_t c = op->from; c < op->to; c++) {
		out += (psv_op_request_bytes(op, &op->d.chunk[c]) + 7) / 8 * 8;
		in += psv_reply_room(op, &op->d.chunk[c]);
	}
	op->lane_bytes = op->large && (!psv_has_numbers(op->kind) || fills_late(op)) ? psv_lane_bytes(op) : 0;
	if (op->lane_bytes)
		out = op->lane_bytes * op->view->slots;
	op->round_memory = psv_arena_get(&op->ps->arena,
					 out + in + n * (sizeof *op->targets + sizeof *op->results) + lanes + 5 * 64);
	char *at = op->round_memory.at, *requests;
	if (!at)
		return psv_op_no_room(op, err);
	op->targets = psv_arena_part(&at, n * sizeof *op->targets);
	op->results = psv_arena_part(&at, n * sizeof *op->results);
	requests = op->requests = psv_arena_part(&at, out);
	op->lanes = psv_arena_part(&at, lanes);
	op->replies = at;
	memset(op->results, 0, n * sizeof *op->results);
	psv_op_address(op, 0, &requests, &at);
	enum far_status status = FAR_OK;
	bool fills = psv_has_numbers(op->kind) && !fills_late(op);
	for (uint32_t c = 0; fills && !status && c < n; c++) {
		status = psv_op_numbers(op, &op->d.chunk[op->from + c], request_of(op, c), err);
		if (!status)
			status = psv_op_in_time(op, err);
	}
	return status;
}

/* ---- Rounds ---- */

static bool was_answered(uint8_t status)
{
	return status != FAR_PS_LATE && status != FAR_PS_LOST;
}

static bool all_answered(const struct psv_op *op)
{
	bool all = true;
	for (uint32_t key = 0; key < op->k.distinct; key++)
		all &= was_answered(op->key_status[key]);
	return all;
}

/* Status of all positions, fallback rows of those that were not answered; returns the number of the others. The locals
 * need not be read again for each byte that is written. */
static size_t settle(const struct psv_op *op)
{
	const uint32_t *at = op->k.at, n = op->k.n;
	const uint8_t *of_key = op->key_status;
	uint8_t *status = op->status;
	bool all = all_answered(op);
	size_t answered = all ? n : 0;
	for (uint32_t i = 0; !all && i < n; i++)
		answered += was_answered(of_key[at[i]]);
	for (uint32_t i = 0; status && i < n; i++)
		status[i] = of_key[at[i]];
	if (psv_is_call(op->kind))
		psv_call_settle(op);
	if (psv_has_rows(op->kind))
		psv_repeat(op);
	for (uint32_t i = 0; op->out && answered < n && i < n; i++)
		if (!was_answered(of_key[at[i]]))
			psv_put_fallback(op, op->out + (size_t)i * op->dim);
	return answered;
}

/* The rest of the positions, `n` of them, is the segment. */
static void pass_segment(struct psv_op *op, size_t n)
{
	size_t from = op->n;
	op->passed += from;
	op->keys = op->keys ? op->keys + from : NULL;
	op->first_key += from;
	op->out = op->out ? op->out + from * op->dim : NULL;
	op->status = op->status ? op->status + from : NULL;
	op->value_out = op->value_out ? op->value_out + from * op->value_stride : NULL;
	op->value_lens = op->value_lens ? op->value_lens + from : NULL;
	op->n = n;
}

/* Goes on to the next segment, unless there is none or the operation has failed. */
static bool next_segment(struct psv_op *op)
{
	size_t left = op->all - op->passed - op->n;
	if (left == 0 || (op->err.status && !op->partial))
		return false;
	op->passed_answered += settle(op);
	round_free(op);
	division_free(op);
	pass_segment(op, left < SEGMENT_KEYS ? left : SEGMENT_KEYS);
	return begin_keys(op);
}

/* The positions of the segments to come were not answered, nor those of a segment whose keys were not looked at. */
static void settle_rest(struct psv_op *op)
{
	pass_segment(op, op->all - op->passed - op->n);
	if (op->status && op->n)
		memset(op->status, FAR_PS_LATE, op->n);
	if (op->errors && op->n)
		memset(op->errors, 0, op->n);
	if (op->value_lens && op->n)
		memset(op->value_lens, 0, op->n * sizeof *op->value_lens);
	if (op->out && op->n && !op->fallback)
		memset(op->out, 0, op->n * op->dim * sizeof *op->out);
	for (size_t i = 0; op->out && op->fallback && i < op->n; i++)
		psv_put_fallback(op, op->out + i * op->dim);
}

static void finish(struct psv_op *op)
{
	bool keys = psv_has_keys(op->kind), bags = op->kind == PSV_BAGS;
	if (bags)
		psv_keys_number(&op->k, op->k.n);
	else if (keys && op->k.numbered < op->k.n)
		op->n = op->k.n = op->k.distinct = 0;
	size_t answered = bags ? psv_bags_settle(op) : keys ? op->passed_answered + settle(op) : op->answered;
	size_t n = bags ? op->bags.n : op->all;
	if (n > op->n && !bags)
		settle_rest(op);
	bool whole = keys ? answered == n : op->view && answered == shards_of(op);
	psv_number_end(op);
	if (whole || (keys && op->partial)) {
		struct far_val v = far_int((int64_t)answered);
		(void)far_future_set_value(op->done, &v, NULL);
	} else {
		char clock[96] = "";
		if (keys && op->clock && (!op->err.status || op->err.status == FAR_TIMEOUT))
			snprintf(clock, sizeof clock, "; it waits until the clock of each worker is at step %llu",
				 (unsigned long long)op->clock);
		(void)far_future_set_error(op->done, op->err.status ? op->err.status : FAR_TIMEOUT, op->err.code,
					   "%s%s%s%zu of %zu %s were answered: %s%s", *op->table_name ? "table \"" : "",
					   op->table_name, *op->table_name ? "\": " : "", answered,
					   keys ? n : (size_t)shards_of(op),
					   bags   ? "bags"
					   : keys ? "keys"
						  : "shards",
					   op->err.status ? op->err.text : "the deadline has passed", clock);
	}
	op_free(op);
}

/* What follows the round that is over: a part of it that is sent again, the next one, the next segment. False:
 * nothing. */
static bool has_more(struct psv_op *op)
{
	if (psv_is_call(op->kind))
		psv_call_scatter(op);
	if (op->kind == PSV_GET_VALUES)
		psv_values_scatter(op);
	if (op->again && !psv_has_keys(op->kind)) { /* all shards of the new view */
		op->answered = 0;
		op->err.status = FAR_OK;
		if (op->stats)
			*op->stats = (struct far_ps_stats){.clock = UINT64_MAX};
	}
	if (!op->again && ((!op->more && op->to == op->d.n) || (op->err.status && !op->partial)))
		return next_segment(op);
	round_free(op);
	forget_rows(op);
	if (op->again || op->to == op->d.n) {
		division_free(op);
		op->more = false;
	}
	return true;
}

/* Divides, unless a part is left of the last division; numbers and sends. On OK the operation belongs to its
 * lanes, unless *over: all of them have ended. */
static enum far_status begin_round(struct psv_op *op, uint64_t again, bool *over, struct far_err *err)
{
	uint64_t now = psv_now_ns();
	if (now >= op->deadline_ns)
		return pst_fail(err, FAR_TIMEOUT, 0, "the deadline has passed");
	if (op->kind == PSV_BARRIER)
		op->clock = op->deadline_ns == UINT64_MAX              ? UINT64_MAX
			    : op->deadline_ns - now > BARRIER_GRACE_NS ? op->deadline_ns - now - BARRIER_GRACE_NS
								       : 0;
	op->again = false;
	if (op->steps) {
		op->steps = false;
		return psv_steps_begin(op, over, err);
	}
	enum far_status status = divide(op, err);
	if (!status)
		status = build(op, err);
	if (!status)
		status = psv_number(op, again, err);
	if (status)
		return status;
	if (op->token && !again && !*op->token)
		*op->token = op->first;
	psv_lanes_begin(op, op->lanes);
	psv_lanes_send(op, 0);
	*over = psv_lanes_end(op);
	return FAR_OK;
}

/* In a loop: requests may fail at once, round after round. */
void psv_round_over(struct psv_op *op)
{
	bool over = true;
	while (over && has_more(op)) {
		struct far_err err;
		if (begin_round(op, 0, &over, &err)) {
			if (!op->err.status)
				op->err = err;
			break;
		}
		if (!over)
			return;
	}
	finish(op);
}

enum far_status psv_op_start(const struct psv_op *from, struct far_future **future, struct far_err *err)
{
	uint64_t again = from->token ? *from->token : 0, now = psv_now_ns();
	struct psv_op *op = op_new(from);
	struct far_future *done;
	if (!op)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for an operation on %zu keys", from->n);
	enum far_status status = far_future_create(&done, err);
	if (status) {
		op_free(op);
		return status;
	}
	op->done = far_future_ref(done);
	uint64_t timeout = op->timeout_ns ? op->timeout_ns : far_rpc_timeout_ns(op->ps->agent);
	if (op->kind == PSV_BARRIER && timeout < UINT64_MAX - BARRIER_GRACE_NS)
		timeout += BARRIER_GRACE_NS;
	op->deadline_ns = timeout >= UINT64_MAX - now ? UINT64_MAX : now + timeout;
	if (psv_has_keys(op->kind) && op->n == 0) {
		finish(op);
	} else {
		bool over = false;
		status = begin_round(op, again, &over, err);
		if (over) {
			psv_round_over(op);
		} else if (status == FAR_TIMEOUT) { /* it had next to no time, or many keys: they are LATE */
			finish(op);
		} else if (status) {
			psv_number_end(op);
			op_free(op);
			far_future_free(done);
			return status;
		}
	}
	*future = done;
	return FAR_OK;
}
