/* SPDX-License-Identifier: BSD-3-Clause */
/** What the reference does with compiled functions, called by name and typed by signature: X4c, X4d.
 * Main thread of each process; handlers on shard threads. */
#include "functions.h"

#include <string.h>

CONFORM(X4c, torchscript_function)
{
	IS_INT(CALL(peer(1), "c::my_function", FAR_ARGS(1, 2, rank)), 3 + rank);
	IS_INT(FETCH_LAST(REMOTE(peer(1), "c::my_function", FAR_ARGS(1, 2, rank))), 3 + rank);
	IS_INT(CALL(peer(0), "c::my_function", FAR_ARGS(1, 2, rank)), 3 + rank);
}

/* Too few and too many arguments, of a call and of one that is kept. */
CONFORM(X4c, torchscript_function_exception)
{
	struct far_rref *r = NULL;
	CALL_FAILS(FAR_BAD_ARGS, peer(1), "c::my_function", FAR_ARGS(10));
	FAILS(FAR_BAD_ARGS, far_remote(agent, peer(1), "c::my_function", FAR_ARGS(1, 2, 3, 4), NULL, &r, &err));
	HOLDS(!r);
}

/* A class, and what belongs to one, are no functions. */
CONFORM(X4c, torchscript_functions_not_supported)
{
	struct far_rref *r = NULL;
	CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::Box", FAR_ARGS(1));
	CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::Box.forward", FAR_ARGS(1));
	FAILS(FAR_NO_FUNCTION, far_remote(agent, peer(1), "c::Box", FAR_ARGS(1), NULL, &r, &err));
	HOLDS(!r && err.executed == FAR_EXECUTED_NO);
}

/* A reference is copied within its process; nothing makes bytes of it but a call. */
CONFORM(X4c, rref_jit_pickle_not_supported)
{
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	struct far_val v = far_rref_val(r), copy;
	struct far_opts opts = {.init_method = conform_own_url(HERE)};
	struct far_agent *lone;
	OK(far_val_dup(&v, &copy, &err));
	HOLDS(copy.type == FAR_TYPE_RREF && far_rref_same(copy.u.rref, r));
	IS_INT(FETCH(copy.u.rref), 3);
	OK(far_init_rpc("lone", 0, 1, &opts, &lone, &err));
	FAILS(FAR_INVALID, far_rpc_sync(lone, "lone", "far::identity", FAR_ARGS(FAR_LIST(1, copy)), NULL, NULL, &err));
	OK(far_shutdown(lone, FAR_FOREVER, &err));
	far_val_fini(&copy);
	far_rref_free(r);
}

