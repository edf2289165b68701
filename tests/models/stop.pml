/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The end of the poller: agent_fini_pollers() of engine/agent/pollers.c against poller_shared() of engine/core/idle.c, while an
 * application thread holds the token. It polls, or waits in shard_sleep() on the descriptor that the poller sleeps on.
 *
 * Holds: the poller ends, also when the holder never releases (HOLDER_STAYS: it waits without a limit), because agent_fini_pollers()
 * says wake() and progress_unpark() again until it has.
 * Broken: STOP_WITHOUT_WAKE; with HOLDER_STAYS: STOP_ONCE (the poller may miss the one wake() or the one progress_unpark()),
 * STOP_WITHOUT_UNPARK.
 */
#define POLLER  0
#define HOLDER  1
#define STOPPER 2
#define NPROC   3

#define STOP    0
#define PARKED  1
#define KASLEEP 2
#define NVAR    3
#include "tso.pml"

bool token;
bool armed;
bool readable; /* the eventfd's counter is not 0 */
bool in_park;  /* in the kernel's queue of `parked` */
bool poller_ended;

active proctype poller()
{
	bool slept;
	do
	:: LOAD(POLLER, STOP) -> break
	:: else ->
		if
		:: token
		:: atomic { !token && DRAINED(POLLER) -> token = true; armed = false }
			if
			:: slept -> slept = false; readable = false
			:: true
			fi;
			if
			:: true -> atomic { DRAINED(POLLER) -> token = false } /* want, or stopping */
			:: !LOAD(POLLER, STOP) ->
				/* poller_sleep(), after poller_drive() has looked at `stop` once more */
				slept = true;
				armed = true;
				STORE(POLLER, KASLEEP, 1);
				atomic { DRAINED(POLLER) -> token = false }
				readable; /* ppoll() */
				STORE(POLLER, KASLEEP, 0)
			fi
		fi;
		/* nap(), and ticks with one holder */
		if
		:: true
		:: token ->
			/* progress_park(): store(parked, 1, seq_cst), load(token, seq_cst) */
			STORE(POLLER, PARKED, 1);
			DRAINED(POLLER);
			if
			:: !token -> STORE(POLLER, PARKED, 0)
			:: else ->
				do
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
	od;
	DRAINED(POLLER);
	poller_ended = true
}

/* progress_unpark(): store(parked, 0, release), futex_wake() */
inline unpark(p)
{
	STORE(p, PARKED, 0);
	atomic { DRAINED(p) -> in_park = false }
}

active proctype holder()
{
	byte sleeps;
	if
	:: atomic { !token && DRAINED(HOLDER) -> token = true; armed = false }
	:: token -> goto ended
	fi;
	do
	/* shard_sleep(): something ends it, the stop or the peer; wake_clear() */
	:: sleeps < 2 ->
		sleeps++;
		if
		:: readable
		:: true -> readable = true
		fi;
		readable = false
	:: true -> break
	od;
#ifndef HOLDER_STAYS
	/* shard_leave(): load(poller_asleep, relaxed), wake(); progress_release() */
	if
	:: LOAD(HOLDER, KASLEEP) && !armed -> readable = true
	:: else
	fi;
	atomic { DRAINED(HOLDER) -> token = false }
	if
	:: LOAD(HOLDER, PARKED) -> unpark(HOLDER)
	:: else
	fi;
#endif
ended:
	skip
}

active proctype stopper()
{
#ifndef STOP_ONCE
	byte timeouts;
#endif
	/* store(stop, true, release); wake(): write(); progress_unpark() */
	STORE(STOPPER, STOP, 1);
	do
	:: poller_ended -> break /* pthread_timedjoin_np() */
	:: !poller_ended ->
#ifndef STOP_WITHOUT_WAKE
		atomic { DRAINED(STOPPER) -> readable = true }
#endif
#ifndef STOP_WITHOUT_UNPARK
		unpark(STOPPER);
#endif
#ifdef STOP_ONCE
		poller_ended
#else
		/* A timed join: repeated only when nothing else moves, which is the worst; and not for ever, so that
		 * a poller that does not hear is seen as one that is left. */
		if
		:: poller_ended
		:: timeouts < 3 -> timeout; timeouts++
		fi
#endif
	od
}
