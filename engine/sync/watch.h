/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Waiting for several futures at once: a countdown, which is itself a future, and the watch of a future, where
 * countdowns are entered and taken out again.
 *
 * A listener cannot be taken out of a future's list, and a wait that ends early must leave nothing there: who waits a
 * thousand times for "this or the stop signal" would fill the memory. So a future has one listener for all such waits,
 * its watch, made by the first and kept for the future's life, with WATCH_SLOTS places.
 *
 * A place belongs to who sets its bit in `taken` (compare-and-exchange). The future's completion sets CLOSED there
 * (fetch_or, acq_rel): bits set before it are its to look at, later ones are refused. The slot itself is decided by
 * one exchange each: empty → countdown by who enters, countdown → empty by who takes out, anything → FIRED by the
 * completion. Who finds FIRED knows that the future is done. Each entered countdown has a reference, which goes with
 * the slot's content.
 */
#ifndef FAR_SYNC_WATCH_H
#define FAR_SYNC_WATCH_H

#include "sync/future.h"

/* Waits of several futures that one future can be in at once; more look at it every FAR_NAP_NS. */
#define WATCH_SLOTS 24u

/**
 * A pending future with one reference that is done, without a value, when `left` more futures are; with `fail_fast` as
 * soon as one has failed, too. NULL: no future is free.
 */
struct far_future *countdown_alloc(struct shard *shard, uint32_t left, bool fail_fast);

/** One more is done: `f`, from inside listener `l` (NULL: from none), or with `f` NULL the one that stood for its
 * maker. */
void countdown_step(struct future_listener *l, struct far_future *countdown, const struct far_future *f);

/**
 * Has `f` counted when it is done. 0; -EALREADY: it is done, and is not counted; -EBUSY: all places are taken, or there
 * is no memory. The caller has references of both.
 */
int watch_add(struct far_future *f, struct far_future *countdown);

/** Takes one entry of the countdown out, if it is still there. */
void watch_remove(struct far_future *f, struct far_future *countdown);

#endif
