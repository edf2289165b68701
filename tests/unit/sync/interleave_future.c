/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The shipped future.c and watch.c under every interleaving of two or three threads, up to a number of preemptions.
 * With MUTATION one of their atomic steps is broken, and some scenario must find it.
 */
#include "interleave.h"

#include "base/clock.h"
#include "base/must.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef MUTATION
#define MUTATION 0
#endif

enum mutation {
	NONE,
	OR_IN_TWO_STEPS,       /* the state's bits, a claim, the mark of a watch */
	EXCHANGE_IN_TWO_STEPS, /* a list is taken, a slot is fired */
	CAS_IN_TWO_STEPS,      /* a push, a waiter's bit, a place */
	SUB_IN_TWO_STEPS,      /* a countdown */
	SLEEP_WITHOUT_COMPARING,
	NO_WAKE,
	LISTENED_IS_NOT_SAID,
	NO_MARK_IS_LEFT /* of a list that is closed, a slot that is fired */
};

/* A failed assumption ends the schedule, not the process. */
#undef must
#define must(condition) HOLDS(condition)

#define FAR_HOOK(step) interleave_hook(step)

/* In place of sync/futex.h. */
#define FAR_SYNC_FUTEX_H
#include <limits.h>

static void futex_wait(_Atomic uint32_t *word, uint32_t expected, uint64_t until)
{
	interleave_sleep(word, MUTATION == SLEEP_WITHOUT_COMPARING || atomic_load(word) == expected);
}

static void futex_wake(_Atomic uint32_t *word, int n)
{
	if (MUTATION != NO_WAKE)
		interleave_wake(word);
}

#if MUTATION == 1
#undef atomic_fetch_or_explicit
#define atomic_fetch_or_explicit(p, v, order)                                                                          \
	({                                                                                                             \
		uint32_t was = atomic_load(p);                                                                         \
		interleave_hook("(between)");                                                                          \
		atomic_store(p, was | (v));                                                                            \
		was;                                                                                                   \
	})
#elif MUTATION == 2
#undef atomic_exchange_explicit
#define atomic_exchange_explicit(p, v, order)                                                                          \
	({                                                                                                             \
		__auto_type was = atomic_load(p);                                                                      \
		interleave_hook("(between)");                                                                          \
		atomic_store(p, v);                                                                                    \
		was;                                                                                                   \
	})
#elif MUTATION == 3
#undef atomic_compare_exchange_strong_explicit
#undef atomic_compare_exchange_weak_explicit
#define atomic_compare_exchange_strong_explicit(p, want, v, success, failure)                                          \
	({                                                                                                             \
		__auto_type was = atomic_load(p);                                                                      \
		bool same = was == *(want);                                                                            \
		interleave_hook("(between)");                                                                          \
		if (same)                                                                                              \
			atomic_store(p, v);                                                                            \
		else                                                                                                   \
			*(want) = was;                                                                                 \
		same;                                                                                                  \
	})
#define atomic_compare_exchange_weak_explicit atomic_compare_exchange_strong_explicit
#elif MUTATION == 4
#undef atomic_fetch_sub_explicit
#define atomic_fetch_sub_explicit(p, v, order)                                                                         \
	({                                                                                                             \
		uint32_t was = atomic_load(p);                                                                         \
		interleave_hook("(between)");                                                                          \
		atomic_store(p, was - (v));                                                                            \
		was;                                                                                                   \
	})
#elif MUTATION == 8
#undef atomic_exchange_explicit
#define atomic_exchange_explicit(p, v, order)                                                                          \
	({                                                                                                             \
		__auto_type was = atomic_load(p);                                                                      \
		atomic_store(p, NULL);                                                                                 \
		was;                                                                                                   \
	})
#endif

#include "sync/future.h"
#if MUTATION == 7
#undef FUTURE_LISTENED
#define FUTURE_LISTENED 0u
#endif

#include "sync/future.c"
#include "sync/watch.c"

enum { FUTURES = 3 };

/* Of one schedule. */
static struct far_future *f[FUTURES];
static struct {
	struct future_listener l;
	int times, by; /* thread that ran it */
	enum far_status status;
} heard[THREADS_MAX];
static int won, completer;

