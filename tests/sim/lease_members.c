/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Leases of a dynamic group: workers are killed, lose their power, stand still beyond their lease, are cut off from the
 * store or from everybody, and rank 0 dies with the store and comes back, while all call all and keep references to
 * values of worker 0. Clocks show different times and run at different speeds. One seed, one cluster.
 *
 * A handler never starts at, and an answer never reaches, an incarnation that the store has ended. A worker that is
 * there joins again by itself: when nothing happens any more, all have the same view of the members. When the others
 * have gone, worker 0 keeps no value for their references.
 *
 * usage: lease_members FROM SEEDS [MUTANT]; exit status: 0; 1: a run failed; 2: usage
 */
#include "agent/agent.h"
#include "agent/env.h"
#include "base/must.h"
#include "base/mutant.h"
#include "control/lease.h"
#include "core/shard.h"
#include "members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 5, ENDS = 10 };

#define MS      UINT64_C(1000000)
#define LEASE   (400 * MS)
#define LIMIT   (300 * MS)   /* of a call */
#define SLACK   (100 * MS)   /* of a host that is busy, and of its clock */
#define SETTLED (40000 * MS) /* a stream whose other end has no power is given up after 10 s */

enum disturbance { KILL, POWER, PAUSE, CUT_STORE, CUT_ALL, STORE_LOSS, LEAVE, DISTURBANCES };
static const char *const names[] = {"killed",       "without power", "paused", "cut from the store",
				    "cut from all", "store lost",    "left"};

static uint64_t answered, failed_calls, handled, evicted, happened[DISTURBANCES];

static const struct ctl_member *seen_by_host(const struct cluster_worker *w)
{
	struct cluster_worker *host = cluster_worker(run.c, 0);
	return cluster_state(host) == CLUSTER_READY ? &cluster_agent(host)->members[cluster_rank(w)] : NULL;
}

/* True if the store has ended the incarnation in whose name the running shard works. The host's control thread sees it
 * at once. */
static bool is_evicted(struct cluster_worker *w)
{
	const struct ctl_member *m = seen_by_host(w);
	const struct shard *s = agent_shard_here();
	if (!m || !s || cluster_state(w) != CLUSTER_READY || cluster_rank(w) == 0)
		return false;
	return atomic_load(&m->incarnation) == s->config.incarnation && !atomic_load(&m->alive);
}

FAR_HANDLER(who)
{
	struct cluster_worker *w = cluster_here();
	handled++;
	if (is_evicted(w))
		wrong("worker %u has started a handler after the store had ended its lease", cluster_rank(w));
	return far_return_int(req, (int64_t)cluster_rank(w) << 32 | cluster_incarnations(w));
}

static const struct far_function functions[] = {{"t::who() -> int", FAR_KIND_INLINE, who, NULL, 0}};

/* ---- calls ---- */

static void call(struct cluster_worker *w, unsigned rank)
{
	const struct far_call_opts opts = {.timeout_ns = LIMIT};
	uint64_t before = agent_shard_here()->config.incarnation;
	struct far_err err = {0};
	struct far_val out;
	enum far_status status = far_rpc_sync_to(cluster_agent(w), (struct far_to){(int32_t)rank, -1}, "t::who",
						 FAR_NOARGS, &opts, &out, &err);
	if (cluster_dead() || !cluster_agent(w))
		return;
	answered += status == FAR_OK;
	failed_calls += status != FAR_OK;
	if (status == FAR_OK && is_evicted(w))
		wrong("worker %u has got an answer after the store had ended its lease", cluster_rank(w));
	if (status == FAR_OK && before != agent_shard_here()->config.incarnation)
		wrong("worker %u has got an answer to a call of its former incarnation", cluster_rank(w));
	if (status == FAR_OK && out.u.i >> 32 != rank)
		wrong("worker %u has answered for worker %u", (unsigned)(out.u.i >> 32), rank);
	if (status == FAR_BUSY || status == FAR_RESOURCE || status == FAR_INVALID || status == FAR_PROTOCOL)
		wrong("a call of worker %u: %s", rank, err.text);
}

