/* SPDX-License-Identifier: BSD-3-Clause */
/** `farcall perf start`: what its workers and who starts them share. Main thread of each process. */
#ifndef PERF_START_H
#define PERF_START_H

#include "apps/cli/spawn.h"
#include "perf.h"
#include <stdatomic.h>

#define START_JOIN_NS (60 * UINT64_C(1000000000)) /* for all to come in, and once more to leave */

/** What a worker saw of itself; times are CLOCK_MONOTONIC's. */
struct start_worker {
	uint64_t in_ns, out_ns; /* far_init_rpc() has returned; far_shutdown() has */
	uint64_t threads, rss_bytes;
	uint64_t bare_rss_bytes; /* before far_init_rpc() */
};

/** In a memory file. Workers meet at two gates: they go through one at the same moment, so that the start of their
 * processes is no part of what is measured. */
struct start_shared {
	uint32_t workers;
	struct start_gate {
		_Atomic uint32_t come;
		_Atomic uint32_t open; /* 1: all have come; a futex */
		uint64_t opened_ns;    /* by the last one, before it opens */
	} in, out;
	struct start_worker at[SPAWN_WORLD_MAX]; /* by rank */
};

struct start_shared *start_map(int fd);

#endif
