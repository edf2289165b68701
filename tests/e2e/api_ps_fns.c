/* SPDX-License-Identifier: BSD-3-Clause */
/** Functions that run at the rows of a parameter server: values and reductions, rows that are made, functions that
 * fail, calls that are repeated, errors by name. */
#include "api_ps_fns.h"

#include <math.h>
#include <sys/mman.h>

enum { KEYS = 50, ROUNDS = 30, WIDE = 3 };

struct shared *shared;
struct far_agent *agent;
struct far_err err;
struct far_ps *ps;
int self;
uint64_t keys[MANY];
uint8_t status[MANY];
static uint8_t errors[MANY];
static double values[MANY * WIDE];
static float rows[MANY * DIM], grads[MANY * DIM];

static const char *const servers[SERVERS] = {"worker0", "worker1"};
static const char *const clients[] = {"worker2", "worker3"};

/* ---- Tools ---- */

void step_reached(int step)
{
	while (atomic_load(&shared->step) < step)
		usleep(1000);
}

void servers_do(int step)
{
	atomic_store(&shared->step, step);
	while (atomic_load(&shared->done) < step * SERVERS)
		usleep(1000);
}

enum far_status ended(enum far_status started, struct far_future *const *f, int64_t *answered)
{
	struct far_val out;
	if (started)
		return started;
	enum far_status end = far_future_wait(*f, 0, &out, &err);
	far_future_free(*f);
	if (end == FAR_OK)
		*answered = out.u.i;
	return end;
}

struct far_ps_schema schema_of(enum far_ps_rule_kind kind, unsigned dim)
{
	struct far_ps_schema s = {.dim = dim};
	far_ps_rule_defaults(&s.rule, kind);
	return s;
}

struct far_ps_table *table(const char *name, const struct far_ps_schema *schema)
{
	struct far_ps_table *t;
	CHECK_STATUS(far_ps_table_create(ps, name, schema, 0, &t, &err), FAR_OK, &err);
	return t;
}

uint64_t rows_of(struct far_ps_table *t)
{
	struct far_ps_stats stats;
	struct far_future *f;
	DONE(far_ps_table_stats(t, 0, &stats, &f, &err), 3);
	return stats.rows;
}

uint64_t spread(uint64_t x)
{
	return x * UINT64_C(0x9e3779b97f4a7c15);
}

static void meet(void)
{
	CHECK_STATUS(far_barrier(agent, clients, 2, 0, &err), FAR_OK, &err);
}

/* ---- The functions ---- */

static float arg_of(const struct far_ps_fn_args *a)
{
	float by = 1;
	if (a->arg_len == sizeof by)
		memcpy(&by, a->arg, sizeof by);
	return by;
}

/* Adds the argument to the first element; returns it. */
static enum far_status add(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->row[0] += arg_of(a);
	a->values[0] = (double)a->row[0];
	return FAR_OK;
}

/* What it writes is dropped. */
static enum far_status peek(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->values[0] = (double)a->row[0];
	a->values[1] = (double)(a->key % 1000);
	a->values[2] = a->state ? (double)a->state[0] : -1;
	a->row[0] = 777;
	if (a->state)
		a->state[0] = 777;
	return FAR_OK;
}

/* Fails for odd keys, when it has written. */
static enum far_status even(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->row[1] = 5;
	a->values[0] = a->made;
	if (a->state)
		a->state[1] += 3;
	return a->key % 2 ? FAR_DENIED : FAR_OK;
}

static enum far_status spoil(const struct far_ps_fn_args *a, void *user)
{
	(void)user;
	a->row[a->schema->dim - 1] = arg_of(a);
	return FAR_OK;
}

static void register_functions(void)
{
	static const struct far_ps_fn fns[] = {{.name = "add", .run = add, .width = 1},
					       {.name = "peek", .run = peek, .width = WIDE, .reads = true},
					       {.name = "even", .run = even, .width = 1},
					       {.name = "spoil", .run = spoil},
					       {.name = "only0", .run = add, .width = 1}};
	for (size_t i = 0; i < sizeof fns / sizeof *fns - (self ? 1 : 0); i++)
		CHECK_STATUS(far_ps_fn_register(&fns[i], &err), FAR_OK, &err);
	BAD(far_ps_fn_register(&fns[0], &err), FAR_INVALID, "function \"add\" is registered already");
	BAD(far_ps_fn_unregister("none", &err), FAR_GONE, "no function \"none\"");
	BAD(far_ps_fn_unregister(NULL, &err), FAR_GONE, "NULL");
	/* A name comes back with another function. */
	CHECK_STATUS(far_ps_fn_unregister("spoil", &err), FAR_OK, &err);
	BAD(far_ps_fn_unregister("spoil", &err), FAR_GONE, "no function \"spoil\"");
	CHECK_STATUS(far_ps_fn_register(&fns[3], &err), FAR_OK, &err);
}

