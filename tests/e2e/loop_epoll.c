/* SPDX-License-Identifier: BSD-3-Clause */
/* The loop of epoll. Main thread of each process. */
#include "loop.h"

#include "check.h"

#include <sys/epoll.h>

bool loop_run(int fd, bool (*ready)(void *ctx), void *ctx, int idle_ms)
{
	struct epoll_event e = {.events = EPOLLIN}, got;
	int set = epoll_create1(EPOLL_CLOEXEC), n;
	CHECK(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0);
	do
		n = epoll_wait(set, &got, 1, idle_ms ? idle_ms : -1);
	while (n > 0 && ready(ctx));
	CHECK(n >= 0);
	close(set);
	return n > 0;
}
