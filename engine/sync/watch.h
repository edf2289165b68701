/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Waits for several futures at once: a countdown is a future that is done after a number of steps; a watch is the part
 * of a future where countdowns are entered and removed. Any thread.
 *
 * A listener cannot be removed from a future's list, so a wait that ends early would leave its listener there, and a
 * loop over "this future or the stop signal" would fill the memory. Instead a future has one listener for all such
 * waits, its watch, made by the first wait and kept until the future is recycled, with WATCH_SLOTS slots.
 *
 * A thread owns a slot by setting its bit in `taken` (compare-and-exchange). The completion of the future sets CLOSED
 * there (fetch_or, acq_rel): it steps the countdowns of bits set before, and later bits are refused. One exchange
 * changes a slot: empty → countdown by watch_add(), countdown → empty by watch_remove(), any → FIRED by the completion.
 * FIRED means that the future is done. Each entered countdown has a reference, which belongs to the slot's content.
 */
#ifndef FAR_SYNC_WATCH_H
#define FAR_SYNC_WATCH_H

#include "sync/future.h"

/* Waits for several futures that one future can be part of at once; further waits check it every FAR_NAP_NS. */
#define WATCH_SLOTS 24u

/**
 * Allocates a countdown: a pending future with one reference that completes without a value after `left` steps, with
 * `fail_fast` also at the first failed future. NULL: no future is free.
 */
struct far_future *countdown_alloc(struct shard *shard, uint32_t left, bool fail_fast);

/** Counts one step: the done future `f`, or with `f` NULL the step reserved for the countdown's maker. `l` is the
 * listener that calls it; NULL: none. */
void countdown_step(struct future_listener *l, struct far_future *countdown, const struct far_future *f);

/**
 * Enters a countdown that is stepped when `f` completes. 0; -EALREADY: `f` is done, no step follows; -EBUSY: no slot is
 * free, or there is no memory. The caller has references of both.
 */
int watch_add(struct far_future *f, struct far_future *countdown);

/** Removes one entry of the countdown, if it has not been stepped yet. */
void watch_remove(struct far_future *f, struct far_future *countdown);

#endif
