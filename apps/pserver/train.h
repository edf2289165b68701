/* SPDX-License-Identifier: BSD-3-Clause */
/** A training job as its flags describe it, and its workers. Main thread. */
#ifndef PSERVER_TRAIN_H
#define PSERVER_TRAIN_H

#include "group.h"
#include "report.h"

enum train_mode { TRAIN_ASYNC, TRAIN_BSP };

enum train_optimizer { TRAIN_SGD, TRAIN_ADAGRAD, TRAIN_ADAM, TRAIN_FTRL };

enum train_model { MODEL_LOGISTIC, MODEL_FM, MODEL_MF, MODEL_WORD2VEC, MODEL_DEEPFM };
#define TRAIN_UNSET (-1)

/** Flags with their defaults: enough for a9a and for the generated data to come within 0.002 of the best AUC. */
struct train_options {
	int mode;
	int model; /* enum train_model */
	uint64_t servers;
	uint64_t shards; /* of each server */
	int optimizer;   /* enum train_optimizer; TRAIN_UNSET until the flags are checked */
	const char *epsilon_text;
	double epsilon;   /* Adagrad's */
	uint64_t workers; /* 0: not given */
	const char *data; /* NULL: generated */
	const char *test;
	int format; /* enum rows_format of both */
	uint64_t epochs;
	uint64_t batch; /* rows of one worker's batch */
	uint64_t rate;  /* batches of a worker that begin in a second; 0: each after the one before it */
	const char *lr_text;
	double lr; /* at the first batch; falls linearly to 0 at the last */
	uint64_t seed;
	uint64_t rows, test_rows, features; /* of generated data */
	uint64_t timeout_ns;
	bool json;
	const char *service;                      /* NULL: the job has servers of its own */
	const char *load, *save, *predict, *plot; /* NULL: not given */
	uint64_t dim;                             /* of a factor; 0: not given */
	uint64_t window, negative;                /* of word2vec; 0: not given */
	uint64_t hidden;                          /* units of DeepFM; 0: not given */
	const char *l2_text;
	double l2;         /* of factors */
	uint64_t patience; /* epochs, 0: all */
	int progress;      /* enum progress_where */
	struct group group;
};

/** "async" or "bsp". */
const char *train_mode_name(int mode);
/** "sgd", … */
const char *train_optimizer_name(int optimizer);
/** "logistic", … */
const char *train_model_name(int model);
/** The job as a JSON object, after `epochs`. */
void train_settings(const struct train_options *o, uint64_t epochs, char text[REPORT_SETTINGS_MAX]);
/** One worker: loads, joins, trains; the first one tests. Returns the exit status: 0, 128 + a signal, EXIT_PEER_LOST, 1
 * after another error. */
int train_worker(struct train_options *o);

#endif
