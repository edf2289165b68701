/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A shard that application threads and its keeper drive in turns (FAR_DRIVER_SHARED): keeper_shared(),
 * keeper_sleep(), shard_sleep() and shard_wait() of engine/shard/idle.c; shard_enter(), shard_leave() and shard_nudge()
 * of engine/shard/shard.c; driver_park(). Everybody who sleeps without a future sleeps on one eventfd, the queue's.
 *
 * Callers call the peer and wait; a call that finds the token taken is handed over. A submitter hands one item over
 * and does not wait (far_reply on a deferred request). The peer answers each call and sends one packet unasked.
 *
 * Nudges by futures are left out (driver.pml has them): a waiter's sleep may end once without a reason, and otherwise
 * only when its future is done. So what is shown here is shown of the keeper alone.
 *
 * Holds: one holder at most; everything that arrives is handled; a keeper that is left asleep is armed.
 * Broken: NO_ARM_FENCE with NO_SLEEP_FENCE, NO_FLUSH_FENCE, NO_NUDGE_FENCE, LEAVE_WITHOUT_LOOK, CLEAR_WITHOUT_TOKEN,
 * NO_REKICK, KICK_ONCE, NO_DISARM_MARK, RELEASE_IGNORES_PARKED.
 */
#ifndef CALLERS
#define CALLERS 1
#endif
#ifndef SUBMITTERS
#define SUBMITTERS 1
#endif
#define KEEPER    0
#define CALLER(c) (1 + (c))
#define SUBMITTER (1 + CALLERS)
#define PEER      (1 + CALLERS + SUBMITTERS)
#define NPROC     (2 + CALLERS + SUBMITTERS)

/* Words with plain stores. The token is stored seq_cst and otherwise exchanged: it is a variable of its own. */
#define ASLEEP  0             /* driver.asleep */
#define RX      1             /* consumer.rx_state, 1: SHM_RX_ASLEEP */
#define KASLEEP 2             /* keeper_asleep */
#define PARKED  3             /* driver.parked */
#define PACKET  4             /* slots of the ring: an answer for each caller, and one unasked */
#define PACKETS (CALLERS + 1)
#define ITEM    (PACKET + PACKETS) /* cells of the submission ring, one for each thread, and `answers` */
#define ITEMS   (CALLERS + SUBMITTERS)
#define NVAR    (ITEM + ITEMS)
#include "tso.pml"

bool token;
byte holders;
bool armed;             /* plain: the holder's */
bool readable;          /* the eventfd's counter is not 0 */
bool in_park;           /* in the kernel's queue of `parked` */
bool taken[NVAR];       /* what of the packets and items was handled; the holder's */
bool asked[CALLERS];    /* the request is with the peer */
bool done[CALLERS];     /* the future */
bool early[CALLERS];    /* its sleep ended once without a reason */
byte callers_ended, submitters_ended;

#define NEW(p, w) (LOAD(p, w) && !taken[w])
#if CALLERS + SUBMITTERS == 3
#define HAS_WORK(p) (NEW(p, ITEM) || NEW(p, ITEM + 1) || NEW(p, ITEM + 2))
#elif CALLERS + SUBMITTERS == 2
#define HAS_WORK(p) (NEW(p, ITEM) || NEW(p, ITEM + 1))
#else
#define HAS_WORK(p) NEW(p, ITEM)
#endif

/* shard_pass(): receive(), load(slot.word, acquire); then load(cell.turn, acquire) and load(answers, relaxed). The
 * futures' completions are locked and drain; here they do not, which only leaves more orders to look at. */
