/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls to oneself, and references to values of one's own: B2, with the sparse variants.
 * Main thread of each process. */
#include "functions.h"

CONFORM(B2, self_add)
{
	struct far_future *f = ASYNC(peer(0), "far::add", FAR_ARGS(full(2, 2, 1), 1));
	IS_FULL(TAKE(f), 2, 2, 2);
	IS_FULL(CALL(peer(0), "far::add", FAR_ARGS(full(2, 2, 1), 1)), 2, 2, 2);
}

static void self_remote(const struct operands *o)
{
	struct far_rref *r = REMOTE(peer(0), "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3)));
	HOLDS(far_rref_is_owner(r));
	o->is(HERE, FETCH(r), 6);
	struct far_val v;
	OK(far_rref_local_value(r, 0, &v, &err));
	o->is(HERE, v, 6);
	far_rref_free(r);
}

CONFORM(B2, self_py_udf_remote)
{
	self_remote(&dense);
}

CONFORM(X5, self_py_udf_remote_sparse)
{
	self_remote(&sparse);
}

/* A reference to a value of this worker, given to `to`, whose function fetches it. */
static void self_rref_as_rpc_arg(const struct operands *o, const char *to)
{
	struct far_rref *r = REMOTE(peer(0), "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3)));
	struct far_rref *one = REMOTE(peer(0), "far::identity", FAR_ARGS(o->make(10)));
	struct far_future *f = ASYNC(to, "c::rref_sum", FAR_ARGS(r, one));
	o->is(HERE, CALL(to, "c::rref_sum", FAR_ARGS(r, one)), 16);
	o->is(HERE, TAKE(f), 16);
	far_rref_free(r);
	far_rref_free(one);
}

static void self_rref_as_remote_arg(const struct operands *o, const char *to)
{
	struct far_rref *r = REMOTE(peer(0), "c::my_function", FAR_ARGS(o->make(1), o->make(2), o->make(3)));
	struct far_rref *sum = REMOTE(to, "c::rref_sum", FAR_ARGS(r, r));
	far_rref_free(r);
	o->is(HERE, FETCH_LAST(sum), 12);
}

CONFORM(B2, self_remote_rref_as_rpc_arg)
{
	self_rref_as_rpc_arg(&dense, peer(1));
}

CONFORM(X5, self_remote_rref_as_rpc_arg_sparse)
{
	self_rref_as_rpc_arg(&sparse, peer(1));
}

CONFORM(B2, self_remote_rref_as_self_rpc_arg)
{
	self_rref_as_rpc_arg(&dense, peer(0));
}

CONFORM(X5, self_remote_rref_as_self_rpc_arg_sparse)
{
	self_rref_as_rpc_arg(&sparse, peer(0));
}

CONFORM(B2, self_remote_rref_as_remote_arg)
{
	self_rref_as_remote_arg(&dense, peer(1));
}

CONFORM(X5, self_remote_rref_as_remote_arg_sparse)
{
	self_rref_as_remote_arg(&sparse, peer(1));
}

CONFORM(B2, self_remote_rref_as_self_remote_arg)
{
	self_rref_as_remote_arg(&dense, peer(0));
}

CONFORM(X5, self_remote_rref_as_self_remote_arg_sparse)
{
	self_rref_as_remote_arg(&sparse, peer(0));
}

static void builtin_remote_self(const struct operands *o)
{
	struct far_rref *r = REMOTE(peer(0), "c::add", FAR_ARGS(o->make(1), o->make(2)));
	struct far_val v;
	OK(far_rref_local_value(r, 0, &v, &err));
	o->is(HERE, v, 3);
	o->is(HERE, FETCH_LAST(r), 3);
}

CONFORM(B2, builtin_remote_self)
{
	builtin_remote_self(&dense);
	struct far_rref *r = REMOTE(peer(0), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1)));
	IS_FULL(FETCH_LAST(r), 2, 2, 2);
}

CONFORM(X5, builtin_remote_self_sparse)
{
	builtin_remote_self(&sparse);
}

/* Both values are the callee's own. */
CONFORM(B2, remote_same_worker)
{
	double n = rank + 1;
	struct far_rref *a = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, n), full(2, 2, n))),
			*b = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, n), full(2, 2, 1))),
			*c = REMOTE(peer(1), "c::rref_sum", FAR_ARGS(a, b));
	IS_FULL(FETCH(c), 2, 2, 3 * n + 1);
	far_rref_free(a);
	far_rref_free(b);
	far_rref_free(c);
}
