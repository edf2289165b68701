/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Dynamic groups whose members join, leave, are killed, lose their power and come back, while all call all and keep
 * references to values of worker 0. Clocks show different times, and run up to 4 % faster or slower. One seed, one
 * cluster. The test's thread.
 *
 * Every call ends within its limit, and with the answer of an incarnation that was there after it had begun. When
 * nothing happens any more, all have the same view of the members. When the others have gone, worker 0 keeps no value.
 *
 * usage: dynamic_members FROM SEEDS; exit status: 0; 1: a run failed; 2: usage
 */
#include "base/must.h"
#include "members.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORKERS = 6, ENDS = 8, CALLS = 8 };

#define MS      UINT64_C(1000000)
#define LIMIT   (300 * MS)   /* of a call */
#define SLACK   (100 * MS)   /* of a worker that is busy, and of timers */
#define SETTLED (30000 * MS) /* a host without power is given up after 10 s */

static uint64_t answered, lost, unknown, other, left, killed, powered;

FAR_HANDLER(who)
{
	struct cluster_worker *w = cluster_here();
	return far_return_int(req, (int64_t)cluster_rank(w) << 32 | cluster_incarnations(w));
}

static const struct far_function functions[] = {{"t::who() -> int", FAR_KIND_INLINE, who, NULL, 0}};

/* ---- calls ---- */

static void call(struct far_agent *agent, unsigned rank)
{
	struct cluster_worker *to = cluster_worker(run.c, rank);
	const struct far_call_opts opts = {.timeout_ns = LIMIT};
	struct far_err err = {0};
	struct far_val out;
	uint64_t since = cluster_now(run.c);
	/* Only an incarnation that is there, or that is started later, may answer. */
	bool alive = cluster_state(to) >= CLUSTER_JOINING && cluster_state(to) <= CLUSTER_LEAVING;
	unsigned least = cluster_incarnations(to) + !alive;
	enum far_status status =
		far_rpc_sync_to(agent, (struct far_to){(int32_t)rank, -1}, "t::who", FAR_NOARGS, &opts, &out, &err);
	if (cluster_dead())
		return;
	if (cluster_now(run.c) - since > LIMIT + SLACK)
		wrong("a call of worker %u took %llu ms", rank,
		      (unsigned long long)((cluster_now(run.c) - since) / MS));
	answered += status == FAR_OK;
	lost += status == FAR_PEER_LOST;
	unknown += status == FAR_UNKNOWN_WORKER;
	other +=
		status == FAR_TIMEOUT || status == FAR_UNREACHABLE || status == FAR_CANCELLED || status == FAR_SHUTDOWN;
	if (status == FAR_OK && (out.u.i >> 32 != rank || (unsigned)out.u.i < least))
		wrong("worker %u, incarnation %u, has answered for worker %u, incarnation %u",
		      (unsigned)(out.u.i >> 32), (unsigned)out.u.i, rank, least);
	if (status == FAR_BUSY || status == FAR_RESOURCE || status == FAR_INVALID || status == FAR_PROTOCOL)
		wrong("a call of worker %u: %s", rank, err.text);
}

static void app(struct cluster_worker *w, void *ctx)
{
	(void)ctx;
	for (int i = 0; i < CALLS && !cluster_dead(); i++) {
		if (cluster_sleep(sim_random_below(&run.random, 20 * MS)))
			return;
		struct far_agent *agent = cluster_agent(w);
		if (cluster_dead() || !agent)
			return;
		if (cluster_rank(w) && sim_random_below(&run.random, 4) == 0)
			run_keep(agent);
		else
			call(agent, (unsigned)sim_random_below(&run.random, WORKERS));
	}
}

/* ---- members come and go ---- */

static void leave(struct cluster_worker *w)
{
	left++;
	cluster_leave(w, 5000 * MS);
}

static void end(void *ctx)
{
	struct cluster_worker *w = ctx;
	uint64_t how = sim_random_below(&run.random, 8);
	if (cluster_state(w) != CLUSTER_READY || !run.ends)
		return;
	run.ends--;
	if (how < 4) {
		leave(w);
		return;
	}
	killed += how < 7;
	powered += how == 7;
	cluster_crash(w, how == 7 ? CLUSTER_POWER : CLUSTER_KILL);
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	struct far_err err;
	(void)ctx;
	if (state == CLUSTER_READY) {
		for (int i = 0; i < 2; i++)
			cluster_spawn(w, -1, app, NULL);
		if (cluster_rank(w))
			sim_at(cluster_sim(run.c), cluster_now(run.c) + sim_random_below(&run.random, 200 * MS), end,
			       w);
	} else if (state == CLUSTER_FAILED) {
		cluster_why(w, &err);
		wrong("worker %u cannot join: %s", cluster_rank(w), err.text);
	} else if ((state == CLUSTER_LEFT || state == CLUSTER_CRASHED) && !run.finishing) {
		sim_at(cluster_sim(run.c), cluster_now(run.c) + sim_random_below(&run.random, 50 * MS), run_start, w);
	}
}

/* ---- a run ---- */

static void work(void)
{
	struct cluster *c = run.c;
	cluster_start(cluster_worker(c, 0));
	for (unsigned i = 1; i < WORKERS; i++)
		sim_at(cluster_sim(c), cluster_now(c) + sim_random_below(&run.random, 20 * MS), run_start,
		       cluster_worker(c, i));
	run_finish(SETTLED, leave);
}

static int run_seed(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err why;
	memset(&run, 0, sizeof run);
	run.ends = ENDS;
	run.ranks = WORKERS;
	run.member = run_ready;
	sim_random_init(&run.random, seed, "dynamic", 0);
	cluster_config_init(&config, seed);
	config.workers = WORKERS;
	config.dynamic = true;
	config.on_state = on_state;
	config.clock_offset_ns_max = seed % 3 ? 1000000 * MS : 0;
	config.clock_skew_ppb_max = seed % 4 ? 40000000 : 0;
	config.opts = (struct far_opts){.functions = functions,
					.functions_n = 1,
					.leaks = FAR_LEAKS_IGNORE,
					.shards = 1 + (unsigned)(seed % 2),
					.connect = seed / 2 % 2 ? FAR_CONNECT_LAZY : FAR_CONNECT_AUTO};
	run.c = cluster_create(&config, &why);
	must(run.c);
	work();
	return run_end(seed);
}

int main(int argc, char **argv)
{
	if (argc != 3) {
		fprintf(stderr, "usage: dynamic_members FROM SEEDS\n");
		return 2;
	}
	uint64_t from = strtoull(argv[1], NULL, 10), n = strtoull(argv[2], NULL, 10);
	int failed = 0;
	for (uint64_t seed = from; seed < from + n; seed++)
		failed += run_seed(seed);
	printf("%llu seeds: %llu answers; PEER_LOST %llu, UNKNOWN_WORKER %llu, others %llu; left %llu, killed %llu, "
	       "without "
	       "power %llu; failed %d\n",
	       (unsigned long long)n, (unsigned long long)answered, (unsigned long long)lost,
	       (unsigned long long)unknown, (unsigned long long)other, (unsigned long long)left,
	       (unsigned long long)killed, (unsigned long long)powered, failed);
	return failed || !answered || !lost || !unknown;
}
