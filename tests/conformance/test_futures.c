/* SPDX-License-Identifier: BSD-3-Clause */
/** Futures: E1. Main thread of each process. */
#include "functions.h"

#include <string.h>

static struct far_future *twos(void)
{
	return ASYNC(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1)));
}

CONFORM(E1, future_wait_twice)
{
	struct far_future *f = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error")), *g = twos();
	for (int i = 0; i < 2; i++) {
		FAILS(FAR_REMOTE, far_future_wait(f, 0, NULL, &err));
		SAYS("Expected error");
		IS_FULL(WAIT(g), 2, 2, 2);
	}
	far_future_free(f);
	far_future_free(g);
}

/* Adds the f32 matrix behind `user`, or 1, to what the parent has. */
static enum far_status plus_one(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	enum far_status status = far_future_wait(parent, 0, &v, e); /* complete: never blocks */
	if (status)
		return status;
	float sum[4];
	struct far_tensor t = far_tensor_2d(FAR_F32, sum, 2, 2);
	struct far_val x = far_tensor_val(&t);
	if (v.type != FAR_TYPE_TENSOR || far_tensor_bytes(&v.u.t) != sizeof sum) {
		far_val_fini(&v);
		snprintf(e->text, sizeof e->text, "Expected a matrix");
		return FAR_BAD_ARGS;
	}
	for (int i = 0; i < 4; i++)
		sum[i] = ((const float *)v.u.t.data)[i] + 1;
	far_val_fini(&v);
	return far_val_dup(&x, out, e);
}

static struct far_future *then(const char *here, struct far_future *f, far_then_fn *fn, void *user)
{
	struct far_future *child = NULL;
	conform_at(here);
	conform_want(here, "then", far_future_then(f, fn, user, &child, &err), FAR_OK);
	return child;
}
#define THEN(f, fn, user) then(HERE, f, fn, user)

CONFORM(E1, callback_simple)
{
	struct far_future *f = twos(), *child = THEN(f, plus_one, NULL);
	IS_FULL(TAKE(child), 2, 2, 3);
	IS_FULL(TAKE(f), 2, 2, 2);
}

/* A callback that calls with too few arguments fails the child, not the parent. */
static enum far_status calls_wrongly(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	return far_rpc_async(agent, user, "far::add", FAR_ARGS(1), NULL, &(struct far_future *){NULL}, e);
}

CONFORM(E1, callback_wrong_arg_num)
{
	struct far_future *f = twos(), *child = THEN(f, calls_wrongly, (void *)(uintptr_t)peer(1));
	TAKE_FAILS(FAR_BAD_ARGS, child);
	SAYS("far::add");
	IS_FULL(TAKE(f), 2, 2, 2);
}

CONFORM(E1, callback_wrong_arg_type)
{
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(1, 2)), *child = THEN(f, plus_one, NULL);
	TAKE_FAILS(FAR_BAD_ARGS, child);
	SAYS("Expected a matrix");
	IS_INT(TAKE(f), 3);
}

CONFORM(E1, callback_multi)
{
	enum { N = 10 };
	struct far_future *f = twos(), *child[N];
	for (int i = 0; i < N; i++)
		child[i] = THEN(f, plus_one, NULL);
	IS_FULL(TAKE(f), 2, 2, 2);
	for (int i = 0; i < N; i++)
		IS_FULL(TAKE(child[i]), 2, 2, 3);
}

static struct far_future *chain(struct far_future *f, int n)
{
	for (int i = 0; i < n; i++) {
		struct far_future *next = THEN(f, plus_one, NULL);
		far_future_free(f);
		f = next;
	}
	return f;
}

CONFORM(E1, callback_chain)
{
	IS_FULL(TAKE(chain(twos(), 20)), 2, 2, 22);
}

/* The callback runs in the callee's handler. */
CONFORM(E1, callback_in_rpc)
{
	IS_FULL(CALL(peer(1), "c::callback_in_rpc", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1))), 2, 2, 4);
}

