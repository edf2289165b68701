/* SPDX-License-Identifier: BSD-3-Clause */
/** Fibers of the process itself, without a request of a peer. Shard thread. */
#ifndef FAR_CORE_SPAWN_H
#define FAR_CORE_SPAWN_H

struct shard;

/** Runs `fn` on a fiber of the shard until it ends or waits: it may wait as a handler may. -EAGAIN: no fiber is free.
 * Not in another fiber of the shard. */
int fiber_spawn(struct shard *s, void (*fn)(void *arg), void *arg);

#endif
