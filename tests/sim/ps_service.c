/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A parameter server of two servers and three clients in a simulated world, by the shipped library: packets are lost or
 * come twice, clients are killed and come back, servers begin anew, hosts lose their power or stand still. One seed,
 * one cluster. The test's thread.
 *
 * Each push counts once, also when it is repeated after a timeout or a restart of its client; counters and values are
 * linearizable; rows expire neither early nor late; each pull is answered by its deadline with the right status per
 * key; no step begins before its time, and none waits for a dead worker. Functions count once, or fail and change
 * nothing; no client passes a barrier without another one that is not lost.
 *
 * usage: ps_service FROM SEEDS; with mutants: ps_service MUTANT FROM SEEDS, ps_service list
 * exit status: 0; 1: a run failed; 2: usage
 */
#include "apps/libps/ps_mutant.h"
#include "apps/libps/psv_env.h"
#include "apps/libps/psv_shard.h"
#include "base/must.h"
#include "ps_world.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNTIL_READY (300000 * MS)
#define UNTIL_DONE  (900000 * MS)
#define STRIKES_IN  (600 * MS) /* of virtual time */
#define STRIKES_MAX 4u

struct ps_run run;

static uint64_t total_changes, total_reads, total_unanswered, total_repeats, total_excused, total_kills, total_restarts,
	total_pauses, total_meetings;

void wrong(const char *format, ...)
{
	char text[512];
	va_list args;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	cluster_fail(run.c, "%s", text);
}

static uint64_t draw(uint64_t n)
{
	return sim_random_below(&run.random, n);
}

static uint64_t world_now(void)
{
	return cluster_now(run.c);
}

/* ---- Servers ---- */

/* What the thread of a server does besides. */
static void serve_app(struct cluster_worker *w, void *ctx)
{
	unsigned s = cluster_rank(w) - FIRST_SERVER;
	static const char *const servers[PS_SERVERS] = {"w1", "w2"};
	const struct far_ps_serve_opts opts = {.servers = servers, .servers_n = PS_SERVERS};
	struct far_err err;
	(void)ctx;
	if (far_ps_serve(cluster_agent(w), "sim", &opts, &run.server[s], &err)) {
		if (!cluster_dead())
			wrong("server %u does not serve: %s", s, err.text);
		return;
	}
	must(run.history.incarnations[s] < PS_INCARNATIONS_MAX);
	run.history.incarnation[s][run.history.incarnations[s]++] =
		(struct ps_incarnation){cluster_now(run.c), PS_NEVER};
	for (uint64_t turn = 1; cluster_sleep(5 * MS) == FAR_OK && !cluster_dead(); turn++) {
		(void)psv_server_look(run.server[s]);
		if (turn * 5 * MS % PSV_WAKE_EVERY_NS == 0 && atomic_load(&run.server[s]->waiting))
			(void)psv_server_wake(run.server[s], NULL);
	}
}

static void server_gone(unsigned s)
{
	struct ps_history *h = &run.history;
	if (run.server[s] && h->incarnations[s] && h->incarnation[s][h->incarnations[s] - 1].to == PS_NEVER)
		h->incarnation[s][h->incarnations[s] - 1].to = cluster_now(run.c);
	far_ps_server_free(run.server[s]);
	run.server[s] = NULL;
}

/* ---- Strikes ---- */

static void start(void *ctx)
{
	cluster_start(ctx);
}

/* A server or a client ends, or stands still. Those that end come back, but for some clients. */
static void strike(void *ctx)
{
	unsigned rank = FIRST_SERVER + (unsigned)draw(WORKERS - FIRST_SERVER);
	struct cluster_worker *w = cluster_worker(run.c, rank);
	bool is_client = rank >= FIRST_CLIENT;
	(void)ctx;
	if (cluster_state(w) != CLUSTER_READY)
		return;
	if (draw(3) == 0 || (!is_client && (!run.forgets || run.history.incarnations[rank - FIRST_SERVER] > 3))) {
		uint64_t ns = draw(is_client ? 200 : 1500) * MS;
		if (is_client)
			run.client[rank - FIRST_CLIENT].paused_to = cluster_now(run.c) + ns;
		total_pauses++;
		cluster_pause(w, ns);
		return;
	}
	total_kills += is_client;
	total_restarts += !is_client;
	cluster_crash(w, draw(6) ? CLUSTER_KILL : CLUSTER_POWER);
}