/* A callback that starts a call, whose future nobody flattens, and one that adds to what it waits for. */
static enum far_status calls_on(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_val v;
	enum far_status status = far_future_value(parent, &v, e);
	if (!status)
		status = far_rpc_async(agent, peer(2), "far::add", FAR_ARGS(v, 1), NULL, user, e);
	far_val_fini(&v);
	return status;
}

/* Waits for a call that it starts. */
static enum far_status waits_on(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_future *f = NULL, *child = NULL;
	enum far_status status = calls_on(parent, out, e, &f);
	if (!status)
		status = far_future_then(f, plus_one, NULL, &child, e);
	if (!status)
		status = far_future_wait(child, 0, out, e);
	far_future_free(child);
	far_future_free(f);
	return status;
}

/* An exception: what the reference does, a wait in a callback of a pending call, is refused here. Where the callback
 * runs on the application's thread, the future being complete or made by it, it waits, to the reference's result.
 * Kills: far_future_wait() that does not check whether it runs in a callback of the shard (it hangs). */
CONFORM(E1, callback_with_ret)
{
	struct far_future *f = twos(),
			  *late = ASYNC(peer(1), "c::slow_add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1), 60));
	struct far_future *refused = THEN(late, waits_on, NULL);
	struct far_val v = WAIT(f);
	IS_FULL(TAKE(THEN(f, waits_on, NULL)), 2, 2, 4);
	struct far_future *mine, *child;
	OK(far_future_create(&mine, &err));
	child = THEN(mine, waits_on, NULL);
	OK(far_future_set_value(mine, &v, &err));
	IS_FULL(TAKE(child), 2, 2, 4);
	TAKE_FAILS(FAR_WOULD_DEADLOCK, refused);
	SAYS("callback");
	IS_FULL(TAKE(late), 2, 2, 2);
	far_val_fini(&v);
	far_future_free(mine);
	far_future_free(f);
}

static enum far_status raises(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	snprintf(e->text, sizeof e->text, "Another expected error");
	return FAR_REMOTE;
}

static enum far_status passes_on(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	return far_future_value(parent, out, e);
}

CONFORM(E1, callback_with_error)
{
	struct far_future *f = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error")), *same = THEN(f, passes_on, NULL),
			  *other = THEN(f, raises, NULL), *after = THEN(other, passes_on, NULL);
	TAKE_FAILS(FAR_REMOTE, same);
	SAYS("Expected error");
	HOLDS(err.code == 17 && strcmp(err.origin, peer(1)) == 0);
	TAKE_FAILS(FAR_REMOTE, other);
	SAYS("Another expected error");
	TAKE_FAILS(FAR_REMOTE, after);
	SAYS("Another expected error");
	TAKE_FAILS(FAR_REMOTE, f);
	HOLDS(strcmp(err.text, "Expected error") == 0);
}

CONFORM(E1, callback_none)
{
	struct far_future *f = twos(), *child = NULL;
	FAILS(FAR_INVALID, far_future_then(f, NULL, NULL, &child, &err));
	FAILS(FAR_INVALID, far_future_on_done(f, NULL, NULL, &err));
	HOLDS(!child);
	IS_FULL(TAKE(f), 2, 2, 2);
}

static void counts(struct far_future *f, void *user)
{
	struct far_val v;
	if (far_future_done(f) && far_future_value(f, &v, NULL) == FAR_OK)
		atomic_fetch_add((_Atomic int *)user, 1);
	far_val_fini(&v);
}

static bool thrice(void *user)
{
	return atomic_load((_Atomic int *)user) == 3;
}

CONFORM(E1, add_done_callback)
{
	static _Atomic int ran;
	struct far_future *f = twos();
	OK(far_future_on_done(f, counts, &ran, &err));
	OK(far_future_on_done(f, counts, &ran, &err));
	IS_FULL(WAIT(f), 2, 2, 2);
	OK(far_future_on_done(f, counts, &ran, &err)); /* complete: runs at once */
	UNTIL(thrice, &ran);
	far_future_free(f);
}

CONFORM(E1, mark_future_twice)
{
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(1, 2)), *mine;
	struct far_val one = far_int(1), two = far_int(2);
	IS_INT(WAIT(f), 3);
	FAILS(FAR_INVALID, far_future_set_value(f, &one, &err));
	IS_INT(TAKE(f), 3);
	OK(far_future_create(&mine, &err));
	OK(far_future_set_value(mine, &one, &err));
	FAILS(FAR_INVALID, far_future_set_value(mine, &two, &err));
	SAYS("completed");
	HOLDS(far_future_set_error(mine, FAR_REMOTE, 0, "late") == FAR_INVALID);
	IS_INT(TAKE(mine), 1);
}

