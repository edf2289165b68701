/* SPDX-License-Identifier: BSD-3-Clause */
/** Dynamic groups: members that join later, with and without a rank, and groups that would mix.
 * Main thread of each process. */
#include "conform.h"

#include <stdlib.h>

static void join_dynamic(const char *here)
{
	conform_want(here, "joining",
		     far_init_rpc(conform_name(rank), rank, FAR_WORLD_DYNAMIC, &conform_opts, &agent, &err), FAR_OK);
}

static bool has_joined(void *user)
{
	return conform_published(*(int *)user) > 0;
}

static bool has_left(void *user)
{
	return conform_published(*(int *)user) > 1;
}

static bool is_known(void *user)
{
	struct far_worker_info info;
	return far_worker_by_name(agent, conform_name(*(int *)user), &info, &err) == FAR_OK;
}

/* Everybody joins and leaves alone: rank 0 first, which hosts the store, and last. */
CONFORM_BARE(A4, dynamic_rpc_init_rpc)
{
	int host = 0;
	if (rank)
		UNTIL(has_joined, &host);
	join_dynamic(HERE);
	HOLDS(far_self(agent).worker == rank && far_world_size(agent) >= (rank ? 2 : 1));
	conform_publish(HERE, 1);
	for (int of = 1; rank == 0 && of < WORLD; of++)
		UNTIL(has_left, &of);
	conform_leave(HERE);
	if (rank)
		conform_publish(HERE, 2);
}

/* A stale view of the member before: the one that comes later calls before anybody has called it. */
CONFORM_BARE(A4, dynamic_rpc_new_rank_can_communicated_with_existing_rank)
{
	int before = rank - 1;
	if (rank)
		UNTIL(has_joined, &before);
	join_dynamic(HERE);
	for (int of = 0; of < rank; of++)
		IS_INT(CALL(conform_name(of), "far::add", FAR_ARGS(of, rank)), of + rank);
	conform_publish(HERE, 1);
	for (int of = 0; of < WORLD; of++)
		UNTIL(has_joined, &of);
	conform_publish(HERE, 2);
	for (int of = 1; rank == 0 && of < WORLD; of++)
		UNTIL(has_left, &of);
	conform_leave(HERE);
}

/* Earlier members call the new one by its name; no call has announced it before. */
CONFORM_BARE(A4, dynamic_rpc_existing_rank_can_communicate_with_new_rank)
{
	int before = rank - 1;
	if (rank)
		UNTIL(has_joined, &before);
	join_dynamic(HERE);
	conform_publish(HERE, 1);
	for (int of = rank + 1; of < WORLD; of++) {
		UNTIL(is_known, &of);
		IS_INT(CALL(conform_name(of), "far::add", FAR_ARGS(of, rank)), of + rank);
	}
	conform_publish(HERE, 2);
	for (int of = 0; of < WORLD; of++)
		UNTIL(has_left, &of);
	conform_leave(HERE);
}

/* A static group needs a rank; in a dynamic one the worker gets a free rank. */
CONFORM_BARE(A4, dynamic_rpc_init_rpc_without_rank)
{
	int host = 0;
	unsetenv("RANK");
	FAILS(FAR_INVALID, far_init_rpc(conform_name(rank), FAR_RANK_ENV, WORLD, &conform_opts, &agent, &err));
	SAYS("RANK");
	HOLDS(!agent);
	if (rank)
		UNTIL(has_joined, &host);
	OK(far_init_rpc(conform_name(rank), rank ? FAR_RANK_ENV : 0, FAR_WORLD_DYNAMIC, &conform_opts, &agent, &err));
	HOLDS(rank == 0 || far_self(agent).worker > 0);
	IS_INT(CALL(conform_name(0), "far::add", FAR_ARGS(1, rank)), 1 + rank);
	conform_publish(HERE, 1);
	for (int of = 0; of < WORLD; of++)
		UNTIL(has_joined, &of);
	conform_publish(HERE, 2);
	for (int of = 1; rank == 0 && of < WORLD; of++)
		UNTIL(has_left, &of);
	conform_leave(HERE);
}

CONFORM_BARE(A4, dynamic_and_static_init_rpc_together)
{
	int host = 0;
	if (rank) {
		UNTIL(has_joined, &host);
		FAILS(FAR_INVALID, far_init_rpc(conform_name(rank), rank, WORLD, &conform_opts, &agent, &err));
		SAYS("RPC group \"default\" mixes statically and dynamically initialized members");
		HOLDS(!agent);
		conform_publish(HERE, 2);
		return;
	}
	join_dynamic(HERE);
	conform_publish(HERE, 1);
	for (int of = 1; of < WORLD; of++)
		UNTIL(has_left, &of);
	IS_INT(CALL(conform_name(0), "far::add", FAR_ARGS(1, 2)), 3);
	conform_leave(HERE);
}
