/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A shard that application threads and its poller drive in turns (FAR_PROGRESS_SHARED): poller_shared(),
 * poller_sleep(), shard_sleep() and shard_wait() of engine/core/idle.c; shard_enter(), shard_leave() and shard_notify()
 * of engine/core/shard.c; progress_park(). Everybody who sleeps without a future sleeps on one eventfd, the queue's.
 *
 * Callers call the peer and wait; a call that finds the token taken is handed over. A submitter hands one item over
 * and does not wait (far_reply on a deferred request): of what it finds it does what runs no application code, and calls
 * the poller for the rest (shard_leave_quietly(), progress_wake_poller()). The peer answers each call and sends one packet unsolicited.
 *
 * Wake-ups by futures are left out (progress.pml has them): a waiter's sleep may end once without a reason, and otherwise
 * only when its future is done. So what is shown here is shown of the poller alone.
 *
 * NO_POLLER, with submitters only: calls and answers that are handed over need no poller, since a thread that leaves
 * looks once more. NAP_FOREVER, with submitters only: naps end by a call alone, and the rest is handled all the same.
 *
 * Holds: one holder at most; everything that arrives is handled; a poller that is left asleep is armed.
 * Broken: NO_ARM_FENCE with NO_SLEEP_FENCE, NO_FLUSH_FENCE, NO_NOTIFY_FENCE, CLEAR_WITHOUT_TOKEN, NO_REKICK,
 * KICK_ONCE, NO_DISARM_MARK, RELEASE_IGNORES_PARKED, and with NO_POLLER: NO_NOTIFY_FENCE, LEAVE_WITHOUT_LOOK, and with
 * NAP_FOREVER: NO_CALL, CALL_BEFORE_RELEASE, CLEAR_BEFORE_NAP, LEAVE_WITHOUT_LOOK.
 */
#ifndef CALLERS
#define CALLERS 1
#endif
#ifndef SUBMITTERS
#define SUBMITTERS 1
#endif
#ifndef UNASKED
#define UNASKED 1
#endif
#define POLLER    0
#define CALLER(c) (1 + (c))
#define SUBMITTER (1 + CALLERS) /* the first */
#define PEER      (1 + CALLERS + SUBMITTERS)
#define NPROC     (2 + CALLERS + SUBMITTERS)

/* Words with plain stores. The token is stored seq_cst and otherwise exchanged: it is a variable of its own. */
#define ASLEEP  0             /* driver.asleep */
#define RX      1             /* consumer.rx_state, 1: SHM_RX_ASLEEP */
#define KASLEEP 2             /* poller_asleep */
#define PARKED  3             /* driver.parked */
#define PACKET  4             /* slots of the ring: an answer for each caller, and one unsolicited */
#define PACKETS (CALLERS + UNASKED)
#define ITEM    (PACKET + PACKETS) /* cells of the submission ring, one for each thread, and `answers` */
#define ITEMS   (CALLERS + SUBMITTERS)
#define NVAR    (ITEM + ITEMS)
#include "tso.pml"

bool token;
byte holders;
bool armed;             /* plain: the holder's */
bool readable;          /* the eventfd's counter is not 0 */
bool in_park;           /* in the kernel's queue of `parked` */
bool behind;           /* driver.left: only ever exchanged */
bool taken[NVAR];       /* what of the packets and items was handled; the holder's */
bool called[2];    /* the request is with the peer */
bool completed[2];     /* the future */
bool early[2];    /* its sleep ended once without a reason */
byte callers_ended, submitters_ended;

#define NEW(p, w) (LOAD(p, w) && !taken[w])
#if CALLERS + SUBMITTERS == 3
#define HAS_WORK(p) (NEW(p, ITEM) || NEW(p, ITEM + 1) || NEW(p, ITEM + 2))
#elif CALLERS + SUBMITTERS == 2
#define HAS_WORK(p) (NEW(p, ITEM) || NEW(p, ITEM + 1))
#else
#define HAS_WORK(p) NEW(p, ITEM)
#endif

