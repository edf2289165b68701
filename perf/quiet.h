/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Checks that the machine is quiet enough for a floor, by short rounds; the undisturbed ones count. A round is
 * disturbed when its thread, which never sleeps, lost its CPU, or when it took longer than the best one by more than
 * QUIET_SPREAD. Main thread.
 */
#ifndef PERF_QUIET_H
#define PERF_QUIET_H

#include <stdbool.h>
#include <stdint.h>

#define QUIET_ROUNDS     400  /* at most: shorter than what a scheduler gives at a time */
#define QUIET_ROUNDS_MIN 3    /* undisturbed ones that make a floor */
#define QUIET_SPREAD     1.25 /* of a round's figure over the best one */
#define QUIET_CPU        0.95 /* CPU time over elapsed time of an undisturbed round */
/* EX_TEMPFAIL of sysexits.h: the figures are printed, but too few rounds were undisturbed. */
#define EXIT_DISTURBED 75

struct quiet_round {
	double line_ns, ring_ns; /* medians */
	uint64_t wall_ns, cpu_ns;
	uint64_t switches; /* involuntary ones of the measuring thread */
};

struct quiet {
	struct quiet_round round[QUIET_ROUNDS];
	unsigned n;
	uint64_t stolen_ns, machine_ns; /* of all CPUs, by the host of a virtual machine */
	uint64_t wall_at, cpu_at, switches_at, stolen_at, machine_at;
};

/** Result of the rounds. */
struct quiet_verdict {
	double line_ns, ring_ns; /* the least medians */
	unsigned rounds, quiet;  /* all; the undisturbed ones */
	double noise;            /* disturbed ones over all, [0, 1] */
	double lost;             /* elapsed time in which the thread had no CPU, over all */
	double stolen;           /* of the machine's time, by its host */
	uint64_t switches;
};

/** Time of all CPUs since the start of the machine, and that taken by its host. Zeros without /proc/stat. */
void quiet_machine(uint64_t *all_ns, uint64_t *stolen_ns);

/** True if values[0, n) are within QUIET_SPREAD of each other: a state of the machine, for what disturbs does not
 * repeat itself. */
bool quiet_steady(const double *values, unsigned n);

void quiet_begin(struct quiet *q);
/** Around each round, on the thread that measures; `end` counts it, with its medians. */
void quiet_round_begin(struct quiet *q);
void quiet_round_end(struct quiet *q, double line_ns, double ring_ns);
void quiet_end(struct quiet *q);

void quiet_judge(const struct quiet *q, struct quiet_verdict *out);

#endif
