/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads a line of the libsvm format. One thread at a time. */
#include "rows.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int parse_entry(struct rows_reader *r, char *token)
{
	char *colon = strchr(token, ':');
	if (colon == NULL)
		return rows_fault(r, -EINVAL, "\"%.40s\" is not index:value", token);
	*colon = '\0';
	errno = 0;
	unsigned long long index = strtoull(token, NULL, 10);
	if (*token == '\0' || token[strspn(token, "0123456789")] != '\0' || errno || index > ROWS_KEY_MAX)
		return rows_fault(r, -EINVAL, "index \"%.40s\" is not an integer from 0 to %llu", token,
				  (unsigned long long)ROWS_KEY_MAX);
	double v;
	if (!rows_number(colon + 1, &v))
		return rows_fault(r, -EINVAL, "value \"%.40s\" of index %llu is not a finite number", colon + 1, index);
	return rows_entry(r, index, v);
}

int rows_libsvm_line(struct rows_reader *r, char *line)
{
	char *rest = NULL;
	line[strcspn(line, "#")] = '\0';
	char *token = strtok_r(line, " \t", &rest);
	if (token == NULL)
		return 1;
	if (strchr(token, ':'))
		return rows_fault(r, -EINVAL, "the line begins with \"%.40s\", not with a label (%s)", token,
				  ROWS_LABEL_TEXT);
	if (!rows_label(token, &r->label))
		return rows_fault(r, -EINVAL, "label \"%.40s\" is not one of %s", token, ROWS_LABEL_TEXT);
	int rc = 0;
	while (rc == 0 && (token = strtok_r(NULL, " \t", &rest)) != NULL)
		rc = parse_entry(r, token);
	return rc ? rc : rows_sort(r);
}
