/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads files of labelled rows line by line. One thread at a time. */
#include "rows.h"
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int rows_fault(struct rows_reader *r, int rc, const char *format, ...)
{
	char what[ROWS_TEXT_MAX / 2];
	va_list args;
	va_start(args, format);
	vsnprintf(what, sizeof what, format, args);
	va_end(args);
	snprintf(r->text, ROWS_TEXT_MAX, "%.160s:%zu: %s", r->path, r->line, what);
	return rc;
}

/* Only decimal numbers: strtod() would also take "nan", "inf" and hexadecimal. */
bool rows_number(const char *text, double *out)
{
	if (text[strspn(text, "0123456789+-.eE")] != '\0')
		return false;
	char *end;
	*out = strtod(text, &end);
	return end != text && *end == '\0' && isfinite(*out);
}

bool rows_label(const char *text, int *label)
{
	double v;
	if (!rows_number(text, &v) || (v != 1.0 && v != 0.0 && v != -1.0))
		return false;
	*label = v > 0.0;
	return true;
}

int rows_entry(struct rows_reader *r, uint64_t key, double value)
{
	if (!isfinite((float)value))
		return rows_fault(r, -EINVAL, "the value %g is beyond the range of a float", value);
	if (r->n == r->room) {
		size_t room = r->room ? 2 * r->room : 64;
		struct rows_entry *bigger = reallocarray(r->entries, room, sizeof *bigger);
		if (bigger == NULL)
			return rows_fault(r, -ENOMEM, "no room for the data: %s", strerror(ENOMEM));
		r->entries = bigger;
		r->room = room;
	}
	r->entries[r->n++] = (struct rows_entry){key, (float)value};
	return 0;
}

static int by_key(const void *a, const void *b)
{
	uint64_t x = ((const struct rows_entry *)a)->key, y = ((const struct rows_entry *)b)->key;
	return (x > y) - (x < y);
}

int rows_sort(struct rows_reader *r)
{
	bool ascend = true;
	for (size_t i = 1; i < r->n; i++)
		ascend = ascend && r->entries[i].key > r->entries[i - 1].key;
	if (ascend)
		return 0;
	qsort(r->entries, r->n, sizeof *r->entries, by_key);
	for (size_t i = 1; i < r->n; i++)
		if (r->entries[i].key == r->entries[i - 1].key)
			return rows_fault(r, -EINVAL, "the feature %llu comes twice",
					  (unsigned long long)r->entries[i].key);
	return 0;
}

static int keep(struct rows_reader *r, struct dataset *d, bool target)
{
	int rc = dataset_row(d, r->label);
	if (rc == 0 && target)
		rc = dataset_target(d, r->target);
	for (size_t i = 0; rc == 0 && i < r->n; i++)
		rc = dataset_entry(d, r->entries[i].key, r->entries[i].value);
	return rc ? rows_fault(r, rc, "no room for the data: %s", strerror(-rc)) : 0;
}

static int check_line(struct rows_reader *r, const char *line, size_t len)
{
	if (len > ROWS_LINE_MAX)
		return rows_fault(r, -EINVAL, "the line is longer than %zu bytes", ROWS_LINE_MAX);
	if (memchr(line, '\0', len))
		return rows_fault(r, -EINVAL, "the line holds a zero byte: is this a text file?");
	return 0;
}

size_t rows_mark(const char *line)
{
	static const char mark[] = "\xef\xbb\xbf";
	return strncmp(line, mark, sizeof mark - 1) == 0 ? sizeof mark - 1 : 0;
}

static int read_lines(struct rows_reader *r, FILE *f, rows_line_fn *parse, size_t part, size_t parts, struct dataset *d,
		      size_t *rows)
{
	char *line = NULL;
	size_t cap = 0;
	int rc = 0;
	errno = 0;
	for (ssize_t len; rc == 0 && (len = getline(&line, &cap, f)) >= 0; errno = 0) {
		r->line++;
		r->n = 0;
		rc = check_line(r, line, (size_t)len);
		while (rc == 0 && len > 0 && (line[len - 1] == '\n' || line[len - 1] == '\r'))
			line[--len] = '\0';
		if (rc == 0)
			rc = parse(r, line + (r->line == 1 ? rows_mark(line) : 0));
		if (rc == 0 && (*rows)++ % parts == part)
			rc = keep(r, d, parse == rows_ratings_line);
		if (rc == 1)
			rc = 0;
	}
	int error = errno ? errno : EIO;
	if (rc == 0 && (ferror(f) || !feof(f))) {
		rc = -error;
		snprintf(r->text, ROWS_TEXT_MAX, "%.160s: cannot read: %s", r->path, strerror(error));
	}
	free(line);
	return rc;
}

static bool ends(const char *path, const char *with)
{
	size_t n = strlen(path), m = strlen(with);
	return n >= m && strcmp(path + n - m, with) == 0;
}

static rows_line_fn *line_fn(const char *path, enum rows_format format)
{
	if (format == ROWS_CSV || (format == ROWS_AUTO && ends(path, ".csv")))
		return rows_csv_line;
	if (format == ROWS_CRITEO || (format == ROWS_AUTO && ends(path, ".tsv")))
		return rows_criteo_line;
	if (format == ROWS_TEXT)
		return rows_text_line;
	return format == ROWS_RATINGS ? rows_ratings_line : rows_libsvm_line;
}

int rows_read(const char *path, enum rows_format format, size_t part, size_t parts, struct dataset *d,
	      size_t *rows_total, char text[ROWS_TEXT_MAX])
{
	struct rows_reader r = {.path = path, .text = text};
	size_t rows = 0;
	FILE *f = fopen(path, "re");
	if (f == NULL) {
		int rc = -errno;
		snprintf(text, ROWS_TEXT_MAX, "%.160s: cannot open: %s", path, strerror(-rc));
		return rc;
	}
	int rc = read_lines(&r, f, line_fn(path, format), part, parts, d, &rows);
	fclose(f);
	free(r.entries);
	if (rc == 0 && rows == 0) {
		snprintf(text, ROWS_TEXT_MAX, "%.160s: the file has no rows", path);
		return -EINVAL;
	}
	if (rc == 0)
		*rows_total = rows;
	return rc;
}
