/* SPDX-License-Identifier: BSD-3-Clause */
/** A training job as its flags describe it, and the two halves that run it. */
#ifndef PSERVER_TRAIN_H
#define PSERVER_TRAIN_H

#include "group.h"

enum train_mode { TRAIN_ASYNC, TRAIN_BSP };

/** Flags with their defaults: enough for a9a and for the generated data to come within 0.002 of the best AUC. */
struct train_options {
	int mode;
	uint64_t servers;
	uint64_t shards; /* of each server */
	int optimizer;   /* enum ps_optimizer */
	const char *epsilon_text;
	double epsilon;   /* Adagrad's */
	uint64_t workers; /* 0: not given */
	const char *data; /* NULL: generated */
	const char *test;
	int format; /* enum rows_format of both */
	uint64_t epochs;
	uint64_t batch; /* rows of one worker's batch */
	const char *lr_text;
	double lr; /* at the first batch; falls linearly to 0 at the last */
	uint64_t seed;
	uint64_t rows, test_rows, features; /* of generated data */
	uint64_t timeout_ns;
	bool json;
	struct group group;
};

#define TRAIN_TABLE 0

/** "async" or "bsp". */
const char *train_mode_name(int mode);
/** One worker: loads, joins, trains; worker 0 tests. Returns the exit status as serve() does. */
int train_worker(struct train_options *o);

#endif
