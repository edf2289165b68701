/* SPDX-License-Identifier: BSD-3-Clause */
/** Measurements that alternate with the machine's floors, and with another measurement, in one pair of processes.
 * Main thread of each process. */
#ifndef PERF_ROUNDS_H
#define PERF_ROUNDS_H

#include "hist.h"
#include "peer.h"
#include "perf.h"

#define ROUNDS 7 /* of each measurement; ratios are the medians of theirs, and their spread is the noise */

/* One of the two things that are measured by turns. */
struct rounds_side {
	struct hist calls; /* of all rounds; what a call took */
	uint64_t calls_n;  /* completed, in all rounds */
	uint64_t busy_ns;  /* time measured, in all rounds */
};

struct rounds {
	const struct perf_opts *o;
	struct peer peer;
	const char *base; /* what the measurement is compared with; NULL: nothing */
	bool base_now;    /* that is what measure() shall do */
	struct rounds_side subject, other;
	struct hist round; /* of the present measurement */
	uint64_t calls_n;  /* completed, in this measurement; added to by measure() */
	uint64_t busy_ns;
	struct floor_nic nic; /* what the floors are of; `ops` NULL: of memory */
	/* Floors, one entry a round: of a cache line, none with a NIC; then of the ring and of one copy, or of raw
	 * packets. */
	double line_rtt_ns[ROUNDS], rtt_ns[ROUNDS], calls_per_s[ROUNDS], bytes_per_s[ROUNDS];
	double cost_ns[ROUNDS]; /* of a call: the median, or the share of one of many in flight */
	double ratio[ROUNDS];
	/* What a call costs more than with the base: in ns, as a ratio, and in round trips of a cache line. */
	double added_ns[ROUNDS], added_ratio[ROUNDS], added_lines[ROUNDS];
	unsigned n;        /* rounds done */
	bool nic_floor;    /* at the end: the floors were those of a NIC, */
	uint64_t nic_lost; /* and so many of their packets did not come back */
};

/** One measurement of about `ns`: fills `round`, adds to `calls_n` and `busy_ns`. 0, or an exit status after printing.
 */
typedef int rounds_measure_fn(struct rounds *r, uint64_t ns, void *ctx);
/** What the round just measured is, over its floor (entry `n` of the arrays). */
typedef double rounds_ratio_fn(const struct rounds *r, uint64_t calls, uint64_t ns);

/**
 * Warms up, then measures in ROUNDS rounds; with --floor each behind its floors (`rate`: also those of many in flight),
 * with a base beside that. 0 or an exit status, after printing.
 */
int rounds_run(struct rounds *r, bool rate, rounds_measure_fn *measure, rounds_ratio_fn *ratio, void *ctx);

/** Prints the table, and the JSON object with --json. */
void rounds_report(struct rounds *r, bool rate);

/** Is a large message measured, whose floor is the copy. */
static inline bool rounds_bulk(const struct perf_opts *o)
{
	return o->bytes > 4096;
}

/**
 * Before the floor of a NIC: this thread holds the shard if it can, and what the engine still has to send to the peer
 * has left.
 * 0, or an exit status after printing.
 */
int rounds_quiet(struct peer *p, const struct perf_opts *o);

/** Threads that poll or work at the same time; prints that there are too few cores when that is so. */
void rounds_cores(const struct perf_opts *o);

#endif
