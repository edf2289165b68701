/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Barriers of a service. They are at slot 0 of the view alone, so that all members of a round pass together. A request
 * BARRIER waits at its barrier, which is found by its name, until the round is over: an arrival takes the same time
 * however many barriers and members wait. The thread that polls the shard.
 */
#ifndef PSV_BARRIER_H
#define PSV_BARRIER_H

#include <farcall/ps.h>

#define PSV_BARRIER_CHAINS (2 * FAR_PS_BARRIERS_MAX) /* a power of two */

struct psv_shard;
struct psv_waiter;
struct psv_barrier;

struct psv_barriers {
	struct psv_barrier *chain[PSV_BARRIER_CHAINS]; /* by id */
	unsigned n;
	uint64_t made; /* so far */
};

/** A request that has come to its barrier: it waits there, or is answered, and the others with it. Takes `w` over. */
void psv_barrier_arrive(struct psv_shard *s, struct psv_waiter *w);
/** Answers requests whose deadline or view has passed, and ends rounds whose other members are lost. `stopping`: ends
 * all. */
void psv_barriers_look(struct psv_shard *s, bool stopping);
/** With the requests that wait. */
void psv_barriers_free(struct psv_shard *s);

#endif
