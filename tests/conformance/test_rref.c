/* SPDX-License-Identifier: BSD-3-Clause */
/** References made, fetched, shared: I1, I2, with the sparse variants. Main thread of each process. */
#include "functions.h"

#include <string.h>

/* ---- I1 ---- */

static void builtin_remote_ret(const struct operands *o)
{
	double n = rank + 1;
	struct far_rref *r = REMOTE(peer(1), "c::add", FAR_ARGS(o->make(n), o->make(n)));
	HOLDS(!far_rref_is_owner(r) && far_rref_owner(r).worker == peer_rank(1));
	HOLDS(strcmp(far_rref_owner_name(r), peer(1)) == 0);
	o->is(HERE, FETCH(r), 2 * n);
	o->is(HERE, FETCH_LAST(r), 2 * n);
}

CONFORM(I1, builtin_remote_ret)
{
	builtin_remote_ret(&dense);
	IS_FULL(FETCH_LAST(REMOTE(peer(1), "far::add", FAR_ARGS(full(3, 3, 1), full(3, 3, 1)))), 3, 3, 2);
}

CONFORM(X5, builtin_remote_ret_sparse)
{
	builtin_remote_ret(&sparse);
}

enum { MANY = 20 };

static void multi_builtin_remote_ret(const struct operands *o)
{
	struct far_rref *r[MANY];
	double n = rank + 1;
	for (int i = 0; i < MANY; i++)
		r[i] = REMOTE(peer(1 + i % 3), "c::add", FAR_ARGS(o->make(n), o->make(i)));
	for (int i = 0; i < MANY; i++)
		o->is(HERE, FETCH_LAST(r[i]), n + i);
}

CONFORM(I1, multi_builtin_remote_ret)
{
	multi_builtin_remote_ret(&dense);
}

CONFORM(X5, multi_builtin_remote_ret_sparse)
{
	multi_builtin_remote_ret(&sparse);
}

CONFORM(I1, py_udf_remote)
{
	int n = rank + 1;
	IS_INT(FETCH_LAST(REMOTE(peer(1), "c::my_function", FAR_ARGS(n, n + 1, n + 2))), 3 * n + 3);
}

static void multi_udf_remote(const struct operands *o)
{
	struct far_rref *r[MANY];
	for (int i = 0; i < MANY; i++)
		r[i] = REMOTE(peer(1), "c::my_function",
			      FAR_ARGS(o->make(i), FAR_KW("b", o->make(1)), FAR_KW("c", o->make(rank))));
	for (int i = 0; i < MANY; i++)
		o->is(HERE, FETCH_LAST(r[i]), i + 1 + rank);
}

CONFORM(I1, multi_py_udf_remote)
{
	multi_udf_remote(&dense);
}

CONFORM(X5, multi_py_udf_remote_sparse)
{
	multi_udf_remote(&sparse);
}

/* ---- I2 ---- */

/* Two values of peer(1), added up by a function of `at` that is given the references. */
static void rref_args(const struct operands *o, const char *at, bool by_remote)
{
	struct far_rref *a = REMOTE(peer(1), "c::add", FAR_ARGS(o->make(1), o->make(2)));
	struct far_rref *b = REMOTE(peer(1), "c::add", FAR_ARGS(o->make(rank), o->make(1)));
	if (by_remote)
		o->is(HERE, FETCH_LAST(REMOTE(at, "c::rref_sum", FAR_ARGS(a, b))), rank + 4);
	else
		o->is(HERE, CALL(at, "c::rref_sum", FAR_ARGS(a, b)), rank + 4);
	o->is(HERE, CALL(at, "c::rref_sum_blocking", FAR_ARGS(a, b)), rank + 4);
	far_rref_free(a);
	far_rref_free(b);
}

CONFORM(I2, py_rref_args)
{
	rref_args(&dense, peer(1), true);
}

CONFORM(X5, py_rref_args_sparse)
{
	rref_args(&sparse, peer(1), true);
}

CONFORM(I2, py_rref_args_user_share)
{
	rref_args(&dense, peer(2), true);
}

CONFORM(X5, py_rref_args_user_share_sparse)
{
	rref_args(&sparse, peer(2), true);
}

CONFORM(I2, py_rpc_rref_args)
{
	rref_args(&dense, peer(2), false);
}

CONFORM(X5, py_rpc_rref_args_sparse)
{
	rref_args(&sparse, peer(2), false);
}

static void nested_remote_of(const struct operands *o)
{
	o->is(HERE, FETCH_LAST(REMOTE(peer(1), "c::nested_remote", FAR_ARGS(peer(2), o->make(rank), o->make(3)))),
	      rank + 3);
}

