/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A hashed wheel of timers: TIMER_BUCKETS ticks of 2^TIMER_TICK_SHIFT ns. The thread that owns the wheel.
 *
 * Arming and disarming touch the timer and its neighbours only. A timer further away than one turn stays in its
 * bucket, and is read once a turn (134 ms).
 */
#ifndef FAR_CORE_TIMER_H
#define FAR_CORE_TIMER_H

#include <stdint.h>

#define TIMER_TICK_SHIFT 17u /* 131 µs */
#define TIMER_BUCKETS    1024u

struct timer {
	uint64_t at; /* absolute ns */
	struct timer *next;
	struct timer **at_prev; /* what points here; NULL: not armed */
};

struct timer_wheel {
	uint64_t tick; /* every bucket before it has been run */
	uint32_t armed_n;
	struct timer *buckets[TIMER_BUCKETS];
};

static inline void timer_arm(struct timer_wheel *w, struct timer *t, uint64_t at)
{
	uint64_t tick = at >> TIMER_TICK_SHIFT;
	if (tick < w->tick)
		tick = w->tick;
	struct timer **bucket = &w->buckets[tick % TIMER_BUCKETS];
	t->at = at;
	t->next = *bucket;
	t->at_prev = bucket;
	if (t->next)
		t->next->at_prev = &t->next;
	*bucket = t;
	w->armed_n++;
}

static inline void timer_disarm(struct timer_wheel *w, struct timer *t)
{
	if (!t->at_prev)
		return;
	*t->at_prev = t->next;
	if (t->next)
		t->next->at_prev = t->at_prev;
	t->at_prev = 0;
	w->armed_n--;
}

struct shard;

/** What begins with this has a timer in shard.wheel. `fn` is called once it is due; set before it is armed. */
struct shard_timer {
	struct timer timer;
	void (*fn)(struct shard *s, struct shard_timer *t);
};

typedef void timer_fn(void *ctx, struct timer *t);

/** Disarms and hands over every timer that is due at `now`. The callback may arm and disarm. Returns how
 * many there were. */
unsigned timer_run(struct timer_wheel *w, uint64_t now, timer_fn *due, void *ctx);

/** The earliest time at which timer_run() has something to do; UINT64_MAX when nothing is armed. Slow: before a sleep
 * only. */
uint64_t timer_next(const struct timer_wheel *w);

#endif
