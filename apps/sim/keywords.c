/* SPDX-License-Identifier: BSD-3-Clause */
/** The reader of scenario files. Numbers are read by hand: strtod() knows locales. Main thread. */
#include "sim/keywords.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define KEYWORDS_IN_LINE 4 /* more are refused anyway */
#define NANO             UINT64_C(1000000000)

struct place {
	const char *what, *file;
	unsigned line;
	char *err;
};

__attribute__((format(printf, 2, 3))) static int wrong(const struct place *at, const char *format, ...)
{
	va_list args;
	int n = snprintf(at->err, KEYWORDS_ERR_MAX, "%s:%u: ", at->file, at->line);
	va_start(args, format);
	if (n >= 0 && n < KEYWORDS_ERR_MAX)
		vsnprintf(at->err + n, (size_t)(KEYWORDS_ERR_MAX - n), format, args);
	va_end(args);
	return -EINVAL;
}

/* ---- values ---- */

struct unit {
	const char *name;
	uint64_t factor;
};

static const struct unit size_units[] = {{"", 1},
					 {"B", 1},
					 {"k", 1024},
					 {"KiB", 1024},
					 {"M", 1024 * 1024},
					 {"MiB", 1024 * 1024},
					 {"G", 1024 * 1024 * 1024},
					 {"GiB", 1024 * 1024 * 1024},
					 {NULL, 0}};
static const struct unit time_units[] = {{"ns", 1}, {"us", 1000}, {"ms", 1000000}, {"s", NANO}, {NULL, 0}};
static const struct unit rate_units[] = {{"M", 1000000}, {"G", NANO}, {NULL, 0}};
static const struct unit chance_units[] = {{"", NANO}, {"%", NANO / 100}, {NULL, 0}};
static const struct unit plain[] = {{"", 1}, {NULL, 0}};

/* A decimal number with a unit, [at, end), times the unit. false: it is none, or beyond 2^63. */
static bool read_amount(const char *at, const char *end, const struct unit *units, uint64_t *out)
{
	uint64_t whole = 0, part = 0, scale = 1;
	const char *begin = at;
	for (; at < end && *at >= '0' && *at <= '9'; at++) {
		if (whole > UINT64_C(1) << 59)
			return false;
		whole = whole * 10 + (uint64_t)(*at - '0');
	}
	if (at == begin)
		return false;
	if (at < end && *at == '.' && at + 1 < end && at[1] >= '0' && at[1] <= '9')
		for (at++; at < end && *at >= '0' && *at <= '9'; at++) {
			if (scale >= NANO)
				return false;
			part = part * 10 + (uint64_t)(*at - '0');
			scale *= 10;
		}
	for (; units->name; units++) {
		size_t len = strlen(units->name);
		if ((size_t)(end - at) != len || memcmp(at, units->name, len) != 0)
			continue;
		if (whole > (UINT64_C(1) << 63) / units->factor || (scale > 1 && units->factor == 1))
			return false;
		/* part < 1e9 and factor <= 2^30: no overflow. */
		*out = whole * units->factor + part * units->factor / scale;
		return true;
	}
	return false;
}

static bool read_range(const char *value, const struct unit *units, struct range *out)
{
	const char *dots = strstr(value, ".."), *end = value + strlen(value);
	if (!read_amount(value, dots ? dots : end, units, &out->min))
		return false;
	out->max = out->min;
	return !dots || (read_amount(dots + 2, end, units, &out->max) && out->max >= out->min);
}

static bool read_one(const char *value, const struct unit *units, const struct word *w, uint64_t *out)
{
	return read_amount(value, value + strlen(value), units, out) && *out >= w->min && *out <= w->max;
}

static void list_choices(const struct word *w, char *out, size_t cap)
{
	size_t n = 0;
	out[0] = '\0';
	for (unsigned i = 0; w->choices[i] && n < cap; i++)
		n += (size_t)snprintf(out + n, cap - n, "%s%s", i ? ", " : "", w->choices[i]);
}

