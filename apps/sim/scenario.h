/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What a simulated run is made of: a workload, disturbances and checkers, each a file of its own, and a scenario that
 * names one of each. apps/sim/scenarios/README.md tables the words. Main thread.
 */
#ifndef SIM_SCENARIO_H
#define SIM_SCENARIO_H

#include "sim/keywords.h"

/* ---- workloads ---- */

/** Sorts of calls. */
enum load_kind {
	LOAD_ECHO,     /* an inline handler answers at once */
	LOAD_FIBER,    /* a fiber does, */
	LOAD_SLOW,     /* after it has waited for `work` */
	LOAD_DEFERRED, /* the request is deferred and answered after `work` */
	LOAD_NESTED,   /* a fiber calls the next worker first, `depth` deep */
	LOAD_ONEWAY,
	LOAD_TYPED,  /* far_rpc_async() of a bytes value */
	LOAD_RETRY,  /* with opts.retry */
	LOAD_FANOUT, /* of every other worker at once */
	LOAD_CANCEL, /* a slow one, cancelled after `cancel_after` */
	LOAD_FAIL,   /* the handler answers with an error */
	LOAD_RREF,   /* far_remote(), then a third worker fetches the value and answers with it */
	LOAD_REFS,   /* an operation on references by chance: make, share, fetch, give back */
	LOAD_SOME,   /* as typed, of a function that only every other incarnation of a worker has */
	LOAD_KINDS
};
extern const char *const load_kind_names[LOAD_KINDS + 1];

/** Whom a worker calls. */
enum load_pattern {
	PATTERN_PAIRS, /* 0 and 1 each other, 2 and 3, … */
	PATTERN_ALL,   /* any other, at random */
	PATTERN_FIRST  /* all call worker 0, which calls nobody */
};

struct workload {
	uint32_t mix[LOAD_KINDS];    /* weights */
	uint32_t pattern;            /* enum load_pattern */
	uint32_t calls;              /* of each worker */
	uint32_t in_flight;          /* of each worker */
	struct range request, reply; /* bytes, every power of two as likely as the next */
	struct range timeout, pause, work, cancel_after;
	uint32_t depth;
	uint32_t fibers; /* of a worker; 0: the engine's default */
};

/* ---- disturbances ---- */

/** Packets of the engine that may be lost on purpose. The order is that of enum packet_type. */
#define DISTURB_DROPS       13
#define SCENARIO_SHARDS_MAX 16
extern const char *const disturb_drop_names[DISTURB_DROPS + 1];

struct disturbance {
	uint32_t loss, duplicate, reorder, corrupt, cut; /* chances of a packet; cut: its end is missing */
	uint32_t burst;                                  /* chance that a burst of losses begins with a packet */
	uint32_t burst_packets;                          /* its mean length */
	uint64_t burst_ns;                               /* its longest time */
	struct range reorder_by;
	uint32_t stale_connects, stale_downs; /* chances that such a packet comes once more, much later */
	uint32_t stale_mails;   /* chance that a shard gets the end of a lost worker's session once more */
	uint32_t stale_streams; /* chance that the store is notified of a killed worker's end later */
	struct range stale_by;
	uint32_t partitions, one_way, crashes, restarts, pauses, outages; /* how many in a run */
	struct range partition_for, down_for, pause_for, outage_for;
	struct range during;          /* when they begin; packets are disturbed from during.min to during.max */
	uint32_t drop[DISTURB_DROPS]; /* of these types, so many packets of the run */
};

/* ---- checkers ---- */

enum checker {
	CHECK_ONCE,
	CHECK_REPLY,
	CHECK_BYTES,
	CHECK_DEADLINE,
	CHECK_CLASS,
	CHECK_EXECUTED,
	CHECK_INCARNATION,
	CHECK_ORDER,
	CHECK_DELIVERED,
	CHECK_CONSERVED,
	CHECK_LEVEL,
	CHECK_MEMBERS,
	CHECK_NO_DEATH,
	CHECK_NO_TIMEOUT,
	CHECK_RESENDS,
	CHECK_QUIET,
	CHECK_LATE,
	CHECK_ORPHANS,
	CHECKS
};
extern const char *const checker_names[CHECKS + 1];

struct checks {
	uint32_t check;    /* bits of enum checker */
	uint64_t slack_ns; /* of a deadline, in virtual time */
	uint32_t resends;  /* at most, of the whole run */
};

/* ---- scenarios ---- */

enum scenario_topology { TOPOLOGY_PAIR, TOPOLOGY_STAR, TOPOLOGY_LEAF_SPINE };

struct scenario {
	char name[KEYWORDS_NAME_MAX];
	char about[KEYWORDS_TEXT_MAX];
	char workload_name[KEYWORDS_NAME_MAX], disturbance_name[KEYWORDS_NAME_MAX], checkers_name[KEYWORDS_NAME_MAX];
	uint32_t topology; /* enum scenario_topology */
	uint32_t rails;    /* of these side by side */
	uint32_t workers;
	uint32_t shards;  /* of each */
	uint64_t time_ns; /* limit of the run, in virtual time */
	uint64_t rate;    /* of every link, bits per second */
	uint64_t delay_ns;
	uint64_t queue;                   /* bytes of a switch port's buffer; 0: the simulator's own default */
	uint64_t packet;                  /* largest packet */
	uint32_t receive_ring, send_ring; /* packets; 0: the simulator's own default */
	uint32_t zero_copy;               /* received packets may be held */
	uint32_t lazy;                    /* sessions are made by the first calls */
	uint64_t late_ns;                 /* beyond its work and what disturbs it: a delivery is late */
	uint64_t peer_limit_ns;
	struct workload workload;
	struct disturbance disturbance;
	struct checks checks;
};

/**
 * Reads a scenario and the three files that it names: a built-in one by its name, or with a '/' or ".txt" a file, whose
 * others are looked for beside it (in workloads/, disturbances/, checkers/) and then among the built-in ones. 0, or
 * -errno with `err`.
 */
int scenario_load(const char *name, struct scenario *out, char err[KEYWORDS_ERR_MAX]);

/** Name of the i-th built-in scenario; NULL: there are no more. */
const char *scenario_builtin(unsigned i);

/** A file that is compiled in; `path` as in "workloads/echo.txt". The table ends with NULL. */
struct scenario_text {
	const char *path;
	const char *text;
};
extern const struct scenario_text scenario_texts[];

#endif
