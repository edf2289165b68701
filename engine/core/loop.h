/* SPDX-License-Identifier: BSD-3-Clause */
/** One pass of a shard, the only loop of the engine: every thread that holds a shard calls shard_pass(). Shard thread.
 */
#ifndef FAR_CORE_LOOP_H
#define FAR_CORE_LOOP_H

#include "base/clock.h"
#include "base/must.h"
#include "core/queues.h"
#include "core/shard.h"

#include <stdbool.h>
#include <stdint.h>

unsigned shard_pass(struct shard *s);
/** Sends what was committed. */
static inline void shard_flush(struct shard *s)
{
	s->queues[0].ops->flush(s->queues[0].q);
	if (unlikely(s->others_dirty))
		queues_flush(s);
}
/** Mail of the control thread; one pass in 64 reads it. */
unsigned shard_take_mail(struct shard *s);
unsigned shard_take_cancels(struct shard *s);
unsigned shard_take_tasks(struct shard *s);
/** Starts the calls that other threads handed over, in order, up to the first entry that cannot be started or is no
 * call. Runs nothing of the application. */
unsigned shard_take_calls(struct shard *s);
static inline bool shard_has_cancels(const struct shard *s)
{
	return s->cancels_taken || atomic_load_explicit(&s->cancels, memory_order_relaxed);
}
unsigned shard_run_timers(struct shard *s, uint64_t now);

/**
 * The time, read at most once for a handler and once for all completion callbacks of a pass. The price: a callback that
 * computes for long shortens the deadlines of calls that later callbacks of the same burst start.
 */
static inline uint64_t shard_now(struct shard *s)
{
	if (s->now_pass != s->passes) {
		s->now = clock_now(s->config.clock);
		s->now_pass = s->passes;
	}
	return s->now;
}

/** After an empty pass, when the next one may be late. */
static inline void shard_idle(struct shard *s)
{
	if (unlikely(s->queues_n > 1))
		queues_due(s, clock_now(s->config.clock));
}

#endif
