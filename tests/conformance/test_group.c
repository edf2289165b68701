/* SPDX-License-Identifier: BSD-3-Clause */
/** Tools for a group: G1. Main thread of each process; threads that it starts. */
#include "functions.h"

#include <pthread.h>
#include <string.h>

CONFORM(G1, all_gather)
{
	struct far_val v, mine = far_int(rank * 10);
	OK(far_all_gather(agent, NULL, 0, &mine, 0, &v, &err));
	HOLDS(v.type == FAR_TYPE_LIST && far_len(&v) == WORLD);
	for (int r = 0; r < WORLD; r++)
		HOLDS(far_list_get(&v, (size_t)r)->u.i == r * 10);
	far_val_fini(&v);
}

/* Rank 0, which gathers, does not come in time. */
CONFORM(G1, all_gather_timeout)
{
	struct far_val v, mine = far_int(rank);
	if (rank == WORLD - 1) {
		OK(far_barrier(agent, NULL, 0, 0, &err));
		return;
	}
	static const char *const all[] = {"worker0", "worker1", "worker2", "worker3"};
	const char *three[] = {all[0], all[1], all[3]};
	if (rank != 2)
		FAILS(FAR_TIMEOUT, far_all_gather(agent, three, 3, &mine, 100 * FAR_MS, &v, &err));
	if (rank == 0)
		SAYS("worker3");
	OK(far_barrier(agent, NULL, 0, 0, &err));
}

/* Each counts at worker0 before it comes: nobody gets through before all have. */
CONFORM(G1, rpc_barrier_all)
{
	for (int round = 1; round <= 3; round++) {
		CALL("worker0", "c::count", FAR_ARGS(1));
		OK(far_barrier(agent, NULL, 0, 0, &err));
		IS_INT(CALL("worker0", "c::count", FAR_ARGS(0)), WORLD * round);
		OK(far_barrier(agent, NULL, 0, 0, &err));
	}
}

static void barrier_of(int first, int n)
{
	const char *names[WORLD];
	const char *at = conform_name(first);
	for (int i = 0; i < n; i++)
		names[i] = conform_name(first + i);
	CALL(at, "c::count", FAR_ARGS(1));
	OK(far_barrier(agent, names, (size_t)n, 0, &err));
	IS_INT(CALL(at, "c::count", FAR_ARGS(0)), n);
	OK(far_barrier(agent, names, (size_t)n, 0, &err));
}

/* Two halves that know nothing of each other. */
CONFORM(G1, rpc_barrier_subset)
{
	barrier_of(rank < 2 ? 0 : 2, 2);
}

/* All but one, who is on its own. */
CONFORM(G1, rpc_barrier_partial_subset)
{
	if (rank == 3)
		barrier_of(3, 1);
	else
		barrier_of(0, 3);
}

static void *meets(void *arg)
{
	struct far_err e;
	return (void *)(intptr_t)far_barrier(agent, NULL, 0, 0, &e);
}

CONFORM(G1, rpc_barrier_multithreaded)
{
	enum { THREADS = 3 };
	pthread_t t[THREADS];
	void *status;
	for (int i = 0; i < THREADS; i++)
		HOLDS(pthread_create(&t[i], NULL, meets, NULL) == 0);
	for (int i = 0; i < THREADS; i++) {
		HOLDS(pthread_join(t[i], &status) == 0);
		HOLDS((enum far_status)(intptr_t)status == FAR_OK);
	}
}
