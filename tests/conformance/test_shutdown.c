/* SPDX-License-Identifier: BSD-3-Clause */
/** Ends: H1, H2. Main thread of each process. */
#include "functions.h"

#include <signal.h>
#include <unistd.h>

static bool others_are_out(void *user)
{
	for (int r = 0; r < WORLD - 1; r++)
		if (!conform_published(r))
			return false;
	return true;
}

/* One is late: who waits for it is notified, and is out of the group all the same; it is not made to hang. */
CONFORM_BARE(H1, wait_all_workers_timeout)
{
	enum far_status status;
	conform_join(HERE);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	if (rank == WORLD - 1) {
		UNTIL(others_are_out, NULL);
		status = far_shutdown(agent, 0, &err);
		HOLDS(status == FAR_PEER_LOST || status == FAR_TIMEOUT);
		return;
	}
	status = far_shutdown(agent, 100 * FAR_MS, &err);
	HOLDS(status == FAR_TIMEOUT || status == FAR_PEER_LOST); /* the store ends with rank 0's */
	if (rank == 0) {
		HOLDS(status == FAR_TIMEOUT);
		SAYS("worker3");
	}
	conform_publish(HERE, 1);
}

static void all_of(const struct operands *o, int barriers)
{
	struct far_future *f[WORLD];
	conform_join(HERE);
	for (int i = 0; i < WORLD; i++)
		f[i] = ASYNC(peer(i), "c::add", FAR_ARGS(o->make(rank), o->make(i)));
	for (int i = 0; i < barriers; i++)
		OK(far_barrier(agent, NULL, 0, 0, &err));
	conform_leave(HERE); /* waits for what is under way */
	for (int i = 0; i < WORLD; i++)
		o->is(HERE, TAKE(f[i]), rank + i);
}

CONFORM_BARE(H1, wait_all_workers_dense)
{
	all_of(&dense, 1);
}

CONFORM_BARE(H1, wait_all_workers_twice_dense)
{
	all_of(&dense, 2);
}

CONFORM_BARE(X5, wait_all_workers_sparse)
{
	all_of(&sparse, 1);
}

CONFORM_BARE(X5, wait_all_workers_twice_sparse)
{
	all_of(&sparse, 2);
}

static bool third_leaves(void *user)
{
	return conform_published(2);
}

/* Worker 0 has work for worker 1 and, once worker 2 is in its shutdown, for worker 2, which must still serve it. Kills:
 * a shutdown that does not wait for the others. */
CONFORM_BARE(H1, graceful_shutdown_with_uneven_workload)
{
	enum { N = 30, EDGE = 100 };
	struct far_future *f[N];
	conform_join(HERE);
	if (rank == 0) {
		struct far_val x = full(EDGE, EDGE, 1);
		for (int i = 0; i < N; i++)
			f[i] = ASYNC("worker1", "c::heavy", FAR_ARGS(x));
		for (int i = 0; i < N; i++)
			IS_FULL(TAKE(f[i]), EDGE, EDGE, EDGE);
		UNTIL(third_leaves, NULL);
		for (int i = 0; i < N; i++) /* time enough to be gone, were it to go */
			IS_INT(CALL("worker2", "c::slow_add", FAR_ARGS(i, 1, 10)), i + 1);
		for (int i = 0; i < N; i++)
			f[i] = ASYNC("worker2", "c::heavy", FAR_ARGS(x));
		OK(far_future_wait_all(f, N, 0, &err));
		for (int i = 0; i < N; i++)
			IS_FULL(TAKE(f[i]), EDGE, EDGE, EDGE);
	}
	conform_publish(HERE, 1);
	conform_leave(HERE);
}

CONFORM_BARE(H1, shutdown_followed_by_rpc)
{
	conform_join(HERE);
	struct far_rref *r = REMOTE(peer(1), "far::add", FAR_ARGS(1, 2));
	IS_INT(FETCH(r), 3);
	conform_may_leak(); /* held beyond the end, on purpose */
	conform_leave(HERE);
	FETCH_FAILS(FAR_SHUTDOWN, r);
	far_rref_free(r);
	FAILS(FAR_SHUTDOWN, far_barrier(agent, NULL, 0, 0, &err));
	SAYS("RPC has not been initialized");
	FAILS(FAR_SHUTDOWN, far_shutdown(agent, 0, &err));
	SAYS("RPC has not been initialized");
}

/* A member that dies fails the end of the others, naming it; nothing is left behind, so they may join again. */
CONFORM_BARE(H1, shutdown_errors)
{
	conform_join(HERE);
	OK(far_barrier(agent, NULL, 0, 0, &err));
	if (rank == 2) {
		conform_may_die();
		raise(SIGKILL);
	}
	FAILS(FAR_PEER_LOST, far_shutdown(agent, FAR_FOREVER, &err));
	SAYS("worker2");
	OK(far_init_rpc(conform_name(rank), 0, 1, &(struct far_opts){.init_method = conform_own_url(HERE)}, &agent,
			&err));
	IS_INT(CALL(peer(0), "far::add", FAR_ARGS(1, 2)), 3);
	OK(far_shutdown(agent, FAR_FOREVER, &err));
}

/* ---- H2 ---- */

/* Who leaves like this waits for nobody: not for those either who are still joining, whose store may be here. */
static void leave_locally(void)
{
	conform_meet(HERE);
	OK(far_shutdown_local(agent, &err));
	FAILS(FAR_SHUTDOWN, far_shutdown_local(NULL, &err));
}

CONFORM_BARE(H2, local_shutdown)
{
	conform_join(HERE);
	leave_locally();
}

CONFORM_BARE(H2, local_shutdown_with_rpc)
{
	conform_join(HERE);
	IS_FULL(CALL(peer(1), "far::add", FAR_ARGS(full(2, 2, 1), full(2, 2, 1))), 2, 2, 2);
	leave_locally();
}
