/* SPDX-License-Identifier: BSD-3-Clause */
/** First step of a pass (core/loop.c): polls the queues and hands each packet to dispatch.h (requests), call.h
 * (answers) or a feature. Shard thread. */
#ifndef FAR_CORE_RECEIVE_H
#define FAR_CORE_RECEIVE_H

struct shard;
struct shard_queue;

/** Receives a burst of the first queue, by lanes if it has them. Returns packets. */
unsigned receive_first(struct shard *s);
/** Receives a burst of a queue, several full ones of one whose polls are system calls. Returns packets. */
unsigned receive_queue(struct shard *s, const struct shard_queue *sq);

#endif
