/* SPDX-License-Identifier: BSD-3-Clause */
/** Two servers, one with two shards, and two clients of a parameter server: exact sums, repeats, status of keys,
 * deadlines beside a stopped server, changes that are repeated, clocks, another view. Main thread of each process. */
#include "api_ps.h"

#include <dirent.h>
#include <math.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { KEYS = 1000, POSITIONS = 3000, ROUNDS = 20, COUNTED = 200 };

struct shared {
	_Atomic int step;
	_Atomic int pid[WORLD];
	_Atomic int come[2 * COUNTED + 1]; /* counts that push_pull returned */
};
static struct shared *shared;
struct far_agent *agent;
struct far_err err;
struct far_ps *ps;
int self;

const char *const servers[SERVERS] = {"worker0", "worker1"};
static const char *const clients[] = {"worker2", "worker3"};

uint64_t keys[MANY];
float grads[MANY * DIM], rows[MANY * DIM];
uint8_t status[MANY];

static void step_reached(int step)
{
	while (atomic_load(&shared->step) < step)
		usleep(1000);
}

void meet(void)
{
	CHECK_STATUS(far_barrier(agent, clients, 2, 0, &err), FAR_OK, &err);
}

/* Waits for *f, which the call sets before this function reads it, and returns the number of answered keys. */
int64_t done(enum far_status started, struct far_future *const *f)
{
	struct far_val out;
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, &out, &err), FAR_OK, &err);
	far_future_free(*f);
	CHECK(out.type == FAR_TYPE_INT);
	return out.u.i;
}

void fails(enum far_status started, struct far_future *const *f, enum far_status want)
{
	CHECK_STATUS(started, FAR_OK, &err);
	CHECK_STATUS(far_future_wait(*f, 0, NULL, &err), want, &err);
	far_future_free(*f);
}

struct far_ps_schema schema_of(enum far_ps_rule_kind kind)
{
	struct far_ps_schema s = {.dim = DIM};
	far_ps_rule_defaults(&s.rule, kind);
	s.rule.rate = 1;
	return s;
}

struct far_ps_table *table(const char *name, const struct far_ps_schema *schema)
{
	struct far_ps_table *t;
	CHECK_STATUS(far_ps_table_create(ps, name, schema, 0, &t, &err), FAR_OK, &err);
	return t;
}

struct far_ps_stats stats_of(struct far_ps_table *t)
{
	struct far_ps_stats stats;
	struct far_future *f;
	CHECK(done(far_ps_table_stats(t, 0, &stats, &f, &err), &f) == 3);
	return stats;
}

uint64_t spread(uint64_t x)
{
	return x * UINT64_C(0x9e3779b97f4a7c15);
}

/* ---- Sums ---- */

/* Keys and gradients of a client's round. */
static void fill(int client, int round)
{
	for (int i = 0; i < POSITIONS; i++) {
		keys[i] = spread((uint64_t)(i * 7 + round * 13 + client) % KEYS);
		for (int d = 0; d < DIM; d++)
			grads[i * DIM + d] = (float)((i + round * d + client) % 5 - 2);
	}
}

static void sums(void)
{
	static float want[KEYS][DIM];
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("sums", &schema);
	struct far_future *f;
	for (int r = 0; r < ROUNDS; r++) {
		fill(self, r);
		DONE(far_ps_push(t, keys, POSITIONS, grads, NULL, status, &f, &err), POSITIONS);
		for (int i = 0; i < POSITIONS; i++)
			CHECK(status[i] == FAR_PS_ROW || status[i] == FAR_PS_NEW);
	}
	meet();
	for (int client = SERVERS; client < WORLD; client++)
		for (int r = 0; r < ROUNDS; r++) {
			fill(client, r);
			for (int i = 0; i < POSITIONS; i++)
				for (int d = 0; d < DIM; d++)
					want[(i * 7 + r * 13 + client) % KEYS][d] -= grads[i * DIM + d];
		}
	/* In another order, with repeats. */
	for (int i = 0; i < POSITIONS; i++)
		keys[i] = spread((uint64_t)(POSITIONS - i) * 3 % KEYS);
	DONE(far_ps_pull(t, keys, POSITIONS, NULL, rows, status, &f, &err), POSITIONS);
	for (int i = 0; i < POSITIONS; i++) {
		CHECK(status[i] == FAR_PS_ROW);
		for (int d = 0; d < DIM; d++)
			CHECK(rows[i * DIM + d] == want[(POSITIONS - i) * 3 % KEYS][d]);
	}
	CHECK(stats_of(t).rows == KEYS && stats_of(t).made == KEYS && stats_of(t).duplicates == 0);
	meet();
	far_ps_table_free(t);
}

