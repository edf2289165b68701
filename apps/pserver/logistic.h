/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Logistic regression by minibatches: which weights a batch needs, and its gradient. The weights themselves live at the
 * parameter servers, one row of dimension 1 per feature. Any thread.
 */
#ifndef PSERVER_LOGISTIC_H
#define PSERVER_LOGISTIC_H

#include "dataset.h"

#define LOGISTIC_BIAS_KEY UINT64_MAX /* no feature has it, see ROWS_KEY_MAX */

struct logistic {
	const struct dataset *data;
	uint32_t round;  /* number of the batch; marks what belongs to it */
	uint32_t *mark;  /* [columns]: the last batch that had this column */
	uint32_t *place; /* [columns]: index in `keys` while mark == round */
	uint64_t *keys;  /* [n]: distinct keys of the batch, the bias first */
	size_t n;
};

/** 0 or -ENOMEM (nothing to free then). */
int logistic_init(struct logistic *l, const struct dataset *data);
void logistic_fini(struct logistic *l);

/** Collects the distinct keys of the batch rows[0, n) into l->keys[0, l->n). */
void logistic_batch(struct logistic *l, const uint32_t *rows, size_t n);
/** Weights w[0, l->n) of that batch → its mean gradient g[0, l->n). Returns the summed log loss. */
double logistic_gradient(const struct logistic *l, const uint32_t *rows, size_t n, const float *w, float *g);

/** Margins (log-odds) of all rows; w[0] is the bias, w[1 + c] the weight of column c. */
void logistic_margins(const struct dataset *data, const float *w, double *margins);

#endif
