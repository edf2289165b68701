/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Futures: pooled, reference-counted results that are completed exactly once. Any thread.
 *
 * `state` is the word that threads race on:
 *   bits 0–1   PENDING 0, VALUE 2, ERROR 3 (bit 1: done)
 *   bit 2      WAITERS: a thread sleeps on the word, or is about to
 *   bit 3      LISTENED: a listener is on the list, or is about to be
 *   bit 4      CLAIMED: one of several possible completers has the right to complete it
 *   bit 5      MANUAL: the application completes it
 *   bit 6      UNBOUNDED: no call's deadline completes it
 *   bit 7      FANOUT: many calls complete it, and write to the application's memory until then
 *   bit 8      DERIVED: other futures complete it
 *   bit 9      CALL: one call completes it, and holds no reference
 *   bit 10     DROPPED: CALL, and its last reference was dropped while it was pending: its completer recycles it
 *   bit 11     TIMED: the time that the call had is known
 *   bit 12     LINE: VALUE, whose bytes are those of a reply of one line, in `bytes`; `code` is 0
 *   bits 13–31 wake counter: a change ends a sleep without a completion, so that the sleeper takes the progress token
 *
 * Completion: the completer writes the result, then fetch_add(done, acq_rel). A thread that reads "done" with acquire
 * sees the result. If the old value has WAITERS, the completer wakes all sleepers. A waiter sets WAITERS by
 * compare-and-exchange on a pending word and sleeps in futex_wait on exactly that value: a completion or a wake-up in
 * between changes the word, and the kernel refuses to sleep. So no wake-up is lost. A wake-up may reach a future that
 * was recycled meanwhile: it changes bits that have no meaning for the new use. Where several threads may complete a
 * future, fetch_or(CLAIMED, acq_rel) selects the one that finds the bit clear. The future of a call has one completer
 * and needs no claim.
 *
 * Listeners: LISTENED is set (fetch_or, acq_rel), then the listener is pushed (compare-and-exchange, release; acquire
 * on failure). Both fetch_or operations are on one word, hence ordered. Completer first: the listening thread sees
 * "done" and runs the listener itself. Listener first: the completer sees LISTENED and takes the list by an exchange
 * that leaves the mark "closed" (acq_rel); a listener pushed after that finds the mark and is run by its own thread.
 * So each listener runs once, by the completer or by the thread that added it, never by a third thread. The waits of a
 * shard depend on that: the holder of the shard completes the shard's futures.
 *
 * A call holds no reference of its future (CALL): after fetch_or(done) its completer does not touch the future again,
 * unless the old value has LISTENED or DROPPED. So a call in flight costs no counting. The first listener takes a
 * reference, which the completer drops after the listeners have run. The thread that drops the last reference of a
 * pending one does fetch_or(DROPPED, acq_rel) and leaves it to the completer; if that finds "done", it recycles it
 * itself.
 *
 * Any other pending future whose last reference is dropped completes with CANCELLED for its listeners: no completer is
 * left.
 */
#ifndef FAR_SYNC_FUTURE_H
#define FAR_SYNC_FUTURE_H

#include "base/factor.h"
#include "memory/buf.h"

#include <assert.h>
#include <farcall/future.h>
#include <farcall/rpc.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FUTURE_DONE      2u
#define FUTURE_ERROR     3u
#define FUTURE_WAITERS   4u
#define FUTURE_LISTENED  8u
#define FUTURE_CLAIMED   16u
#define FUTURE_MANUAL    32u
#define FUTURE_UNBOUNDED 64u
#define FUTURE_FANOUT    128u
#define FUTURE_DERIVED   256u
#define FUTURE_CALL      512u
#define FUTURE_DROPPED   1024u
#define FUTURE_TIMED     2048u
#define FUTURE_LINE      4096u
#define FUTURE_WAKE_UNIT 8192u
#define FUTURE_INLINE    64u
#define FUTURE_DECODED   1 /* `code` of a value whose bytes are a struct far_val that owns no memory */
#define FUTURE_TREE      2 /* `code` of a value whose bytes are the root of the tree in `buf` (value/tree.h) */

/** A pending call of a shard. Written by the shard; valid until the call's `done` is called. */
struct call_id {
	uint32_t slot; /* slot + 1; CALL_ID_WAITING: it has no slot yet; 0: neither */
	uint32_t gen;  /* generation of the slot; of a waiting call, buf_number() of its record */
};
#define CALL_ID_WAITING UINT32_MAX

struct far_agent;
struct far_future;
struct shard;

/**
 * A function that runs once when a future is done: by the completing thread, or by the listening thread if the future
 * is done already. The callee owns the memory again when it is called. `f` has a reference until the callee returns.
 */
