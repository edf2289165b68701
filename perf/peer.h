/* SPDX-License-Identifier: BSD-3-Clause */
/** The other processes of a measurement: ranks from 1, which serve; the measuring process is rank 0. Floors are those
 * of rank 1. With --connect there is one, rank 0, that somebody else started, and the measuring process is rank 1.
 * Main thread of each process. */
#ifndef PERF_PEER_H
#define PERF_PEER_H

#include "apps/cli/spawn.h"
#include "attached.h"
#include "floor_ring.h"
#include "perf.h"
#include "server.h"
#include <farcall/farcall.h>

#define PEER_INFLIGHT_MAX 256 /* calls that an agent keeps pending towards one worker */
#define PEER_SERVERS_MAX  7
#define PEER_FIBERS       PEER_INFLIGHT_MAX /* of a server: more requests than calls in flight there cannot be */
#define PEER_JOIN_NS      (20 * FAR_SEC)
#define PEER_LEAVE_NS     (10 * FAR_SEC)
/* A process without CPU time on a busy machine is not lost; the store reports a dead one at once. */
#define PEER_LIMIT_NS (20 * FAR_SEC)

struct peer {
	struct spawn_group group;
	struct floor_shared *shared;      /* with the first server; NULL: none */
	struct far_agent *agent;          /* ours */
	struct far_agent *handed;         /* ours as well, driven by a thread of its own; NULL: none */
	struct far_to to;                 /* where calls go */
	char name[FAR_NAME_MAX];          /* that worker's */
	char handed_name[FAR_NAME_MAX];   /* ours, as `handed` */
	struct server_description server; /* connected: from the server */
	struct attached attached;         /* the process of idle agents */
	struct far_msg_handler handlers[SERVER_HANDLERS];
	unsigned servers; /* started */
	struct floor_shared *shares[PEER_SERVERS_MAX];
	pid_t pids[PEER_SERVERS_MAX];
	bool connected; /* to a server that somebody else started */
	bool held;      /* this thread holds shard 0 of `agent` */
};

/** Starts the peers and joins them. 0; or the exit status, after the error was printed and all was undone. */
int peer_open(struct peer *p, const struct perf_opts *o);
/** All leave. 0, or the exit status. Kills a peer that does not come. */
int peer_close(struct peer *p, const struct perf_opts *o);

/** The calling thread takes shard 0 of `agent`, or gives it back, unless that is so already. 0, or the exit status. */
int peer_hold(struct peer *p, const struct perf_opts *o, bool hold);

/** Can the calling thread hold shard 0 of `agent`: not when that has a thread of its own for it. */
static inline bool peer_can_hold(const struct peer *p, const struct perf_opts *o)
{
	return o->via == PERF_VIA_DIRECT || p->handed;
}

/**
 * Opens the floor beside the peer's calls, if one is requested and it is none of memory's; else `n->ops` is NULL.
 * 0, or the exit status after printing.
 */
int peer_floor(struct peer *p, const struct perf_opts *o, struct floor_nic *n);

/** Where a shard's calls go. */
static inline struct far_to peer_to(const struct peer *p, unsigned shard)
{
	return (struct far_to){.worker = p->to.worker, .shard = (int32_t)shard};
}

/** Prints why a measurement failed; returns 1. */
int peer_complain(const struct perf_opts *o, const struct far_err *err);

/** The peer's own main. */
int peer_main(const struct perf_opts *o);

/** Maps the memory of the floors; `fd` -1: anonymous. NULL on failure, errno is set. */
struct floor_shared *peer_map(int fd);
/** Makes such memory in a file of its own, with a cookie. The descriptor, or -errno. */
int peer_share(struct floor_shared **shared);

#endif
