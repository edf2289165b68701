/* SPDX-License-Identifier: BSD-3-Clause */
#include "ps_client.h"
#include "ps_clock.h"
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUSY_NAP_NS UINT64_C(50000) /* between tries of a call that back-pressure refused */

/* One operation on its way. */
struct op {
	const char *function;
	int table;
	unsigned dim;
	bool push;
	const float *grads; /* in the caller's order; NULL in a pull, or without keys */
	float *rows;        /* where the answers go, in the caller's order; NULL when they carry none */
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

/* Puts what was tried, and where, before the text of an error. */
static enum far_status blame(struct far_err *err, enum far_status status, const char *function, unsigned server)
{
	if (err) {
		char text[FAR_ERR_TEXT_MAX];
		snprintf(text, sizeof text, "%s at server %u: %.300s", function, server, err->text);
		memcpy(err->text, text, sizeof text);
	}
	return status;
}

int ps_client_init(struct ps_client *c, struct far_agent *agent, unsigned servers, uint64_t timeout_ns)
{
	memset(c, 0, sizeof *c);
	c->agent = agent;
	c->servers = servers;
	c->timeout_ns = timeout_ns;
	c->chunk_bytes = PS_CHUNK_BYTES;
	return servers == 0 || servers > PS_WORLD_MAX ? -EINVAL : ps_split_init(&c->split, servers);
}

void ps_client_fini(struct ps_client *c)
{
	ps_split_fini(&c->split);
	free(c->grads);
	memset(c, 0, sizeof *c);
}

/* ---- calls in flight ---- */

/* Copies the rows of one answer to their places; false when it is not what was asked for. */
static bool scatter(const struct ps_client *c, const struct op *op, const struct ps_flight *f,
		    const struct far_val *value)
{
	const struct far_tensor *t = &value->u.t;
	if (value->type != FAR_TYPE_TENSOR || t->dtype != FAR_F32 || t->ndim != 2 || t->shape[0] != f->n ||
	    t->shape[1] != op->dim)
		return false;
	const float *from = t->data;
	for (size_t i = 0; i < f->n; i++)
		memcpy(op->rows + c->split.position[f->from + i] * op->dim, from + i * op->dim, op->dim * sizeof *from);
	return true;
}

static void flights_drop(struct ps_client *c)
{
	for (size_t i = 0; i < c->flying; i++)
		far_future_free(c->flights[i].future);
	c->flying = 0;
}

/* Waits for all calls in flight and takes their answers. After a failure nothing is in flight. */
static enum far_status flights_land(struct ps_client *c, const struct op *op)
{
	struct far_future *futures[PS_INFLIGHT];
	for (size_t i = 0; i < c->flying; i++)
		futures[i] = c->flights[i].future;
	/* The calls end by their own deadlines, at op->deadline; the second more is for an engine that is late. */
	uint64_t now = clock_ns(), limit = (op->deadline > now ? op->deadline - now : 0) + FAR_SEC;
	enum far_status status = c->flying ? far_future_wait_all(futures, c->flying, limit, op->err) : FAR_OK;
	for (size_t i = 0; i < c->flying && status != FAR_OK; i++) {
		/* Which of them failed: the first that is complete and not well. */
		enum far_status one = far_future_value(futures[i], NULL, NULL);
		if (one != FAR_OK && one != FAR_PENDING) {
			status = far_future_value(futures[i], NULL, op->err);
			blame(op->err, status, op->function, c->flights[i].server);
			break;
		}
	}
	if (status == FAR_PENDING)
		status = ps_fail(op->err, FAR_TIMEOUT, "%s: no answer within %" PRIu64 " ms", op->function,
				 c->timeout_ns / FAR_MS);
	for (size_t i = 0; i < c->flying && status == FAR_OK && op->rows; i++) {
		struct far_val value = far_none();
		status = far_future_value(futures[i], &value, op->err);
		if (status == FAR_OK && !scatter(c, op, &c->flights[i], &value))
			status = ps_fail(op->err, FAR_PROTOCOL, "%s: server %u answered with other rows than asked for",
					 op->function, c->flights[i].server);
		far_val_fini(&value);
	}
	flights_drop(c);
	return status;
}

/* Starts one call. Back-pressure is answered by landing what flies, or by short naps when nothing does. */
static enum far_status launch(struct ps_client *c, const struct op *op, struct ps_flight flight,
			      const struct far_val *args, size_t args_n)
{
	for (;;) {
		if (c->flying == PS_INFLIGHT) {
			enum far_status status = flights_land(c, op);
			if (status != FAR_OK)
				return status;
		}
		uint64_t now = clock_ns();
		if (now >= op->deadline) {
			flights_drop(c);
			return ps_fail(op->err, FAR_TIMEOUT, "%s: server %u took no call within %" PRIu64 " ms",
				       op->function, flight.server, c->timeout_ns / FAR_MS);
		}
		struct far_call_opts opts = {.timeout_ns = op->deadline - now};
		struct far_to to = {.worker = (int32_t)flight.server, .shard = 0};
		enum far_status status =
			far_rpc_async_to(c->agent, to, op->function, args, args_n, &opts, &flight.future, op->err);
		if (status == FAR_OK) {
			c->flights[c->flying++] = flight;
			return FAR_OK;
		}
		if (status != FAR_BUSY) {
			flights_drop(c);
			return blame(op->err, status, op->function, flight.server);
		}
		if (c->flying) {
			status = flights_land(c, op);
			if (status != FAR_OK)
				return status;
		} else {
			clock_nap(BUSY_NAP_NS);
		}
	}
}

/* ---- operations on keys ---- */

static enum far_status launch_part(struct ps_client *c, const struct op *op, struct ps_flight flight)
{
	struct far_tensor keys = far_tensor_1d(FAR_U64, c->split.key + flight.from, flight.n);
	const float *first = op->push && flight.n ? c->grads + flight.from * op->dim : NULL;
	struct far_tensor grads = far_tensor_2d(FAR_F32, first, flight.n, op->dim);
	struct far_val args[7] = {far_int(op->table), far_tensor_val(&keys)};
	size_t n = 2;
	if (op->push) {
		args[n++] = far_tensor_val(&grads);
		args[n++] = far_float((double)op->rate);
	}
	if (op->bsp) {
		args[n++] = far_int(op->bsp->step);
		args[n++] = far_int(op->bsp->workers);
		args[n++] = far_int(op->more);
	}
	return launch(c, op, flight, args, n);
}

static size_t chunk_rows(const struct ps_client *c, unsigned dim)
{
	size_t rows = c->chunk_bytes / (sizeof(uint64_t) + dim * sizeof(float));
	return rows ? rows : 1;
}

/* All parts of every server, the servers in turn, so that all of them work from the start. */
static enum far_status launch_parts(struct ps_client *c, const struct op *op)
{
	size_t rows = chunk_rows(c, op->dim);
	bool any = true;
	for (size_t part = 0; any; part++) {
		any = false;
		for (unsigned s = 0; s < c->servers; s++) {
			size_t from = c->split.start[s] + part * rows, to = c->split.start[s + 1];
			if (from >= to)
				continue;
			any = true;
			struct ps_flight flight = {NULL, s, from, to - from < rows ? to - from : rows};
			enum far_status status = launch_part(c, op, flight);
			if (status != FAR_OK)
				return status;
		}
	}
	return flights_land(c, op);
}

/* Bulk-synchronous: all parts but each server's last, which are answered at once; then the last ones, to every server,
 * also those without keys. */
static enum far_status launch_bsp(struct ps_client *c, struct op *op)
{
	size_t rows = chunk_rows(c, op->dim);
	float *answers = op->rows;
	op->rows = NULL;
	op->more = true;
	size_t *start = c->split.start;
	for (unsigned s = 0; s < c->servers; s++) {
		for (size_t from = start[s]; start[s + 1] - from > rows; from += rows) {
			enum far_status status = launch_part(c, op, (struct ps_flight){NULL, s, from, rows});
			if (status != FAR_OK)
				return status;
		}
	}
	enum far_status status = flights_land(c, op);
	op->rows = answers;
	op->more = false;
	for (unsigned s = 0; s < c->servers && status == FAR_OK; s++) {
		size_t n = start[s + 1] - start[s];
		size_t before = n ? (n - 1) / rows * rows : 0;
		status = launch_part(c, op, (struct ps_flight){NULL, s, start[s] + before, n - before});
	}
	return status == FAR_OK ? flights_land(c, op) : status;
}

static enum far_status prepare(struct ps_client *c, struct op *op, const uint64_t *keys, size_t n)
{
	if (op->table < 0 || op->table >= PS_TABLES || c->dims[op->table] == 0)
		return ps_fail(op->err, FAR_INVALID, "%s: table %d was not created by this client: call ps_create()",
			       op->function, op->table);
	op->dim = c->dims[op->table];
	op->deadline = clock_ns() + c->timeout_ns;
	if (ps_split_keys(&c->split, keys, n))
		return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu keys", op->function, n);
	if (!op->push || n == 0)
		return FAR_OK;
	if (n * op->dim > c->grads_cap) {
		float *grads = reallocarray(NULL, n, op->dim * sizeof *grads);
		if (grads == NULL)
			return ps_fail(op->err, FAR_RESOURCE, "%s: no memory for %zu gradients", op->function, n);
		free(c->grads);
		c->grads = grads;
		c->grads_cap = n * op->dim;
	}
	for (size_t i = 0; i < n; i++)
		memcpy(c->grads + i * op->dim, op->grads + c->split.position[i] * op->dim, op->dim * sizeof(float));
	return FAR_OK;
}

static enum far_status run(struct ps_client *c, struct op op, const uint64_t *keys, size_t n)
{
	enum far_status status = prepare(c, &op, keys, n);
	if (status != FAR_OK)
		return status;
	return op.bsp ? launch_bsp(c, &op) : launch_parts(c, &op);
}

enum far_status ps_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, float *rows,
			struct far_err *err)
{
	return run(c, (struct op){.function = "ps::pull", .table = table, .rows = rows, .err = err}, keys, n);
}

