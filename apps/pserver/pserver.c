/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall pserver`: a server rank by itself. */
#include "apps/cli/options.h"
#include "apps/farcall/commands.h"
#include "serve.h"

int cmd_pserver(int argc, char **argv)
{
	struct group g = {.program = "farcall pserver", .rank_flag = GROUP_RANK_UNSET};
	uint64_t servers = 1, shards = 1, rows_max = 0, timeout_ns = 10 * FAR_SEC;
	bool json = false;
	const struct option_spec specs[] = {
		{"servers", 0, OPTION_COUNT, &servers, 1, PS_WORLD_MAX - 1, "N",
		 "ranks 0 to N-1 of the group are servers, the others workers (default 1)", NULL},
		{"shards", 0, OPTION_COUNT, &shards, 1, PS_SHARDS_MAX, "N",
		 "shards of each server; the keys are divided among them (default 1)", NULL},
		{"init-method", 0, OPTION_TEXT, &g.init_method, 0, 0, "URL",
		 "store of the group: tcp://HOST:PORT, or env:// (default)", NULL},
		{"rank", 0, OPTION_COUNT, &g.rank_flag, 0, PS_WORLD_MAX - 1, "N", "this member (default: RANK)", NULL},
		{"world-size", 0, OPTION_COUNT, &g.world_flag, 1, PS_WORLD_MAX, "N",
		 "members of the group (default: WORLD_SIZE)", NULL},
		{"nic", 0, OPTION_TEXT, &g.nic, 0, 0, "NAME", "driver to use (default: the best available)", NULL},
		{"security", 0, OPTION_CHOICE, &g.security, 0, 0, "WORD",
		 "none: the group has no key and trusts every process that reaches it (default: FAR_KEY_FILE, or a key "
		 "for one host)",
		 group_security_words},
		{"health", 0, OPTION_TEXT, &g.health_file, 0, 0, "FILE",
		 "health file for 'farcall health', one per member (default: FAR_HEALTH_FILE, or none)", NULL},
		{"rows-max", 0, OPTION_COUNT, &rows_max, 1, PS_ROWS_MAX, "N", "bound on the rows of each table", NULL},
		{"timeout", 0, OPTION_DURATION, &timeout_ns, FAR_MS, 3600 * FAR_SEC, "TIME",
		 "deadline of a call (default 10s)", NULL},
		{"json", 0, OPTION_FLAG, &json, 0, 0, NULL, "rank 0 prints the workers' report as one JSON object",
		 NULL},
		{"", 0, OPTION_FLAG, NULL, 0, 0, NULL, NULL, NULL}};
	const struct option_command command = {
		g.program, "[OPTIONS]",
		"Serves tables of rows keyed by 64-bit numbers until every worker of the group has left. The workers "
		"are "
		"'farcall train' with a rank of at least --servers, or any program that calls ps::push and ps::pull. "
		"A table is made by its first ps::create, which selects the optimizer: SGD or Adagrad. "
		"Every "
		"member must be given the same --servers and --shards.",
		specs};
	int rest;
	enum options_result result = options_parse(&command, argc, argv, &rest);
	if (result != OPTIONS_GO)
		return result == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(g.program, "unexpected argument '%s'", argv[rest]);
	if (group_identify(&g))
		return OPTIONS_EXIT_USAGE;
	if ((uint64_t)g.rank >= servers)
		return options_wrong(g.program,
				     "rank %d is a worker when there are %d servers; give --servers, or run "
				     "'farcall train' there",
				     g.rank, (int)servers);
	struct serve_options o = {.servers = (int)servers,
				  .shards = (unsigned)shards,
				  .rows_max = (size_t)rows_max,
				  .timeout_ns = timeout_ns,
				  .json = json};
	return serve(&g, &o);
}
