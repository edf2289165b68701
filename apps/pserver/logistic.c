/* SPDX-License-Identifier: BSD-3-Clause */
/** Logistic regression by minibatch: the features of a batch, its loss and gradient. The training thread. */
#include "logistic.h"
#include "metrics.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int logistic_init(struct logistic *l, const struct dataset *data)
{
	memset(l, 0, sizeof *l);
	l->data = data;
	l->mark = calloc(data->columns + 1, sizeof *l->mark);
	l->place = calloc(data->columns + 1, sizeof *l->place);
	l->keys = calloc(data->columns + 1, sizeof *l->keys);
	if (l->mark && l->place && l->keys)
		return 0;
	logistic_fini(l);
	return -ENOMEM;
}

void logistic_fini(struct logistic *l)
{
	free(l->mark);
	free(l->place);
	free(l->keys);
	memset(l, 0, sizeof *l);
}

void logistic_batch(struct logistic *l, const uint32_t *rows, size_t n)
{
	const struct dataset *d = l->data;
	if (++l->round == 0) { /* after 2^32 batches the old marks would lie */
		memset(l->mark, 0, d->columns * sizeof *l->mark);
		l->round = 1;
	}
	l->keys[0] = LOGISTIC_BIAS_KEY;
	l->n = 1;
	for (size_t i = 0; i < n; i++) {
		for (size_t e = d->start[rows[i]]; e < d->start[rows[i] + 1]; e++) {
			uint32_t c = d->column[e];
			if (l->mark[c] == l->round)
				continue;
			l->mark[c] = l->round;
			l->place[c] = (uint32_t)l->n;
			l->keys[l->n++] = d->key[c];
		}
	}
}

double logistic_gradient(const struct logistic *l, const uint32_t *rows, size_t n, const float *w, float *g)
{
	const struct dataset *d = l->data;
	double loss = 0.0;
	memset(g, 0, l->n * sizeof *g);
	for (size_t i = 0; i < n; i++) {
		size_t from = d->start[rows[i]], to = d->start[rows[i] + 1];
		double margin = w[0];
		for (size_t e = from; e < to; e++)
			margin += (double)w[l->place[d->column[e]]] * d->value[e];
		int label = d->label[rows[i]];
		loss += metrics_logloss(margin, label);
		float slope = (float)((metrics_sigmoid(margin) - label) / (double)n);
		g[0] += slope;
		for (size_t e = from; e < to; e++)
			g[l->place[d->column[e]]] += slope * d->value[e];
	}
	return loss;
}

void logistic_margins(const struct dataset *data, const float *w, double *margins)
{
	for (size_t r = 0; r < data->rows; r++) {
		double margin = w[0];
		for (size_t e = data->start[r]; e < data->start[r + 1]; e++)
			margin += (double)w[1 + data->column[e]] * data->value[e];
		margins[r] = margin;
	}
}
