/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads a line of Criteo's format. One thread at a time. */
#include "rows.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS    13
#define CATEGORIES 26
#define FIELDS     (1 + NUMBERS + CATEGORIES)
#define HEX_DIGITS 8 /* of a category, at most */

static int parse_field(struct rows_reader *r, unsigned field, const char *text)
{
	uint64_t key = (uint64_t)field << 32;
	double v;
	if (field == 0)
		return rows_label(text, &r->label)
			       ? 0
			       : rows_fault(r, -EINVAL, "label \"%.40s\" is not one of %s", text, ROWS_LABEL_TEXT);
	if (*text == '\0')
		return 0;
	if (field <= NUMBERS)
		return rows_number(text, &v)
			       ? rows_entry(r, key, log1p(v > 0 ? v : 0))
			       : rows_fault(r, -EINVAL, "\"%.40s\" in field %u is not a number", text, field + 1);
	size_t digits = strspn(text, "0123456789abcdefABCDEF");
	if (text[digits] != '\0' || digits > HEX_DIGITS)
		return rows_fault(r, -EINVAL, "\"%.40s\" in field %u is not a hexadecimal number of 32 bits", text,
				  field + 1);
	return rows_entry(r, key | strtoull(text, NULL, 16), 1);
}

int rows_criteo_line(struct rows_reader *r, char *line)
{
	if (*line == '\0')
		return 1;
	unsigned field = 0;
	int rc = 0;
	for (char *at = line; rc == 0 && at; field++) {
		char *text = strsep(&at, "\t");
		if (field >= FIELDS)
			return rows_fault(r, -EINVAL, "the line has more than %d fields", FIELDS);
		rc = parse_field(r, field, text);
	}
	if (rc == 0 && field != FIELDS)
		return rows_fault(r, -EINVAL, "the line has %u fields, not %d; fields have tabs between", field,
				  FIELDS);
	return rc;
}
