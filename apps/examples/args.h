/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The command line of the examples: arguments in an order, --help, and an error that names what is wrong. The main
 * thread calls it before it joins the group.
 */
#ifndef EXAMPLES_ARGS_H
#define EXAMPLES_ARGS_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct arg {
	const char *name, *about; /* in the help */
	unsigned *number;         /* holds the default; NULL: a text, which must be given */
	unsigned min, max;        /* both included */
};

/* Prints the error and ends the program. */
__attribute__((format(printf, 2, 3), noreturn)) static void args_wrong(const char *program, const char *format, ...)
{
	const char *slash = strrchr(program, '/');
	va_list list;
	va_start(list, format);
	fprintf(stderr, "%s: ", slash ? slash + 1 : program);
	vfprintf(stderr, format, list);
	fprintf(stderr, "\nTry '%s --help'.\n", program);
	va_end(list);
	exit(2);
}

__attribute__((noreturn)) static void args_help(const char *program, const char *run, const char *about,
						const struct arg *args, int n)
{
	printf("usage: %s%s", run, program);
	for (int i = 0; i < n; i++)
		printf(args[i].number ? " [%s]" : " %s", args[i].name);
	printf("\n\n%s\n\n", about);
	for (int i = 0; i < n; i++) {
		printf("  %-18s  %s", args[i].name, args[i].about);
		if (args[i].number)
			printf(", %u to %u (default: %u)", args[i].min, args[i].max, *args[i].number);
		puts("");
	}
	printf("  %-18s  print this text and exit\n", "--help");
	exit(0);
}

static void args_number(const char *program, const struct arg *arg, const char *given)
{
	double x = given[0] && given[strspn(given, "0123456789")] == '\0' ? atof(given) : -1;
	if (x < arg->min || x > arg->max)
		args_wrong(program, "%s: '%.40s' is no whole number from %u to %u", arg->name, given, arg->min,
			   arg->max);
	*arg->number = (unsigned)x;
}

/** Reads the n arguments of a program, which are argv[1] and the next. `run`: the command before its name. Ends the
 * program after --help (status 0) and after an error (2). */
static void args_read(int argc, char **argv, const char *run, const char *about, const struct arg *args, int n)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h"))
			args_help(argv[0], run, about, args, n);
	for (int i = 1; i < argc; i++) {
		if (argv[i][0] == '-' && !(argv[i][1] >= '0' && argv[i][1] <= '9'))
			args_wrong(argv[0], "unknown option %s", argv[i]);
		if (i > n)
			args_wrong(argv[0], "unexpected argument '%s'", argv[i]);
		if (args[i - 1].number)
			args_number(argv[0], &args[i - 1], argv[i]);
	}
	for (int i = argc > 1 ? argc - 1 : 0; i < n; i++)
		if (!args[i].number)
			args_wrong(argv[0], "%s is missing", args[i].name);
}

#endif
