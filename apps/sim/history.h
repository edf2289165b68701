/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What happened in a run, as the applications and the one who disturbs them saw it: each call and how it ended, each
 * run of a handler, each incident. The checkers of check.h judge nothing else. Times are the world's.
 * The thread of the simulated world.
 */
#ifndef SIM_HISTORY_H
#define SIM_HISTORY_H

#include "sim/scenario.h"

#include <farcall/status.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HISTORY_TIME_NONE   UINT64_MAX
#define HISTORY_ERROR_BYTES 96
#define HISTORY_RUNS        3 /* runs of one call that are remembered; more are counted */

/** One run of a call's handler. */
struct history_run {
	uint64_t at;
	uint64_t order; /* among all runs; set by history_run() */
	uint32_t worker, incarnation;
	uint8_t shard;
};

/** One call, one-way message or target of a fan-out. Its number is its place in the history. */
struct history_call {
	uint8_t kind;             /* enum load_kind */
	uint8_t status, executed; /* of its end */
	uint8_t ends;             /* how often it ended */
	bool wrong_request;       /* a handler found other bytes than were sent */
	bool wrong_reply;         /* its caller found another reply than the one of this call */
	bool orphaned;            /* its caller's process ended first: nobody waits */
	uint8_t from_shard, to_shard;
	uint32_t from, from_incarnation, to;
	uint32_t third;    /* rref: who fetches */
	bool fetches;      /* refs: it runs no handler */
	uint32_t sequence; /* one-ways: sequence number within this incarnation of the caller, per shard pair */
	uint32_t runs_n;
	uint64_t begun, deadline, ended; /* ended: HISTORY_TIME_NONE: not */
	uint64_t excused_from;           /* refs: when making one of its values may have timed out; 0: none of any */
	uint64_t cancelled;              /* when the application cancelled it; HISTORY_TIME_NONE: never */
	uint64_t sent;                   /* one-ways: when it was taken; HISTORY_TIME_NONE: never */
	uint64_t left;                   /* when its handler was over, if it waits; HISTORY_TIME_NONE: it is not */
	uint64_t work_ns;                /* that its handlers take */
	bool wrong_function;             /* it called one, and another ran */
	struct history_run runs[HISTORY_RUNS];
	char error_text[HISTORY_ERROR_BYTES]; /* the beginning of its error's text */
};

enum incident_kind {
	INCIDENT_CRASH, /* of `a`; `until`: start of its next incarnation; never: HISTORY_TIME_NONE */
	INCIDENT_PAUSE, /* of `a` */
	INCIDENT_CUT,   /* no packets from `b` to `a`, or from a to b */
	INCIDENT_OUTAGE /* of one of the cables of `a`, who has others: no excuse for a death */
};

struct history_incident {
	enum incident_kind kind;
	uint32_t a, b;
	uint64_t from, until;
	bool power;     /* crash: nobody is notified at once: its host went with it, or its streams end late */
	uint64_t ready; /* crash: when its next incarnation had joined; HISTORY_TIME_NONE: never */
};

/** What something else than a checker found, in the name of one. */
struct history_finding {
	enum checker checker;
	char text[256];
};

struct history {
	struct history_call *calls;
	size_t calls_n, calls_cap;
	struct history_incident *incidents;
	size_t incidents_n, incidents_cap;
	struct history_finding *findings;
	size_t findings_n, findings_cap;
	uint64_t strays;  /* requests that arrived and name no call */
	uint64_t runs;    /* of handlers, ever */
	uint64_t resends; /* of the whole run */
	uint64_t end;     /* of the run */
	uint64_t peer_limit_ns;
	uint64_t packets;                     /* that were sent */
	uint64_t stale_connects, stale_downs; /* packets that came once more, much later */
	uint64_t stale_mails, stale_streams;  /* mails to shards; control connections */
	uint64_t late_ns;                     /* of the scenario */
};

void history_fini(struct history *h);
/** A new call that has begun; its number. The memory is the process's: it ends it when there is none. */
size_t history_begin(struct history *h, const struct history_call *call);
/** A handler runs for a number that came with its request. false: there is no such call, which is counted. */
bool history_run(struct history *h, uint64_t number, const struct history_run *run);
/** `text`: of its error; NULL: none. */
void history_end(struct history *h, size_t number, uint64_t now, enum far_status status, enum far_executed executed,
		 const char *text);
/** Marks all pending calls of that incarnation of a worker as orphans. */
void history_orphan(struct history *h, uint32_t worker, uint32_t incarnation);
/** Its number, for history_incident_over(). */
size_t history_incident(struct history *h, const struct history_incident *incident);
void history_incident_over(struct history *h, size_t number, uint64_t now);
/** Records that an incarnation of the worker has joined. */
void history_ready(struct history *h, uint32_t worker, uint64_t now);
__attribute__((format(printf, 3, 4))) void history_finding(struct history *h, enum checker checker, const char *format,
							   ...);

#endif