static void list_bound(const struct word *w, uint64_t bound, char *out, size_t cap)
{
	unsigned long long x = bound;
	switch (w->type) {
	case KEYWORD_TIME:
	case KEYWORD_TIMES:
		if (x % NANO == 0)
			snprintf(out, cap, "%llus", x / NANO);
		else if (x % 1000000 == 0)
			snprintf(out, cap, "%llums", x / 1000000);
		else
			snprintf(out, cap, "%lluns", x);
		break;
	case KEYWORD_RATE:
		snprintf(out, cap, "%lluM", x / 1000000);
		break;
	default:
		snprintf(out, cap, "%llu", x);
	}
}

static int wrong_value(const struct place *at, const struct word *w, const char *value)
{
	static const char *const wanted[] = {
		[KEYWORD_NAME] = "a name of letters, digits, '-' and '_'",
		[KEYWORD_TEXT] = "a text",
		[KEYWORD_COUNT] = "a number",
		[KEYWORD_SIZE] = "bytes, as 512, 4k, 1M",
		[KEYWORD_SIZES] = "bytes or a range of them, as 8..4k",
		[KEYWORD_TIME] = "a time with its unit (ns, us, ms, s)",
		[KEYWORD_TIMES] = "a time with its unit (ns, us, ms, s) or a range of them, as 1ms..2s",
		[KEYWORD_RATE] = "bits per second, as 100M, 25G",
		[KEYWORD_CHANCE] = "a chance, as 0.01 or 1%, up to 1",
		[KEYWORD_CHOICE] = "one of: ",
		[KEYWORD_PICK] = "a number and one of: ",
		[KEYWORD_SET] = "one of: ",
	};
	char more[400] = "", min[32], max[32];
	if (w->choices) {
		list_choices(w, more, sizeof more);
	} else if (w->type != KEYWORD_NAME && w->type != KEYWORD_TEXT && w->type != KEYWORD_CHANCE) {
		list_bound(w, w->min, min, sizeof min);
		list_bound(w, w->max, max, sizeof max);
		snprintf(more, sizeof more, "; from %s to %s", min, max);
	}
	return wrong(at, "'%s %.40s': %s takes %s%s", w->name, value, w->name, wanted[w->type], more);
}

static bool name_fits(const char *s)
{
	size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
	return n > 0 && n < KEYWORDS_NAME_MAX && s[n] == '\0';
}

static int choice_of(const struct word *w, const char *value)
{
	for (int i = 0; w->choices[i]; i++)
		if (strcmp(w->choices[i], value) == 0)
			return i;
	return -1;
}

static bool store_choice(const struct word *w, char *const *v, unsigned n, uint32_t *field)
{
	uint64_t count;
	int choice = n ? choice_of(w, v[0]) : -1;
	if (choice < 0 || n != (w->type == KEYWORD_PICK ? 2u : 1u))
		return false;
	if (w->type == KEYWORD_CHOICE) {
		*field = (uint32_t)choice;
	} else if (w->type == KEYWORD_SET) {
		*field |= 1u << choice;
	} else {
		if (!read_one(v[1], plain, w, &count))
			return false;
		field[choice] = (uint32_t)count;
	}
	return true;
}

static bool store_number(const struct word *w, const char *value, void *field)
{
	const struct unit *units = w->type == KEYWORD_SIZE    ? size_units
				   : w->type == KEYWORD_TIME  ? time_units
				   : w->type == KEYWORD_RATE  ? rate_units
				   : w->type == KEYWORD_COUNT ? plain
							      : chance_units;
	uint64_t x;
	if (!read_one(value, units, w, &x))
		return false;
	if (w->type == KEYWORD_COUNT || w->type == KEYWORD_CHANCE)
		*(uint32_t *)field = (uint32_t)x;
	else
		*(uint64_t *)field = x;
	return true;
}

static bool store_range(const struct word *w, const char *value, struct range *field)
{
	struct range r;
	if (!read_range(value, w->type == KEYWORD_SIZES ? size_units : time_units, &r) || r.min < w->min ||
	    r.max > w->max)
		return false;
	*field = r;
	return true;
}

