/* SPDX-License-Identifier: BSD-3-Clause */
/** Margin and gradient of a factorisation machine. The training thread. */
#include "fm.h"
#include <string.h>

static size_t index_of(const struct fm *m, uint32_t column)
{
	return m->place ? m->place[column] : (size_t)column + 1;
}

double fm_margin(const struct fm *m, const struct dataset *d, size_t row, float *sum)
{
	double margin = m->w[0], squares = 0.0;
	if (m->dim)
		memset(sum, 0, m->dim * sizeof *sum);
	for (size_t e = d->start[row]; e < d->start[row + 1]; e++) {
		size_t i = index_of(m, d->column[e]);
		float x = d->value[e];
		margin += (double)m->w[i] * x;
		for (unsigned f = 0; f < m->dim; f++) {
			float vx = m->v[(i - 1) * m->dim + f] * x;
			sum[f] += vx;
			squares += (double)vx * vx;
		}
	}
	for (unsigned f = 0; f < m->dim; f++)
		margin += 0.5 * sum[f] * sum[f];
	return margin - 0.5 * squares;
}

void fm_gradient(const struct fm *m, const struct dataset *d, size_t row, const struct fm_slope *s, float *gw,
		 float *gv)
{
	gw[0] += s->margin;
	for (size_t e = d->start[row]; e < d->start[row + 1]; e++) {
		size_t i = index_of(m, d->column[e]);
		float x = d->value[e];
		gw[i] += s->margin * x;
		const float *v = m->v + (i - 1) * m->dim;
		float *g = gv + (i - 1) * m->dim;
		for (unsigned f = 0; f < m->dim; f++)
			g[f] += x * (s->margin * (s->sum[f] - v[f] * x) + (s->outer ? s->outer[f] : 0.0f));
	}
}
