/* SPDX-License-Identifier: BSD-3-Clause */
/** What `farcall top` shows: samples of the workers of a group. Main thread. */
#ifndef FARCALL_TOP_H
#define FARCALL_TOP_H

#include "admin_group.h"

#include <farcall/agent.h>
#include <stdbool.h>
#include <stdint.h>

#define TOP_NAME    "farcall top"
#define NICS_MAX    8u
#define BUCKETS_MAX 512u

struct bucket {
	uint64_t end, n;
};

/* What a worker reports at one time. */
struct sample {
	char worker[FAR_NAME_MAX], state[16];
	uint64_t rank, pid, uptime_ns;
	uint64_t calls, requests, errors, sent, received, drops, busy;
	uint64_t active, serving, owned, held, forks, unconfirmed, silent, members, alive;
	unsigned shards_n, nics_n, buckets_n;
	uint64_t cpu_ns[FAR_SHARDS_MAX];
	struct {
		char nic[16];
		uint64_t sessions;
	} nics[NICS_MAX];
	struct bucket buckets[BUCKETS_MAX]; /* by end */
};

struct view {
	struct sample *now, *before;
	unsigned now_n, before_n, stuck_n;
	char stuck[256]; /* the first that do not answer */
	struct admin_choice choice;
	char group[FAR_NAME_MAX], store[ADMIN_STORE_MAX]; /* from the first sample on */
	uint64_t at, before_at;
};

/** Takes a sample of the group, which `first` finds by v->choice. 0; −1 with a message on stderr. */
int top_look(struct view *v, bool first);

#endif
