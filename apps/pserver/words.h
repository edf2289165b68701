/* SPDX-License-Identifier: BSD-3-Clause */
/** The distinct words of text files, in the order of their first occurrence. Any thread. */
#ifndef PSERVER_WORDS_H
#define PSERVER_WORDS_H

#include "dataset.h"

struct words {
	struct dataset seen; /* word i is its column i */
	char **text;         /* [n] */
	size_t n, cap;
};

/** Adds the words of a file that rows_read() has read. 0 or -errno; words_free() in any case. */
int words_read(struct words *w, const char *path);
void words_free(struct words *w);

#endif
