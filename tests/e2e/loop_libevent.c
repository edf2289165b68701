/* SPDX-License-Identifier: BSD-3-Clause */
/* The loop of libevent. Main thread of each process. */
#include "loop.h"

#include "check.h"

#include <event2/event.h>

struct run {
	struct event_base *base;
	bool (*ready)(void *ctx);
	void *ctx;
	bool idle;
};

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct run *run = arg;
	run->idle = what & EV_TIMEOUT;
	if (run->idle || !run->ready(run->ctx))
		event_base_loopbreak(run->base);
}

bool loop_run(int fd, bool (*ready)(void *ctx), void *ctx, int idle_ms)
{
	struct run run = {.base = event_base_new(), .ready = ready, .ctx = ctx};
	const struct timeval idle = {idle_ms / 1000, idle_ms % 1000 * 1000};
	CHECK(run.base);
	struct event *e = event_new(run.base, fd, EV_READ | EV_PERSIST, on_event, &run);
	CHECK(e && event_add(e, idle_ms ? &idle : NULL) == 0 && event_base_dispatch(run.base) == 0);
	event_free(e);
	event_base_free(run.base);
	return !run.idle;
}
