/* SPDX-License-Identifier: BSD-3-Clause */
/** A tape: applies operators and records their derivatives. One thread at a time. */
#include "tape.h"

struct far_tape {
	struct far_pool *pool;
	struct far_var *vars; /* that its operators made, the newest first */
	bool record;
	struct far_err err; /* status OK: none */
};

enum far_status far_tape_new(struct far_pool *pool, struct far_tape **out, struct far_err *err)
{
	struct far_tape *tape = pool_zero(pool, sizeof *tape);
	if (!tape)
		return fail_memory(err, "tape", sizeof *tape);
	tape->pool = pool;
	tape->record = true;
	*out = tape;
	return FAR_OK;
}

void far_tape_free(struct far_tape *tape)
{
	if (!tape)
		return;
	far_tape_reset(tape);
	pool_give(tape);
}

void far_tape_reset(struct far_tape *tape)
{
	while (tape->vars) {
		struct far_var *var = tape->vars;
		tape->vars = var->next;
		far_var_free(var);
	}
	tape->err.status = FAR_OK;
}

enum far_status far_tape_status(const struct far_tape *tape, struct far_err *err)
{
	if (tape->err.status && err)
		*err = tape->err;
	return tape->err.status;
}

void far_tape_fail(struct far_tape *tape, const struct far_err *err)
{
	if (!tape->err.status)
		tape->err = *err;
}

bool far_tape_record(struct far_tape *tape, bool on)
{
	bool before = tape->record;
	tape->record = on;
	return before;
}

struct far_pool *far_tape_pool(struct far_tape *tape)
{
	return tape->pool;
}

/* ---- operators ---- */

const void **pointers_take(struct pointers *p, struct far_pool *pool, size_t n)
{
	p->many = NULL;
	if (n <= NODE_INPUTS)
		return p->few;
	p->many = n <= SIZE_MAX / sizeof *p->many ? pool_take(pool, n * sizeof *p->many) : NULL;
	return p->many;
}

void pointers_give(struct pointers *p)
{
	pool_give(p->many);
}

enum far_status call_with_work(struct far_pool *pool, const char *name, call_fn *fn, const struct call *call,
			       struct far_err *err)
{
	struct far_op_work *work = call->work;
	*work = (struct far_op_work){0};
	TRY(fn(call, err));
	if (work->bytes == 0)
		return FAR_OK;
	work->data = pool_take(pool, work->bytes);
	if (!work->data)
		return fail_memory(err, name, work->bytes);
	enum far_status status = fn(call, err);
	pool_give(work->data);
	return status;
}

/* Outputs of an operator before they are variables. */
struct results {
	struct held held[NODE_OUTPUTS_MAX];
	struct far_tensor *t[NODE_OUTPUTS_MAX];
};

/** Computes the shapes, allocates, computes the values. */
static enum far_status compute(struct far_tape *tape, const struct op *op, struct call *call,
			       struct far_var *const *inputs, struct results *results, struct far_err *err)
{
	TRY(op->forward(call, err));
	for (size_t k = 0; k < call->m; k++) {
		struct held *held = &results->held[k];
		struct far_tensor t = held->t;
		if (op->view)
			held_set(held, &t, inputs[0]->value.store);
		else if (t.dtype != FAR_DTYPE_NONE &&
			 !held_new(held, tape->pool, (enum far_dtype)t.dtype, t.ndim, t.shape))
			return fail_memory(err, op->name, far_tensor_bytes(&t));
	}
	return op->view ? FAR_OK : call_with_work(tape->pool, op->name, op->forward, call, err);
}

static struct node *record(struct far_tape *tape, const struct op *op, const struct call *call,
			   struct far_var *const *inputs, const struct results *results)
{
	struct node *node = node_new(tape->pool, op, call->p, (unsigned)call->n, (unsigned)call->m);
	if (!node)
		return NULL;
	for (unsigned i = 0; i < node->n; i++) {
		if (!inputs[i])
			continue;
		node_link(node, i, inputs[i]);
		const struct held *value = &inputs[i]->value;
		if (op->saves_in == SAVE_ALL || (i < NODE_INPUTS && op->saves_in >> i & 1))
			held_set(&node->in[i], &value->t, value->store);
		else
			held_shape(&node->in[i], &value->t);
	}
	for (unsigned k = 0; k < node->m; k++) {
		const struct held *value = &results->held[k];
		if (value->t.dtype == FAR_DTYPE_NONE)
			continue;
		if (op->saves_out >> k & 1)
			held_set(&node->out[k], &value->t, value->store);
		else
			held_shape(&node->out[k], &value->t);
	}
	return node;
}