/* ---- Cases ---- */

/* Both clients; each call counts once for each distinct key. */
static void counts(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD, DIM);
	struct far_ps_table *t = table("counts", &schema);
	struct far_future *f;
	float by = 2;
	struct far_ps_call_opts opts = {.make = true, .arg = &by, .arg_len = sizeof by, .width = 1};
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < 2 * KEYS; i++)
			keys[i] = spread((uint64_t)(i % KEYS));
		DONE(far_ps_call(t, "add", keys, (size_t)2 * KEYS, &opts, values, status, &f, &err), 2 * KEYS);
		for (int i = 0; i < KEYS; i++) {
			CHECK(status[i] == FAR_PS_ROW || status[i] == FAR_PS_NEW);
			CHECK(values[i] >= 2 * (r + 1) && values[i] == values[i + KEYS]);
		}
	}
	meet();
	struct far_ps_call_opts read = {.read = true, .width = WIDE, .reduce = FAR_PS_ADD};
	DONE(far_ps_call(t, "peek", keys, KEYS, &read, values, NULL, &f, &err), KEYS);
	CHECK(values[0] == 2.0 * 2 * ROUNDS * KEYS && values[2] == -1.0 * KEYS);
	DONE(far_ps_pull(t, keys, KEYS, NULL, rows, NULL, &f, &err), KEYS);
	for (int i = 0; i < KEYS; i++)
		CHECK(rows[i * DIM] == 2 * 2 * ROUNDS && rows[i * DIM + 1] == 0);
	meet();
	far_ps_table_free(t);
}

/* Over many requests: values in the order of positions, each reduction. */
static void many(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_ADAGRAD, DIM);
	schema.stored = FAR_BF16;
	struct far_ps_table *t = table("many", &schema);
	struct far_future *f;
	double least[WIDE] = {INFINITY, INFINITY, INFINITY}, most[WIDE] = {-INFINITY, -INFINITY, -INFINITY};
	double sum[WIDE] = {0};
	for (int i = 0; i < MANY; i++) {
		keys[i] = spread((uint64_t)i);
		for (int d = 0; d < DIM; d++)
			rows[i * DIM + d] = (float)(i % 128);
	}
	DONE(far_ps_assign(t, keys, MANY, rows, NULL, NULL, NULL, &f, &err), MANY);
	struct far_ps_call_opts opts = {.read = true, .width = WIDE};
	DONE(far_ps_call(t, "peek", keys, MANY, &opts, values, status, &f, &err), MANY);
	for (int i = 0; i < MANY; i++) {
		const double *v = values + (size_t)i * WIDE;
		CHECK(status[i] == FAR_PS_ROW && v[0] == i % 128 && v[1] == (double)(keys[i] % 1000) && v[2] == 0);
		for (int w = 0; w < WIDE; w++) {
			least[w] = fmin(least[w], v[w]);
			most[w] = fmax(most[w], v[w]);
			sum[w] += v[w];
		}
	}
	const double *const want[] = {[FAR_PS_ADD] = sum, [FAR_PS_MIN] = least, [FAR_PS_MAX] = most};
	for (opts.reduce = FAR_PS_ADD; opts.reduce <= FAR_PS_MAX; opts.reduce++) {
		DONE(far_ps_call(t, "peek", keys, MANY, &opts, values, NULL, &f, &err), MANY);
		CHECK(memcmp(values, want[opts.reduce], WIDE * sizeof *values) == 0);
	}
	/* Of no keys, and of keys without rows. */
	uint64_t none = 5;
	for (size_t n = 0; n < 2; n++) {
		static const double begin[] = {[FAR_PS_ADD] = 0, [FAR_PS_MIN] = INFINITY, [FAR_PS_MAX] = -INFINITY};
		for (opts.reduce = FAR_PS_ADD; opts.reduce <= FAR_PS_MAX; opts.reduce++) {
			DONE(far_ps_call(t, "peek", &none, n, &opts, values, status, &f, &err), n);
			CHECK(memcmp(&values[WIDE - 1], &begin[opts.reduce], sizeof *values) == 0);
		}
	}
	CHECK(status[0] == FAR_PS_MISSING);
	CHECK_STATUS(far_ps_table_drop(ps, "many", 0, &err), FAR_OK, &err);
	far_ps_table_free(t);
}

