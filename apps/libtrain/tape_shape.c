/* SPDX-License-Identifier: BSD-3-Clause */
/** Views, copies and concatenation on a tape. One thread at a time. */
#include "tape.h"

/** A dense copy of `x` in `to`. */
static enum far_status copy_dense(struct node *node, const struct far_tensor *x, enum far_dtype dtype, struct held *to,
				  struct far_err *err)
{
	if (!held_new(to, node->pool, dtype, x->ndim, x->shape))
		return fail_memory(err, node->op->name, far_tensor_bytes(x));
	return far_op_copy(x, &to->t, err);
}

/* ---- copies ---- */

static enum far_status cast_forward(const struct call *c, struct far_err *err)
{
	if (c->out[0]->dtype == FAR_DTYPE_NONE) {
		if (!c->in[0])
			return fail(err, FAR_INVALID, "cast: x is NULL");
		if (c->p->mode <= FAR_DTYPE_NONE || c->p->mode >= FAR_DTYPE_COUNT)
			return fail(err, FAR_INVALID, "cast: the dtype %d is unknown", c->p->mode);
		*c->out[0] = tensor_dense((enum far_dtype)c->p->mode, NULL, c->in[0]->ndim, c->in[0]->shape);
		return FAR_OK;
	}
	return far_op_copy(c->in[0], c->out[0], err);
}

static enum far_status cast_share(struct node *node, const struct gradient *grads, struct gradient *dx,
				  struct far_err *err)
{
	const struct held *grad = &grads->values;
	dx->set = true;
	if (grad->t.dtype != node->in[0].t.dtype)
		return copy_dense(node, &grad->t, (enum far_dtype)node->in[0].t.dtype, &dx->values, err);
	held_set(&dx->values, &grad->t, grad->store);
	return FAR_OK;
}

struct far_var *far_tape_cast(struct far_tape *tape, struct far_var *x, enum far_dtype dtype)
{
	static const struct op op = {"cast", cast_forward, NULL, cast_share, 0, 0, false};
	return tape_one(tape, &op, &(struct params){.mode = (int)dtype}, &x, 1);
}

/* ---- views ---- */

/** The dimensions of p->shape. False: too many, and the tape has failed. */
static bool set_shape(struct far_tape *tape, const char *name, struct params *p, unsigned ndim, const uint64_t *shape)
{
	struct far_err err;
	if (ndim > FAR_DIMS_MAX) {
		fail(&err, FAR_INVALID, "%s: %u dimensions, the limit is %d", name, ndim, FAR_DIMS_MAX);
		far_tape_fail(tape, &err);
		return false;
	}
	p->ndim = ndim;
	if (ndim > 0)
		memcpy(p->shape, shape, ndim * sizeof *shape);
	return true;
}

static enum far_status reshape_forward(const struct call *c, struct far_err *err)
{
	return far_op_reshape(c->in[0], c->p->ndim, c->p->shape, c->out[0], err);
}

static enum far_status reshape_share(struct node *node, const struct gradient *grads, struct gradient *dx,
				     struct far_err *err)
{
	const struct held *grad = &grads->values;
	struct far_tensor shaped;
	if (!tensor_is_dense(&grad->t)) {
		TRY(copy_dense(node, &grad->t, (enum far_dtype)grad->t.dtype, &dx->values, err));
		grad = &dx->values;
	}
	dx->set = true;
	TRY(far_op_reshape(&grad->t, node->in[0].t.ndim, node->in[0].t.shape, &shaped, err));
	if (grad == &dx->values)
		dx->values.t = shaped;
	else
		held_set(&dx->values, &shaped, grad->store);
	return FAR_OK;
}

struct far_var *far_tape_reshape(struct far_tape *tape, struct far_var *x, unsigned ndim, const uint64_t *shape)
{
	static const struct op op = {"reshape", reshape_forward, NULL, reshape_share, 0, 0, true};
	struct params p = {0};
	if (!set_shape(tape, op.name, &p, ndim, shape))
		return NULL;
	if (x && !tensor_is_dense(&x->value.t))
		x = far_tape_cast(tape, x, (enum far_dtype)x->value.t.dtype);
	return tape_one(tape, &op, &p, &x, 1);
}

static enum far_status transpose_forward(const struct call *c, struct far_err *err)
{
	return far_op_transpose(c->in[0], c->p->axis, c->p->axis_b, c->strides, c->out[0], err);
}

static enum far_status transpose_share(struct node *node, const struct gradient *grads, struct gradient *dx,
				       struct far_err *err)
{
	const struct held *grad = &grads->values;
	int64_t strides[FAR_DIMS_MAX];
	struct far_tensor view;
	TRY(far_op_transpose(&grad->t, node->p.axis, node->p.axis_b, strides, &view, err));
	held_set(&dx->values, &view, grad->store);
	dx->set = true;
	return FAR_OK;
}

