/* SPDX-License-Identifier: BSD-3-Clause */
/** The other processes of a measurement: ranks from 1, which serve; the measuring process is rank 0. Floors are those
 * of rank 1. */
#ifndef PERF_PEER_H
#define PERF_PEER_H

#include "apps/farcall/spawn.h"
#include "floor_ring.h"
#include "perf.h"
#include <farcall/farcall.h>

#define PEER_INFLIGHT_MAX 256 /* calls that an agent keeps pending towards one worker */
#define PEER_SERVERS_MAX  7
#define PEER_ECHO         1 /* message handlers of the peer: the request comes back */
#define PEER_SINK         2 /* every byte is read, the reply is empty */

struct peer {
	struct spawn_group group;
	struct floor_shared *shared; /* with the first server */
	struct far_agent *agent;     /* ours */
	unsigned servers;            /* started */
	struct floor_shared *shares[PEER_SERVERS_MAX];
	pid_t pids[PEER_SERVERS_MAX];
	bool held; /* this thread holds the shard */
};

/** Starts the peers and joins them. 0; or the exit status, after the error was printed and all was undone. */
int peer_open(struct peer *p, const struct perf_opts *o);
/** All leave. 0, or the exit status. Kills a peer that does not come. */
int peer_close(struct peer *p, const struct perf_opts *o);

/** Where calls go. */
static inline struct far_to peer_to(void)
{
	return (struct far_to){.worker = 1, .shard = 0};
}

/** The peer's own main. */
int peer_main(const struct perf_opts *o);

/** Maps the memory of the floors; `fd` -1: anonymous. NULL on failure, errno is set. */
struct floor_shared *peer_map(int fd);

#endif
