/* SPDX-License-Identifier: BSD-3-Clause */
/** Starts the workers of one host: environment, inherited listener of the store, redirected output. Main thread. */
#include "apps/cli/spawn.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

int spawn_group_open(struct spawn_group *group, int world)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (struct sockaddr *)&a, len) < 0 || listen(fd, 1024) < 0 ||
	    getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	*group = (struct spawn_group){.listen_fd = fd, .port = ntohs(a.sin_port), .world = world};
	return 0;
}

void spawn_group_close(struct spawn_group *group)
{
	if (group->listen_fd >= 0)
		close(group->listen_fd);
	group->listen_fd = -1;
}

static void env_int(const char *name, int value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	setenv(name, text, 1);
}

void spawn_env(const struct spawn_group *group, int rank)
{
	env_int("RANK", rank);
	env_int("WORLD_SIZE", group->world);
	unsetenv("FAR_STORE_FD");
	if (group->port == 0) /* the store is on another host */
		return;
	env_int("MASTER_PORT", group->port);
	unsetenv("TORCHELASTIC_USE_AGENT_STORE"); /* that port is ours, not torchrun's */
	setenv("MASTER_ADDR", "127.0.0.1", 1);
	if (rank == 0)
		env_int("FAR_STORE_FD", group->listen_fd);
}

static void keep(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, 0);
}

/* Standard descriptors are moved in this order; a source that is itself 0, 1 or 2 would be overwritten, so every source
 * is first copied out of the way. */
static int redirect(int in, int out, int err)
{
	int from[3] = {in, out, err};
	for (int i = 0; i < 3; i++)
		if (from[i] >= 0 && (from[i] = fcntl(from[i], F_DUPFD_CLOEXEC, 3)) < 0)
			return -1;
	for (int i = 0; i < 3; i++)
		if (from[i] >= 0 && dup2(from[i], i) < 0)
			return -1;
	return 0;
}

_Noreturn static void child_main(const struct spawn_child *child, pid_t parent, int report)
{
	setpgid(0, 0);
	/* The death signal is lost if the parent died before it was requested; the child then has another parent. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(127);
	/* By the child itself: a starter that is killed at this moment leaves no program that nobody knows of. */
	int32_t group = (int32_t)getpid();
	if (child->announce_fd >= 0 && write(child->announce_fd, &group, sizeof group) != (ssize_t)sizeof group)
		_exit(127);
	signal(SIGPIPE, SIG_DFL); /* the starter may ignore it, and exec keeps that */
	if (child->mask)
		sigprocmask(SIG_SETMASK, child->mask, NULL);
	spawn_env(child->group, child->rank);
	if (child->rank == 0)
		keep(child->group->listen_fd);
	keep(child->keep_fd);
	if (redirect(child->in, child->out, child->err) == 0)
		execvp(child->file, child->argv);
	int e = errno;
	if (write(report, &e, sizeof e) < 0)
		_exit(126);
	_exit(127);
}

int spawn_start(const struct spawn_child *child, pid_t *pid)
{
	int report[2]; /* closed by a successful exec, else brings its errno */
	if (pipe2(report, O_CLOEXEC) < 0)
		return -errno;
	pid_t parent = getpid();
	pid_t p = fork();
	if (p == 0)
		child_main(child, parent, report[1]);
	int rc = p < 0 ? -errno : 0;
	close(report[1]);
	if (rc == 0) {
		setpgid(p, p); /* in both processes, so that the group exists before it is signalled */
		int e = 0;
		ssize_t n;
		while ((n = read(report[0], &e, sizeof e)) < 0 && errno == EINTR)
			;
		if (n == (ssize_t)sizeof e) {
			waitpid(p, NULL, 0);
			rc = -e;
		}
	}
	close(report[0]);
	if (rc == 0)
		*pid = p;
	return rc;
}