/* shard_pass(): receive(), load(slot.word, acquire); then load(cell.turn, acquire) and load(answers, relaxed). One step:
 * each source has its own producer and pairs with that one only. A completion is locked and drains the buffer; here it
 * does not, which only leaves more orders to look at. */
inline pass(p)
{
	d_step {
		n = 0;
		w = PACKET;
		do
		:: w < NVAR ->
			if
			:: NEW(p, w) ->
				taken[w] = true;
				n = 1;
				if
				:: w < PACKET + CALLERS -> completed[w - PACKET] = true
				:: w >= ITEM && w < ITEM + CALLERS -> called[w - ITEM] = true
				:: else
				fi
			:: else
			fi;
			w++
		:: else -> break
		od;
		w = 0
	}
}

/* disarm(): store(rx_state, relaxed); store(asleep, 0, relaxed) */
inline disarm(p)
{
	STORE(p, RX, 0);
	STORE(p, ASLEEP, 0)
}

/* shard_enter(). progress_try(): load(token, relaxed), compare_exchange(token, 0, 1, seq_cst) */
inline enter(p)
{
	atomic {
		if
		:: token -> ok = false
		:: !token && DRAINED(p) ->
			token = true;
			holders++;
			assert(holders == 1);
			ok = true;
			if
			:: armed ->
#ifndef NO_DISARM_MARK
				armed = false;
#endif
#ifdef KICK_ONCE
				kick = LOAD(p, KASLEEP);
#endif
				disarm(p)
			:: else
			fi
		fi
	}
}

/* progress_release(): store(token, 0, seq_cst), load(parked, seq_cst); progress_unpark(): store(parked, 0, release),
 * futex_wake(), which has a barrier */
inline release(p)
{
	atomic { DRAINED(p) -> holders--; token = false }
#ifndef RELEASE_IGNORES_PARKED
	atomic {
		if
		:: LOAD(p, PARKED) -> STORE(p, PARKED, 0); ok = true
		:: else
		fi
	}
	if
	:: ok -> atomic { DRAINED(p) -> in_park = false; ok = false }
	:: else
	fi
#endif
}

/* shard_leave() */
inline leave(p)
{
	do
	:: HAS_WORK(p) -> pass(p)
	/* At last, also when others go on handing over: load(poller_asleep, relaxed); wake(): write() */
	:: atomic {
		true ->
		if
#ifdef NO_REKICK
		:: false
#elif defined(KICK_ONCE)
		:: kick -> kick = false; ok = true
#else
		:: LOAD(p, KASLEEP) && !armed -> ok = true
#endif
		:: else
		fi
	   }
		if
		:: ok -> atomic { readable = true; ok = false }
		:: else
		fi;
		release(p);
		n = 0;
#ifdef LEAVE_WITHOUT_LOOK
		break
#else
		/* atomic_thread_fence(seq_cst), then has_work() once more */
		atomic {
			DRAINED(p) ->
			if
			:: HAS_WORK(p) -> ok = true
			:: else
			fi
		}
		if
		:: ok ->
			enter(p);
			if
			:: ok -> ok = false
			:: else -> break
			fi
		:: else -> break
		fi
#endif
	od
}

/* go_to_sleep(): store(asleep, 1, relaxed); shm_arm(): store(rx_state, relaxed), fence; fence; full_pass().
 * n == 0: asleep. A fence and the load after it are one step: no other process can see when a fence was waited for. */
inline go_to_sleep(p)
{
	atomic {
		STORE(p, ASLEEP, 1);
		STORE(p, RX, 1)
	}
	atomic {
#ifndef NO_ARM_FENCE
		DRAINED(p);
#endif
#ifndef NO_SLEEP_FENCE
		DRAINED(p);
#endif
		pass(p);
		if
		:: n -> disarm(p)
		:: else
		fi
	}
}

