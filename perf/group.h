/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf group`: what its processes share, and the figures that one run of them gives.
 * Main thread of each process. */
#ifndef PERF_GROUP_H
#define PERF_GROUP_H

#include "perf.h"
#include <stdatomic.h>

#define GROUP_LEASE_NS   UINT64_C(2000000000)
#define GROUP_VALUES_MAX 3

/** In memory that the processes of a run share. */
struct group_shared {
	_Atomic int joined[3];            /* incarnations of process i that have joined */
	_Atomic bool go[3];               /* process i may join */
	_Atomic bool wired;               /* the member's namespace has its cable */
	_Atomic bool churn, end;          /* the third process joins and leaves; all end */
	_Atomic uint64_t joins, joins_ns; /* of the third process: how many, and what they took */
	double value[GROUP_VALUES_MAX];   /* what the run found, ns */
};

struct group_figure {
	const char *name;
	const char *value[GROUP_VALUES_MAX + 1]; /* names of the values, in ns; NULL: no further one */
	const char *about;
	/** In a process of its own, without threads: 0, or the exit status, after printing. */
	int (*run)(const struct perf_opts *o, struct group_shared *s);
	bool wants_namespaces;
};

extern const struct group_figure group_figures[];
extern const unsigned group_figures_n;

/** Why this process cannot make network namespaces; NULL: it can. */
const char *group_no_namespaces(void);

#endif
