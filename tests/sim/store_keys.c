/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Keys of the application in the store of a dynamic group, tcp://, while rank 0 is killed and comes back, other members
 * are killed, leave or are paused: one at a time, but rank 0 also while another member is paused. Clients that are no
 * members set, read, add to, compare and delete keys. One seed, one cluster.
 *
 * A change that was acknowledged is there: a client reads from a key of its own the value that it has set last, or one
 * of a later call that has failed. A counter is no less than all acknowledged sums, and no more than all addends that
 * were begun; no sum is returned twice. Of two compare-and-sets that expect the same value one succeeds.
 *
 * usage: store_keys FROM SEEDS [MUTANT]; exit status: 0; 1: a run failed; 2: usage
 */
#include "apps/sim/cluster_world.h"
#include "base/must.h"
#include "base/mutant.h"
#include "control/store.h"
#include "planted.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 4, CLIENTS = 3, OWN_KEYS = 3, ENDS = 8, SUMS_MAX = 1 << 14, PORT = 7000 /* cluster_worker.c */ };

#define MS       UINT64_C(1000000)
#define LEASE    (3000 * MS)
#define PATIENCE (600000 * MS)
#define STEP     (1 * MS)
#define CALM     (1500 * MS)  /* between two disturbances, when all are there: the copy is made in it */
#define LIMIT    (20000 * MS) /* of a request: longer than rank 0 is away */

enum disturbance { STORE_LOSS, KILL, LEAVE, PAUSE, PAUSE_AND_LOSS, DISTURBANCES };
static const char *const names[] = {"store lost", "killed", "left", "paused", "paused and store lost"};

/* A key that one client alone changes. Values ascend from 1; 0: the key is not there. */
struct own {
	uint64_t sure;  /* acknowledged last */
	uint64_t begun; /* by the last call */
	uint64_t gone;  /* the last call that has begun to delete it */
};

struct client {
	unsigned number;
	struct ctl_net *net;
	struct store_client *store;
	bool waits; /* a request is under way */
	enum store_op op;
	unsigned key;
	uint64_t next_at, value;
	int64_t least; /* of a counter, when the request began */
	char expected[24];
	size_t expected_len;
	struct own own[OWN_KEYS];
};

static struct run {
	struct cluster *c;
	struct sim_random random;
	unsigned ends;
	bool finishing;
	struct client clients[CLIENTS];
	int64_t sum_most, begun;        /* of the counter */
	uint8_t sums[SUMS_MAX / 8];     /* that were returned */
	uint8_t followed[SUMS_MAX / 8]; /* values that a compare-and-set has replaced */
	uint64_t compared_most;         /* greatest value that one has set */
} run;

static uint64_t acknowledged, unknown, happened[DISTURBANCES];

__attribute__((format(printf, 1, 2))) static void wrong(const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cluster_fail(run.c, "%s", text);
}

static uint64_t below(uint64_t n)
{
	return sim_random_below(&run.random, n);
}

/* True if the bit was set before. */
static bool bit_set(uint8_t *bits, uint64_t i)
{
	must(i < SUMS_MAX);
	bool was = bits[i / 8] >> (i % 8) & 1;
	bits[i / 8] |= (uint8_t)(1u << (i % 8));
	return was;
}

/* ---- what is answered ---- */

static uint64_t number_of(const struct store_msg *m)
{
	char text[24] = "";
	memcpy(text, m->value, m->value_len < sizeof text - 1 ? m->value_len : sizeof text - 1);
	return m->status == STORE_MISSING ? 0 : strtoull(text, NULL, 10);
}

static void own_read(struct client *c, const struct store_msg *m)
{
	struct own *o = &c->own[c->key];
	uint64_t v = number_of(m);
	bool deleted = v == 0 && o->gone > o->sure;
	if (v > o->begun || (v < o->sure && !deleted))
		wrong("client %u reads %" PRIu64 " from its key %u; it has set %" PRIu64 ", and begun %" PRIu64,
		      c->number, v, c->key, o->sure, o->begun);
	/* What it has read stays. */
	if (v >= o->sure)
		o->sure = v;
	if (v == 0)
		o->sure = 0;
	o->gone = v ? 0 : o->gone;
}

static void own_written(struct client *c)
{
	struct own *o = &c->own[c->key];
	o->sure = c->op == STORE_SET ? c->value : 0;
	o->gone = 0;
	o->begun = c->op == STORE_SET ? o->begun : 0;
}

static void added(struct client *c, const struct store_msg *m)
{
	if (m->number <= c->least || m->number > run.begun)
		wrong("a sum of %" PRId64 ", after %" PRId64 ", of %" PRId64 " additions", m->number, c->least,
		      run.begun);
	else if (bit_set(run.sums, (uint64_t)m->number))
		wrong("the sum %" PRId64 " is returned twice", m->number);
	run.sum_most = m->number > run.sum_most ? m->number : run.sum_most;
}

