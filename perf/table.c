/* SPDX-License-Identifier: BSD-3-Clause */
/** Reads the objects that json.c writes into rows and columns, and prints them as CSV. Main thread. */
#include "table.h"
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 96
#define VALUE_MAX      512

struct reader {
	struct table *t;
	const char *at;
	char *shared[TABLE_COLUMNS_MAX]; /* values of the outermost object */
	unsigned first;                  /* row of this object's arrays */
	bool failed;
};

static void skip(struct reader *r)
{
	r->at += strspn(r->at, " \n\t");
}

static bool take(struct reader *r, char c)
{
	skip(r);
	if (*r->at != c)
		return false;
	r->at++;
	return true;
}

static void read_string(struct reader *r, char out[VALUE_MAX])
{
	size_t n = 0;
	r->failed |= !take(r, '"');
	for (; *r->at && *r->at != '"'; r->at++) {
		if (*r->at == '\\' && r->at[1])
			r->at++;
		if (n < VALUE_MAX - 1)
			out[n++] = *r->at;
	}
	out[n] = 0;
	r->failed |= !take(r, '"');
}

static void read_scalar(struct reader *r, char out[VALUE_MAX])
{
	skip(r);
	if (*r->at == '"') {
		read_string(r, out);
		return;
	}
	size_t n = strcspn(r->at, ",]} \n");
	r->failed |= n == 0 || n >= VALUE_MAX;
	if (r->failed)
		return;
	memcpy(out, r->at, n);
	out[strncmp(r->at, "null", n) == 0 ? 0 : n] = 0;
	r->at += n;
}

static unsigned column(struct reader *r, const char *name)
{
	struct table *t = r->t;
	for (unsigned i = 0; i < t->columns; i++)
		if (strcmp(t->name[i], name) == 0)
			return i;
	if (t->columns == TABLE_COLUMNS_MAX) {
		r->failed = true;
		return 0;
	}
	t->name[t->columns] = strdup(name);
	return t->columns++;
}

static void set(struct reader *r, char **row, const char *name, const char *value)
{
	unsigned i = column(r, name);
	free(row[i]);
	row[i] = strdup(value);
}

static void read_object(struct reader *r, char **row, const char *prefix, bool outermost);

/* Objects become rows; other values are one cell, with spaces between. */
static void read_array(struct reader *r, char **row, const char *name, bool outermost)
{
	char all[VALUE_MAX] = "", one[VALUE_MAX];
	if (take(r, ']'))
		return;
	do {
		skip(r);
		if (*r->at == '{' && outermost && r->t->rows < TABLE_ROWS_MAX) {
			char **own = r->t->cell[r->t->rows++];
			if (strcmp(name, "results") != 0)
				set(r, own, "list", name);
			read_object(r, own, "", false);
		} else if (*r->at == '{' || *r->at == '[') {
			r->failed = true;
		} else {
			read_scalar(r, one);
			size_t n = strlen(all);
			int len = snprintf(all + n, sizeof all - n, "%s%s", n ? " " : "", one);
			r->failed |= len >= (int)(sizeof all - n);
		}
	} while (!r->failed && take(r, ','));
	r->failed |= !take(r, ']');
	if (*all)
		set(r, row, name, all);
}

static void read_object(struct reader *r, char **row, const char *prefix, bool outermost)
{
	r->failed |= !take(r, '{');
	if (r->failed || take(r, '}'))
		return;
	do {
		char key[VALUE_MAX] = "", name[NAME_MAX_BYTES], value[VALUE_MAX] = "";
		read_string(r, key);
		r->failed |= !take(r, ':');
		int len = snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
		r->failed |= len >= (int)sizeof name;
		skip(r);
		if (r->failed)
			return;
		if (*r->at == '{') {
			read_object(r, row, name, false);
		} else if (take(r, '[')) {
			read_array(r, row, name, outermost);
		} else {
			read_scalar(r, value);
			set(r, row, name, value);
		}
	} while (!r->failed && take(r, ','));
	r->failed |= !take(r, '}');
}

int table_add(struct table *t, const char *json)
{
	struct reader r = {.t = t, .at = json, .first = t->rows};
	read_object(&r, r.shared, "", true);
	if (t->rows == r.first && t->rows < TABLE_ROWS_MAX)
		t->rows++;
	for (unsigned i = 0; i < t->columns; i++) {
		for (unsigned row = r.first; row < t->rows; row++)
			if (!t->cell[row][i] && r.shared[i])
				t->cell[row][i] = strdup(r.shared[i]);
		free(r.shared[i]);
	}
	return r.failed ? -EINVAL : 0;
}

const char *table_get(const struct table *t, unsigned row, const char *name)
{
	for (unsigned i = 0; i < t->columns; i++)
		if (strcmp(t->name[i], name) == 0)
			return t->cell[row][i] ? t->cell[row][i] : "";
	return "";
}

static void put(FILE *f, const char *s)
{
	bool quoted = strpbrk(s, ",\"\n\r") != NULL;
	if (quoted)
		putc('"', f);
	for (; *s; s++) {
		if (*s == '"')
			putc('"', f);
		putc(*s, f);
	}
	if (quoted)
		putc('"', f);
}

void table_csv(const struct table *t, FILE *f)
{
	for (unsigned i = 0; i < t->columns; i++) {
		fputs(i ? "," : "", f);
		put(f, t->name[i]);
	}
	for (unsigned row = 0; row < t->rows; row++)
		for (unsigned i = 0; i < t->columns; i++) {
			fputs(i ? "," : "\r\n", f);
			put(f, t->cell[row][i] ? t->cell[row][i] : "");
		}
	fputs("\r\n", f);
}

void table_free(struct table *t)
{
	for (unsigned i = 0; i < t->columns; i++) {
		free(t->name[i]);
		for (unsigned row = 0; row < t->rows; row++)
			free(t->cell[row][i]);
	}
	t->columns = t->rows = 0;
}
