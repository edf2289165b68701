/* SPDX-License-Identifier: BSD-3-Clause */
/** Element-wise operators, reductions and losses on a tape. One thread at a time. */
#include "tape.h"

/* ---- two operands ---- */

/** Of add and sub: gradients of the same shape are shared. */
static enum far_status share_sum(struct node *node, const struct gradient *grads, struct gradient *dx,
				 struct far_err *err)
{
	const struct held *grad = &grads->values;
	for (unsigned i = 0; i < 2; i++) {
		const struct held *in = &node->in[i];
		bool negative = i == 1 && node->p.factor < 0;
		if (!node_wants(node, i))
			continue;
		if (!negative && tensor_same_shape(&in->t, &grad->t)) {
			held_set(&dx[i].values, &grad->t, grad->store);
		} else {
			if (!held_new(&dx[i].values, node->pool, (enum far_dtype)in->t.dtype, in->t.ndim, in->t.shape))
				return fail_memory(err, node->op->name, far_tensor_bytes(&in->t));
			TRY(negative ? far_op_sub_backward(&grad->t, &node->in[0].t, &node->in[1].t, NULL,
							   &dx[i].values.t, err)
				     : far_op_expand_backward(&grad->t, &in->t, &dx[i].values.t, err));
		}
		dx[i].set = true;
	}
	return FAR_OK;
}

#define TWO_FORWARD(name)                                                                                              \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->in[1], c->out[0], err);                                              \
	}
#define TWO(name, saves, even)                                                                                         \
	TWO_FORWARD(name)                                                                                              \
	static enum far_status name##_backward(const struct call *c, struct far_err *err)                              \
	{                                                                                                              \
		return far_op_##name##_backward(c->grad[0], c->in[0], c->in[1], c->dx[0], c->dx[1], err);              \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *a, struct far_var *b)                   \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, name##_backward, NULL, saves, 0, false, even};     \
		return tape_one(tape, &op, &(struct params){0}, (struct far_var *[]){a, b}, 2);                        \
	}
#define SUM(name, sign)                                                                                                \
	TWO_FORWARD(name)                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *a, struct far_var *b)                   \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, NULL, share_sum, 0, 0, false};                     \
		return tape_one(tape, &op, &(struct params){.factor = sign}, (struct far_var *[]){a, b}, 2);           \
	}
SUM(add, 1)
SUM(sub, -1)
TWO(mul, 3, true)
TWO(div, 3, false)
TWO(min, 3, false)
TWO(max, 3, false)

/* ---- one operand ---- */

#define ONE(name, saves_in, saves_out, saved)                                                                          \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->out[0], err);                                                        \
	}                                                                                                              \
	static enum far_status name##_backward(const struct call *c, struct far_err *err)                              \
	{                                                                                                              \
		return far_op_##name##_backward(c->grad[0], saved, c->dx[0], err);                                     \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *x)                                      \
	{                                                                                                              \
		static const struct op op = {                                                                          \
			#name, name##_forward, name##_backward, NULL, saves_in, saves_out, false};                     \
		return tape_one(tape, &op, &(struct params){0}, &x, 1);                                                \
	}
ONE(relu, 0, 1, c->out[0])
ONE(sigmoid, 0, 1, c->out[0])
ONE(tanh, 0, 1, c->out[0])
ONE(exp, 0, 1, c->out[0])
ONE(log, 1, 0, c->in[0])
ONE(sqrt, 0, 1, c->out[0])

static enum far_status neg_forward(const struct call *c, struct far_err *err)
{
	return far_op_neg(c->in[0], c->out[0], err);
}

static enum far_status neg_backward(const struct call *c, struct far_err *err)
{
	return far_op_neg_backward(c->grad[0], c->dx[0], err);
}

struct far_var *far_tape_neg(struct far_tape *tape, struct far_var *x)
{
	static const struct op op = {"neg", neg_forward, neg_backward, NULL, 0, 0, false};
	return tape_one(tape, &op, &(struct params){0}, &x, 1);
}

static enum far_status scale_forward(const struct call *c, struct far_err *err)
{
	return far_op_scale(c->in[0], c->p->factor, c->out[0], err);
}

static enum far_status scale_backward(const struct call *c, struct far_err *err)
{
	return far_op_scale(c->grad[0], c->p->factor, c->dx[0], err);
}

struct far_var *far_tape_scale(struct far_tape *tape, struct far_var *x, double factor)
{
	static const struct op op = {"scale", scale_forward, scale_backward, NULL, 0, 0, false};
	return tape_one(tape, &op, &(struct params){.factor = factor}, &x, 1);
}

static enum far_status dropout_forward(const struct call *c, struct far_err *err)
{
	return far_op_dropout(c->in[0], c->p->factor, c->p->seed, c->p->stream, c->out[0], err);
}

static enum far_status dropout_backward(const struct call *c, struct far_err *err)
{
	return far_op_dropout(c->grad[0], c->p->factor, c->p->seed, c->p->stream, c->dx[0], err);
}

struct far_var *far_tape_dropout(struct far_tape *tape, struct far_var *x, double p, uint64_t seed, uint64_t stream)
{
	static const struct op op = {"dropout", dropout_forward, dropout_backward, NULL, 0, 0, false};
	return tape_one(tape, &op, &(struct params){.factor = p, .seed = seed, .stream = stream}, &x, 1);
}

/* ---- reductions ---- */

static struct far_var *reduce(struct far_tape *tape, const struct op *op, struct far_var *x, const int *axes, size_t n,
			      bool keep)
{
	struct params p = {.keep = keep};
	struct far_err err;
	if (n > FAR_DIMS_MAX || (n > 0 && !axes)) {
		fail(&err, FAR_INVALID, "%s: %zu axes%s; the limit is %d", op->name, n, axes ? "" : " at NULL",
		     FAR_DIMS_MAX);
		far_tape_fail(tape, &err);
		return NULL;
	}
	p.ndim = (unsigned)n;
	if (n > 0)
		memcpy(p.axes, axes, n * sizeof *axes);
	return tape_one(tape, op, &p, &x, 1);
}

#define REDUCE(name)                                                                                                   \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->p->axes, c->p->ndim, c->p->keep, c->out[0], err);                    \
	}                                                                                                              \
	static enum far_status name##_backward(const struct call *c, struct far_err *err)                              \
	{                                                                                                              \
		return far_op_##name##_backward(c->grad[0], c->in[0], c->p->axes, c->p->ndim, c->p->keep, c->dx[0],    \
						err);                                                                  \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *x, const int *axes, size_t n,           \
					bool keep)                                                                     \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, name##_backward, NULL, 0, 0, false};               \
		return reduce(tape, &op, x, axes, n, keep);                                                            \
	}
