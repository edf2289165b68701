/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The future of a call (FUTURE_CALL) through two generations: engine/sync/future.c.
 *
 * In its first generation two threads wait, perhaps only until their deadlines; the owner then takes it from the pool again
 * for a second call. A waker adds wakes at any time, late ones to the second generation included.
 * Each generation has its completer, which holds no reference: the thread that drops the last one of a pending future
 * leaves it to the completer.
 *
 * Holds: a generation is completed once and by its own completer; who sees "done" sees the result; nobody sleeps for ever.
 * Broken: DOUBLE_COMPLETION, NO_CAS, SLEEP_ON_REREAD, WAKE_BY_STORE, RESULT_AFTER_DONE, DROP_RECYCLES, DROP_BY_STORE,
 * DROPPED_IS_IGNORED, WAKE_IGNORES_WAITERS.
 */
#define OWNER     0
#define SECOND    1
#define COMPLETER 2 /* of the first generation */
#define LATER     3 /* of the second */
#define WAKER    4
#define NPROC     5

/* Words with plain stores: the state, and the result (f->len, f->status and the bytes). */
#define STATE  0
#define RESULT 1
#define NVAR   2
#include "tso.pml"

/* Bits of the state; the wakes above them. */
#define DONE    1
#define WAITERS 2
#define DROPPED 4
#define WAKE   8

byte refs;           /* f->head.refs; locked instructions only, but for the store of future_alloc() */
bool is_free = true; /* in the pool */
byte started;        /* the call of this generation was handed over */
bool waiting[2];     /* in the kernel's queue of the futex */
byte wakes;

/* futex_wake(): the kernel's barrier comes before it looks who waits. */
inline futex_wake_all(p)
{
	atomic { DRAINED(p) -> waiting[0] = false; waiting[1] = false }
}

/*
 * buf_unref(): fetch_sub(refs, acq_rel); the last one calls future_recycle(), which looks at the state, and leaves a
 * pending future to its completer. push() is released by a locked exchange.
 */
inline unref(p)
{
	atomic { DRAINED(p) -> assert(refs > 0); refs--; last = refs == 0 }
	if
	:: last ->
		seen = LOAD(p, STATE);
		if
		:: seen & DONE -> atomic { DRAINED(p) -> is_free = true }
		:: else ->
#ifdef DROP_RECYCLES
			atomic { DRAINED(p) -> is_free = true }
#else
#ifdef DROP_BY_STORE
			STORE(p, STATE, seen | DROPPED)
#else
			/* atomic_fetch_or(state, DROPPED, acq_rel) */
			atomic {
				DRAINED(p) -> seen = mem[STATE];
				mem[STATE] = seen | DROPPED;
				if
				:: seen & DONE -> is_free = true
				:: else
				fi
			}
#endif
#endif
		fi
	:: else
	fi
}

/* future_sleep(f, seen): may_end is the limit's having come */
inline sleep(p, may_end)
{
#ifdef NO_CAS
	STORE(p, STATE, seen | WAITERS);
	seen = seen | WAITERS;
#else
	/* atomic_compare_exchange_strong(state, seen, seen | WAITERS, acq_rel) */
	if
	:: seen & WAITERS
	:: else ->
		atomic {
			DRAINED(p) ->
			if
			:: mem[STATE] == seen -> mem[STATE] = seen | WAITERS; seen = seen | WAITERS
			:: else -> goto again
			fi
		}
	fi;
#endif
#ifdef SLEEP_ON_REREAD
	seen = LOAD(p, STATE);
#endif
	/* futex_wait(): compares and queues in one step, under the kernel's lock */
	atomic {
		DRAINED(p) ->
		if
		:: mem[STATE] == seen -> waiting[p] = true
		:: else
		fi
	}
	if
	:: !waiting[p]
	:: may_end -> waiting[p] = false
	fi
}

active proctype owner()
{
	byte seen, generation = 1;
	bool last;
	do
	:: generation <= 2 ->
		/* future_alloc(): pop() is a locked exchange, the rest are plain stores */
		atomic { is_free && DRAINED(OWNER) -> is_free = false; refs = 1 }
		STORE(OWNER, STATE, 0);
		atomic {
			DRAINED(OWNER) ->
			if
			:: generation == 1 -> refs++ /* the second waiter's */
			:: else
			fi
		}
		/* The submission ring's release store: seen after the state, which is older in the buffer. */
		atomic { DRAINED(OWNER) -> started = generation }
		do
		:: true ->
again:
			seen = LOAD(OWNER, STATE);
			if
			:: seen & DONE -> assert(LOAD(OWNER, RESULT) == generation); break
			:: else ->
				if
				:: generation == 1 -> break /* its limit has come */
				:: true -> sleep(OWNER, generation == 1)
				fi
			fi
		od;
		unref(OWNER);
		generation++
	:: else -> break
	od
}

active proctype second()
{
	byte seen;
	bool last;
	bool patient; /* chosen beforehand: who waits without a limit must not be left asleep */
	started > 0 ->
	if
	:: patient = true
	:: patient = false
	fi;
	do
	:: true ->
again:
		seen = LOAD(SECOND, STATE);
		if
		:: seen & DONE -> assert(LOAD(SECOND, RESULT) == 1); break
		:: else ->
			if
			:: !patient -> break
			:: true -> sleep(SECOND, !patient)
			fi
		fi
	od;
	unref(SECOND)
}

/* future_complete(): what nobody holds any more it recycles; what somebody holds it does not touch again */
inline complete(p, generation)
{
#ifndef RESULT_AFTER_DONE
	STORE(p, RESULT, generation);
#endif
	/* atomic_fetch_or(state, done, acq_rel) and must() */
	atomic {
		DRAINED(p) -> old = mem[STATE];
		mem[STATE] = old | DONE;
		assert(!(old & DONE))
	}
#ifdef RESULT_AFTER_DONE
	STORE(p, RESULT, generation);
#endif
#ifndef WAKE_IGNORES_WAITERS
	if
	:: old & WAITERS -> futex_wake_all(p)
	:: else
	fi;
#endif
#ifndef DROPPED_IS_IGNORED
	if
	:: old & DROPPED -> atomic { DRAINED(p) -> is_free = true }
	:: else
	fi
#else
	skip
#endif
}

active proctype completer()
{
	byte old;
	started >= 1 -> complete(COMPLETER, 1);
#ifdef DOUBLE_COMPLETION
	atomic { DRAINED(COMPLETER) -> old = mem[STATE]; mem[STATE] = old | DONE; assert(!(old & DONE)) }
#endif
}

active proctype later()
{
	byte old;
	started >= 2 -> complete(LATER, 2)
}

/* future_wake() by sync/progress.c: fetch_add(state, WAKE, acq_rel), then futex_wake() */
active proctype waker()
{
	byte was;
	do
	:: wakes < 2 ->
		wakes++;
#ifdef WAKE_BY_STORE
		was = LOAD(WAKER, STATE);
		STORE(WAKER, STATE, was + WAKE);
#else
		atomic { DRAINED(WAKER) -> mem[STATE] = mem[STATE] + WAKE }
#endif
		futex_wake_all(WAKER)
	:: break
	od
}