/* shard_leave_quietly(), with take_quietly(): which of the items are calls or answers is a free choice */
inline give(p)
{
	do
	:: true ->
		if
		:: HAS_WORK(p) -> pass(p)
#ifndef NO_POLLER
		:: HAS_WORK(p) -> rest = true
#endif
		:: !HAS_WORK(p)
		fi;
		n = 0;
		atomic {
			if
			:: LOAD(p, KASLEEP) && !armed -> readable = true
			:: else
			fi
		}
#ifdef CALL_BEFORE_RELEASE
		if
		:: rest -> atomic { DRAINED(p) -> behind = true }
		:: else
		fi;
#endif
		release(p);
#ifdef LEAVE_WITHOUT_LOOK
		if
		:: !rest -> break
		:: else
		fi;
#endif
		if
		/* progress_wake_poller(): exchange(left, 1, seq_cst), futex_wake() */
		:: rest ->
#if !defined(NO_CALL) && !defined(CALL_BEFORE_RELEASE)
			atomic { DRAINED(p) -> behind = true };
#endif
			rest = false;
			break
		:: else ->
			atomic {
				DRAINED(p) ->
				if
				:: HAS_WORK(p) -> ok = true
				:: else
				fi
			}
			if
			:: ok ->
				enter(p);
				if
				:: ok -> ok = false
				:: else -> break
				fi
			:: else -> break
			fi
		fi
	od
}

/* shard_notify(): fence; shard_enter() and shard_leave_quietly(), or load(asleep, relaxed) and wake() */
inline notify(p)
{
#ifndef NO_NOTIFY_FENCE
	DRAINED(p);
#endif
	enter(p);
	if
	:: ok -> ok = false; give(p)
	:: else ->
		if
		:: LOAD(p, ASLEEP) -> readable = true
		:: else
		fi
	fi
}

#define ALL_ENDED (callers_ended == CALLERS && submitters_ended == SUBMITTERS)
#if UNASKED
#define ALL_TAKEN (taken[PACKET + CALLERS] && !HAS_WORK(POLLER))
#else
#define ALL_TAKEN (!HAS_WORK(POLLER))
#endif

#ifndef NO_POLLER
active proctype poller()
{
	byte n, w;
	bool ok, slept, kick;
	do
	:: true ->
		enter(POLLER);
		if
		:: ok ->
			ok = false;
			if
			:: slept -> readable = false; slept = false /* wake_clear(): read() */
			:: else
			fi;
			/* poller_drive(): until somebody wants the token, which may be at any time, or idle for long */
			do
			:: pass(POLLER);
				if
				:: true -> n = 2; break /* want */
				:: !n -> break
				:: true
				fi
			od;
			if
			:: n -> n = 0; leave(POLLER)
			:: else ->
				/* poller_sleep() */
				go_to_sleep(POLLER);
				if
				:: n -> n = 0; leave(POLLER)
				:: else ->
					/* store(poller_asleep, true, relaxed) */
					armed = true;
					STORE(POLLER, KASLEEP, 1);
					leave(POLLER);
					/* queues_sleep(): ppoll() without a limit. It does not clear. */
					if
					:: readable
					:: ALL_ENDED && ALL_TAKEN && !readable -> assert(armed); break
					fi;
#ifdef CLEAR_WITHOUT_TOKEN
					readable = false;
#endif
					/* store(poller_asleep, false, relaxed) */
					STORE(POLLER, KASLEEP, 0)
				fi;
				slept = true
			fi
		:: else
		fi;
		/* progress_poller_nap(): futex_wait() compares and queues in one step, exchange(left, 0, seq_cst); the ticks that
		 * come before progress_park() may have passed, or not */
		if
#ifdef NAP_FOREVER
#ifdef CLEAR_BEFORE_NAP
		:: atomic { DRAINED(POLLER) -> behind = false };
#else
		:: true ->
#endif
			if
			:: behind
			:: ALL_ENDED && ALL_TAKEN -> break
			fi;
			atomic { DRAINED(POLLER) -> behind = false }
#else
		:: atomic { DRAINED(POLLER) -> behind = false }
#endif
		:: token ->
			/* progress_park(): store(parked, 1, seq_cst), load(token, seq_cst) */
			STORE(POLLER, PARKED, 1);
			DRAINED(POLLER);
			if
			:: !token -> STORE(POLLER, PARKED, 0)
			:: else ->
				do
				/* load(parked, acquire); futex_wait() compares and queues in one step */
				:: LOAD(POLLER, PARKED) == 0 -> break
				:: LOAD(POLLER, PARKED) ->
					atomic {
						DRAINED(POLLER) ->
						if
						:: mem[PARKED] -> in_park = true
						:: else
						fi
					}
					!in_park
				od
			fi
		fi
	od
}

