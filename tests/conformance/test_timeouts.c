/* SPDX-License-Identifier: BSD-3-Clause */
/** Time-outs of calls and of the making of references: D1, D2. Main thread of each process. */
#include "functions.h"

#include <string.h>

enum { LONG_MS = 20000 }; /* of what nobody waits for to the end */

static enum far_status within(uint64_t timeout_ns, const char *fn, const struct far_val *args, size_t n)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	return far_rpc_sync(agent, peer(1), fn, args, n, &opts, NULL, &err);
}

CONFORM(D1, set_and_get_default_rpc_timeout)
{
	HOLDS(far_rpc_timeout_ns(agent) == 60 * FAR_SEC);
	OK(far_set_rpc_timeout_ns(agent, 123456789));
	HOLDS(far_rpc_timeout_ns(agent) == 123456789);
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
}

CONFORM(D1, default_timeout_used)
{
	enum { N = 10 };
	struct far_future *f[N];
	OK(far_set_rpc_timeout_ns(agent, FAR_MS));
	for (int i = 0; i < N; i++)
		f[i] = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS));
	/* Those that are under way keep theirs. */
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
	for (int i = 0; i < N; i++)
		TAKE_FAILS(FAR_TIMEOUT, f[i]);
	f[0] = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 30));
	OK(far_set_rpc_timeout_ns(agent, FAR_MS));
	IS_INT(TAKE(f[0]), 3);
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
}

CONFORM(D1, rpc_timeouts)
{
	struct far_call_opts brief = {.timeout_ns = 5 * FAR_MS};
	struct far_future *f;
	OK(far_rpc_async(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS), &brief, &f, &err));
	TAKE_FAILS(FAR_TIMEOUT, f);
	HOLDS(err.executed != FAR_EXECUTED_YES);
	FAILS(FAR_TIMEOUT, within(5 * FAR_MS, "c::slow_add", FAR_ARGS(1, 2, LONG_MS)));
	/* The default, and a call's own that is longer. */
	OK(far_set_rpc_timeout_ns(agent, 5 * FAR_MS));
	CALL_FAILS(FAR_TIMEOUT, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS));
	OK(within(60 * FAR_SEC, "c::slow_add", FAR_ARGS(1, 2, 20)));
	/* None at all; and a small one is not none. */
	OK(within(FAR_FOREVER, "c::slow_add", FAR_ARGS(1, 2, 20)));
	FAILS(FAR_TIMEOUT, within(1, "c::slow_add", FAR_ARGS(1, 2, LONG_MS)));
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
}

/* ---- D2 ---- */

/* What takes longer to make than it may fails its own reference and no other, and reports it at each use. */
CONFORM(D2, rref_timeout)
{
	struct far_call_opts brief = {.timeout_ns = 10 * FAR_MS};
	struct far_rref *good = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2)), *r;
	OK(far_remote(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS), &brief, &r, &err));
	FAILS(FAR_TIMEOUT, far_rref_wait(r, 0, &err));
	FETCH_FAILS(FAR_TIMEOUT, r);
	SAYS("was never made");
	HOLDS(!far_rref_confirmed_by_owner(r) && far_rref_status(r, NULL) == FAR_TIMEOUT);
	CALL_FAILS(FAR_TIMEOUT, peer(2), "c::to_here", FAR_ARGS(r));
	far_rref_free(r);
	IS_INT(FETCH_LAST(good), 3);
}