static bool comes_back(unsigned rank)
{
	const struct client *c = rank >= FIRST_CLIENT ? &run.client[rank - FIRST_CLIENT] : NULL;
	/* A worker whose clock a shard has never heard, or has forgotten, is waited for. */
	return !c || run.forgets || !c->known || draw(2);
}

static void on_state(void *ctx, struct cluster_worker *w, enum cluster_state state)
{
	unsigned rank = cluster_rank(w);
	bool is_client = rank >= FIRST_CLIENT, is_server = rank >= FIRST_SERVER && !is_client;
	struct far_err err;
	(void)ctx;
	if (state == CLUSTER_FAILED) {
		cluster_why(w, &err);
		wrong("worker %u cannot join: %s", rank, err.text);
	}
	if (state == CLUSTER_READY) {
		if (is_server)
			cluster_spawn(w, 0, serve_app, NULL);
		if (is_client) {
			cluster_spawn(w, -1, client_app, NULL);
			cluster_spawn(w, -1, meet_app, NULL);
		}
		if (!is_server)
			cluster_spawn(w, -1, reader_app, NULL);
	}
	if (state != CLUSTER_CRASHED && state != CLUSTER_LEFT)
		return;
	if (is_server)
		server_gone(rank - FIRST_SERVER);
	if (state == CLUSTER_LEFT)
		return;
	if (is_client) {
		run.client[rank - FIRST_CLIENT].excused_from = cluster_now(run.c);
		run.client[rank - FIRST_CLIENT].excused_to = PS_NEVER;
		meetings_died(rank - FIRST_CLIENT);
	}
	if (comes_back(rank))
		sim_at(cluster_sim(run.c), cluster_now(run.c) + draw(200) * MS, start, w);
	else
		run.client[rank - FIRST_CLIENT].ended = true;
}

/* ---- Packets ---- */

static struct sim_random losses;
static uint64_t lost_of_100000, twice_of_100000;

static bool lose(void *ctx, const uint8_t *body, uint32_t len)
{
	(void)ctx, (void)body, (void)len;
	return sim_random_below(&losses, 100000) < lost_of_100000;
}

static uint64_t come_again(void *ctx, const uint8_t *body, uint32_t len)
{
	(void)ctx, (void)body, (void)len;
	return sim_random_below(&losses, 100000) < twice_of_100000 ? 1 + sim_random_below(&losses, 20 * MS) : 0;
}

/* ---- A run ---- */

static void opts_of(void *ctx, unsigned rank, struct far_opts *opts)
{
	bool is_server = rank >= FIRST_SERVER && rank < FIRST_CLIENT;
	(void)ctx;
	opts->shards = is_server ? run.history.shards : 1;
}

static bool all_there(void)
{
	for (unsigned i = 0; i < FIRST_CLIENT; i++)
		if (cluster_state(cluster_worker(run.c, i)) != CLUSTER_READY)
			return false;
	for (unsigned s = 0; s < PS_SERVERS; s++)
		if (!run.server[s])
			return false;
	for (unsigned c = 0; c < PS_CLIENTS; c++)
		if (!run.client[c].ended)
			return false;
	return true;
}

/* Until the clients have done all changes, and the servers are there. */
static bool settle(void)
{
	uint64_t until = cluster_now(run.c) + UNTIL_DONE;
	while (!cluster_failure(run.c) && !all_there()) {
		if (cluster_now(run.c) > until)
			wrong("the clients did not end");
		cluster_run_until(run.c, cluster_now(run.c) + 20 * MS);
	}
	return !cluster_failure(run.c);
}

static void final_reads(void)
{
	struct cluster_worker *w = cluster_worker(run.c, 0);
	unsigned apps = cluster_apps(w);
	cluster_spawn(w, -1, final_app, NULL);
	uint64_t until = cluster_now(run.c) + UNTIL_DONE;
	while (!cluster_failure(run.c) && cluster_apps(w) > 0 && cluster_now(run.c) < until)
		cluster_run_until(run.c, cluster_now(run.c) + 20 * MS);
	if (cluster_apps(w))
		wrong("the last pull did not end; %u applications before", apps);
	meetings_check();
	if (!cluster_failure(run.c) && !ps_history_check(&run.history))
		wrong("%s", run.history.failure);
}

