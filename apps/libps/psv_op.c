/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Operations of a client: rounds of requests, each a fan-out, until every key is answered or the deadline has passed. A
 * second round follows only when a server answers with a newer view. Started by any thread; replies are handled by the
 * thread that polls the shard.
 */
#include "psv_client.h"

#include "pst_fail.h"
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LARGE_BYTES     ((size_t)64 << 20) /* operations of more are cut into about LARGE_CHUNKS */
#define LARGE_CHUNKS    1024u
#define CHUNK_BYTES_MAX ((size_t)8 << 20)

static_assert(LARGE_CHUNKS + FAR_PS_SHARDS_MAX <= FAR_FANOUT_MAX, "all chunks are one fan-out");

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * FAR_SEC + (uint64_t)t.tv_nsec;
}

/* ---- Memory ---- */

static void round_free(struct psv_op *op)
{
	free(op->d.chunk);
	free(op->targets);
	free(op->results);
	free(op->requests);
	free(op->replies);
	op->d = (struct psv_division){0};
	op->targets = NULL;
	op->results = NULL;
	op->requests = op->replies = NULL;
}

static void op_free(struct psv_op *op)
{
	round_free(op);
	psv_keys_fini(&op->k);
	free(op->key_status);
	free(op->open);
	free(op->row);
	free(op->scale);
	far_future_free(op->done);
	psv_unref(op->ps);
	free(op);
}

/* The operation with its keys. */
static struct psv_op *op_new(const struct psv_op *from)
{
	struct psv_op *op = malloc(sizeof *op);
	if (!op)
		return NULL;
	*op = *from;
	psv_ref(op->ps);
	bool ok = psv_keys_init(&op->k, op->keys, op->n);
	size_t n = op->k.distinct + 1;
	op->key_status = malloc(n);
	op->open = malloc(n);
	op->row = calloc(n, sizeof *op->row);
	op->scale = malloc(n * sizeof *op->scale);
	if (!ok || !op->key_status || !op->open || !op->row || !op->scale) {
		op_free(op);
		return NULL;
	}
	memset(op->key_status, FAR_PS_LATE, n);
	memset(op->open, true, n);
	return op;
}

/* ---- Numbers of changes ---- */

static void unlink_change(struct psv_op *op)
{
	pthread_mutex_lock(&op->ps->lock);
	if (op->link) {
		*op->link = op->next;
		if (op->next)
			op->next->link = op->link;
		op->link = NULL;
	}
	pthread_mutex_unlock(&op->ps->lock);
}

/* With the lock. Numbers [first, first + n): new ones, unless the caller repeats a change. */
static enum far_status take_numbers(struct psv_op *op, uint32_t n, uint64_t again, struct far_err *err)
{
	struct far_ps *ps = op->ps;
	uint64_t oldest = ps->next;
	for (const struct psv_op *c = ps->changes; c; c = c->next)
		if (c != op && c->first < oldest)
			oldest = c->first;
	if (again) {
		if (again + n > ps->next)
			return pst_fail(err, FAR_INVALID, 0, "token %llu is of no change of this client",
					(unsigned long long)again);
		if (again < ps->floor || ps->next - again > PSV_AGAIN)
			return pst_fail(err, FAR_GONE, 0,
					"change %llu cannot be repeated: it is too old, or the view has changed",
					(unsigned long long)again);
		op->first = again;
		return FAR_OK;
	}
	if (ps->next + n - oldest > PSV_SPAN_MAX)
		return pst_fail(err, FAR_BUSY, 0, "the numbers of pending changes would span more than %u",
				PSV_SPAN_MAX);
	op->first = ps->next;
	ps->next += n;
	return FAR_OK;
}

/* Numbers the chunks of a round. `again`: 0, or the token of the change that is repeated. */
static enum far_status number(struct psv_op *op, uint64_t again, struct far_err *err)
{
	struct far_ps *ps = op->ps;
	if (!psv_is_change(op->kind))
		return FAR_OK;
	pthread_mutex_lock(&ps->lock);
	enum far_status status = take_numbers(op, op->d.deepest, again, err);
	if (!status && !op->link) {
		op->next = ps->changes;
		op->link = &ps->changes;
		if (op->next)
			op->next->link = &op->next;
		ps->changes = op;
	}
	pthread_mutex_unlock(&ps->lock);
	return status;
}

/* ---- Division ---- */

