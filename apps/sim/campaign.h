/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A campaign: a number of runs spread evenly over the scenarios, with totals, which a state file carries from one
 * process to the next. Run k has scenario k % scenarios and seed from + k / scenarios. Used by the one thread of the
 * runner.
 */
#ifndef SIM_CAMPAIGN_H
#define SIM_CAMPAIGN_H

#include "sim/trial.h"

#include <stdio.h>

#define CAMPAIGN_JOBS_MAX     1024
#define CAMPAIGN_FAILURES_MAX 1000 /* that are listed; more are counted */

struct campaign_total {
	uint64_t runs, failed, calls, packets, virtual_ns;
	uint64_t faults[TRIAL_FAULTS];
};

struct campaign_failure {
	uint64_t number;
	char text[CHECK_TEXT_MAX + 32]; /* "checker: objection", one line */
};

/** A run that was started and has not been counted. */
struct campaign_pending {
	uint64_t number;
	bool here; /* this process has started it */
};

struct campaign {
	const char *path; /* of the state file */
	const char *const *names;
	unsigned scenarios_n;
	uint64_t runs, from;
	uint64_t program; /* hash of the executable: totals are of one program */
	uint64_t next;    /* first run that was never started; all before are counted, but the pending ones */
	struct campaign_pending pending[CAMPAIGN_JOBS_MAX];
	unsigned pending_n;
	struct campaign_total *totals; /* [scenarios_n] */
	struct campaign_failure *failures;
	unsigned failures_n;
	bool resumed; /* the state file was there */
	int fd;       /* of the state file, locked */
};

/**
 * Begins a campaign, or goes on with that of the state file `path`, which nobody else may use meanwhile. `names` and
 * `path` outlive it. 0, or -errno with `err`: the file cannot be read or written, is in use, is none, or is of another
 * campaign or program.
 */
int campaign_open(struct campaign *c, const char *path, const char *const *names, unsigned scenarios_n, uint64_t runs,
		  uint64_t from, char err[KEYWORDS_ERR_MAX]);
void campaign_close(struct campaign *c);

/** A run that is to be started now: those first that another process left. false: there is none. */
bool campaign_take(struct campaign *c, uint64_t *number);
/** The run could not be started. */
void campaign_untake(struct campaign *c, uint64_t number);
bool campaign_left(const struct campaign *c);
/** Records the end of a run. `v`: NULL if the process reported nothing; `failure`: NULL if the run passed. */
void campaign_count(struct campaign *c, uint64_t number, const struct trial_verdict *v, const char *failure);
/** Replaces the state file. -errno: the one before is still there. */
int campaign_save(struct campaign *c);

uint64_t campaign_done(const struct campaign *c);
uint64_t campaign_failed(const struct campaign *c);
/** Totals of scenarios and faults, and the failures with the command that repeats each; `more` as in struct runner. */
void campaign_print(const struct campaign *c, FILE *out, const char *more);
/** The same as one line of JSON. `seconds`: of real time, of this process; `signal`: that ended it, or 0. */
void campaign_print_json(const struct campaign *c, FILE *out, const char *more, double seconds, int signal);

#endif
