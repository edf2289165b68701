/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads a line of ratings: user, item, rating. One thread at a time. */
#include "rows.h"
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SEPARATORS " \t,:;"

/* Users have even keys, items odd ones. */
static int parse_id(struct rows_reader *r, const char *what, const char *text, unsigned item)
{
	errno = 0;
	unsigned long long id = strtoull(text, NULL, 10);
	if (text[strspn(text, "0123456789")] != '\0' || errno || id > ROWS_ID_MAX)
		return rows_fault(r, -EINVAL, "%s \"%.40s\" is not an integer from 0 to %llu", what, text,
				  (unsigned long long)ROWS_ID_MAX);
	return rows_entry(r, id << 1 | item, 1);
}

int rows_ratings_line(struct rows_reader *r, char *line)
{
	char *rest = NULL, *field[3];
	double rating = 0.0;
	line[strcspn(line, "#")] = '\0';
	for (int i = 0; i < 3; i++) {
		field[i] = strtok_r(i ? NULL : line, SEPARATORS, &rest);
		if (field[i] == NULL && i == 0)
			return 1;
		if (field[i] == NULL)
			return rows_fault(r, -EINVAL, "the line has no user, item and rating");
	}
	if (!rows_number(field[2], &rating) || !isfinite((float)rating))
		return r->line == 1 ? 1 : rows_fault(r, -EINVAL, "rating \"%.40s\" is not a finite number", field[2]);
	r->target = (float)rating;
	int rc = parse_id(r, "user", field[0], 0);
	return rc ? rc : parse_id(r, "item", field[1], 1);
}