/* Keys of a chunk. */
static uint32_t chunk_keys(const struct psv_op *op)
{
	size_t request =
		psv_request_bytes(op->kind, 1, op->dim, op->wire, op->state_floats) - sizeof(struct psv_request);
	size_t reply = psv_reply_bytes(op->kind, 1, op->dim, op->wire) - sizeof(struct psv_reply);
	size_t per = request > reply ? request : reply, bytes = FAR_PS_CHUNK_BYTES, all = per * op->k.distinct;
	if (all > LARGE_BYTES)
		bytes = all / LARGE_CHUNKS + per;
	if (bytes > CHUNK_BYTES_MAX)
		bytes = CHUNK_BYTES_MAX;
	size_t keys = bytes / per;
	return keys < 1 ? 1 : keys > PST_CHUNK_KEYS ? PST_CHUNK_KEYS : (uint32_t)keys;
}

static enum far_status divide(struct psv_op *op, struct far_err *err)
{
	op->view = atomic_load_explicit(&op->ps->view, memory_order_acquire);
	if (op->kind >= PSV_PULL) {
		if (!psv_keys_divide(&op->k, op->open, op->view, chunk_keys(op), &op->d))
			return pst_fail(err, FAR_RESOURCE, 0, "no memory for an operation on %zu keys", op->n);
		if (op->d.n > LARGE_CHUNKS + FAR_PS_SHARDS_MAX || op->d.deepest > PSV_AGAIN)
			return pst_fail(
				err, FAR_TOO_LARGE, 0,
				"%u distinct keys take %u requests, %u to one shard; at most %u and %u are possible",
				op->k.distinct, op->d.n, op->d.deepest, LARGE_CHUNKS, PSV_AGAIN);
		return FAR_OK;
	}
	op->d.chunk = calloc(op->view->slots, sizeof *op->d.chunk);
	if (!op->d.chunk)
		return pst_fail(err, FAR_RESOURCE, 0, "no memory for %u requests", op->view->slots);
	for (uint32_t s = 0; s < op->view->slots; s++)
		op->d.chunk[op->d.n++].slot = s;
	return FAR_OK;
}

/* ---- Requests ---- */

static size_t request_bytes(const struct psv_op *op, uint32_t n)
{
	if (op->kind == PSV_CREATE || op->kind == PSV_OPEN)
		return sizeof(struct psv_request) + PSV_NAME_BYTES +
		       (op->kind == PSV_CREATE ? sizeof(struct psv_schema) : 0);
	return psv_request_bytes(op->kind, n, op->dim, op->wire, op->state_floats);
}

/* Of a reply that is no view. */
static size_t reply_bytes(const struct psv_op *op, uint32_t n)
{
	if (op->kind == PSV_CREATE || op->kind == PSV_OPEN)
		return sizeof(struct psv_reply) + sizeof(struct psv_schema);
	if (op->kind == PSV_STATS)
		return sizeof(struct psv_reply) + sizeof(struct psv_stats);
	return psv_reply_bytes(op->kind, n, op->dim, op->wire);
}

/* Room for a reply, which may be a view. */
static size_t reply_room(const struct psv_op *op, uint32_t n)
{
	size_t bytes = reply_bytes(op, n), view = sizeof(struct psv_reply) + PSV_VIEW_BYTES_MAX;
	return ((bytes > view ? bytes : view) + 7) / 8 * 8;
}

static void put_head(const struct psv_op *op, const struct psv_chunk *c, char *to)
{
	struct psv_request q = {.magic = PSV_MAGIC,
				.kind = (uint8_t)op->kind,
				.wire = (uint8_t)op->wire,
				.miss = (uint8_t)op->miss,
				.flags = op->state_floats ? PSV_STATE : 0,
				.service = op->ps->service,
				.table = op->table,
				.epoch = op->view->epoch,
				.client = op->ps->client,
				.token = psv_is_change(op->kind) ? op->first + c->index : 0,
				.clock = op->clock,
				.n = c->n,
				.rate = op->rate,
				.worker = op->worker};
	memcpy(to, &q, sizeof q);
	to += sizeof q;
	for (uint32_t i = 0; i < c->n; i++)
		memcpy(to + i * sizeof(uint64_t), &op->k.key[op->k.order[c->from + i]], sizeof(uint64_t));
	if (op->kind != PSV_CREATE && op->kind != PSV_OPEN)
		return;
	memcpy(to, op->name, PSV_NAME_BYTES);
	struct psv_schema schema;
	if (op->kind == PSV_CREATE) {
		psv_schema_encode(op->schema, &schema);
		memcpy(to + PSV_NAME_BYTES, &schema, sizeof schema);
	}
}

