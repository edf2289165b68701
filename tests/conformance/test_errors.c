/* SPDX-License-Identifier: BSD-3-Clause */
/** Errors of functions, and of the way to them: C1, C2. Main thread of each process; handlers on shard threads. */
#include "functions.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

/* What its signature does not take is refused before anything is sent. */
CONFORM(C1, py_function_exception)
{
	CALL_FAILS(FAR_BAD_ARGS, peer(1), "c::no_result", FAR_ARGS(10));
	SAYS("c::no_result");
	HOLDS(err.executed == FAR_EXECUTED_NO);
}

static void is_raised(const char *text)
{
	HOLDS(err.status == FAR_REMOTE && err.code == 17 && err.executed == FAR_EXECUTED_YES);
	HOLDS(strcmp(err.text, text) == 0 && strcmp(err.origin, peer(1)) == 0);
}

CONFORM(C1, py_raise_in_user_func)
{
	static const char *const kinds[] = {"c::raise", "c::raise_fiber", "c::raise_blocking"};
	for (int i = 0; i < 3; i++) {
		CALL_FAILS(FAR_REMOTE, peer(1), kinds[i], FAR_ARGS("Expected error"));
		is_raised("Expected error");
		TAKE_FAILS(FAR_REMOTE, ASYNC(peer(1), kinds[i], FAR_ARGS("Expected error")));
		is_raised("Expected error");
	}
}

CONFORM(C1, py_raise_in_user_func_escaped_str)
{
	static const char text[] = "Expected error \\n\n\t \"quoted\" %s %n \\x41 \303\244 \001\177 ]]>";
	CALL_FAILS(FAR_REMOTE, peer(1), "c::raise", FAR_ARGS(text));
	is_raised(text);
}

CONFORM(C1, remote_with_exception)
{
	struct far_rref *r = REMOTE(peer(1), "c::raise", FAR_ARGS("Expected error"));
	for (int i = 0; i < 2; i++) {
		FETCH_FAILS(FAR_REMOTE, r);
		is_raised("Expected error");
	}
	OK(far_rref_wait(r, 0, &err)); /* it was made, and holds the error */
	far_rref_free(r);
}

static enum far_status only_here(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	return far_return(req, &args[0]);
}

CONFORM(C1, function_not_on_callee)
{
	static const struct far_function mine = {"c::foo_add(int x) -> int", FAR_KIND_INLINE, only_here, NULL};
	if (rank == 0) {
		OK(far_register_function(agent, &mine, &err));
		CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::foo_add", FAR_ARGS(1));
		SAYS("no such function; register it there too");
		HOLDS(strcmp(err.origin, peer(1)) == 0 && err.executed == FAR_EXECUTED_NO);
		IS_INT(CALL(peer(0), "c::foo_add", FAR_ARGS(1)), 1);
	} else {
		CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::foo_add", FAR_ARGS(1));
		HOLDS(err.executed == FAR_EXECUTED_NO && !err.origin[0]);
	}
}

CONFORM(C1, remote_throw)
{
	for (int to = 0; to < 2; to++) { /* oneself too */
		struct far_rref *r = REMOTE(peer(to), "c::raise_fiber", FAR_ARGS("Expected error"));
		FETCH_FAILS(FAR_REMOTE, r);
		SAYS("Expected error");
		HOLDS(err.code == 17 && strcmp(err.origin, peer(to)) == 0);
		far_rref_free(r);
	}
}

/* ---- C2 ---- */

/* One worker ends without a word: what it owes ends, and so does all that comes later. */
CONFORM_BARE(C2, handle_send_exceptions)
{
	struct far_future *f = NULL;
	enum far_status status;
	conform_join(HERE);
	if (rank != 3)
		f = ASYNC("worker3", "c::slow_add", FAR_ARGS(1, 2, 60000));
	OK(far_barrier(agent, NULL, 0, 0, &err));
	if (rank == 3) {
		conform_may_die();
		raise(SIGKILL);
	}
	TAKE_FAILS(FAR_PEER_LOST, f);
	HOLDS(strcmp(err.origin, "worker3") == 0);
	do
		status = far_rpc_sync(agent, "worker3", "far::add", FAR_ARGS(1, 2), NULL, NULL, &err);
	while (status == FAR_PEER_LOST && err.executed != FAR_EXECUTED_NO);
	FAILS(FAR_PEER_LOST, status);
	IS_INT(CALL(conform_name((rank + 1) % 3), "far::add", FAR_ARGS(1, 2)), 3); /* the living go on */
	FAILS(FAR_PEER_LOST, far_shutdown(agent, FAR_FOREVER, &err));
	SAYS("worker3");
}
