/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A shard that its own thread drives for ever (FAR_PROGRESS_DEDICATED): poller_dedicated(), shard_sleep() and go_to_sleep() of
 * engine/core/idle.c against a peer's flush (nic/shm/shm_queue.c), a submitter's shard_notify() (engine/core/shard.c)
 * and the control thread's mail (engine/agent/agent.c: post).
 *
 * Two fences stand between the stores of go_to_sleep() and its last look: arm()'s, which is the driver's, and its own.
 * Over shm either one is enough (both cases are run); a driver whose arm() is a system call has only the second.
 *
 * With COLD the peer's link is one of many: rx_state says DOORBELL throughout, the peer rings, and `asleep` beside the
 * bells stands where rx_state did (nic/shm/shm_recv.c; doorbell.pml has links that change).
 *
 * Holds: every packet, submission and mail is handled, though the poller sleeps without a limit.
 * Broken: NO_ARM_FENCE with NO_SLEEP_FENCE, NO_FLUSH_FENCE, NO_NOTIFY_FENCE, SLEEP_WITHOUT_PASS, ASLEEP_AFTER_PASS,
 * MAIL_AFTER_WAKE; with COLD also NO_BELL_FENCE, NO_SWEEP_FENCE.
 */
#define POLLER    0
#define PEER      1
#define SUBMITTER 2
#define CONTROL   3
#define NPROC     4

#define ASLEEP 0 /* driver.asleep */
#define RX     1 /* consumer.rx_state, 1: SHM_RX_ASLEEP; with COLD bells->asleep */
#define SOURCE 2 /* ring, submissions and mail: how many were put */
#define BELL   5 /* COLD: the link's */
#define NVAR   6
#include "tso.pml"

#define PUT(s)  (SOURCE + (s))
#define PACKETS 2
#define CALLS   2
#define MAILS   1

bool readable; /* the eventfd's counter is not 0 */

/* What a pass sees of the ring; of a cold link nothing without its bell: take_word(). */
inline hear_bell()
{
#ifdef COLD
	heard = LOAD(POLLER, BELL);
	if
	:: heard ->
		STORE(POLLER, BELL, 0);
#ifndef NO_SWEEP_FENCE
		DRAINED(POLLER)
#endif
	:: else
	fi
#else
	heard = 1
#endif
}
#define SEEN(s) (((s) != 0 || heard) && LOAD(POLLER, PUT(s)) != got[s])

active proctype poller()
{
	byte got[3], n, s, heard;
	do
	:: got[0] == PACKETS && got[1] == CALLS && got[2] == MAILS -> break
	:: else ->
		/* shard_pass(): load(slot.word, acquire), load(cell.turn, acquire); with full_pass(), and in one pass
		 * of 64, load(mail_in.tail, acquire) */
		n = 0;
		s = 0;
		hear_bell();
		do
		:: s < 3 ->
			d_step {
				if
				:: SEEN(s) -> got[s] = LOAD(POLLER, PUT(s)); n = 1
				:: else
				fi;
				s++
			}
		:: s == 2 -> break /* not the 64th */
		:: s == 3 -> break
		od;
		s = 0;
		if
		:: n -> goto next
		:: true -> goto next /* idler_step(): not yet */
		:: !n
		fi;
		/* go_to_sleep(): store(asleep, relaxed); shm_arm(): store(rx_state, relaxed), fence; fence */
#ifndef ASLEEP_AFTER_PASS
		STORE(POLLER, ASLEEP, 1);
#endif
		STORE(POLLER, RX, 1);
#ifndef NO_ARM_FENCE
		DRAINED(POLLER);
#endif
#ifndef NO_SLEEP_FENCE
		DRAINED(POLLER);
#endif
#ifndef SLEEP_WITHOUT_PASS
		n = 0;
		hear_bell();
		do
		:: s < 3 ->
			d_step {
				if
				:: SEEN(s) -> got[s] = LOAD(POLLER, PUT(s)); n = 1
				:: else
				fi;
				s++
			}
		:: else -> break
		od;
		s = 0;
#endif
#ifdef ASLEEP_AFTER_PASS
		STORE(POLLER, ASLEEP, 1);
#endif
		if
		:: n == 0 && !(got[0] == PACKETS && got[1] == CALLS && got[2] == MAILS) ->
			readable ->      /* sleep_on_wake_fd(): ppoll() without a limit */
			readable = false /* wake_clear(): read() */
		:: else
		fi;
		/* disarm(): store(rx_state, relaxed); store(asleep, relaxed) */
		STORE(POLLER, RX, 0);
		STORE(POLLER, ASLEEP, 0);
next:
		skip
	od
}

active proctype peer()
{
	byte sent;
	do
	:: sent < PACKETS ->
		sent++;
		/* publish(): store(slot.word, release); shm_flush(): fence, load(rx_state, relaxed) */
		STORE(PEER, PUT(0), sent);
#ifndef NO_FLUSH_FENCE
		DRAINED(PEER);
#endif
#ifdef COLD
		/* call_consumer(): store(bell, relaxed); wake_rung(): fence, load(asleep, relaxed) */
		STORE(PEER, BELL, 1);
#ifndef NO_BELL_FENCE
		DRAINED(PEER);
#endif
#endif
		if
		:: LOAD(PEER, RX) -> readable = true
		:: else
		fi
	:: else -> break
	od
}

active proctype submitter()
{
	byte sent;
	do
	:: sent < CALLS ->
		sent++;
		/* submit_put(): store(cell.turn, release); shard_notify(): fence, load(asleep, relaxed) */
		STORE(SUBMITTER, PUT(1), sent);
#ifndef NO_NOTIFY_FENCE
		DRAINED(SUBMITTER);
#endif
		if
		:: LOAD(SUBMITTER, ASLEEP) -> readable = true
		:: else
		fi
	:: else -> break
	od
}

/* Always writes the descriptor; nothing else orders the two, so this one counts on the lock that write() takes. */
active proctype control()
{
#ifdef MAIL_AFTER_WAKE
	readable = true;
	STORE(CONTROL, PUT(2), MAILS)
#else
	/* mailbox_put(): store(tail, release); wake() */
	STORE(CONTROL, PUT(2), MAILS);
	atomic { DRAINED(CONTROL) -> readable = true }
#endif
}