/* More requests than one to each shard, and all types of the wire. */
static void many(void)
{
	static const enum far_dtype wires[] = {FAR_F32, FAR_BF16, FAR_F16, FAR_I8};
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("many", &schema);
	struct far_future *f;
	for (int i = 0; i < MANY; i++) {
		keys[i] = spread((uint64_t)i * 2 + (uint64_t)self % 2);
		for (int d = 0; d < DIM; d++)
			grads[i * DIM + d] = (float)(d == 0 ? 127 : (i + d) % 100);
	}
	for (int w = 0; w < 4; w++) {
		struct far_ps_push_opts push = {.wire = wires[w]};
		struct far_ps_pull_opts pull = {.wire = wires[w]};
		DONE(far_ps_push(t, keys, MANY, grads, &push, NULL, &f, &err), MANY);
		DONE(far_ps_pull(t, keys, MANY, &pull, rows, status, &f, &err), MANY);
		for (int i = 0; i < MANY * DIM; i++) {
			float want = -grads[i] * (float)(w + 1);
			CHECK(status[i / DIM] == FAR_PS_ROW);
			CHECK(fabsf(rows[i] - want) <= (w == 3 ? 2.5f : w == 1 ? 1.0f : 0.0f));
		}
	}
	DONE(far_ps_erase(t, keys, MANY, NULL, status, &f, &err), MANY);
	for (int i = 0; i < MANY; i++)
		CHECK(status[i] == FAR_PS_ROW);
	meet();
	CHECK(stats_of(t).rows == 0 && stats_of(t).erased == 2 * MANY);
	far_ps_table_free(t);
}

/* ---- Single calls ---- */

/* Each count of a key is returned to one client once. */
static void counts(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("counts", &schema);
	struct far_future *f;
	float last = 0;
	keys[0] = 77;
	memset(grads, 0, sizeof grads);
	grads[0] = -1;
	for (int i = 0; i < COUNTED; i++) {
		DONE(far_ps_push_pull(t, keys, 1, grads, NULL, rows, NULL, &f, &err), 1);
		CHECK(rows[0] > last && rows[0] <= 2 * COUNTED);
		last = rows[0];
		CHECK(atomic_fetch_add(&shared->come[(int)last], 1) == 0);
	}
	meet();
	far_ps_table_free(t);
}

