/* SPDX-License-Identifier: BSD-3-Clause */
/** Two processes for floors alone: this one measures, a forked one serves. */
#ifndef PERF_FLOOR_PAIR_H
#define PERF_FLOOR_PAIR_H

#include "floor_ring.h"
#include <sys/types.h>

struct floor_pair {
	struct floor_shared *shared;
	pid_t pid;
};

/** Forks the server; both are pinned when there are two CPUs. The caller must be single-threaded. 0 or -errno. */
int floor_pair_open(struct floor_pair *p);
void floor_pair_close(struct floor_pair *p);

#endif
