/* SPDX-License-Identifier: BSD-3-Clause */
/** The features of a batch of rows. The training thread. */
#include "batch.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

int batch_init(struct batch *b, const struct dataset *data)
{
	memset(b, 0, sizeof *b);
	b->data = data;
	b->mark = calloc(data->columns + 1, sizeof *b->mark);
	b->place = calloc(data->columns + 1, sizeof *b->place);
	b->keys = calloc(data->columns + 1, sizeof *b->keys);
	if (b->mark && b->place && b->keys)
		return 0;
	batch_fini(b);
	return -ENOMEM;
}

void batch_fini(struct batch *b)
{
	free(b->mark);
	free(b->place);
	free(b->keys);
	memset(b, 0, sizeof *b);
}

void batch_begin(struct batch *b, const uint32_t *rows, size_t n)
{
	const struct dataset *d = b->data;
	if (++b->round == 0) { /* after 2^32 batches the old marks would lie */
		memset(b->mark, 0, d->columns * sizeof *b->mark);
		b->round = 1;
	}
	b->keys[0] = BATCH_BIAS_KEY;
	b->n = 1;
	for (size_t i = 0; i < n; i++) {
		for (size_t e = d->start[rows[i]]; e < d->start[rows[i] + 1]; e++) {
			uint32_t c = d->column[e];
			if (b->mark[c] == b->round)
				continue;
			b->mark[c] = b->round;
			b->place[c] = (uint32_t)b->n;
			b->keys[b->n++] = d->key[c];
		}
	}
}
