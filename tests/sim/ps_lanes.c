/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Small pulls beside a large push of the same client, by the shipped library in a simulated world: between the moment
 * when a pull begins and the moment when the server serves it, the server applies at most one request of the push. It
 * counts requests, not time: a pull sees the first key of each request, and so how many were applied before it. Then
 * the same beside a scan of all rows, as a save reads them: while a pull is under way, at most one step of the scan
 * ends. Then more pulls at once than calls find room towards a worker: each is answered. The requests of a push take
 * the same memory by turns. The test's thread.
 *
 * usage: ps_lanes; exit status: 0; 1: a pull waited for more or was not answered, or too few pulls met the push or the
 * scan
 */
#include "apps/libps/psv_client.h"
#include "apps/libps/psv_env.h"
#include "apps/libps/psv_shard.h"
#include "apps/sim/cluster.h"
#include "base/must.h"

#include <stdio.h>
#include <stdlib.h>

#define MS UINT64_C(1000000)

enum { DIM = 16, REQUESTS = 128, ROUNDS = 2, ENOUGH = 16, AT_ONCE = 1000, WAITING = 128 };
enum { PER_REQUEST = FAR_PS_PART_KEYS, KEYS = REQUESTS * PER_REQUEST };

static struct {
	struct cluster *c;
	struct far_ps_server *server;
	struct far_ps_table *table[ROUNDS];
	uint64_t keys[KEYS], first[REQUESTS];
	float *grads, rows[REQUESTS * DIM];
	uint8_t status[REQUESTS];
	unsigned round;
	bool pushed; /* the push of this round is complete */
	unsigned met, most;
	unsigned steps, beside, most_steps; /* of the scan; pulls beside it, steps that ended during one */
	struct far_future *pull[AT_ONCE];
	float pulled[AT_ONCE][DIM];
	struct far_agent *agent; /* of the client */
} run;

static uint64_t world_now(void)
{
	return cluster_now(run.c);
}

static void wrong(const char *what)
{
	cluster_fail(run.c, "%s", what);
}

/* Requests of the push that the server has applied. */
static uint64_t applied(void)
{
	const struct psv_table *t = atomic_load(&run.server->shard[0].table[run.round]);
	return t->keys_pushed / PER_REQUEST;
}

/* Waits for *f, which the call sets before this function reads it. */
static void await(enum far_status status, struct far_future *const *f, int64_t n, struct far_err *err)
{
	struct far_val v;
	if (status || far_future_wait(*f, FAR_FOREVER, &v, err))
		wrong(err->text);
	else if (v.u.i != n)
		wrong("keys were not answered");
	far_future_free(*f);
}

/* Pulls one after the other, until the push is complete. */
static void pulls(struct cluster_worker *w, void *ctx)
{
	unsigned pulls_n = 0;
	(void)w, (void)ctx;
	while (!run.pushed && !cluster_failure(run.c)) {
		struct far_future *f = NULL;
		struct far_err err;
		uint64_t before = applied(), served = 0;
		await(far_ps_pull(run.table[run.round], run.first, REQUESTS, NULL, run.rows, run.status, &f, &err), &f,
		      REQUESTS, &err);
		for (unsigned i = 0; i < REQUESTS; i++)
			served += run.status[i] == FAR_PS_ROW;
		run.met += before > 0 && served < REQUESTS;
		if (served > before && served - before > run.most)
			run.most = (unsigned)(served - before);
		if (++pulls_n % 3 == 0)
			(void)cluster_sleep(1000 * pulls_n);
	}
}

/* Reads all rows, step by step. */
static void scan(struct cluster_worker *w, void *ctx)
{
	struct far_err err;
	uint64_t rows_n = 0;
	(void)w, (void)ctx;
	for (unsigned p = 0; p < FAR_PS_PARTITIONS && !cluster_failure(run.c); run.steps++) {
		struct far_ps_rows rows;
		if (far_ps_scan(run.table[run.round], &p, 0, &rows, &err)) {
			wrong(err.text);
			return;
		}
		rows_n += rows.n;
		far_ps_rows_free(&rows);
	}
	if (rows_n != KEYS)
		wrong("the scan has not read every row");
	run.pushed = true;
}

static void pulls_beside_scan(struct cluster_worker *w)
{
	run.pushed = false;
	cluster_spawn(w, 0, scan, NULL);
	while (!run.pushed && !cluster_failure(run.c)) {
		struct far_future *f = NULL;
		struct far_err err;
		unsigned before = run.steps;
		await(far_ps_pull(run.table[run.round], run.first, REQUESTS, NULL, run.rows, run.status, &f, &err), &f,
		      REQUESTS, &err);
		run.beside++;
		if (run.steps - before > run.most_steps)
			run.most_steps = run.steps - before;
	}
	while (cluster_apps(w) > 1)
		(void)cluster_sleep(MS);
}

static void unsent(enum far_status status, const void *data, size_t len, const struct far_err *err, void *user)
{
	(void)status, (void)data, (void)len, (void)err, (void)user;
}

