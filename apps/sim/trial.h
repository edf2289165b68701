/* SPDX-License-Identifier: BSD-3-Clause */
/** One run of a scenario with a seed: the cluster is made, its workers work, what disturbs them happens, it is judged.
 * The thread of the simulated world. */
#ifndef SIM_TRIAL_H
#define SIM_TRIAL_H

#include "sim/check.h"

#include <stdio.h>

#define TRIAL_FAILURES 4  /* reported; further ones are counted */
#define TRIAL_HASH     65 /* bytes of the hash in hexadecimal with its NUL */

/** What a run did to its packets and workers, counted: name and text. */
#define TRIAL_FAULT_LIST(X)                                                                                            \
	X(LOSS, "losses")                                                                                              \
	X(DUPLICATE, "duplicates")                                                                                     \
	X(REORDER, "reorders")                                                                                         \
	X(CORRUPT, "corruptions")                                                                                      \
	X(CUT, "truncations")                                                                                          \
	X(PARTITIONED, "partition-drops")                                                                              \
	X(CARRIER, "cable-drops")                                                                                      \
	X(QUEUE, "queue-drops")                                                                                        \
	X(RING, "ring-drops")                                                                                          \
	X(PARTITION, "partitions")                                                                                     \
	X(PAUSE, "pauses")                                                                                             \
	X(CRASH, "crashes")                                                                                            \
	X(RESTART, "restarts")                                                                                         \
	X(OUTAGE, "cable-faults")                                                                                      \
	X(STALE_CONNECT, "stale-connects")                                                                             \
	X(STALE_DOWN, "stale-downs")                                                                                   \
	X(STALE_MAIL, "stale-mails")                                                                                   \
	X(STALE_STREAM, "stale-streams")

enum trial_fault {
#define TRIAL_FAULT_ID(id, text) TRIAL_##id,
	TRIAL_FAULT_LIST(TRIAL_FAULT_ID)
#undef TRIAL_FAULT_ID
		TRIAL_FAULTS
};
extern const char *const trial_fault_names[TRIAL_FAULTS + 1];

struct trial_verdict {
	uint32_t failures_n; /* checkers that objected */
	struct check_failure failures[TRIAL_FAILURES];
	uint64_t virtual_ns, calls, packets;
	uint64_t faults[TRIAL_FAULTS];
	char hash[TRIAL_HASH]; /* of all packets; of nothing where it was not wanted */
};

/**
 * Runs it, once in a process: what the engine keeps for the process decides where memory lies. Deterministic: the same
 * scenario and seed give the same verdict. `trace`: a line for each packet; NULL: none. `hash`: the packets are
 * hashed. false: it could not be begun, with the reason in `err`.
 */
bool trial_run(const struct scenario *scenario, uint64_t seed, FILE *trace, bool hash, struct trial_verdict *out,
	       char err[KEYWORDS_ERR_MAX]);

#endif