/* Where a key's numbers and state are in the requests. */
struct spots {
	char **numbers; /* [distinct] */
	char **scale;
	float **state;
	float *sums; /* [distinct * dim], unless the requests have f32 */
	bool *begun;
};

static void spots_free(struct spots *s)
{
	free(s->numbers);
	free(s->scale);
	free(s->state);
	free(s->sums);
	free(s->begun);
}

static bool spots_new(const struct psv_op *op, struct spots *s)
{
	size_t n = op->k.distinct + 1;
	*s = (struct spots){.numbers = calloc(n, sizeof *s->numbers),
			    .scale = calloc(n, sizeof *s->scale),
			    .state = calloc(n, sizeof *s->state),
			    .sums = op->wire == PST_F32 ? NULL : malloc(n * op->dim * sizeof *s->sums),
			    .begun = calloc(n, sizeof *s->begun)};
	if (s->numbers && s->scale && s->state && s->begun && (op->wire == PST_F32 || s->sums))
		return true;
	spots_free(s);
	return false;
}

static void find_spots(const struct psv_op *op, struct spots *s)
{
	char *at = op->requests;
	for (uint32_t c = 0; c < op->d.n; c++) {
		const struct psv_chunk *chunk = &op->d.chunk[c];
		char *numbers = at + sizeof(struct psv_request) + chunk->n * sizeof(uint64_t);
		char *scales = numbers + psv_numbers_bytes(chunk->n, op->dim, op->wire);
		char *state = scales + (op->wire == PST_INT8 ? chunk->n * sizeof(float) : 0);
		for (uint32_t i = 0; i < chunk->n; i++) {
			uint32_t key = op->k.order[chunk->from + i];
			s->numbers[key] = numbers + (size_t)i * op->dim * pst_type_bytes(op->wire);
			s->scale[key] = scales + i * sizeof(float);
			s->state[key] = (float *)(void *)state + (size_t)i * op->state_floats;
		}
		at += (request_bytes(op, chunk->n) + 7) / 8 * 8;
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

/* Sums of gradients, or the last rows; then as the wire has them. */
static enum far_status put_numbers(const struct psv_op *op, const struct spots *s, struct far_err *err)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	for (uint32_t i = 0; i < op->k.n; i++) {
		uint32_t key = op->k.at[i];
		if (!s->numbers[key])
			continue;
		const float *from = op->in + (size_t)i * op->dim;
		if (s->begun[key] && op->kind != PSV_ASSIGN)
			kernels->add(sum_of(op, s, key), from, op->dim, 1.0f);
		else
			memcpy(sum_of(op, s, key), from, op->dim * sizeof *from);
		s->begun[key] = true;
		if (op->state_floats)
			memcpy(s->state[key], op->state + (size_t)i * op->state_floats,
			       op->state_floats * sizeof *op->state);
	}
	for (uint32_t key = 0; key < op->k.distinct; key++) {
		if (!s->numbers[key])
			continue;
		const float *sum = sum_of(op, s, key);
		size_t bad = kernels->first_bad(PST_F32, sum, op->dim);
		if (bad == op->dim && s->sums) {
			float scale = kernels->narrow(op->wire, s->numbers[key], sum, op->dim);
			if (op->wire == PST_INT8)
				memcpy(s->scale[key], &scale, sizeof scale);
			else
				bad = kernels->first_bad(op->wire, s->numbers[key], op->dim);
		}
		if (bad < op->dim)
			return not_finite(op, key, bad, err);
		bad = op->state_floats ? kernels->first_bad(PST_F32, s->state[key], op->state_floats) : 0;
		if (bad < op->state_floats)
			return pst_fail(err, FAR_INVALID, 0, "element %zu of the state of key %llu is not finite", bad,
					(unsigned long long)op->k.key[key]);
	}
	return FAR_OK;
}

static enum far_status no_room(const struct psv_op *op, struct far_err *err)
{
	return pst_fail(err, FAR_RESOURCE, 0, "no memory for the %u requests of an operation", op->d.n);
}

static enum far_status fill_numbers(const struct psv_op *op, struct far_err *err)
{
	struct spots spots;
	if (!spots_new(op, &spots))
		return no_room(op, err);
	find_spots(op, &spots);
	enum far_status status = put_numbers(op, &spots, err);
	spots_free(&spots);
	return status;
}

/* Memory of the round, and the requests but for their heads, which need the numbers of the changes. */
static enum far_status build(struct psv_op *op, struct far_err *err)
{
	size_t out = 0, in = 0;
	for (uint32_t c = 0; c < op->d.n; c++) {
		out += (request_bytes(op, op->d.chunk[c].n) + 7) / 8 * 8;
		in += reply_room(op, op->d.chunk[c].n);
	}
	op->targets = calloc(op->d.n, sizeof *op->targets);
	op->results = calloc(op->d.n, sizeof *op->results);
	op->requests = calloc(1, out);
	op->replies = malloc(in);
	if (!op->targets || !op->results || !op->requests || !op->replies)
		return no_room(op, err);
	return psv_has_numbers(op->kind) ? fill_numbers(op, err) : FAR_OK;
}

static void address(struct psv_op *op)
{
	char *out = op->requests, *in = op->replies;
	for (uint32_t c = 0; c < op->d.n; c++) {
		const struct psv_chunk *chunk = &op->d.chunk[c];
		size_t bytes = request_bytes(op, chunk->n), room = reply_room(op, chunk->n);
		put_head(op, chunk, out);
		op->targets[c] = (struct far_target){
			.to = op->view->slot[chunk->slot], .data = out, .len = bytes, .recv_buf = in, .cap = room};
		out += (bytes + 7) / 8 * 8;
		in += room;
	}
}

/* ---- Replies ---- */

static void note_error(struct psv_op *op, enum far_status status, const struct far_target_result *r, const char *text)
{
	if (op->err.status)
		return;
	op->err = (struct far_err){.status = status, .executed = r->executed, .code = r->code};
	snprintf(op->err.text, sizeof op->err.text, "shard %d of worker %d: %.300s", r->from.shard, r->from.worker,
		 text);
}

static void add_stats(struct far_ps_stats *to, const struct psv_stats *s)
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
	to->clock = s->clock < to->clock ? s->clock : to->clock;
}

