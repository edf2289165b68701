/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A function that runs at the rows of a parameter server: each user may make three requests. Worker 0 is the client,
 * all others serve. Main thread of each worker.
 *
 *	farcall run -n 3 -- ./quotas
 */
#include "args.h"

#include <farcall/farcall.h>
#include <farcall/ps.h>

/* The row is what the user has left. Atomic: no other request changes the row meanwhile. */
static enum far_status take(const struct far_ps_fn_args *a, void *user)
{
	float wanted;
	(void)user;
	if (a->arg_len != sizeof wanted)
		return FAR_BAD_ARGS;
	memcpy(&wanted, a->arg, sizeof wanted);
	if (a->row[0] < wanted)
		return FAR_BUSY; /* of this key; its row stays as it is */
	a->row[0] -= wanted;
	a->values[0] = (double)a->row[0];
	return FAR_OK;
}

/* For a reduction: a function that reads. */
static enum far_status left(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->values[0] = (double)a->row[0];
	return FAR_OK;
}

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
	static const uint64_t rounds[][2] = {{7, 42}, {7, 8}, {7, 42}, {7, 42}};
	static const uint64_t users[] = {7, 8, 42};
	struct far_future *f;
	const float one = 1;
	double values[2];
	uint8_t status[2], errors[2];
	enum far_status s = FAR_OK;
	struct far_ps_call_opts opts = {.make = true, .arg = &one, .arg_len = sizeof one, .width = 1, .errors = errors};
	for (int r = 0; r < 4 && !s; r++) {
		s = wait_for(far_ps_call(table, "take", rounds[r], 2, &opts, values, status, &f, err), &f, err);
		for (int i = 0; i < 2 && !s; i++) {
			printf("user %d: ", (int)rounds[r][i]);
			if (status[i] == FAR_PS_FAILED)
				printf("%s\n", far_status_name((enum far_status)errors[i]));
			else
				printf("%g left\n", values[i]);
		}
	}
	struct far_ps_call_opts sum = {.read = true, .width = 1, .reduce = FAR_PS_ADD};
	if (!s)
		s = wait_for(far_ps_call(table, "left", users, 3, &sum, values, NULL, &f, err), &f, err);
	if (!s)
		printf("all: %g left\n", values[0]);
	return s;
}

static enum far_status client(struct far_agent *agent, struct far_err *err)
{
	struct far_ps *ps;
	struct far_ps_table *table = NULL;
	struct far_ps_schema schema = {.dim = 1, .init = {FAR_PS_INIT_CONSTANT, 3, 0, 0}};
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	enum far_status s = far_ps_open(agent, "quotas", NULL, &ps, err);
	if (s)
		return s;
	s = far_ps_table_create(ps, "users", &schema, 0, &table, err);
	if (!s)
		s = use(table, err);
	far_ps_table_free(table);
	far_ps_close(ps);
	return s;
}

/* Until the client leaves. */
static enum far_status server(struct far_agent *agent, struct far_ps_server **out, struct far_err *err)
{
	static const struct far_ps_fn functions[] = {{.name = "take", .run = take, .width = 1},
						     {.name = "left", .run = left, .width = 1, .reads = true}};
	const char *names[] = {"worker1", "worker2"};
	struct far_ps_serve_opts opts = {.servers = names, .servers_n = 2};
	enum far_status s = FAR_OK;
	for (int i = 0; i < 2 && !s; i++)
		s = far_ps_fn_register(&functions[i], err);
	if (!s)
		s = far_ps_serve(agent, "quotas", &opts, out, err);
	if (!s)
		s = far_serve(agent, 0, err);
	return s ? s : far_ps_server_stop(*out, err);
}

int main(int argc, char **argv)
{
	struct far_agent *agent;
	struct far_ps_server *served = NULL;
	struct far_err err = {0};
	args_read(argc, argv, "farcall run -n 3 -- ", "Functions that run at the rows of a parameter server.", NULL, 0);
	if (far_init_rpc("worker%d", FAR_RANK_ENV, FAR_WORLD_ENV, NULL, &agent, &err))
		return far_err_print(stderr, &err);
	if (far_world_size(agent) != 3) {
		fprintf(stderr, "quotas: give it 3 workers: farcall run -n 3 -- ./quotas\n");
		far_shutdown(agent, 0, NULL);
		return FAR_INVALID;
	}
	bool serves = far_self(agent).worker > 0;
	enum far_status s = serves ? server(agent, &served, &err) : client(agent, &err);
	if (s)
		far_err_print(stderr, &err);
	if (far_shutdown(agent, 0, &err))
		s = far_err_print(stderr, &err);
	far_ps_server_free(served);
	return s;
}
