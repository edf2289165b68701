/* SPDX-License-Identifier: BSD-3-Clause */
/** The public functions on rows, and what each operation is made of. Any thread. */
#include "psv_op.h"

#include "pst_fail.h"
#include <math.h>
#include <string.h>

static enum far_status check_wire(enum far_dtype wire, enum pst_type *type, struct far_err *err)
{
	if (psv_type(wire, type))
		return FAR_OK;
	return pst_fail(err, FAR_INVALID, 0, "wire is dtype %d; f32, bf16, f16 or i8", (int)wire);
}

static enum far_status check_reserved(const uint64_t reserved[4], struct far_err *err)
{
	for (unsigned i = 0; i < 4; i++)
		if (reserved[i])
			return pst_fail(err, FAR_INVALID, 0, "a reserved word of the options is not 0");
	return FAR_OK;
}

static enum far_status no_partial(struct far_err *err)
{
	return pst_fail(err, FAR_INVALID, 0, "a range has no status of keys: partial is not possible");
}

enum far_status psv_op_of(struct psv_op *op, const struct far_ps_table *t, enum psv_kind kind, const uint64_t *keys,
			  size_t n, struct far_future **future, struct far_err *err)
{
	if (!t || !future)
		return pst_fail(err, FAR_INVALID, 0, "%s is NULL", t ? "the place for the future" : "the table");
	if (n && !keys)
		return pst_fail(err, FAR_INVALID, 0, "keys is NULL, and n is %zu", n);
	if (n > FAR_PS_KEYS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "%zu keys; an operation has at most %zu", n, FAR_PS_KEYS_MAX);
	bool values = t->schema.value_max > 0;
	if (psv_has_keys(kind) && kind != PSV_EXISTS && kind != PSV_ERASE && values != psv_is_values(kind))
		return pst_fail(err, FAR_INVALID, 0, "table \"%s\" has %s", t->name,
				values ? "values of bytes: far_ps_pull_values() and far_ps_assign_values() are for it"
				       : "rows, not values of bytes");
	for (size_t i = 0; t->schema.dense_rows && i < n; i++)
		if (keys[i] >= t->schema.dense_rows)
			return pst_fail(err, FAR_INVALID, 0, "key %llu; table \"%s\" has the keys [0, %llu)",
					(unsigned long long)keys[i], t->name, (unsigned long long)t->schema.dense_rows);
	*op = (struct psv_op){.ps = t->ps,
			      .kind = kind,
			      .table = t->id,
			      .dim = t->schema.dim,
			      .dense = t->schema.dense_rows > 0,
			      .keys = keys,
			      .n = n};
	memcpy(op->table_name, t->name, sizeof op->table_name);
	return FAR_OK;
}

static enum far_status op_of_range(struct psv_op *op, const struct far_ps_table *t, enum psv_kind kind, uint64_t first,
				   size_t n, struct far_future **future, struct far_err *err)
{
	enum far_status status = psv_op_of(op, t, kind, NULL, 0, future, err);
	if (status)
		return status;
	uint64_t rows = t->schema.dense_rows;
	if (n > FAR_PS_KEYS_MAX || first > rows || n > rows - first)
		return pst_fail(err, FAR_INVALID, 0, "%zu rows from %llu on; table \"%s\" has %llu dense rows", n,
				(unsigned long long)first, t->name, (unsigned long long)rows);
	op->first_key = first;
	op->n = n;
	return FAR_OK;
}

static enum far_status read_op(const struct far_ps_table *t, struct psv_op *op, const struct far_ps_pull_opts *opts,
			       float *rows, uint8_t *statuses, struct far_future **future, struct far_err *err)
{
	struct far_ps_pull_opts o = opts ? *opts : (struct far_ps_pull_opts){0};
	enum far_status status = check_reserved(o.reserved, err);
	if (status)
		return status;
	size_t n = op->kind == PSV_BAGS ? op->bags.n : op->n;
	bool numbers = op->kind != PSV_EXISTS && op->kind != PSV_GET_VALUES;
	if (numbers && n && !rows)
		return pst_fail(err, FAR_INVALID, 0, "rows is NULL");
	if ((unsigned)o.miss > FAR_PS_MAKE)
		return pst_fail(err, FAR_INVALID, 0, "miss is %d; there is no such rule for missing rows", (int)o.miss);
	if (o.clock && !t->schema.workers)
		return pst_fail(err, FAR_INVALID, 0, "clock is %llu, and table \"%s\" has no clock",
				(unsigned long long)o.clock, t->name);
	if (numbers) {
		status = check_wire(o.wire, &op->wire, err);
		op->miss = op->dense ? FAR_PS_INITIAL : o.miss;
		op->fallback = o.fallback;
		op->out = rows;
	}
	if (status)
		return status;
	op->timeout_ns = o.timeout_ns;
	op->partial = o.partial;
	op->clock = o.clock > t->schema.staleness ? o.clock - t->schema.staleness : 0;
	op->status = statuses;
	return psv_op_start(op, future, err);
}

