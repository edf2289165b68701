/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall pserver`: a server of a parameter server, which runs until it is stopped. Main thread. */
#include "apps/farcall/commands.h"
#include "service.h"
#include "tenants.h"
#include <errno.h>
#include <farcall/plugin.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_NS (200 * FAR_MS) /* between looks at the signals while another server is awaited */

struct service {
	struct group g;
	const char *name, *load, *functions;
	const char *tenants_text;
	uint64_t servers, shards, memory;
	struct tenants tenants;
	struct far_ps_server *server;
};

static sem_t stopped; /* posted by the signal handler */

static void on_signal(int sig)
{
	(void)sig;
	sem_post(&stopped);
}

/* A second signal kills as usual. */
static void catch_signals(void)
{
	struct sigaction action;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_signal;
	action.sa_flags = (int)SA_RESETHAND;
	sem_init(&stopped, 0, 0);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

int service_complain(const struct group *g, const struct far_err *err)
{
	fprintf(stderr, "%s: %s: ", g->program, g->name);
	far_err_print(stderr, err);
	return 1;
}

/* In a dynamic group the other servers may come later. CANCELLED: a signal has come before. */
static enum far_status await_server(struct service *s, const char *name, struct far_err *err)
{
	enum far_status status = FAR_TIMEOUT;
	while (s->g.dynamic && status == FAR_TIMEOUT) {
		if (sem_trywait(&stopped) == 0)
			return FAR_CANCELLED;
		status = far_worker_wait(s->g.agent, name, LOOK_NS, NULL, err);
	}
	return s->g.dynamic ? status : FAR_OK;
}

/* Serves with all servers. */
static enum far_status start(struct service *s, struct far_err *err)
{
	const char **names = calloc(s->servers, sizeof *names);
	char(*text)[32] = calloc(s->servers, sizeof *text);
	enum far_status status = names && text ? FAR_OK : FAR_RESOURCE;
	if (status)
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory"};
	for (uint64_t i = 0; !status && i < s->servers; i++) {
		snprintf(text[i], sizeof text[i], "worker%d", (int)i);
		names[i] = text[i];
		status = await_server(s, names[i], err);
	}
	struct far_ps_serve_opts opts = {
		.servers = names, .servers_n = s->servers, .tenants = s->tenants.at, .tenants_n = s->tenants.n};
	if (!status)
		status = far_ps_serve(s->g.agent, s->name, &opts, &s->server, err);
	free(names);
	free(text);
	return status;
}

static enum far_status load(struct service *s, struct far_err *err)
{
	struct far_ps *ps;
	struct far_ps_saved loaded;
	enum far_status status = far_ps_open(s->g.agent, s->name, NULL, &ps, err);
	if (status)
		return status;
	status = far_ps_load(ps, s->load, NULL, &loaded, err);
	far_ps_close(ps);
	if (status)
		return status;
	printf("loaded %llu tables, %llu rows", (unsigned long long)loaded.tables, (unsigned long long)loaded.rows);
	if (loaded.refused)
		printf("; no room for %llu of them", (unsigned long long)loaded.refused);
	putchar('\n');
	return FAR_OK;
}

/* Until a signal. Not in far_serve(): a group whose other members serve ends with the first client that leaves. */
static enum far_status run(struct service *s, struct far_err *err)
{
	enum far_status status = start(s, err);
	if (!status && s->load && s->g.rank == 0)
		status = load(s, err);
	if (status)
		return status;
	printf("%s serves \"%s\" with %u shards\n", s->g.name, s->name, (unsigned)s->shards);
	fflush(stdout);
	while (sem_wait(&stopped) && errno == EINTR)
		;
	return FAR_OK;
}

static int serve_tables(struct service *s)
{
	struct far_err err;
	if (group_enter(&s->g, (unsigned)s->shards, NULL, 0))
		return 1;
	catch_signals();
	enum far_status status = s->functions ? far_plugin_load(s->g.agent, s->functions, &err) : FAR_OK;
	if (!status)
		status = run(s, &err);
	if (status == FAR_CANCELLED)
		status = FAR_OK;
	if (status)
		service_complain(&s->g, &err);
	if (s->server)
		(void)far_ps_server_stop(s->server, NULL);
	(void)group_leave(&s->g, false, NULL);
	far_ps_server_free(s->server);
	return status ? 1 : 0;
}

int cmd_pserver(int argc, char **argv)
{
	static struct service s;
	s = (struct service){.g = {.program = "farcall pserver", .rank_flag = GROUP_RANK_UNSET},
			     .name = SERVICE_NAME,
			     .servers = 1,
			     .shards = 1};
	const struct option_spec specs[] = {
		{"servers", 0, OPTION_COUNT, &s.servers, 1, PS_WORLD_MAX - 1, "N",
		 "ranks 0 to N-1 of the group are servers, the others clients (default 1)", NULL},
		{"shards", 0, OPTION_COUNT, &s.shards, 1, PS_SHARDS_MAX, "N",
		 "shards of this server; the keys are divided among all shards (default 1)", NULL},
		{"name", 0, OPTION_TEXT, &s.name, 0, 0, "NAME", "name of the service (default \"" SERVICE_NAME "\")",
		 NULL},
		{"load", 0, OPTION_TEXT, &s.load, 0, 0, "DIR",
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
		{"functions", 0, OPTION_TEXT, &s.functions, 0, 0, "FILE.so",
		 "plugin that registers functions for far_ps_call() and optimizers for tables; FAR_PLUGIN_PATH must "
		 "list it "
		 "or its directory",
		 NULL},
		SERVICE_GROUP_OPTIONS(s.g),
		{"health", 0, OPTION_TEXT, &s.g.health_file, 0, 0, "FILE",
		 "health file for 'farcall health', one per member (default: FAR_HEALTH_FILE, or none)", NULL},
		{"", 0, OPTION_FLAG, NULL, 0, 0, NULL, NULL, NULL}};
	const struct option_command command = {
		s.g.program, "[OPTIONS]",
		"Serves tables of a parameter server (<farcall/ps.h>) until SIGINT or SIGTERM. Clients may leave, die "
		"and come again; one leaves with far_shutdown_local(), as far_shutdown() waits for the end of the "
		"group. "
		"They make tables with far_ps_table_create(); 'farcall tables' shows, saves, loads and drops them. "
		"Every "
		"server must be given the same --servers, --name, --memory and --tenants. A full table refuses new "
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
		return options_wrong(s.g.program, "unexpected argument '%s'", argv[rest]);
	int status = tenants_read(s.g.program, s.tenants_text, s.memory, &s.tenants);
	if (status)
		return status;
	if (group_identify(&s.g))
		return OPTIONS_EXIT_USAGE;
	if (s.g.rank < 0)
		return options_wrong(s.g.program, "a server of a dynamic group needs its number: give --rank or RANK");
	if ((uint64_t)s.g.rank >= s.servers)
		return options_wrong(s.g.program, "rank %d is a client when there are %d servers; give --servers",
				     s.g.rank, (int)s.servers);
	if (!s.g.dynamic && (uint64_t)s.g.world < s.servers)
		return options_wrong(s.g.program, "a group of %d has no %d servers", s.g.world, (int)s.servers);
	return serve_tables(&s);
}
