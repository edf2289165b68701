/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The client of the parameter server: groups keys by shard, sends one fan-out per operation, scatters the replies. The
 * thread that owns the client.
 */
#include "ps_client.h"
#include "ps_clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One operation on its way. */
struct op {
	const char *function;
	int table;
	unsigned dim;
	bool push;
	const float *grads; /* in the caller's order; NULL in a pull, or without keys */
	float *rows;        /* where the answers go, in the caller's order; NULL when they carry none */
	float *grouped;     /* where they go first, in the order of the groups; `rows` itself when that is the same */
	float rate;
	const struct ps_bsp *bsp;
	bool more; /* bulk-synchronous: not the last parts */
	uint64_t deadline;
	struct far_err *err;
};

enum far_status ps_fail(struct far_err *err, enum far_status status, const char *format, ...)
{
	if (err == NULL)
		return status;
	memset(err, 0, sizeof *err);
	err->status = status;
	err->executed = FAR_EXECUTED_NO;
	va_list args;
	va_start(args, format);
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return status;
}

struct far_to ps_part_to(const struct ps_client *c, unsigned part)
{
	return (struct far_to){(int32_t)ps_part_server(part, c->shards), (int32_t)ps_part_shard(part, c->shards)};
}

int ps_client_init(struct ps_client *c, struct far_agent *agent, unsigned servers, unsigned shards, uint64_t timeout_ns)
{
	memset(c, 0, sizeof *c);
	c->agent = agent;
	c->servers = servers;
	c->shards = shards;
	c->timeout_ns = timeout_ns;
	c->chunk_bytes = PS_CHUNK_BYTES;
	if (servers == 0 || servers > PS_WORLD_MAX || shards == 0 || shards > PS_SHARDS_MAX)
		return -EINVAL;
	return ps_split_init(&c->split, servers * shards);
}

void ps_client_fini(struct ps_client *c)
{
	ps_split_fini(&c->split);
	free(c->grads);
	free(c->rows);
	free(c->calls);
	free(c->targets);
	free(c->results);
	memset(c, 0, sizeof *c);
}

/* ---- a fan-out of calls ---- */

/* Puts what was tried, and where it failed first, before the text of an error. */
static enum far_status blame(const struct ps_client *c, const struct op *op, enum far_status status)
{
	size_t i = 0;
	char text[FAR_ERR_TEXT_MAX];
	if (op->err == NULL)
		return status;
	while (i < c->calls_n && c->results[i].status != status)
		i++;
	if (i < c->calls_n)
		snprintf(text, sizeof text, "%s at server %u: %.300s", op->function,
			 ps_part_server(c->calls[i].part, c->shards), c->results[i].text);
	else
		snprintf(text, sizeof text, "%s: %.300s", op->function, op->err->text);
	memcpy(op->err->text, text, sizeof text);
	return status;
}

/* Makes the calls that were gathered, and waits until all are answered. */
static enum far_status calls_make(struct ps_client *c, const struct op *op)
{
	uint64_t now = clock_ns();
	struct far_fanout_opts opts = {.timeout_ns = op->deadline > now ? op->deadline - now : 1};
	struct far_future *f;
	if (c->calls_n == 0)
		return FAR_OK;
	for (size_t i = 0; i < c->calls_n; i++) {
		c->targets[i].args = c->calls[i].args;
		c->targets[i].out = op->rows ? &c->calls[i].rows : NULL;
	}
	enum far_status status = far_rpc_fanout(c->agent, op->function, FAR_NOARGS, c->targets, c->calls_n, &opts,
						c->results, &f, op->err);
	if (status == FAR_OK) {
		/* It ends by its own deadline; the second more is for an engine that is late. */
		status = far_future_wait(f, opts.timeout_ns + FAR_SEC, NULL, op->err);
		far_future_free(f);
		if (status == FAR_PENDING)
			status = ps_fail(op->err, FAR_TIMEOUT, "no answer within %" PRIu64 " ms",
					 c->timeout_ns / FAR_MS);
		if (status != FAR_OK)
			blame(c, op, status);
	}
	c->calls_n = c->calls_bytes = 0;
	return status;
}

static bool calls_reserve(struct ps_client *c)
{
	if (c->calls_n < c->calls_cap)
		return true;
	size_t cap = c->calls_cap ? c->calls_cap * 2 : 16;
	struct ps_call *calls = reallocarray(c->calls, cap, sizeof *calls);
	if (!calls)
		return false;
	c->calls = calls;
	struct far_target *targets = reallocarray(c->targets, cap, sizeof *targets);
	if (!targets)
		return false;
	c->targets = targets;
	struct far_target_result *results = reallocarray(c->results, cap, sizeof *results);
	if (!results)
		return false;
	c->results = results;
	c->calls_cap = cap;
	return true;
}

