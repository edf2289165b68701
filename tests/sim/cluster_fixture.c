/* SPDX-License-Identifier: BSD-3-Clause */
/** Clusters for Criterion. One thread. */
#include "cluster_fixture.h"

#include <criterion/criterion.h>

struct cluster_sort next_cluster = {.kind = SIM_STAR, .rails = 1};

struct cluster *fixture_made(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards)
{
	struct cluster_config config;
	struct nic_err err = {.text = ""};
	cluster_config_init(&config, seed);
	config.workers = workers;
	config.opts.shards = shards;
	config.clock_offset_ns_max = SECOND;
	config.clock_skew_ppb_max = 100000;
	config.streams.chop = SIM_CERTAIN / 4;
	config.port_args = next_cluster.port_args;
	config.opts.connect = next_cluster.connect;
	config.sim.topology.kind = next_cluster.kind;
	config.sim.topology.rails = next_cluster.rails;
	config.sim.topology.leaves = config.sim.topology.spines = next_cluster.kind == SIM_LEAF_SPINE ? 2 : 0;
	config.sim.topology.fabric = config.sim.topology.host;
	calls_opts(&config.opts, calls);
	struct cluster *c = cluster_create(&config, &err);
	cr_assert(c, "%s", err.text);
	calls->c = c;
	return c;
}

struct cluster *fixture_ready(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards)
{
	struct cluster *c = fixture_made(workers, seed, calls, shards);
	cluster_start_all(c);
	cr_assert_eq(cluster_run_ready(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	return c;
}

void fixture_destroy(struct cluster *c)
{
	struct far_memory memory;
	cluster_destroy(c);
	far_memory_stats(&memory);
	cr_assert_eq(memory.slab_used, 0, "%llu bytes of slabs are in use", (unsigned long long)memory.slab_used);
}

void fixture_apps_end(struct cluster *c)
{
	cr_assert_eq(cluster_run_apps(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
}

void fixture_leave(struct cluster *c)
{
	struct far_err err;
	cluster_leave_all(c, 0);
	cr_assert_eq(cluster_run_left(c, PATIENCE), CLUSTER_RUN_DONE, "%s", cluster_failure(c));
	for (unsigned i = 0; i < cluster_workers(c); i++) {
		struct cluster_worker *w = cluster_worker(c, i);
		cr_assert_eq(cluster_state(w), CLUSTER_LEFT);
		cr_assert_eq(cluster_why(w, &err), FAR_OK, "%s", err.text);
	}
	fixture_destroy(c);
}

void fixture_all_call_all(unsigned workers, unsigned shards, unsigned rounds)
{
	struct calls calls = {.rounds = rounds, .typed = true};
	struct cluster *c = fixture_ready(workers, workers, &calls, shards);
	calls_spawn(&calls);
	fixture_apps_end(c);
	cr_assert_eq(calls.failed, 0, "%s", calls.last.text);
	cr_assert_eq(calls.wrong, 0);
	cr_assert_eq(calls.ok, 2ull * rounds * workers * workers);
	fixture_leave(c);
}
