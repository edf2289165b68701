/* SPDX-License-Identifier: BSD-3-Clause */
/** Receive buffers of calls (far_call_opts.recv_buf). While the future of such a call is pending its bytes hold the
 * struct far_recv_buf. Application threads and the shard thread. */
#ifndef FAR_API_RECV_BUF_H
#define FAR_API_RECV_BUF_H

#include "agent/agent.h"

static inline bool recv_buf_given(const struct far_call_opts *opts)
{
	return opts && opts->recv_buf.data;
}

/** Stores the receive buffer in a pending future. Any thread, before the start of the call. */
void recv_buf_set(struct far_future *f, const struct far_recv_buf *recv_buf);
/** agent_complete() for a future with recv_buf_set(): copies a tensor or bytes to the buffer. On the shard. */
void recv_buf_complete(struct far_future *f, const struct completion *o);
/** agent_done_future() for such a future. */
void recv_buf_done(void *user, const struct completion *o);
/** Moves a result in memory of the engine to the buffer. FAR_TOO_LARGE: nothing was copied, `v` is unchanged. */
enum far_status recv_buf_move(struct far_val *v, const struct far_recv_buf *recv_buf, struct far_err *err);

#endif
