/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Three agents in one process. One of them ends and begins again while threads of the others call it and read its row.
 * For a build with ThreadSanitizer: these threads read what the control thread changes.
 */
#include "../e2e/api_together.h"

#include <stdatomic.h>

enum { WORLD = 3, VICTIM = 2, INCARNATIONS = 6, CALLERS = 3 };

static struct together t[WORLD];
static _Atomic bool stop;
static _Atomic unsigned answered[WORLD - 1]; /* by the present incarnation, since it began */

static void *caller_main(void *arg)
{
	int from = *(int *)arg;
	struct far_call_opts opts = {.timeout_ns = 10 * FAR_SEC};
	struct far_worker_info info;
	struct far_val out;
	struct far_err err;
	while (!atomic_load(&stop)) {
		enum far_status status =
			far_rpc_sync(t[from].agent, "worker2", "far::add", FAR_ARGS(1, 2), &opts, &out, &err);
		if (status == FAR_OK)
			atomic_fetch_add(&answered[from], 1);
		else if (status != FAR_PEER_LOST)
			far_err_print(stderr, &err);
		CHECK(status == FAR_OK ? out.u.i == 3 : status == FAR_PEER_LOST);
		CHECK(far_worker_by_name(t[from].agent, "worker2", &info, &err) == FAR_OK);
		CHECK(info.incarnation && info.rank == VICTIM && info.shards == 1);
		CHECK(strcmp(info.name, "worker2") == 0);
		if (status == FAR_PEER_LOST)
			usleep(300);
	}
	return NULL;
}

static void served(void)
{
	for (int r = 0; r < VICTIM; r++) {
		atomic_store(&answered[r], 0);
		while (atomic_load(&answered[r]) < 20)
			usleep(200);
	}
}

static void restarts(const char *nic)
{
	pthread_t callers[CALLERS][WORLD - 1];
	int ranks[] = {0, 1};
	struct far_err err;
	atomic_store(&stop, false);
	for (int i = 0; i < WORLD; i++)
		t[i] = (struct together){.rank = i, .world = WORLD, .opts = {.nic = nic}};
	together_all(t, WORLD, together_join);
	for (int i = 0; i < CALLERS; i++)
		for (int r = 0; r < VICTIM; r++)
			CHECK(pthread_create(&callers[i][r], NULL, caller_main, &ranks[r]) == 0);
	for (int i = 0; i < INCARNATIONS; i++) {
		served();
		CHECK_STATUS(far_shutdown_local(t[VICTIM].agent, &err), FAR_OK, &err);
		together_join(&t[VICTIM]);
	}
	served();
	atomic_store(&stop, true);
	for (int i = 0; i < CALLERS; i++)
		for (int r = 0; r < VICTIM; r++)
			CHECK(pthread_join(callers[i][r], NULL) == 0);
	together_all(t, WORLD, together_leave);
}

int main(void)
{
	alarm(HANG_GUARD_S);
	together_listen();
	restarts("shm");
	restarts("udp");
	return 0;
}
