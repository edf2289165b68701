/* SPDX-License-Identifier: BSD-3-Clause */
#include "group.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

bool group_has_rank(const struct group *g)
{
	return g->rank_flag != GROUP_RANK_UNSET || getenv("RANK") != NULL;
}

static int env_number(const struct group *g, const char *name, const char *flag, int *out)
{
	const char *text = getenv(name);
	if (text == NULL || *text == '\0') {
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
	g->rank = (int)g->rank_flag;
	g->world = (int)g->world_flag;
	if (g->rank_flag == GROUP_RANK_UNSET && env_number(g, "RANK", "--rank", &g->rank))
		return -EINVAL;
	if (g->world_flag == 0 && env_number(g, "WORLD_SIZE", "--world-size", &g->world))
		return -EINVAL;
	if (g->rank < g->world)
		return 0;
	fprintf(stderr, "%s: rank %d is not below the world size %d\n", g->program, g->rank, g->world);
	return -EINVAL;
}

int group_join(struct group *g, struct ps_service *server, unsigned shards, struct report *report)
{
	struct far_function functions[PS_FUNCTIONS + 1];
	ps_functions(server, functions);
	functions[PS_FUNCTIONS] = report_function(report);
	struct far_opts opts = {.init_method = g->init_method,
				.functions = functions,
				.functions_n = PS_FUNCTIONS + 1,
				.shards = server ? shards : 1};
	char name[32];
	snprintf(name, sizeof name, "worker%d", g->rank);
	struct far_err err;
	if (far_init_rpc(name, g->rank, g->world, &opts, &g->agent, &err) == FAR_OK)
		return 0;
	group_complain(g, &err);
	return -EIO;
}

void group_complain(const struct group *g, const struct far_err *err)
{
	fprintf(stderr, "%s: worker%d: ", g->program, g->rank);
	far_err_print(stderr, err);
}
