/* SPDX-License-Identifier: BSD-3-Clause */
/** Determines rank and world size, joins the group and reports its errors. Main thread. */
#include "group.h"
#include "apps/farcall/commands.h"
#include "control/launcher.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *group_security_words[] = {"default", "none", NULL};

bool group_has_rank(const struct group *g)
{
	char text[LAUNCHER_TEXT_MAX];
	return g->rank_flag != GROUP_RANK_UNSET || launcher_env("RANK", text) != NULL;
}

static int env_number(const struct group *g, const char *name, const char *flag, int *out)
{
	char room[LAUNCHER_TEXT_MAX];
	const char *text = launcher_env(name, room);
	if (text == NULL) {
		fprintf(stderr, "%s: %s is not set: start it under 'farcall run', or give %s\n", g->program, name,
			flag);
		return -EINVAL;
	}
	char *end;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (errno || *end || v < 0 || v > PS_WORLD_MAX) {
		fprintf(stderr, "%s: %s is '%s', not a number in [0, %d]\n", g->program, name, text, PS_WORLD_MAX);
		return -EINVAL;
	}
	*out = (int)v;
	return 0;
}

int group_identify(struct group *g)
{
	char text[LAUNCHER_TEXT_MAX];
	const char *size = g->world_flag ? NULL : launcher_env("WORLD_SIZE", text);
	g->rank = (int)g->rank_flag;
	g->world = (int)g->world_flag;
	g->dynamic = size && strcmp(size, "dynamic") == 0;
	if (g->dynamic) {
		g->world = FAR_WORLD_DYNAMIC;
		if (!group_has_rank(g))
			g->rank = FAR_RANK_ANY;
		else if (g->rank_flag == GROUP_RANK_UNSET && env_number(g, "RANK", "--rank", &g->rank))
			return -EINVAL;
		return 0;
	}
	if (g->rank_flag == GROUP_RANK_UNSET && env_number(g, "RANK", "--rank", &g->rank))
		return -EINVAL;
	if (g->world_flag == 0 && env_number(g, "WORLD_SIZE", "--world-size", &g->world))
		return -EINVAL;
	if (g->rank < g->world)
		return 0;
	fprintf(stderr, "%s: rank %d is not below the world size %d\n", g->program, g->rank, g->world);
	return -EINVAL;
}

/* Over tcp:// rank 0 has the store; else a client, or a server of another number, may have that rank already. */
static bool has_store(const struct group *g)
{
	const char *url = g->init_method ? g->init_method : getenv("FAR_INIT_METHOD");
	return g->rank == 0 && !(url && (strncmp(url, "file://", 7) == 0 || strncmp(url, "etcd://", 7) == 0));
}

int group_enter(struct group *g, unsigned shards, const struct far_function *functions, size_t n)
{
	struct far_opts opts = {.init_method = g->init_method,
				.functions = functions,
				.functions_n = n,
				.nic = g->nic,
				.security = g->security == GROUP_SECURITY_NONE ? "none" : NULL,
				.shards = shards};
	int rank = g->dynamic && !has_store(g) ? FAR_RANK_ANY : g->rank;
	snprintf(g->name, sizeof g->name, g->rank < 0 ? "client" : "worker%d", g->rank);
	struct far_err err;
	const char *file = g->health_file ? g->health_file : getenv(HEALTH_ENV);
	int number = g->rank < 0 ? 0 : g->rank;
	if (health_begin(g->program, file, number, g->dynamic ? number + 1 : g->world, &g->health))
		return -EIO;
	if (far_init_rpc(g->rank < 0 ? "client%d" : g->name, rank, g->world, &opts, &g->agent, &err) != FAR_OK) {
		group_complain(g, &err);
		health_end(g->health);
		g->health = NULL;
		return -EIO;
	}
	struct far_worker_info self;
	far_worker_self(g->agent, &self);
	memcpy(g->name, self.name, sizeof g->name);
	int rc = health_joined(g->health, g->agent);
	if (rc == 0)
		return 0;
	fprintf(stderr, "%s: no thread for the health file: %s\n", g->program, strerror(-rc));
	group_leave(g, false, NULL);
	return -EIO;
}

enum far_status group_leave(struct group *g, bool gracefully, struct far_err *err)
{
	health_leaving(g->health);
	enum far_status status = gracefully ? far_shutdown(g->agent, 0, err) : far_shutdown_local(g->agent, err);
	health_end(g->health);
	g->health = NULL;
	g->agent = NULL;
	return status;
}

/* One that was lost because it lost another left in order: both are in the list. */
static void complain_lost(const struct group *g)
{
	int n = 0;
	for (int i = 0; i < g->world; i++) {
		struct far_worker_info info;
		if (far_worker_by_rank(g->agent, i, &info, NULL) != FAR_OK || info.alive)
			continue;
		if (n++ == 0)
			fprintf(stderr, "%s: worker%d: lost are", g->program, g->rank);
		fprintf(stderr, "%s \"%s\" (rank %d)", n > 1 ? "," : "", info.name, i);
	}
	if (n)
		fprintf(stderr, "; see their last log lines\n");
}

int group_complain(const struct group *g, const struct far_err *err)
{
	fprintf(stderr, "%s: %s: ", g->program, g->name);
	far_err_print(stderr, err);
	if (err->status != FAR_PEER_LOST && err->status != FAR_SHUTDOWN) /* a server that stops leaves */
		return 1;
	if (g->agent)
		complain_lost(g);
	return EXIT_PEER_LOST;
}
