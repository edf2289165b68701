/* SPDX-License-Identifier: BSD-3-Clause */
/** Guards of the fast path (core/fast.h) that calls of the API share. Application threads that hold a shard. */
#ifndef FAR_API_FAST_H
#define FAR_API_FAST_H

#include "agent/agent.h"
#include "core/fast.h"

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

#endif
