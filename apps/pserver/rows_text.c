/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads a line of words. One thread at a time. */
#include "mix.h"
#include "rows.h"
#include <stdlib.h>
#include <string.h>

#define WORD_SEED UINT64_C(0x2b7e151628aed2a6)

uint64_t rows_word_key(const char *word)
{
	uint64_t h = ps_mix(WORD_SEED);
	for (; *word; word++)
		h = ps_mix(h ^ (unsigned char)*word);
	return h > ROWS_KEY_MAX ? ROWS_KEY_MAX : h;
}

int rows_text_line(struct rows_reader *r, char *line)
{
	char *rest = NULL;
	int rc = 0;
	for (char *word = strtok_r(line, ROWS_BLANKS, &rest); rc == 0 && word;
	     word = strtok_r(NULL, ROWS_BLANKS, &rest))
		rc = rows_entry(r, rows_word_key(word), 1);
	return rc || r->n ? rc : 1;
}
