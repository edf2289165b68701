/* SPDX-License-Identifier: BSD-3-Clause */
/** Generates rows of a planted logistic model as a function of seed and row number. One thread at a time. */
#include "planted.h"
#include "metrics.h"
#include "mix.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Weights of this deviation give a Bayes AUC of about 0.88 with PLANTED_ACTIVE features in a row. */
static const double weight_deviation = 0.6;
static const double planted_bias = -0.5;

uint64_t planted_next(uint64_t *state)
{
	uint64_t x = *state;
	*state += UINT64_C(0x9e3779b97f4a7c15);
	return ps_mix(x);
}

/* In [0, 1), 53 bits. */
static double uniform(uint64_t *state)
{
	return (double)(planted_next(state) >> 11) * 0x1p-53;
}

static double gaussian(uint64_t *state)
{
	double u = 1.0 - uniform(state), v = uniform(state);
	return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

int planted_init(struct planted *p, uint64_t seed, uint32_t features)
{
	memset(p, 0, sizeof *p);
	if (features == 0 || features > PLANTED_FEATURES_MAX)
		return -EINVAL;
	p->seed = seed;
	p->features = features;
	p->bias = planted_bias;
	p->weight = calloc((size_t)features + 1, sizeof *p->weight);
	if (p->weight == NULL)
		return -ENOMEM;
	uint64_t state = ps_mix(seed);
	for (uint32_t i = 1; i <= features; i++)
		p->weight[i] = (float)(weight_deviation * gaussian(&state));
	return 0;
}

void planted_fini(struct planted *p)
{
	free(p->weight);
	memset(p, 0, sizeof *p);
}

int planted_row(const struct planted *p, uint64_t row, struct dataset *d, double *margin)
{
	uint64_t state = ps_mix(p->seed ^ ps_mix(row));
	uint32_t keys[PLANTED_ACTIVE];
	unsigned n = 0;
	double sum = p->bias;
	for (unsigned i = 0; i < PLANTED_ACTIVE; i++) {
		uint32_t key = 1 + (uint32_t)(((planted_next(&state) >> 32) * p->features) >> 32);
		unsigned seen = 0;
		while (seen < n && keys[seen] != key)
			seen++;
		if (seen < n)
			continue;
		keys[n++] = key;
		sum += (double)p->weight[key];
	}
	int rc = dataset_row(d, uniform(&state) < metrics_sigmoid(sum));
	for (unsigned i = 0; rc == 0 && i < n; i++)
		rc = dataset_entry(d, keys[i], 1.0f);
	*margin = sum;
	return rc;
}

int planted_rows(const struct planted *p, uint64_t first, size_t n, size_t part, size_t parts, struct dataset *d,
		 double *margins)
{
	size_t at = 0;
	for (size_t i = part; i < n; i += parts) {
		double margin;
		int rc = planted_row(p, first + i, d, &margin);
		if (rc)
			return rc;
		if (margins)
			margins[at] = margin;
		at++;
	}
	return 0;
}
