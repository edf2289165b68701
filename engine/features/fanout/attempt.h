/* SPDX-License-Identifier: BSD-3-Clause */
/** Attempts of a fan-out: their numbers, and the queues of those that wait for room. Shard thread. */
#ifndef FAR_FANOUT_ATTEMPT_H
#define FAR_FANOUT_ATTEMPT_H

#include "core/session.h"
#include "core/shard.h"
#include "features/fanout/fanout.h"

static inline struct fanout_attempt *fanout_attempt_at(struct fanout *fo, uint16_t number)
{
	return &fo->target[(number - 1u) / 2].attempt[(number - 1u) % 2];
}

static inline const struct fanout_target *fanout_target_with(const struct fanout_attempt *at)
{
	return (const struct fanout_target *)(const void *)((const char *)(at - at->second) -
							    offsetof(struct fanout_target, attempt));
}

static inline uint32_t fanout_target_of(const struct fanout *fo, const struct fanout_attempt *at)
{
	return (uint32_t)(fanout_target_with(at) - fo->target);
}

static inline struct far_to fanout_attempt_to(const struct fanout_attempt *at)
{
	const struct fanout_target *t = fanout_target_with(at);
	return at->second ? t->hedge_to : t->to;
}

/* A number for the session that an attempt goes through: what has room or not. */
static inline uint32_t fanout_session_of(const struct fanout *fo, const struct fanout_attempt *at)
{
	struct far_to to = fanout_attempt_to(at);
	return session_index(fo->shard, (uint32_t)to.worker, (uint32_t)to.shard);
}

/** Puts an attempt at the end of the queue of its session. */
void fanout_enqueue(struct fanout *fo, struct fanout_attempt *at);
/** Takes `at` out, which comes after `before` (NULL: it is the first). */
void fanout_dequeue(struct fanout *fo, uint32_t q, struct fanout_attempt *before, struct fanout_attempt *at);

#endif
