/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Submission ring: calls handed to a shard by threads that do not hold it. Bounded, many producers, one consumer at a
 * time (whoever holds the driver token). Each cell carries its turn: a producer claims position p when the cell's turn
 * is the lap's first position, the consumer takes it when it is that + 1. A full ring is back-pressure that the caller
 * sees. All cells zero is an empty ring, so that they are touched on use only.
 */
#ifndef FAR_SYNC_SUBMIT_H
#define FAR_SYNC_SUBMIT_H

#include "base/limits.h"
#include "sync/future.h"

#include <assert.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <string.h>

#define SUBMIT_INLINE 48u

typedef void call_done_fn(void *user, const struct outcome *outcome);

/** One call, on whichever way it reaches the shard. `write` fills the payload in place; NULL: it is copied from `data`.
 */
struct call_start {
	uint32_t worker;    /* rank */
	uint16_t fn;        /* message id, or local index of the typed function */
	uint8_t typed;      /* flags of the request: HEAD_TYPED, and HEAD_METHOD or not; 0: a message */
	uint8_t shard;      /* the worker's */
	uint64_t deadline;  /* absolute, TIME_NEVER: none */
	uint64_t left;      /* the same, relative, when the call was made */
	uint64_t retry_ns;  /* sent again after this long; 0: never */
	call_done_fn *done; /* on the shard, exactly once, if the call was taken; NULL: a one-way message */
	void *user;
	void (*app)(void); /* for `done`: the application's own callback, of a type that `done` knows */
	const void *data;  /* read before shard_call() or submit_put() returns */
	size_t len;        /* of the payload */
	void (*write)(const void *data, void *dst, size_t len);
	struct far_buf *ready; /* not NULL: it holds a struct large_out (or, without `done`, a struct post) instead */
};

/* For initialisers on the path, which name every field: when some are left out gcc clears the whole structure first, by
 * a string instruction with a start-up cost. */
#define CALL_START_REST .deadline = 0, .left = 0, .retry_ns = 0, .ready = NULL

struct submit_cell {
	alignas(64) _Atomic uint32_t turn; /* producer's release pairs with the consumer's acquire, and back */
	uint32_t worker;
	uint16_t fn;
	uint8_t typed;
	uint8_t shard;
	bool ready; /* `buf` is call_start's */
	uint64_t deadline;
	uint64_t retry_ns;
	call_done_fn *done;
	void *user;
	void (*app)(void);
	uint64_t len;
	struct far_buf *buf; /* payload beyond SUBMIT_INLINE */
	uint8_t bytes[SUBMIT_INLINE];
};

static_assert(sizeof(struct submit_cell) == 128, "a submission is two lines");

struct submit_ring {
	alignas(64) struct submit_cell *cells; /* constant, as is the mask */
	uint32_t mask;                         /* cells less one */
	alignas(64) _Atomic uint32_t tail;     /* producers claim here */
	/* Writer: the token's holder; others look whether there is work. A look that races with a pop may be wrong
	 * either way: whoever pops holds the token, and looks once more when it gives it back. */
	alignas(64) _Atomic uint32_t head;
	_Atomic uint32_t due;               /* what `next` holds when it can be taken */
	_Atomic(struct submit_cell *) next; /* at `head` */
};

/** An empty ring over cells[0, n), all zero; n is a power of two, at least FAR_SUBMIT_SLOTS_MIN. */
void submit_init(struct submit_ring *r, struct submit_cell *cells, uint32_t n);

/** 0, -EAGAIN (full) or -ENOMEM. Any thread. The caller then wakes the shard if it sleeps. */
int submit_put(struct submit_ring *r, const struct call_start *c);

/** The oldest cell, or NULL. Its contents are the token holder's; others may only see that there is one. submit_pop()
 * gives it back to the producers. */
static inline struct submit_cell *submit_peek(struct submit_ring *r)
{
	struct submit_cell *cell = atomic_load_explicit(&r->next, memory_order_relaxed);
	uint32_t due = atomic_load_explicit(&r->due, memory_order_relaxed);
	return atomic_load_explicit(&cell->turn, memory_order_acquire) == due ? cell : NULL;
}

/** The cell that is `n` behind the oldest one, or NULL: it is not there yet, or there are no more. The token's holder.
 */
static inline const struct submit_cell *submit_ahead(const struct submit_ring *r, uint32_t n)
{
	uint32_t at = atomic_load_explicit(&r->head, memory_order_relaxed) + n;
	const struct submit_cell *cell = &r->cells[at & r->mask];
	return atomic_load_explicit(&cell->turn, memory_order_acquire) == (at & ~r->mask) + 1 ? cell : NULL;
}

/** Cells put and not popped yet; any thread. What was popped is seen to have happened. */
static inline uint32_t submit_waiting(const struct submit_ring *r)
{
	uint32_t head = atomic_load_explicit(&r->head, memory_order_acquire);
	return atomic_load_explicit(&r->tail, memory_order_relaxed) - head;
}

void submit_pop(struct submit_ring *r, struct submit_cell *cell);

#endif
