/* SPDX-License-Identifier: BSD-3-Clause */
/** Runs the timers that are due. The thread that owns the wheel. */
#include "core/timer.h"

#include <stdbool.h>
#include <stddef.h>

/* Moves the far timers of this turn to the near level. */
static void cascade(struct timer_wheel *w, uint64_t turn)
{
	for (struct timer *t = w->far[turn % TIMER_FAR], *next; t; t = next) {
		next = t->next;
		if (t->at >> (TIMER_TICK_SHIFT + TIMER_TURN_SHIFT) > turn)
			continue;
		timer_disarm(w, t);
		timer_arm(w, t, t->at);
	}
}

/* Sets w->tick. All far buckets whose turn begins before the end of the next one are near afterwards. */
static void advance(struct timer_wheel *w, uint64_t tick)
{
	uint64_t turn = (w->tick >> TIMER_TURN_SHIFT) + 2, last = (tick >> TIMER_TURN_SHIFT) + 1;
	w->tick = tick;
	if (turn <= last && last - turn >= TIMER_FAR)
		turn = last - TIMER_FAR + 1;
	for (; turn <= last; turn++)
		cascade(w, turn);
}

unsigned timer_run(struct timer_wheel *w, uint64_t now, timer_fn *due, void *ctx)
{
	uint64_t to = now >> TIMER_TICK_SHIFT, from = w->tick;
	unsigned n = 0;
	if (to < from)
		to = from;
	if (!w->armed_n) {
		w->tick = to;
		return 0;
	}
	/* What a callback arms for a tick that this run has passed goes to the last one. The present tick is not over:
	 * the next run begins with it again. */
	advance(w, to);
	if (to - from >= TIMER_BUCKETS)
		from = to - TIMER_BUCKETS + 1;
	for (uint64_t tick = from; tick <= to; tick++) {
		/* What is due leaves the bucket before the callbacks run, so that they may arm and disarm at will. */
		struct timer *ready = NULL;
		for (struct timer *t = w->buckets[tick % TIMER_BUCKETS], *next; t; t = next) {
			next = t->next;
			if (t->at > now)
				continue;
			timer_disarm(w, t);
			w->armed_n++;
			timer_link(&ready, t);
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

/* The first near bucket that is not empty, from `tick` on and before `end`; `end`: none. */
static uint64_t next_used(struct timer_wheel *w, uint64_t tick, uint64_t end)
{
	while (tick < end) {
		uint64_t *word = &w->used[tick % TIMER_BUCKETS / 64], bits = *word >> tick % 64;
		if (!bits) {
			tick += 64 - tick % 64;
			continue;
		}
		tick += (uint64_t)__builtin_ctzll(bits);
		if (tick >= end || w->buckets[tick % TIMER_BUCKETS])
			break;
		*word &= ~(UINT64_C(1) << tick % 64);
	}
	return tick < end ? tick : end;
}

/* Lowers `next` to the earliest timer of a bucket. true: it is due before `until`, so that no later bucket has an
 * earlier one. */
static bool earliest(const struct timer *t, uint64_t until, uint64_t *next)
{
	for (; t; t = t->next)
		*next = t->at < *next ? t->at : *next;
	return *next < until;
}

uint64_t timer_next(struct timer_wheel *w)
{
	uint64_t next = UINT64_MAX, end = w->tick + TIMER_BUCKETS;
	if (!w->armed_n)
		return next;
	for (uint64_t tick = w->tick; (tick = next_used(w, tick, end)) < end; tick++)
		if (earliest(w->buckets[tick % TIMER_BUCKETS], (tick + 1) << TIMER_TICK_SHIFT, &next))
			return next;
	if (next != UINT64_MAX) /* of the next turn */
		return next;
	uint64_t turn = (w->tick >> TIMER_TURN_SHIFT) + 2;
	for (uint64_t i = turn; i < turn + TIMER_FAR; i++)
		if (earliest(w->far[i % TIMER_FAR], (i + 1) << (TIMER_TICK_SHIFT + TIMER_TURN_SHIFT), &next))
			return next;
	return next;
}
