/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Data from a planted logistic model: the best possible result is known, so a training run can be judged by itself.
 * A row depends on (seed, row number) alone, so each worker makes just its own and any run can be repeated. Any thread.
 */
#ifndef PSERVER_PLANTED_H
#define PSERVER_PLANTED_H

#include "dataset.h"

#define PLANTED_FEATURES_MAX (1u << 24)
#define PLANTED_ACTIVE       16 /* features of a row, drawn with replacement: a few less are distinct */

struct planted {
	uint64_t seed;
	uint32_t features; /* in [1, PLANTED_FEATURES_MAX]; keys are 1 … features */
	double bias;
	float *weight; /* [features + 1], by key */
};

/** 0, -EINVAL (features) or -ENOMEM. */
int planted_init(struct planted *p, uint64_t seed, uint32_t features);
void planted_fini(struct planted *p);

/** Appends row number `row` to `d` and gives its true log-odds. 0 or -ENOMEM. */
int planted_row(const struct planted *p, uint64_t row, struct dataset *d, double *margin);

/**
 * Appends the rows first + part, first + part + parts, … below first + n. `margins` (may be NULL) takes their true
 * log-odds, from which the Bayes figures follow.
 */
int planted_rows(const struct planted *p, uint64_t first, size_t n, size_t part, size_t parts, struct dataset *d,
		 double *margins);

/** Splitmix64: the next of a stream. */
uint64_t planted_next(uint64_t *state);

#endif
