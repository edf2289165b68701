/* SPDX-License-Identifier: BSD-3-Clause */
/** Results into the caller's memory (far_call_opts.into). While such a future is pending its bytes hold the struct
 * far_into. */
#ifndef FAR_API_RECV_BUF_H
#define FAR_API_RECV_BUF_H

#include "agent/agent.h"

static inline bool into_given(const struct far_call_opts *opts)
{
	return opts && opts->into.data;
}

void into_set(struct far_future *f, const struct far_into *into);
/** agent_complete() for a future with into_set(): a tensor or bytes go where it says. */
void into_complete(struct far_future *f, const struct outcome *o);
/** agent_done_future() likewise. */
void into_done(void *user, const struct outcome *o);
/** A result that came to memory of the engine. FAR_TOO_LARGE: nothing was copied, `v` is as it was. */
enum far_status into_move(struct far_val *v, const struct far_into *into, struct far_err *err);

#endif
