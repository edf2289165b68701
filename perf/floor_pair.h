/* SPDX-License-Identifier: BSD-3-Clause */
/** Two processes for floors alone: this one measures, a forked one serves. Main thread of each process. */
#ifndef PERF_FLOOR_PAIR_H
#define PERF_FLOOR_PAIR_H

#include "floor_ring.h"
#include "perf.h"
#include <sys/types.h>

struct floor_pair {
	struct floor_shared *shared;
	pid_t pid;
};

/** What the server does in the modes that its host knows, see struct floor_host, and at its end, FLOOR_STOP. */
typedef int floor_serve_fn(struct floor_shared *s, const struct perf_opts *o, uint64_t mode);

/**
 * Forks the server, which enters --server-netns; both are pinned when there are two CPUs. `serve` NULL: floors of
 * memory only. The caller must be single-threaded. 0 or -errno.
 */
int floor_pair_open(struct floor_pair *p, const struct perf_opts *o, floor_serve_fn *serve);
void floor_pair_close(struct floor_pair *p);

#endif
