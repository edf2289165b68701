/* SPDX-License-Identifier: BSD-3-Clause */
/** An agent's part in rounds of far_all_gather(), gathering (gather.c) and coming to them (group.c). */
#ifndef FAR_BUILTIN_GATHER_INNER_H
#define FAR_BUILTIN_GATHER_INNER_H

#include <pthread.h>
#include <stdint.h>

struct gather_set;

/** Rounds that were given up before the one who gathers heard of them. */
struct gather_skips {
	struct gather_skips *next;
	struct far_buf *buf;
	uint64_t rounds;
	uint32_t n;
	int32_t ranks[];
};

struct gathers {
	/* shard 0's */
	struct gather_set *sets;
	uint32_t sets_n, open_n;
	/* any thread's, under `lock`, which is taken only when something went wrong */
	pthread_mutex_t lock;
	_Atomic uint32_t skips_n;
	struct gather_skips *skips;
};

#endif
