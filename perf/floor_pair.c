/* SPDX-License-Identifier: BSD-3-Clause */
#include "floor_pair.h"
#include "peer.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int nothing(void *ctx)
{
	(void)ctx;
	sched_yield();
	return 0;
}

_Noreturn static void server(struct floor_shared *s, pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	perf_pin(perf_cpu(1));
	_exit(floor_serve(s, nothing, NULL) < 0);
}

int floor_pair_open(struct floor_pair *p)
{
	pid_t parent = getpid();
	p->shared = peer_map(-1);
	if (!p->shared)
		return -errno;
	p->shared->wake_fd = eventfd(0, EFD_CLOEXEC);
	p->pid = p->shared->wake_fd < 0 ? -1 : fork();
	if (p->pid == 0)
		server(p->shared, parent);
	if (p->pid < 0) {
		int rc = -errno;
		if (p->shared->wake_fd >= 0)
			close(p->shared->wake_fd);
		munmap(p->shared, sizeof *p->shared);
		return rc;
	}
	return 0;
}

void floor_pair_close(struct floor_pair *p)
{
	if (floor_switch(p->shared, FLOOR_STOP) < 0)
		kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0); /* it stops by itself, or was killed */
	close(p->shared->wake_fd);
	munmap(p->shared, sizeof *p->shared);
}
