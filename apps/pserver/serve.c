/* SPDX-License-Identifier: BSD-3-Clause */
/** Serves tables of <farcall/ps.h>; in a training job until every worker has reported. Main thread. */
#include "serve.h"
#include "apps/farcall/commands.h"
#include "stop.h"
#include <farcall/plugin.h>
#include <farcall/ps.h>
#include <stdlib.h>

#define LOOK_NS (100 * FAR_MS)        /* between looks at the members: how late a loss is seen */
#define LONG_NS (24 * 3600 * FAR_SEC) /* of a wait for a signal alone */

/* In a dynamic group the other servers may come later. CANCELLED: a signal has come before. */
static enum far_status await_server(const struct group *g, const char *name, struct far_err *err)
{
	enum far_status status = FAR_TIMEOUT;
	while (g->dynamic && status == FAR_TIMEOUT) {
		if (stop_signal())
			return FAR_CANCELLED;
		status = far_worker_wait(g->agent, name, LOOK_NS, NULL, err);
	}
	return g->dynamic ? status : FAR_OK;
}

/* Serves with all servers. */
static enum far_status start(const struct group *g, const struct serve_options *o, struct far_ps_server **server,
			     struct far_err *err)
{
	const char **names = calloc(o->servers, sizeof *names);
	char(*text)[32] = calloc(o->servers, sizeof *text);
	enum far_status status = names && text ? FAR_OK : FAR_RESOURCE;
	if (status)
		*err = (struct far_err){.status = FAR_RESOURCE, .text = "no memory"};
	for (uint64_t i = 0; !status && i < o->servers; i++) {
		snprintf(text[i], sizeof text[i], "worker%d", (int)i);
		names[i] = text[i];
		status = await_server(g, names[i], err);
	}
	struct far_ps_serve_opts opts = {.servers = names, .servers_n = o->servers};
	if (o->tenants) {
		opts.tenants = o->tenants->at;
		opts.tenants_n = o->tenants->n;
	}
	if (!status)
		status = far_ps_serve(g->agent, o->service, &opts, server, err);
	free(names);
	free(text);
	return status;
}

static enum far_status load(const struct group *g, const struct serve_options *o, struct far_err *err)
{
	struct far_ps *ps;
	struct far_ps_saved loaded;
	enum far_status status = far_ps_open(g->agent, o->service, NULL, &ps, err);
	if (status)
		return status;
	status = far_ps_load(ps, o->load, NULL, &loaded, err);
	far_ps_close(ps);
	if (status)
		return status;
	printf("loaded %llu tables, %llu rows", (unsigned long long)loaded.tables, (unsigned long long)loaded.rows);
	if (loaded.refused)
		printf("; no room for %llu of them", (unsigned long long)loaded.refused);
	putchar('\n');
	return FAR_OK;
}

/* True after a message. */
static bool member_lost(const struct group *g)
{
	for (int rank = 0; rank < g->world; rank++) {
		struct far_worker_info info;
		if (far_worker_by_rank(g->agent, rank, &info, NULL) != FAR_OK || info.alive)
			continue;
		fprintf(stderr, "%s: %s: lost \"%s\" (rank %d) before the job was done; see its last log lines\n",
			g->program, g->name, info.name, rank);
		return true;
	}
	return false;
}

/* Until every worker of the job has reported: 0. */
static int serve_job(const struct group *g, const struct serve_options *o, const struct report *report)
{
	while (report_workers(report) < o->workers) {
		if (member_lost(g))
			return EXIT_PEER_LOST;
		if (stop_wait(LOOK_NS))
			return 128 + stop_signal();
	}
	return 0;
}

/* Not in far_serve(): a group whose other members serve ends with the first client that leaves. */
static int serve_clients(const struct group *g, const struct serve_options *o)
{
	printf("%s serves \"%s\" with %u shards\n", g->name, o->service, o->shards);
	fflush(stdout);
	while (!stop_wait(LONG_NS))
		;
	return 128 + stop_signal();
}

static int run(struct group *g, const struct serve_options *o, const struct report *report,
	       struct far_ps_server **server)
{
	struct far_err err;
	enum far_status status = o->functions ? far_plugin_load(g->agent, o->functions, &err) : FAR_OK;
	if (!status && o->agreement)
		status = await_server(g, "worker0", &err);
	if (!status && o->agreement && agree_check(g, o->agreement))
		return 1;
	if (!status)
		status = start(g, o, server, &err);
	if (!status && o->load && g->rank == 0)
		status = load(g, o, &err);
	if (stop_signal())
		return 128 + stop_signal();
	if (status)
		return group_complain(g, &err);
	if (o->agreement)
		atomic_store(&o->agreement->serves, true);
	return o->workers ? serve_job(g, o, report) : serve_clients(g, o);
}

int serve(struct group *g, const struct serve_options *o)
{
	struct far_err err;
	struct far_ps_server *server = NULL;
	struct report *report = calloc(1, sizeof *report);
	if (report == NULL) {
		fprintf(stderr, "%s: no memory\n", g->program);
		return 1;
	}
	struct far_function functions[2];
	size_t n = 0;
	if (o->workers)
		functions[n++] = report_function(report);
	if (o->agreement)
		functions[n++] = agree_function(o->agreement);
	if (group_enter(g, o->shards, functions, n)) {
		free(report);
		return 1;
	}
	stop_install();
	int status = run(g, o, report, &server);
	stop_restore();
	if (server)
		(void)far_ps_server_stop(server, NULL); /* pending replies end first, with their reason */
	bool done = status == 0;
	if (group_leave(g, done, &err) != FAR_OK && done)
		status = group_complain(g, &err);
	far_ps_server_free(server);
	if (status == 0 && g->rank == 0 && report_print(report, stdout, o->json)) {
		fprintf(stderr, "%s: cannot write the report\n", g->program);
		status = 1;
	}
	free(report);
	return status;
}
