/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Driver token: whoever holds it is the shard's core. Application threads take it to call and to wait; the shard's own
 * thread (the keeper) takes it when nobody else drives, or keeps it for ever (FAR_DRIVER_OWN).
 *
 * Threads that wait without the token sleep on their future, entered in `sleepers`; who gives the token back nudges one
 * of them. Give-back: store token (seq_cst), then read sleepers and parked. Going to sleep: enter (seq_cst), then try
 * the token once more. In every order one of them sees the other; the same pairing holds for `parked` and for `asleep`
 * with the submission ring.
 */
#ifndef FAR_SYNC_PROGRESS_H
#define FAR_SYNC_PROGRESS_H

#include "base/limits.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct driver {
	alignas(64) _Atomic uint32_t token; /* 1: held */
	_Atomic uint32_t
		epoch; /* times it was taken; the keeper tells by it whether anybody still drives. Writer: holder */
	_Atomic uint32_t want;   /* threads that ask the keeper to let go */
	_Atomic uint32_t asleep; /* 1: nobody polls; after a submission the wake_fd must be written. Writer: holder */
	_Atomic uint32_t parked; /* 1: the keeper sleeps on this word until the token is given back */
	_Atomic uint32_t sleepers_n;
	/** 1: a thread left work that only a poller or a waiter does. The keeper naps on this word. Writers: any thread
	 * sets it after it has given the token back; the keeper clears it, and then looks. */
	_Atomic uint32_t left;
	alignas(64) _Atomic(_Atomic uint32_t *) sleepers[FAR_SLEEPERS_MAX]; /* state words of futures, NULL: free */
};

static inline bool driver_try(struct driver *d)
{
	uint32_t free = 0;
	if (atomic_load_explicit(&d->token, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong_explicit(&d->token, &free, 1, memory_order_seq_cst, memory_order_relaxed))
		return false;
	atomic_store_explicit(&d->epoch, atomic_load_explicit(&d->epoch, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return true;
}

/** Gives the token back and sees to it that somebody who needs it wakes. */
void driver_release(struct driver *d);

/** Enters / leaves the list of sleepers; the place, or −1 when it is full. */
int driver_sleeper_add(struct driver *d, _Atomic uint32_t *state);
void driver_sleeper_remove(struct driver *d, int place);

/** The keeper parks until the token is given back; returns at once if it is free. */
void driver_park(struct driver *d);
/** Ends a park whatever the token does (stopping). */
void driver_unpark(struct driver *d);

/** Any thread, without the token: ends the keeper's nap, or has the next one end at once. */
void driver_call(struct driver *d);
/** The keeper sleeps until called or `until` (absolute). true: it was called since the last nap. */
bool driver_nap(struct driver *d, uint64_t until);

#endif
