/* SPDX-License-Identifier: BSD-3-Clause */
/** The mixed calls of the clean-path test: what is called, and the handlers that call it.
 * Main thread of each process. */
#ifndef CALLS_H
#define CALLS_H

#include <farcall/farcall.h>

enum { CALLS_FUNCTIONS = 20, CALLS_MESSAGES = 6, CALLS_SHARDS_MAX = 2 };

/* By a shard, of each kind; written by its driver. `n`: all. */
struct calls_made {
	unsigned long n, typed, messages, nested, deferred, cancelled, timed_out, failed, repeated, large;
};

/** Of this process: set before the handlers run. `goal`: how many calls each shard makes. */
struct calls {
	struct far_agent *agent;
	int rank;
	unsigned shards;
	bool shared; /* the driver */
	unsigned long goal;
	struct calls_made made[CALLS_SHARDS_MAX];
};
extern struct calls calls;

/** The caller's own: clean::arm(), clean::stage() and clean::end(), of kind inline. */
far_fn calls_arm, calls_stage, calls_end;

/** What a worker registers; clean::drive(int seed) makes calls until there are as many as the goal. */
void calls_handlers(int rank, struct far_opts *opts);

#endif
