/* SPDX-License-Identifier: BSD-3-Clause */
/** Derivatives of element-wise operators, reductions and losses against central differences, in f64, over random and
 * odd shapes. The test's thread. */
#include "problem.h"

TestSuite(backward, .init = problems_begin, .fini = tensors_free);

/* ---- element-wise ---- */

static const struct {
	unsigned na, nb;
	uint64_t a[4], b[4];
} pairs[] = {
	{2, 2, {3, 4}, {3, 4}},  {2, 1, {3, 4}, {4}},        {3, 2, {2, 1, 3}, {4, 1}}, {0, 1, {0}, {5}},
	{0, 0, {0}, {0}},        {2, 1, {0, 3}, {3}},        {2, 2, {0, 3}, {1, 1}},    {1, 1, {300}, {1}},
	{2, 1, {5, 300}, {300}}, {2, 2, {300, 5}, {300, 1}}, {2, 2, {1, 300}, {5, 1}},  {4, 3, {2, 3, 1, 2}, {3, 4, 1}},
};

#define BINARY(name)                                                                                                   \
	static void name##_forward(struct problem *p)                                                                  \
	{                                                                                                              \
		OK(far_op_##name(&p->in[0], &p->in[1], &p->out[0], &err));                                             \
	}                                                                                                              \
	static void name##_derive(struct problem *p)                                                                   \
	{                                                                                                              \
		OK(far_op_##name##_backward(&p->grad[0], &p->in[0], &p->in[1], &p->din[0], &p->din[1], &err));         \
	}
BINARY(add)
BINARY(sub)
BINARY(mul)
BINARY(div)
BINARY(min)
BINARY(max)

Test(backward, two_operands)
{
	static const struct {
		const char *name;
		void (*forward)(struct problem *p), (*backward)(struct problem *p);
	} operators[] = {{"add", add_forward, add_derive}, {"sub", sub_forward, sub_derive},
			 {"mul", mul_forward, mul_derive}, {"div", div_forward, div_derive},
			 {"min", min_forward, min_derive}, {"max", max_forward, max_derive}};
	for (size_t o = 0; o < sizeof operators / sizeof operators[0]; o++)
		for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
			struct problem p = {.name = operators[o].name, .n = 2, .outs = 1};
			p.forward = operators[o].forward;
			p.backward = operators[o].backward;
			p.in[0] = random_tensor(FAR_F64, pairs[k].na, pairs[k].a, -2, 2);
			p.in[1] = random_tensor(FAR_F64, pairs[k].nb, pairs[k].b, 0.5, 2);
			check(&p);
		}
}

Test(backward, equal_elements_share_the_gradient)
{
	struct far_tensor x = T(FAR_F64, 2), g = T(FAR_F64, 2), da = T(FAR_F64, 2), db = T(FAR_F64, 2);
	fill(&x, 1, 2);
	fill(&g, 1, 2);
	OK(far_op_max_backward(&g, &x, &x, &da, &db, &err));
	cr_assert_eq(get(&da, 1), get(&g, 1) / 2);
	cr_assert_eq(get(&db, 1), get(&g, 1) / 2);
	OK(far_op_min_backward(&g, &x, &x, &da, &db, &err));
	cr_assert_eq(get(&da, 0), get(&g, 0) / 2);
	cr_assert_eq(get(&db, 0), get(&g, 0) / 2);
}

#define UNARY(name, with)                                                                                              \
	static void name##_forward(struct problem *p)                                                                  \
	{                                                                                                              \
		OK(far_op_##name(&p->in[0], &p->out[0], &err));                                                        \
	}                                                                                                              \
	static void name##_derive(struct problem *p)                                                                   \
	{                                                                                                              \
		OK(far_op_##name##_backward(&p->grad[0], with, &p->din[0], &err));                                     \
	}
UNARY(relu, &p->out[0])
UNARY(sigmoid, &p->out[0])
UNARY(tanh, &p->out[0])
UNARY(exp, &p->out[0])
UNARY(log, &p->in[0])
UNARY(sqrt, &p->out[0])

static void neg_forward(struct problem *p)
{
	OK(far_op_neg(&p->in[0], &p->out[0], &err));
}

static void neg_derive(struct problem *p)
{
	OK(far_op_neg_backward(&p->grad[0], &p->din[0], &err));
}

static void scale_forward(struct problem *p)
{
	OK(far_op_scale(&p->in[0], p->factor, &p->out[0], &err));
}

static void scale_derive(struct problem *p)
{
	OK(far_op_scale(&p->grad[0], p->factor, &p->din[0], &err));
}

static void dropout_forward(struct problem *p)
{
	OK(far_op_dropout(&p->in[0], p->factor, 7, 9, &p->out[0], &err));
}

static void dropout_derive(struct problem *p)
{
	OK(far_op_dropout(&p->grad[0], p->factor, 7, 9, &p->din[0], &err));
}

Test(backward, one_operand)
{
	static const struct {
		const char *name;
		double low, high, factor;
		void (*forward)(struct problem *p), (*backward)(struct problem *p);
	} operators[] = {{"neg", -2, 2, 0, neg_forward, neg_derive},
			 {"relu", -2, 2, 0, relu_forward, relu_derive},
			 {"sigmoid", -3, 3, 0, sigmoid_forward, sigmoid_derive},
			 {"tanh", -2, 2, 0, tanh_forward, tanh_derive},
			 {"exp", -2, 2, 0, exp_forward, exp_derive},
			 {"log", 0.5, 3, 0, log_forward, log_derive},
			 {"sqrt", 0.5, 3, 0, sqrt_forward, sqrt_derive},
			 {"scale", -2, 2, 0.7, scale_forward, scale_derive},
			 {"dropout", -2, 2, 0.4, dropout_forward, dropout_derive}};
	for (size_t o = 0; o < sizeof operators / sizeof operators[0]; o++)
		for (size_t k = 0; k < SHAPES; k++) {
			struct problem p = {
				.name = operators[o].name, .n = 1, .outs = 1, .factor = operators[o].factor};
			p.forward = operators[o].forward;
			p.backward = operators[o].backward;
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, operators[o].low,
						operators[o].high);
			check(&p);
		}
}

/* ---- reductions ---- */

#define OVER_AXES(name)                                                                                                \
	static void name##_forward(struct problem *p)                                                                  \
	{                                                                                                              \
		OK(far_op_##name(&p->in[0], p->axes, p->axes_n, p->keep, &p->out[0], &err));                           \
	}                                                                                                              \
	static void name##_derive(struct problem *p)                                                                   \
	{                                                                                                              \
		OK(far_op_##name##_backward(&p->grad[0], &p->in[0], p->axes, p->axes_n, p->keep, &p->din[0], &err));   \
	}
OVER_AXES(sum)
OVER_AXES(mean)

static void min_axis_forward(struct problem *p)
{
	OK(far_op_min_axis(&p->in[0], p->axis, p->keep, &p->out[0], &p->out[1], &err));
}

static void min_axis_derive(struct problem *p)
{
	OK(far_op_min_axis_backward(&p->grad[0], &p->in[0], &p->out[1], p->axis, p->keep, &p->din[0], &err));
}

static void max_axis_forward(struct problem *p)
{
	OK(far_op_max_axis(&p->in[0], p->axis, p->keep, &p->out[0], &p->out[1], &err));
}

static void max_axis_derive(struct problem *p)
{
	OK(far_op_max_axis_backward(&p->grad[0], &p->in[0], &p->out[1], p->axis, p->keep, &p->din[0], &err));
}

static void softmax_forward(struct problem *p)
{
	OK(far_op_softmax(&p->in[0], p->axis, &p->out[0], &err));
}

static void softmax_derive(struct problem *p)
{
	OK(far_op_softmax_backward(&p->grad[0], &p->out[0], p->axis, &p->din[0], &err));
}

static void log_softmax_forward(struct problem *p)
{
	OK(far_op_log_softmax(&p->in[0], p->axis, &p->out[0], &err));
}

static void log_softmax_derive(struct problem *p)
{
	OK(far_op_log_softmax_backward(&p->grad[0], &p->out[0], p->axis, &p->din[0], &err));
}

Test(backward, sums_and_means)
{
	for (size_t k = 0; k < SHAPES; k++)
		for (unsigned dims = 0; dims < 1u << shapes[k].n; dims++)
			for (int keep = 0; keep < 2; keep++) {
				struct problem p = {.name = "sum", .n = 1, .outs = 1, .keep = keep};
				for (unsigned d = shapes[k].n; d-- > 0;)
					if (dims & 1u << d)
						p.axes[p.axes_n++] = (int)d;
				p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -1, 1);
				p.forward = sum_forward;
				p.backward = sum_derive;
				check(&p);
				p.name = "mean";
				p.forward = mean_forward;
				p.backward = mean_derive;
				if (ops_count(&p.in[0]) > 0) /* else NaN */
					check(&p);
			}
}

Test(backward, along_an_axis)
{
	static const struct {
		const char *name;
		unsigned outs;
		void (*forward)(struct problem *p), (*backward)(struct problem *p);
	} operators[] = {{"min_axis", 2, min_axis_forward, min_axis_derive},
			 {"max_axis", 2, max_axis_forward, max_axis_derive},
			 {"softmax", 1, softmax_forward, softmax_derive},
			 {"log_softmax", 1, log_softmax_forward, log_softmax_derive}};
	for (size_t o = 0; o < sizeof operators / sizeof operators[0]; o++)
		for (size_t k = 0; k < SHAPES; k++)
			for (int axis = 0; axis < (int)shapes[k].n; axis++) {
				struct problem p = {
					.name = operators[o].name, .n = 1, .outs = operators[o].outs, .axis = axis};
				p.keep = random_bits() % 2;
				p.no_grad[1] = true;
				p.forward = operators[o].forward;
				p.backward = operators[o].backward;
				if (p.outs == 2 && shapes[k].shape[axis] == 0)
					continue; /* an error */
				p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -2, 2);
				check(&p);
			}
}

/* ---- losses ---- */

static void cross_entropy_forward(struct problem *p)
{
	OK(far_op_cross_entropy(&p->in[0], &p->extra, p->reduction, &p->out[0], &err));
}

static void cross_entropy_derive(struct problem *p)
{
	OK(far_op_cross_entropy_backward(&p->grad[0], &p->in[0], &p->extra, p->reduction, &p->din[0], &err));
}

static void bce_forward(struct problem *p)
{
	OK(far_op_bce_with_logits(&p->in[0], &p->in[1], p->reduction, &p->out[0], &err));
}

static void bce_derive(struct problem *p)
{
	OK(far_op_bce_with_logits_backward(&p->grad[0], &p->in[0], &p->in[1], p->reduction, &p->din[0], &p->din[1],
					   &err));
}

static void mse_forward(struct problem *p)
{
	OK(far_op_mse(&p->in[0], &p->in[1], p->reduction, &p->out[0], &err));
}

static void mse_derive(struct problem *p)
{
	OK(far_op_mse_backward(&p->grad[0], &p->in[0], &p->in[1], p->reduction, &p->din[0], &p->din[1], &err));
}

Test(backward, losses)
{
	for (int reduction = 0; reduction < 3; reduction++) {
		for (size_t k = 0; k < SHAPES; k++) {
			struct problem p = {
				.name = "bce", .n = 2, .outs = 1, .reduction = (enum far_op_reduction)reduction};
			p.in[0] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, -3, 3);
			p.in[1] = random_tensor(FAR_F64, shapes[k].n, shapes[k].shape, 0, 1);
			if (ops_count(&p.in[0]) == 0 && reduction == FAR_OP_REDUCE_MEAN)
				continue; /* NaN */
			p.forward = bce_forward;
			p.backward = bce_derive;
			check(&p);
			p.name = "mse";
			p.forward = mse_forward;
			p.backward = mse_derive;
			check(&p);
		}
		for (uint64_t classes = 1; classes < 600; classes = classes * 4 + 1) {
			struct problem p = {.name = "cross_entropy", .n = 1, .outs = 1};
			uint64_t shape[2] = {1 + classes % 4, classes};
			p.reduction = (enum far_op_reduction)reduction;
			p.in[0] = random_tensor(FAR_F64, 2, shape, -3, 3);
			p.extra = random_tensor(classes % 2 ? FAR_I64 : FAR_I32, 1, shape, 0, (double)classes);
			p.forward = cross_entropy_forward;
			p.backward = cross_entropy_derive;
			check(&p);
		}
	}
}
