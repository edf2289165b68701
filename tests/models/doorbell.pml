/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Hot and cold links of a queue, their bells, and its sleep: nic/shm/shm_recv.c against shm_flush() of
 * nic/shm/shm_queue.c. A consumer, two producers with a link each. Any hot link may turn cold at any time, as the clock
 * or another link's packets make it.
 *
 * Holds: every packet is received, though the consumer sleeps without a limit; so no packet lies in the ring of a cold
 * link whose bell is lost.
 * Holds, too: RUNG_BY_STORE, with the fence behind it. Broken: NO_FLUSH_FENCE, NO_SWEEP_FENCE, NO_ARM_FENCE,
 * NO_OWN_RING, CLEAR_AFTER_LOOK, NO_SECOND_LOOK, ASLEEP_NOT_STORED, RUNG_FIRST, RUNG_CLEARED_LAST; with RUNG_BY_STORE
 * also NO_BELL_FENCE.
 */
#define CONSUMER 0
#define NPROC    3

/* Of each link: consumer.rx_state, its bell, and its ring (the number of slots published). */
#define RX(l)   (l)
#define BELL(l) (2 + (l))
#define RING(l) (4 + (l))
#define ASLEEP  6 /* bells->asleep */
#define RUNG    7 /* bells->rung, of the line of both bells */
#define NVAR    8
#include "tso.pml"

#define RX_POLLING  0
#define RX_ASLEEP   1
#define RX_DOORBELL 2

#ifndef PACKETS
#define PACKETS 2 /* of producer 0; the other has one */
#endif
#define PACKETS_OF(l) ((l) == 0 -> PACKETS : 1)

/* shm_bell_ring(): exchange(rung, acq_rel) */
inline ring(p)
{
#ifdef RUNG_BY_STORE
	STORE(p, RUNG, 1)
#else
	atomic { DRAINED(p) -> mem[RUNG] = 1 }
#endif
}

bool readable; /* the eventfd's counter is not 0 */

active [2] proctype producer()
{
	byte link = _pid - 1, sent, state;
	do
	:: sent < PACKETS_OF(link) ->
		sent++;
		/* publish(): store(slot.word, release); shm_flush(): fence, load(rx_state, relaxed) */
		STORE(link + 1, RING(link), sent);
#ifndef NO_FLUSH_FENCE
		DRAINED(link + 1);
#endif
		state = LOAD(link + 1, RX(link));
		if
		:: state == RX_ASLEEP -> readable = true
		:: state == RX_DOORBELL ->
			/* call_consumer(): store(bell, relaxed); wake_rung(): fence, load(asleep, relaxed) */
#ifdef RUNG_FIRST
			ring(link + 1);
#endif
			STORE(link + 1, BELL(link), 1);
#ifndef RUNG_FIRST
			ring(link + 1);
#endif
#ifndef NO_BELL_FENCE
			DRAINED(link + 1);
#endif
			if
			:: LOAD(link + 1, ASLEEP) -> readable = true
			:: else
			fi
		:: else
		fi;
		state = 0
	:: else -> break
	od
}

#define ALL (head[0] == PACKETS_OF(0) && head[1] == PACKETS_OF(1))

/* recv_link(): load(slot.word, acquire) */
inline look(l)
{
	d_step {
		if
		:: LOAD(CONSUMER, RING(l)) != head[l] -> head[l] = LOAD(CONSUMER, RING(l)); n = 1; got = 1
		:: else -> got = 0
		fi
	}
}

/* take_word(), of one bell. A link that had packets turns hot, but not while armed. */
inline answer_bell(l)
{
	if
	:: LOAD(CONSUMER, BELL(l)) ->
#ifndef CLEAR_AFTER_LOOK
		STORE(CONSUMER, BELL(l), 0);
#endif
		if
		:: !hot[l] ->
#ifndef NO_SWEEP_FENCE
			DRAINED(CONSUMER);
#endif
			look(l);
			if
			:: got && !armed -> STORE(CONSUMER, RX(l), RX_POLLING); hot[l] = true
			:: else
			fi
		:: else
		fi;
#ifdef CLEAR_AFTER_LOOK
		STORE(CONSUMER, BELL(l), 0);
#endif
		got = 0
	:: else
	fi
}

/* shm_recv(): the bells first or the hot links first; here the hot ones. A link that was polled is not swept. */
inline receive()
{
	n = 0;
	if
	:: hot[0] -> look(0)
	:: else
	fi;
	if
	:: hot[1] -> look(1)
	:: else
	fi;
	if
	:: LOAD(CONSUMER, RUNG) ->
#ifndef RUNG_CLEARED_LAST
		atomic { DRAINED(CONSUMER) -> mem[RUNG] = 0 };
#endif
		answer_bell(0);
		answer_bell(1);
#ifdef RUNG_CLEARED_LAST
		atomic { DRAINED(CONSUMER) -> mem[RUNG] = 0 };
#endif
		got = 0
	:: else
	fi
}

/* turn_cold() */
inline cool(l)
{
	hot[l] = false;
	STORE(CONSUMER, RX(l), RX_DOORBELL);
#ifndef NO_OWN_RING
	STORE(CONSUMER, BELL(l), 1);
	ring(CONSUMER);
#endif
}

active proctype consumer()
{
	byte head[2], n, got;
	bool hot[2], armed;
	hot[0] = true;
	hot[1] = true;
	do
	:: ALL -> break
	:: !ALL -> receive()
	:: !ALL && hot[0] -> cool(0)
	:: !ALL && hot[1] -> cool(1)
	:: !ALL ->
		/* shm_arm(): store(rx_state, relaxed) of the hot links, store(asleep, relaxed), fence */
		armed = true;
		if
		:: hot[0] -> STORE(CONSUMER, RX(0), RX_ASLEEP)
		:: else
		fi;
		if
		:: hot[1] -> STORE(CONSUMER, RX(1), RX_ASLEEP)
		:: else
		fi;
#ifndef ASLEEP_NOT_STORED
		if
		:: !(hot[0] && hot[1]) -> STORE(CONSUMER, ASLEEP, 1)
		:: else
		fi;
#endif
#ifndef NO_ARM_FENCE
		DRAINED(CONSUMER);
#endif
		n = 0;
#ifndef NO_SECOND_LOOK
		receive();
#endif
		if
		:: n == 0 && !ALL ->
			readable ->         /* ppoll() */
			readable = false    /* shm_wake_clear() */
		:: else
		fi;
		n = 0;
		/* shm_disarm() */
		armed = false;
		if
		:: hot[0] -> STORE(CONSUMER, RX(0), RX_POLLING)
		:: else
		fi;
		if
		:: hot[1] -> STORE(CONSUMER, RX(1), RX_POLLING)
		:: else
		fi;
		STORE(CONSUMER, ASLEEP, 0)
	od
}
