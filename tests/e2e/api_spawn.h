/* SPDX-License-Identifier: BSD-3-Clause */
/** A group of workers as child processes of the test, which may end as they like: what `farcall run` would take for a
 * failure. Main thread of each process. */
#ifndef API_SPAWN_H
#define API_SPAWN_H

#include "check.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { SPAWN_MAX = 20 };

struct spawned {
	int world, port;
	pid_t pids[SPAWN_MAX];
};

/** The body of a worker; its result is the exit status. */
typedef int spawn_main(int rank);

static inline void spawn_setenv(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

/** A listening socket on a free port of the loopback. */
static inline int spawn_listen(int *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof at;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 64) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	*port = ntohs(at.sin_port);
	return fd;
}

static inline void spawn_env(int rank, int world, int port, int listener)
{
	spawn_setenv("RANK", rank);
	spawn_setenv("WORLD_SIZE", world);
	spawn_setenv("MASTER_PORT", port);
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	if (rank == 0)
		spawn_setenv("FAR_STORE_FD", listener);
	else
		unsetenv("FAR_STORE_FD");
}

/** One worker, which inherits the listener (−1: there is none) when it is rank 0. Another incarnation of it later, say.
 */
static inline pid_t spawn_one(const struct spawned *s, int rank, int listener, spawn_main *body)
{
	pid_t parent = getpid();
	fflush(NULL);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid > 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	spawn_env(rank, s->world, s->port, listener);
	if (rank && listener >= 0)
		close(listener);
	_exit(body(rank));
}

static inline struct spawned spawn(int world, spawn_main *body)
{
	struct spawned s = {.world = world};
	int listener = spawn_listen(&s.port);
	for (int rank = 0; rank < world; rank++)
		s.pids[rank] = spawn_one(&s, rank, listener, body);
	close(listener);
	return s;
}

/** Waits for all. Each must have ended well, but for `killed` (−1: none), which a signal ended. */
static inline int spawn_wait(const struct spawned *s, int killed)
{
	int bad = 0;
	for (int rank = 0; rank < s->world; rank++) {
		int status;
		CHECK(waitpid(s->pids[rank], &status, 0) == s->pids[rank]);
		bool ok = rank == killed ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL : status == 0;
		if (!ok)
			fprintf(stderr, "worker %d ended with wait status %#x\n", rank, (unsigned)status);
		bad |= !ok;
	}
	return bad;
}

#endif
