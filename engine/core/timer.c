/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs the timers that are due. The thread that owns the wheel. */
#include "core/timer.h"

#include <stddef.h>

unsigned timer_run(struct timer_wheel *w, uint64_t now, timer_fn *due, void *ctx)
{
	uint64_t to = now >> TIMER_TICK_SHIFT;
	if (!w->armed_n) {
		w->tick = to > w->tick ? to : w->tick;
		return 0;
	}
	uint64_t from = w->tick;
	unsigned n = 0;
	if (to - from >= TIMER_BUCKETS && to >= from)
		from = to - TIMER_BUCKETS + 1;
	/* What a callback arms for a tick that this run has passed goes to the last one. The present tick is not over:
	 * the next run begins with it again. */
	w->tick = to;
	for (uint64_t tick = from; tick <= to; tick++) {
		/* What is due leaves the bucket before the callbacks run, so that they may arm and disarm at will. */
		struct timer *ready = NULL;
		for (struct timer *t = w->buckets[tick % TIMER_BUCKETS], *next; t; t = next) {
			next = t->next;
			if (t->at > now)
				continue;
			timer_disarm(w, t);
			w->armed_n++;
			t->next = ready;
			t->at_prev = &ready;
			if (ready)
				ready->at_prev = &t->next;
			ready = t;
		}
		while (ready) {
			struct timer *t = ready;
			timer_disarm(w, t);
			due(ctx, t);
			n++;
		}
	}
	return n;
}

uint64_t timer_next(const struct timer_wheel *w)
{
	uint64_t next = UINT64_MAX;
	if (!w->armed_n)
		return next;
	for (unsigned i = 0; i < TIMER_BUCKETS; i++)
		for (const struct timer *t = w->buckets[i]; t; t = t->next)
			next = t->at < next ? t->at : next;
	return next;
}