enum far_status far_ps_pull(struct far_ps_table *t, const uint64_t *keys, size_t n, const struct far_ps_pull_opts *opts,
			    float *rows, uint8_t *statuses, struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_PULL, keys, n, future, err);
	return status ? status : read_op(t, &op, opts, rows, statuses, future, err);
}

enum far_status far_ps_pull_range(struct far_ps_table *t, uint64_t first, size_t n, const struct far_ps_pull_opts *opts,
				  float *rows, struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	struct far_ps_pull_opts o = opts ? *opts : (struct far_ps_pull_opts){0};
	enum far_status status = op_of_range(&op, t, PSV_PULL, first, n, future, err);
	if (!status && o.partial)
		status = no_partial(err);
	return status ? status : read_op(t, &op, &o, rows, NULL, future, err);
}

enum far_status far_ps_pull_values(struct far_ps_table *t, const uint64_t *keys, size_t n,
				   const struct far_ps_pull_opts *opts, void *values, size_t stride, uint32_t *lens,
				   uint8_t *statuses, struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_GET_VALUES, keys, n, future, err);
	if (!status && n && (!lens || (stride && !values)))
		status = pst_fail(err, FAR_INVALID, 0, "%s is NULL", lens ? "values" : "lens");
	if (status)
		return status;
	op.value_max = (uint32_t)t->schema.value_max;
	op.value_out = values;
	op.value_stride = stride;
	op.value_lens = lens;
	return read_op(t, &op, opts, NULL, statuses, future, err);
}

enum far_status far_ps_exists(struct far_ps_table *t, const uint64_t *keys, size_t n,
			      const struct far_ps_pull_opts *opts, uint8_t *statuses, struct far_future **future,
			      struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_EXISTS, keys, n, future, err);
	return status ? status : read_op(t, &op, opts, NULL, statuses, future, err);
}

static enum far_status check_bags(const struct far_ps_bags *b, struct far_err *err)
{
	if (!b || (b->n && !b->offsets) || b->n > FAR_PS_KEYS_MAX)
		return pst_fail(err, FAR_INVALID, 0, "the bags or their offsets are NULL, or more than %zu",
				FAR_PS_KEYS_MAX);
	if ((unsigned)b->pool > FAR_PS_MEAN || b->reserved[0] || b->reserved[1])
		return pst_fail(err, FAR_INVALID, 0,
				"pool is %d: there is no such pooling; or a reserved word is not 0", (int)b->pool);
	if (b->n && b->offsets[0])
		return pst_fail(err, FAR_INVALID, 0, "offset 0 is %llu", (unsigned long long)b->offsets[0]);
	for (size_t i = 0; i < b->n; i++)
		if (b->offsets[i] > b->offsets[i + 1])
			return pst_fail(err, FAR_INVALID, 0, "offset %zu is %llu, less than the one before, %llu",
					i + 1, (unsigned long long)b->offsets[i + 1],
					(unsigned long long)b->offsets[i]);
	return FAR_OK;
}

enum far_status far_ps_pull_bags(struct far_ps_table *t, const uint64_t *keys, const struct far_ps_bags *bags,
				 const struct far_ps_pull_opts *opts, float *rows, uint8_t *statuses,
				 struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = check_bags(bags, err);
	if (status)
		return status;
	uint64_t n = bags->n ? bags->offsets[bags->n] : 0;
	status = psv_op_of(&op, t, PSV_BAGS, keys, n, future, err);
	for (uint64_t i = 0; bags->weights && i < n && !status; i++)
		if (!isfinite(bags->weights[i]))
			status = pst_fail(err, FAR_INVALID, 0, "weight %llu is not finite", (unsigned long long)i);
	if (status)
		return status;
	op.bags = *bags;
	return read_op(t, &op, opts, rows, statuses, future, err);
}

/* `op` has the kind's own arrays. */
static enum far_status change_op(struct psv_op *op, const struct far_ps_push_opts *opts, uint8_t *statuses,
				 struct far_future **future, struct far_err *err)
{
	struct far_ps_push_opts o = opts ? *opts : (struct far_ps_push_opts){0};
	enum far_status status = check_reserved(o.reserved, err);
	if (status)
		return status;
	if (!isfinite(o.rate) || o.rate < 0)
		return pst_fail(err, FAR_INVALID, 0, "rate is %g; it must be finite and at least 0", (double)o.rate);
	if (psv_has_numbers(op->kind)) {
		if (op->n && !op->in)
			return pst_fail(err, FAR_INVALID, 0, "the gradients or rows are NULL");
		status = check_wire(o.wire, &op->wire, err);
		op->rate = op->kind == PSV_ASSIGN ? 0 : o.rate;
	}
	if (status)
		return status;
	op->timeout_ns = o.timeout_ns;
	op->partial = o.partial;
	op->token = o.token;
	op->status = statuses;
	return psv_op_start(op, future, err);
}