static void compared(struct client *c, const struct store_msg *m)
{
	uint64_t before = strtoull(c->expected, NULL, 10), most = run.compared_most;
	if (m->status == STORE_OK && bit_set(run.followed, before))
		wrong("two compare-and-sets have replaced %" PRIu64, before);
	if (m->status == STORE_OK)
		run.compared_most = before + 1 > most ? before + 1 : most;
	else if (number_of(m) < (uint64_t)c->least)
		wrong("a compare-and-set finds %" PRIu64 ", after %" PRId64, number_of(m), c->least);
	c->expected_len = 0;
	c->expected[0] = 0;
	uint64_t now = m->status == STORE_OK ? before + 1 : number_of(m);
	if (now)
		c->expected_len = (size_t)snprintf(c->expected, sizeof c->expected, "%" PRIu64, now);
}

static void answered(void *user, int result, const struct store_msg *m)
{
	struct client *c = user;
	c->waits = false;
	c->next_at = cluster_now(run.c) + below(20 * MS);
	acknowledged += !result;
	unknown += result != 0;
	if (result || run.finishing)
		return;
	if (m->status != STORE_OK && m->status != STORE_MISSING && m->status != STORE_DIFFERS)
		wrong("client %u is answered %d", c->number, m->status);
	else if (c->op == STORE_GET)
		own_read(c, m);
	else if (c->op == STORE_ADD)
		added(c, m);
	else if (c->op == STORE_CAS)
		compared(c, m);
	else
		own_written(c);
}

/* ---- clients ---- */

static int key_provide(void *ctx, struct auth_key *out)
{
	static const struct auth_key key = {"the simulated groups' key"}; /* cluster_worker.c */
	(void)ctx;
	*out = key;
	return 0;
}

static void connects(struct client *c)
{
	const struct store_login login = {
		.who = {.rank = STORE_RANK_NONE}, .random = &random_kernel, .key = key_provide};
	store_client_destroy(c->store);
	c->store = store_client_create(store_stream_tcp(c->net, "w0", PORT));
	must(c->store);
	store_client_login(c->store, &login);
}

static void requests(struct client *c)
{
	static const enum store_op ops[] = {STORE_SET, STORE_SET, STORE_GET, STORE_GET, STORE_DELETE,
					    STORE_ADD, STORE_ADD, STORE_CAS, STORE_CAS};
	char key[24], value[24] = "";
	struct store_msg m = {.op = ops[below(sizeof ops / sizeof *ops)], .key = (const uint8_t *)key};
	c->op = m.op;
	c->key = (unsigned)below(OWN_KEYS);
	struct own *o = &c->own[c->key];
	snprintf(key, sizeof key, "/%u/%u/", c->number, c->key);
	if (m.op == STORE_SET) {
		c->value = (o->begun > o->sure ? o->begun : o->sure) + 1;
		o->begun = c->value;
		snprintf(value, sizeof value, "%" PRIu64, c->value);
	} else if (m.op == STORE_DELETE) {
		o->gone = o->begun + 1;
	} else if (m.op == STORE_ADD) {
		snprintf(key, sizeof key, "/sum/");
		m.number = 1;
		run.begun++;
		c->least = run.sum_most;
	} else if (m.op == STORE_CAS) {
		snprintf(key, sizeof key, "/cas/");
		m.expected = (const uint8_t *)c->expected;
		m.expected_len = c->expected_len;
		c->least = (int64_t)run.compared_most;
		snprintf(value, sizeof value, "%llu", strtoull(c->expected, NULL, 10) + 1);
	}
	m.key_len = strlen(key);
	m.value = (const uint8_t *)value;
	m.value_len = strlen(value);
	uint64_t now = cluster_now(run.c);
	c->waits = store_client_submit(c->store, &m, now, now + LIMIT, answered, c) == 0;
}

static void client_step(void *ctx)
{
	struct client *c = ctx;
	bool busy = true;
	if (run.finishing)
		return;
	if (store_client_connection(c->store) == STORE_LOST)
		connects(c);
	if (!c->waits && cluster_now(run.c) >= c->next_at)
		requests(c);
	for (int i = 0; busy && i < 8; i++) {
		busy = false;
		store_client_step(c->store, cluster_now(run.c), &busy);
	}
	sim_at(cluster_sim(run.c), cluster_now(run.c) + STEP, client_step, c);
}

static void client_wake(void *ctx)
{
	(void)ctx; /* it steps all the time */
}

static void clients_start(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &run.clients[i];
		c->number = i;
		c->net = sim_ctl_net_create(run.c->streams, cluster_host(cluster_worker(run.c, 1 + i)), client_wake, c);
		must(c->net);
		connects(c);
		client_step(c);
	}
}

static void clients_end(void)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		store_client_destroy(run.clients[i].store);
		run.clients[i].net->ops->destroy(run.clients[i].net);
	}
}

/* ---- disturbances ---- */