/* The answer of a shard to an operation without keys. */
static void take_shard(struct psv_op *op, const struct far_target_result *r, const char *body)
{
	if (op->kind == PSV_STATS) {
		struct psv_stats stats;
		memcpy(&stats, body, sizeof stats);
		add_stats(op->stats, &stats);
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

static void take_keys(struct psv_op *op, const struct psv_chunk *c, const char *body)
{
	const char *rows = body, *scales = rows, *status = rows;
	if (psv_has_rows(op->kind)) {
		scales = rows + psv_numbers_bytes(c->n, op->dim, op->wire);
		status = scales + (op->wire == PST_INT8 ? c->n * sizeof(float) : 0);
	}
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		uint8_t s = (uint8_t)status[i];
		op->key_status[key] = s <= FAR_PS_REFUSED ? s : (uint8_t)FAR_PS_LOST;
		op->open[key] = false;
		op->row[key] = rows + (size_t)i * op->dim * pst_type_bytes(op->wire);
		if (op->wire == PST_INT8 && psv_has_rows(op->kind))
			memcpy(&op->scale[key], scales + i * sizeof(float), sizeof(float));
	}
}

static void lose(struct psv_op *op, const struct psv_chunk *c, bool late)
{
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		op->key_status[key] = late ? FAR_PS_LATE : FAR_PS_LOST;
		op->open[key] = false;
	}
}

/* The keys of an answer with a newer view stay open. */
static void take(struct psv_op *op, uint32_t c)
{
	const struct psv_chunk *chunk = &op->d.chunk[c];
	const struct far_target_result *r = &op->results[c];
	const char *reply = op->targets[c].recv_buf;
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
	} else if (head.magic == PSV_MAGIC && head.answer == PSV_DONE && r->len == reply_bytes(op, chunk->n)) {
		if (op->kind < PSV_PULL)
			take_shard(op, r, reply + sizeof head);
		else
			take_keys(op, chunk, reply + sizeof head);
	} else {
		note_error(op, FAR_PROTOCOL, r, "the reply is malformed");
		lose(op, chunk, false);
	}
}

static void put_fallback(const struct psv_op *op, float *to)
{
	if (op->fallback)
		memcpy(to, op->fallback, op->dim * sizeof *to);
	else
		memset(to, 0, op->dim * sizeof *to);
}

/* Copies the rows of this round to all their positions. */
static void scatter(struct psv_op *op)
{
	const struct pst_kernels *kernels = pst_kernels_best();
	for (uint32_t i = 0; i < op->k.n; i++) {
		uint32_t key = op->k.at[i];
		float *to = op->out + (size_t)i * op->dim;
		if (!op->row[key])
			continue;
		if (op->key_status[key] == FAR_PS_MISSING && op->kind == PSV_PULL && op->miss == FAR_PS_FALLBACK)
			put_fallback(op, to);
		else if (op->wire == PST_F32)
			memcpy(to, op->row[key], op->dim * sizeof *to);
		else
			kernels->widen(op->wire, to, op->row[key], op->dim, op->wire == PST_INT8 ? op->scale[key] : 0);
	}
	memset(op->row, 0, op->k.distinct * sizeof *op->row);
}

