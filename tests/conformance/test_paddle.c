/* SPDX-License-Identifier: BSD-3-Clause */
/** What the tests of paddle.distributed.rpc show. Main thread of each process. */
#include "functions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Every element of the sum, by one call for each server. */
static void servers(int n, bool sync)
{
	struct far_future *f[WORLD];
	if (rank != 0)
		return;
	for (int i = 0; i < n; i++) {
		struct far_val a = full(10, 10, i), b = full(10, 10, 2);
		if (sync)
			IS_FULL(CALL(peer(1 + i), "far::add", FAR_ARGS(a, b)), 10, 10, i + 2);
		else
			f[i] = ASYNC(peer(1 + i), "far::add", FAR_ARGS(a, b));
	}
	for (int i = 0; i < n && !sync; i++)
		IS_FULL(TAKE(f[i]), 10, 10, i + 2);
}

CONFORM(Paddle, one_server_sync)
{
	servers(1, true);
}

CONFORM(Paddle, one_server_async)
{
	servers(1, false);
}

CONFORM(Paddle, two_server_sync)
{
	servers(2, true);
}

CONFORM(Paddle, two_server_async)
{
	servers(2, false);
}

CONFORM(Paddle, self_sync)
{
	IS_FULL(CALL(peer(0), "far::add", FAR_ARGS(full(10, 10, 1), full(10, 10, 2))), 10, 10, 3);
}

CONFORM(Paddle, self_async)
{
	IS_FULL(TAKE(ASYNC(peer(0), "far::add", FAR_ARGS(full(10, 10, 1), full(10, 10, 2)))), 10, 10, 3);
}

CONFORM(Paddle, get_worker_info)
{
	struct far_worker_info info;
	OK(far_worker_by_name(agent, peer(1), &info, &err));
	HOLDS(strcmp(info.name, peer(1)) == 0 && info.rank == peer_rank(1) && info.nic_address[0]);
	FAILS(FAR_UNKNOWN_WORKER, far_worker_by_name(agent, "nobody", &info, &err));
}

CONFORM(Paddle, get_all_worker_infos)
{
	struct far_worker_info info;
	for (int r = 0; r < far_world_size(agent); r++) {
		OK(far_worker_by_rank(agent, r, &info, &err));
		HOLDS(strcmp(info.name, conform_name(r)) == 0 && info.rank == r);
	}
	FAILS(FAR_UNKNOWN_WORKER, far_worker_by_rank(agent, far_world_size(agent), &info, &err));
}

CONFORM(Paddle, get_current_worker_info)
{
	struct far_worker_info info;
	far_worker_self(agent, &info);
	HOLDS(strcmp(info.name, conform_name(rank)) == 0 && info.rank == rank && info.alive);
}

/* ---- launchers: one for each node, which starts its ranks and waits for them ---- */

/* All that a rank knows is in the environment. */
static _Noreturn void launched(int r, int world)
{
	conform_become(r);
	OK(far_init_rpc(conform_name(rank), FAR_RANK_ENV, FAR_WORLD_ENV, &conform_opts, &agent, &err));
	HOLDS(far_world_size(agent) == world);
	for (int other = 0; other < world; other++) {
		IS_INT(CALL(conform_name(other), "c::where", FAR_NOARGS), other);
		IS_FULL(CALL(conform_name(other), "far::add", FAR_ARGS(full(10, 10, 1), full(10, 10, rank))), 10, 10,
			1 + rank);
	}
	OK(far_shutdown(agent, FAR_FOREVER, &err));
	fflush(NULL);
	_exit(0);
}

/* Worker `rank` is the launcher of node `rank / per_node`, up to `nodes`. Kills: far_init_rpc() that ignores RANK, or
 * (2 x 2) takes every WORLD_SIZE for 2. */
static void launch(int nodes, int per_node)
{
	pid_t ranks[WORLD];
	char text[16];
	if (rank % per_node || rank / per_node >= nodes) /* of a group that is divided, each node is on one machine */
		return;
	snprintf(text, sizeof text, "%d", nodes * per_node);
	setenv("WORLD_SIZE", text, 1);
	fflush(NULL);
	for (int i = 0; i < per_node; i++) {
		ranks[i] = fork();
		HOLDS(ranks[i] >= 0);
		if (ranks[i] == 0)
			launched(rank + i, nodes * per_node);
	}
	for (int i = 0; i < per_node; i++) {
		int status;
		HOLDS(waitpid(ranks[i], &status, 0) == ranks[i]);
		HOLDS(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
}

CONFORM_BARE(Paddle, launcher_2x1)
{
	launch(2, 1);
}

CONFORM_BARE(Paddle, launcher_2x2)
{
	launch(2, 2);
}