static void app(struct cluster_worker *w, void *ctx)
{
	(void)ctx;
	while (!cluster_dead() && !run.finishing) {
		if (cluster_sleep(sim_random_below(&run.random, 40 * MS)) || cluster_dead() || !cluster_agent(w))
			return;
		if (cluster_rank(w) && sim_random_below(&run.random, 16) == 0)
			run_keep(cluster_agent(w));
		else
			call(w, (unsigned)sim_random_below(&run.random, WORKERS));
	}
}

/* ---- disturbances ---- */

static void cut(struct cluster_worker *w, bool all, bool is_cut)
{
	for (unsigned r = 0; r < (all ? WORKERS : 1); r++) {
		struct cluster_worker *other = cluster_worker(run.c, r);
		if (other == w)
			continue;
		cluster_partition(w, other, is_cut);
		cluster_partition(other, w, is_cut);
	}
}

static void heal(void *ctx)
{
	cut(ctx, true, false);
}

static void later(uint64_t ns, void (*fn)(void *ctx), struct cluster_worker *w)
{
	sim_at(cluster_sim(run.c), cluster_now(run.c) + ns, fn, w);
}

/* A worker that stands still is no member any more when the store's time for its lease has passed. */
static struct paused {
	unsigned rank, host_incarnations;
	uint64_t incarnation;
} paused[ENDS];
static unsigned paused_n;

static void check_paused(void *ctx)
{
	const struct paused *p = ctx;
	struct cluster_worker *host = cluster_worker(run.c, 0);
	const struct ctl_member *m = seen_by_host(cluster_worker(run.c, p->rank));
	if (m && cluster_incarnations(host) == p->host_incarnations && atomic_load(&m->alive) &&
	    atomic_load(&m->incarnation) == p->incarnation)
		wrong("worker %u stands still beyond its lease and is still a member", p->rank);
}

static void pause_worker(struct cluster_worker *w, uint64_t ns)
{
	struct cluster_worker *host = cluster_worker(run.c, 0);
	uint64_t ended = lease_with_margin(LEASE) + SLACK;
	const struct ctl_member *m = seen_by_host(w);
	bool runs = sim_host_state(cluster_host(w)) == SIM_RUNNING;
	cluster_pause(w, ns);
	if (!runs || ns < ended || !m || !atomic_load(&m->alive))
		return;
	struct paused *p = &paused[paused_n++];
	*p = (struct paused){cluster_rank(w), cluster_incarnations(host), atomic_load(&m->incarnation)};
	sim_at(cluster_sim(run.c), cluster_now(run.c) + ended, check_paused, p);
}

static void disturb(void *ctx)
{
	(void)ctx;
	enum disturbance what = (enum disturbance)sim_random_below(&run.random, DISTURBANCES);
	struct cluster_worker *w = cluster_worker(
		run.c, what == STORE_LOSS ? 0 : 1 + (unsigned)sim_random_below(&run.random, WORKERS - 1));
	uint64_t ns = LEASE / 2 + sim_random_below(&run.random, 4 * LEASE);
	if (!run.ends)
		return;
	if (cluster_state(w) == CLUSTER_READY) {
		run.ends--;
		happened[what]++;
		if (what == KILL || what == STORE_LOSS)
			cluster_crash(w, CLUSTER_KILL);
		else if (what == POWER)
			cluster_crash(w, CLUSTER_POWER);
		else if (what == PAUSE)
			pause_worker(w, ns);
		else if (what == LEAVE)
			cluster_leave(w, 5000 * MS);
		else
			cut(w, what == CUT_ALL, true);
		if (what == CUT_STORE || what == CUT_ALL)
			later(ns, heal, w);
	}
	later(sim_random_below(&run.random, 3 * LEASE), disturb, w);
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	struct far_err err;
	(void)ctx;
	if (state == CLUSTER_READY) {
		for (int i = 0; i < 2; i++)
			cluster_spawn(w, -1, app, NULL);
	} else if (state == CLUSTER_FAILED) {
		/* The store may be lost while a worker joins. */
		if (cluster_why(w, &err) != FAR_PEER_LOST && err.status != FAR_TIMEOUT)
			wrong("worker %u cannot join: %s", cluster_rank(w), err.text);
	}
	if ((state == CLUSTER_LEFT || state == CLUSTER_CRASHED || state == CLUSTER_FAILED) && !run.finishing)
		later(sim_random_below(&run.random, cluster_rank(w) ? 50 * MS : 3 * LEASE), run_start, w);
}

