/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls whose arguments hold references: another kind of request, so that others cost nothing more. */
#ifndef FAR_API_RREF_H
#define FAR_API_RREF_H

#include "api/agent.h"

/** As far_rpc_async_to() and far_rpc_sync_to(), which have found references among the arguments. */
enum far_status rref_rpc_async(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
			       size_t n, const struct far_call_opts *opts, struct far_future **out,
			       struct far_err *err);
enum far_status rref_rpc_sync(struct far_agent *a, struct far_to to, const char *function, const struct far_val *args,
			      size_t n, const struct far_call_opts *opts, struct far_val *out, struct far_err *err);

struct rref_pins;
/**
 * The same as one of a fan-out: prepares the request to one worker through shard `via` and hands it to `take`, which
 * may use it until it returns. On FAR_OK `*pins` are the caller's, to be kept until the call has ended.
 */
enum far_status rref_prepare(struct far_agent *a, const struct shard *via, struct far_to to, const char *function,
			     const struct far_val *args, size_t n, const struct far_call_opts *opts,
			     struct rref_pins **pins, agent_take_call *take, void *ctx, struct far_err *err);

#endif
