/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall pserver`: a server of a parameter server, which runs until it is stopped. Main thread. */
#include "apps/farcall/commands.h"
#include "serve.h"
#include "service.h"

struct command {
	struct group group;
	struct serve_options serve;
	const char *tenants_text;
	uint64_t shards, memory;
	struct tenants tenants;
	struct agreement agreement;
};

int cmd_pserver(int argc, char **argv)
{
	static struct command s;
	s = (struct command){.group = {.program = "farcall pserver", .rank_flag = GROUP_RANK_UNSET},
			     .serve = {.service = SERVICE_NAME, .servers = 1},
			     .shards = 1};
	const struct option_spec specs[] = {
		{"servers", 0, OPTION_COUNT, &s.serve.servers, 1, PS_WORLD_MAX - 1, "N",
		 "ranks 0 to N-1 of the group are servers, the others clients (default 1)", NULL},
		{"shards", 0, OPTION_COUNT, &s.shards, 1, PS_SHARDS_MAX, "N",
		 "shards of this server; the keys are divided among all shards (default 1)", NULL},
		{"name", 0, OPTION_TEXT, &s.serve.service, 0, 0, "NAME",
		 "name of the service (default \"" SERVICE_NAME "\")", NULL},
		{"load", 0, OPTION_TEXT, &s.serve.load, 0, 0, "DIR",
		 "rank 0 loads the tables of this directory, for all servers, before it prints that it serves; let "
		 "clients come then",
		 NULL},
		{"memory", 0, OPTION_SIZE, &s.memory, 1, UINT64_MAX, "SIZE",
		 "bound of the keys, rows and optimizer state of all tables on all servers (default: none)", NULL},
		{"tenants", 0, OPTION_TEXT, &s.tenants_text, 0, 0, "LIST",
		 "bounds of the tables whose names begin with a prefix: PREFIX:rows=N:bytes=SIZE:tables=N, of these "
		 "one "
		 "or more, with commas between the prefixes",
		 NULL},
		{"functions", 0, OPTION_TEXT, &s.serve.functions, 0, 0, "FILE.so",
		 "plugin that registers functions for far_ps_call() and optimizers for tables; FAR_PLUGIN_PATH must "
		 "list it "
		 "or its directory",
		 NULL},
		SERVICE_GROUP_OPTIONS(s.group),
		{"health", 0, OPTION_TEXT, &s.group.health_file, 0, 0, "FILE",
		 "health file for 'farcall health', one per member (default: FAR_HEALTH_FILE, or none)", NULL},
		{"", 0, OPTION_FLAG, NULL, 0, 0, NULL, NULL, NULL}};
	const struct option_command command = {
		s.group.program, "[OPTIONS]",
		"Serves tables of a parameter server (<farcall/ps.h>) until SIGINT or SIGTERM. Clients may leave, die "
		"and come again; one leaves with far_shutdown_local(), as far_shutdown() waits for the end of the "
		"group. "
		"They make tables with far_ps_table_create(); 'farcall tables' shows, saves, loads and drops them. "
		"Every "
		"server must be given the same --servers, --name, --memory, --tenants and --functions; one that "
		"differs ends with an error. A full table refuses new "
		"keys, "
		"or evicts rows. FAR_IDLE=busy keeps the shards awake, FAR_PIN_CPU pins them, FAR_METRICS serves the "
		"tables' metrics. With WORLD_SIZE=dynamic clients join at any time, "
		"without a rank, and the servers go on when all of them have left; else all members of the group join "
		"once before it serves.",
		specs};
	int rest;
	enum options_result result = options_parse(&command, argc, argv, &rest);
	if (result != OPTIONS_GO)
		return result == OPTIONS_DONE ? 0 : OPTIONS_EXIT_USAGE;
	if (rest < argc)
		return options_wrong(s.group.program, "unexpected argument '%s'", argv[rest]);
	int status = tenants_read(s.group.program, s.tenants_text, s.memory, &s.tenants);
	if (status)
		return status;
	if (group_identify(&s.group))
		return OPTIONS_EXIT_USAGE;
	if (s.group.rank < 0)
		return options_wrong(s.group.program,
				     "a server of a dynamic group needs its number: give --rank or RANK");
	if ((uint64_t)s.group.rank >= s.serve.servers)
		return options_wrong(s.group.program, "rank %d is a client when there are %d servers; give --servers",
				     s.group.rank, (int)s.serve.servers);
	if (!s.group.dynamic && (uint64_t)s.group.world < s.serve.servers)
		return options_wrong(s.group.program, "a group of %d has no %d servers", s.group.world,
				     (int)s.serve.servers);
	s.serve.shards = (unsigned)s.shards;
	s.serve.tenants = &s.tenants;
	agree_init(&s.agreement, &(struct agree_options){.service = s.serve.service,
							 .functions = s.serve.functions,
							 .servers = s.serve.servers,
							 .memory = s.memory,
							 .tenants = &s.tenants});
	s.serve.agreement = &s.agreement;
	status = serve(&s.group, &s.serve);
	return status > 128 ? 0 : status; /* a signal is its end */
}
