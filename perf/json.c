/* SPDX-License-Identifier: BSD-3-Clause */
/** Writes one JSON object on one line. One thread at a time. */
#include "json.h"
#include <inttypes.h>
#include <math.h>

static void text(struct json *j, const char *s)
{
	fputc('"', j->f);
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (c == '"' || c == '\\')
			fprintf(j->f, "\\%c", c);
		else if (c < 0x20)
			fprintf(j->f, "\\u%04x", c);
		else
			fputc(c, j->f);
	}
	fputc('"', j->f);
}

static void item(struct json *j, const char *key)
{
	if (j->more[j->depth])
		fputs(", ", j->f);
	j->more[j->depth] = true;
	if (key) {
		text(j, key);
		fputs(": ", j->f);
	}
}

static void push(struct json *j, bool array)
{
	fputc(array ? '[' : '{', j->f);
	if (j->depth + 1 < JSON_DEPTH_MAX)
		j->depth++;
	j->array[j->depth] = array;
	j->more[j->depth] = false;
}

void json_begin(struct json *j, FILE *f)
{
	*j = (struct json){.f = f};
	push(j, false);
}

void json_object(struct json *j, const char *key)
{
	item(j, key);
	push(j, false);
}

void json_array(struct json *j, const char *key)
{
	item(j, key);
	push(j, true);
}

void json_close(struct json *j)
{
	fputc(j->array[j->depth] ? ']' : '}', j->f);
	j->depth--;
}

void json_end(struct json *j)
{
	while (j->depth)
		json_close(j);
	fputc('\n', j->f);
	fflush(j->f);
}

void json_string(struct json *j, const char *key, const char *value)
{
	item(j, key);
	text(j, value);
}

void json_u64(struct json *j, const char *key, uint64_t value)
{
	item(j, key);
	fprintf(j->f, "%" PRIu64, value);
}

void json_i64(struct json *j, const char *key, int64_t value)
{
	item(j, key);
	fprintf(j->f, "%" PRId64, value);
}

void json_bool(struct json *j, const char *key, bool value)
{
	item(j, key);
	fputs(value ? "true" : "false", j->f);
}

void json_double(struct json *j, const char *key, double value)
{
	item(j, key);
	if (isfinite(value))
		fprintf(j->f, "%.6g", value);
	else
		fputs("null", j->f);
}