enum far_status far_ps_push(struct far_ps_table *t, const uint64_t *keys, size_t n, const float *grads,
			    const struct far_ps_push_opts *opts, uint8_t *statuses, struct far_future **future,
			    struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_PUSH, keys, n, future, err);
	op.in = grads;
	return status ? status : change_op(&op, opts, statuses, future, err);
}

enum far_status far_ps_push_range(struct far_ps_table *t, uint64_t first, size_t n, const float *grads,
				  const struct far_ps_push_opts *opts, struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = op_of_range(&op, t, PSV_PUSH, first, n, future, err);
	if (!status && opts && opts->partial)
		status = no_partial(err);
	op.in = grads;
	return status ? status : change_op(&op, opts, NULL, future, err);
}

enum far_status far_ps_push_pull(struct far_ps_table *t, const uint64_t *keys, size_t n, const float *grads,
				 const struct far_ps_push_opts *opts, float *rows, uint8_t *statuses,
				 struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_PUSH_PULL, keys, n, future, err);
	if (!status && n && !rows)
		status = pst_fail(err, FAR_INVALID, 0, "rows is NULL");
	op.in = grads;
	op.out = rows;
	return status ? status : change_op(&op, opts, statuses, future, err);
}

enum far_status far_ps_assign(struct far_ps_table *t, const uint64_t *keys, size_t n, const float *rows,
			      const float *state, const struct far_ps_push_opts *opts, uint8_t *statuses,
			      struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_ASSIGN, keys, n, future, err);
	if (status)
		return status;
	const struct pst_schema schema = psv_schema_table(&t->schema, 1);
	op.in = rows;
	op.state = state;
	op.state_floats = state ? t->state_floats : 0;
	op.stored = schema.stored;
	op.rule = schema.rule.kind;
	return change_op(&op, opts, statuses, future, err);
}

enum far_status far_ps_assign_values(struct far_ps_table *t, const uint64_t *keys, size_t n, const void *bytes,
				     const uint64_t *offsets, const struct far_ps_push_opts *opts, uint8_t *statuses,
				     struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_PUT_VALUES, keys, n, future, err);
	if (!status && n && (!offsets || (offsets[n] > offsets[0] && !bytes)))
		status = pst_fail(err, FAR_INVALID, 0, "%s is NULL", offsets ? "bytes" : "offsets");
	for (size_t i = 0; i < n && !status; i++)
		if (offsets[i] > offsets[i + 1] || offsets[i + 1] - offsets[i] > t->schema.value_max)
			status = pst_fail(err, FAR_INVALID, 0,
					  "the value of key %llu has the offsets %llu and %llu; at most %llu bytes are "
					  "possible in table \"%s\"",
					  (unsigned long long)keys[i], (unsigned long long)offsets[i],
					  (unsigned long long)offsets[i + 1], (unsigned long long)t->schema.value_max,
					  t->name);
	if (status)
		return status;
	op.value_max = (uint32_t)t->schema.value_max;
	op.arg = bytes;
	op.value_offsets = offsets;
	return change_op(&op, opts, statuses, future, err);
}

enum far_status far_ps_erase(struct far_ps_table *t, const uint64_t *keys, size_t n,
			     const struct far_ps_push_opts *opts, uint8_t *statuses, struct far_future **future,
			     struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_ERASE, keys, n, future, err);
	return status ? status : change_op(&op, opts, statuses, future, err);
}

enum far_status far_ps_clock(struct far_ps_table *t, unsigned worker, uint64_t step, uint64_t timeout_ns,
			     struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_CLOCK, NULL, 0, future, err);
	if (status)
		return status;
	if (worker >= t->schema.workers)
		return pst_fail(err, FAR_INVALID, 0, "worker is %u; table \"%s\" has a clock for %u workers", worker,
				t->name, t->schema.workers);
	op.worker = worker;
	op.clock = step;
	op.timeout_ns = timeout_ns;
	return psv_op_start(&op, future, err);
}

enum far_status far_ps_table_stats(struct far_ps_table *t, uint64_t timeout_ns, struct far_ps_stats *stats,
				   struct far_future **future, struct far_err *err)
{
	struct psv_op op;
	enum far_status status = psv_op_of(&op, t, PSV_STATS, NULL, 0, future, err);
	if (!status && !stats)
		status = pst_fail(err, FAR_INVALID, 0, "stats is NULL");
	if (status)
		return status;
	*stats = (struct far_ps_stats){.clock = UINT64_MAX};
	op.timeout_ns = timeout_ns;
	op.stats = stats;
	return psv_op_start(&op, future, err);
}
