/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The pool of blocking threads of an agent, which run blocking handlers. Shard thread: blocking_start(); start and
 * stop only: the rest.
 *
 * A shard copies the request into a job, keeps the request open by a record, and puts the job into a bounded queue
 * (many producers, many consumers, a turn number in each cell). A full queue refuses the request with FAR_RESOURCE.
 * The answer returns through the record to the shard, which needs no blocking thread.
 *
 * Sleep: a blocking thread announces itself in `sleepers`, fences, reads the queue once more, and sleeps on `word`. A
 * producer puts a job in, fences, reads `sleepers`, changes the word and wakes one thread. In every order one of the
 * two sees the other.
 */
#ifndef FAR_CORE_BLOCKING_H
#define FAR_CORE_BLOCKING_H

#include <farcall/rpc.h>
#include <stdint.h>

struct blocking_pool;
struct far_req;
struct kept_body;
struct message_handler;

/** Starts `threads` workers with room for `queue` waiting jobs (a power of two). Slow. */
enum far_status blocking_create(struct blocking_pool **out, unsigned threads, uint32_t queue, struct far_err *err);
/** Refuses the jobs that wait (FAR_SHUTDOWN), waits for the handlers that run, and ends the threads. The shards are
 * still there, and `drive` (may be NULL) alone polls them, which ends what these handlers still hand over. */
void blocking_stop(struct blocking_pool *w, void (*drive)(void *ctx), void *ctx);
void blocking_destroy(struct blocking_pool *w);

/** Its threads, those without work, and the jobs that wait, as of a moment. Any thread. */
void blocking_counts(struct blocking_pool *w, uint64_t *threads, uint64_t *idle, uint64_t *queued);

/** The body of a request whose handler the calling thread runs. */
void blocking_body(const struct far_req *req, struct kept_body *out);

/** Hands a request to a worker. On the shard. */
void blocking_start(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);

#endif