/* ---- operations on keys ---- */

static size_t row_bytes(unsigned dim)
{
	return sizeof(uint64_t) + dim * sizeof(float);
}

/* Adds a call on keys [from, from + n); makes those that were gathered first when they would be too many. */
static enum far_status call_add(struct ps_client *c, const struct op *op, unsigned part, size_t from, size_t n)
{
	size_t bytes = n * row_bytes(op->dim);
	if (c->calls_n == FAR_FANOUT_MAX || (c->calls_n && c->calls_bytes + bytes > PS_FANOUT_BYTES)) {
		enum far_status status = calls_make(c, op);
		if (status != FAR_OK)
			return status;
	}
	if (!calls_reserve(c))
		return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu calls", op->function, c->calls_n);
	struct ps_call *call = &c->calls[c->calls_n];
	struct far_tensor keys = far_tensor_1d(FAR_U64, c->split.key + from, n);
	struct far_tensor grads = far_tensor_2d(FAR_F32, op->push && n ? c->grads + from * op->dim : NULL, n, op->dim);
	size_t args = 0;
	call->part = part;
	call->from = from;
	call->n = n;
	call->rows = far_tensor_2d(FAR_F32, op->rows ? op->grouped + from * op->dim : NULL, n, op->dim);
	call->args[args++] = far_int(op->table);
	call->args[args++] = far_tensor_val(&keys);
	if (op->push) {
		call->args[args++] = far_tensor_val(&grads);
		call->args[args++] = far_float((double)op->rate);
	}
	if (op->bsp) {
		call->args[args++] = far_int(op->bsp->step);
		call->args[args++] = far_int(op->bsp->workers);
		call->args[args++] = far_int(op->more);
	}
	c->targets[c->calls_n++] = (struct far_target){.to = ps_part_to(c, part), .args_n = args};
	c->calls_bytes += bytes;
	return FAR_OK;
}

static size_t chunk_rows(const struct ps_client *c, unsigned dim)
{
	size_t rows = c->chunk_bytes / row_bytes(dim);
	return rows ? rows : 1;
}

/* All chunks of every part, the parts in turn, so that all of them work from the start. */
static enum far_status call_parts(struct ps_client *c, const struct op *op)
{
	size_t rows = chunk_rows(c, op->dim);
	bool any = true;
	for (size_t chunk = 0; any; chunk++) {
		any = false;
		for (unsigned p = 0; p < c->split.parts; p++) {
			size_t from = c->split.start[p] + chunk * rows, to = c->split.start[p + 1];
			if (from >= to)
				continue;
			any = true;
			enum far_status status = call_add(c, op, p, from, to - from < rows ? to - from : rows);
			if (status != FAR_OK)
				return status;
		}
	}
	return calls_make(c, op);
}

/* Bulk-synchronous: all chunks but each part's last, which are answered at once; then the last ones, to every part,
 * also those without keys, in one fan-out: each is answered when all workers' have come. */
static enum far_status call_bsp(struct ps_client *c, struct op *op)
{
	size_t rows = chunk_rows(c, op->dim);
	float *answers = op->rows;
	const size_t *start = c->split.start;
	op->rows = NULL;
	op->more = true;
	for (unsigned p = 0; p < c->split.parts; p++) {
		for (size_t from = start[p]; start[p + 1] - from > rows; from += rows) {
			enum far_status status = call_add(c, op, p, from, rows);
			if (status != FAR_OK)
				return status;
		}
	}
	enum far_status status = calls_make(c, op);
	op->rows = answers;
	op->more = false;
	for (unsigned p = 0; p < c->split.parts && status == FAR_OK; p++) {
		size_t n = start[p + 1] - start[p];
		size_t before = n ? (n - 1) / rows * rows : 0;
		status = call_add(c, op, p, start[p] + before, n - before);
	}
	return status == FAR_OK ? calls_make(c, op) : status;
}

/* Makes a scratch array hold `n` × `dim` floats. */
static bool floats_reserve(float **floats, size_t *cap, size_t n, unsigned dim)
{
	if (n * dim <= *cap)
		return true;
	float *more = reallocarray(NULL, n, dim * sizeof *more);
	if (more == NULL)
		return false;
	free(*floats);
	*floats = more;
	*cap = n * dim;
	return true;
}

