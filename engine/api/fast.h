/* SPDX-License-Identifier: BSD-3-Clause */
/** Guards of the fast path (core/fast.h) that calls of the API share. Application threads that hold a shard. */
#ifndef FAR_API_FAST_H
#define FAR_API_FAST_H

#include "agent/agent.h"
#include "core/fast.h"
#include "core/idle.h"
#include "core/loop.h"

/** The session of a call without options, as fast_session(), its shard, and the default timeout. NULL: the general code
 * decides. */
static inline struct session *agent_fast_session(const struct far_agent *a, struct far_to to, struct shard **s,
						 uint64_t *left)
{
	*left = atomic_load_explicit(&a->rpc_timeout_ns, memory_order_relaxed);
	if (!FAR_FAST_PATH ||
	    unlikely((uint32_t)to.worker >= atomic_load_explicit(&a->plain_world, memory_order_relaxed) ||
		     (uint32_t)to.shard + 1 > 1 || *left < CALL_NEAR_NS ||
		     (*left >= CALL_UNSTAMPED && *left != FAR_FOREVER)))
		return NULL;
	*s = a->shards[0];
	return fast_session(*s, (uint32_t)to.worker);
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
	for (unsigned i = 0; l && i < LANE_POLLS_PER_PASS && lane_empty(l); i++)
		;
	if (shard_pass(s))
		*idler = (struct idler){0};
	else if (unlikely(idler_step(s, idler, true)))
		shard_sleep(s, TIME_NEVER);
}

#endif