static void pulls_at_once(void)
{
	static enum far_status status[AT_ONCE];
	struct far_err err;
	for (unsigned i = 0; i < AT_ONCE; i++) {
		run.pulled[i][0] = -1;
		status[i] = far_ps_pull(run.table[run.round], &run.keys[i], 1, NULL, run.pulled[i], NULL, &run.pull[i],
					&err);
	}
	if (far_msg_send(run.agent, (struct far_to){.worker = 0}, FAR_PS_MESSAGE, "", 1, NULL, unsent, NULL, &err) !=
	    FAR_BUSY)
		wrong("there was room for another call");
	for (unsigned i = 0; i < AT_ONCE; i++) {
		await(status[i], &run.pull[i], 1, &err);
		if (run.pulled[i][0] == -1)
			wrong("a pull has no row");
	}
}

/* The largest block that the client keeps is that of the keys, or that of the replies. */
static void check_memory(const struct far_ps *ps)
{
	for (unsigned i = 0; i < PSV_SPARES; i++)
		if (ps->arena.spare[i].at && ps->arena.spare[i].bytes > KEYS * DIM * sizeof(float))
			wrong("a push had memory for all its requests at once");
}

/* In the second round the operation has a token: its requests have their numbers from the start. */
static void push(struct cluster_worker *w)
{
	struct far_future *f = NULL;
	struct far_err err;
	uint64_t token = 0;
	struct far_ps_push_opts opts = {.token = run.round ? &token : NULL};
	run.pushed = false;
	enum far_status status = far_ps_push(run.table[run.round], run.keys, KEYS, run.grads, &opts, NULL, &f, &err);
	cluster_spawn(w, 0, pulls, NULL);
	await(status, &f, KEYS, &err);
	run.pushed = true;
	while (cluster_apps(w) > 1)
		(void)cluster_sleep(MS);
}

static void serve(struct cluster_worker *w, void *ctx)
{
	struct far_err err;
	(void)ctx;
	if (far_ps_serve(cluster_agent(w), "sim", NULL, &run.server, &err))
		wrong(err.text);
}

static void client(struct cluster_worker *w, void *ctx)
{
	static const char *const names[ROUNDS] = {"parts", "token"};
	struct far_ps_open_opts opts = {.client = 1};
	struct far_ps_schema schema = {.dim = DIM};
	struct far_err err;
	struct far_ps *ps;
	(void)ctx;
	run.agent = cluster_agent(w);
	far_ps_rule_defaults(&schema.rule, FAR_PS_ADAGRAD);
	if (far_ps_open(cluster_agent(w), "sim", &opts, &ps, &err)) {
		wrong(err.text);
		return;
	}
	for (run.round = 0; run.round < ROUNDS && !cluster_failure(run.c); run.round++) {
		if (far_ps_table_create(ps, names[run.round], &schema, 0, &run.table[run.round], &err))
			wrong(err.text);
		else
			push(w);
		if (!cluster_failure(run.c) && run.round == ROUNDS - 1)
			pulls_beside_scan(w);
		if (!cluster_failure(run.c))
			pulls_at_once();
		far_ps_table_free(run.table[run.round]);
	}
	check_memory(ps);
	far_ps_close(ps);
}

static void work(void)
{
	cluster_start_all(run.c);
	if (cluster_run_ready(run.c, 10000 * MS) != CLUSTER_RUN_DONE)
		return;
	cluster_spawn(cluster_worker(run.c, 0), 0, serve, NULL);
	cluster_spawn(cluster_worker(run.c, 1), 0, client, NULL);
	if (cluster_run_apps(run.c, 60000 * MS) != CLUSTER_RUN_DONE)
		wrong("the push did not end");
	if (run.met < ENOUGH)
		wrong("too few pulls met the push");
	if (run.most > 1)
		wrong("a small pull waited for more than one request of a large push");
	if (run.steps < ENOUGH || run.beside < ENOUGH)
		wrong("too few pulls met the scan");
	if (run.most_steps > 1)
		wrong("a small pull waited for more than one step of a scan");
}

int main(void)
{
	struct cluster_config config;
	struct nic_err err;
	psv_env = (struct psv_env){.now_ns = world_now};
	run.grads = calloc((size_t)KEYS * DIM, sizeof *run.grads);
	must(run.grads != NULL);
	for (unsigned i = 0; i < KEYS; i++)
		run.keys[i] = i + 1;
	for (unsigned i = 0; i < REQUESTS; i++)
		run.first[i] = run.keys[i * PER_REQUEST];
	cluster_config_init(&config, 1);
	config.opts.peer_calls = config.opts.peer_waiting = WAITING;
	run.c = cluster_create(&config, &err);
	must(run.c != NULL);
	work();
	const char *failure = cluster_failure(run.c);
	printf("%u pulls met the pushes; one waited for %u requests at most; %u beside %u steps of a scan, %u at most "
	       "during one%s%s\n",
	       run.met, run.most, run.beside, run.steps, run.most_steps, failure ? ": " : "", failure ? failure : "");
	int failed = failure != NULL;
	cluster_destroy(run.c);
	far_ps_server_free(run.server);
	free(run.grads);
	return failed;
}
