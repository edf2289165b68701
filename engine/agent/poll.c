/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Agents in an event loop (FAR_PROGRESS_CALLER): one descriptor for all that wakes the agent, and far_agent_poll(). The
 * thread of the loop; the start, the end and far_serve() poll on the application thread that waits.
 */
#include "agent/init.h"
#include "base/error.h"
#include "core/context.h"
#include "core/idle.h"
#include "core/shard.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define QUEUE_EVENT(shard, queue) ((uint64_t)(shard) << 8 | (queue))
#define OTHER_EVENT               UINT64_MAX /* `event` or `timer` */
#define EVENTS_MAX                64         /* read at once; the others stay */

struct agent_poll {
	int fd;                     /* epoll set of the other two and of each queue's wake-up */
	int event;                  /* eventfd: more work, a released shard, a state of the group */
	int timer;                  /* timerfd */
	uint64_t timer_at;          /* absolute ns; TIME_NEVER: not set. Writer: the thread that polls */
	_Atomic bool polling;       /* a thread is in far_agent_poll() */
	bool muted[FAR_SHARDS_MAX]; /* another thread holds the shard, and its queues are not watched. As timer_at */
};

/* Watches the wake-ups of a shard's queues, or, with `events` 0, does not. */
static int watch(const struct agent_poll *p, const struct shard *s, int op, uint32_t events)
{
	for (unsigned q = 0; q < s->queues_n; q++) {
		struct epoll_event e = {.events = events, .data.u64 = QUEUE_EVENT(s->config.index, q)};
		if (epoll_ctl(p->fd, op, s->queues[q].ops->wake_fd(s->queues[q].q), &e))
			return -1;
	}
	return 0;
}

static int watch_other(const struct agent_poll *p, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.u64 = OTHER_EVENT};
	return epoll_ctl(p->fd, EPOLL_CTL_ADD, fd, &e);
}

enum far_status agent_poll_init(struct init *in)
{
	struct far_agent *a = in->a;
	struct agent_poll *p = a->poll = calloc(1, sizeof *p);
	if (!p)
		return err_set(in->err, FAR_RESOURCE, "out of memory");
	p->timer_at = TIME_NEVER;
	p->fd = epoll_create1(EPOLL_CLOEXEC);
	p->event = eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK);
	p->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int error = p->fd < 0 || p->event < 0 || p->timer < 0 || watch_other(p, p->event) || watch_other(p, p->timer);
	for (unsigned i = 0; i < a->shards_n && !error; i++) {
		error = watch(p, a->shards[i], EPOLL_CTL_ADD, EPOLLIN);
		a->shards[i]->progress.signal = &p->event;
	}
	if (!error)
		return FAR_OK;
	error = errno;
	agent_fini_pollers(a);
	return err_sys(in->err, error, "cannot create the descriptor of the agent");
}

void agent_poll_fini(struct far_agent *a)
{
	struct agent_poll *p = a->poll;
	if (!p)
		return;
	for (unsigned i = 0; i < a->shards_n; i++)
		a->shards[i]->progress.signal = NULL;
	a->poll = NULL;
	for (int i = 0; i < 3; i++) {
		int fd = i == 0 ? p->fd : i == 1 ? p->event : p->timer;
		if (fd >= 0)
			close(fd);
	}
	free(p);
}

void agent_poll_signal(const struct far_agent *a)
{
	if (a->poll)
		eventfd_write(a->poll->event, 1);
}

/* Reads what has arrived: bits of the queues of each shard. */
static void take_events(const struct agent_poll *p, uint32_t *woke)
{
	struct epoll_event events[EVENTS_MAX];
	eventfd_t ignored;
	int n = epoll_wait(p->fd, events, EVENTS_MAX, 0);
	for (int i = 0; i < n; i++)
		if (events[i].data.u64 == OTHER_EVENT)
			eventfd_read(p->event, &ignored);
		else
			woke[events[i].data.u64 >> 8] |= UINT32_C(1) << (events[i].data.u64 & 0xff);
}

static void set_muted(struct agent_poll *p, const struct shard *s, bool muted)
{
	if (p->muted[s->config.index] == muted)
		return;
	p->muted[s->config.index] = muted;
	watch(p, s, EPOLL_CTL_MOD, muted ? 0 : EPOLLIN);
}

/* Setting it makes an expired one unreadable. */
static void set_timer(struct agent_poll *p, uint64_t at)
{
	const struct itimerspec when = {.it_value = {at == TIME_NEVER ? 0 : (time_t)(at / FAR_SEC),
						     at == TIME_NEVER ? 0 : (long)(at % FAR_SEC)}};
	if (at == TIME_NEVER && p->timer_at == TIME_NEVER)
		return;
	p->timer_at = at;
	timerfd_settime(p->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

int far_agent_fd(struct far_agent *a)
{
	return a && a->poll ? a->poll->fd : -1;
}

unsigned far_agent_poll(struct far_agent *a)
{
	struct agent_poll *p = a ? a->poll : NULL;
	if (!p || shard_serving() || atomic_exchange_explicit(&p->polling, true, memory_order_acquire))
		return 0;
	uint32_t woke[FAR_SHARDS_MAX] = {0};
	uint64_t next = TIME_NEVER;
	unsigned n = 0;
	bool again = false;
	take_events(p, woke); /* before the work: an event from now on is kept */
	for (unsigned i = 0; i < a->shards_n; i++) {
		struct shard_polled did = shard_poll_once(a->shards[i], woke[i]);
		set_muted(p, a->shards[i], did.held);
		n += did.n;
		again |= did.again;
		next = did.next < next ? did.next : next;
	}
	set_timer(p, next);
	if (again)
		agent_poll_signal(a);
	atomic_store_explicit(&p->polling, false, memory_order_release);
	return n;
}

void agent_await(struct far_agent *a, int fd, uint64_t until)
{
	struct pollfd fds[] = {{.fd = fd, .events = POLLIN}, {.fd = far_agent_fd(a), .events = POLLIN}};
	uint64_t now = clock_now(a->clock), left = until > now ? until - now : 0;
	const struct timespec at = {(time_t)(left / FAR_SEC), (long)(left % FAR_SEC)};
	ppoll(fds, 2, until == TIME_NEVER ? NULL : &at, NULL);
	far_agent_poll(a);
}

enum far_status agent_wait_settled(struct far_agent *a, struct far_err *err)
{
	while (a->poll && !ctl_settled(a->ctl))
		agent_await(a, -1, TIME_NEVER); /* agent_state_changed() ends it */
	return ctl_wait_settled(a->ctl, err);
}
