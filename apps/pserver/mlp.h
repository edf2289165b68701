/* SPDX-License-Identifier: BSD-3-Clause */
/** A perceptron with one hidden layer of rectified units and one output. Any thread. */
#ifndef PSERVER_MLP_H
#define PSERVER_MLP_H

#include <stddef.h>

/* A unit is a row: weights of the inputs, bias, weight of its output. */
#define MLP_ROW(inputs) ((inputs) + 2)

struct mlp {
	size_t inputs, units;
	const float *rows; /* [units][MLP_ROW(inputs)] */
};

/** The output for x [inputs]; `active` [units] are the outputs of the units. */
double mlp_output(const struct mlp *m, const float *x, float *active);

/** Adds the gradient to `grads`, which is as `rows`, and sets that of the inputs, grad_x [inputs]. `slope` is d loss /
 * d output. */
void mlp_gradient(const struct mlp *m, const float *x, const float *active, float slope, float *grads, float *grad_x);

#endif
