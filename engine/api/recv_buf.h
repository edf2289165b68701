/* SPDX-License-Identifier: BSD-3-Clause */
/** Receive buffers of calls (far_call_opts.recv_buf). While the future of such a call is pending its bytes hold the
 * struct far_into. */
#ifndef FAR_API_RECV_BUF_H
#define FAR_API_RECV_BUF_H

#include "agent/agent.h"

static inline bool into_given(const struct far_call_opts *opts)
{
	return opts && opts->into.data;
}

/** Stores the receive buffer in a pending future. Any thread, before the start of the call. */
void into_set(struct far_future *f, const struct far_into *into);
/** agent_complete() for a future with into_set(): copies a tensor or bytes to the buffer. On the shard. */
void into_complete(struct far_future *f, const struct outcome *o);
/** agent_done_future() for such a future. */
void into_done(void *user, const struct outcome *o);
/** Moves a result in memory of the engine to the buffer. FAR_TOO_LARGE: nothing was copied, `v` is unchanged. */
enum far_status into_move(struct far_val *v, const struct far_into *into, struct far_err *err);

#endif
