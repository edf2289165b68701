/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: pooled, counted by reference, completed exactly once.
 *
 * `state` is the only word that threads race on:
 *   bits 0–1   PENDING 0, VALUE 2, ERROR 3 (bit 1 is "done")
 *   bit 2      WAITERS: somebody sleeps on the word, or is about to
 *   bit 3      LISTENED: `listeners` is not empty, or was not
 *   bits 8–31  nudges: a count whose change ends a sleep without completing anything, so that a sleeper takes over the
 * driver token
 *
 * Completion: the one completer writes the result, then fetch_or(done, acq_rel); whoever reads "done" with acquire sees
 * the result. If the old value had WAITERS it wakes all. A waiter sets WAITERS by compare-and-exchange on a pending
 * word and sleeps in futex_wait on exactly that value: a completion or a nudge in between changes the word, and the
 * kernel refuses to sleep. So no wake-up is lost. A nudge may reach a future that was recycled meanwhile: it changes
 * bits that mean nothing to the new life.
 *
 * Listeners: a listener is pushed onto the list (release), then LISTENED is set (acq_rel). The completer's fetch_or and
 * this one are ordered by the word: either the completer sees LISTENED, or the listener sees "done". Who sees the other
 * takes the whole list by exchange and runs what it got; both may do so, and each listener is in exactly one's hands.
 */
#ifndef FAR_XCORE_FUTURE_H
#define FAR_XCORE_FUTURE_H

#include "xcore/buf.h"

#include <assert.h>
#include <farcall/future.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FUTURE_DONE     2u
#define FUTURE_ERROR    3u
#define FUTURE_WAITERS  4u
#define FUTURE_LISTENED 8u
#define FUTURE_NUDGE    256u
#define FUTURE_INLINE   64u

struct far_agent;
struct far_future;
struct shard;

/** Called once when a future is done, by the thread that completes it or, when it is done already, by the one that
 * listens. The memory is the callee's again once it is called. */
struct future_listener {
	struct future_listener *next;
	void (*fn)(struct future_listener *l, struct far_future *f);
};

struct far_future {
	struct far_buf head; /* references; kind BUF_IN_FUTURE. The value's bytes, when inline, hold references too */
	_Atomic uint32_t state;
	uint32_t index;        /* in the pool */
	struct shard *shard;   /* that completes it; NULL: no shard does. Valid while pending */
	struct far_buf *buf;   /* bytes of the result or of the error beyond FUTURE_INLINE; NULL: inline */
	uint64_t len;          /* of the bytes */
	int32_t code;          /* of an error */
	uint8_t status;        /* enum far_status */
	uint8_t executed;      /* enum far_executed */
	_Atomic uint32_t next; /* index + 1 of the next free one, while free */
	_Atomic(struct future_listener *) listeners; /* newest first */
	alignas(64) uint8_t bytes[FUTURE_INLINE];
};

static_assert(sizeof(struct far_future) == 128, "a future is two lines: its state, and a small result");

/** What a call ended with, as the shard hands it to whoever waits. `data` is readable during the hand-over only. */
struct outcome {
	enum far_status status;
	enum far_executed executed;
	int32_t code;
	int16_t origin;   /* rank, or −1 */
	const void *data; /* value, or text of the error (not NUL-terminated) */
	size_t len;
	/* for `done`, from the shard and the call */
	struct far_agent *agent;
	void (*app)(void);
};

/** A pending future with one reference, or NULL when FAR_FUTURES_MAX are alive. May allocate a slab: not on a shard's
 * path. */
struct far_future *future_alloc(struct shard *shard);

/** Makes a done future pending again, for a call that was not sent and is tried once more. Its only waiter's thread. */
void future_reset(struct far_future *f);

/** Completes it, once. Copies the outcome's bytes; drops no reference. Any thread. */
void future_complete(struct far_future *f, const struct outcome *o);

/** Has `l` called when it is done, at once if it is. Both `f`, with a reference, and `l` stay until then. Listeners run
 * in the order they came. */
void future_listen(struct far_future *f, struct future_listener *l);

static inline bool future_done(const struct far_future *f)
{
	return atomic_load_explicit(&((struct far_future *)(uintptr_t)f)->state, memory_order_acquire) & FUTURE_DONE;
}

/** Sleeps until its state is no longer `seen` (done, or nudged since), or `until` (absolute) has come. May return
 * early. */
void future_sleep(struct far_future *f, uint32_t seen, uint64_t until);

/** Ends the sleep of those who wait for it without completing it. Any thread. */
void future_nudge(_Atomic uint32_t *state);

/** Bytes of a done future. */
const void *future_bytes(const struct far_future *f);

/* For buf.c only. */
void *future_inline(struct far_buf *b);
void future_recycle(struct far_buf *b);

#endif
