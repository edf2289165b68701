/* SPDX-License-Identifier: BSD-3-Clause */
/** Parses command lines by an option table, prints its help, and reports wrong flags with a suggestion. Main thread. */
#include "apps/cli/options.h"
#include <errno.h>
#include <farcall/version.h>
#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define VALUE_BASE       1000 /* getopt_long() values of table entries: above every letter */
#define KEYWORD_MAX      64   /* longest word that a suggestion is looked for */
#define OPTIONS_ITEM_MAX 65   /* bytes of one value of a list with its NUL: what an error shows of it */
#define TABLE_EXTRA      3    /* --help, --version, the terminator */
#define HELP_COLUMNS     80   /* of a line of the help */
#define HELP_FLAGS       30   /* columns of a flag with its value */

struct unit {
	const char *name;
	double factor;
};

static const struct unit size_units[] = {{"", 1},        {"B", 1},         {"K", 1024},       {"KiB", 1024},
					 {"M", 1048576}, {"MiB", 1048576}, {"G", 1073741824}, {"GiB", 1073741824},
					 {NULL, 0}};
static const struct unit time_units[] = {{"", 1e9},  {"ns", 1},   {"us", 1e3}, {"ms", 1e6},
					 {"s", 1e9}, {"m", 6e10}, {NULL, 0}};
static const struct unit count_units[] = {{"", 1}, {NULL, 0}};

static const struct unit *units_of(enum option_type type)
{
	return type == OPTION_SIZE ? size_units : type == OPTION_DURATION ? time_units : count_units;
}

static void print_number(char *out, size_t room, enum option_type type, uint64_t v)
{
	if (type == OPTION_DURATION && v % 1000000000 == 0)
		snprintf(out, room, "%" PRIu64 "s", v / 1000000000);
	else if (type == OPTION_DURATION && v % 1000000 == 0)
		snprintf(out, room, "%" PRIu64 "ms", v / 1000000);
	else if (type == OPTION_DURATION)
		snprintf(out, room, "%" PRIu64 "ns", v);
	else if (type == OPTION_SIZE && v >= 1048576 && v % 1048576 == 0)
		snprintf(out, room, "%" PRIu64 "M", v / 1048576);
	else
		snprintf(out, room, "%" PRIu64, v);
}

static int number_parse(enum option_type type, const char *s, uint64_t *out)
{
	/* strtod() alone would also take "-1", "inf", "nan" and hexadecimal. */
	size_t digits = strspn(s, type == OPTION_COUNT ? "0123456789" : "0123456789.");
	char number[32];
	if (digits == 0 || digits >= sizeof number)
		return -EINVAL;
	memcpy(number, s, digits);
	number[digits] = 0;
	char *end;
	double v = strtod(number, &end);
	if (*end)
		return -EINVAL;
	for (const struct unit *u = units_of(type); u->name; u++) {
		if (strcasecmp(u->name, s + digits) != 0)
			continue;
		v *= u->factor;
		if (v >= 9e18)
			return -ERANGE;
		*out = (uint64_t)llround(v);
		return 0;
	}
	return -EINVAL;
}

static int number_read(const struct option_spec *spec, const char *value, char text[OPTIONS_TEXT_MAX])
{
	static const char *const kinds[] = {[OPTION_COUNT] = "a whole number",
					    [OPTION_SIZE] = "a size such as 32, 4K or 1M",
					    [OPTION_DURATION] = "a time such as 5, 2.5s or 100ms"};
	uint64_t v;
	int rc = number_parse(spec->type, value, &v);
	if (rc == 0 && v >= spec->min && v <= spec->max) {
		*(uint64_t *)spec->out = v;
		return 0;
	}
	char min[32], max[32];
	print_number(min, sizeof min, spec->type, spec->min);
	print_number(max, sizeof max, spec->type, spec->max);
	if (rc == -EINVAL)
		snprintf(text, OPTIONS_TEXT_MAX, "--%s: \"%.64s\" is not %s; give one from %s to %s", spec->name, value,
			 kinds[spec->type], min, max);
	else
		snprintf(text, OPTIONS_TEXT_MAX, "--%s: %.64s is out of range; give %s from %s to %s", spec->name,
			 value, kinds[spec->type], min, max);
	return -EINVAL;
}

