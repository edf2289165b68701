/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Rounds of far_all_gather() and far_barrier(), on shard 0 of the gathering worker, the one with the lowest rank. Each
 * member calls far::gather with its value; the reply is deferred until all have called. A round thus takes one message
 * each way per member, and one shard has its state. A member that gave up a round before its request was sent adds it
 * to `skipped` of its next request, so that the round numbers stay equal. Shard thread of shard 0.
 */
#ifndef FAR_BUILTIN_GATHER_H
#define FAR_BUILTIN_GATHER_H

#include <farcall/rpc.h>

struct gathers;
struct shard;

/** far::gather(bytes workers, int skipped, int timeout, Any value) -> Any. */
extern const struct far_function gather_function;
#define gather_function_name "far::gather"

/** At start. NULL: no memory. */
struct gathers *gathers_create(void);
/** At stop, when no thread polls the shards. gathers_end() has run if shard 0 ever was polled. */
void gathers_destroy(struct gathers *g);
/** On shard 0, before it ends: fails all waiting requests with SHUTDOWN. */
void gathers_end(struct shard *s);

#endif
