/* SPDX-License-Identifier: BSD-3-Clause */
/** Curves of a training: its loss and the figures of the tests over the steps, drawn as SVG by gnuplot. Main thread. */
#ifndef PSERVER_CURVES_H
#define PSERVER_CURVES_H

#include "report.h"
#include <stddef.h>

#define CURVES_POINTS 200 /* of the training loss, at most; each is the mean of as many steps */

struct curves_point {
	double step, loss; /* of ratings the RMSE */
	double auc;        /* of a test; NAN for ratings */
};

struct curves {
	double steps, steps_each; /* done; of a point */
	double sum, rows;         /* of the point that is not complete */
	struct curves_point train[CURVES_POINTS], *tests;
	size_t train_n, tests_n, tests_cap;
};

/** `steps`: that the training will have. */
void curves_init(struct curves *c, double steps);
void curves_fini(struct curves *c);
/** A step with the sum of the losses of its rows. */
void curves_step(struct curves *c, double loss, size_t rows);
/** A test after the steps so far. 0 or -ENOMEM. */
int curves_test(struct curves *c, const double figures[REPORT_FIGURES]);
/** Draws to `path`, which plot_check() has checked. 0 or -1. */
int curves_draw(const struct curves *c, const char *title, bool ratings, const char *path);

#endif
