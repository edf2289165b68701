/* SPDX-License-Identifier: BSD-3-Clause */
/** State of an agent in rounds of far_all_gather(): gathering (gather.c, shard 0) and joining (api/group.c, any
 * thread). */
#ifndef FAR_BUILTIN_GATHER_INNER_H
#define FAR_BUILTIN_GATHER_INNER_H

#include <pthread.h>
#include <stdint.h>

struct gather_set;

/** Rounds of one set that this worker gave up before its request was sent. */
struct gather_skips {
	struct gather_skips *next;
	struct far_buf *buf; /* its memory */
	uint64_t rounds;     /* not reported yet */
	uint32_t n;          /* entries of `ranks` */
	int32_t ranks[];     /* the set, ascending */
};

struct gathers {
	/* shard 0 */
	struct gather_set *sets;
	uint32_t sets_n, open_n;
	/* any thread, under `lock`, which is taken only after a failed round */
	pthread_mutex_t lock;
	_Atomic uint32_t skips_n; /* entries of `skips` */
	struct gather_skips *skips;
};

#endif