REDUCE(sum)
REDUCE(mean)

#define BEST(name)                                                                                                     \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->p->axis, c->p->keep, c->out[0], c->out[1], err);                     \
	}                                                                                                              \
	static enum far_status name##_backward(const struct call *c, struct far_err *err)                              \
	{                                                                                                              \
		return far_op_##name##_backward(c->grad[0], c->in[0], c->out[1], c->p->axis, c->p->keep, c->dx[0],     \
						err);                                                                  \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *x, int axis, bool keep,                 \
					struct far_var **index)                                                        \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, name##_backward, NULL, 0, 2, false};               \
		struct far_var *out;                                                                                   \
		tape_apply(tape, &op, &(struct params){.axis = axis, .keep = keep}, &x, 1,                             \
			   (struct far_var * *[]){&out, index}, 2);                                                    \
		return out;                                                                                            \
	}
BEST(min_axis)
BEST(max_axis)

#define SOFTMAX(name)                                                                                                  \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->p->axis, c->out[0], err);                                            \
	}                                                                                                              \
	static enum far_status name##_backward(const struct call *c, struct far_err *err)                              \
	{                                                                                                              \
		return far_op_##name##_backward(c->grad[0], c->out[0], c->p->axis, c->dx[0], err);                     \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *x, int axis)                            \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, name##_backward, NULL, 0, 1, false};               \
		return tape_one(tape, &op, &(struct params){.axis = axis}, &x, 1);                                     \
	}
SOFTMAX(softmax)
SOFTMAX(log_softmax)

/* ---- losses ---- */

static enum far_status cross_entropy_backward(const struct call *c, struct far_err *err)
{
	return far_op_cross_entropy_backward(c->grad[0], c->in[0], c->in[1], (enum far_op_reduction)c->p->mode,
					     c->dx[0], err);
}

static enum far_status bce_with_logits_backward(const struct call *c, struct far_err *err)
{
	return far_op_bce_with_logits_backward(c->grad[0], c->in[0], c->in[1], (enum far_op_reduction)c->p->mode,
					       c->dx[0], c->dx[1], err);
}

static enum far_status mse_backward(const struct call *c, struct far_err *err)
{
	return far_op_mse_backward(c->grad[0], c->in[0], c->in[1], (enum far_op_reduction)c->p->mode, c->dx[0],
				   c->dx[1], err);
}

#define LOSS(name)                                                                                                     \
	static enum far_status name##_forward(const struct call *c, struct far_err *err)                               \
	{                                                                                                              \
		return far_op_##name(c->in[0], c->in[1], (enum far_op_reduction)c->p->mode, c->out[0], err);           \
	}                                                                                                              \
	struct far_var *far_tape_##name(struct far_tape *tape, struct far_var *a, struct far_var *b,                   \
					enum far_op_reduction reduction)                                               \
	{                                                                                                              \
		static const struct op op = {#name, name##_forward, name##_backward, NULL, 3, 0, false};               \
		return tape_one(tape, &op, &(struct params){.mode = (int)reduction}, (struct far_var *[]){a, b}, 2);   \
	}
LOSS(cross_entropy)
LOSS(bce_with_logits)
LOSS(mse)
