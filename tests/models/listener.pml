/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listeners and the claim of a future: engine/sync/future.c. Two threads listen; two others race to complete it,
 * as far_future_set_value() lets them.
 *
 * Holds: it is completed once; each listener runs once, after the result can be seen and with its own fields visible,
 * run by the completer or by its own thread, never by another that listens.
 * Broken: PUSH_BEFORE_LISTENED, LATE_ONE_DRAINS, NO_CLOSED_MARK, DRAIN_WITHOUT_EXCHANGE, CLAIM_BY_LOAD,
 * LISTENED_BY_STORE, DONE_BY_STORE, PUSH_BY_STORE, RESULT_AFTER_DONE, NO_CLAIM.
 */
#define NPROC 4 /* 0 and 1 listen, 2 and 3 complete */

/* Words: the state, the head of the list, each listener's next and fn, the result. */
#define STATE   0
#define HEAD    1
#define NEXT(i) (2 + (i))
#define FN(i)   (4 + (i))
#define RESULT  6
#define NVAR    7
#include "tso.pml"

/* Bits of the state. */
#define DONE     1
#define LISTENED 2
#define CLAIMED  4

/* Heads: none, listener i as i + 1, the mark. */
#define NONE   0
#define CLOSED 3

byte ran[2];
byte completions, ended;

/* l->fn(l, f) by process p; `self` is the listener that it is, or not one */
inline call(p, i, self)
{
	assert(p >= 2 || i == self);
	assert(LOAD(p, RESULT) == 1);
	assert(LOAD(p, FN(i)) == 1);
	ran[i]++
}

/* atomic_fetch_or(state, bits, acq_rel) */
inline fetch_or(p, bits)
{
	atomic { DRAINED(p) -> old = mem[STATE]; mem[STATE] = old | (bits) }
}

/* push_listener(): compare-and-exchange on listeners, release; acquire when it fails */
inline push(p)
{
	head = LOAD(p, HEAD);
	do
	:: head == CLOSED -> break
	:: head != CLOSED ->
		STORE(p, NEXT(p), head);
#ifdef PUSH_BY_STORE
		if
		:: LOAD(p, HEAD) == head -> STORE(p, HEAD, p + 1); pushed = true; break
		:: else -> head = LOAD(p, HEAD)
		fi
#else
		atomic {
			DRAINED(p) ->
			if
			:: mem[HEAD] == head -> mem[HEAD] = p + 1; pushed = true; break
			:: else -> head = mem[HEAD]
			fi
		}
#endif
	od
}

/* take_listeners() and run_listeners(): atomic_exchange(listeners, CLOSED, acq_rel), then along next */
inline drain(p, self)
{
#ifdef DRAIN_WITHOUT_EXCHANGE
	head = LOAD(p, HEAD);
	STORE(p, HEAD, CLOSED);
#else
	atomic {
		DRAINED(p) -> head = mem[HEAD];
#if defined(NO_CLOSED_MARK) || defined(LATE_ONE_DRAINS)
		mem[HEAD] = NONE
#else
		mem[HEAD] = CLOSED
#endif
	}
#endif
	do
	:: head == NONE || head == CLOSED -> break
	:: else -> call(p, head - 1, self); head = LOAD(p, NEXT(head - 1))
	od
}

/* future_listen() */
proctype listener(byte me)
{
	byte old, head;
	bool pushed;
	STORE(me, FN(me), 1);
#ifdef PUSH_BEFORE_LISTENED
	push(me);
	fetch_or(me, LISTENED);
	if
	:: !pushed || (old & DONE) -> call(me, me, me)
	:: else
	fi;
#elif defined(LATE_ONE_DRAINS)
	push(me);
	fetch_or(me, LISTENED);
	if
	:: old & DONE -> drain(me, me)
	:: else
	fi;
#else
#ifdef LISTENED_BY_STORE
	old = LOAD(me, STATE);
	STORE(me, STATE, old | LISTENED);
#else
	fetch_or(me, LISTENED);
#endif
	if
	:: old & DONE
	:: else -> push(me)
	fi;
	if
	:: !pushed -> call(me, me, me)
	:: else
	fi;
#endif
	atomic { DRAINED(me) -> ended++ }
}

/* far_future_set_value(): future_claim(), then publish() and, when it was listened to, take_listeners() */
proctype completer(byte me)
{
	byte old, head;
#ifdef NO_CLAIM
	old = 0;
#elif defined(CLAIM_BY_LOAD)
	old = LOAD(me, STATE);
	atomic { DRAINED(me) -> mem[STATE] = mem[STATE] | CLAIMED };
#else
	fetch_or(me, CLAIMED);
#endif
	if
	:: old & CLAIMED
	:: else ->
#ifndef RESULT_AFTER_DONE
		STORE(me, RESULT, 1);
#endif
#ifdef DONE_BY_STORE
		old = LOAD(me, STATE);
		STORE(me, STATE, old | DONE);
#else
		fetch_or(me, DONE);
#endif
		assert(!(old & DONE));
#ifdef RESULT_AFTER_DONE
		STORE(me, RESULT, 1);
#endif
		completions++;
		if
		:: old & LISTENED -> drain(me, 9)
		:: else
		fi
	fi;
	atomic { DRAINED(me) -> ended++ }
}

init
{
	atomic { run listener(0); run listener(1); run completer(2); run completer(3) };
	ended == 4 -> assert(completions == 1 && ran[0] == 1 && ran[1] == 1)
}