/* ---- Rounds ---- */

static bool was_answered(uint8_t status)
{
	return status < FAR_PS_LATE;
}

/* Status of all positions, fallback rows of those that were not answered; returns the number of the others. */
static size_t settle(const struct psv_op *op)
{
	size_t answered = 0;
	for (uint32_t i = 0; i < op->k.n; i++) {
		uint8_t status = op->key_status[op->k.at[i]];
		answered += was_answered(status);
		if (op->status)
			op->status[i] = status;
		if (!was_answered(status) && op->out)
			put_fallback(op, op->out + (size_t)i * op->dim);
	}
	return answered;
}

static void finish(struct psv_op *op)
{
	bool keys = op->kind >= PSV_PULL;
	size_t answered = keys ? settle(op) : op->answered;
	bool whole = keys ? answered == op->n : op->view && answered == op->view->slots;
	unlink_change(op);
	if (whole || (keys && op->partial)) {
		struct far_val v = far_int((int64_t)answered);
		(void)far_future_set_value(op->done, &v, NULL);
	} else {
		(void)far_future_set_error(op->done, op->err.status ? op->err.status : FAR_TIMEOUT, op->err.code,
					   "%zu of %zu %s were answered: %s", answered,
					   keys ? op->n : (size_t)op->view->slots, keys ? "keys" : "shards",
					   op->err.status ? op->err.text : "the deadline has passed");
	}
	op_free(op);
}

static enum far_status begin_round(struct psv_op *op, uint64_t again, struct far_err *err);

static void on_round(struct far_future *f, void *user)
{
	struct psv_op *op = user;
	op->again = false;
	for (uint32_t c = 0; c < op->d.n; c++)
		take(op, c);
	if (op->out)
		scatter(op);
	op->round = NULL;
	if (op->again && op->kind < PSV_PULL) { /* all shards of the new view */
		op->answered = 0;
		op->err.status = FAR_OK;
		if (op->stats)
			*op->stats = (struct far_ps_stats){.clock = UINT64_MAX};
	}
	struct far_err err;
	if (op->again) {
		round_free(op);
		if (!begin_round(op, 0, &err))
			op = NULL;
		else if (!op->err.status)
			op->err = err;
	}
	far_future_free(f);
	if (op)
		finish(op);
}

/* Divides, numbers and sends. On OK the operation belongs to on_round(). */
static enum far_status begin_round(struct psv_op *op, uint64_t again, struct far_err *err)
{
	uint64_t now = now_ns();
	if (now >= op->deadline_ns)
		return pst_fail(err, FAR_TIMEOUT, 0, "the deadline has passed");
	enum far_status status = divide(op, err);
	if (!status)
		status = build(op, err);
	if (!status)
		status = number(op, again, err);
	if (status)
		return status;
	if (op->token && !again && !*op->token)
		*op->token = op->first;
	address(op);
	struct far_fanout_opts opts = {.timeout_ns =
					       op->deadline_ns == UINT64_MAX ? FAR_FOREVER : op->deadline_ns - now,
				       .partial = true,
				       .errors = FAR_ERRORS_COLLECT};
	status = far_msg_fanout(op->ps->agent, op->ps->message, NULL, 0, op->targets, op->d.n, &opts, op->results,
				&op->round, err);
	if (status)
		return status;
	/* The callback frees the operation, and may run here. */
	struct far_future *round = op->round;
	status = far_future_on_done(round, on_round, op, err);
	if (status)
		far_future_free(round); /* cancels it: nothing refers to the operation afterwards */
	return status;
}

enum far_status psv_op_start(const struct psv_op *from, struct far_future **future, struct far_err *err)
{
	uint64_t again = from->token ? *from->token : 0;
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
	uint64_t timeout = op->timeout_ns ? op->timeout_ns : far_rpc_timeout_ns(op->ps->agent), now = now_ns();
	op->deadline_ns = timeout >= UINT64_MAX - now ? UINT64_MAX : now + timeout;
	if (op->kind >= PSV_PULL && op->n == 0) {
		finish(op);
	} else {
		status = begin_round(op, again, err);
		if (status) {
			unlink_change(op);
			op_free(op);
			far_future_free(done);
			return status;
		}
	}
	*future = done;
	return FAR_OK;
}
