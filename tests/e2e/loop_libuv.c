/* SPDX-License-Identifier: BSD-3-Clause */
/* The loop of libuv. Main thread of each process. */
#include "loop.h"

#include "check.h"

#include <uv.h>

struct run {
	uv_loop_t loop;
	uv_poll_t poll;
	uv_timer_t timer;
	bool (*ready)(void *ctx);
	void *ctx;
	bool idle;
};

static void end(struct run *run)
{
	uv_poll_stop(&run->poll);
	uv_timer_stop(&run->timer);
	uv_close((uv_handle_t *)&run->poll, NULL);
	uv_close((uv_handle_t *)&run->timer, NULL);
}

static void on_idle(uv_timer_t *timer)
{
	struct run *run = timer->data;
	run->idle = true;
	end(run);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	struct run *run = poll->data;
	CHECK(status == 0 && events == UV_READABLE);
	uv_timer_again(&run->timer);
	if (!run->ready(run->ctx))
		end(run);
}

bool loop_run(int fd, bool (*ready)(void *ctx), void *ctx, int idle_ms)
{
	struct run run = {.ready = ready, .ctx = ctx};
	CHECK(uv_loop_init(&run.loop) == 0 && uv_poll_init(&run.loop, &run.poll, fd) == 0 &&
	      uv_timer_init(&run.loop, &run.timer) == 0);
	run.poll.data = run.timer.data = &run;
	CHECK(uv_poll_start(&run.poll, UV_READABLE, on_poll) == 0);
	if (idle_ms)
		uv_timer_start(&run.timer, on_idle, (uint64_t)idle_ms, (uint64_t)idle_ms);
	uv_run(&run.loop, UV_RUN_DEFAULT);
	CHECK(uv_loop_close(&run.loop) == 0);
	return !run.idle;
}
