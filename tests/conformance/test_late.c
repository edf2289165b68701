/* SPDX-License-Identifier: BSD-3-Clause */
/** Messages that are late on purpose: K3. Main thread of each process. */
#include "functions.h"

#include <farcall/testing.h>

enum { LATE_MS = 300 };

static void late(const char *here, enum far_fault_kind kind, uint64_t ms)
{
	struct far_fault f = {.delay_ns = ms * FAR_MS};
	conform_at(here);
	conform_want(here, far_fault_name(kind), far_fault_set(agent, kind, ms ? &f : NULL, &err), FAR_OK);
}
#define LATE(kind, ms) late(HERE, FAR_FAULT_##kind, ms)

/* The request is later than it may be: the making times out, and then each fetch is refused with that. */
static void making_times_out(const char *to, const char *fn, const struct far_val *args, size_t n)
{
	struct far_call_opts brief = {.timeout_ns = FAR_MS};
	struct far_rref *r;
	LATE(REMOTE, LATE_MS);
	OK(far_remote(agent, to, fn, args, n, &brief, &r, &err));
	FAILS(FAR_TIMEOUT, far_rref_wait(r, 0, &err));
	FETCH_FAILS(FAR_TIMEOUT, r);
	SAYS("was never made");
	CALL_FAILS(FAR_TIMEOUT, peer(2), "c::to_here", FAR_ARGS(r));
	far_rref_free(r);
}

/* A fetch of what is made late ends by its own limit, and with a longer one it comes. */
static void fetch_times_out(const char *to, const char *fn, const struct far_val *args, size_t n)
{
	LATE(REMOTE, LATE_MS);
	struct far_rref *r = REMOTE(to, fn, args, n);
	FAILS(FAR_TIMEOUT, far_rref_to_here(r, FAR_MS, NULL, &err));
	IS_INT(FETCH(r), 3);
	OK(far_rref_wait(r, 0, &err));
	far_rref_free(r);
	OK(far_faults_clear(agent, &err));
}

static void delayed(const char *to, const char *fn, const struct far_val *args, size_t n)
{
	making_times_out(to, fn, args, n);
	fetch_times_out(to, fn, args, n);
	IS_INT(FETCH_LAST(REMOTE(to, fn, args, n)), 3);
}

CONFORM(K3, udf_remote_message_delay_timeout)
{
	delayed(peer(1), "c::slow_add", FAR_ARGS(1, 2, 5));
}

CONFORM(K3, udf_remote_message_delay_timeout_to_self)
{
	delayed(peer(0), "c::slow_add", FAR_ARGS(1, 2, 5));
}

CONFORM(K3, remote_message_builtin_delay_timeout)
{
	delayed(peer(1), "far::add", FAR_ARGS(1, 2));
}

CONFORM(K3, remote_message_builtin_delay_timeout_to_self)
{
	delayed(peer(0), "far::add", FAR_ARGS(1, 2));
}

/* By a function that is typed, and by keyword. */
CONFORM(K3, remote_message_script_delay_timeout)
{
	delayed(peer(1), "c::Box_static_add", FAR_ARGS(FAR_KW("b", 1), FAR_KW("a", 2)));
}

CONFORM(K3, remote_message_script_delay_timeout_to_self)
{
	delayed(peer(0), "c::Box_static_add", FAR_ARGS(FAR_KW("b", 1), FAR_KW("a", 2)));
}

CONFORM(K3, rref_to_here_timeout)
{
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	OK(far_rref_wait(r, 0, &err));
	LATE(FETCH, LATE_MS);
	FAILS(FAR_TIMEOUT, far_rref_to_here(r, 10 * FAR_MS, NULL, &err));
	IS_INT(FETCH(r), 3); /* the reference is none the worse */
	OK(far_faults_clear(agent, &err));
	far_rref_free(r);
}

static enum far_status within(uint64_t timeout_ns, const char *fn)
{
	struct far_call_opts opts = {.timeout_ns = timeout_ns};
	struct far_val v = {0};
	enum far_status status = far_rpc_sync(agent, peer(1), fn, FAR_ARGS(1, 2), &opts, &v, &err);
	if (!status)
		IS_INT(v, 3);
	return status;
}

/* Of its own, by default, and none. */
static void calls_are_late(const char *fn)
{
	LATE(CALL, LATE_MS);
	FAILS(FAR_TIMEOUT, within(10 * FAR_MS, fn));
	OK(far_set_rpc_timeout_ns(agent, 10 * FAR_MS));
	FAILS(FAR_TIMEOUT, within(0, fn));
	TAKE_FAILS(FAR_TIMEOUT, ASYNC(peer(1), fn, FAR_ARGS(1, 2)));
	OK(within(FAR_FOREVER, fn));
	OK(within(60 * FAR_SEC, fn));
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
	OK(within(0, fn));
	OK(far_faults_clear(agent, &err));
}

CONFORM(K3, rpc_builtin_timeout)
{
	calls_are_late("far::add");
}

CONFORM(K3, rpc_script_timeout)
{
	calls_are_late("c::Box_static_add");
}