static void statuses(void)
{
	static const float fallback[DIM] = {5, 6, 7, 8};
	static const float given[2 * DIM] = {1, 2, 3, 4, 9, 9, 9, 9};
	static const float state[2 * DIM] = {0, 0, 0, 0, 3, 3, 3, 3};
	struct far_ps_schema schema = schema_of(FAR_PS_ADAGRAD);
	schema.init = (struct far_ps_init){FAR_PS_INIT_CONSTANT, 0.5f, 0, 0};
	struct far_ps_table *t = table("adagrad", &schema);
	struct far_future *f;
	CHECK(far_ps_table_state(t) == DIM && far_ps_table_schema(t)->dim == DIM);
	struct far_ps_pull_opts pull = {.fallback = fallback};
	keys[0] = 1, keys[1] = 2, keys[2] = 1;
	DONE(far_ps_pull(t, keys, 3, &pull, rows, status, &f, &err), 3);
	CHECK(status[0] == FAR_PS_MISSING && status[2] == FAR_PS_MISSING && rows[0] == 5 && rows[11] == 8);
	pull.miss = FAR_PS_INITIAL;
	DONE(far_ps_pull(t, keys, 3, &pull, rows, status, &f, &err), 3);
	CHECK(status[1] == FAR_PS_MISSING && rows[0] == 0.5f);
	pull.miss = FAR_PS_MAKE;
	DONE(far_ps_pull(t, keys, 1, &pull, rows, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_NEW && rows[3] == 0.5f);
	DONE(far_ps_exists(t, keys, 3, NULL, status, &f, &err), 3);
	CHECK(status[0] == FAR_PS_ROW && status[1] == FAR_PS_MISSING && status[2] == FAR_PS_ROW);
	/* Of equal keys the last position counts: state 3, so a gradient of 1 moves the row by 1 / sqrt(4). */
	keys[0] = keys[1] = 5;
	DONE(far_ps_assign(t, keys, 2, given, state, NULL, status, &f, &err), 2);
	CHECK(status[0] == FAR_PS_NEW);
	for (int d = 0; d < DIM; d++)
		grads[d] = 1;
	DONE(far_ps_push_pull(t, keys, 1, grads, NULL, rows, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_ROW && fabsf(rows[2] - 8.5f) < 1e-6f);
	DONE(far_ps_assign(t, keys, 1, given, NULL, NULL, NULL, &f, &err), 1);
	DONE(far_ps_push_pull(t, keys, 1, grads, NULL, rows, NULL, &f, &err), 1);
	CHECK(fabsf(rows[0]) < 1e-6f); /* the state began anew */
	DONE(far_ps_erase(t, keys, 1, NULL, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_ROW);
	DONE(far_ps_erase(t, keys, 1, NULL, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_MISSING);
	DONE(far_ps_pull(t, NULL, 0, NULL, NULL, NULL, &f, &err), 0);
	struct far_ps_table *same;
	CHECK_STATUS(far_ps_table_open(ps, "adagrad", 0, &same, &err), FAR_OK, &err);
	CHECK(far_ps_table_schema(same)->init.a == 0.5f && far_ps_table_state(same) == DIM);
	far_ps_table_free(same);
	far_ps_table_free(t);

	schema = schema_of(FAR_PS_SGD);
	schema.admit = 2;
	schema.rows_max = 3; /* one of each shard */
	t = table("bounded", &schema);
	keys[0] = 1;
	DONE(far_ps_push(t, keys, 1, grads, NULL, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_WAITING);
	DONE(far_ps_push(t, keys, 1, grads, NULL, status, &f, &err), 1);
	CHECK(status[0] == FAR_PS_NEW);
	for (int i = 0; i < 100; i++)
		keys[i] = spread((uint64_t)i + 1);
	DONE(far_ps_assign(t, keys, 100, rows, NULL, NULL, status, &f, &err), 100);
	int made = 0;
	for (int i = 0; i < 100; i++) {
		CHECK(status[i] == FAR_PS_NEW || status[i] == FAR_PS_REFUSED);
		made += status[i] == FAR_PS_NEW;
	}
	CHECK(made == 2 && stats_of(t).rows == 3 && stats_of(t).refused == 98);
	far_ps_table_free(t);
}

/* A change that is repeated counts once. */
/* Takes AT_ONCE numbers. */
static void erase_at_once(struct far_ps_table *t)
{
	struct far_future *f[AT_ONCE];
	for (int i = 0; i < AT_ONCE; i++)
		CHECK_STATUS(far_ps_erase(t, keys, 1, NULL, NULL, &f[i], &err), FAR_OK, &err);
	for (int i = 0; i < AT_ONCE; i++)
		CHECK(done(FAR_OK, &f[i]) == 1);
}

static void repeats(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("repeats", &schema);
	struct far_future *f;
	uint64_t token = 0, first;
	for (int i = 0; i < MANY; i++)
		keys[i] = spread((uint64_t)i);
	for (int i = 0; i < MANY * DIM; i++)
		grads[i] = -1;
	struct far_ps_push_opts opts = {.token = &token};
	DONE(far_ps_push(t, keys, MANY, grads, &opts, NULL, &f, &err), MANY);
	CHECK(token > 0);
	first = token;
	for (int i = 0; i < 3; i++)
		DONE(far_ps_push(t, keys, MANY, grads, &opts, status, &f, &err), MANY);
	CHECK(token == first && status[0] == FAR_PS_ROW);
	DONE(far_ps_pull(t, keys, MANY, NULL, rows, NULL, &f, &err), MANY);
	for (int i = 0; i < MANY * DIM; i++)
		CHECK(rows[i] == 1);
	CHECK(stats_of(t).duplicates > 0 && stats_of(t).duplicates % 3 == 0);
	token = first + 100000;
	CHECK_STATUS(far_ps_push(t, keys, 1, grads, &opts, NULL, &f, &err), FAR_INVALID, &err);
	for (int i = 0; i <= 4096; i += AT_ONCE)
		erase_at_once(t);
	token = first;
	CHECK_STATUS(far_ps_push(t, keys, 1, grads, &opts, NULL, &f, &err), FAR_GONE, &err);
	far_ps_table_free(t);
}

/* ---- Clocks ---- */

static void clocks(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.workers = 2;
	schema.staleness = 1;
	struct far_ps_table *t = table("clocks", &schema);
	struct far_future *f, *waiting;
	unsigned me = (unsigned)(self - SERVERS);
	keys[0] = 3;
	grads[0] = -1;
	meet();
	for (uint64_t step = 0; step < 50; step++) {
		/* At step s all pushes of steps before s - 1 are there, and at most all of this one. */
		struct far_ps_pull_opts pull = {.clock = step};
		DONE(far_ps_pull(t, keys, 1, &pull, rows, NULL, &f, &err), 1);
		CHECK(rows[0] >= (float)(step < 1 ? 0 : 2 * (step - 1) + 1) && rows[0] <= (float)(2 * step + 2));
		DONE(far_ps_push(t, keys, 1, grads, NULL, NULL, &f, &err), 1);
		DONE(far_ps_clock(t, me, step + 1, 0, &f, &err), 3);
	}
	meet();
	CHECK(stats_of(t).clock == 50);
	struct far_ps_pull_opts pull = {.clock = 52, .partial = true, .timeout_ns = 50 * FAR_MS};
	if (me == 0) {
		/* Not before the other one's clock. */
		DONE(far_ps_clock(t, 0, 51, 0, &f, &err), 3);
		DONE(far_ps_pull(t, keys, 1, &pull, rows, status, &f, &err), 0);
		CHECK(status[0] == FAR_PS_LATE && rows[0] == 0);
		pull.timeout_ns = 0;
		CHECK_STATUS(far_ps_pull(t, keys, 1, &pull, rows, status, &waiting, &err), FAR_OK, &err);
		meet();
		CHECK(done(FAR_OK, &waiting) == 1 && status[0] == FAR_PS_ROW && rows[0] == 100);
	} else {
		meet();
		DONE(far_ps_clock(t, 1, 51, 0, &f, &err), 3);
	}
	meet();
	far_ps_table_free(t);
}

/* ---- A server that is stopped ---- */

/* True: each thread of the process has stopped. */
static bool has_stopped(int pid)
{
	char path[300], text[300];
	snprintf(path, sizeof path, "/proc/%d/task", pid);
	DIR *tasks = opendir(path);
	bool all = true;
	CHECK(tasks != NULL);
	for (struct dirent *t; all && (t = readdir(tasks));) {
		if (t->d_name[0] == '.')
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", pid, t->d_name);
		FILE *f = fopen(path, "r");
		if (!f)
			continue; /* it has ended */
		size_t n = fread(text, 1, sizeof text - 1, f);
		fclose(f);
		text[n] = 0;
		const char *behind_name = strrchr(text, ')');
		all = behind_name && behind_name[1] == ' ' && behind_name[2] == 'T';
	}
	closedir(tasks);
	return all;
}

/* The signal alone leaves its threads a moment to answer. */
static void stop_process(int pid)
{
	CHECK(kill(pid, SIGSTOP) == 0);
	while (!has_stopped(pid))
		usleep(1000);
}

static void stopped(void)
{
	static const float fallback[DIM] = {1, 1, 1, 1};
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("stopped", &schema);
	struct far_future *f;
	uint64_t token = 0;
	struct far_ps_push_opts push = {.partial = true, .timeout_ns = FAR_SEC / 2, .token = &token};
	struct far_ps_pull_opts pull = {.partial = true, .timeout_ns = FAR_SEC / 2, .fallback = fallback};
	for (int i = 0; i < KEYS; i++)
		keys[i] = spread((uint64_t)i);
	for (int i = 0; i < KEYS * DIM; i++)
		grads[i] = -3;
	DONE(far_ps_push(t, keys, KEYS, grads, NULL, NULL, &f, &err), KEYS);
	stop_process(atomic_load(&shared->pid[1]));
	int64_t answered = done(far_ps_pull(t, keys, KEYS, &pull, rows, status, &f, &err), &f), rows_n = 0;
	CHECK(answered > 0 && answered < KEYS);
	for (int i = 0; i < KEYS; i++) {
		CHECK(status[i] == FAR_PS_ROW || status[i] == FAR_PS_LATE);
		CHECK(rows[i * DIM] == (status[i] == FAR_PS_ROW ? 3 : 1));
		rows_n += status[i] == FAR_PS_ROW;
	}
	CHECK(rows_n == answered);
	pooled_stopped(t);
	pull.partial = false;
	FAILS(far_ps_pull(t, keys, KEYS, &pull, rows, status, &f, &err), FAR_TIMEOUT);
	CHECK_TEXT(&err, "of 1000 keys were answered");
	CHECK(done(far_ps_push(t, keys, KEYS, grads, &push, status, &f, &err), &f) == answered);
	CHECK(kill(atomic_load(&shared->pid[1]), SIGCONT) == 0);
	/* The stopped server may have the requests of the first attempt. */
	push.timeout_ns = 0;
	push.partial = false;
	DONE(far_ps_push(t, keys, KEYS, grads, &push, status, &f, &err), KEYS);
	DONE(far_ps_pull(t, keys, KEYS, NULL, rows, status, &f, &err), KEYS);
	for (int i = 0; i < KEYS * DIM; i++)
		CHECK(rows[i] == 6);
	CHECK(stats_of(t).duplicates >= 2);
	far_ps_table_free(t);
}

/* ---- Another view ---- */

static void other_view(void)
{
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	struct far_ps_table *t = table("moved", &schema);
	struct far_future *f;
	uint64_t token = 0;
	struct far_ps_push_opts opts = {.token = &token};
	for (int i = 0; i < KEYS; i++)
		keys[i] = spread((uint64_t)i);
	for (int i = 0; i < KEYS * DIM; i++)
		grads[i] = -2;
	DONE(far_ps_push(t, keys, KEYS, grads, &opts, NULL, &f, &err), KEYS);
	CHECK(far_ps_epoch(ps) == 1);
	meet();
	if (self == SERVERS)
		atomic_store(&shared->step, 1);
	step_reached(3);
	DONE(far_ps_pull(t, keys, KEYS, NULL, rows, status, &f, &err), KEYS);
	CHECK(far_ps_epoch(ps) == 2);
	int missing = 0;
	for (int i = 0; i < KEYS; i++) {
		CHECK(status[i] == FAR_PS_ROW || status[i] == FAR_PS_MISSING);
		CHECK(rows[i * DIM] == (status[i] == FAR_PS_ROW ? 4 : 0));
		missing += status[i] == FAR_PS_MISSING;
	}
	CHECK(missing > KEYS / 3 && missing < KEYS);
	CHECK_STATUS(far_ps_push(t, keys, KEYS, grads, &opts, NULL, &f, &err), FAR_GONE, &err);
	meet();
	/* Epoch 3 at worker 0; worker 1 still has epoch 2 when the requests come. */
	if (self == SERVERS)
		atomic_store(&shared->step, 4);
	step_reached(5);
	CHECK_STATUS(far_ps_push(t, keys, KEYS, grads, NULL, NULL, &f, &err), FAR_OK, &err);
	while (far_ps_epoch(ps) < 3)
		usleep(1000);
	CHECK(!far_future_done(f));
	meet();
	if (self == SERVERS)
		atomic_store(&shared->step, 6);
	CHECK(done(FAR_OK, &f) == KEYS);
	DONE(far_ps_exists(t, keys, KEYS, NULL, status, &f, &err), KEYS);
	for (int i = 0; i < KEYS; i++)
		CHECK(status[i] == FAR_PS_ROW);
	CHECK(stats_of(t).rows == KEYS);
	meet();
	far_ps_table_free(t);
}

/* ---- Workers ---- */

static void serve(void)
{
	struct far_ps_server *server;
	struct far_ps_serve_opts opts = {.servers = servers, .servers_n = 2};
	CHECK_STATUS(far_ps_serve(agent, "ads", &opts, &server, &err), FAR_OK, &err);
	bad_serves(server);
	/* Epoch 2: worker 0 alone, for the other one first; epoch 3: servers again. */
	step_reached(self == 0 ? 2 : 1);
	CHECK_STATUS(far_ps_server_view(server, servers, 1, 2, &err), FAR_OK, &err);
	atomic_fetch_add(&shared->step, 1);
	step_reached(self == 0 ? 4 : 6);
	CHECK_STATUS(far_ps_server_view(server, servers, 2, 3, &err), FAR_OK, &err);
	atomic_fetch_add(&shared->step, 1);
	step_reached(8);
	CHECK_STATUS(far_ps_server_stop(server, &err), FAR_OK, &err);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	check_leave(agent);
	far_ps_server_free(server);
}

static void use(void)
{
	CHECK_STATUS(far_ps_open(agent, "ads", NULL, &ps, &err), FAR_OK, &err);
	sums();
	many();
	counts();
	clocks();
	if (self == SERVERS) {
		statuses();
		repeats();
		pooled();
		dense();
		restarted();
		used_most();
		segments();
		bad_requests();
		stopped();
	}
	meet();
	other_view();
	/* A pull that waits for a clock ends with the server. */
	struct far_ps_schema schema = schema_of(FAR_PS_SGD);
	schema.workers = 1;
	struct far_ps_table *t = table("ends", &schema);
	struct far_ps_pull_opts pull = {.clock = 9};
	struct far_future *f;
	CHECK_STATUS(far_ps_pull(t, keys, KEYS, &pull, rows, status, &f, &err), FAR_OK, &err);
	meet();
	if (self == SERVERS)
		atomic_store(&shared->step, 8);
	fails(FAR_OK, &f, FAR_SHUTDOWN);
	CHECK(status[0] == FAR_PS_LOST);
	CHECK_STATUS(far_barrier(agent, NULL, 0, 0, &err), FAR_OK, &err);
	far_ps_table_free(t);
	far_ps_close(ps);
	check_leave(agent);
}

static int together(int rank)
{
	struct far_opts opts = {.shards = rank == 0 ? 2 : 1};
	self = rank;
	atomic_store(&shared->pid[rank], getpid());
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
