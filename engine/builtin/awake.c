/* SPDX-License-Identifier: BSD-3-Clause */
/** far::keep_awake: the poller of the shard that runs it does not sleep for a time. Shard thread. */
#include "builtin/awake.h"

#include "core/idle.h"
#include "core/request.h"

static enum far_status keep_awake(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	(void)n;
	(void)user;
	if (args[0].u.i < 0)
		return far_fail(req, FAR_BAD_ARGS, 0, "%lld ns is no time", (long long)args[0].u.i);
	shard_keep_awake(req->shard, (uint64_t)args[0].u.i);
	return far_return(req, NULL);
}

const struct far_function awake_function = {
	.signature = awake_name "(int ns) -> none", .kind = FAR_KIND_INLINE, .fn = keep_awake, .flags = FAR_IDEMPOTENT};
