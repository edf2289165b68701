/* SPDX-License-Identifier: BSD-3-Clause */
/** Calls within handlers, and many calls: B5, with the sparse variants.
 * Main thread of each process; handlers on shard threads. */
#include "functions.h"

#include <stdlib.h>
#include <string.h>

enum { LIGHT = 1000, HEAVY = 20, EDGE = 100 };

/* There, and from there back here. */
static void nested_rpc_of(const struct operands *o)
{
	double n = rank + 1;
	o->is(HERE, CALL(peer(1), "c::nested_rpc", FAR_ARGS(peer(0), o->make(n), o->make(1))), n + 1);
	o->is(HERE, CALL(peer(1), "c::nested_rpc_blocking", FAR_ARGS(peer(0), o->make(n), o->make(2))), n + 2);
}

CONFORM(B5, nested_rpc)
{
	nested_rpc_of(&dense);
}

CONFORM(X5, nested_rpc_sparse)
{
	nested_rpc_of(&sparse);
}

/* All thousand are pending at once, with default options: no answer is received before the last call is made, since the
 * thread holds its shard. Kills: a default of opts.peer_waiting of 500. */
CONFORM(B5, stress_light_rpc)
{
	static struct far_future *f[LIGHT];
	OK(far_shard_acquire(agent, 0, &err));
	for (int i = 0; i < LIGHT; i++) /* not by ASYNC(), which tries again after FAR_BUSY */
		OK(far_rpc_async(agent, peer(1), "far::add", FAR_ARGS(i, rank), NULL, &f[i], &err));
	far_shard_release(agent);
	OK(far_future_wait_all(f, LIGHT, 0, &err));
	for (int i = 0; i < LIGHT; i++)
		IS_INT(TAKE(f[i]), i + rank);
}

/* Matrices, multiplied on threads of a pool; `blocking` handlers, so that the shards stay free. */
static void stress_heavy(const char *fn)
{
	struct far_future *f[HEAVY];
	struct far_val x = full(EDGE, EDGE, rank + 1);
	double n = rank + 1;
	for (int i = 0; i < HEAVY; i++)
		f[i] = ASYNC(peer(1), fn, FAR_ARGS(x));
	for (int i = 0; i < HEAVY; i++)
		IS_FULL(TAKE(f[i]), EDGE, EDGE, EDGE * n * n);
}

CONFORM(B5, stress_heavy_rpc)
{
	stress_heavy("c::heavy");
}

/* By a function that both sides have under another name, at the caller as well as at the callee. */
CONFORM(B5, stress_heavy_rpc_torchscript)
{
	static const struct far_function mine = {"c::heavy_again(Tensor x) -> Tensor", FAR_KIND_BLOCKING, heavy, NULL};
	OK(far_register_function(agent, &mine, &err));
	OK(far_barrier(agent, NULL, 0, 0, &err));
	stress_heavy("c::heavy_again");
}

CONFORM(X5, stress_heavy_rpc_sparse)
{
	struct far_future *f[HEAVY];
	for (int i = 0; i < HEAVY; i++)
		f[i] = ASYNC(peer(1), "c::add", FAR_ARGS(sparse.make(i), sparse.make(rank)));
	for (int i = 0; i < HEAVY; i++)
		sparse.is(HERE, TAKE(f[i]), i + rank);
}

/* Calls beside barriers of all. */
CONFORM(B5, deadlock)
{
	struct far_future *f = NULL;
	for (int i = 0; i < 3; i++) {
		if (rank == 1)
			f = ASYNC("worker0", "far::add", FAR_ARGS(full(2, 2, 1), 1));
		OK(far_barrier(agent, NULL, 0, 0, &err));
		if (rank == 1)
			IS_FULL(TAKE(f), 2, 2, 2);
	}
}
