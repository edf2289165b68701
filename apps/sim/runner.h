/* SPDX-License-Identifier: BSD-3-Clause */
/** Many runs, each in a process of its own, so that one that crashes or hangs is a failure like any other.
 * Main thread. */
#ifndef SIM_RUNNER_H
#define SIM_RUNNER_H

#include "sim/campaign.h"
#include "sim/trial.h"

#define RUNNER_JOBS_MAX CAMPAIGN_JOBS_MAX

struct runner {
	const struct scenario *scenarios;
	const char *const *names; /* as in the arguments, which repeat a failure */
	unsigned scenarios_n;
	uint64_t seeds, from;
	unsigned jobs;             /* [1, RUNNER_JOBS_MAX] */
	uint64_t limit_ns;         /* of a run: CPU time, or asleep */
	const char *failures_file; /* written when something fails */
	const char *repeat_more;   /* further options of the command that repeats a failure; "" */
	bool trace;                /* there is one run; its packets go to stdout */
	bool hashes;               /* a line for each run, with its hash */
	struct campaign *campaign; /* numbers and counts the runs; NULL: `seeds` of each scenario */
	bool json;                 /* of a campaign: its report on stdout is one line of JSON, failures go to stderr */
	bool (*trial)(const struct scenario *scenario, uint64_t seed, FILE *trace, bool hash, struct trial_verdict *out,
		      char err[KEYWORDS_ERR_MAX]);
};

/** Runs all; prints failures and a summary to stdout, and progress to stderr if it is a terminal. The exit
 * status: 0: all passed; 1; 128 + the signal that ended it. The caller has one thread. */
int runner_run(const struct runner *r);

#endif
