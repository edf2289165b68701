/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads a line of CSV. One thread at a time. */
#include "mix.h"
#include "rows.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CATEGORY_SEED UINT64_C(0x51ed270b9e3779b9)

/* Takes a field from *at, without its quotes, and moves *at behind it: NULL at the end of the line. NULL: a fault. */
static char *take_field(struct rows_reader *r, char **at)
{
	char *text = *at, *to = *at, *from = *at;
	if (*from != '"') {
		*at = strchr(from, ',');
		if (*at)
			*(*at)++ = '\0';
		return text;
	}
	for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
		from += *from == '"';
		*to++ = *from;
	}
	char next = *from ? from[1] : '"';
	if (next != ',' && next != '\0') {
		rows_fault(r, -EINVAL,
			   *from ? "text follows the end of a quoted field"
				 : "a quoted field does not end in its line");
		return NULL;
	}
	*to = '\0';
	*at = next ? from + 2 : NULL;
	return text;
}

/* The same text in the same field has the same key; keys of numbers are below ROWS_COLUMNS_MAX. */
static uint64_t category(size_t field, const char *text)
{
	uint64_t h = ps_mix(CATEGORY_SEED ^ field);
	for (; *text; text++)
		h = ps_mix(h ^ (unsigned char)*text);
	h |= ROWS_COLUMNS_MAX;
	return h > ROWS_KEY_MAX ? ROWS_KEY_MAX : h;
}

static int parse_field(struct rows_reader *r, size_t field, const char *text)
{
	double v;
	if (field == r->label_column)
		return rows_label(text, &r->label)
			       ? 0
			       : rows_fault(r, -EINVAL, "label \"%.40s\" is not one of %s", text, ROWS_LABEL_TEXT);
	if (*text == '\0')
		return 0;
	return rows_number(text, &v) ? rows_entry(r, field, v) : rows_entry(r, category(field, text), 1);
}

/* The first line: how many fields there are, and where the label is. 1: it is a header. */
static int first_line(struct rows_reader *r, char *line)
{
	int label, header = 0;
	size_t field = 0;
	for (char *at = line; at; field++) {
		const char *text = take_field(r, &at);
		if (text == NULL || field >= ROWS_COLUMNS_MAX)
			return text ? rows_fault(r, -EINVAL, "the line has more than %u fields", ROWS_COLUMNS_MAX)
				    : -EINVAL;
		if (field == 0)
			header = !rows_label(text, &label);
		if (header && strcmp(text, "label") == 0)
			r->label_column = field;
	}
	r->columns = field;
	return header;
}

static int next_line(struct rows_reader *r, char *line)
{
	size_t field = 0;
	int rc = 0;
	for (char *at = line; rc == 0 && at; field++) {
		const char *text = take_field(r, &at);
		if (text == NULL)
			return -EINVAL;
		rc = field < r->columns ? parse_field(r, field, text) : 0;
	}
	if (rc == 0 && field != r->columns)
		return rows_fault(r, -EINVAL, "the line has %zu fields, the first one has %zu", field, r->columns);
	return rc;
}

int rows_csv_line(struct rows_reader *r, char *line)
{
	if (*line == '\0')
		return 1;
	if (r->columns)
		return next_line(r, line);
	char *copy = strdup(line); /* fields are ended in place */
	if (copy == NULL)
		return rows_fault(r, -ENOMEM, "no room for the data: %s", strerror(ENOMEM));
	int rc = first_line(r, copy);
	free(copy);
	return rc ? rc : next_line(r, line);
}