/* Rows that are there, made, missing; functions that fail for some keys. */
static void failures(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_ADAGRAD, DIM);
	schema.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 1, 0, 0};
	struct far_ps_table *t = table("failures", &schema);
	struct far_future *f;
	struct far_ps_call_opts opts = {.width = 1, .errors = errors};
	for (int i = 0; i < 100; i++) {
		keys[i] = (uint64_t)i;
		for (int d = 0; d < DIM; d++)
			grads[i * DIM + d] = 1;
	}
	DONE(far_ps_push(t, keys, 60, grads, NULL, NULL, &f, &err), 60);
	DONE(far_ps_pull(t, keys, 1, NULL, rows, NULL, &f, &err), 1);
	float pushed = rows[0];
	DONE(far_ps_call(t, "even", keys, 100, &opts, values, status, &f, &err), 100);
	for (int i = 0; i < 100; i++) {
		CHECK(status[i] == (i >= 60 ? FAR_PS_MISSING : i % 2 ? FAR_PS_FAILED : FAR_PS_ROW));
		CHECK(errors[i] == (i < 60 && i % 2 ? FAR_DENIED : FAR_OK) && values[i] == 0);
	}
	opts.make = true;
	DONE(far_ps_call(t, "even", keys, 100, &opts, values, status, &f, &err), 100);
	for (int i = 0; i < 100; i++) {
		CHECK(status[i] == (i % 2 ? FAR_PS_FAILED : i < 60 ? FAR_PS_ROW : FAR_PS_NEW));
		CHECK(errors[i] == (i % 2 ? FAR_DENIED : FAR_OK) && values[i] == (i % 2 == 0 && i >= 60));
	}
	CHECK(rows_of(t) == 80);
	DONE(far_ps_pull(t, keys, 100, NULL, rows, status, &f, &err), 100);
	for (int i = 0; i < 100; i++) {
		CHECK(status[i] == (i < 60 || i % 2 == 0 ? FAR_PS_ROW : FAR_PS_MISSING));
		CHECK(rows[i * DIM + 1] == (i % 2 == 0 ? 5 : i < 60 ? pushed : 0));
	}
	/* A number that is not finite. */
	float bad = NAN;
	struct far_ps_call_opts nan = {.arg = &bad, .arg_len = sizeof bad, .errors = errors};
	DONE(far_ps_call(t, "spoil", keys, 2, &nan, NULL, status, &f, &err), 2);
	CHECK(status[0] == FAR_PS_FAILED && errors[0] == FAR_INVALID && status[1] == FAR_PS_FAILED);
	bad = 9;
	DONE(far_ps_call(t, "spoil", keys, 2, &nan, NULL, status, &f, &err), 2);
	CHECK(status[0] == FAR_PS_ROW && errors[0] == FAR_OK);
	DONE(far_ps_pull(t, keys, 2, NULL, rows, NULL, &f, &err), 2);
	CHECK(rows[DIM - 1] == 9 && rows[2 * DIM - 1] == 9);
	far_ps_table_free(t);
}

static void full(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD, 1);
	schema.rows_max = 3; /* one for each shard */
	struct far_ps_table *t = table("full", &schema);
	struct far_future *f;
	struct far_ps_call_opts opts = {.width = 1, .make = true};
	int made = 0, refused = 0;
	for (int i = 0; i < 100; i++)
		keys[i] = spread((uint64_t)i);
	DONE(far_ps_call(t, "add", keys, 100, &opts, values, status, &f, &err), 100);
	for (int i = 0; i < 100; i++) {
		made += status[i] == FAR_PS_NEW && values[i] == 1;
		refused += status[i] == FAR_PS_REFUSED && values[i] == 0;
	}
	CHECK(made == 3 && refused == 97);
	far_ps_table_free(t);
}

/* A call that is repeated by its token runs once. */
static void repeats(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD, DIM);
	struct far_ps_table *t = table("again", &schema);
	struct far_future *f;
	uint64_t token = 0;
	struct far_ps_call_opts opts = {.make = true, .width = 1, .token = &token};
	for (int i = 0; i < KEYS; i++)
		keys[i] = spread((uint64_t)i);
	for (int r = 0; r < 3; r++) {
		DONE(far_ps_call(t, "add", keys, KEYS, &opts, values, status, &f, &err), KEYS);
		for (int i = 0; i < KEYS; i++)
			CHECK(status[i] == (r ? FAR_PS_APPLIED : FAR_PS_NEW) && values[i] == (r ? 0 : 1));
	}
	opts.reduce = FAR_PS_ADD;
	DONE(far_ps_call(t, "add", keys, KEYS, &opts, values, status, &f, &err), KEYS);
	CHECK(values[0] == 0);
	token = 0;
	DONE(far_ps_call(t, "add", keys, KEYS, &opts, values, status, &f, &err), KEYS);
	CHECK(values[0] == 2 * KEYS);
	token = 1000000;
	BAD(far_ps_call(t, "add", keys, KEYS, &opts, values, status, &f, &err), FAR_INVALID, "token 1000000");
	far_ps_table_free(t);
}

