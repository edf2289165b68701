/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What tests of dynamic groups have in common: references to values of worker 0, the end of a run, and the views of the
 * members then. The thread of the simulator runs all of it.
 */
#ifndef MEMBERS_H
#define MEMBERS_H

#include "apps/sim/cluster.h"

enum { MEMBERS_KEPT_MAX = 256 };

/** One seed, one cluster. */
struct members_run {
	struct cluster *c;
	struct sim_random random;
	unsigned ends;  /* of workers, or disturbances, still to come */
	bool settled;   /* a quarter of `settle_ns` has passed since the last end: few calls suffice from here on */
	bool finishing; /* a worker that ends now is not started again */
	struct far_rref *kept[MEMBERS_KEPT_MAX];
	unsigned kept_n;
	unsigned ranks; /* of the group; more workers are stand-bys */
	/* The worker that is the member of the rank; NULL: there is none. */
	struct cluster_worker *(*member)(unsigned rank);
};
extern struct members_run run;

/** Fails the run with this text. */
__attribute__((format(printf, 1, 2))) void wrong(const char *format, ...);

/** Starts a cluster_worker, unless the run is finishing: a callback of sim_at(). */
void run_start(void *worker);
/** Makes a value on worker 0. Its reference is released after the run, if its worker ends without releasing it. */
void run_keep(struct far_agent *agent);

/** The worker of this number if it is ready, else NULL: members_run.member of groups without stand-bys. */
struct cluster_worker *run_ready(unsigned rank);

/**
 * Runs until no end is left, and `settle_ns` longer, checks that all members have the same view, ends all workers but
 * the first, by `leave` (a ready one) or a kill, and checks that worker 0 keeps nothing of them. Returns after the
 * first failure.
 */
void run_finish(uint64_t settle_ns, void (*leave)(struct cluster_worker *w));
/** Destroys the cluster. Returns 1 and prints the failure if there was one, else 0. */
int run_end(uint64_t seed);

#endif