#endif

/* drive_until(), with shard_sleep() */
inline drive(p)
{
	do
	:: completed[me] -> break
	:: else ->
		pass(p);
		if
		:: !completed[me] && !n ->
			go_to_sleep(p);
			if
			:: n
			:: else ->
				readable; /* ppoll() without a limit */
				atomic {
					readable = false; /* wake_clear(): read() */
					disarm(p)
				}
			fi
		:: true
		fi
	od;
	n = 0
}

#if CALLERS
active [CALLERS] proctype caller()
{
	byte n, w;
	bool ok, kick, rest;
	byte me = _pid - 2; /* after memory() and poller() */
	/* agent_start(): shard_call() when the token is free, else submit_put(): store(cell.turn, release) */
	enter(CALLER(me));
	if
	:: ok -> ok = false; called[me] = true; drive(CALLER(me)); leave(CALLER(me))
	:: else -> STORE(CALLER(me), ITEM + me, 1); notify(CALLER(me))
	fi;
	/* shard_wait() */
	do
	:: completed[me] -> break
	:: else ->
		enter(CALLER(me));
		if
		:: ok -> ok = false; drive(CALLER(me)); leave(CALLER(me))
		:: else ->
			/* sleep_on_future(): fetch_add(sleepers_n), load(token, seq_cst); future_sleep() */
			DRAINED(CALLER(me));
			if
			:: token ->
				if
				:: completed[me]
				:: atomic { !early[me] -> early[me] = true }
				fi
			:: else
			fi
		fi
	od;
	callers_ended++
}
#endif

#if SUBMITTERS
active [SUBMITTERS] proctype submitter()
{
	byte n, w;
	bool ok, kick, rest;
#ifdef NO_POLLER
	byte me = _pid - 1;
#else
	byte me = _pid - 2 - CALLERS;
#endif
	/* submit_put(): store(cell.turn, release). (finish() puts its answer with a locked exchange.) */
	STORE(SUBMITTER + me, ITEM + CALLERS + me, 1);
	notify(SUBMITTER + me);
	submitters_ended++
}
#endif

/* publish(): store(slot.word, release); shm_flush(): fence, load(rx_state, relaxed), write() */
inline send(w)
{
	STORE(PEER, w, 1);
#ifndef NO_FLUSH_FENCE
	DRAINED(PEER);
#endif
	if
	:: LOAD(PEER, RX) -> readable = true
	:: else
	fi
}

active proctype peer()
{
	bool answered[2];
#if UNASKED
	bool unsolicited;
#else
	bool unsolicited = true;
#endif
	do
	:: !unsolicited -> unsolicited = true; send(PACKET + CALLERS)
#if CALLERS > 0
	:: called[0] && !answered[0] -> answered[0] = true; send(PACKET)
#endif
#if CALLERS > 1
	:: called[1] && !answered[1] -> answered[1] = true; send(PACKET + 1)
#endif
	:: ALL_ENDED && unsolicited -> break
	od;
#ifdef NO_POLLER
	DRAINED(SUBMITTER) && DRAINED(SUBMITTER + SUBMITTERS - 1) -> assert(!HAS_WORK(PEER))
#endif
}