/* The words behind the first one, v[0, n). */
static bool store(const struct word *w, char *const *v, unsigned n, void *out)
{
	void *field = (char *)out + w->offset;
	switch (w->type) {
	case KEYWORD_CHOICE:
	case KEYWORD_PICK:
	case KEYWORD_SET:
		return store_choice(w, v, n, field);
	case KEYWORD_SIZES:
	case KEYWORD_TIMES:
		return n == 1 && store_range(w, v[0], field);
	case KEYWORD_NAME:
		if (n != 1 || !name_fits(v[0]))
			return false;
		memcpy(field, v[0], strlen(v[0]) + 1);
		return true;
	case KEYWORD_TEXT: /* the line was not split */
		if (n != 1 || strlen(v[0]) >= KEYWORDS_TEXT_MAX)
			return false;
		memcpy(field, v[0], strlen(v[0]) + 1);
		return true;
	default:
		return n == 1 && store_number(w, v[0], field);
	}
}

/* ---- lines ---- */

static bool blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

static char *skip(char *s)
{
	while (blank(*s))
		s++;
	return s;
}

static char *cut_token(char *s)
{
	while (*s && !blank(*s))
		s++;
	if (*s)
		*s++ = '\0';
	return skip(s);
}

static unsigned split(char *s, char **v)
{
	unsigned n = 0;
	for (; *s && n < KEYWORDS_IN_LINE; s = cut_token(s))
		v[n++] = s;
	return n;
}

static int unknown_keyword(const struct place *at, const struct word *table, const char *name)
{
	char all[480];
	size_t n = 0;
	for (const struct word *w = table; w->name && n < sizeof all; w++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", w == table ? "" : ", ", w->name);
	return wrong(at, "'%.40s' is no word of a %s; allowed are: %s", name, at->what, all);
}

static int read_line(const struct place *at, char *line, const struct word *table, void *out, uint64_t *seen)
{
	char *v[KEYWORDS_IN_LINE];
	char *value = cut_token(line);
	const struct word *w = table;
	while (w->name && strcmp(w->name, line) != 0)
		w++;
	if (!w->name)
		return unknown_keyword(at, table, line);
	uint64_t bit = UINT64_C(1) << (w - table);
	if (*seen & bit && w->type != KEYWORD_PICK && w->type != KEYWORD_SET)
		return wrong(at, "'%s' is given twice; give it once", w->name);
	*seen |= bit;
	char whole[KEYWORDS_TEXT_MAX];
	snprintf(whole, sizeof whole, "%s", value);
	bool text = w->type == KEYWORD_TEXT;
	if (text)
		v[0] = value;
	unsigned n = text ? *value != '\0' : split(value, v);
	return store(w, v, n, out) ? 0 : wrong_value(at, w, whole);
}

static int check_needed(struct place *at, const struct word *table, uint64_t seen)
{
	for (const struct word *w = table; w->name; w++)
		if (w->needed && !(seen >> (w - table) & 1))
			return wrong(at, "a %s needs a line '%s …'", at->what, w->name);
	return 0;
}

int keywords_read(const char *what, const char *file, const char *text, const struct word *table, void *out,
		  char err[KEYWORDS_ERR_MAX])
{
	struct place at = {.what = what, .file = file, .err = err};
	uint64_t seen = 0;
	while (*text) {
		char line[512];
		size_t len = strcspn(text, "\n");
		at.line++;
		if (len >= sizeof line)
			return wrong(&at, "the line is longer than %zu bytes", sizeof line - 1);
		memcpy(line, text, len);
		line[len] = '\0';
		text += len + (text[len] == '\n');
		line[strcspn(line, "#")] = '\0';
		char *begin = skip(line);
		for (size_t n = strlen(begin); n && blank(begin[n - 1]); n--)
			begin[n - 1] = '\0';
		int error = *begin ? read_line(&at, begin, table, out, &seen) : 0;
		if (error)
			return error;
	}
	return check_needed(&at, table, seen);
}
