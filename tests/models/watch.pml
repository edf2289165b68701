/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Waits for several futures: engine/sync/watch.c. One future is completed; two threads have entered or are entering a
 * countdown of their own in its watch, wait, and take it out again. The watch is in the future's list already: watch_make() listens
 * before others can find it.
 *
 * Holds: a thread that waits without a limit ends; a countdown is completed once, keeps its references until its last
 * user, and has its owner's only in the end.
 * Broken: FIRE_BY_LOAD, NO_CLOSED_MARK, FILL_BY_STORE, REMOVE_BY_STORE, NO_SLOT_REFERENCE, NO_FIRED_MARK, and with the
 * slot decided by a store and a look at the state instead of one exchange STORE_AND_LOOK: it needs a fence (LOOK_FENCE).
 */
#define NPROC 3 /* 0 and 1 wait, 2 completes */

/* Words: the future's state, the watch's taken, its slots, each countdown's state. */
#define STATE   0
#define TAKEN   1
#define PLACE(k) (2 + (k))
#define NVAR    4
#include "tso.pml"

#define DONE 1

/* taken: a bit for each slot, and the mark. */
#define CLOSED 4

/* Slots: none, the countdown of process i as i + 1, the mark. */
#define NONE  0
#define FIRED 3

byte refs[2]; /* of the countdowns; locked instructions only */
bool over[2]; /* the countdown is completed, and its sleepers woken: future.pml */
byte ended;

inline unref(p, w)
{
	atomic { DRAINED(p) -> assert(refs[w] > 0); refs[w]-- }
}

/* countdown_step(): fetch_sub(left), future_claim(), future_complete_in() */
inline step(p, w)
{
	atomic { DRAINED(p) -> assert(refs[w] > 0 && !over[w]); over[w] = true }
}

/* slot_take(): compare-and-exchange on taken, acq_rel */
inline take_slot(p)
{
	taken = LOAD(p, TAKEN);
	do
	:: taken & CLOSED -> goto ready
	:: else ->
		k = (taken & 1 -> 1 : 0);
		atomic {
			DRAINED(p) ->
			if
			:: mem[TAKEN] == taken -> mem[TAKEN] = taken | (1 << k); break
			:: else -> taken = mem[TAKEN]
			fi
		}
	od
}

proctype waiter(byte me)
{
	byte taken, k, was;
	bool patient, entered;
	if
	:: patient = true
	:: patient = false
	fi;
	/* watch_add() */
	if
	:: LOAD(me, STATE) == DONE -> goto ready
	:: else
	fi;
	take_slot(me);
#ifndef NO_SLOT_REFERENCE
	atomic { DRAINED(me) -> refs[me]++ };
#endif
#ifdef FILL_BY_STORE
	STORE(me, PLACE(k), me + 1);
	entered = true;
#elif defined(STORE_AND_LOOK)
	STORE(me, PLACE(k), me + 1);
	entered = true;
#ifdef LOOK_FENCE
	DRAINED(me);
#endif
	if
	:: LOAD(me, STATE) == DONE -> goto leave
	:: else
	fi;
#else
	/* compare-and-exchange on the slot, empty → countdown, acq_rel */
	atomic {
		DRAINED(me) ->
		if
		:: mem[PLACE(k)] == NONE -> mem[PLACE(k)] = me + 1; entered = true
		:: else -> assert(mem[PLACE(k)] == FIRED)
		fi
	};
	if
	:: !entered -> unref(me, me); goto ready
	:: else
	fi;
#endif
	/* agent_wait_future(countdown) */
	if
	:: over[me] -> skip
	:: !patient -> skip
	fi;
leave:
	/* watch_remove(): compare-and-exchange on the slot, countdown → empty, acq_rel; then fetch_and(taken) */
#ifdef REMOVE_BY_STORE
	was = LOAD(me, PLACE(k));
	STORE(me, PLACE(k), NONE);
#else
	atomic {
		DRAINED(me) -> was = mem[PLACE(k)];
		if
		:: was == me + 1 -> mem[PLACE(k)] = NONE
		:: else
		fi
	};
#endif
	if
	:: was == me + 1 ->
		atomic { DRAINED(me) -> mem[TAKEN] = mem[TAKEN] & (7 - (1 << k)) };
		unref(me, me)
	:: else
	fi;
ready:
	assert(over[me] || !patient || LOAD(me, STATE) == DONE);
	atomic { DRAINED(me) -> ended++ }
}

/* future_complete(), then watch_fire() */
proctype completer(byte me)
{
	byte taken, k, was;
	/* publish(): fetch_or(state, done, acq_rel) */
	atomic { DRAINED(me) -> mem[STATE] = DONE };
	/* fetch_or(taken, CLOSED, acq_rel) */
	atomic {
		DRAINED(me) -> taken = mem[TAKEN];
#ifndef NO_CLOSED_MARK
		mem[TAKEN] = taken | CLOSED
#endif
	};
	do
	:: k < 2 ->
		if
		:: taken & (1 << k) ->
#ifdef FIRE_BY_LOAD
			was = LOAD(me, PLACE(k));
			STORE(me, PLACE(k), FIRED);
#elif defined(STORE_AND_LOOK) && !defined(LOOK_FENCE)
			was = LOAD(me, PLACE(k));
			if
			:: was -> atomic { DRAINED(me) -> was = mem[PLACE(k)]; mem[PLACE(k)] = FIRED }
			:: else
			fi;
#else
			/* exchange on the slot, anything → FIRED, acq_rel */
			atomic {
				DRAINED(me) -> was = mem[PLACE(k)];
#ifdef NO_FIRED_MARK
				mem[PLACE(k)] = NONE
#else
				mem[PLACE(k)] = FIRED
#endif
			};
#endif
			if
			:: was == NONE || was == FIRED
			:: else -> step(me, was - 1); unref(me, was - 1)
			fi
		:: else
		fi;
		k++
	:: else -> break
	od;
	atomic { DRAINED(me) -> ended++ }
}

init
{
	atomic { refs[0] = 1; refs[1] = 1; run waiter(0); run waiter(1); run completer(2) };
	ended == 3 -> assert(refs[0] == 1 && refs[1] == 1)
}
