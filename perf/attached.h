/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * `--peers N`: what it costs a server to have many links. All but one of its N peers are agents of one helper process:
 * each calls the server once, and then does nothing until the end. Main thread of each process.
 */
#ifndef PERF_ATTACHED_H
#define PERF_ATTACHED_H

#include "apps/cli/spawn.h"
#include "perf.h"
#include <farcall/farcall.h>

#define ATTACHED_PEERS_MAX 1024           /* the largest group */
#define ATTACHED_JOIN_NS   (100 * FAR_MS) /* by which each of them lengthens the limits of joining and leaving */

struct attached_report {
	double seconds;       /* from the start of the process until the last agent had its answer */
	uint64_t rss_bytes;   /* of the helper */
	uint64_t threads;     /* likewise */
	uint64_t files, maps; /* descriptors and mappings, likewise */
	uint64_t agents;
};

struct attached {
	pid_t pid;   /* -1: none */
	int in, out; /* pipes: its end makes them leave; its report */
	struct attached_report report;
};

/** Agents that the helper has for these options; 0: no helper is needed. */
unsigned attached_agents(const struct perf_opts *o);

/** Before anything is started: are there enough descriptors, mappings. 0, or the exit status after printing. */
int attached_check(const struct perf_opts *o);
/** Raises the soft limit of open files to the hard one. 0 or -errno, after printing. */
int attached_raise_files(void);

/** Starts the helper, whose ranks begin with `rank`. 0 or -errno. */
int attached_start(struct attached *a, const struct spawn_group *group, const struct perf_opts *o, int rank);
/** Waits until all are attached to the server. `agent`: ours. 0, or the exit status after printing. */
int attached_await(struct attached *a, struct far_agent *agent, const struct perf_opts *o);
/** Has them leave the group, without waiting for it. */
void attached_leave(struct attached *a);
void attached_close(struct attached *a);

/** The helper's own main. */
int attached_main(const struct perf_opts *o);

#endif