static void dense(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_ADAGRAD, DIM);
	schema.dense_rows = 10;
	schema.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 4, 0, 0};
	struct far_ps_table *t = table("dense_fns", &schema);
	struct far_future *f;
	struct far_ps_call_opts read = {.read = true, .width = WIDE}, opts = {.width = 1};
	for (int i = 0; i < 10; i++)
		keys[i] = (uint64_t)i;
	DONE(far_ps_call(t, "peek", keys, 10, &read, values, status, &f, &err), 10);
	for (int i = 0; i < 10; i++)
		CHECK(status[i] == FAR_PS_ROW && values[i * WIDE] == 4);
	CHECK(rows_of(t) == 0);
	DONE(far_ps_call(t, "add", keys, 5, &opts, values, status, &f, &err), 5);
	for (int i = 0; i < 5; i++)
		CHECK(status[i] == FAR_PS_ROW && values[i] == 5);
	CHECK(rows_of(t) == 5);
	DONE(far_ps_call(t, "peek", keys, 10, &read, values, NULL, &f, &err), 10);
	for (int i = 0; i < 10; i++)
		CHECK(values[i * WIDE] == (i < 5 ? 5 : 4));
	keys[0] = 10;
	BAD(far_ps_call(t, "add", keys, 1, &opts, values, status, &f, &err), FAR_INVALID, "key 10");
	far_ps_table_free(t);
}

static void wrong(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD, DIM);
	struct far_ps_table *t = table("wrong", &schema);
	struct far_future *f;
	struct far_ps_call_opts one = {.width = 1, .make = true}, two = {.width = 2}, read = {.width = 1, .read = true};
	struct far_ps_call_opts changing = {.width = WIDE}, partial = {.width = 1, .partial = true, .make = true};
	for (int i = 0; i < 300; i++)
		keys[i] = spread((uint64_t)i);
	FAILS(far_ps_call(t, "nothing", keys, 300, &one, values, status, &f, &err), FAR_NO_FUNCTION,
	      "has no function \"nothing\": register it there");
	FAILS(far_ps_call(t, "only0", keys, 300, &one, values, status, &f, &err), FAR_NO_FUNCTION,
	      "worker \"worker1\" has no function \"only0\"");
	FAILS(far_ps_call(t, "add", keys, 300, &two, values, status, &f, &err), FAR_INVALID,
	      "function \"add\" returns 1 numbers for a key; width is 2");
	FAILS(far_ps_call(t, "add", keys, 300, &read, values, status, &f, &err), FAR_INVALID,
	      "function \"add\" changes rows: call it without opts.read");
	FAILS(far_ps_call(t, "peek", keys, 300, &changing, values, status, &f, &err), FAR_INVALID,
	      "function \"peek\" reads: call it with opts.read");
	int64_t answered = 0, lost = 0;
	CHECK_STATUS(ended(far_ps_call(t, "only0", keys, 300, &partial, values, status, &f, &err), &f, &answered),
		     FAR_OK, &err);
	for (int i = 0; i < 300; i++)
		lost += status[i] == FAR_PS_LOST;
	CHECK(answered > 0 && answered < 300 && lost == 300 - answered);
	far_ps_table_free(t);
}

/* ---- Workers ---- */

static void serve(void)
{
	struct far_ps_server *server;
	struct far_ps_serve_opts opts = {.servers = servers, .servers_n = SERVERS};
	register_functions();
	optimizers_register();
	CHECK_STATUS(far_ps_serve(agent, "fns", &opts, &server, &err), FAR_OK, &err);
	for (int step = 1; step <= 4; step++) {
		step_reached(step);
		optimizers_step(step);
		atomic_fetch_add(&shared->done, 1);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	check_leave(agent);
	far_ps_server_free(server);
}

static void use(void)
{
	CHECK_STATUS(far_ps_open(agent, "fns", NULL, &ps, &err), FAR_OK, &err);
	counts();
	if (self == SERVERS) {
		many();
		failures();
		full();
		repeats();
		dense();
		wrong();
		optimizers();
		servers_do(4);
	}
	CHECK_STATUS(far_barrier(agent, NULL, 0, 100 * FAR_SEC, &err), FAR_OK, &err);
	far_ps_close(ps);
	check_leave(agent);
}

static int together(int rank)
{
	struct far_opts opts = {.shards = rank == 0 ? 2 : 1};
	self = rank;
	agent = check_join(&opts);
	if (rank < SERVERS)
		serve();
	else
		use();
	return 0;
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(shared != MAP_FAILED);
	struct spawned s = spawn(WORLD, together);
	return spawn_wait(&s, -1);
}
