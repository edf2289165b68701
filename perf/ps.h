/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf ps`: its workloads, the run of one number of owners, and results. The measuring thread. */
#ifndef PERF_PS_H
#define PERF_PS_H

#include "peer.h"
#include "perf.h"
#include "ps_flat.h"
#include "rounds.h"
#include <farcall/ps.h>

#define PS_SERVICE     "perf" /* name of the service of the peer process */
#define PS_KEYS_MAX    3328u  /* of an operation */
#define PS_VALUES_MAX  64000u /* floats of an operation's rows */
#define PS_BATCHES     61u    /* of keys, drawn before the clock starts */
#define PS_RESULTS_MAX 1024u

#define PS_DENSE_BYTES 100000000u /* of the table of --workload dense */
#define PS_DENSE_TIMES 3u         /* it is in memory: at its server, as rows and as gradients here */

enum ps_workload { PS_PULL, PS_PUSH, PS_GET, PS_STEP, PS_WORKLOADS }; /* behind them: dense, of ps_dense.c */

struct ps_kind {
	const char *name, *text;
	unsigned n, dim;
	bool reads, writes;
	unsigned samples; /* of a training step; 0: no step */
};
extern const struct ps_kind ps_kinds[PS_WORKLOADS];

/** Bytes of a row. */
static inline uint32_t ps_row_bytes(const struct ps_kind *k)
{
	return k->dim * (uint32_t)sizeof(float);
}

/** Of one workload with one distribution of keys, at one number of owners, and at one rate if there are rates. */
struct ps_result {
	unsigned owners;
	enum ps_workload workload;
	bool is_zipf;
	uint64_t rate;        /* operations that should begin in a second; 0: one after the other */
	uint64_t ops, unsent; /* answered; those for which there was no room (with a rate) */
	double within;        /* share that was answered within the limit, of those that should have begun */
	double ops_per_s;
	uint64_t p50_ns, p99_ns, max_ns;
	double noise; /* of the p50 of the rounds; with a rate, of parts of the time */
	/* Without a rate: medians of the rounds. */
	double exchange_ns, ratio; /* the floor, and p50 over it */
	double copy_ns;
	double apply_ns, apply_ratio; /* of workloads that write; else 0 */
};

/** Shared by the process that prints and those that measure, one after the other. */
struct ps_results {
	char nic[32];
	unsigned n;
	struct ps_result row[PS_RESULTS_MAX];
};

struct ps_run {
	const struct perf_opts *o;
	unsigned owners;
	struct ps_results *results;
	struct peer peer;
	struct far_ps *ps;
	struct far_ps_table *tables[2]; /* of rows of 16 and of 128 */
	struct ps_flat flat;            /* the floor of updates in this process */
	/* Of the present workload. */
	const struct ps_kind *kind;
	bool is_zipf;
	struct far_ps_table *table;
	uint64_t rows; /* of its table */
	uint64_t turn; /* operations so far; chooses the keys */
	uint64_t keys[PS_BATCHES][PS_KEYS_MAX];
	float grads[PS_VALUES_MAX];
	float out[PS_VALUES_MAX], copy[PS_VALUES_MAX];
	struct hist all, round;
	uint64_t late; /* answered beyond the limit */
};

/** Rows of a workload's table: those of 128 take as many bytes, together, as those of 16. */
static inline uint64_t ps_rows(const struct perf_opts *o, const struct ps_kind *k)
{
	uint64_t rows = o->rows * 16 / k->dim;
	return rows ? rows : 1;
}

/** What a row has before the first push: element d of key k. Exact in f32. */
static inline float ps_value(uint64_t key, unsigned d)
{
	return (float)(key % 1021) + (float)d / 128;
}

/** Sets the rows of keys [0, rows) to ps_value(). 0, or an exit status after printing. */
int ps_load(const struct perf_opts *o, struct far_ps_table *table, uint64_t rows, unsigned dim);

/** Counts an operation that took `ns`. */
void ps_took(struct ps_run *r, struct hist *h, uint64_t ns);

/** An open loop: operations begin at fixed times, answered or not, and their time counts from then. Fills `result`
 * from `rate`. 0, or an exit status after printing. */
int ps_open_loop(struct ps_run *r, struct ps_result *result);

/** Text of one result, and of all as an object. */
void ps_print_head(const struct perf_opts *o, const char *nic);
void ps_print(const struct perf_opts *o, const struct ps_result *result);
void ps_print_json(const struct perf_opts *o, const struct ps_results *results);

#endif