static void work(void)
{
	cluster_start_all(run.c);
	if (cluster_run_ready(run.c, UNTIL_READY) != CLUSTER_RUN_DONE) {
		wrong("the group does not form");
		return;
	}
	for (uint64_t n = run.calm ? 0 : draw(STRIKES_MAX + 1); n > 0; n--)
		sim_at(cluster_sim(run.c), cluster_now(run.c) + draw(STRIKES_IN), strike, NULL);
	if (settle())
		final_reads();
}

static bool one(uint64_t seed)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	static const uint64_t losses_of_100000[] = {0, 100, 1000, 5000};
	memset(&run, 0, sizeof run);
	run.seed = seed;
	sim_random_init(&run.random, seed, "ps", 0);
	sim_random_init(&losses, seed, "ps-packets", 0);
	run.calm = seed % 8 == 0;
	run.forgets = seed / 8 % 3 == 0;
	run.staleness = (unsigned)draw(3);
	run.history.shards = 1 + (unsigned)draw(2);
	lost_of_100000 = run.calm ? 0 : losses_of_100000[draw(4)];
	twice_of_100000 = run.calm ? 0 : losses_of_100000[draw(4)];
	cluster_config_init(&config, seed);
	config.workers = WORKERS;
	config.opts_of = opts_of;
	config.on_state = on_state;
	config.sim.lose = lose;
	config.sim.again = come_again;
	config.sim.untraced = true;
	run.c = cluster_create(&config, &err);
	must(run.c != NULL);
	work();
	bool failed = cluster_failure(run.c);
	if (failed)
		fprintf(stderr, "ps_service: seed %llu: %s\n", (unsigned long long)seed, cluster_failure(run.c));
	total_changes += run.changes;
	total_reads += run.reads;
	total_unanswered += run.unanswered;
	total_repeats += run.repeats;
	total_excused += run.excused;
	total_meetings += run.meetings;
	cluster_destroy(run.c);
	for (unsigned s = 0; s < PS_SERVERS; s++)
		far_ps_server_free(run.server[s]);
	ps_history_free(&run.history);
	return !failed;
}

#ifdef FAR_PS_MUTANTS
enum ps_mutant ps_mutant_planted;
unsigned ps_mutant_turn;

/* The first argument: a mutant, or "list". False: usage. */
static bool plant(const char *name)
{
	static const struct {
		const char *name, *text;
	} list[] = {
#define NAMED(id, name, text) {name, text},
		PS_MUTANT_LIST(NAMED)
#undef NAMED
	};
	for (unsigned i = 0; i < sizeof list / sizeof *list; i++) {
		if (!strcmp(name, "list"))
			printf("%s\n", list[i].name);
		else if (!strcmp(name, list[i].name))
			ps_mutant_planted = (enum ps_mutant)(i + 1);
	}
	return ps_mutant_planted || !strcmp(name, "list") || !strcmp(name, "none");
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
	bool usage = argc < 2 || (argc != 3 && !plant(argv[1]));
	if (usage || (argc == 2 && strcmp(argv[1], "list") != 0)) {
		fprintf(stderr, "usage: ps_service FROM SEEDS\n");
		return 2;
	}
	if (argc == 2)
		return 0;
	psv_env = (struct psv_env){.now_ns = world_now};
	must(functions_register());
	uint64_t from = strtoull(argv[argc - 2], NULL, 0), n = strtoull(argv[argc - 1], NULL, 0), bad = 0;
	for (uint64_t i = 0; i < n && (argc == 3 || !bad); i++)
		bad += !one(from + i);
	printf("%llu changes, %llu of them repeated, %llu pulls, %llu keys unanswered; %llu clients killed, %llu "
	       "servers; "
	       "%llu pauses; %llu steps beside an excused client; %llu barriers passed; %llu runs of %llu were wrong\n",
	       (unsigned long long)total_changes, (unsigned long long)total_repeats, (unsigned long long)total_reads,
	       (unsigned long long)total_unanswered, (unsigned long long)total_kills,
	       (unsigned long long)total_restarts, (unsigned long long)total_pauses, (unsigned long long)total_excused,
	       (unsigned long long)total_meetings, (unsigned long long)bad, (unsigned long long)n);
	return bad > 0;
}
