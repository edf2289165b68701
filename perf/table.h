/* SPDX-License-Identifier: BSD-3-Clause */
/** The objects of measurements as one table, for --csv and --plot. Main thread. */
#ifndef PERF_TABLE_H
#define PERF_TABLE_H

#include <stdio.h>

#define TABLE_COLUMNS_MAX 96
#define TABLE_ROWS_MAX    1024

struct table {
	char *name[TABLE_COLUMNS_MAX];
	unsigned columns;
	char *cell[TABLE_ROWS_MAX][TABLE_COLUMNS_MAX]; /* NULL: empty */
	unsigned rows;
};

/** Adds an object of json.h: a row for each object in its arrays, with the object's own values in front, or else one
 * row. Members of inner objects have their names, as in "a.b". 0, or -EINVAL. */
int table_add(struct table *t, const char *json);
/** A cell as text; "" when it is empty or there is no such column. */
const char *table_get(const struct table *t, unsigned row, const char *column);
/** RFC 4180, with a first row of names. */
void table_csv(const struct table *t, FILE *f);
void table_free(struct table *t);

#endif