CONFORM(X4c, remote_script_throw)
{
	struct far_rref *r = REMOTE(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FETCH_FAILS(FAR_REMOTE, r);
	SAYS("Expected error");
	far_rref_free(r);
}

CONFORM(X4c, remote_script_udf)
{
	IS_FULL(FETCH_LAST(REMOTE(peer(1), "far::add", FAR_ARGS(full(1, 2, rank), full(1, 2, rank)))), 1, 2, 2 * rank);
}

CONFORM(X4c, async_script_udf)
{
	IS_FULL(TAKE(ASYNC(peer(1), "far::add", FAR_ARGS(full(1, 2, rank), full(1, 2, rank)))), 1, 2, 2 * rank);
}

static enum far_status plus(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	enum far_status status = far_future_value(parent, &v, e);
	if (!status)
		*out = far_int(v.u.i + (int64_t)(intptr_t)user);
	return status;
}

static enum far_status raises(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	strcpy(e->text, "Expected error of a callback");
	return FAR_REMOTE;
}

static struct far_future *then(struct far_future *f, far_then_fn *fn, intptr_t user)
{
	struct far_future *child = NULL;
	OK(far_future_then(f, fn, (void *)user, &child, &err));
	far_future_free(f);
	return child;
}

static struct far_future *three(void)
{
	return ASYNC(peer(1), "far::add", FAR_ARGS(1, 2));
}

CONFORM(X4c, callback_simple)
{
	IS_INT(TAKE(then(three(), plus, 1)), 4);
}

CONFORM(X4c, callback_chain)
{
	struct far_future *f = three();
	for (int i = 0; i < 20; i++)
		f = then(f, plus, i);
	IS_INT(TAKE(f), 3 + 190);
}

static void notes(struct far_future *f, void *user)
{
	struct far_val v;
	if (far_future_value(f, &v, NULL) == FAR_OK)
		atomic_store((_Atomic int64_t *)user, v.u.i);
}

static bool noted(void *user)
{
	return atomic_load((_Atomic int64_t *)user) != 0;
}

CONFORM(X4c, add_done_callback)
{
	static _Atomic int64_t seen;
	struct far_future *f = three();
	OK(far_future_on_done(f, notes, &seen, &err));
	far_future_free(f);
	UNTIL(noted, &seen);
	HOLDS(seen == 3);
}

CONFORM(X4c, async_script_throw)
{
	TAKE_FAILS(FAR_REMOTE, ASYNC(peer(1), "c::raise_fiber", FAR_ARGS("Expected error")));
	SAYS("Expected error");
}

CONFORM(X4c, callback_with_exception)
{
	TAKE_FAILS(FAR_REMOTE, then(three(), raises, 0));
	SAYS("Expected error of a callback");
}

/* ---- asynchronous ones ---- */

CONFORM(X4c, async_function_simple)
{
	IS_INT(CALL(peer(1), "c::async_add", FAR_ARGS(peer(2), 1, rank)), 1 + rank);
}

CONFORM(X4c, async_function_wrong_return_type)
{
	CALL_FAILS(FAR_REMOTE, peer(1), "c::async_no_answer", FAR_NOARGS);
	SAYS("without an answer");
}

/* What a function does, its registration says and nobody else: without a kind it is refused. */
CONFORM(X4c, async_function_wrong_decorator_order)
{
	static const struct far_function kindless = {"c::kindless(int x) -> int", FAR_KIND_NONE, async_add, NULL};
	FAILS(FAR_INVALID, far_register_function(agent, &kindless, &err));
	SAYS("c::kindless");
	CALL_FAILS(FAR_NO_FUNCTION, peer(1), "c::kindless", FAR_ARGS(1));
}

CONFORM(X4c, async_function_remote)
{
	IS_INT(FETCH_LAST(REMOTE(peer(1), "c::async_add", FAR_ARGS(peer(2), 1, rank))), 1 + rank);
}

CONFORM(X4c, async_function_remote_multi)
{
	enum { N = 20 };
	struct far_rref *r[N];
	for (int i = 0; i < N; i++)
		r[i] = REMOTE(peer(1), "c::async_add", FAR_ARGS(peer(2), 1, i));
	for (int i = 0; i < N; i++)
		IS_INT(FETCH_LAST(r[i]), 1 + i);
}

CONFORM(X4c, async_function_wrong_return_type_remote)
{
	struct far_rref *r = REMOTE(peer(1), "c::async_no_answer", FAR_NOARGS);
	FETCH_FAILS(FAR_REMOTE, r);
	SAYS("without an answer");
	far_rref_free(r);
}

/* ---- X4d: time-outs within functions ---- */

enum { LONG_MS = 20000 };

CONFORM(X4d, timeout_in_torchscript_function)
{
	CALL_FAILS(FAR_TIMEOUT, peer(1), "c::nested_within", FAR_ARGS(peer(2), 5, LONG_MS));
	IS_INT(CALL(peer(1), "c::nested_within", FAR_ARGS(peer(2), LONG_MS, 5)), 3);
}

CONFORM(X4d, timeout_in_python)
{
	struct far_call_opts opts = {.timeout_ns = 5 * FAR_MS};
	struct far_val v;
	FAILS(FAR_TIMEOUT, far_rpc_sync(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS), &opts, NULL, &err));
	opts.timeout_ns = FAR_FOREVER;
	OK(far_rpc_sync(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, 5), &opts, &v, &err));
	IS_INT(v, 3);
	OK(far_set_rpc_timeout_ns(agent, 5 * FAR_MS));
	CALL_FAILS(FAR_TIMEOUT, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS));
	OK(far_set_rpc_timeout_ns(agent, 60 * FAR_SEC));
}

/* One whose making timed out: known by then, or not yet. */
static struct far_rref *never_made(bool known)
{
	struct far_call_opts brief = {.timeout_ns = 20 * FAR_MS};
	struct far_rref *r;
	OK(far_remote(agent, peer(1), "c::slow_add", FAR_ARGS(1, 2, LONG_MS), &brief, &r, &err));
	if (known)
		FAILS(FAR_TIMEOUT, far_rref_wait(r, 0, &err));
	return r;
}

CONFORM(X4d, remote_timeout_to_here_in_jit)
{
	struct far_rref *r = never_made(false);
	CALL_FAILS(FAR_TIMEOUT, peer(2), "c::to_here", FAR_ARGS(r));
	FAILS(FAR_TIMEOUT, far_rref_wait(r, 0, &err));
	FETCH_FAILS(FAR_TIMEOUT, r);
	SAYS("was never made");
	far_rref_free(r);
}

CONFORM(X4d, rref_to_here_timeout_in_jit)
{
	struct far_rref *r = REMOTE(peer(1), "c::slow_add", FAR_ARGS(1, 2, 1500));
	CALL_FAILS(FAR_TIMEOUT, peer(1), "c::to_here_within", FAR_ARGS(r, 1));
	CALL_FAILS(FAR_TIMEOUT, peer(2), "c::to_here_within", FAR_ARGS(r, 1));
	IS_INT(CALL(peer(2), "c::to_here_within", FAR_ARGS(r, LONG_MS)), 3);
	far_rref_free(r);
}

CONFORM(X4d, rref_timeout_pickle_in_jit)
{
	struct far_rref *r = never_made(true);
	CALL_FAILS(FAR_TIMEOUT, peer(1), "c::to_here", FAR_ARGS(r));
	SAYS("was never made");
	HOLDS(err.executed == FAR_EXECUTED_NO);
	far_rref_free(r);
}

CONFORM(X4d, rref_timeout_pickle_script_func)
{
	struct far_rref *r = never_made(true), *other = NULL;
	struct far_future *f = NULL;
	FAILS(FAR_TIMEOUT, far_remote(agent, peer(1), "c::to_here", FAR_ARGS(r), NULL, &other, &err));
	FAILS(FAR_TIMEOUT, far_rpc_async(agent, peer(2), "c::to_here", FAR_ARGS(r), NULL, &f, &err));
	SAYS("was never made");
	HOLDS(!other && !f);
	far_rref_free(r);
}
