/* SPDX-License-Identifier: BSD-3-Clause */
/** A client of `farcall pserver`, for pserver.sh: adds 1 to both elements of keys 0 to 99 of table "counts".
 *
 * usage: ps_client once | again | call | values | serve     values: puts a value into the table
 * "names", beside one whose name has two lines. again: adds until it
 * is killed, and prints a line when it has begun; call: by the servers' function "plus", in a table of their optimizer
 * "halve", which then halves one row. serve: is the one server of a list of servers of its own, until it is killed.
 * Main thread of each process. */
#include "check.h"

#include <farcall/ps.h>
#include <unistd.h>

enum { KEYS = 100 };

/* With what `farcall pserver --functions` has loaded. */
static void call(struct far_ps *ps, const uint64_t *keys, const float *grads)
{
	struct far_ps_schema schema = {.dim = 2, .rule = {.kind = FAR_PS_USER, .rate = 1, .name = "halve"}};
	struct far_ps_call_opts opts = {.make = true, .width = 1};
	struct far_ps_table *table;
	struct far_future *f;
	struct far_err err;
	double values[KEYS];
	float row[2];
	CHECK_STATUS(far_ps_table_create(ps, "halves", &schema, 0, &table, &err), FAR_OK, &err);
	for (int r = 1; r <= 3; r++) {
		CHECK_STATUS(far_ps_call(table, "plus", keys, KEYS, &opts, values, NULL, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
		far_future_free(f);
		for (int i = 0; i < KEYS; i++)
			CHECK(values[i] == r);
	}
	CHECK_STATUS(far_ps_push(table, keys, 1, grads, NULL, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK_STATUS(far_ps_pull(table, keys, 1, NULL, row, NULL, &f, &err), FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	CHECK(row[0] == 1.5f);
	far_ps_table_free(table);
}

static void put_value(struct far_ps *ps)
{
	struct far_ps_schema schema = {.value_max = 16};
	struct far_ps_table *table;
	struct far_future *f;
	struct far_err err;
	CHECK_STATUS(far_ps_table_create(ps, "two\nlines", &schema, 0, &table, &err), FAR_OK, &err);
	far_ps_table_free(table);
	CHECK_STATUS(far_ps_table_create(ps, "names", &schema, 0, &table, &err), FAR_OK, &err);
	CHECK_STATUS(
		far_ps_assign_values(table, (uint64_t[]){7}, 1, "A\"da\n", (uint64_t[]){0, 5}, NULL, NULL, &f, &err),
		FAR_OK, &err);
	CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(f);
	far_ps_table_free(table);
}

static void serve(struct far_agent *agent)
{
	const char *const servers[] = {"worker0", "worker1"};
	struct far_ps_serve_opts opts = {.servers = servers, .servers_n = 2};
	struct far_ps_server *server;
	struct far_err err;
	CHECK_STATUS(far_ps_serve(agent, "default", &opts, &server, &err), FAR_OK, &err);
	puts("serves");
	fflush(stdout);
	pause();
}

int main(int argc, char **argv)
{
	struct far_ps_schema schema = {.dim = 2};
	struct far_err err;
	struct far_ps *ps;
	struct far_ps_table *table;
	struct far_future *f;
	uint64_t keys[KEYS];
	float grads[2 * KEYS];
	CHECK(argc == 2);
	for (int i = 0; i < KEYS; i++) {
		keys[i] = (uint64_t)i;
		grads[2 * i] = grads[2 * i + 1] = -1;
	}
	struct far_agent *agent = check_join(NULL);
	if (!strcmp(argv[1], "serve"))
		serve(agent);
	far_ps_rule_defaults(&schema.rule, FAR_PS_SGD);
	schema.rule.rate = 1;
	CHECK_STATUS(far_ps_open(agent, "default", NULL, &ps, &err), FAR_OK, &err);
	if (!strcmp(argv[1], "call"))
		call(ps, keys, grads);
	if (!strcmp(argv[1], "values"))
		put_value(ps);
	CHECK_STATUS(far_ps_table_create(ps, "counts", &schema, 0, &table, &err), FAR_OK, &err);
	for (int pushes = 0; pushes == 0 || strcmp(argv[1], "again") == 0; pushes++) {
		CHECK_STATUS(far_ps_push(table, keys, KEYS, grads, NULL, NULL, &f, &err), FAR_OK, &err);
		CHECK_STATUS(far_future_wait(f, 0, NULL, &err), FAR_OK, &err);
		far_future_free(f);
		if (pushes == 0) {
			puts("pushed");
			fflush(stdout);
		}
	}
	far_ps_table_free(table);
	far_ps_close(ps);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}
