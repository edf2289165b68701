/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Kills the processes that a launcher started, also when the launcher itself is killed. Main thread and a helper
 * process.
 */
#include "apps/cli/orphans.h"
#include "apps/cli/spawn.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define FAREWELL     INT32_MIN
#define ROUNDS_MAX   200     /* of orphans_kill(): each kills one more generation */
#define ROUND_NAP_NS 5000000 /* a second in all */

static void groups_change(pid_t *groups, size_t *n, int32_t word)
{
	if (word > 0 && *n < SPAWN_WORLD_MAX)
		groups[(*n)++] = word;
	for (size_t i = 0; word < 0 && i < *n; i++)
		if (groups[i] == -word)
			groups[i--] = groups[--*n];
}

_Noreturn static void reaper_main(int fd)
{
	pid_t groups[SPAWN_WORLD_MAX];
	size_t n = 0;
	setsid(); /* out of reach of what is sent to the starter's process group */
	prctl(PR_SET_NAME, "farcall-reaper");
	if (fd != 0)
		dup2(fd, 0);
	close_range(1, ~0u, 0); /* no process waits for the end of a pipe that only the reaper holds */
	for (;;) {
		int32_t word;
		ssize_t got = read(0, &word, sizeof word);
		if (got < 0 && errno == EINTR)
			continue;
		if (got != (ssize_t)sizeof word)
			break;
		if (word == FAREWELL)
			_exit(0);
		groups_change(groups, &n, word);
	}
	for (size_t i = 0; i < n; i++)
		kill(-groups[i], SIGKILL);
	_exit(0);
}

int reaper_start(struct reaper *k)
{
	int fd[2];
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	pid_t p = fork();
	if (p == 0) {
		close(fd[1]);
		reaper_main(fd[0]);
	}
	close(fd[0]);
	if (p < 0) {
		int rc = -errno;
		close(fd[1]);
		return rc;
	}
	*k = (struct reaper){.pid = p, .fd = fd[1]};
	return 0;
}

static void reaper_send(struct reaper *k, int32_t word)
{
	ssize_t n;
	while ((n = write(k->fd, &word, sizeof word)) < 0 && errno == EINTR)
		;
}

void reaper_remove(struct reaper *k, pid_t group)
{
	reaper_send(k, -group);
}

void reaper_end(struct reaper *k)
{
	reaper_send(k, FAREWELL);
	close(k->fd);
	waitpid(k->pid, NULL, 0); /* it has nothing left to do but to exit */
}

/* The parent of a process, or 0. Its name, in parentheses, may hold anything, parentheses included. */
static pid_t parent_of(const char *pid)
{
	char path[64], line[512];
	snprintf(path, sizeof path, "/proc/%.20s/stat", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, line, sizeof line - 1);
	close(fd);
	if (n <= 0)
		return 0;
	line[n] = 0;
	char *behind = strrchr(line, ')');
	int parent = 0;
	char state;
	if (!behind || sscanf(behind + 1, " %c %d", &state, &parent) != 2)
		return 0;
	return parent;
}

static unsigned kill_children(pid_t except)
{
	unsigned n = 0;
	pid_t self = getpid();
	DIR *d = opendir("/proc");
	if (!d)
		return 0;
	for (struct dirent *e; (e = readdir(d));) {
		pid_t p = atoi(e->d_name);
		if (p <= 0 || p == except || parent_of(e->d_name) != self)
			continue;
		kill(p, SIGKILL); /* our child, not yet reaped: the number is its own */
		n++;
	}
	closedir(d);
	return n;
}

unsigned orphans_kill(pid_t except)
{
	unsigned total = 0;
	for (int round = 0; round < ROUNDS_MAX; round++) {
		unsigned killed = kill_children(except);
		if (killed == 0)
			break;
		nanosleep(&(struct timespec){.tv_nsec = ROUND_NAP_NS}, NULL);
		for (pid_t p; (p = waitpid(-1, NULL, WNOHANG)) > 0;)
			total++;
	}
	return total;
}
