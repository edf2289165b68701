/* SPDX-License-Identifier: BSD-3-Clause */
/** Waiting for many: scopes, and lists that fail fast: E2. Main thread of each process. */
#include "functions.h"

#include <string.h>

static struct far_scope scope;

static void begin(void)
{
	HOLDS(far_scope_begin(&scope) == FAR_OK);
}

static void is_over(void)
{
	FAILS(FAR_INVALID, far_scope_end(&scope, 0, &err));
}

CONFORM(E2, wait_all)
{
	begin();
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), 1));
	HOLDS(far_scope_begin(&scope) == FAR_INVALID); /* it is active */
	OK(far_scope_end(&scope, 0, &err));
	HOLDS(far_future_done(f));
	IS_FULL(TAKE(f), 2, 2, 2);
	is_over();
}

/* Both ways of calling in one scope, waited for within it; then two calls that only the end waits for. Kills: a scope
 * that gathers nothing, or only the last future; one that frees the caller's reference to a future. */
CONFORM(E2, wait_all_multiple_call)
{
	enum { N = 20 };
	struct far_future *f[N], *slow[2];
	begin();
	for (int i = 0; i < N; i++) {
		size_t edge = (size_t)i;
		f[i] = ASYNC(peer(1), "far::add", FAR_ARGS(full(edge, edge, 1), 1));
		IS_FULL(CALL(peer(1), "far::add", FAR_ARGS(full(edge, edge, 1), 1)), edge, edge, 2);
		IS_FULL(WAIT(f[i]), edge, edge, 2);
	}
	slow[0] = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 60));
	slow[1] = ASYNC(peer(1), "c::slow_add", FAR_ARGS(3, 4, 1));
	OK(far_scope_end(&scope, 0, &err));
	HOLDS(far_future_done(slow[0]) && far_future_done(slow[1]));
	IS_INT(TAKE(slow[0]), 3);
	IS_INT(TAKE(slow[1]), 7);
	for (int i = 0; i < N; i++)
		IS_FULL(TAKE(f[i]), (size_t)i, (size_t)i, 2);
	is_over();
}

CONFORM(E2, wait_all_timeout)
{
	struct far_call_opts brief = {.timeout_ns = 5 * FAR_MS};
	struct far_future *f;
	begin();
	OK(far_rpc_async(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, 20000), &brief, &f, &err));
	FAILS(FAR_TIMEOUT, far_scope_end(&scope, 0, &err));
	is_over();
	far_future_free(f);
}

CONFORM(E2, wait_all_raise_in_user_func)
{
	begin();
	struct far_future *f = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FAILS(FAR_REMOTE, far_scope_end(&scope, 0, &err));
	SAYS("Expected error");
	is_over();
	far_future_free(f);
}

/* The body gives up: the scope is left without waiting, and the call goes on. */
CONFORM(E2, wait_all_raise_in_body)
{
	begin();
	struct far_future *f = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 30));
	far_scope_abandon(&scope);
	is_over();
	IS_INT(TAKE(f), 3);
}

/* Fails fast: what is slow does not hold up the error, and goes on. */
static void exits_early(const char *to, const char *bad, const struct far_val *args, size_t n, enum far_status want)
{
	struct far_future *f[3] = {ASYNC(to, "c::slow_add", FAR_ARGS(1, 2, 200)),
				   ASYNC(to, "c::slow_add", FAR_ARGS(3, 4, 20000)), ASYNC(to, bad, args, n)};
	FAILS(want, far_future_wait_all(f, 3, 0, &err));
	HOLDS(!far_future_done(f[1]));
	IS_INT(TAKE(f[0]), 3);
	OK(far_future_cancel(f[1], &err));
	TAKE_FAILS(FAR_CANCELLED, f[1]);
	far_future_free(f[2]);
}

CONFORM(E2, wait_all_exit_early_python)
{
	exits_early(peer(1), "c::raise_fiber", FAR_ARGS("Expected error"), FAR_REMOTE);
}

/* A built-in whose operands do not go together. */
CONFORM(E2, wait_all_exit_early_builtin)
{
	exits_early(peer(1), "far::add", FAR_ARGS(full(2, 3, 1), full(4, 5, 1)), FAR_BAD_ARGS);
}

CONFORM(E2, wait_all_exit_early_script_function)
{
	exits_early(peer(1), "c::raise_blocking", FAR_ARGS("Expected error"), FAR_REMOTE);
}

CONFORM(E2, wait_all_with_exception)
{
	enum { N = 10 };
	struct far_future *f[N];
	for (int i = 0; i < N; i++)
		f[i] = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FAILS(FAR_REMOTE, far_future_wait_all(f, N, 0, &err));
	SAYS("Expected error");
	for (int i = 0; i < N; i++)
		far_future_free(f[i]);
}

CONFORM(E2, wait_all_with_partial_exception)
{
	enum { N = 10 };
	struct far_future *f[N + 1], *all;
	for (int i = 0; i < N; i++)
		f[i] = ASYNC(peer(1), "far::add", FAR_ARGS(i, 1));
	f[N] = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FAILS(FAR_REMOTE, far_future_wait_all(f, N + 1, 0, &err));
	SAYS("Expected error");
	OK(far_future_collect(f, N + 1, &all, &err)); /* waits for all of them */
	TAKE_FAILS(FAR_REMOTE, all);
	for (int i = 0; i < N; i++)
		IS_INT(TAKE(f[i]), i + 1);
	far_future_free(f[N]);
}
