/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The driver token and who sleeps without it: engine/sync/progress.{h,c}, shard_wait() and sleep_on_future() of
 * engine/core/idle.c, progress_park(). Application threads each wait for their own future; the holder of the token
 * completes what has arrived. The poller parks and never drives, so that nobody makes good for a lost wake-up.
 *
 * The future is what future.pml proves of it: a sleep ends when the word differs from what was seen. How the holder
 * itself sleeps is poller.pml's; here it blocks until there is something.
 *
 * Holds: one holder at most; nobody is left asleep, and the poller not parked, while the token is free.
 * Broken: RELEASE_IGNORES_SLEEPERS, RELEASE_IGNORES_PARKED, RELEASE_IS_RELAXED, ADD_WITHOUT_LOOK, STATE_READ_LATE,
 * WAKE_NOT_PASSED_ON, PARK_WITHOUT_LOOK, PARK_IS_RELAXED.
 */
#ifndef THREADS
#define THREADS 3
#endif
#ifndef PARKS
#define PARKS 0 /* how often the poller parks */
#endif
#define POLLER THREADS
#if PARKS
#define NPROC (THREADS + 1)
#else
#define NPROC THREADS
#endif
#ifndef PLACES
#define PLACES THREADS /* FAR_SLEEPERS_MAX */
#endif

/* Words with plain stores: a place of `sleepers` (who + 1, 0: free), and parked. The token and sleepers_n are only
 * ever written by locked instructions and seq_cst stores; RELEASE_IS_RELAXED makes the token one of these. */
#define PARKED   0
#define TOKEN    1
#define PLACE(i) (2 + (i))
#define NVAR     (2 + PLACES)
#include "tso.pml"

byte sleepers_n;
byte holders;
byte arrived; /* replies that are in the queue */
bool done[THREADS];
byte wakes[THREADS]; /* the upper bits of a future's word; counts modulo 4 */
bool in_park;        /* in the kernel's queue of `parked` */

/* progress_try(): load(token, relaxed), compare_exchange(token, 0, 1, seq_cst) */
#define TRY_FAILS(p) (LOAD(p, TOKEN) == 1)
#define TRY_WORKS(p) (DRAINED(p) && mem[TOKEN] == 0)
inline take()
{
	mem[TOKEN] = 1;
	holders++;
	assert(holders == 1)
}

/* wake_one(): load(sleepers[i], acquire) of each; future_wake(): fetch_add, futex_wake() */
inline wake_one(p)
{
	i = 0;
	do
	:: i < PLACES ->
		who = LOAD(p, PLACE(i));
		if
		:: who -> atomic { DRAINED(p) -> wakes[who - 1] = (wakes[who - 1] + 1) % 4 }; break
		:: else -> i++
		fi
	:: else -> break
	od;
	atomic { i = 0; who = 0 }
}

/* progress_unpark(): store(parked, 0, release), futex_wake(), which has a barrier */
inline unpark(p)
{
	STORE(p, PARKED, 0);
	atomic { DRAINED(p) -> in_park = false }
}

/* progress_release(): store(token, 0, seq_cst); load(sleepers_n, seq_cst); load(parked, seq_cst) */
inline release(p)
{
	holders--;
	STORE(p, TOKEN, 0);
#ifndef RELEASE_IS_RELAXED
	DRAINED(p);
#endif
#ifndef RELEASE_IGNORES_SLEEPERS
	if
	:: sleepers_n -> wake_one(p)
	:: else
	fi;
#endif
#ifndef RELEASE_IGNORES_PARKED
	if
	:: LOAD(p, PARKED) -> unpark(p)
	:: else
	fi
#endif
}

/* progress_sleeper_add(): load(place, relaxed), compare_exchange(place, seq_cst), fetch_add(sleepers_n, seq_cst) */
inline sleeper_add(p)
{
	i = 0;
	do
	:: i < PLACES ->
		if
		:: LOAD(p, PLACE(i)) -> i++
		:: atomic { DRAINED(p) && !mem[PLACE(i)] -> mem[PLACE(i)] = p + 1 }
			place = i + 1;
			atomic { DRAINED(p) -> sleepers_n++ };
			break
		fi
	:: else -> break
	od;
	i = 0
}

/* progress_sleeper_remove(): store(place, NULL, release), fetch_sub(sleepers_n, seq_cst), load(token, seq_cst) */
inline sleeper_remove(p)
{
	if
	:: place ->
		STORE(p, PLACE(place - 1), 0);
		atomic { DRAINED(p) -> sleepers_n--; place = sleepers_n };
#ifndef WAKE_NOT_PASSED_ON
		if
		:: place && LOAD(p, TOKEN) == 0 -> wake_one(p)
		:: else
		fi;
#endif
		place = 0
	:: else
	fi
}

active [THREADS] proctype thread()
{
	byte i, who, place, seen;
	byte me = _pid - 1;
	do
	:: done[me] -> break
	/* progress_try() succeeds: drive_until(), then shard_leave() */
	:: atomic { !done[me] && TRY_WORKS(me) -> take() };
		do
		:: done[me] -> break
		:: !done[me] ->
			/* What arrived is for one of those who wait. Nothing: shard_sleep() */
			atomic {
				arrived > 0 -> arrived--;
				if
				:: !done[0] -> done[0] = true
				:: !done[1] -> done[1] = true
#if THREADS > 2
				:: !done[2] -> done[2] = true
#endif
				fi
			}
		od;
		release(me)
	:: !done[me] && TRY_FAILS(me) ->
		/* sleep_on_future(): load(state, acquire) before the rest */
		seen = wakes[me];
		sleeper_add(me);
#ifdef STATE_READ_LATE
		DRAINED(me);
#endif
		if
#ifdef ADD_WITHOUT_LOOK
		:: true ->
#else
		/* load(token, seq_cst) */
		:: LOAD(me, TOKEN) == 1 ->
#endif
#ifdef STATE_READ_LATE
			seen = wakes[me];
#endif
			/* future_sleep(); without a place its limit is near */
			(done[me] || wakes[me] != seen || !place)
#ifndef ADD_WITHOUT_LOOK
		:: else
#endif
		fi;
		seen = 0;
		sleeper_remove(me)
	od
}

#if PARKS
/* poller_shared(), while somebody else drives: progress_park() */
active proctype poller()
{
	byte parks;
	do
	:: parks < PARKS ->
		parks++;
		/* store(parked, 1, seq_cst) */
		STORE(POLLER, PARKED, 1);
#ifndef PARK_IS_RELAXED
		DRAINED(POLLER);
#endif
		if
		/* load(token, seq_cst) */
#ifndef PARK_WITHOUT_LOOK
		:: LOAD(POLLER, TOKEN) == 0 -> STORE(POLLER, PARKED, 0)
		:: else ->
#else
		:: true ->
#endif
			do
			/* load(parked, acquire), futex_wait(parked, 1): compares and queues in one step */
			:: LOAD(POLLER, PARKED) == 0 -> break
			:: LOAD(POLLER, PARKED) ->
				atomic {
					DRAINED(POLLER) ->
					if
					:: mem[PARKED] == 1 -> in_park = true
					:: else
					fi
				}
				!in_park
			od
		fi
	:: else -> break
	od
}
#endif

active proctype peer()
{
	byte sent;
	do
	:: sent < THREADS -> sent++; arrived++
	:: else -> break
	od
}