/* An exception: no type of value is a future, so the compiler refuses what the reference refuses. A value with an
 * undefined type number is refused and not sent. Kills: a parameter Any that takes every type number. */
CONFORM(E1, pickle_future)
{
	struct far_val v = far_none();
	v.type = FAR_TYPE_COUNT;
	CALL_FAILS(FAR_BAD_ARGS, peer(1), "far::identity", FAR_ARGS(v));
	SAYS("unknown type");
	HOLDS(err.executed == FAR_EXECUTED_NO && !err.origin[0]);
	CALL_FAILS(FAR_INVALID, peer(1), "far::identity", FAR_ARGS(FAR_LIST(1, v)));
}

CONFORM(E1, future_done)
{
	struct far_future *f = ASYNC(peer(1), "far::add", FAR_ARGS(1, 2)),
			  *late = ASYNC(peer(1), "c::slow_add", FAR_ARGS(1, 2, 20000));
	IS_INT(WAIT(f), 3);
	HOLDS(far_future_done(f));
	HOLDS(!far_future_done(late));
	FAILS(FAR_PENDING, far_future_value(late, NULL, &err));
	OK(far_future_cancel(late, &err));
	TAKE_FAILS(FAR_CANCELLED, late);
	far_future_free(f);
}

CONFORM(E1, future_done_exception)
{
	struct far_future *f = ASYNC(peer(1), "c::raise", FAR_ARGS("Expected error"));
	FAILS(FAR_REMOTE, far_future_wait(f, 0, NULL, &err));
	SAYS("Expected error");
	HOLDS(far_future_done(f));
	far_future_free(f);
}

CONFORM(E1, future_in_rpc)
{
	IS_FULL(CALL(peer(1), "c::future_in_rpc", FAR_ARGS(peer(2), full(2, 2, 1), full(2, 2, 1))), 2, 2, 2);
}

/* A callback that adds a callback to the call that it starts. */
static enum far_status nests(struct far_future *parent, struct far_val *out, struct far_err *e, void *user)
{
	struct far_future *inner = NULL, **child = user;
	enum far_status status = calls_on(parent, out, e, &inner);
	if (!status)
		status = far_future_then(inner, plus_one, NULL, child, e);
	far_future_free(inner);
	return status;
}

CONFORM(E1, future_nested_callback)
{
	struct far_future *innermost = NULL, *f = twos(), *child = THEN(f, nests, &innermost);
	IS_NONE(TAKE(child));
	IS_FULL(TAKE(innermost), 2, 2, 4);
	far_future_free(f);
}

/* ---- functions that return one: exceptions, as pickle_future. Each kills: a result that is not checked against the
 * signature. ---- */

CONFORM(E1, return_future)
{
	CALL_FAILS(FAR_SIGNATURE, peer(1), "c::return_future", FAR_NOARGS);
	HOLDS(strcmp(err.origin, peer(1)) == 0);
}

CONFORM(E1, return_future_async)
{
	TAKE_FAILS(FAR_SIGNATURE, ASYNC(peer(1), "c::return_future", FAR_NOARGS));
	HOLDS(strcmp(err.origin, peer(1)) == 0);
}

CONFORM(E1, return_future_remote)
{
	struct far_rref *r = REMOTE(peer(1), "c::return_future", FAR_NOARGS);
	FETCH_FAILS(FAR_SIGNATURE, r);
	far_rref_free(r);
}
