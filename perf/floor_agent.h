/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The floor beside an agent's calls: raw packets over what carries them. Both agents' shards 0 are held meanwhile by
 * the threads that run the floor, so that nobody else polls their queues.
 */
#ifndef PERF_FLOOR_AGENT_H
#define PERF_FLOOR_AGENT_H

#include "floor_nic.h"
#include <farcall/farcall.h>

/**
 * Client: opens a floor beside what carries calls to `to` now, at both ends. `to`, shard 0, was called before. 0, and
 * `n->ops` is NULL when that is memory, whose floors need no opening; or -errno with the reason in `text`.
 */
int floor_agent_open(struct floor_nic *n, struct far_agent *agent, struct far_to to, struct floor_shared *s,
		     char text[FLOOR_TEXT_BYTES]);
/** Server: its part, in FLOOR_NIC_OPEN. Errors are reported through `s`. */
void floor_agent_accept(struct floor_nic *n, struct far_agent *agent, struct floor_shared *s);
/** Either side; one that is not open may be closed. */
void floor_agent_close(struct floor_nic *n);

#endif