/** Makes the outputs variables of the tape. */
static enum far_status publish(struct far_tape *tape, const struct op *op, struct node *node, struct results *results,
			       struct far_var **const *outs, size_t m, struct far_err *err)
{
	for (size_t k = 0; k < m; k++) {
		if (!outs[k])
			continue;
		struct far_var *var = var_new(tape->pool, &results->held[k]);
		if (!var)
			return fail_memory(err, op->name, sizeof *var);
		var->next = tape->vars;
		tape->vars = var;
		var->output = (unsigned)k;
		if (node && tensor_is_float(&var->value.t)) {
			node_ref(node);
			var->node = node;
			var->requires_grad = true;
		}
		*outs[k] = var;
	}
	return FAR_OK;
}

static enum far_status apply(struct far_tape *tape, const struct op *op, struct call *call,
			     struct far_var *const *inputs, struct far_var **const *outs, struct results *results,
			     struct far_err *err)
{
	struct node *node = NULL;
	for (size_t i = 0; i < call->n && !call->saved; i++)
		call->saved = tape->record && inputs[i] && inputs[i]->requires_grad;
	for (size_t k = 0; k < call->m; k++)
		results->t[k] = &results->held[k].t;
	call->out = results->t;
	call->strides = results->held[0].strides;
	TRY(compute(tape, op, call, inputs, results, err));
	if (call->saved) {
		node = record(tape, op, call, inputs, results);
		if (!node)
			return fail_memory(err, op->name, sizeof *node);
	}
	enum far_status status = publish(tape, op, node, results, outs, call->m, err);
	node_unref(node);
	return status;
}

enum far_status tape_apply(struct far_tape *tape, const struct op *op, const struct params *p,
			   struct far_var *const *inputs, size_t n, struct far_var **const *outs, size_t m)
{
	struct results results;
	struct pointers pointers;
	struct far_err err;
	for (size_t k = 0; k < m; k++)
		if (outs[k])
			*outs[k] = NULL;
	if (tape->err.status)
		return tape->err.status;
	const void **in = pointers_take(&pointers, tape->pool, n);
	if (!in) {
		fail_memory(&tape->err, op->name, n * sizeof *in);
		return tape->err.status;
	}
	for (size_t i = 0; i < n; i++)
		in[i] = inputs[i] ? &inputs[i]->value.t : NULL;
	memset(&results, 0, m * sizeof results.held[0]);
	struct far_op_work work = {0};
	struct call call = {.p = p, .in = (const struct far_tensor *const *)in, .n = n, .m = m, .work = &work};
	if (apply(tape, op, &call, inputs, outs, &results, &err)) {
		tape->err = err;
		for (size_t k = 0; k < m; k++)
			if (outs[k])
				*outs[k] = NULL;
	}
	for (size_t k = 0; k < m; k++)
		held_drop(&results.held[k]);
	pointers_give(&pointers);
	return tape->err.status;
}

struct far_var *tape_one(struct far_tape *tape, const struct op *op, const struct params *p,
			 struct far_var *const *inputs, size_t n)
{
	struct far_var *out;
	tape_apply(tape, op, p, inputs, n, (struct far_var * *[]){&out}, 1);
	return out;
}

/* ---- variables without a gradient ---- */

struct far_var *tape_adopt(struct far_tape *tape, struct far_var *var)
{
	var->next = tape->vars;
	tape->vars = var;
	return var;
}

struct far_var *far_tape_input(struct far_tape *tape, const struct far_tensor *t)
{
	struct far_var *var;
	struct far_err err;
	if (tape->err.status)
		return NULL;
	if (far_var_borrow(tape->pool, t, false, NULL, NULL, &var, &err)) {
		far_tape_fail(tape, &err);
		return NULL;
	}
	return tape_adopt(tape, var);
}

struct far_var *far_tape_constant(struct far_tape *tape, enum far_dtype dtype, double value)
{
	struct far_var *var;
	struct far_err err;
	struct far_tensor t = tensor_dense(dtype, NULL, 0, NULL);
	if (tape->err.status)
		return NULL;
	if (far_var_new(tape->pool, &t, false, &var, &err)) {
		far_tape_fail(tape, &err);
		return NULL;
	}
	far_op_fill(value, &var->value.t, NULL);
	return tape_adopt(tape, var);
}

struct far_var *far_tape_detach(struct far_tape *tape, struct far_var *x)
{
	struct held value = {0};
	if (tape->err.status)
		return NULL;
	if (!x) {
		fail(&tape->err, FAR_INVALID, "detach: x is NULL");
		return NULL;
	}
	held_set(&value, &x->value.t, x->value.store);
	struct far_var *var = var_new(tape->pool, &value);
	if (!var) {
		held_drop(&value);
		fail_memory(&tape->err, "detach", sizeof *var);
		return NULL;
	}
	return tape_adopt(tape, var);
}
