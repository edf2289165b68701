/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads labelled rows from text files: libsvm, Criteo's tab-separated format, CSV, ratings, text. Any thread. */
#ifndef PSERVER_ROWS_H
#define PSERVER_ROWS_H

#include "dataset.h"
#include <stdbool.h>

#define ROWS_TEXT_MAX    384
#define ROWS_LINE_MAX    ((size_t)16 << 20) /* bytes of a line */
#define ROWS_KEY_MAX     (UINT64_MAX - 1)   /* of a feature */
#define ROWS_ID_MAX      (UINT64_MAX / 2 - 1)
#define ROWS_COLUMNS_MAX 65536u /* fields of a line of CSV */
#define ROWS_BLANKS      " \t\v\f\r\n"
#define ROWS_LABEL_TEXT  "+1, 1, -1 or 0"

enum rows_format {
	ROWS_AUTO, /* by the name of the file: .csv is CSV, .tsv is Criteo, all else libsvm */
	/* "label index:value index:value …". Indices are 64-bit numbers from 0 to ROWS_KEY_MAX in any order, each once;
	 * the index is the key. '#' begins a comment. */
	ROWS_LIBSVM,
	/* A label, 13 numbers and 26 hexadecimal numbers of 32 bits with tabs between; empty fields are missing. A
	 * number n of field c has the key c << 32 and the value log(1 + n), 0 below 0; a category has the key
	 * c << 32 | category and the value 1. */
	ROWS_CRITEO,
	/* Fields with commas between, quoted or not (RFC 4180, but no line feed in a field). If the first line has no
	 * label where the others do, it is a header; the label is in the column of that name, "label", else in the
	 * first one. Each line has as many fields. A number in field c has the key c; other text is a category: the key
	 * is a hash of field and text, the value 1. Empty fields are missing. */
	ROWS_CSV,
	/* "user item rating", with spaces, tabs, commas, colons or semicolons between; what follows (a time) is not
	 * used. '#' begins a comment, and a first line whose third field is no number is a header. Users and items are
	 * numbers from 0 to ROWS_ID_MAX, with the keys 2 * user and 2 * item + 1, values 1; the rating is the target of
	 * the row. */
	ROWS_RATINGS,
	/* Words with blanks between. The key is a hash of the word, see rows_word_key(), the value 1; a word may come
	 * again. */
	ROWS_TEXT
};

/**
 * Reads `path` and appends the rows r with r mod `parts` == `part` to `d` (initialised by the caller, freed by it too,
 * after a failure as well). All lines are checked, also those left out; `*rows_total` counts the rows. Lines without
 * anything are no rows. Labels are +1, 1, -1, 0 (-1 and 0 are the negative class), values finite decimal numbers. 0 or
 * -errno with a text that names file, line and fault.
 */
int rows_read(const char *path, enum rows_format format, size_t part, size_t parts, struct dataset *d,
	      size_t *rows_total, char text[ROWS_TEXT_MAX]);

/** Bytes of the byte order mark in UTF-8 with which some editors begin a file: of its first line. */
size_t rows_mark(const char *line);

/** Key of a word of a text. */
uint64_t rows_word_key(const char *word);

/* ---- For the formats ---- */

struct rows_entry {
	uint64_t key;
	float value;
};

struct rows_reader {
	const char *path;
	size_t line; /* from 1 */
	char *text;
	int label;    /* of the present row: 0 or 1 */
	float target; /* likewise, of ratings */
	struct rows_entry *entries;
	size_t n, room;
	/* CSV: after the first line */
	size_t columns, label_column;
};

/* Reads a line without its end into label and entries. 0; 1: it has no row; -errno with a text. */
typedef int rows_line_fn(struct rows_reader *r, char *line);
rows_line_fn rows_libsvm_line, rows_criteo_line, rows_csv_line, rows_ratings_line, rows_text_line;

/** Writes the text, with file and line; returns `rc`. */
__attribute__((format(printf, 3, 4))) int rows_fault(struct rows_reader *r, int rc, const char *format, ...);
/** A finite decimal number: no "nan", "inf" and hexadecimal ones. */
bool rows_number(const char *text, double *out);
/** True if `text` is a label, 0 or 1 in `*label`. */
bool rows_label(const char *text, int *label);
/** Appends an entry of the present row. 0, or -ENOMEM with a text. */
int rows_entry(struct rows_reader *r, uint64_t key, double value);
/** Sorts the entries by key. 0, or -EINVAL with a text: a key comes twice. */
int rows_sort(struct rows_reader *r);

#endif
