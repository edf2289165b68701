/* SPDX-License-Identifier: BSD-3-Clause */
/** A model of `farcall train --service`: its tables at the servers, a training step and its test. Main thread. */
#ifndef PSERVER_MODEL_H
#define PSERVER_MODEL_H

#include "load.h"
#include <farcall/ps.h>

struct model {
	const struct model_kind *kind;
	const struct train_options *o;
	const struct train_data *data;
	struct far_ps *ps;
	struct latency *pulls, *pushes; /* of batches */
	double share;                   /* of a worker's gradient in a step: 1, in mode bsp 1 / workers */
};

struct model_kind {
	const char *title; /* of the report */
	/* Opens the tables and takes memory for a batch. Without rows to train on the tables must exist. */
	enum far_status (*open)(struct model *m, struct far_err *err);
	/* Pulls what the rows rows[0, n) of data.train need, computes their gradients, and adds their losses to *loss.
	 */
	enum far_status (*gradients)(struct model *m, const uint32_t *rows, size_t n, double *loss,
				     struct far_err *err);
	/* Pushes these gradients. `rate` 0: that of the tables. */
	enum far_status (*push)(struct model *m, float rate, struct far_err *err);
	/* Of the first worker: sets the figures of the test. `predict`: the file that gets a line for each row, or
	 * NULL. */
	enum far_status (*test)(struct model *m, double figures[REPORT_FIGURES], const char *predict,
				struct far_err *err);
	void (*free)(struct model *m); /* after a failed open, too */
};

/** Logistic regression and the models with factors. NULL: no memory. */
struct model *model_rows_new(const struct train_options *o);

/** Vectors of words; `predict` gets a line "word v1 v2 ..." for each distinct word of the files. NULL: no memory. */
struct model *model_word2vec_new(void);

/** A table of the model, of the job's optimizer; `l2` as in struct far_ps_rule. */
enum far_status model_table(const struct model *m, const char *name, struct far_ps_schema schema, double l2,
			    struct far_ps_table **table, struct far_err *err);
/** Waits for a future of `begun`, the status of the call that made it, and frees it. Polls meanwhile: no other thread
 * has to wake this one. */
enum far_status model_wait(const struct model *m, enum far_status begun, struct far_future *future,
			   struct far_err *err);
/** Pulls rows for a step: a key without a row has its initial values. */
enum far_status model_pull(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   float *rows, struct far_err *err);
/** Pulls rows for a test: a key without a row has zeros. */
enum far_status model_read(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   float *rows, struct far_err *err);
enum far_status model_push(const struct model *m, struct far_ps_table *table, const uint64_t *keys, size_t n,
			   const float *grads, float rate, struct far_err *err);
/** Fills `err`. */
enum far_status model_no_memory(struct far_err *err);
/** A file cannot be written, for the reason in errno. */
enum far_status model_cannot_write(const char *path, struct far_err *err);
/** Writes n lines. */
enum far_status model_predictions(const char *path, const double *values, size_t n, struct far_err *err);

#endif