struct future_listener {
	union {
		struct future_listener *next;  /* on the list: the listener added before it; NULL: none */
		struct future_listener **rest; /* during the call: head of the listeners that run after it */
	};
	struct far_future *f; /* the future listened to */
	void (*fn)(struct future_listener *l, struct far_future *f);
};

/**
 * Order of states: free (in the pool) → pending (future_alloc) → done (one completion) → pending again by
 * future_reset(), or free with the last reference. The completer writes `buf`, `len`, `code`, `status`, `executed` and
 * `bytes` before the state becomes done; they are constant from then on.
 */
struct far_future {
	/* ---- The thread that has it: written before the call is started, and after it has ended ---- */
	struct far_buf head;    /* reference count; kind BUF_IN_FUTURE. A borrower of inline `bytes` holds one, too */
	uint32_t index;         /* position in the pool; constant once used */
	_Atomic uint32_t next;  /* while free: index + 1 of the next free future, 0: none */
	struct shard *shard;    /* the shard that completes it; NULL: none does. Valid while pending */
	struct far_buf *buf;    /* result or error text longer than FUTURE_INLINE; NULL: in `bytes` */
	_Atomic uint32_t watch; /* buf_number() of the watch (watch.h), 0: none. Set at most once until recycled, and
				 * LISTENED then */
	_Atomic(struct future_listener *) listeners; /* newest first; a mark of future.c once taken by the completer */
	uint64_t left;                               /* ns that the call had, if TIMED */

	/* ---- The completer, once: one line, on which a thread that waits spins ---- */
	alignas(64) _Atomic uint32_t state; /* bits as above */
	uint32_t len;                       /* bytes of the result or error text, the low half: future_len() */
	union {
		struct {
			int32_t code;      /* error code; of a value FUTURE_DECODED, FUTURE_TREE or 0 */
			uint8_t status;    /* enum far_status */
			uint8_t executed;  /* enum far_executed */
			uint16_t len_high; /* bits 32 to 47 of the length */
		};
		uint64_t outcome; /* the four in one store */
	};
	uint8_t bytes[FUTURE_INLINE]; /* the last ones begin the third line */

	/* ---- The shard, of a pending CALL: no other thread reads or writes it while the call is under way ---- */
	struct call_id call;          /* the call that completes it */
	struct far_recv_buf recv_buf; /* where the caller wants the result; unset without one */
};

static_assert(offsetof(struct far_future, left) < 64 && offsetof(struct far_future, state) == 64 &&
		      offsetof(struct far_future, bytes) == 80 && sizeof(struct far_future) == 192,
	      "a line each of its owner, of its state with a small result, and of its call");

/** How a call ended: the shard passes it to the call's `done`. `data` is valid during that call only. */
struct completion {
	enum far_status status;
	enum far_executed executed;
	int32_t code;
	int16_t origin;      /* rank of the worker that reports the error, −1: this one */
	const void *data;    /* encoded value, or error text without NUL */
	size_t len;          /* bytes of `data` */
	struct far_buf *buf; /* a buffer that begins with `data`, for a callee that keeps it by reference; NULL: none */
	struct far_buf *tree; /* the value decoded, when it holds references; else NULL */
	/* set by the shard for `done` */
	struct far_agent *agent;
	void (*app)(void); /* call_start.app */
};

/* ---- Start only: maps memory ---- */

/** Reserves the memory of all futures of the process, once, before the first shard exists; later calls are one load.
 * Returns the first future; NULL: no address space. */
struct far_future *future_reserve(void);

/* ---- Any thread ---- */

/** A pending future with one reference, completed by `shard` (NULL: by no shard). NULL: all futures of the pool are in
 * use. Lock-free once the pool is reserved. */
struct far_future *future_alloc(struct shard *shard);

/** The same, of a future whose call is passed to shard_call() next, which sets `call`: that line stays the shard's. */
struct far_future *future_alloc_handed(struct shard *shard);

/** Free futures that the holder of a shard keeps, so that the usual use of a future has no locked operation but its
 * completion. All zero: none. */
struct future_cache {
	struct far_future *first; /* linked by `buf` */
	uint32_t n;
};
#define FUTURE_CACHE_MAX 256u

