/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Command lines as tables. One table gives the parser, the help and the errors; each error names the flag and its
 * values. Every program accepts --help and --version. Main thread.
 */
#ifndef FAR_APPS_CLI_OPTIONS_H
#define FAR_APPS_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX        40  /* of one command */
#define OPTIONS_TEXT_MAX   320 /* bytes of an error text with its NUL */
#define OPTIONS_LIST_MAX   16  /* values of a list */
#define OPTIONS_EXIT_USAGE 2   /* exit status after a mistake on the command line */

enum option_type {
	OPTION_FLAG,     /* bool */
	OPTION_COUNT,    /* uint64_t: a plain number */
	OPTION_SIZE,     /* uint64_t: bytes; K, M, G are powers of 1024 */
	OPTION_DURATION, /* uint64_t: nanoseconds; seconds unless ns, us, ms, s or m follows */
	OPTION_COUNTS,   /* struct option_list: plain numbers with commas between */
	OPTION_SIZES,    /* struct option_list: sizes likewise */
	OPTION_TEXT,     /* const char * */
	OPTION_CHOICE    /* int: index into `choices` */
};

struct option_list {
	uint64_t value[OPTIONS_LIST_MAX];
	unsigned n;
};

struct option_spec {
	const char *name; /* without the dashes; "" ends the table */
	char letter;      /* 0: none */
	enum option_type type;
	void *out;           /* holds the default; written only when the flag is given */
	uint64_t min, max;   /* of a number, both included, in its own unit */
	const char *value;   /* how the help calls the value; NULL for a flag */
	const char *help;    /* NULL: hidden */
	const char **choice; /* the words of OPTION_CHOICE, ending with NULL */
};

struct option_command {
	const char *name;  /* "farcall run" */
	const char *usage; /* what follows the name */
	const char *about; /* a paragraph of the help */
	const struct option_spec *specs;
};

enum options_result {
	OPTIONS_GO,   /* go on; `*rest` is the first argument that is not an option */
	OPTIONS_DONE, /* help or version was printed: exit 0 */
	OPTIONS_WRONG /* the mistake was printed to stderr: exit OPTIONS_EXIT_USAGE */
};

/** Parses argv[1, argc), the last value of an option that is given twice counts; stops at the first argument that is no
 * option, or behind "--". */
enum options_result options_parse(const struct option_command *command, int argc, char **argv, int *rest);

/** Reads one value. 0, or -EINVAL with the flag, the mistake and the remedy in `text`. */
int options_read(const struct option_spec *spec, const char *value, char text[OPTIONS_TEXT_MAX]);

/** The word of `words` (ending with NULL) that was probably meant, or NULL. */
const char *options_suggest(const char *word, const char *const *words);

/** Prints "name: text" and a pointer to the help to stderr; returns OPTIONS_EXIT_USAGE. */
__attribute__((format(printf, 2, 3))) int options_wrong(const char *name, const char *format, ...);

void options_help(const struct option_command *command);

#endif
