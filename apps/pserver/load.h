/* SPDX-License-Identifier: BSD-3-Clause */
/** The data of a worker of a training job, and what its model is worth on them. Main thread. */
#ifndef PSERVER_LOAD_H
#define PSERVER_LOAD_H

#include "dataset.h"
#include "report.h"
#include "train.h"

struct train_data {
	size_t index; /* of this worker */
	size_t rows_total;
	struct dataset train, test; /* its part; the test's rows of worker 0 */
	double *bayes;              /* true log-odds of the test rows, or NULL */
};

/** Reads or generates the data. Returns an exit status, after a message; train_unload() in any case. */
int train_load(struct train_data *d, const struct train_options *o);
void train_unload(struct train_data *d);

/** Sets the figures of the test. */
void train_figures(const struct train_data *d, const double *margins, double figures[REPORT_FIGURES]);
void train_shuffle(uint32_t *order, size_t n, uint64_t *state);
/** Prints "program: worker1: text"; returns 1. */
int train_complain(const struct train_options *o, const char *text);

#endif