/** A pending future of a CALL with one reference, as future_alloc(). */
struct far_future *future_alloc_call(struct shard *shard);
static inline struct far_future *future_cache_take(struct future_cache *cache, struct shard *shard)
{
	struct far_future *f = FACTOR(FUTURES) ? cache->first : NULL;
	if (__builtin_expect(!f, 0))
		return future_alloc_call(shard);
	cache->first = (struct far_future *)f->buf;
	cache->n--;
	f->buf = NULL;
	f->shard = shard;
	atomic_store_explicit(&f->head.refs, 1, memory_order_relaxed);
	atomic_store_explicit(&f->state, FUTURE_CALL, memory_order_relaxed);
	return f;
}

/** Drops the caller's reference into the cache, if it is the last one of a future of a call that is done, and that
 * nobody listened to. false: it does not, and nothing has changed. */
static inline bool future_cache_give(struct future_cache *cache, struct far_future *f)
{
	if (!FACTOR(FUTURES) || atomic_load_explicit(&f->head.refs, memory_order_acquire) != 1 || f->buf ||
	    cache->n == FUTURE_CACHE_MAX ||
	    (atomic_load_explicit(&f->state, memory_order_relaxed) & (FUTURE_CALL | FUTURE_DONE | FUTURE_LISTENED)) !=
		    (FUTURE_CALL | FUTURE_DONE))
		return false;
	f->buf = (struct far_buf *)cache->first;
	cache->first = f;
	cache->n++;
	return true;
}

/** Returns the futures of a cache to the pool. */
void future_cache_free(struct future_cache *cache);

/** Futures in use in the process, counted by a walk over the free list: exact only without concurrent use. */
uint32_t future_used(void);

/** Makes a done future pending again. Called by its only owner, after its listeners have run. For tests. */
void future_reset(struct far_future *f);

/** Completes the future, once. Copies the bytes of `o`. The caller holds a reference, which stays; of a CALL it holds
 * none, and must not touch the future afterwards. */
void future_complete(struct far_future *f, const struct completion *o);

/** Completes the future of a CALL with a value of `len` bytes that lie in `bytes`. */
void future_complete_line(struct far_future *f, uint32_t len);

/**
 * Completes the future from inside listener `l` (NULL: outside of one). The future's own listeners run after `l`
 * returns and before the listeners that follow `l`, so a chain of futures of any length takes no stack. With `buf`
 * the o->len bytes are there already, and the reference of `buf` passes to the future.
 */
void future_complete_in(struct future_listener *l, struct far_future *f, const struct completion *o,
			struct far_buf *buf);

/** Claims the right to complete the future: true for the first caller, false for all others. */
bool future_claim(struct far_future *f);

/** Sets the kind bits: CALL, MANUAL, UNBOUNDED, DERIVED, FANOUT or CLAIMED; 0: none. Before another thread has the
 * future, or when its call was not started. */
void future_mark(struct far_future *f, uint32_t bits);
/** Marks the future of a call that has `left` nanoseconds: future_left(). */
static inline void future_mark_timed(struct far_future *f, uint32_t bits, uint64_t left)
{
	f->left = left;
	future_mark(f, bits | FUTURE_TIMED);
}
/** Nanoseconds that the call of a pending future had; 0: unknown. Called by its completer. */
static inline uint64_t future_left(const struct far_future *f)
{
	return atomic_load_explicit(&f->state, memory_order_relaxed) & FUTURE_TIMED ? f->left : 0;
}

/** Frees a future whose call was not started: its only reference. */
static inline void future_drop(struct far_future *f)
{
	future_mark(f, 0);
	buf_unref(&f->head);
}

/** Adds a listener; runs it at once when the future is done. The caller has a reference of `f`; `l` stays valid until
 * it is called. Listeners of a pending future run in the order in which they were added. */
void future_listen(struct far_future *f, struct future_listener *l);

static inline uint32_t future_state(const struct far_future *f)
{
	return atomic_load_explicit(&((struct far_future *)(uintptr_t)f)->state, memory_order_acquire);
}

static inline bool future_done(const struct far_future *f)
{
	return future_state(f) & FUTURE_DONE;
}

/** Sleeps until the state differs from `seen` (done, or woken since) or the absolute time `until` in ns. May return
 * early. */
void future_sleep(struct far_future *f, uint32_t seen, uint64_t until);

/** Ends the sleeps on the state word of a future without completing it. The future may have been recycled meanwhile. */
void future_wake(_Atomic uint32_t *state);

/** Length of a done future's result or error text. */
static inline uint64_t future_len(const struct far_future *f)
{
	return f->len | (uint64_t)f->len_high << 32;
}

/** Bytes of a done future's result or error text. */
const void *future_bytes(const struct far_future *f);

/* ---- Called by memory/buf.c only ---- */

void *future_inline(struct far_buf *b);
/** Returns a future whose last reference is gone to the pool. */
void future_recycle(struct far_buf *b);

#endif
