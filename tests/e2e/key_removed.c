/* SPDX-License-Identifier: BSD-3-Clause */
/* The file with the key that rank 0 has made is removed, as by a cleaner of /tmp, and so is the one that it makes in
 * its place. Members that start afterwards join. Main thread of each process. */
#include "api_spawn.h"

#include <dirent.h>
#include <sys/stat.h>
#include <time.h>

#define WORLD 3
#define TICK  1000000 /* ns */

static char dir[] = "/tmp/farcall-removed-XXXXXX";

static int member(int rank)
{
	struct far_err err;
	struct far_agent *agent;
	/* Enough for a join, and less than the guard: a member without a key reports it. */
	struct far_opts opts = {.init_timeout_ns = HANG_GUARD_S / 2 * FAR_SEC};
	alarm(HANG_GUARD_S);
	CHECK_STATUS(far_init_rpc(check_name(rank), rank, WORLD, &opts, &agent, &err), FAR_OK, &err);
	CHECK_STATUS(far_shutdown(agent, FAR_FOREVER, &err), FAR_OK, &err);
	return 0;
}

/* Removes the key once it is there. */
static void key_remove(void)
{
	const struct timespec tick = {.tv_nsec = TICK};
	for (bool removed = false; !removed; nanosleep(&tick, NULL)) {
		DIR *d = opendir(dir);
		const struct dirent *e;
		CHECK(d);
		while ((e = readdir(d))) {
			size_t len = strlen(e->d_name);
			if (len > 4 && strcmp(e->d_name + len - 4, ".key") == 0)
				removed = unlinkat(dirfd(d), e->d_name, 0) == 0;
		}
		closedir(d);
	}
}

int main(void)
{
	struct spawned s = {.world = WORLD};
	int listener = spawn_listen(&s.port);
	alarm(HANG_GUARD_S);
	CHECK(mkdtemp(dir));
	setenv("FAR_RUNTIME_DIR", dir, 1);
	s.pids[0] = spawn_one(&s, 0, listener, member);
	for (int rank = 1; rank < WORLD; rank++) {
		key_remove();
		s.pids[rank] = spawn_one(&s, rank, listener, member);
	}
	close(listener);
	for (int i = 0; i < WORLD; i++) {
		int status;
		CHECK(waitpid(s.pids[i], &status, 0) == s.pids[i] && status == 0);
	}
	CHECK(rmdir(dir) == 0);
	return 0;
}
