/* SPDX-License-Identifier: BSD-3-Clause */
/** Clusters for Criterion: what fails on the way fails the test. The test's thread. */
#ifndef CLUSTER_FIXTURE_H
#define CLUSTER_FIXTURE_H

#include "cluster_calls.h"

#define SECOND   UINT64_C(1000000000)
#define PATIENCE (100 * SECOND)

/** What the clusters that are made from now on are like. */
struct cluster_sort {
	const char *port_args;
	enum far_connect connect;
	enum sim_topology_kind kind;
	unsigned rails;
};
extern struct cluster_sort next_cluster;

/** Nobody started yet. */
struct cluster *fixture_made(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards);
/** Everybody is READY. */
struct cluster *fixture_ready(unsigned workers, uint64_t seed, struct calls *calls, unsigned shards);
/** Nothing of it is left in a buffer, whatever was under way. */
void fixture_destroy(struct cluster *c);
/** Until no application is left. */
void fixture_apps_end(struct cluster *c);
/** All leave in order, and it is destroyed. */
void fixture_leave(struct cluster *c);
/** An incarnation of a cluster in which all call all, every answer checked. */
void fixture_all_call_all(unsigned workers, unsigned shards, unsigned rounds);

#endif