/* Each value as if it were given alone; the list is replaced only when all are right. */
static int list_read(const struct option_spec *spec, const char *value, char text[OPTIONS_TEXT_MAX])
{
	struct option_list list = {.n = 0};
	struct option_spec one = *spec;
	one.type = spec->type == OPTION_SIZES ? OPTION_SIZE : OPTION_COUNT;
	for (const char *end; value; value = end ? end + 1 : NULL) {
		char item[OPTIONS_ITEM_MAX];
		end = strchr(value, ',');
		size_t n = end ? (size_t)(end - value) : strlen(value);
		if (list.n == OPTIONS_LIST_MAX) {
			snprintf(text, OPTIONS_TEXT_MAX, "--%s: too many values; give at most %d, with commas between",
				 spec->name, OPTIONS_LIST_MAX);
			return -EINVAL;
		}
		snprintf(item, sizeof item, "%.*s", (int)(n < sizeof item ? n : sizeof item - 1), value);
		one.out = &list.value[list.n++];
		if (number_read(&one, item, text) < 0)
			return -EINVAL;
	}
	*(struct option_list *)spec->out = list;
	return 0;
}

static int choice_read(const struct option_spec *spec, const char *value, char text[OPTIONS_TEXT_MAX])
{
	char list[160] = "";
	for (int i = 0; spec->choice[i]; i++) {
		if (strcmp(spec->choice[i], value) == 0) {
			*(int *)spec->out = i;
			return 0;
		}
		size_t n = strlen(list);
		snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", spec->choice[i]);
	}
	snprintf(text, OPTIONS_TEXT_MAX, "--%s: \"%.64s\" is not one of its values; give one of: %s", spec->name, value,
		 list);
	return -EINVAL;
}

int options_read(const struct option_spec *spec, const char *value, char text[OPTIONS_TEXT_MAX])
{
	switch (spec->type) {
	case OPTION_FLAG:
		*(bool *)spec->out = true;
		return 0;
	case OPTION_TEXT:
		if (!*value) {
			snprintf(text, OPTIONS_TEXT_MAX, "--%s: the value is empty; give %s, or leave the option out",
				 spec->name, spec->value);
			return -EINVAL;
		}
		*(const char **)spec->out = value;
		return 0;
	case OPTION_COUNTS:
	case OPTION_SIZES:
		return list_read(spec, value, text);
	case OPTION_CHOICE:
		return choice_read(spec, value, text);
	default:
		return number_read(spec, value, text);
	}
}

/* Prints the words of text[0, len) from column `at` on, and begins further lines at column `indent`. Returns the column
 * behind them. */
static size_t print_words(const char *text, size_t len, size_t at, size_t indent)
{
	for (size_t word, i = 0; i < len; i += word + 1) {
		word = 0;
		size_t columns = 0;
		for (; i + word < len && !strchr(" \n", text[i + word]); word++)
			columns += ((unsigned char)text[i + word] & 0xc0) != 0x80; /* of UTF-8 */
		bool first = at == indent;
		if (!first && at + 1 + columns > HELP_COLUMNS) {
			printf("\n%*s", (int)indent, "");
			first = true;
			at = indent;
		}
		printf("%s%.*s", first ? "" : " ", (int)word, text + i);
		at += !first + columns;
	}
	return at;
}

/* Lines that begin with a space, and empty ones, stay as they are. */
static void print_about(const char *text)
{
	size_t at = 0;
	for (size_t len; *text; text += len + (text[len] == '\n')) {
		len = strcspn(text, "\n");
		bool words = len && *text != ' ';
		if (!words && at) {
			putchar('\n');
			at = 0;
		}
		if (words)
			at = print_words(text, len, at, 0);
		else
			printf("%.*s\n", (int)len, text);
	}
	if (at)
		putchar('\n');
}

static void print_option(const char *flags, const char *help)
{
	int n = printf("  %-*s ", HELP_FLAGS, flags);
	if (n > HELP_FLAGS + 3)
		n = printf("\n%*s", HELP_FLAGS + 3, "") - 1;
	print_words(help, strlen(help), (size_t)n, (size_t)n);
	putchar('\n');
}

void options_help(const struct option_command *command)
{
	printf("usage: %s %s\n\n", command->name, command->usage);
	print_about(command->about);
	printf("\noptions:\n");
	for (const struct option_spec *s = command->specs; s->name[0]; s++) {
		if (!s->help)
			continue;
		char left[80];
		if (s->letter)
			snprintf(left, sizeof left, "-%c, --%s %s", s->letter, s->name, s->value ? s->value : "");
		else
			snprintf(left, sizeof left, "    --%s %s", s->name, s->value ? s->value : "");
		print_option(left, s->help);
	}
	print_option("-h, --help", "this text");
	print_option("-V, --version", "the version");
}

