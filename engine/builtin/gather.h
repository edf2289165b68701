/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Rounds of far_all_gather(). A worker sends its value to the one of the lowest rank, shard 0, by a call whose answer
 * is deferred until all have come; so a round is one message each way for every worker but that one, and its state is
 * one shard's. What a worker gave up before it was sent travels with its next one (`skipped`), so that rounds stay
 * counted.
 */
#ifndef FAR_BUILTIN_GATHER_H
#define FAR_BUILTIN_GATHER_H

#include <farcall/rpc.h>

struct gathers;
struct shard;

/** far::gather(bytes workers, int skipped, int timeout, Any value) -> Any. */
extern const struct far_function gather_function;
#define gather_function_name "far::gather"

struct gathers *gathers_create(void);
/** Nobody drives the shards any more, and gathers_end() has run, if any shard ever was driven. */
void gathers_destroy(struct gathers *g);
/** On shard 0, before it ends: who waits is told. */
void gathers_end(struct shard *s);

#endif
