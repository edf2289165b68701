/* SPDX-License-Identifier: BSD-3-Clause */
/** Bounds of tenants of a parameter server: rows, bytes and tables by prefix, over two shards. */
#include "api_spawn.h"

#include <farcall/ps.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { KEYS = 1000, ROWS = 100, ERASED = 30, CACHED = 40, DIM = 2 };

static struct far_agent *agent;
static struct far_err err;
static struct far_ps *ps;
static _Atomic int *done; /* shared by the processes */
static uint64_t keys[KEYS];
static float numbers[KEYS * DIM];
static uint8_t status[KEYS];

static const struct far_ps_tenant tenants[] = {
	{.prefix = "a/", .rows_max = ROWS, .tables_max = 2},
	{.prefix = "a/q", .rows_max = 1, .tables_max = 1}, /* of no table */
	/* Adagrad: a key, a row, as much state. */
	{.prefix = "cache", .bytes_max = (uint64_t)CACHED * (8 + 2 * DIM * sizeof(float))},
	{.prefix = "", .bytes_max = (uint64_t)1 << 30},
};

static struct far_ps_table *make(const char *name, enum far_ps_full full)
{
	struct far_ps_schema schema = {.dim = DIM, .full = full, .rows_max = full ? KEYS : 0};
	struct far_ps_table *t;
	far_ps_rule_defaults(&schema.rule, FAR_PS_ADAGRAD);
	CHECK_STATUS(far_ps_table_create(ps, name, &schema, 0, &t, &err), FAR_OK, &err);
	return t;
}

static void finish(enum far_status started, struct far_future *const *f)
{
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, NULL, &err), FAR_OK, &err);
	far_future_free(*f);
}

static uint64_t rows_of(struct far_ps_table *t)
{
	struct far_ps_stats stats;
	struct far_future *f;
	finish(far_ps_table_stats(t, 0, &stats, &f, &err), &f);
	return stats.rows;
}

static int count(enum far_ps_status which)
{
	int n = 0;
	for (int i = 0; i < KEYS; i++)
		n += status[i] == which;
	return n;
}

static void push(struct far_ps_table *t, int made, int there, int refused)
{
	struct far_future *f;
	finish(far_ps_push(t, keys, KEYS, numbers, NULL, status, &f, &err), &f);
	CHECK(count(FAR_PS_NEW) == made && count(FAR_PS_ROW) == there && count(FAR_PS_REFUSED) == refused);
}

/* The tables of a prefix share its rows; what one gives up another one may take. */
static void rows(void)
{
	struct far_ps_table *x = make("a/x", FAR_PS_FULL_REFUSE), *y = make("a/y", FAR_PS_FULL_REFUSE);
	struct far_ps_table *other = make("b", FAR_PS_FULL_REFUSE);
	struct far_ps_pull_opts makes = {.miss = FAR_PS_MAKE};
	struct far_future *f;
	uint64_t had[ERASED];
	int n = 0;
	push(x, ROWS, 0, KEYS - ROWS);
	for (int i = 0; i < KEYS && n < ERASED; i++)
		if (status[i] == FAR_PS_NEW)
			had[n++] = keys[i];
	push(x, 0, ROWS, KEYS - ROWS);
	push(y, 0, 0, KEYS);
	push(other, KEYS, 0, 0);
	finish(far_ps_pull(y, keys, KEYS, &makes, numbers, status, &f, &err), &f);
	CHECK(count(FAR_PS_REFUSED) == KEYS);
	finish(far_ps_assign(y, keys, KEYS, numbers, NULL, NULL, status, &f, &err), &f);
	CHECK(count(FAR_PS_REFUSED) == KEYS && rows_of(y) == 0);
	finish(far_ps_erase(x, had, ERASED, NULL, NULL, &f, &err), &f);
	finish(far_ps_pull(y, keys, KEYS, &makes, numbers, status, &f, &err), &f);
	CHECK(count(FAR_PS_NEW) == ERASED && rows_of(y) == ERASED && rows_of(x) == ROWS - ERASED);
	far_ps_table_free(x);
	far_ps_table_free(y);
	far_ps_table_free(other);
}

static void tables(void)
{
	struct far_ps_schema schema = {.dim = DIM};
	struct far_ps_table *t;
	far_ps_rule_defaults(&schema.rule, FAR_PS_ADAGRAD);
	CHECK_STATUS(far_ps_table_create(ps, "a/z", &schema, 0, &t, &err), FAR_RESOURCE, &err);
	CHECK_TEXT(&err, "2 tables whose names begin with \"a/\"");
	far_ps_table_free(make("a/x", FAR_PS_FULL_REFUSE)); /* it is there */
	CHECK_STATUS(far_ps_table_drop(ps, "a/x", 0, &err), FAR_OK, &err);
	t = make("a/z", FAR_PS_FULL_REFUSE);
	push(t, ROWS - ERASED, 0, KEYS - ROWS + ERASED);
	far_ps_table_free(t);
}

/* A table that evicts keeps the rows that were used last. */
static void evicts(void)
{
	struct far_ps_table *t = make("cache", FAR_PS_FULL_LRU);
	struct far_future *f;
	finish(far_ps_push(t, keys, KEYS, numbers, NULL, status, &f, &err), &f);
	CHECK(count(FAR_PS_REFUSED) == 0 && rows_of(t) == CACHED);
	finish(far_ps_push(t, keys, KEYS, numbers, NULL, status, &f, &err), &f);
	CHECK(count(FAR_PS_REFUSED) == 0 && rows_of(t) == CACHED);
	far_ps_table_free(t);
}

static void serve(void)
{
	struct far_ps_tenant bad = {.prefix = NULL};
	struct far_ps_serve_opts opts = {.tenants = &bad, .tenants_n = 1};
	struct far_ps_server *server;
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "tenant 0 has no prefix");
	bad = (struct far_ps_tenant){.prefix = "a", .reserved = {0, 1}};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_INVALID, &err);
	opts.tenants_n = FAR_PS_TENANTS_MAX + 1;
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "tenants_n is 65; at most 64");
	opts = (struct far_ps_serve_opts){.tenants_n = 1};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_INVALID, &err);
	CHECK_TEXT(&err, "tenants_n is 1, and tenants is NULL");
	opts = (struct far_ps_serve_opts){.tenants = tenants, .tenants_n = sizeof tenants / sizeof *tenants};
	CHECK_STATUS(far_ps_serve(agent, "rows", &opts, &server, &err), FAR_OK, &err);
	while (!atomic_load(done))
		usleep(1000);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	far_ps_server_free(server);
}

static int together(int rank)
{
	agent = check_join(&(struct far_opts){.shards = rank == 0 ? 2 : 1});
	if (rank == 0) {
		serve();
		return 0;
	}
	for (int i = 0; i < KEYS; i++)
		keys[i] = (uint64_t)i;
	CHECK_STATUS(far_ps_open(agent, "rows", NULL, &ps, &err), FAR_OK, &err);
	rows();
	tables();
	evicts();
	far_ps_close(ps);
	atomic_store(done, 1);
	CHECK_STATUS(far_shutdown_local(agent, &err), FAR_OK, &err);
	return 0;
}

int main(void)
{
	done = mmap(NULL, sizeof *done, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(done != MAP_FAILED);
	struct spawned s = spawn(2, together);
	return spawn_wait(&s, -1);
}
