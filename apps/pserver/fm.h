/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Factorisation machine (Rendle 2010): the margin of a row is w0 + sum of w_c x_c + sum over pairs of <v_c, v_d> x_c
 * x_d. The sum over pairs is half of the difference of the squared sum and the sum of squares, so a row costs one pass.
 * Any thread.
 */
#ifndef PSERVER_FM_H
#define PSERVER_FM_H

#include "dataset.h"

/** Weights of a batch or of all columns. */
struct fm {
	const uint32_t *place; /* [columns]: index of a column in `w`; NULL: column c has 1 + c */
	unsigned dim;          /* elements of a factor; 0: a linear model */
	const float *w;        /* w[0] is w0 */
	const float *v;        /* [n - 1][dim]: the factor of index i is v[i - 1] */
};

/** The margin of a row; `sum` [dim] is the sum of v_c x_c. */
double fm_margin(const struct fm *m, const struct dataset *d, size_t row, float *sum);

/** The derivative of the loss at a row. */
struct fm_slope {
	const float *sum;   /* [dim], of fm_margin() */
	float margin;       /* d loss / d margin */
	const float *outer; /* [dim]: what a layer above adds to d loss / d sum; NULL: none */
};
/** Adds the gradient of a row to gw and gv, which are as w and v. */
void fm_gradient(const struct fm *m, const struct dataset *d, size_t row, const struct fm_slope *s, float *gw,
		 float *gv);

#endif
