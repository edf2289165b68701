/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a push does to rows. SGD: row −= rate × gradient. Adagrad, for each coordinate: a += g², row −= rate × g /
 * (√a + epsilon), a starting at 0; g is the sum of the gradients that one push (of a bulk-synchronous step: the mean of
 * the workers') has for the row. Shard thread.
 */
#ifndef PSERVER_PS_OPTIMIZER_H
#define PSERVER_PS_OPTIMIZER_H

#include "ps_table.h"
#include <stdbool.h>
#include <stddef.h>

enum ps_optimizer { PS_SGD, PS_ADAGRAD, PS_OPTIMIZERS };

#define PS_EPSILON 1e-10f /* keeps Adagrad from dividing by 0 */

struct ps_rule {
	enum ps_optimizer optimizer;
	float epsilon; /* Adagrad: above 0 */
};

/** "sgd" or "adagrad"; NULL ends the list. */
extern const char *const ps_optimizer_names[];

/** Floats that the rule keeps behind each row, zero at first. */
unsigned ps_rule_state(const struct ps_rule *r, unsigned dim);

/** Applies the gradients of n rows, scaled by `share`; a row that appears twice gets both. */
void ps_rule_apply(const struct ps_rule *r, const struct ps_table *t, float *const *rows, const float *grads, size_t n,
		   float rate, float share);

/** The same in two halves, for gradients that come in several parts: Adagrad gathers them all, then settles every
 * part's rows; for SGD the first half does everything. */
void ps_rule_gather(const struct ps_rule *r, const struct ps_table *t, float *const *rows, const float *grads, size_t n,
		    float rate, float share);
void ps_rule_settle(const struct ps_rule *r, const struct ps_table *t, float *const *rows, size_t n, float rate);

#endif
