/* SPDX-License-Identifier: BSD-3-Clause */
/** One run of a scenario with a seed: the cluster is made, its workers work, what disturbs them happens, it is judged.
 */
#ifndef SIM_TRIAL_H
#define SIM_TRIAL_H

#include "sim/check.h"

#include <stdio.h>

#define TRIAL_FAILURES 4  /* that are told; more are counted */
#define TRIAL_HASH     65 /* bytes of the hash in hexadecimal with its NUL */

struct trial_verdict {
	uint32_t failures_n; /* checkers that objected */
	struct check_failure failures[TRIAL_FAILURES];
	uint64_t virtual_ns, calls, packets;
	char hash[TRIAL_HASH]; /* of all packets */
};

/**
 * Runs it, once in a process: what the engine keeps for the process decides where memory lies. Deterministic: the same
 * scenario and seed give the same verdict. `trace`: a line for each packet; NULL: none. false: it could not be begun,
 * `err` says why.
 */
bool trial_run(const struct scenario *scenario, uint64_t seed, FILE *trace, struct trial_verdict *out,
	       char err[WORDS_ERR_MAX]);

#endif