int options_wrong(const char *name, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	fprintf(stderr, "%s: ", name);
	vfprintf(stderr, format, args);
	fprintf(stderr, "\nTry '%s --help'.\n", name);
	va_end(args);
	return OPTIONS_EXIT_USAGE;
}

/* Insertions, deletions and replacements that make `b` of `a`. */
static unsigned distance(const char *a, const char *b)
{
	unsigned row[KEYWORD_MAX + 1];
	size_t n = strlen(b);
	if (strlen(a) > KEYWORD_MAX || n > KEYWORD_MAX)
		return UINT32_MAX;
	for (unsigned j = 0; j <= n; j++)
		row[j] = j;
	for (unsigned i = 1; *a; a++, i++) {
		unsigned diagonal = row[0];
		row[0] = i;
		for (unsigned j = 1; j <= n; j++) {
			unsigned replace = diagonal + (*a != b[j - 1]);
			diagonal = row[j];
			unsigned best = row[j] < row[j - 1] ? row[j] + 1 : row[j - 1] + 1;
			row[j] = best < replace ? best : replace;
		}
	}
	return row[n];
}

const char *options_suggest(const char *word, const char *const *words)
{
	const char *best = NULL;
	unsigned best_distance = UINT32_MAX;
	for (; *words; words++) {
		unsigned d = distance(word, *words);
		if (d < best_distance) {
			best = *words;
			best_distance = d;
		}
	}
	/* Farther than two letters, or most of the word, it would be a guess. */
	return best_distance <= 2 && best_distance < strlen(word) ? best : NULL;
}

static void wrong_flag(const struct option_command *command, int c, char **argv)
{
	const char *words[OPTIONS_MAX + 1];
	size_t n = 0;
	for (const struct option_spec *s = command->specs; s->name[0]; s++)
		if (s->help)
			words[n++] = s->name;
	words[n] = NULL;

	if (c == ':') {
		options_wrong(command->name, "%s needs a value", argv[optind - 1]);
		return;
	}
	if (optopt > 0 && optopt < VALUE_BASE) {
		options_wrong(command->name, "unknown option -%c", optopt);
		return;
	}
	const char *given = argv[optind - 1];
	if (optopt >= VALUE_BASE) {
		options_wrong(command->name, "%s takes no value", given);
		return;
	}
	const char *near = options_suggest(given + 2, words);
	options_wrong(command->name, near ? "unknown option %s; did you mean --%s?" : "unknown option %s", given, near);
}

enum options_result options_parse(const struct option_command *command, int argc, char **argv, int *rest)
{
	struct option table[OPTIONS_MAX + TABLE_EXTRA] = {{0}};
	char letters[2 * OPTIONS_MAX + 8] = "+:hV"; /* stop at the first argument; ':' for a missing value */
	const struct option_spec *specs = command->specs;
	size_t n = 0, l = strlen(letters);
	for (; n < OPTIONS_MAX && specs[n].name[0]; n++) {
		bool value = specs[n].type != OPTION_FLAG;
		table[n] = (struct option){specs[n].name, value ? required_argument : no_argument, NULL,
					   VALUE_BASE + (int)n};
		if (specs[n].letter) {
			letters[l++] = specs[n].letter;
			if (value)
				letters[l++] = ':';
		}
	}
	table[n] = (struct option){"help", no_argument, NULL, 'h'};
	table[n + 1] = (struct option){"version", no_argument, NULL, 'V'};

	optind = 0; /* glibc: start afresh; another command may have been parsed before */
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, letters, table, NULL)) != -1;) {
		if (c == 'h') {
			options_help(command);
			return OPTIONS_DONE;
		}
		if (c == 'V') {
			printf("farcall %s\n", FAR_VERSION);
			return OPTIONS_DONE;
		}
		if (c == '?' || c == ':') {
			wrong_flag(command, c, argv);
			return OPTIONS_WRONG;
		}
		const struct option_spec *s = specs;
		if (c >= VALUE_BASE)
			s = &specs[c - VALUE_BASE];
		else
			while (s->letter != c)
				s++;
		char text[OPTIONS_TEXT_MAX];
		if (options_read(s, optarg, text) < 0) {
			options_wrong(command->name, "%s", text);
			return OPTIONS_WRONG;
		}
	}
	*rest = optind;
	return OPTIONS_GO;
}