static enum far_status prepare(struct ps_client *c, struct op *op, const uint64_t *keys, size_t n)
{
	if (op->table < 0 || op->table >= PS_TABLES || c->dims[op->table] == 0)
		return ps_fail(op->err, FAR_INVALID, "%s: table %d was not created by this client: call ps_create()",
			       op->function, op->table);
	op->dim = c->dims[op->table];
	op->deadline = clock_ns() + c->timeout_ns;
	c->calls_n = c->calls_bytes = 0;
	if (ps_split_keys(&c->split, keys, n))
		return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu keys", op->function, n);
	/* With one part the groups are in the caller's order: answers go straight to it. */
	op->grouped = op->rows;
	if (op->rows && c->split.parts > 1) {
		if (!floats_reserve(&c->rows, &c->rows_cap, n, op->dim))
			return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu rows", op->function, n);
		op->grouped = c->rows;
	}
	if (!op->push || n == 0)
		return FAR_OK;
	if (!floats_reserve(&c->grads, &c->grads_cap, n, op->dim))
		return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu gradients", op->function, n);
	for (size_t i = 0; i < n; i++)
		memcpy(c->grads + i * op->dim, op->grads + c->split.position[i] * op->dim, op->dim * sizeof(float));
	return FAR_OK;
}

static enum far_status run(struct ps_client *c, struct op op, const uint64_t *keys, size_t n)
{
	enum far_status status = prepare(c, &op, keys, n);
	if (status != FAR_OK)
		return status;
	status = op.bsp ? call_bsp(c, &op) : call_parts(c, &op);
	for (size_t i = 0; i < n && status == FAR_OK && op.grouped != op.rows; i++)
		memcpy(op.rows + c->split.position[i] * op.dim, op.grouped + i * op.dim, op.dim * sizeof(float));
	return status;
}

enum far_status ps_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, float *rows,
			struct far_err *err)
{
	return run(c, (struct op){.function = "ps::pull", .table = table, .rows = rows, .err = err}, keys, n);
}

enum far_status ps_push(struct ps_client *c, const struct ps_push *p, struct far_err *err)
{
	struct op op = {.function = "ps::push",
			.table = p->table,
			.push = true,
			.grads = p->grads,
			.rate = p->rate,
			.err = err};
	return run(c, op, p->keys, p->n);
}

/* Otherwise an answer in parts would show a key's row before its gradients of a later part: then the rows are pulled
 * after all has been pushed. */
static bool fits_one_part(const struct ps_client *c, int table, size_t n)
{
	return table < 0 || table >= PS_TABLES || n <= chunk_rows(c, c->dims[table]);
}

enum far_status ps_push_pull(struct ps_client *c, const struct ps_push *p, float *rows, struct far_err *err)
{
	if (!fits_one_part(c, p->table, p->n)) {
		enum far_status status = ps_push(c, p, err);
		return status == FAR_OK ? ps_pull(c, p->table, p->keys, p->n, rows, err) : status;
	}
	struct op op = {.function = "ps::push_pull",
			.table = p->table,
			.push = true,
			.grads = p->grads,
			.rows = rows,
			.rate = p->rate,
			.err = err};
	return run(c, op, p->keys, p->n);
}

enum far_status ps_push_bsp(struct ps_client *c, const struct ps_push *p, struct ps_bsp bsp, struct far_err *err)
{
	struct op op = {.function = "ps::push_bsp",
			.table = p->table,
			.push = true,
			.grads = p->grads,
			.rate = p->rate,
			.bsp = &bsp,
			.err = err};
	return run(c, op, p->keys, p->n);
}

enum far_status ps_push_pull_bsp(struct ps_client *c, const struct ps_push *p, struct ps_bsp bsp, float *rows,
				 struct far_err *err)
{
	if (!fits_one_part(c, p->table, p->n)) {
		/* No row changes between the two: the next step needs this worker's push. */
		enum far_status status = ps_push_bsp(c, p, bsp, err);
		return status == FAR_OK ? ps_pull(c, p->table, p->keys, p->n, rows, err) : status;
	}
	struct op op = {.function = "ps::push_pull_bsp",
			.table = p->table,
			.push = true,
			.grads = p->grads,
			.rows = rows,
			.rate = p->rate,
			.bsp = &bsp,
			.err = err};
	return run(c, op, p->keys, p->n);
}
