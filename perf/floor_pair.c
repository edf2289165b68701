/* SPDX-License-Identifier: BSD-3-Clause */
/** Forks the second process of a floor that needs no group. Main thread. */
#include "floor_pair.h"
#include "netns.h"
#include "peer.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

struct half {
	struct floor_shared *shared;
	const struct perf_opts *opts;
	floor_serve_fn *serve;
};

static int nothing(void *ctx)
{
	(void)ctx;
	sched_yield();
	return 0;
}

static int serve(void *ctx, uint64_t mode)
{
	struct half *s = ctx;
	return s->serve ? s->serve(s->shared, s->opts, mode) : 0;
}

_Noreturn static void server(struct half *s, pid_t parent)
{
	const struct floor_host host = {nothing, serve, s};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent || netns_enter(s->opts, s->opts->server_netns))
		_exit(1);
	perf_pin(perf_cpu(1));
	int rc = floor_serve(s->shared, &host);
	serve(s, FLOOR_STOP);
	_exit(rc < 0);
}

int floor_pair_open(struct floor_pair *p, const struct perf_opts *o, floor_serve_fn *fn)
{
	pid_t parent = getpid();
	p->shared = peer_map(-1);
	if (!p->shared)
		return -errno;
	p->shared->wake_fd = eventfd(0, EFD_CLOEXEC);
	p->pid = p->shared->wake_fd < 0 ? -1 : fork();
	if (p->pid == 0)
		server(&(struct half){p->shared, o, fn}, parent);
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
