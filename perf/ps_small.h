/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * What `farcall perf ps --stop`, `--beside` and `--workload dense` share: a group of this process and some servers, a
 * table of rows of 16 floats, and pulls of 26 of its keys. The measuring thread, which polls.
 */
#ifndef PERF_PS_SMALL_H
#define PERF_PS_SMALL_H

#include "ps.h"

#define PS_SMALL_KEYS     26u
#define PS_SMALL_DIM      16u
#define PS_SMALL_FALLBACK -1.0f /* every element of the row of a key that was not answered */

struct ps_small {
	struct perf_opts o;
	struct peer peer;
	struct far_ps *ps;
	struct far_ps_table *table;
	uint64_t seed, pulls; /* of keys; pulls begun */
	float fallback[PS_SMALL_DIM];
};

struct ps_small_pull {
	struct far_future *future;  /* NULL: none is pending */
	uint64_t begin_ns, done_ns; /* 0: not yet */
	uint64_t done_run_ns;       /* this thread's processor time then */
	uint64_t keys[PS_SMALL_KEYS];
	float rows[PS_SMALL_KEYS * PS_SMALL_DIM];
	uint8_t status[PS_SMALL_KEYS];
};

/** Starts the servers and fills the table. 0, or an exit status after printing. */
int ps_small_open(struct ps_small *s, const struct perf_opts *o, unsigned servers);
/** Ends them. Returns `rc`, or an exit status if that is 0. */
int ps_small_close(struct ps_small *s, int rc);

/** Begins a pull of uniform keys. False: BUSY, none was begun. `*rc`: an exit status, after printing; else unchanged.
 */
bool ps_small_begin(struct ps_small *s, struct ps_small_pull *p, uint64_t timeout_ns, int *rc);

/** Ends a pull that has done_ns. 0, or an exit status after printing: it failed, or a row or a status is wrong. */
int ps_small_end(const struct ps_small *s, struct ps_small_pull *p);

/** Prints what is wrong. 1. */
int ps_small_wrong(const struct ps_small *s, const char *what);

/** `farcall perf ps --stop`, `--beside`, `--workload dense`. */
int ps_stop(const struct perf_opts *o);
int ps_beside(const struct perf_opts *o);
int ps_dense(const struct perf_opts *o);

#endif
