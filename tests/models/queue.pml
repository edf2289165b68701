/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The wake-up of a queue alone, as nic/nic.h promises it: nic/shm/shm_recv.c and shm_flush() of nic/shm/shm_queue.c,
 * with all links hot (doorbell.pml has cold ones). A consumer arms, looks once more, and
 * sleeps on the descriptor; two producers (two links) put packets and flush.
 *
 * Holds: every packet is received, though the consumer sleeps without a limit.
 * Broken: NO_ARM_FENCE, NO_FLUSH_FENCE, NO_SECOND_LOOK, CLEAR_AFTER_LOOK.
 */
#define CONSUMER 0
#define NPROC    3
#define PACKETS  2 /* of each producer */

/* rx_state of a link, and its ring: the number of slots published */
#define RX(l)   (l)
#define RING(l) (2 + (l))
#define NVAR    4
#include "tso.pml"

#define POLLING 0
#define ASLEEP  1

bool readable; /* the eventfd's counter is not 0 */

active [2] proctype producer()
{
	byte link = _pid - 1, sent;
	do
	:: sent < PACKETS ->
		sent++;
		/* publish(): store(slot.word, release) */
		STORE(link + 1, RING(link), sent);
		/* shm_flush(): atomic_thread_fence(seq_cst), load(rx_state, relaxed), write() */
#ifndef NO_FLUSH_FENCE
		DRAINED(link + 1);
#endif
		if
		:: LOAD(link + 1, RX(link)) == ASLEEP -> readable = true
		:: else
		fi
	:: else -> break
	od
}

#define SOMETHING (LOAD(CONSUMER, RING(0)) != head[0] || LOAD(CONSUMER, RING(1)) != head[1])
#define ALL       (head[0] == PACKETS && head[1] == PACKETS)

/* shm_recv(): load(slot.word, acquire) of each link */
inline receive()
{
	n = 0;
	d_step {
		if
		:: LOAD(CONSUMER, RING(0)) != head[0] -> head[0] = LOAD(CONSUMER, RING(0)); n = 1
		:: else
		fi
	}
	d_step {
		if
		:: LOAD(CONSUMER, RING(1)) != head[1] -> head[1] = LOAD(CONSUMER, RING(1)); n = 1
		:: else
		fi
	}
}

active proctype consumer()
{
	byte head[2], n;
	do
	:: receive()
	:: ALL -> break
	:: !ALL ->
		/* shm_arm(): store(rx_state, relaxed) of each link, atomic_thread_fence(seq_cst) */
		STORE(CONSUMER, RX(0), ASLEEP);
		STORE(CONSUMER, RX(1), ASLEEP);
#ifndef NO_ARM_FENCE
		DRAINED(CONSUMER);
#endif
#ifndef NO_SECOND_LOOK
		receive();
#endif
		if
		:: n == 0 && !ALL ->
#ifdef CLEAR_AFTER_LOOK
			readable = false;
#endif
			readable ->         /* ppoll() */
			readable = false    /* shm_wake_clear() */
		:: else
		fi;
		/* shm_disarm(): store(rx_state, relaxed) */
		STORE(CONSUMER, RX(0), POLLING);
		STORE(CONSUMER, RX(1), POLLING)
	od
}
