/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A table of values: strings of bytes of different lengths at a parameter server. Worker 0 is the client, all others
 * serve. Main thread of each worker.
 *
 *	farcall run -n 3 -- ./names
 */
#include "args.h"

#include <farcall/farcall.h>
#include <farcall/ps.h>

static enum far_status wait_for(enum far_status begun, struct far_future *const *f, struct far_err *err)
{
	if (begun)
		return begun;
	enum far_status s = far_future_wait(*f, 0, NULL, err);
	far_future_free(*f);
	return s;
}

static enum far_status use(struct far_ps_table *table, struct far_err *err)
{
	static const uint64_t users[] = {7, 42, 99};
	static const char text[] = "AdaGrace";
	static const uint64_t offsets[] = {0, 3, 8}; /* of users 7 and 42 */
	char values[3][16];
	uint32_t lens[3];
	uint8_t status[3];
	struct far_future *f;
	enum far_status s =
		wait_for(far_ps_assign_values(table, users, 2, text, offsets, NULL, NULL, &f, err), &f, err);
	struct far_ps_pull_opts opts = {.timeout_ns = 100 * FAR_MS, .partial = true};
	if (!s)
		s = wait_for(
			far_ps_pull_values(table, users, 3, &opts, values, sizeof values[0], lens, status, &f, err), &f,
			err);
	for (int i = 0; i < 3 && !s; i++)
		printf("user %d: %u bytes, \"%.*s\", %s\n", (int)users[i], lens[i], (int)lens[i], values[i],
		       far_ps_status_name(status[i]));
	return s;
}

static enum far_status client(struct far_agent *agent, struct far_err *err)
{
	struct far_ps *ps;
	struct far_ps_table *table = NULL;
	struct far_ps_schema schema = {.value_max = 16};
	enum far_status s = far_ps_open(agent, "demo", NULL, &ps, err);
	if (s)
		return s;
	s = far_ps_table_create(ps, "names", &schema, 0, &table, err);
	if (!s)
		s = use(table, err);
	far_ps_table_free(table);
	far_ps_close(ps);
	return s;
}

/* Until the client leaves. */
static enum far_status server(struct far_agent *agent, int servers, struct far_ps_server **out, struct far_err *err)
{
	char text[FAR_SHARDS_MAX][16];
	const char *names[FAR_SHARDS_MAX];
	for (int i = 0; i < servers; i++) {
		snprintf(text[i], sizeof text[i], "worker%d", i + 1);
		names[i] = text[i];
	}
	struct far_ps_serve_opts opts = {.servers = names, .servers_n = (size_t)servers};
	enum far_status s = far_ps_serve(agent, "demo", &opts, out, err);
	if (!s)
		s = far_serve(agent, 0, err);
	return s ? s : far_ps_server_stop(*out, err);
}

int main(int argc, char **argv)
{
	struct far_agent *agent;
	struct far_ps_server *served = NULL;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 3 -- ", "A table of values.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, NULL, &agent, &err))
		return far_err_print(stderr, &err);
	int servers = far_world_size(agent) - 1;
	if (servers < 1 || servers > FAR_SHARDS_MAX) {
		fprintf(stderr, "names: give it 2 to %d workers: farcall run -n 3 -- ./names\n", FAR_SHARDS_MAX + 1);
		far_shutdown(agent, 0, NULL);
		return FAR_INVALID;
	}
	bool serves = far_self(agent).worker > 0;
	enum far_status s = serves ? server(agent, servers, &served, &err) : client(agent, &err);
	if (s)
		far_err_print(stderr, &err);
	if (far_shutdown(agent, 0, &err))
		s = far_err_print(stderr, &err);
	far_ps_server_free(served);
	return s;
}