static void setup(void)
{
	memset(heard, 0, sizeof heard);
	won = 0;
	completer = -1;
	for (int i = 0; i < FUTURES; i++)
		HOLDS((f[i] = future_alloc(NULL)) != NULL);
}

static void hold(int more)
{
	for (int i = 0; i < more; i++)
		buf_ref(&f[0]->head);
}

/* The pool has them again, as new ones: nothing leaked and nothing was given back twice. */
static void gone(struct far_future *one)
{
	struct far_future *again = future_alloc(NULL);
	HOLDS(again == one);
	HOLDS(!future_done(again));
	HOLDS(!atomic_load(&again->listeners) && !atomic_load(&again->watch));
	buf_unref(&again->head);
}

/* All have one reference left, and then none. */
static void only_ours(void)
{
	for (int i = 0; i < FUTURES; i++) {
		HOLDS(atomic_load(&f[i]->head.refs) == 1);
		buf_unref(&f[i]->head);
		gone(f[i]);
	}
}

static void complete(struct far_future *one, enum far_status status)
{
	struct completion o = {.status = status, .data = "x", .len = 1};
	completer = interleave_self();
	future_complete(one, &o);
}

static void await(struct far_future *one)
{
	while (!future_done(one))
		future_sleep(one, future_state(one), TIME_NEVER);
	HOLDS(one->len <= 1);
}

static void hear(struct future_listener *l, struct far_future *one)
{
	int i = l == &heard[0].l ? 0 : l == &heard[1].l ? 1 : 2;
	heard[i].times++;
	heard[i].by = interleave_self();
	heard[i].status = (enum far_status)one->status;
	HOLDS(future_done(one));
}

static void listen_here(void)
{
	int i = interleave_self();
	heard[i].l.fn = hear;
	future_listen(f[0], &heard[i].l);
}

/* ---- completion, waiters, wakes ---- */

static void t_complete(void)
{
	complete(f[0], FAR_OK);
	buf_unref(&f[0]->head);
}

static void t_await(void)
{
	await(f[0]);
	buf_unref(&f[0]->head);
}

static void t_wake(void)
{
	future_wake(&f[0]->state);
	buf_unref(&f[0]->head);
}

static void setup_three(void)
{
	setup();
	hold(3);
}

static void check_three(void)
{
	only_ours();
}

/* ---- listeners ---- */

static void t_listen(void)
{
	listen_here();
	buf_unref(&f[0]->head);
}

static void check_heard(int i, enum far_status status)
{
	HOLDS(heard[i].times == 1);
	HOLDS(heard[i].status == status);
	/* By who completes, or by itself: never by another that listens. */
	HOLDS(heard[i].by == i || heard[i].by == completer);
}

static void check_listeners(void)
{
	check_heard(1, FAR_OK);
	check_heard(2, FAR_OK);
	only_ours();
}

/* Drops the last references instead of completing it. */
static void setup_drop(void)
{
	setup();
	hold(1);
}

static void t_drop(void)
{
	buf_unref(&f[0]->head);
}

static void check_drop(void)
{
	HOLDS(heard[1].times == 1 && heard[1].status == FAR_CANCELLED);
	gone(f[0]);
}

/* ---- of a call, which holds no reference ---- */

static void setup_call(void)
{
	setup();
	future_mark(f[0], FUTURE_CALL);
}

static void setup_call_three(void)
{
	setup_call();
	hold(1);
}

static void t_complete_call(void)
{
	complete(f[0], FAR_OK);
}

static void check_call(void)
{
	gone(f[0]);
}

static void check_call_heard(void)
{
	check_heard(1, FAR_OK);
	gone(f[0]);
}

static void check_call_heard_twice(void)
{
	check_heard(2, FAR_OK);
	check_call_heard();
}

/* ---- claims ---- */

static void t_claim(void)
{
	if (future_claim(f[0])) {
		won++;
		complete(f[0], FAR_OK);
	}
	buf_unref(&f[0]->head);
}

static void check_claim(void)
{
	HOLDS(won == 1);
	only_ours();
}

/* ---- waits for several ---- */