inline pass(p)
{
	d_step {
		n = 0;
		w = PACKET;
		do
		:: w < PACKET + PACKETS ->
			if
			:: NEW(p, w) ->
				taken[w] = true;
				n = 1;
				if
				:: w < PACKET + CALLERS -> done[w - PACKET] = true
				:: else
				fi
			:: else
			fi;
			w++
		:: else -> break
		od;
		w = 0
	}
	d_step {
		w = ITEM;
		do
		:: w < ITEM + ITEMS ->
			if
			:: NEW(p, w) ->
				taken[w] = true;
				n = 1;
				if
				:: w < ITEM + CALLERS -> asked[w - ITEM] = true
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

/* shard_enter(). driver_try(): load(token, relaxed), compare_exchange(token, 0, 1, seq_cst) */
inline enter(p)
{
	if
	:: token -> ok = false
	:: atomic { !token && DRAINED(p) -> token = true; holders++; assert(holders == 1); ok = true }
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

/* driver_release(): store(token, 0, seq_cst), load(parked, seq_cst); driver_unpark(): store(parked, 0, release),
 * futex_wake(), which has a barrier */
inline release(p)
{
	atomic { DRAINED(p) -> holders--; token = false }
#ifndef RELEASE_IGNORES_PARKED
	if
	:: LOAD(p, PARKED) ->
		STORE(p, PARKED, 0);
		atomic { DRAINED(p) -> in_park = false }
	:: else
	fi
#endif
}

/* shard_leave() */
inline leave(p)
{
	do
	:: true ->
		do
		:: HAS_WORK(p) -> pass(p)
		:: true -> break /* at last, also when others go on handing over */
		od;
		/* load(keeper_asleep, relaxed); wake(): write() */
		if
#ifdef NO_REKICK
		:: false
#elif defined(KICK_ONCE)
		:: kick -> kick = false; readable = true
#else
		:: LOAD(p, KASLEEP) && !armed -> readable = true
#endif
		:: else
		fi;
		release(p);
		/* atomic_thread_fence(seq_cst), then has_work() once more */
		DRAINED(p);
		n = 0;
#ifdef LEAVE_WITHOUT_LOOK
		break
#else
		if
		:: HAS_WORK(p) ->
			enter(p);
			if
			:: ok
			:: else -> break
			fi
		:: else -> break
		fi
#endif
	od
}

/* go_to_sleep(): store(asleep, 1, relaxed); shm_arm(): store(rx_state, relaxed), fence; fence; full_pass().
 * n == 0: asleep */
inline go_to_sleep(p)
{
	STORE(p, ASLEEP, 1);
	STORE(p, RX, 1);
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

/* shard_nudge(): fence; shard_enter() and shard_leave(), or load(asleep, relaxed) and wake() */
inline nudge(p)
{
#ifndef NO_NUDGE_FENCE
	DRAINED(p);
#endif
	enter(p);
	if
	:: ok -> leave(p)
	:: else ->
		if
		:: LOAD(p, ASLEEP) -> readable = true
		:: else
		fi
	fi
}

#define ALL_ENDED (callers_ended == CALLERS && submitters_ended == SUBMITTERS)
#define ALL_TAKEN (taken[PACKET + CALLERS] && !HAS_WORK(KEEPER))

active proctype keeper()
{
	byte n, w;
	bool ok, slept, kick;
	do
	:: true ->
		enter(KEEPER);
		if
		:: ok ->
			if
			:: slept -> readable = false; slept = false /* wake_clear(): read() */
			:: else
			fi;
			/* keeper_drive(): until somebody wants the token, which may be at any time, or idle for long */
			do
			:: pass(KEEPER);
				if
				:: true -> n = 2; break /* want */
				:: !n -> break
				:: true
				fi
			od;
			if
			:: n -> leave(KEEPER)
			:: else ->
				/* keeper_sleep() */
				go_to_sleep(KEEPER);
				if
				:: n -> leave(KEEPER)
				:: else ->
					/* store(keeper_asleep, true, relaxed) */
					armed = true;
					STORE(KEEPER, KASLEEP, 1);
					leave(KEEPER);
					/* sleep_on_wake_fd(): ppoll() without a limit. It does not clear. */
					if
					:: readable
					:: ALL_ENDED && ALL_TAKEN && !readable -> assert(armed); break
					fi;
#ifdef CLEAR_WITHOUT_TOKEN
					readable = false;
#endif
					/* store(keeper_asleep, false, relaxed) */
					STORE(KEEPER, KASLEEP, 0)
				fi;
				slept = true
			fi
		:: else
		fi;
		/* nap(); the ticks that come before driver_park() may have passed, or not */
		if
		:: true
		:: !slept && token ->
			/* driver_park(): store(parked, 1, seq_cst), load(token, seq_cst) */
			STORE(KEEPER, PARKED, 1);
			DRAINED(KEEPER);
			if
			:: !token -> STORE(KEEPER, PARKED, 0)
			:: else ->
				do
				/* load(parked, acquire); futex_wait() compares and queues in one step */
				:: LOAD(KEEPER, PARKED) == 0 -> break
				:: LOAD(KEEPER, PARKED) ->
					atomic {
						DRAINED(KEEPER) ->
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

/* drive_until(), with shard_sleep() */
inline drive(p)
{
	do
	:: done[me] -> break
	:: else ->
		pass(p);
		if
		:: !done[me] && !n ->
			go_to_sleep(p);
			if
			:: n
			:: else ->
				readable;         /* ppoll() without a limit */
				readable = false; /* wake_clear(): read() */
				disarm(p)
			fi
		:: true
		fi
	od;
	n = 0
}

active [CALLERS] proctype caller()
{
	byte n, w;
	bool ok, kick;
	byte me = _pid - 2; /* after memory() and keeper() */
	/* agent_start(): shard_call() when the token is free, else submit_put(): store(cell.turn, release) */
	enter(CALLER(me));
	if
	:: ok -> asked[me] = true; drive(CALLER(me)); leave(CALLER(me))
	:: else -> STORE(CALLER(me), ITEM + me, 1); nudge(CALLER(me))
	fi;
	/* shard_wait() */
	do
	:: done[me] -> break
	:: else ->
		enter(CALLER(me));
		if
		:: ok -> drive(CALLER(me)); leave(CALLER(me))
		:: else ->
			/* sleep_on_future(): fetch_add(sleepers_n), load(token, seq_cst); future_sleep() */
			DRAINED(CALLER(me));
			if
			:: token ->
				if
				:: done[me]
				:: atomic { !early[me] -> early[me] = true }
				fi
			:: else
			fi
		fi
	od;
	callers_ended++
}

#if SUBMITTERS
active proctype submitter()
{
	byte n, w;
	bool ok, kick;
	/* finish(): compare_exchange(answers, release) is locked; submit_put() by a callback's far_rpc_async is not:
	 * store(cell.turn, release) */
	STORE(SUBMITTER, ITEM + CALLERS, 1);
	nudge(SUBMITTER);
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
	bool unasked, answered[CALLERS];
	do
	:: !unasked -> unasked = true; send(PACKET + CALLERS)
	:: asked[0] && !answered[0] -> answered[0] = true; send(PACKET)
#if CALLERS > 1
	:: asked[1] && !answered[1] -> answered[1] = true; send(PACKET + 1)
#endif
	:: ALL_ENDED && unasked -> break
	od
}
