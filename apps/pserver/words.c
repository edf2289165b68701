/* SPDX-License-Identifier: BSD-3-Clause */
/** Collects the distinct words of text files. One thread at a time. */
#include "words.h"
#include "rows.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int add(struct words *w, const char *word)
{
	int rc = w->seen.rows ? 0 : dataset_row(&w->seen, 0);
	if (rc == 0)
		rc = dataset_entry(&w->seen, rows_word_key(word), 1);
	if (rc || w->seen.columns == w->n)
		return rc;
	if (w->n == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 1024;
		char **bigger = reallocarray(w->text, cap, sizeof *bigger);
		if (bigger == NULL)
			return -ENOMEM;
		w->text = bigger;
		w->cap = cap;
	}
	w->text[w->n] = strdup(word);
	return w->text[w->n++] ? 0 : -ENOMEM;
}

int words_read(struct words *w, const char *path)
{
	FILE *f = fopen(path, "re");
	char *line = NULL;
	size_t cap = 0, lines = 0;
	int rc = f ? 0 : -errno;
	while (rc == 0 && getline(&line, &cap, f) >= 0) {
		char *rest = NULL, *from = line + (lines++ ? 0 : rows_mark(line));
		for (char *word = strtok_r(from, ROWS_BLANKS, &rest); rc == 0 && word;
		     word = strtok_r(NULL, ROWS_BLANKS, &rest))
			rc = add(w, word);
	}
	if (rc == 0 && ferror(f))
		rc = -EIO;
	free(line);
	if (f)
		fclose(f);
	return rc;
}

void words_free(struct words *w)
{
	dataset_free(&w->seen);
	for (size_t i = 0; i < w->n; i++)
		free(w->text[i]);
	free(w->text);
}
