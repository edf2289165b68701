/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Worker threads of an agent: they run blocking handlers. A shard copies the request into a job, keeps it open by a
 * record, and puts it into a bounded queue (many producers, many consumers, each cell with its turn). A full queue
 * refuses the request with FAR_RESOURCE. The answer goes through the record back to the shard; that never needs a
 * worker.
 *
 * Sleep: a worker announces itself in `sleepers`, fences, looks at the queue once more, and sleeps on `word`. Who puts
 * a job in fences and looks at `sleepers`; it changes the word and wakes one. In every order one sees the other.
 */
#ifndef FAR_CORE_BLOCKING_H
#define FAR_CORE_BLOCKING_H

#include "core/shard.h"

struct blocking_pool;

/** Starts `threads` workers with room for `queue` waiting jobs (a power of two). Slow. */
enum far_status blocking_create(struct blocking_pool **out, unsigned threads, uint32_t queue, struct far_err *err);
/** Refuses what waits (FAR_SHUTDOWN), waits for the handlers that run, and ends the threads. The shards are still there
 * and have no other driver than `drive` (may be NULL), which ends what these handlers still hand over. */
void blocking_stop(struct blocking_pool *w, void (*drive)(void *ctx), void *ctx);
void blocking_destroy(struct blocking_pool *w);

/** Hands a request to a worker. On the shard. */
void blocking_start(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);

#endif
