/* SPDX-License-Identifier: BSD-3-Clause */
/* The threads of an agent: start, join of the group, end. Application thread, at start and stop. */
#include "agent/init.h"
#include "agent/pin.h"
#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "core/fiber.h"
#include "core/idle.h"
#include "core/loop.h"
#include "core/session.h"
#include "core/shard.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

/* Limit of a shutdown's wait for threads that still hold a shard, against the contract of the API. */
#define LAST_PASSES_NS FAR_SEC

static int poller_start(struct far_agent *a, unsigned i, const struct far_opts *opts)
{
	pthread_attr_t attr;
	sigset_t masked, before;
	char name[16];
	pthread_attr_init(&attr);
	int error = pin_attr(&attr, opts, i);
	signals_thread_mask(&masked);
	pthread_sigmask(SIG_SETMASK, &masked, &before);
	if (!error)
		error = pthread_create(&a->pollers[i], &attr, poller_main, a->shards[i]);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attr);
	if (error)
		return error;
	snprintf(name, sizeof name, "far-shard%u", i);
	pthread_setname_np(a->pollers[i], name);
	a->pollers_n = i + 1;
	return 0;
}

/* Ends a poller. The wake-up is repeated until the thread has ended: a waiter on the same descriptor may consume it, or
 * the poller may be about to park (tests/models/stop.pml). */
static void poller_stop(struct shard *s, pthread_t poller)
{
	struct timespec until;
	atomic_store_explicit(&s->stop, true, memory_order_release);
	do {
		shard_wake(s);
		progress_unpark(&s->progress);
		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += 2000000;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
	} while (pthread_clockjoin_np(poller, NULL, CLOCK_MONOTONIC, &until) == ETIMEDOUT);
}

uint32_t agent_shard_end(struct far_agent *a, struct shard *s, bool crash)
{
	uint64_t give_up = clock_now(a->clock) + LAST_PASSES_NS;
	bool entered;
	while (!(entered = shard_enter(s)) && clock_now(a->clock) < give_up)
		sched_yield();
	if (!entered) {
		log_line(FAR_LOG_ERROR,
			 "shutdown of \"%s\": another thread still holds shard %u (far_shard_acquire without "
			 "far_shard_release, or a call in progress); going on without it",
			 a->name, s->config.index);
		atomic_store(&s->progress.token, 0);
		entered = shard_enter(s);
	}
	if (!crash)
		shard_pass(s);
	session_close_all(s);
	if (crash) /* submissions end, arrived packets are dropped */
		shard_pass(s);
	uint32_t left = fiber_end_all(s, give_up);
	if (left && !a->stepped)
		log_line(FAR_LOG_ERROR, "shutdown of \"%s\": %u handlers did not end though their waits were cancelled",
			 a->name, left);
	shard_flush(s);
	shard_leave(s);
	/* Threads that have just submitted a deferred reply may still hold the shard for a moment. */
	while (atomic_load_explicit(&s->producers, memory_order_acquire) && clock_now(a->clock) < give_up)
		sched_yield();
	if (shard_enter(s)) /* runs what they submitted and did not run themselves */
		shard_leave(s);
	return left;
}

void agent_fini_pollers(struct far_agent *a)
{
	for (unsigned i = 0; i < a->shards_n && a->poll; i++)
		atomic_store_explicit(&a->shards[i]->stop, true, memory_order_release);
	for (unsigned i = 0; i < a->pollers_n; i++)
		poller_stop(a->shards[i], a->pollers[i]);
	a->pollers_n = 0;
	for (unsigned i = 0; i < a->shards_n; i++)
		agent_shard_end(a, a->shards[i], false);
	agent_poll_fini(a);
}

enum far_status agent_init_pollers(struct init *in)
{
	struct far_agent *a = in->a;
	if (in->caller)
		return agent_poll_init(in);
	for (unsigned i = 0; i < a->shards_n; i++) {
		int error = poller_start(a, i, &in->opts);
		if (error) {
			agent_fini_pollers(a);
			return err_sys(in->err, error, "cannot start the thread of shard %u", i);
		}
	}
	return FAR_OK;
}

/* Waits until the shards have taken the PEER_UP mails of the join, which takes a pass of each. */
static bool await_sessions(struct far_agent *a, struct shard *s, uint64_t until)
{
	uint32_t sessions = ctl_sessions(a->ctl);
	while (atomic_load_explicit(&s->sessions_opened, memory_order_acquire) < sessions) {
		if (clock_now(a->clock) > until)
			return false;
		if (a->progress == FAR_PROGRESS_SHARED && shard_enter(s)) {
			shard_take_mail(s);
			shard_leave(s);
		} else {
			sched_yield();
		}
	}
	return true;
}

enum far_status agent_init_join(struct init *in)
{
	struct far_agent *a = in->a;
	uint64_t until = time_after(clock_now(a->clock), in->opts.init_timeout_ns);
	enum far_status status = ctl_start(a->ctl, in->err);
	if (status)
		return status;
	status = agent_wait_settled(a, in->err);
	for (unsigned i = 0; i < a->shards_n && !status; i++)
		if (!await_sessions(a, a->shards[i], until))
			status = err_set(in->err, FAR_TIMEOUT,
					 "the sessions are up, but no thread polled shard %u until the deadline", i);
	if (status)
		ctl_stop(a->ctl);
	return status;
}

void agent_fini_join(struct far_agent *a)
{
	ctl_stop(a->ctl);
}
