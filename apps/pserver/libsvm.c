/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the libsvm text format strictly; an error names file, line and token. One thread at a time. */
#include "libsvm.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const char *path;
	size_t line; /* from 1 */
	char *text;
};

__attribute__((format(printf, 3, 4))) static int fault(struct reader *r, int rc, const char *format, ...)
{
	char what[LIBSVM_TEXT_MAX / 2];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(r->text, LIBSVM_TEXT_MAX, "%.160s:%zu: %s", r->path, r->line, what);
	return rc;
}

/* Only decimal numbers: strtod() would also take "nan", "inf" and hexadecimal. */
static int number(const char *token, double *out)
{
	if (token[strspn(token, "0123456789+-.eE")] != '\0')
		return -EINVAL;
	char *end;
	*out = strtod(token, &end);
	return end == token || *end != '\0' || !isfinite(*out) ? -EINVAL : 0;
}

static int parse_label(struct reader *r, const char *token, int *label)
{
	double v;
	if (strchr(token, ':'))
		return fault(r, -EINVAL, "the line begins with \"%.40s\", not with a label (%s)", token,
			     LIBSVM_LABEL_TEXT);
	if (number(token, &v) || (v != 1.0 && v != 0.0 && v != -1.0))
		return fault(r, -EINVAL, "label \"%.40s\" is not one of %s", token, LIBSVM_LABEL_TEXT);
	*label = v > 0.0;
	return 0;
}

static int parse_entry(struct reader *r, char *token, uint64_t *index, float *value)
{
	char *colon = strchr(token, ':');
	if (colon == NULL)
		return fault(r, -EINVAL, "\"%.40s\" is not index:value", token);
	*colon = '\0';
	size_t digits = strspn(token, "0123456789");
	if (digits == 0 || token[digits] != '\0' || digits > 10)
		return fault(r, -EINVAL, "index \"%.40s\" is not a positive integer up to %u", token, LIBSVM_INDEX_MAX);
	uint64_t at = strtoull(token, NULL, 10);
	if (at == 0 || at > LIBSVM_INDEX_MAX)
		return fault(r, -EINVAL, "index \"%.40s\" is not a positive integer up to %u", token, LIBSVM_INDEX_MAX);
	if (at <= *index)
		return fault(r, -EINVAL, "index %llu follows %llu: indices must ascend", (unsigned long long)at,
			     (unsigned long long)*index);
	double v;
	if (number(colon + 1, &v) || !isfinite((float)v))
		return fault(r, -EINVAL, "value \"%.40s\" of index %llu is not a finite number", colon + 1,
			     (unsigned long long)at);
	*index = at;
	*value = (float)v;
	return 0;
}

static int parse_line(struct reader *r, char *line, struct dataset *d, int keep)
{
	char *rest = NULL;
	char *token = strtok_r(line, " \t", &rest);
	if (token == NULL)
		return fault(r, -EINVAL, "the line is empty");
	int label = 0;
	int rc = parse_label(r, token, &label);
	if (rc == 0 && keep)
		rc = dataset_row(d, label);
	uint64_t index = 0;
	while (rc == 0 && (token = strtok_r(NULL, " \t", &rest)) != NULL) {
		float value = 0.0f;
		rc = parse_entry(r, token, &index, &value);
		if (rc == 0 && keep)
			rc = dataset_entry(d, index, value);
	}
	if (rc == -ENOMEM || rc == -E2BIG)
		return fault(r, rc, "no room for the data: %s", strerror(-rc));
	return rc;
}

static int read_lines(struct reader *r, FILE *f, size_t part, size_t parts, struct dataset *d)
{
	char *line = NULL;
	size_t cap = 0;
	int rc = 0;
	errno = 0;
	for (ssize_t len; rc == 0 && (len = getline(&line, &cap, f)) >= 0; errno = 0) {
		r->line++;
		if ((size_t)len > LIBSVM_LINE_MAX)
			rc = fault(r, -EINVAL, "the line is longer than %zu bytes", LIBSVM_LINE_MAX);
		else if (memchr(line, '\0', (size_t)len))
			rc = fault(r, -EINVAL, "the line holds a zero byte: is this a text file?");
		if (rc)
			break;
		while (len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
			line[--len] = '\0';
		rc = parse_line(r, line, d, (r->line - 1) % parts == part);
	}
	int error = errno ? errno : EIO;
	if (rc == 0 && (ferror(f) || !feof(f))) {
		rc = -error;
		snprintf(r->text, LIBSVM_TEXT_MAX, "%.160s: cannot read: %s", r->path, strerror(error));
	}
	free(line);
	return rc;
}

int libsvm_read(const char *path, size_t part, size_t parts, struct dataset *d, size_t *rows_total,
		char text[LIBSVM_TEXT_MAX])
{
	struct reader r = {.path = path, .text = text};
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		int rc = -errno;
		snprintf(text, LIBSVM_TEXT_MAX, "%.160s: cannot open: %s", path, strerror(-rc));
		return rc;
	}
	int rc = read_lines(&r, f, part, parts, d);
	fclose(f);
	if (rc == 0 && r.line == 0) {
		snprintf(text, LIBSVM_TEXT_MAX, "%.160s: the file is empty", path);
		return -EINVAL;
	}
	if (rc == 0)
		*rows_total = r.line;
	return rc;
}
