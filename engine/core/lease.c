/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Ends the sessions of a worker whose lease has run out. Shard thread. The control thread extends the lease
 * (control/lease.c) in one atomic word; a timer of the shard compares it with the clock of this host, so a shard stops
 * by itself while the control thread stands still. The path of a call has no check: a session that has ended takes no
 * packet. A poller checks the lease when it has slept; one that was stopped while it polled may run the requests of at
 * most 64 passes before it looks at its timers.
 */
#include "core/lease.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/mutant.h"
#include "core/session.h"
#include "core/shard.h"

static const char run_out[] = "connection to the worker lost: the lease of this worker has run out";

static uint64_t lease_until(const struct shard *s)
{
	/* Acquire: pairs with lease_publish(). */
	return s->config.lease ? atomic_load_explicit(s->config.lease, memory_order_acquire) : TIME_NEVER;
}

/* True if the lease is over for all shards and the control thread: one of them has written that, or this does, unless
 * the control thread is first and extends it. */
static bool lease_has_run_out(struct shard *s)
{
	uint64_t until = lease_until(s);
	while (until != LEASE_OVER && clock_now(s->config.clock) >= until) {
		if (atomic_compare_exchange_weak_explicit(s->config.lease, &until, LEASE_OVER, memory_order_acq_rel,
							  memory_order_acquire))
			return true;
	}
	return until == LEASE_OVER;
}

static void lease_end(struct shard *s)
{
	s->evicted = true;
	for (struct session *se = s->known; se; se = se->next_known)
		session_end(s, se, run_out);
	s->config.ctl_wake(s->config.ctl_ctx);
}

bool lease_is_over(struct shard *s)
{
	shard_own(s);
	if (!s->evicted && s->config.lease && lease_has_run_out(s) && !MUTANT(LEASE_IGNORED))
		lease_end(s);
	return s->evicted;
}

static void on_timer(struct shard *s, struct shard_timer *t)
{
	if (!lease_is_over(s) && lease_until(s) != LEASE_OVER)
		timer_arm(&s->wheel, &t->timer, lease_until(s));
}

void lease_watch(struct shard *s)
{
	shard_own(s);
	if (lease_until(s) == TIME_NEVER || s->lease_timer.timer.at_prev)
		return;
	s->lease_timer.fn = on_timer;
	timer_arm(&s->wheel, &s->lease_timer.timer, lease_until(s));
}

void lease_renew(struct shard *s, uint64_t incarnation)
{
	shard_own(s);
	lease_end(s); /* also calls that have waited since for a session of the former incarnation */
	s->config.incarnation = incarnation;
	s->evicted = false;
}