static void t_wait_any(void)
{
	struct far_future *any = countdown_alloc(NULL, 1, false);
	if (watch_add(f[0], any) == 0)
		await(any);
	else
		HOLDS(future_done(f[0]));
	watch_remove(f[0], any);
	HOLDS(future_done(f[0]));
	buf_unref(&any->head);
	buf_unref(&f[0]->head);
}

/* f[1] is the countdown, entered by one thread and taken out again at once. */
static void t_leave_early(void)
{
	if (watch_add(f[0], f[1]) == 0)
		watch_remove(f[0], f[1]);
	buf_unref(&f[0]->head);
}

static void setup_early(void)
{
	setup_three();
	buf_unref(&f[1]->head);
	f[1] = countdown_alloc(NULL, 1, false);
}

/* f[2] ends with f[0] and f[1]; the thread that enters counts for one. */
static void setup_all(void)
{
	setup();
	buf_unref(&f[2]->head);
	f[2] = countdown_alloc(NULL, 3, true);
}

static void t_complete_0(void)
{
	complete(f[0], FAR_OK);
}

static void t_complete_1(void)
{
	complete(f[1], FAR_OK);
}

static void t_fail_1(void)
{
	complete(f[1], FAR_REMOTE);
}

static void wait_all(void)
{
	for (int i = 0; i < 2; i++)
		if (watch_add(f[i], f[2]))
			countdown_step(NULL, f[2], f[i]);
	countdown_step(NULL, f[2], NULL);
	await(f[2]);
	HOLDS((future_done(f[0]) && future_done(f[1])) || (future_done(f[1]) && f[1]->status != FAR_OK));
	watch_remove(f[0], f[2]);
	watch_remove(f[1], f[2]);
}

/* It ends without the first, which is never complete. */
static void check_fail_fast(void)
{
	HOLDS(!future_done(f[0]));
	only_ours();
}

static const struct scenario scenarios[] = {
	{"complete, wait, wake", setup_three, {t_complete, t_await, t_wake}, check_three, -1},
	{"complete, wait, wait", setup_three, {t_complete, t_await, t_await}, check_three, 4},
	{"complete, listen, listen", setup_three, {t_complete, t_listen, t_listen}, check_listeners, -1},
	{"complete, listen, wait", setup_three, {t_complete, t_await, t_listen}, check_three, -1},
	{"drop, listen", setup_drop, {t_drop, t_listen}, check_drop, -1},
	{"call: complete, drop", setup_call, {t_complete_call, t_drop}, check_call, -1},
	{"call: complete, wait", setup_call, {t_complete_call, t_await}, check_call, -1},
	{"call: complete, listen, drop", setup_call_three, {t_complete_call, t_listen, t_drop}, check_call_heard, -1},
	{"call: complete, listen, listen",
	 setup_call_three,
	 {t_complete_call, t_listen, t_listen},
	 check_call_heard_twice,
	 4},
	{"call: complete, wait, listen", setup_call_three, {t_complete_call, t_await, t_listen}, check_call, 4},
	{"claim, claim, wait", setup_three, {t_claim, t_claim, t_await}, check_claim, -1},
	{"complete, wait any", setup_drop, {t_complete_0, t_wait_any}, check_three, -1},
	{"complete, wait any, wait any", setup_three, {t_complete, t_wait_any, t_wait_any}, check_three, 3},
	{"complete, leave early, leave early", setup_early, {t_complete, t_leave_early, t_leave_early}, check_three, 3},
	{"complete, complete, wait all", setup_all, {t_complete_0, t_complete_1, wait_all}, check_three, 3},
	{"fail, wait all", setup_all, {t_fail_1, wait_all}, check_fail_fast, 6},
	{"complete, fail, wait all", setup_all, {t_complete_0, t_fail_1, wait_all}, check_three, 3},
};

int main(void)
{
	bool violated = false, found = false;
	for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios && !found; i++) {
		uint64_t n = interleave_search(&scenarios[i], MUTATION == NONE, &violated);
		printf("%s: %llu schedules%s\n", scenarios[i].name, (unsigned long long)n,
		       violated ? ", the last one is wrong" : "");
		found |= violated;
	}
	if (MUTATION != NONE && !found)
		fprintf(stderr, "no scenario finds mutation %d\n", MUTATION);
	return found == (MUTATION != NONE) ? 0 : 1;
}