CONFORM(I2, nested_remote)
{
	nested_remote_of(&dense);
}

CONFORM(X5, nested_remote_sparse)
{
	nested_remote_of(&sparse);
}

/* The value that a reference leads to has two references, to values that differ. */
static void are_nested(const struct operands *o, struct far_rref *outer, double x)
{
	struct far_val v = FETCH_LAST(outer);
	HOLDS(v.type == FAR_TYPE_LIST && far_len(&v) == 2);
	for (size_t i = 0; i < 2; i++) {
		struct far_rref *r = far_list_get(&v, i)->u.rref;
		HOLDS(far_rref_owner(r).worker == peer_rank(2));
		o->is(HERE, FETCH(r), x + 1 + (double)i);
	}
	far_val_fini(&v);
}

/* All of them are pending at once. Each test kills: references in a list that all lead to the first one's value. The
 * stress tests alone kill: names of references that repeat after 8. The sparse tests alone kill: buffers of a list that
 * are read from the place of the first. */
static void nested_rrefs(const struct operands *o, int n)
{
	struct far_rref *r[MANY];
	for (int i = 0; i < n; i++)
		r[i] = REMOTE(peer(1), "c::nested_rref", FAR_ARGS(peer(2), o->make(1 + i), o->make(1), o->make(2)));
	for (int i = 0; i < n; i++)
		are_nested(o, r[i], 1 + i);
}

CONFORM(I2, nested_rref)
{
	nested_rrefs(&dense, 1);
}

/* A sparse matrix and itself, and twice itself. */
CONFORM(X5, nested_rref_sparse)
{
	nested_rrefs(&sparse, 1);
}

CONFORM(I2, nested_rref_stress)
{
	nested_rrefs(&dense, MANY);
}

CONFORM(X5, nested_rref_stress_sparse)
{
	nested_rrefs(&sparse, MANY);
}

CONFORM(I2, rpc_return_rref)
{
	for (int at = 0; at < WORLD; at++) {
		struct far_val v = CALL(peer(1), "c::remote_there", FAR_ARGS(peer(at), full(2, 2, 1), full(2, 2, 1)));
		HOLDS(v.type == FAR_TYPE_RREF && far_rref_owner(v.u.rref).worker == peer_rank(at));
		HOLDS(far_rref_is_owner(v.u.rref) == (at == 0));
		IS_FULL(FETCH(v.u.rref), 2, 2, 2);
		far_val_fini(&v);
	}
}

/* Handed on so many times; each answer is a reference to the next one's. */
CONFORM(I2, rref_forward_chain)
{
	enum { TTL = 8 };
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, rank))), *at;
	at = REMOTE(peer(1), "c::forward_chain", FAR_ARGS(peer_rank(2), r, TTL));
	for (int i = 0; i < TTL; i++) {
		struct far_val v = FETCH_LAST(at);
		HOLDS(v.type == FAR_TYPE_LIST && far_len(&v) == 1);
		at = far_rref_ref(far_list_get(&v, 0)->u.rref);
		far_val_fini(&v);
	}
	IS_FULL(FETCH_LAST(at), 2, 2, rank + 1);
	far_rref_free(r);
}

/* References to the callee's own values, fetched here. */
CONFORM(I2, return_local_rrefs)
{
	struct far_val v = CALL(peer(1), "c::local_rrefs", FAR_ARGS(11));
	HOLDS(far_len(&v) == 11);
	for (size_t i = 0; i < 11; i++) {
		struct far_rref *r = far_list_get(&v, i)->u.rref;
		IS_INT(FETCH(r), (int64_t)i);
		OK(far_rref_wait(r, 0, &err));
		HOLDS(!far_rref_is_owner(r) && far_rref_confirmed_by_owner(r));
	}
	far_val_fini(&v);
}

/* And to the caller's own, fetched there. */
CONFORM(I2, pass_local_rrefs)
{
	enum { N = 10 };
	struct far_rref *r[N];
	struct far_val items[N];
	for (int i = 0; i < N; i++) {
		r[i] = REMOTE(peer(0), "far::identity", FAR_ARGS(i));
		items[i] = far_rref_val(r[i]);
	}
	struct far_future *f = ASYNC(peer(2), "c::fetch_all", FAR_ARGS(far_list(items, N)));
	IS_INT(CALL(peer(1), "c::fetch_all", FAR_ARGS(far_list(items, N))), 45);
	IS_INT(FETCH_LAST(REMOTE(peer(3), "c::fetch_all", FAR_ARGS(far_list(items, N)))), 45);
	IS_INT(TAKE(f), 45);
	for (int i = 0; i < N; i++)
		far_rref_free(r[i]);
}
