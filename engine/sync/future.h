/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: pooled, counted by reference, completed exactly once.
 *
 * `state` is the word that threads race on:
 *   bits 0–1   PENDING 0, VALUE 2, ERROR 3 (bit 1 is "done")
 *   bit 2      WAITERS: somebody sleeps on the word, or is about to
 *   bit 3      LISTENED: somebody listens, or is about to
 *   bit 4      CLAIMED: one of those who may complete it was the first and will, or has
 *   bit 5      MANUAL: the application completes it
 *   bit 6      UNBOUNDED: no call's deadline ends it
 *   bit 7      FANOUT: many calls complete it, and write to the application's memory until then
 *   bit 8      DERIVED: other futures complete it
 *   bits 9–31  nudges: a count whose change ends a sleep without completing anything, so that a sleeper takes over the
 * driver token
 *
 * Completion: the one completer writes the result, then fetch_or(done, acq_rel); whoever reads "done" with acquire sees
 * the result. If the old value had WAITERS it wakes all. A waiter sets WAITERS by compare-and-exchange on a pending
 * word and sleeps in futex_wait on exactly that value: a completion or a nudge in between changes the word, and the
 * kernel refuses to sleep. So no wake-up is lost. A nudge may reach a future that was recycled meanwhile: it changes
 * bits that mean nothing to the new life. Where several may complete it, fetch_or(CLAIMED, acq_rel) decides: who finds
 * the bit clear is the completer, the others are told so. A call's future has one completer and needs no claim.
 *
 * Listeners: LISTENED is set (fetch_or, acq_rel), then the listener is pushed (compare-and-exchange, release; acquire
 * when it fails). The completer's fetch_or is ordered with the first by the word: if it came before, the listener sees
 * "done" and runs by itself. Else the completer sees LISTENED and takes the whole list by an exchange that leaves the
 * mark "closed" (acq_rel): what was pushed before is in its hands, who comes later finds the mark and runs by itself.
 * So each runs once, either by the completer or by the thread that listens, and nobody runs another thread's. A
 * shard's waiters rely on that: what their shard completes, its driver completes.
 *
 * A future whose last reference goes while it is pending ends with CANCELLED for those who listen: nobody can complete
 * it any more.
 */
#ifndef FAR_SYNC_FUTURE_H
#define FAR_SYNC_FUTURE_H

#include "memory/buf.h"

#include <assert.h>
#include <farcall/future.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FUTURE_DONE      2u
#define FUTURE_ERROR     3u
#define FUTURE_WAITERS   4u
#define FUTURE_LISTENED  8u
#define FUTURE_CLAIMED   16u
#define FUTURE_MANUAL    32u
#define FUTURE_UNBOUNDED 64u
#define FUTURE_FANOUT    128u
#define FUTURE_DERIVED   256u
#define FUTURE_NUDGE     512u
#define FUTURE_INLINE    64u
#define FUTURE_DECODED   1 /* `code` of a value whose bytes are a struct far_val that owns nothing */
#define FUTURE_TREE      2 /* likewise: `buf` is a tree, see tree.h, whose root it is */

struct far_agent;
struct far_future;
struct shard;

/**
 * Called once when a future is done, by the thread that completes it or, when it is done already, by the one that
 * listens. The memory is the callee's again once it is called, and there is a reference of `f` until it returns.
 */
struct future_listener {
	union {
		struct future_listener *next;
		struct future_listener **rest; /* while it is called: what is called afterwards */
	};
	struct far_future *f; /* that it listens to */
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
	_Atomic uint32_t
		watch; /* number of a buffer, see watch.h; 0: none. Installed once in a life, and LISTENED then */
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
	struct far_buf *buf;  /* the data is what this buffer begins with: who keeps it may refer to it; or NULL */
	struct far_buf *tree; /* of a value that holds references: the same, read; else NULL */
	/* for `done`, from the shard and the call */
	struct far_agent *agent;
	void (*app)(void);
};

/** Reserves the memory of all futures of the process, once; later calls are a load. Before there is any shard, since it
 * maps memory. Returns the first; NULL: no address space. */
struct far_future *future_reserve(void);

/** A pending future with one reference, or NULL when FAR_FUTURES_MAX are alive, or as many as there was address space
 * for. Lock-free once they are reserved. */
struct far_future *future_alloc(struct shard *shard);

/** Futures in use in the process, by a walk over the free ones: exact when nobody takes or frees one meanwhile. */
uint32_t future_used(void);

/** Makes a done future pending again, for a call that was not sent and is tried once more. By its only waiter; what it
 * had listening to the future has been called. */
void future_reset(struct far_future *f);

/** Completes it, once. Copies the outcome's bytes; drops no reference. Any thread. */
void future_complete(struct far_future *f, const struct outcome *o);

/**
 * The same from inside listener `l` (NULL: from none): its own listeners are called when `l` has returned, before those
 * that were to come next, so that chains of any length take no stack. With `buf` the bytes lie there already, o->len of
 * them, and its reference becomes the future's.
 */
void future_complete_in(struct future_listener *l, struct far_future *f, const struct outcome *o, struct far_buf *buf);

/** Is the calling thread the one that completes it, of those who may. Once: false ever after. */
bool future_claim(struct far_future *f);

/** Says what kind it is, by the bits MANUAL, UNBOUNDED, DERIVED, or that it is claimed. Before anybody else knows it.
 */
void future_mark(struct far_future *f, uint32_t bits);

/** Has `l` called when it is done, at once if it is. The caller has a reference of `f`; `l` stays until it is called.
 * What listens to a pending one is called in the order in which it came. */
void future_listen(struct far_future *f, struct future_listener *l);

static inline uint32_t future_state(const struct far_future *f)
{
	return atomic_load_explicit(&((struct far_future *)(uintptr_t)f)->state, memory_order_acquire);
}

static inline bool future_done(const struct far_future *f)
{
	return future_state(f) & FUTURE_DONE;
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
