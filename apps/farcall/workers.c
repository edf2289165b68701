/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall workers`, which lists this user's workers on this host, and `farcall debug`, which shows what one of them
 * waits for. Both read the admin sockets. Main thread. */
#include "admin_group.h"
#include "apps/cli/options.h"
#include "commands.h"
#include "control/admin.h"

#include <farcall/status.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS "farcall workers"
#define DEBUG   "farcall debug"

static int no_arguments(const char *name, int rest, int argc, char **argv)
{
	return rest < argc ? options_wrong(name, "%s: arguments are not expected", argv[rest]) : 0;
}

static void print_worker(FILE *out, const struct admin_worker *w)
{
	char worker[FAR_NAME_MAX] = "", group[FAR_NAME_MAX] = "", state[16] = "", store[ADMIN_STORE_MAX] = "";
	uint64_t pid = 0, rank = 0, world = 0, shards = 0, uptime = 0, port = 0;
	if (!w->text) {
		fprintf(out, "%-18s %s\n", strrchr(w->at.sun_path, '/') + 1, w->why);
		return;
	}
	admin_string(w->text, "worker", worker, sizeof worker);
	admin_string(w->text, "group", group, sizeof group);
	admin_string(w->text, "state", state, sizeof state);
	admin_string(w->text, "store", store, sizeof store);
	admin_number(w->text, "pid", &pid);
	admin_number(w->text, "rank", &rank);
	admin_number(w->text, "world", &world);
	admin_number(w->text, "shards", &shards);
	admin_number(w->text, "uptime_ns", &uptime);
	admin_number(w->text, "metrics_port", &port);
	fprintf(out, "%-18s %-12s %4" PRIu64 "/%-4" PRIu64 " %8" PRIu64 " %-8s %6" PRIu64 " %8.0fs  %s", worker, group,
		rank, world, pid, state, shards, (double)uptime / 1e9, store);
	if (port)
		fprintf(out, "  metrics on port %" PRIu64, port);
	fprintf(out, "\n");
}

int cmd_workers(int argc, char **argv)
{
	bool json = false;
	struct admin_choice choice = {0};
	const struct option_spec specs[] = {
		ADMIN_CHOICE_OPTIONS(choice),
		{"json", 0, OPTION_FLAG, &json, 0, 0, NULL, "print an array of objects", NULL},
		{.name = ""}};
	const struct option_command command = {WORKERS, "[OPTIONS]",
					       "Lists the workers of this user on this host: name, group, rank and "
					       "world size, process, state, shards,\n"
					       "time since the start, store. A worker that does not answer is listed "
					       "with the reason. Reads the admin\n"
					       "sockets in the runtime directory (FAR_RUNTIME_DIR).",
					       specs};
	int rest;
	unsigned live = 0;
	struct admin_workers w;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	int wrong = no_arguments(WORKERS, rest, argc, argv);
	if (wrong)
		return wrong;
	if (admin_find(&w, WORKERS))
		return 1;
	admin_request(&w, "info");
	if (json)
		printf("[");
	for (unsigned i = 0; i < w.n; i++) {
		const struct admin_worker *one = &w.of[i];
		if (one->gone || (one->text && !admin_is_chosen(one, &choice)))
			continue;
		if (json && one->text)
			printf("%s%.*s", live ? "," : "", (int)strcspn(one->text, "\n"), one->text);
		else if (json)
			printf("%s{\"socket\":\"%s\",\"error\":\"%s\"}", live ? "," : "", one->at.sun_path, one->why);
		else if (!live)
			printf("%-18s %-12s %9s %8s %-8s %6s %9s  %s\n", "WORKER", "GROUP", "RANK", "PID", "STATE",
			       "SHARDS", "UPTIME", "STORE");
		if (!json)
			print_worker(stdout, one);
		live++;
	}
	if (json)
		printf("]\n");
	else if (!live)
		printf("no workers of this user%s in %s\n",
		       choice.group || choice.store ? " with the group and the store given" : "", w.dir);
	admin_free(&w);
	return 0;
}

/* ---- debug ---- */

/* Is it the worker of that name, process or socket. One that does not answer is found by its socket, admin-PID-N. */
static bool is_worker(const struct admin_worker *one, const char *which, const struct admin_choice *choice)
{
	const char *socket = strrchr(one->at.sun_path, '/') + 1, *of_process = socket + sizeof ADMIN_PREFIX - 1;
	char worker[FAR_NAME_MAX];
	size_t digits = strspn(which, "0123456789");
	if (one->gone || (one->text && !admin_is_chosen(one, choice)))
		return false;
	if (strcmp(socket, which) == 0 ||
	    (!which[digits] && strncmp(of_process, which, digits) == 0 && of_process[digits] == '-'))
		return true;
	return one->text && admin_string(one->text, "worker", worker, sizeof worker) && strcmp(worker, which) == 0;
}

/* Indents JSON: one member of an object a line, innermost objects on one line. */
static void print_indented(const char *text)
{
	unsigned depth = 0;
	bool quoted = false;
	for (const char *c = text; *c; c++) {
		const char *close = c + strcspn(c + 1, "{}[]") + 1;
		if (*c == '"' && (c == text || c[-1] != '\\'))
			quoted = !quoted;
		bool inner = !quoted && (*c == '{' || *c == '[') && (*close == '}' || *close == ']');
		if (inner) {
			printf("%.*s", (int)(close - c + 1), c);
			c = close;
			continue;
		}
		if (!quoted && (*c == '}' || *c == ']'))
			printf("\n%*s", (int)(2 * --depth), "");
		putchar(*c);
		if (!quoted && (*c == '{' || *c == '['))
			depth++;
		if (!quoted && strchr("{[,", *c))
			printf("\n%*s", (int)(2 * depth), "");
	}
}

static int debug_one(struct admin_workers *w, const char *which, const struct admin_choice *choice, const char *request,
		     bool indent)
{
	struct admin_worker *one = NULL;
	unsigned n = 0;
	admin_request(w, "info");
	for (unsigned i = 0; i < w->n; i++)
		if (is_worker(&w->of[i], which, choice)) {
			one = &w->of[i];
			n++;
		}
	if (!one) {
		fprintf(stderr, DEBUG ": no worker \"%s\" of this user%s in %s; `" WORKERS "` lists them\n", which,
			choice->group || choice->store ? " with the group and the store given" : "", w->dir);
		return 1;
	}
	if (n > 1) {
		fprintf(stderr,
			DEBUG
			": %u workers are \"%s\"; give --group, --store, or the process number or socket of one:\n",
			n, which);
		for (unsigned i = 0; i < w->n; i++)
			if (is_worker(&w->of[i], which, choice)) {
				fprintf(stderr, "  %-18s ", strrchr(w->of[i].at.sun_path, '/') + 1);
				print_worker(stderr, &w->of[i]);
			}
		return 1;
	}
	struct admin_workers alone = {.of = one, .n = 1};
	if (one->text)
		admin_request(&alone, request);
	if (!one->text) {
		fprintf(stderr, DEBUG ": worker \"%s\" %s\n", which, one->why);
		return 1;
	}
	if (indent)
		print_indented(one->text);
	else
		fputs(one->text, stdout);
	return 0;
}

int cmd_debug(int argc, char **argv)
{
	static const char *formats[] = {"text", "json", "prometheus", "openmetrics", NULL};
	int metrics = -1;
	bool json = false;
	struct admin_choice choice = {0};
	char request[32] = "debug";
	const struct option_spec specs[] = {
		ADMIN_CHOICE_OPTIONS(choice),
		{"json", 0, OPTION_FLAG, &json, 0, 0, NULL, "print JSON on one line", NULL},
		{"metrics", 0, OPTION_CHOICE, &metrics, 0, 0, "FORMAT",
		 "print the worker's metrics instead: text, json, prometheus or openmetrics", formats},
		{.name = ""}};
	const struct option_command command = {
		DEBUG, "[OPTIONS] WORKER",
		"Shows what a worker of this user on this host waits for: for each shard its oldest calls and open\n"
		"requests, with function, peer, age and the time left; a shard that does not answer, and the handler "
		"that\n"
		"runs there; members that have not joined or are lost. WORKER: its name, process number or socket.",
		specs};
	int rest;
	struct admin_workers w;
	enum options_result parsed = options_parse(&command, argc, argv, &rest);
	if (parsed != OPTIONS_GO)
		return parsed == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest + 1 != argc)
		return options_wrong(DEBUG, rest == argc ? "the worker is missing; `" WORKERS "` lists them"
							 : "one worker is expected");
	if (metrics >= 0)
		snprintf(request, sizeof request, "metrics %s", formats[metrics]);
	if (admin_find(&w, DEBUG))
		return 1;
	int status = debug_one(&w, argv[rest], &choice, request, metrics < 0 && !json);
	admin_free(&w);
	return status;
}
