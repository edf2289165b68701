/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Progress token: the thread that holds it may run the shard. Application threads take it to make calls and to wait
 * for them. The shard's own thread, the poller, takes it when no other thread makes progress, or holds it until
 * shutdown (FAR_PROGRESS_DEDICATED).
 *
 * A thread that waits without the token registers its future's state word in `sleepers` and sleeps on it. A release of
 * the token wakes one sleeper. Release: store token (seq_cst), then load sleepers and parked. Going to sleep: register
 * (seq_cst), then try the token once more. In every order one side sees the other. The same pairing holds for `parked`,
 * and for `asleep` with the submission ring.
 *
 * A shard without a poller is polled by an event loop (FAR_PROGRESS_CALLER), which `signal` wakes in place of a parked
 * poller: the first release after progress_signal_release() writes it.
 */
#ifndef FAR_SYNC_PROGRESS_H
#define FAR_SYNC_PROGRESS_H

#include "base/limits.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct progress {
	alignas(64) _Atomic uint32_t
		token;               /* 1: held, 0: free. Writers: any thread by progress_try(), then the holder */
	_Atomic uint32_t epoch;      /* times the token was taken; unchanged: no other thread makes progress.
				      * Writer: holder */
	_Atomic uint32_t want;       /* threads that wait for the poller to release the token. Any thread */
	_Atomic uint32_t asleep;     /* 1: the shard is not polled; a submission must write the wake_fd. Writer:
				      * holder */
	_Atomic uint32_t parked;     /* 1: the poller sleeps on this word until the token is released. Set by the
				      * poller, cleared by the releasing thread */
	_Atomic uint32_t sleepers_n; /* used entries of `sleepers` */
	/** 1: a thread left work that only a poll or a waiting thread does. The poller naps on this word. Any thread
	 * sets it after its release of the token; the poller clears it, then checks for work. */
	_Atomic uint32_t left;
	const int *signal; /* eventfd of the event loop that polls the shard; NULL: a poller does. Constant */
	alignas(64) _Atomic(_Atomic uint32_t *) sleepers[FAR_SLEEPERS_MAX]; /* state words of futures, NULL: free */
};

/* ---- Any thread ---- */

/** Takes the token if it is free; does not wait. */
static inline bool progress_try(struct progress *p)
{
	uint32_t free = 0;
	if (atomic_load_explicit(&p->token, memory_order_relaxed) ||
	    !atomic_compare_exchange_strong_explicit(&p->token, &free, 1, memory_order_seq_cst, memory_order_relaxed))
		return false;
	atomic_store_explicit(&p->epoch, atomic_load_explicit(&p->epoch, memory_order_relaxed) + 1,
			      memory_order_relaxed);
	return true;
}

/** Adds a state word to the sleepers: its index, or −1 when the list is full. */
int progress_sleeper_add(struct progress *p, _Atomic uint32_t *state);
/** Removes the entry of that index (−1: no-op), and wakes another sleeper if the token is free. */
void progress_sleeper_remove(struct progress *p, int index);

/** Wakes a parked poller, whether the token is free or not (shutdown); writes `signal` if there is one. */
void progress_unpark(struct progress *p);
/**
 * Makes the next release of the token write `signal`; at once, if a thread took the token after epoch `epoch` and has
 * released it. The caller does not hold the token.
 *
 * Here: store parked, then load token (both seq_cst). A release: store token, then load parked (both seq_cst). A
 * release that finds `parked` clear precedes this load of the token, which then finds it free with a newer epoch: the
 * epoch was written before the release.
 */
void progress_signal_release(struct progress *p, uint32_t epoch);
/** Ends the poller's nap, or makes its next nap return at once. The caller does not hold the token. */
void progress_wake_poller(struct progress *p);

/* ---- The holder of the token ---- */

/** Releases the token and wakes a thread that waits for it. */
void progress_release(struct progress *p);

/* ---- The poller ---- */

/** Sleeps until the token is released; returns at once if it is free. */
void progress_park(struct progress *p);
/** Sleeps until progress_wake_poller() or the absolute time `until` in ns. true: progress_wake_poller() was called
 * since the last nap. */
bool progress_poller_nap(struct progress *p, uint64_t until);

#endif
