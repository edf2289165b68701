/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls of functions that run at the rows: the public function, on any thread; requests, values and their reduction,
 * on the thread that has the operation. */
#include "psv_functions.h"
#include "psv_op.h"

#include "pst_fail.h"
#include <string.h>

static size_t values_of(const struct psv_op *op, size_t n)
{
	return psv_call_values(n, op->members, op->reduce);
}

void psv_call_init(struct psv_op *op)
{
	memset(op->key_error, 0, op->k.n);
	psv_reduce_begin(op->reduce, values_of(op, op->n), op->values);
}

void psv_call_fill(const struct psv_op *op, char *to)
{
	memcpy(to, op->barrier, PSV_NAME_BYTES);
	to += PSV_NAME_BYTES;
	memset(to, 0, (op->arg_bytes + 7) / 8 * 8);
	if (op->arg_bytes)
		memcpy(to, op->arg, op->arg_bytes);
}

static void take_status(struct psv_op *op, uint32_t key, uint8_t status)
{
	op->open[key] = false;
	op->key_error[key] = 0;
	if (status > PST_FAILED) {
		op->key_status[key] = FAR_PS_FAILED;
		op->key_error[key] = (uint8_t)(status - PST_FAILED);
	} else {
		op->key_status[key] = status == FAR_PS_APPLIED ? status : psv_key_status(op->dense, status);
	}
}

void psv_take_call(struct psv_op *op, const struct psv_chunk *c, const char *body)
{
	size_t values = values_of(op, c->n);
	const double *from = (const double *)(const void *)body;
	const uint8_t *status = (const uint8_t *)(from + values);
	op->some_answered = true;
	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t key = op->k.order[c->from + i];
		take_status(op, key, status[i]);
		op->row[key] = (const char *)(from + (size_t)i * op->members);
	}
	if (op->reduce != FAR_PS_EACH)
		psv_reduce(op->reduce, op->members, op->values, from);
}

void psv_call_scatter(struct psv_op *op)
{
	size_t bytes = op->members * sizeof *op->values;
	for (uint32_t i = 0; op->reduce == FAR_PS_EACH && bytes && i < op->k.n; i++)
		if (op->row[op->k.at[i]])
			memcpy(op->values + (size_t)i * op->members, op->row[op->k.at[i]], bytes);
}

void psv_call_settle(const struct psv_op *op)
{
	for (uint32_t i = 0; op->errors && i < op->k.n; i++)
		op->errors[i] = op->key_error[op->k.at[i]];
}

static enum far_status check(const struct far_ps_table *t, const char *name, size_t n, const struct far_ps_call_opts *o,
			     const double *values, struct far_err *err)
{
	if (!psv_name_ok(name))
		return pst_fail(err, FAR_INVALID, 0, "the name of a function has 1 to %d bytes", FAR_PS_NAME_MAX - 1);
	if (o->arg_len > FAR_PS_ARG_MAX || (o->arg_len && !o->arg))
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": arg %s %zu bytes; at most %zu are possible",
				name, o->arg ? "has" : "is NULL, and has", o->arg_len, FAR_PS_ARG_MAX);
	if (o->width > FAR_PS_WIDTH_MAX)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": width is %u; at most %d are possible", name,
				o->width, FAR_PS_WIDTH_MAX);
	if ((unsigned)o->reduce > FAR_PS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": reduce is %d; there is no such reduction", name,
				(int)o->reduce);
	if (o->width && n && !values)
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": values is NULL, and the width %u", name,
				o->width);
	if (o->read && (o->make || o->token))
		return pst_fail(err, FAR_INVALID, 0, "function \"%s\": %s does not go with read", name,
				o->make ? "make" : "a token");
	for (unsigned i = 0; i < 4; i++)
		if (o->reserved[i])
			return pst_fail(err, FAR_INVALID, 0, "a reserved word of far_ps_call_opts is not 0");
	(void)t;
	return FAR_OK;
}

enum far_status far_ps_call(struct far_ps_table *t, const char *name, const uint64_t *keys, size_t n,
			    const struct far_ps_call_opts *opts, double *values, uint8_t *statuses,
			    struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	struct far_ps_call_opts o = opts ? *opts : (struct far_ps_call_opts){0};
	enum far_status status = psv_op_of(&op, t, o.read ? PSV_CALL_READ : PSV_CALL, keys, n, future, err);
	if (!status)
		status = check(t, name, n, &o, values, err);
	if (status)
		return status;
	strcpy(op.barrier, name);
	op.timeout_ns = o.timeout_ns;
	op.partial = o.partial;
	op.make = o.make;
	op.arg = o.arg;
	op.arg_bytes = (uint32_t)o.arg_len;
	op.members = o.width;
	op.reduce = o.reduce;
	op.values = values;
	op.errors = o.errors;
	op.token = o.token;
	op.status = statuses;
	return psv_op_start(&op, future, err);
}
