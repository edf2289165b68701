/* SPDX-License-Identifier: BSD-3-Clause */
/** A group whose store is a file, or the one that is given: rank 0 is killed under traffic and started again, all
 * leave, and another group begins with the same store. A given store is disturbed meanwhile.
 * Main thread of each process; handlers on shard threads. */
#include "api_spawn.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { WORLD = 4, ROUNDS = 3, INIT_S = 120 };

static struct shared {
	_Atomic int incarnation;    /* of rank 0, that the parent has begun last */
	_Atomic int joined;         /* workers that have joined in this group */
	_Atomic int reached[WORLD]; /* incarnation of rank 0 that each worker has had an answer from */
	_Atomic long calls[WORLD];  /* that each worker has made to others than rank 0 */
	_Atomic bool stop;
} * shared;

static struct far_err err;
static int incarnation;

static enum far_status which(struct far_req *req, const struct far_val *args, size_t n, void *user)
{
	struct far_val out = far_int(incarnation);
	return far_return(req, &out);
}

static const struct far_function table[] = {{"t::which() -> int", FAR_KIND_INLINE, which, NULL}};

static int worker(int rank)
{
	struct far_opts opts = {.functions = table, .functions_n = 1, .init_timeout_ns = INIT_S * FAR_SEC};
	struct far_val out;
	incarnation = atomic_load(&shared->incarnation);
	struct far_agent *agent = check_join(&opts);
	atomic_fetch_add(&shared->joined, 1);
	while (!atomic_load(&shared->stop)) {
		for (int r = 1; r < WORLD; r++)
			CHECK_STATUS(far_rpc_sync(agent, check_name(r), "t::which", FAR_ARGS(), NULL, &out, &err),
				     FAR_OK, &err);
		atomic_fetch_add(&shared->calls[rank], 1);
		if (far_rpc_sync(agent, check_name(0), "t::which", FAR_ARGS(), NULL, &out, &err) == FAR_OK)
			atomic_store(&shared->reached[rank], (int)out.u.i);
		usleep(500);
	}
	check_leave(agent);
	return 0;
}

static void wait_joined(int n)
{
	while (atomic_load(&shared->joined) < n)
		usleep(1000);
}

static void wait_reached(void)
{
	for (int r = 1; r < WORLD; r++)
		while (atomic_load(&shared->reached[r]) != atomic_load(&shared->incarnation))
			usleep(1000);
}

/* The others call each other while rank 0 is gone. */
static void wait_calls(void)
{
	for (int r = 1; r < WORLD; r++) {
		long before = atomic_load(&shared->calls[r]);
		while (atomic_load(&shared->calls[r]) < before + 3)
			usleep(1000);
	}
}

static const char *disturb; /* a command that makes the store fail ("fail N") and serve again ("serve N"); NULL: none */

static void disturb_run(const char *what, int i)
{
	char command[512];
	snprintf(command, sizeof command, "%s %s %d", disturb ? disturb : ":", what, i);
	CHECK(system(command) == 0);
}

static void group_run(int restarts)
{
	int status;
	atomic_store(&shared->joined, 0);
	atomic_store(&shared->stop, false);
	struct spawned s = spawn(WORLD, worker);
	wait_joined(WORLD);
	wait_reached();
	for (int i = 0; i < restarts; i++) {
		kill(s.pids[0], SIGKILL);
		CHECK(waitpid(s.pids[0], &status, 0) == s.pids[0] && WIFSIGNALED(status));
		disturb_run("fail", i);
		wait_calls();
		atomic_fetch_add(&shared->incarnation, 1);
		s.pids[0] = spawn_one(&s, 0, -1, worker);
		wait_calls();
		disturb_run("serve", i);
		wait_joined(WORLD + 1 + i);
		wait_reached();
	}
	atomic_store(&shared->stop, true);
	CHECK(spawn_wait(&s, -1) == 0);
}

/* All die at once: the next group finds what they have written, and begins anew. */
static void group_kill(void)
{
	int status;
	atomic_store(&shared->joined, 0);
	atomic_store(&shared->stop, false);
	struct spawned s = spawn(WORLD, worker);
	wait_joined(WORLD);
	for (int r = 0; r < WORLD; r++)
		kill(s.pids[r], SIGKILL);
	for (int r = 0; r < WORLD; r++)
		CHECK(waitpid(s.pids[r], &status, 0) == s.pids[r]);
}

/* The next group begins while members that were killed still have leases: it waits for their end. */
static int given(const char *url, int restarts, bool killed)
{
	setenv("FAR_INIT_METHOD", url, 1);
	group_run(restarts);
	if (killed) {
		group_kill();
		group_run(0);
	}
	return 0;
}

int main(int argc, char **argv)
{
	char dir[] = "/tmp/farcall-e2e-XXXXXX", url[96], path[64];
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	alarm(HANG_GUARD_S);
	CHECK(shared != MAP_FAILED);
	disturb = argc > 2 ? argv[2] : NULL;
	if (argc > 1)
		return given(argv[1], argc > 3 ? atoi(argv[3]) : 0, argc > 4);
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof path, "%s/store", dir);
	snprintf(url, sizeof url, "file://%s", path);
	setenv("FAR_INIT_METHOD", url, 1);
	group_run(ROUNDS);
	CHECK(access(path, F_OK) != 0);
	group_kill();
	group_run(0);
	CHECK(access(path, F_OK) != 0 && rmdir(dir) == 0);
	return 0;
}