/* ---- a run ---- */

static void leave(struct cluster_worker *w)
{
	cluster_leave(w, 5000 * MS);
}

static void work(void)
{
	struct cluster *c = run.c;
	for (unsigned i = 0; i < WORKERS; i++)
		later(i ? sim_random_below(&run.random, 20 * MS) : 0, run_start, cluster_worker(c, i));
	later(100 * MS, disturb, NULL);
	run_finish(SETTLED, leave);
}

static void log_hook(enum far_log_level level, const char *text, const struct far_log_field *fields, size_t n,
		     void *user)
{
	(void)level, (void)fields, (void)n, (void)user;
	evicted += strstr(text, "is no member of group") != NULL;
}

static int run_seed(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err why;
	memset(&run, 0, sizeof run);
	run.ends = ENDS;
	paused_n = 0;
	sim_random_init(&run.random, seed, "lease", 0);
	cluster_config_init(&config, seed);
	config.workers = WORKERS;
	config.dynamic = true;
	config.on_state = on_state;
	config.clock_offset_ns_max = seed % 3 ? 1000000 * MS : 0;
	config.clock_skew_ppb_max = seed % 4 ? 200000 : 0;
	config.opts = (struct far_opts){.functions = functions,
					.functions_n = 1,
					.leaks = FAR_LEAKS_IGNORE,
					.lease_ns = LEASE,
					.peer_limit_ns = 100 * MS,
					.shards = 1 + (unsigned)(seed % 2),
					.connect = seed / 2 % 2 ? FAR_CONNECT_LAZY : FAR_CONNECT_AUTO};
	run.c = cluster_create(&config, &why);
	must(run.c);
	work();
	return run_end(seed);
}

#ifdef FAR_MUTANTS
static bool plant(const char *name)
{
	static const char *const all[] = {"",
#define MUTANT_NAME(id, name, text) name,
					  MUTANT_LIST(MUTANT_NAME)
#undef MUTANT_NAME
	};
	for (int i = 1; i < MUTANT_COUNT; i++)
		if (strcmp(all[i], name) == 0)
			mutant_planted = (enum mutant)i;
	return mutant_planted != MUTANT_NONE;
}
#else
static bool plant(const char *name)
{
	(void)name;
	return false;
}
#endif

int main(int argc, char **argv)
{
	if ((argc != 3 && argc != 4) || (argc == 4 && !plant(argv[3]))) {
		fprintf(stderr, "usage: lease_members FROM SEEDS [MUTANT, in the build with mutants]\n");
		return 2;
	}
	uint64_t from = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
	int failed = 0;
	far_log_set(log_hook, NULL);
	for (uint64_t seed = from; seed < from + n; seed++)
		failed += run_seed(seed);
	printf("%llu seeds: %llu answers, %llu calls failed, %llu handlers; %llu leases lost;", (unsigned long long)n,
	       (unsigned long long)answered, (unsigned long long)failed_calls, (unsigned long long)handled,
	       (unsigned long long)evicted);
	for (int i = 0; i < DISTURBANCES; i++)
		printf(" %s %llu%s", names[i], (unsigned long long)happened[i], i + 1 < DISTURBANCES ? "," : ";");
	printf(" failed %d\n", failed);
	return failed || !answered || !evicted;
}
