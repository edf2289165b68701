/* SPDX-License-Identifier: BSD-3-Clause */
/** A workload for clusters: all call all, messages and typed functions, every answer checked. The test's thread. */
#ifndef CLUSTER_CALLS_H
#define CLUSTER_CALLS_H

#include "apps/sim/cluster.h"

#include <stdbool.h>

enum { CALLS_ECHO = 1, CALLS_FIBER = 2, CALLS_HANG = 3 };

/** What the applications of a run have seen; constant but for the counters. */
struct calls {
	struct cluster *c;
	unsigned rounds;     /* each calls every worker so often */
	unsigned peers;      /* that each calls, itself and those that follow; 0: all */
	bool typed;          /* far::add too */
	uint64_t timeout_ns; /* of a call; 0: the default */
	uint64_t ok, failed; /* calls, oneself's included */
	uint64_t wrong;      /* that were answered with something else */
	uint64_t served, hung, unhung;
	enum far_status last_status; /* of the last failed one */
	struct far_err last;
};

/** Handlers of `opts`, with `calls` for them. */
void calls_opts(struct far_opts *opts, struct calls *calls);
/** On every READY worker. */
void calls_spawn(struct calls *calls);
/** The application, for cluster_spawn(); ctx is the struct calls. */
void calls_app(struct cluster_worker *w, void *ctx);

#endif