static void start(void *ctx)
{
	cluster_start(ctx);
}

static void kill_host(void *ctx)
{
	cluster_crash(ctx, CLUSTER_KILL);
}

static void later(uint64_t ns, void (*fn)(void *ctx), struct cluster_worker *w)
{
	sim_at(cluster_sim(run.c), cluster_now(run.c) + ns, fn, w);
}

static bool all_are_there(void)
{
	for (unsigned i = 0; i < WORKERS; i++)
		if (cluster_state(cluster_worker(run.c, i)) != CLUSTER_READY)
			return false;
	return true;
}

/* A paused member is not evicted: it renews its lease every quarter of it, and rank 0 is away for less. */
static void disturb(void)
{
	enum disturbance what = (enum disturbance)below(DISTURBANCES);
	struct cluster_worker *host = cluster_worker(run.c, 0);
	struct cluster_worker *w = cluster_worker(run.c, 1 + (unsigned)below(2)); /* the backup, or the next one */
	happened[what]++;
	uint64_t ns = below(1800 * MS);
	if (what == PAUSE_AND_LOSS && below(2)) /* another member has taken its place when rank 0 is killed */
		ns = FAR_STORE_COPY_NS + 100 * MS + below(700 * MS);
	if (what == PAUSE || what == PAUSE_AND_LOSS)
		cluster_pause(w, ns);
	if (what == PAUSE_AND_LOSS)
		later(ns > FAR_STORE_COPY_NS ? FAR_STORE_COPY_NS + below(ns - FAR_STORE_COPY_NS) : below(1500 * MS),
		      kill_host, host);
	else if (what == STORE_LOSS)
		cluster_crash(host, CLUSTER_KILL);
	else if (what == KILL)
		cluster_crash(w, CLUSTER_KILL);
	else if (what == LEAVE)
		cluster_leave(w, 5000 * MS);
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	(void)ctx;
	if ((state == CLUSTER_LEFT || state == CLUSTER_CRASHED || state == CLUSTER_FAILED) && !run.finishing)
		later(below(700 * MS), start, w);
}

/* ---- a run ---- */

/* Runs until all members are there, and for as long as a copy takes. */
static void calm(uint64_t until)
{
	struct cluster *c = run.c;
	cluster_run_until(c, cluster_now(c) + CALM + 2000 * MS);
	while (!all_are_there() && !cluster_failure(c) && cluster_now(c) < until)
		cluster_run_until(c, cluster_now(c) + 10 * MS);
	if (!all_are_there())
		wrong("a member does not come back");
	cluster_run_until(c, cluster_now(c) + CALM);
}

static void work(void)
{
	struct cluster *c = run.c;
	uint64_t until = cluster_now(c) + PATIENCE;
	cluster_start_all(c);
	calm(until);
	clients_start();
	cluster_run_until(c, cluster_now(c) + 500 * MS);
	for (; run.ends && !cluster_failure(c); run.ends--) {
		disturb();
		calm(until);
	}
	cluster_run_until(c, cluster_now(c) + LIMIT / 4);
	run.finishing = true;
	clients_end();
}

static int run_seed(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err why;
	memset(&run, 0, sizeof run);
	run.ends = ENDS;
	sim_random_init(&run.random, seed, "keys", 0);
	cluster_config_init(&config, seed);
	config.workers = WORKERS;
	config.dynamic = true;
	config.on_state = on_state;
	/* What a paused member has not read is lost with rank 0, but for a window. */
	config.streams.window_bytes = seed % 4 ? 256 : 0;
	config.clock_offset_ns_max = seed % 3 ? 1000000 * MS : 0;
	config.opts = (struct far_opts){.leaks = FAR_LEAKS_IGNORE, .lease_ns = LEASE, .connect = FAR_CONNECT_LAZY};
	run.c = cluster_create(&config, &why);
	must(run.c);
	work();
	const char *failure = cluster_failure(run.c);
	if (failure)
		fprintf(stderr, "seed %llu: %s\n", (unsigned long long)seed, failure);
	int failed = failure != NULL;
	cluster_destroy(run.c);
	return failed;
}

int main(int argc, char **argv)
{
	if ((argc != 3 && argc != 4) || (argc == 4 && !plant(argv[3]))) {
		fprintf(stderr, "usage: store_keys FROM SEEDS [MUTANT, in the build with mutants]\n");
		return 2;
	}
	uint64_t from = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
	int failed = 0;
	for (uint64_t seed = from; seed < from + n; seed++)
		failed += run_seed(seed);
	printf("%llu seeds: %llu requests acknowledged, %llu unknown;", (unsigned long long)n,
	       (unsigned long long)acknowledged, (unsigned long long)unknown);
	for (int i = 0; i < DISTURBANCES; i++)
		printf(" %s %llu%s", names[i], (unsigned long long)happened[i], i + 1 < DISTURBANCES ? "," : ";");
	printf(" failed %d\n", failed);
	return failed || !acknowledged;
}
