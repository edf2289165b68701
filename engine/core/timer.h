/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * A wheel of timers in two levels: the near one has a bucket for each tick of 2^TIMER_TICK_SHIFT ns (131 µs), the far
 * one a bucket for each turn of the near one (134 ms). The thread that owns the wheel.
 *
 * Arming and disarming touch the timer and its neighbours only. A far timer moves to the near level a turn or two
 * before it is due. One that is further away than a turn of the far level (34 s) stays in its bucket, and is read once
 * in such a turn.
 */
#ifndef FAR_CORE_TIMER_H
#define FAR_CORE_TIMER_H

#include <stdint.h>

#define TIMER_TICK_SHIFT 17u   /* 131 µs */
#define TIMER_BUCKETS    1024u /* of the near level */
#define TIMER_TURN_SHIFT 10u
#define TIMER_FAR        256u /* buckets of the far level */

struct timer {
	uint64_t at; /* absolute ns */
	struct timer *next;
	struct timer **at_prev; /* what points here; NULL: not armed */
};

struct timer_wheel {
	uint64_t tick; /* every near bucket before it has been run; timers up to the end of the next turn are near */
	uint32_t armed_n;
	struct timer *buckets[TIMER_BUCKETS]; /* by tick */
	struct timer *far[TIMER_FAR];         /* by turn */
	uint64_t used[TIMER_BUCKETS / 64];    /* bit clear: the near bucket is empty */
};

static inline void timer_link(struct timer **bucket, struct timer *t)
{
	t->next = *bucket;
	t->at_prev = bucket;
	if (t->next)
		t->next->at_prev = &t->next;
	*bucket = t;
}

static inline void timer_arm(struct timer_wheel *w, struct timer *t, uint64_t at)
{
	uint64_t tick = at >> TIMER_TICK_SHIFT, turn;
	if (tick < w->tick)
		tick = w->tick;
	turn = tick >> TIMER_TURN_SHIFT;
	t->at = at;
	w->armed_n++;
	if (turn > (w->tick >> TIMER_TURN_SHIFT) + 1) {
		timer_link(&w->far[turn % TIMER_FAR], t);
		return;
	}
	w->used[tick % TIMER_BUCKETS / 64] |= UINT64_C(1) << tick % 64;
	timer_link(&w->buckets[tick % TIMER_BUCKETS], t);
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

/** The earliest time at which timer_run() has something to do; UINT64_MAX when nothing is armed. Reads the timers of
 * one or two buckets, unless all are further away than a turn of the far level. */
uint64_t timer_next(struct timer_wheel *w);

#endif
