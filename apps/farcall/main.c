/* SPDX-License-Identifier: BSD-3-Clause */
/** The program `farcall`: finds the subcommand and runs it. Main thread. */
#include "apps/cli/options.h"
#include "commands.h"
#include <errno.h>
#include <farcall/version.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct command {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
};

static const struct command commands[] = {
	{"run", cmd_run, "start N workers of a program, here or over ssh, and watch them"},
	{"claim", cmd_claim, "claim a free rank for a container, and start a program with it"},
	{"key", cmd_key, "make the key that a group of several hosts has in common"},
	{"health", cmd_health, "is the worker of this container alive and joined"},
	{"workers", cmd_workers, "list this user's workers on this host"},
	{"top", cmd_top, "watch the workers of a group on this host"},
	{"debug", cmd_debug, "show what a worker waits for, and since when"},
	{"info", cmd_info, "what this machine offers: NIC drivers, which is chosen, and why"},
	{"decode", cmd_decode, "show the packets of a capture, field by field"},
	{"perf", cmd_perf, "measure latency, rate and idle cost beside the floor of the machine"},
	{"pserver", cmd_pserver, "serve tables of a parameter server"},
	{"sign", cmd_sign, "sign plugins that workers send to each other"},
	{"sim", cmd_sim, "run clusters on a simulated network and check every run"},
	{"tables", cmd_tables, "show, save, load and drop tables of a parameter server"},
	{"train", cmd_train, "train a model on a parameter server"},
};
#define COMMANDS (sizeof commands / sizeof *commands)

static void print_help(FILE *f)
{
	fprintf(f, "usage: farcall COMMAND [OPTIONS]\n\n"
		   "Remote procedure calls between polling cores that bypass the kernel.\n\ncommands:\n");
	for (size_t i = 0; i < COMMANDS; i++)
		fprintf(f, "  %-10s %s\n", commands[i].name, commands[i].help);
	fprintf(f, "\n'farcall COMMAND --help' describes one of them; 'farcall --version' prints the\n"
		   "version. The last value of an option that is given twice counts.\n");
}

static int run_command(int argc, char **argv)
{
	const char *words[COMMANDS + 1] = {NULL};
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(argv[0], commands[i].name) == 0)
			return commands[i].run(argc, argv);
		words[i] = commands[i].name;
	}
	const char *near = options_suggest(argv[0], words);
	if (near)
		return options_wrong("farcall", "unknown command '%s'; did you mean '%s'?", argv[0], near);
	return options_wrong("farcall", "unknown command '%s'", argv[0]);
}

/* A closed standard stream would lend its number to the next file that is opened. */
static void open_standard_streams(void)
{
	int fd;
	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		print_help(stderr);
		return OPTIONS_EXIT_USAGE;
	}
	const char *first = argv[1];
	if (strcmp(first, "--version") == 0 || strcmp(first, "-V") == 0) {
		printf("farcall %s\n", FAR_VERSION);
		return 0;
	}
	bool help = strcmp(first, "help") == 0 || strcmp(first, "--help") == 0 || strcmp(first, "-h") == 0;
	if (help && argc == 2) {
		print_help(stdout);
		return 0;
	}
	if (help) { /* "farcall help run" is "farcall run --help" */
		char *swapped[] = {argv[2], (char[]){"--help"}, NULL};
		return run_command(2, swapped);
	}
	if (first[0] == '-')
		return options_wrong("farcall", "unknown option %s; a command comes first", first);
	return run_command(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	open_standard_streams();
	int rc = dispatch(argc, argv);
	if (fflush(stdout) || ferror(stdout)) {
		fprintf(stderr, "farcall: cannot write to standard output: %s\n", strerror(errno));
		return rc ? rc : 1;
	}
	return rc;
}
