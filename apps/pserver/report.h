/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The result of a training: each worker sends its figures to the member that prints them as one table or one JSON
 * object, and to each server of the job. Main thread.
 */
#ifndef PSERVER_REPORT_H
#define PSERVER_REPORT_H

#include "metrics.h"
#include <farcall/farcall.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>

#define REPORT_TITLE_MAX    64
#define REPORT_MODE_MAX     16
#define REPORT_SETTINGS_MAX 2048

/** Figures of one worker, an f64 tensor on the way. Those of the test are NAN but at the worker that tests. */
enum report_figure {
	REPORT_TRAIN_LOSS, /* mean loss over the last epoch, before each update: log loss; of ratings squared error */
	REPORT_SAMPLES,    /* rows trained on, all epochs */
	REPORT_SECONDS,    /* of training: loading and testing not counted */
	REPORT_TEST_ROWS,
	REPORT_TEST_AUC,
	REPORT_TEST_LOGLOSS,
	REPORT_TEST_ACCURACY,
	REPORT_TEST_RMSE, /* of ratings; NAN for labels, whose three are NAN for ratings */
	REPORT_BAYES_AUC, /* best possible on this test set; NAN for data from a file */
	REPORT_BAYES_LOGLOSS,
	REPORT_BEST_EPOCH, /* the one that the figures of the test are of; NAN: the last */
	REPORT_FIGURES
};

/** What a member has collected. Written by the thread that runs handlers. */
struct report {
	atomic_uint workers; /* that have reported; written last, partner: report_workers() */
	double figures[REPORT_FIGURES];
	struct latency pulls, pushes;
	struct latency batches; /* of an open loop; none of a closed one */
	char title[REPORT_TITLE_MAX], mode[REPORT_MODE_MAX];
	char settings[REPORT_SETTINGS_MAX]; /* a JSON object */
};

/** The function to register at those that report, and at those that collect: into `r`. */
struct far_function report_function(struct report *r);

/** What one worker sends. */
struct report_part {
	const char *title, *mode, *settings;
	const double *figures; /* [REPORT_FIGURES] */
	const struct latency *pulls, *pushes, *batches;
};
/** Sends a worker's part to a rank that collects. */
enum far_status report_send(struct far_agent *agent, int rank, uint64_t timeout_ns, const struct report_part *part,
			    struct far_err *err);
/** Workers that have reported; what they have sent can be read once it is the number of the job's. */
unsigned report_workers(const struct report *r);

/** Prints what was collected. 0, or -EIO when it could not be written. */
int report_print(const struct report *r, FILE *f, bool json);

#endif
