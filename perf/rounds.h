/* SPDX-License-Identifier: BSD-3-Clause */
/** Measurements that alternate with the machine's floors, in one pair of processes. */
#ifndef PERF_ROUNDS_H
#define PERF_ROUNDS_H

#include "hist.h"
#include "peer.h"
#include "perf.h"

#define ROUNDS 7 /* with a floor; the ratio reported is the median of theirs */

struct rounds {
	const struct perf_opts *o;
	struct peer peer;
	struct hist calls; /* of all rounds; what a call took */
	struct hist round; /* of the present one */
	uint64_t calls_n;  /* completed, in all rounds */
	uint64_t busy_ns;  /* time measured, in all rounds */
	/* Floors, one entry a round. */
	double line_rtt_ns[ROUNDS], ring_rtt_ns[ROUNDS], ring_calls_per_s[ROUNDS], copy_bytes_per_s[ROUNDS];
	double ratio[ROUNDS];
	unsigned n; /* rounds done */
};

/** One measurement of about `ns`: fills `round`, adds to `calls_n` and `busy_ns`. 0, or an exit status after printing.
 */
typedef int rounds_measure_fn(struct rounds *r, uint64_t ns, void *ctx);
/** What the round just measured is, over its floor (entry `n` of the arrays). */
typedef double rounds_ratio_fn(const struct rounds *r, uint64_t calls, uint64_t ns);

/**
 * Warms up, then measures: without --floor once; with it in ROUNDS rounds, each behind its floors (`rate`: also those
 * of many in flight). 0 or an exit status, after printing.
 */
int rounds_run(struct rounds *r, bool rate, rounds_measure_fn *measure, rounds_ratio_fn *ratio, void *ctx);

/** Prints the table, and the object when asked for. */
void rounds_report(struct rounds *r, bool rate);

/** Is a large message measured, whose floor is the copy. */
static inline bool rounds_bulk(const struct perf_opts *o)
{
	return o->bytes > 4096;
}

#endif
