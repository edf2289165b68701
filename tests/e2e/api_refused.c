/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A worker over udp is killed, and nobody waits for silence: its host refuses its port, and the store has lost its
 * claim of the rank. The limit of silence is an hour here. One worker has calls under way, the other one has not spoken
 * for a while. Main thread of each process; handlers on shard threads.
 */
#include "api_spawn.h"
#include "handlers.h"

#include <time.h>

static struct far_err err;

static const struct far_function functions[] = {{"r::never() -> none", FAR_KIND_FIBER, handler_never, NULL},
						{"r::die() -> none", FAR_KIND_INLINE, handler_die, NULL}};

static void wait_until_dead(struct far_agent *a, int rank)
{
	struct far_worker_info info = {.alive = true};
	while (info.alive) {
		nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
		CHECK_STATUS(far_worker_by_rank(a, rank, &info, &err), FAR_OK, &err);
	}
}

static int worker(int rank)
{
	static const struct far_opts opts = {
		.functions = functions, .functions_n = 2, .nic = "udp", .peer_limit_ns = UINT64_C(3600000000000)};
	static const struct far_call_opts endless = {.timeout_ns = FAR_FOREVER};
	const struct far_to victim = {2, 0};
	struct far_agent *a = check_join(&opts);
	struct far_future *under_way;
	struct far_val none;
	CHECK_STATUS(far_barrier(a, NULL, 0, 0, &err), FAR_OK, &err);
	if (rank == 2)
		for (;;)
			pause();
	if (rank == 0) {
		CHECK_STATUS(far_rpc_async_to(a, victim, "r::never", FAR_NOARGS, &endless, &under_way, &err), FAR_OK,
			     &err);
		CHECK_STATUS(far_rpc_sync_to(a, victim, "r::die", FAR_NOARGS, &endless, &none, &err), FAR_PEER_LOST,
			     &err);
		CHECK_STATUS(far_future_wait(under_way, FAR_FOREVER, NULL, &err), FAR_PEER_LOST, &err);
		CHECK(err.executed == FAR_EXECUTED_MAYBE);
		far_future_free(under_way);
	}
	wait_until_dead(a, 2);
	CHECK_STATUS(far_rpc_sync_to(a, victim, "r::never", FAR_NOARGS, &endless, &none, &err), FAR_PEER_LOST, &err);
	CHECK_STATUS(far_shutdown(a, FAR_FOREVER, &err), FAR_PEER_LOST, &err);
	CHECK_TEXT(&err, "worker2");
	return 0;
}

int main(void)
{
	struct spawned s;
	int status;
	alarm(HANG_GUARD_S);
	s = spawn(3, worker);
	for (int rank = 0; rank < 3; rank++) {
		CHECK(waitpid(s.pids[rank], &status, 0) == s.pids[rank]);
		CHECK(rank == 2 ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
				: WIFEXITED(status) && WEXITSTATUS(status) == 0);
	}
	return 0;
}