struct far_var *far_tape_transpose(struct far_tape *tape, struct far_var *x, int axis_a, int axis_b)
{
	static const struct op op = {"transpose", transpose_forward, NULL, transpose_share, 0, 0, true};
	return tape_one(tape, &op, &(struct params){.axis = axis_a, .axis_b = axis_b}, &x, 1);
}

static enum far_status slice_forward(const struct call *c, struct far_err *err)
{
	return far_op_slice(c->in[0], c->p->axis, c->p->start, c->p->stop, c->p->step, c->strides, c->out[0], err);
}

static enum far_status slice_backward(const struct call *c, struct far_err *err)
{
	return far_op_slice_backward(c->grad[0], c->in[0], c->p->axis, c->p->start, c->p->stop, c->p->step, c->dx[0],
				     err);
}

struct far_var *far_tape_slice(struct far_tape *tape, struct far_var *x, int axis, uint64_t start, uint64_t stop,
			       uint64_t step)
{
	static const struct op op = {"slice", slice_forward, slice_backward, NULL, 0, 0, true};
	return tape_one(tape, &op, &(struct params){.axis = axis, .start = start, .stop = stop, .step = step}, &x, 1);
}

static enum far_status expand_forward(const struct call *c, struct far_err *err)
{
	return far_op_expand(c->in[0], c->p->ndim, c->p->shape, c->strides, c->out[0], err);
}

static enum far_status expand_backward(const struct call *c, struct far_err *err)
{
	return far_op_expand_backward(c->grad[0], c->in[0], c->dx[0], err);
}

struct far_var *far_tape_expand(struct far_tape *tape, struct far_var *x, unsigned ndim, const uint64_t *shape)
{
	static const struct op op = {"expand", expand_forward, expand_backward, NULL, 0, 0, true};
	struct params p = {0};
	return set_shape(tape, op.name, &p, ndim, shape) ? tape_one(tape, &op, &p, &x, 1) : NULL;
}

/* ---- concatenation ---- */

static enum far_status cat_forward(const struct call *c, struct far_err *err)
{
	return far_op_cat(c->in, c->n, c->p->axis, c->out[0], err);
}

static enum far_status cat_backward(const struct call *c, struct far_err *err)
{
	return far_op_cat_backward(c->grad[0], c->in, c->n, c->p->axis, c->dx, err);
}

struct far_var *far_tape_cat(struct far_tape *tape, struct far_var *const *xs, size_t n, int axis)
{
	static const struct op op = {"cat", cat_forward, cat_backward, NULL, 0, 0, false};
	return tape_one(tape, &op, &(struct params){.axis = axis}, xs, n);
}

/* ---- functions of the application ---- */

static enum far_status apply_forward(const struct call *c, struct far_err *err)
{
	const struct far_tape_function *f = c->p->function;
	fail_clear(err);
	return fail_named(err, f->forward(f->user, c->in, c->n, c->out, c->m, err), f->name);
}

static enum far_status apply_backward(const struct call *c, struct far_err *err)
{
	const struct far_tape_function *f = c->p->function;
	for (size_t i = 0; i < c->n; i++)
		if (c->dx[i])
			memset(c->dx[i]->data, 0, far_tensor_bytes(c->dx[i]));
	fail_clear(err);
	enum far_status status =
		f->backward(f->user, c->grad, c->m, c->in, c->n, (const struct far_tensor *const *)c->out, c->dx, err);
	return fail_named(err, status, f->name);
}

enum far_status far_tape_apply(struct far_tape *tape, const struct far_tape_function *function,
			       struct far_var *const *inputs, size_t n, struct far_var **outs, size_t m)
{
	static const struct op with = {"function", apply_forward, apply_backward, NULL, SAVE_ALL, SAVE_ALL, false};
	static const struct op without = {"function", apply_forward, NULL, NULL, 0, 0, false};
	struct far_var **to[FAR_FUNCTION_OUTPUTS_MAX];
	struct far_err err;
	if (n > FAR_FUNCTION_INPUTS_MAX || m > FAR_FUNCTION_OUTPUTS_MAX || m == 0) {
		fail(&err, FAR_INVALID, "%s: %zu inputs and %zu outputs; the limits are %d and [1, %d]", function->name,
		     n, m, FAR_FUNCTION_INPUTS_MAX, FAR_FUNCTION_OUTPUTS_MAX);
		far_tape_fail(tape, &err);
		return far_tape_status(tape, NULL);
	}
	for (size_t i = 0; i < m; i++)
		to[i] = &outs[i];
	return tape_apply(tape, function->backward ? &with : &without, &(struct params){.function = function}, inputs,
			  n, to, m);
}
