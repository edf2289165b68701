/* SPDX-License-Identifier: BSD-3-Clause */
/** Matrix products, convolutions and cells of recurrent networks on a tape. One thread at a time. */
#include "tape.h"

static enum far_status matmul_forward(const struct call *c, struct far_err *err)
{
	return far_op_matmul(c->in[0], c->in[1], c->out[0], c->work, err);
}

static enum far_status matmul_backward(const struct call *c, struct far_err *err)
{
	return far_op_matmul_backward(c->grad[0], c->in[0], c->in[1], c->dx[0], c->dx[1], c->work, err);
}

struct far_var *far_tape_matmul(struct far_tape *tape, struct far_var *a, struct far_var *b)
{
	static const struct op op = {"matmul", matmul_forward, matmul_backward, NULL, 3, 0, false};
	return tape_one(tape, &op, &(struct params){0}, (struct far_var *[]){a, b}, 2);
}

static enum far_status linear_forward(const struct call *c, struct far_err *err)
{
	return far_op_linear(c->in[0], c->in[1], c->in[2], c->out[0], c->work, err);
}

static enum far_status linear_backward(const struct call *c, struct far_err *err)
{
	return far_op_linear_backward(c->grad[0], c->in[0], c->in[1], c->dx[0], c->dx[1], c->dx[2], c->work, err);
}

struct far_var *far_tape_linear(struct far_tape *tape, struct far_var *x, struct far_var *w, struct far_var *bias)
{
	static const struct op op = {"linear", linear_forward, linear_backward, NULL, 3, 0, false};
	return tape_one(tape, &op, &(struct params){0}, (struct far_var *[]){x, w, bias}, 3);
}

static enum far_status conv2d_forward(const struct call *c, struct far_err *err)
{
	return far_op_conv2d(c->in[0], c->in[1], c->in[2], &c->p->conv, c->out[0], c->work, err);
}

static enum far_status conv2d_backward(const struct call *c, struct far_err *err)
{
	return far_op_conv2d_backward(c->grad[0], c->in[0], c->in[1], &c->p->conv, c->dx[0], c->dx[1], c->dx[2],
				      c->work, err);
}

struct far_var *far_tape_conv2d(struct far_tape *tape, struct far_var *x, struct far_var *w, struct far_var *bias,
				const struct far_op_conv *conv)
{
	static const struct op op = {"conv2d", conv2d_forward, conv2d_backward, NULL, 3, 0, false};
	struct params p = {0};
	if (conv)
		p.conv = *conv;
	return tape_one(tape, &op, &p, (struct far_var *[]){x, w, bias}, 3);
}

/* ---- cells: inputs are x, h, (c,) w_input, w_hidden, bias_input, bias_hidden ---- */

static struct far_op_cell cell_of(const struct far_tensor *const *in)
{
	return (struct far_op_cell){in[0], in[1], in[2], in[3]};
}

static enum far_status lstm_forward(const struct call *c, struct far_err *err)
{
	struct far_op_cell cell = cell_of(c->in + 3);
	return far_op_lstm_cell(c->in[0], c->in[1], c->in[2], &cell, c->out[0], c->out[1], c->saved ? c->out[2] : NULL,
				c->work, err);
}

static enum far_status lstm_backward(const struct call *c, struct far_err *err)
{
	struct far_op_cell cell = cell_of(c->in + 3);
	struct far_op_cell_gradients gradients = {c->dx[0], c->dx[1], c->dx[2], c->dx[3], c->dx[4], c->dx[5], c->dx[6]};
	return far_op_lstm_cell_backward(c->grad[0], c->grad[1], c->in[0], c->in[1], c->in[2], &cell, c->out[1],
					 c->out[2], &gradients, c->work, err);
}

struct far_var *far_tape_lstm_cell(struct far_tape *tape, struct far_var *x, struct far_var *h, struct far_var *c,
				   const struct far_cell *cell, struct far_var **c_next)
{
	static const struct op op = {"lstm_cell", lstm_forward, lstm_backward, NULL, 0x7f, 6, false};
	struct far_var *inputs[] = {x, h, c, cell->w_input, cell->w_hidden, cell->bias_input, cell->bias_hidden};
	struct far_var *h_next;
	tape_apply(tape, &op, &(struct params){0}, inputs, 7, (struct far_var * *[]){&h_next, c_next, NULL}, 3);
	return h_next;
}

static enum far_status gru_forward(const struct call *c, struct far_err *err)
{
	struct far_op_cell cell = cell_of(c->in + 2);
	return far_op_gru_cell(c->in[0], c->in[1], &cell, c->out[0], c->saved ? c->out[1] : NULL, c->work, err);
}

static enum far_status gru_backward(const struct call *c, struct far_err *err)
{
	struct far_op_cell cell = cell_of(c->in + 2);
	struct far_op_cell_gradients gradients = {c->dx[0], c->dx[1], NULL, c->dx[2], c->dx[3], c->dx[4], c->dx[5]};
	return far_op_gru_cell_backward(c->grad[0], c->in[0], c->in[1], &cell, c->out[1], &gradients, c->work, err);
}

struct far_var *far_tape_gru_cell(struct far_tape *tape, struct far_var *x, struct far_var *h,
				  const struct far_cell *cell)
{
	static const struct op op = {"gru_cell", gru_forward, gru_backward, NULL, 0x3f, 2, false};
	struct far_var *inputs[] = {x, h, cell->w_input, cell->w_hidden, cell->bias_input, cell->bias_hidden};
	struct far_var *h_next;
	tape_apply(tape, &op, &(struct params){0}, inputs, 6, (struct far_var * *[]){&h_next, NULL}, 2);
	return h_next;
}
