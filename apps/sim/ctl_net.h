/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Simulated byte streams between the hosts of a world: the sockets of control threads, behind engine/control/net.h.
 * They are what a kernel's TCP is to a process: ordered, reliable, with windows; reads and writes are cut by the
 * seed. They have a delay of their own and take no room on the simulated links.
 *
 * A path that is cut, either way, stalls a stream: it is tried again, and broken (-ETIMEDOUT) when that lasts too long.
 * A process that dies hangs up (its kernel does); a host that loses its power says nothing, and resets what comes for
 * its former incarnation when it is back.
 *
 * A host is named as sim_host_name() says. Everything happens in the world's order of events, by the thread that runs
 * it.
 */
#ifndef FAR_APPS_SIM_CTL_NET_H
#define FAR_APPS_SIM_CTL_NET_H

#include "control/net.h"
#include "nic/sim/sim.h"

struct sim_streams;

struct sim_streams_config {
	uint64_t delay_ns, jitter_ns; /* each way: delay and [0, jitter]; 0: 20 µs, 5 µs */
	uint32_t window_bytes;        /* on their way and not read; 0: 64 KiB */
	uint32_t chop;                /* chance, in parts of SIM_CERTAIN, that a read or write takes only a part */
	uint64_t retry_ns;   /* before the first try again on a path that is cut, doubled each time; 0: 200 ms */
	uint64_t give_up_ns; /* a stream breaks that has stalled for so long; 0: 10 s */
};

/** `config` NULL: the defaults. NULL: no memory. */
struct sim_streams *sim_streams_create(struct sim *sim, const struct sim_streams_config *config);
/** All nets have been destroyed. */
void sim_streams_destroy(struct sim_streams *s);

/** Streams from one host to another are cut, or not any more: one direction, which stalls both. */
void sim_streams_cut(struct sim_streams *s, const struct sim_host *from, const struct sim_host *to, bool cut);
/** None is cut any more. */
void sim_streams_heal(struct sim_streams *s);

/**
 * The sockets of one process on a host. `wake` is called, from inside events and operations, when the process's control
 * core is to be stepped: wake(), something to read, room to write for who wants it; to be noted, nothing else. NULL: no
 * memory.
 */
struct ctl_net *sim_ctl_net_create(struct sim_streams *s, struct sim_host *host, void (*wake)(void *ctx), void *ctx);
/** True if some handle has unread data: its owner must step again, as after poll(). */
bool sim_ctl_net_ready(const struct ctl_net *net);
/** The process is killed: the other ends are notified that much later, as if the packets were lost that close its
 * streams. */
void sim_ctl_net_linger(struct ctl_net *net, uint64_t ns);
/** The host loses its power: from now on nothing leaves, and destroy() hangs up on nobody. */
void sim_ctl_net_cut_off(struct ctl_net *net);

#endif
