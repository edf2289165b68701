/* SPDX-License-Identifier: BSD-3-Clause */
/** Applies gradients to rows: SGD and Adagrad. The shard that owns the rows. Shard thread. */
#include "ps_optimizer.h"
#include <math.h>

const char *const ps_optimizer_names[] = {"sgd", "adagrad", NULL};

/* Behind a row of Adagrad: the sums of squares, then the gradient that is being gathered, 0 in between. */
unsigned ps_rule_state(const struct ps_rule *r, unsigned dim)
{
	return r->optimizer == PS_ADAGRAD ? 2 * dim : 0;
}

void ps_rule_gather(const struct ps_rule *r, const struct ps_table *t, float *const *rows, const float *grads, size_t n,
		    float rate, float share)
{
	unsigned dim = t->dim;
	bool settled = r->optimizer == PS_SGD;
	float scale = settled ? -rate * share : share;
	for (size_t i = 0; i < n; i++) {
		float *into = settled ? rows[i] : rows[i] + 2 * dim;
		const float *g = grads + i * dim;
		for (unsigned d = 0; d < dim; d++)
			into[d] += scale * g[d];
	}
}

/* A row that comes again has nothing gathered any more, and 0 changes nothing. */
void ps_rule_settle(const struct ps_rule *r, const struct ps_table *t, float *const *rows, size_t n, float rate)
{
	unsigned dim = t->dim;
	if (r->optimizer == PS_SGD)
		return;
	for (size_t i = 0; i < n; i++) {
		float *row = rows[i], *squares = row + dim, *sum = squares + dim;
		for (unsigned d = 0; d < dim; d++) {
			float g = sum[d];
			squares[d] += g * g;
			row[d] -= rate * g / (sqrtf(squares[d]) + r->epsilon);
			sum[d] = 0.0f;
		}
	}
}

void ps_rule_apply(const struct ps_rule *r, const struct ps_table *t, float *const *rows, const float *grads, size_t n,
		   float rate, float share)
{
	ps_rule_gather(r, t, rows, grads, n, rate, share);
	ps_rule_settle(r, t, rows, n, rate);
}
