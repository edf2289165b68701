/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Runs a cluster in which all call all, and prints the SHA-256 of its packets: the same line in every process and from
 * every compiler.
 * usage: cluster_trace [--measure] [--restart] WORKERS SEED [ROUNDS [LOSS [PEERS]]]; ROUNDS 0: nobody calls; LOSS in
 * parts of 10^9; PEERS that each calls, 0: all. exit status: 0; 1: the run failed, or an answer was wrong; 2: usage.
 *
 * The test's thread.
 */
#include "cluster_calls.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double seconds(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static void measured(const char *what, double since, const struct cluster *c)
{
	struct rusage usage;
	struct cluster_stats stats;
	getrusage(RUSAGE_SELF, &usage);
	cluster_stats(c, &stats);
	fprintf(stderr, "%-8s %8.2f s  %6ld MiB  %10.3f ms virtual  %llu turns  %llu steps\n", what, seconds() - since,
		usage.ru_maxrss / 1024, (double)cluster_now(c) * 1e-6, (unsigned long long)stats.turns,
		(unsigned long long)stats.steps);
}

static int failed(const struct cluster *c, const char *what)
{
	const char *why = cluster_failure(c);
	fprintf(stderr, "cluster_trace: %s: %s\n", what, why ? why : "it took too long");
	return 1;
}

static void disturb(struct cluster *c, uint32_t loss)
{
	const struct sim_disturbance d = {.loss = loss, .duplicate = loss, .reorder = loss, .corrupt = loss / 4};
	for (unsigned i = 0; i < cluster_workers(c); i++)
		sim_link_disturb(sim_uplink(cluster_host(cluster_worker(c, i)), 0), &d);
}

static bool restart_last(struct cluster *c)
{
	struct cluster_worker *w = cluster_worker(c, cluster_workers(c) - 1);
	cluster_run_until(c, cluster_now(c) + 30000);
	cluster_crash(w, CLUSTER_KILL);
	cluster_run_until(c, cluster_now(c) + 1000000);
	cluster_start(w);
	return cluster_run_ready(c, UINT64_C(600000000000)) == CLUSTER_RUN_DONE;
}

static int run(struct cluster *c, struct calls *calls, uint32_t loss, bool measure, bool restart)
{
	const uint64_t patience = UINT64_C(600000000000);
	double since = seconds();
	if (measure)
		measured("created", since, c);
	cluster_start_all(c);
	if (cluster_run_ready(c, patience) != CLUSTER_RUN_DONE)
		return failed(c, "the join");
	if (measure)
		measured("ready", since, c);
	disturb(c, loss);
	if (calls->rounds)
		calls_spawn(calls);
	if (restart && !restart_last(c))
		return failed(c, "the join of who was started again");
	if (cluster_run_apps(c, patience) != CLUSTER_RUN_DONE)
		return failed(c, "the calls");
	if (measure)
		measured("called", since, c);
	disturb(c, 0);
	cluster_leave_all(c, 0);
	if (cluster_run_left(c, patience) != CLUSTER_RUN_DONE)
		return failed(c, "the shutdown");
	if (measure)
		measured("left", since, c);
	for (unsigned i = 0; i < cluster_workers(c); i++) {
		struct far_err err;
		if (cluster_why(cluster_worker(c, i), &err)) {
			fprintf(stderr, "cluster_trace: worker %u left with: %s\n", i, err.text);
			return 1;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	bool measure = argc > 1 && strcmp(argv[1], "--measure") == 0;
	argv += measure;
	argc -= measure;
	bool restart = argc > 1 && strcmp(argv[1], "--restart") == 0;
	argv += restart;
	argc -= restart;
	if (argc < 3 || argc > 6) {
		fprintf(stderr, "usage: cluster_trace [--measure] [--restart] WORKERS SEED [ROUNDS [LOSS [PEERS]]]\n");
		return 2;
	}
	struct calls calls = {.rounds = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 0) : 1, .typed = true};
	calls.peers = argc > 5 ? (unsigned)strtoul(argv[5], NULL, 0) : 0;
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	char hash[SHA256_TEXT_BYTES];
	cluster_config_init(&config, strtoull(argv[2], NULL, 0));
	config.workers = (unsigned)strtoul(argv[1], NULL, 0);
	config.clock_offset_ns_max = UINT64_C(1000000000);
	config.clock_skew_ppb_max = 50000;
	calls_opts(&config.opts, &calls);
	struct cluster *c = cluster_create(&config, &err);
	if (!c) {
		fprintf(stderr, "cluster_trace: %s\n", err.text);
		return 2;
	}
	calls.c = c;
	int status = run(c, &calls, argc > 4 ? (uint32_t)strtoul(argv[4], NULL, 0) : 0, measure, restart);
	sim_trace_hash(cluster_sim(c), hash);
	printf("%s %llu ok %llu failed %llu wrong at %llu ns\n", hash, (unsigned long long)calls.ok,
	       (unsigned long long)calls.failed, (unsigned long long)calls.wrong, (unsigned long long)cluster_now(c));
	if (calls.failed && !status)
		fprintf(stderr, "cluster_trace: the last that failed: %s\n", calls.last.text);
	cluster_destroy(c);
	return status || calls.wrong ? 1 : 0;
}
