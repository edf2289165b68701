/* SPDX-License-Identifier: BSD-3-Clause */
/** Guards of the fast path (core/fast.h) that calls of the API share. Application threads that hold a shard. */
#ifndef FAR_API_FAST_H
#define FAR_API_FAST_H

#include "agent/agent.h"
#include "core/fast.h"
#include "core/idle.h"
#include "core/loop.h"

/** The shard that this thread holds and calls through, and the default timeout, *left; NULL: the general code decides.
 */
static inline struct shard *agent_fast_shard(const struct far_agent *a, uint64_t *left)
{
	const struct shard_context *top = shard_context_top();
	*left = atomic_load_explicit(&a->fast_left, memory_order_relaxed);
	if (!FAR_FAST_PATH || unlikely(!top || !*left))
		return NULL;
	struct shard *first = a->shards[0];
	if (likely(top->shard == first)) {
		if (!first)
			__builtin_unreachable(); /* an agent has a shard */
		return first;
	}
	if (top->shard && top->shard->config.agent == a)
		return top->shard;
	return a->shards_n == 1 && shard_held(a->shards[0]) ? a->shards[0] : NULL;
}

/** The session of a destination, as fast_session(). Where `to` names no shard, *hash selects it. */
static inline struct session *agent_fast_session(const struct far_agent *a, struct shard *s, struct far_to to,
						 const uint64_t *hash)
{
	if (likely((uint32_t)to.worker < atomic_load_explicit(&a->plain_world, memory_order_relaxed) &&
		   (uint32_t)to.shard + 1 <= 1))
		return fast_session(s, (uint32_t)to.worker);
	if ((uint32_t)to.worker >= (uint32_t)a->world)
		return NULL;
	uint32_t shards = atomic_load_explicit(&a->members[to.worker].shards, memory_order_relaxed);
	if ((uint32_t)to.shard + 1 > shards)
		return NULL;
	uint32_t shard = to.shard >= 0 ? (uint32_t)to.shard : (uint32_t)(*hash % shards);
	return fast_session(s, session_index(s, (uint32_t)to.worker, shard));
}

/** True if the thread that holds this shard runs no handler and holds no other: it may wait. */
static inline bool agent_may_wait_fast(const struct shard *s)
{
	return shard_context_top() == &s->context && !s->context.handler && !s->context.outer;
}

/* Polls of a lane between two passes of a wait. */
#define LANE_POLLS_PER_PASS 16u

/** A step of a wait for an answer of the session, whose deadline is a timer: polls its lane, and then everything. */
static inline void agent_fast_poll(struct shard *s, const struct session *se, struct idler *idler)
{
	const struct nic_lane *l = se->lane;
	for (unsigned i = 0; l && l->user && i < LANE_POLLS_PER_PASS && FACTOR(POLLS) && lane_empty(l); i++)
		;
	if (shard_pass(s))
		*idler = (struct idler){0};
	else if (unlikely(idler_step(s, idler, true)))
		shard_sleep(s, TIME_NEVER);
}

#endif
