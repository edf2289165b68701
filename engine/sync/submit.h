/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Submission ring: calls handed to a shard by threads that do not hold it. Bounded; many producers, one consumer at a
 * time (the holder of the progress token).
 *
 * Positions count up and wrap at 2^32; the cell of position p is p & mask, and lap = p & ~mask. A producer claims p
 * when it is less than a ring ahead of `head`, and fills its cell; the turn lap + 1 passes the cell to the consumer,
 * which passes all cells before `head` back. So the line of a small call moves once, and the consumer writes none that
 * producers read before the ring seems full. A full ring is reported to the caller as back-pressure. Zeroed cells are
 * an empty ring, so a cell's memory is touched on first use only.
 */
#ifndef FAR_SYNC_SUBMIT_H
#define FAR_SYNC_SUBMIT_H

#include "base/copy.h"
#include "base/limits.h"
#include "sync/future.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

#define SUBMIT_INLINE 48u /* bytes of a payload that lies in its cell */
#define SUBMIT_LINE   32u /* the same of a call of one line */

struct far_val;

/** What interceptors are shown of a call, and what they add to it. Before the start on the stack of the caller;
 * wrapped, it begins the memory of call_start.user, until `done` is called. */
struct call_extra {
	struct far_buf *tlv; /* wrapped: holds a struct tlv_block; NULL: nothing is added */
	bool wrapped;
	uint8_t mode; /* enum far_call_mode */
	const char *function;
	const struct far_val *args; /* readable until the start has returned */
	size_t args_n;
};

typedef void call_done_fn(void *user, const struct completion *completion);

/** The arguments of one call, whether the calling thread holds the shard or submits through the ring. */
struct call_start {
	uint32_t worker;    /* rank of the callee */
	uint16_t fn;        /* message id, or local index of the typed function */
	uint8_t typed;      /* flags of the request: PACKET_TYPED, and PACKET_METHOD or not; 0: a message */
	uint8_t shard;      /* shard of the callee */
	uint64_t deadline;  /* absolute time in ns, TIME_NEVER: none */
	uint64_t left;      /* deadline minus the time of the call, in ns; TIME_NEVER: none */
	uint64_t retry_ns;  /* interval after which the request is sent again, in ns; 0: never */
	call_done_fn *done; /* runs on the shard, exactly once, if the call was accepted; NULL: a one-way message */
	void *user;         /* argument of `done` */
	struct call_id *id; /* receives what the call is cancelled by; NULL: it is not cancelled */
	void (*app)(void);  /* the application's callback for `done`, which casts it to its type; NULL: none */
	const void *data;   /* payload; read before shard_call() or submit_put() returns */
	size_t len;         /* bytes of the payload */
	/* Writes the payload in place; larger pieces by `copy`, unless that is NULL. NULL: copy `data`. */
	void (*write)(const void *data, void *dst, size_t len, copy_fn *copy);
	struct far_buf
		*ready; /* not NULL: holds a struct rendezvous_out (without `done`: a struct post) instead of `data` */
	struct call_extra *extra; /* NULL: no interceptor sees the call */
};

/* Completes an initialiser on the fast path, so that it names every field: gcc clears a partly initialised structure by
 * a string instruction, which has a start-up cost. */
#define CALL_START_REST .deadline = 0, .left = 0, .retry_ns = 0, .id = NULL, .ready = NULL, .extra = NULL

/** A call in the ring; fields as in struct call_start. Written by the producer between its claim and turn = lap + 1,
 * read by the consumer until submit_pop(); the consumer writes nothing. A plain call is its first line: it completes a
 * future as that of submit_init(), has no `app` and is not sent again, and its payload is short. */
