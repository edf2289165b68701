/* SPDX-License-Identifier: BSD-3-Clause */
/** The features of a batch of rows: the keys of the rows that it pulls and pushes. Any thread. */
#ifndef PSERVER_BATCH_H
#define PSERVER_BATCH_H

#include "dataset.h"

#define BATCH_BIAS_KEY UINT64_MAX /* no feature has it, see ROWS_KEY_MAX */

struct batch {
	const struct dataset *data;
	uint32_t round;  /* number of the batch; marks what belongs to it */
	uint32_t *mark;  /* [columns]: the last batch that had this column */
	uint32_t *place; /* [columns]: index in `keys` while mark == round */
	uint64_t *keys;  /* [n]: distinct keys of the batch, the bias first */
	size_t n;
};

/** 0 or -ENOMEM (nothing to free then). */
int batch_init(struct batch *b, const struct dataset *data);
void batch_fini(struct batch *b);

/** Collects the distinct keys of the batch rows[0, n) into b->keys[0, b->n). */
void batch_begin(struct batch *b, const uint32_t *rows, size_t n);

#endif