enum far_status ps_push(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads, float rate,
			struct far_err *err)
{
	struct op op = {.function = "ps::push", .table = table, .push = true, .grads = grads, .rate = rate, .err = err};
	return run(c, op, keys, n);
}

/* Otherwise an answer in parts would show a key's row before its gradients of a later part: then the rows are pulled
 * after all has been pushed. */
static bool fits_one_part(const struct ps_client *c, int table, size_t n)
{
	return table < 0 || table >= PS_TABLES || n <= chunk_rows(c, c->dims[table]);
}

enum far_status ps_push_pull(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
			     float rate, float *rows, struct far_err *err)
{
	if (!fits_one_part(c, table, n)) {
		enum far_status status = ps_push(c, table, keys, n, grads, rate, err);
		return status == FAR_OK ? ps_pull(c, table, keys, n, rows, err) : status;
	}
	struct op op = {.function = "ps::push_pull",
			.table = table,
			.push = true,
			.grads = grads,
			.rows = rows,
			.rate = rate,
			.err = err};
	return run(c, op, keys, n);
}

enum far_status ps_push_bsp(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
			    float rate, struct ps_bsp bsp, struct far_err *err)
{
	struct op op = {.function = "ps::push_bsp",
			.table = table,
			.push = true,
			.grads = grads,
			.rate = rate,
			.bsp = &bsp,
			.err = err};
	return run(c, op, keys, n);
}

enum far_status ps_push_pull_bsp(struct ps_client *c, int table, const uint64_t *keys, size_t n, const float *grads,
				 float rate, struct ps_bsp bsp, float *rows, struct far_err *err)
{
	if (!fits_one_part(c, table, n)) {
		/* No row changes between the two: the next step needs this worker's push. */
		enum far_status status = ps_push_bsp(c, table, keys, n, grads, rate, bsp, err);
		return status == FAR_OK ? ps_pull(c, table, keys, n, rows, err) : status;
	}
	struct op op = {.function = "ps::push_pull_bsp",
			.table = table,
			.push = true,
			.grads = grads,
			.rows = rows,
			.rate = rate,
			.bsp = &bsp,
			.err = err};
	return run(c, op, keys, n);
}