struct submit_cell {
	alignas(64) _Atomic uint32_t turn; /* release; pairs with the acquire of submit_peek() and submit_ahead() */
	uint32_t worker;
	uint16_t fn;
	uint8_t typed;
	uint8_t shard;
	bool plain;        /* `len` and what follows `bytes` are unset */
	bool ready;        /* `buf` is call_start.ready */
	bool extra;        /* `user` is call_start.extra */
	uint8_t plain_len; /* bytes of the payload of a plain call */
	uint64_t deadline;
	void *user;
	uint8_t bytes[SUBMIT_INLINE]; /* SUBMIT_LINE of them in the first line */
	call_done_fn *done;
	struct call_id *id;
	void (*app)(void);
	uint64_t retry_ns;
	uint64_t len;
	struct far_buf *buf; /* payload beyond SUBMIT_INLINE, or call_start.ready; NULL: in `bytes` */
};

static_assert(sizeof(struct submit_cell) == 128 && offsetof(struct submit_cell, bytes) + SUBMIT_LINE == 64,
	      "a submission is two lines, a plain one is the first");

struct submit_ring {
	alignas(64) struct submit_cell *cells; /* constant */
	uint32_t mask;                         /* number of cells − 1; constant */
	call_done_fn *done;                    /* of plain calls; constant */
	alignas(64) _Atomic uint32_t tail;     /* next position to claim; writers: producers */
	_Atomic uint32_t head_seen;            /* an earlier value of `head`; writers: producers */
	/* The consumer's position. Writer: holder of the token; other threads read the three to check for work. A check
	 * that races with a pop may be wrong either way: the popping thread holds the token, and checks once more
	 * after its release. */
	alignas(64) _Atomic uint32_t head;
	_Atomic uint32_t due;               /* turn of `next` once it can be taken */
	_Atomic(struct submit_cell *) next; /* the cell at `head` */
};

/* ---- Start only ---- */

/** Initialises an empty ring over cells[0, n), all zero; n is a power of two, at least FAR_SUBMIT_SLOTS_MIN. `done`: of
 * the calls that complete a future, `user`, and are cancelled by its `call`; NULL: no call is plain. */
void submit_init(struct submit_ring *r, struct submit_cell *cells, uint32_t n, call_done_fn *done);

/* ---- Any thread ---- */

/** Appends a call: 0, -EAGAIN (full) or -ENOMEM. The caller then wakes the shard if it sleeps. */
int submit_put(struct submit_ring *r, const struct call_start *c);

/** The oldest cell, or NULL. Only the holder of the token may read its contents; other threads may compare with NULL.
 */
static inline struct submit_cell *submit_peek(struct submit_ring *r)
{
	struct submit_cell *cell = atomic_load_explicit(&r->next, memory_order_relaxed);
	uint32_t due = atomic_load_explicit(&r->due, memory_order_relaxed);
	return atomic_load_explicit(&cell->turn, memory_order_acquire) == due ? cell : NULL;
}

/* ---- The holder of the progress token ---- */

/** The cell `n` positions after the oldest one; NULL: it is not filled. Requires n <= mask. */
static inline const struct submit_cell *submit_ahead(const struct submit_ring *r, uint32_t n)
{
	uint32_t at = atomic_load_explicit(&r->head, memory_order_relaxed) + n;
	const struct submit_cell *cell = &r->cells[at & r->mask];
	return atomic_load_explicit(&cell->turn, memory_order_acquire) == (at & ~r->mask) + 1 ? cell : NULL;
}

/** Calls claimed and not popped yet. Any thread; acquire: effects of the popped calls are visible. */
static inline uint32_t submit_waiting(const struct submit_ring *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
	return atomic_load_explicit(&r->tail, memory_order_relaxed) - head;
}

/** False for a one-way message. */
static inline bool submit_replies(const struct submit_cell *cell)
{
	return cell->plain || cell->done;
}

/** The call of a cell, but for `left`. Its payload is valid until submit_pop(). */
void submit_read(const struct submit_ring *r, const struct submit_cell *cell, struct call_start *start);

/** Returns the oldest cell, `cell`, to the producers, and drops its buffer. */
void submit_pop(struct submit_ring *r, struct submit_cell *cell);

#endif
