/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Fibers: handlers that may wait. Shard thread, except functions that name another one.
 *
 * A fiber has a stack of its own out of a pool. The shard's loop runs it until it ends or waits, and does other work
 * meanwhile. A fiber may resume on another thread than the one that it left: the thread that holds the shard then.
 *
 * A wait is a record (struct fiber_wait) that listens to a future. The thread that completes the future returns the
 * record to the shard: directly when it holds the shard, else through `resumed`. The shard alone decides whether the
 * fiber still waits for it, so a wait that ends otherwise (its limit, a cancel, the end of the shard) races with
 * nothing: the record is then taken back when it arrives. `state` decides the one race that is left, between the
 * completing thread and the end of the shard (exchange, acq_rel, on both sides): the second of the two frees the
 * record.
 */
#ifndef FAR_CORE_FIBER_H
#define FAR_CORE_FIBER_H

#include "base/stack_switch.h"
#include "core/context.h"
#include "core/request.h"
#include "core/shard.h"
#include "core/timer.h"
#include "sync/future.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fiber_pool;
struct flow_frame;

enum fiber_state {
	FIBER_FREE,
	FIBER_RUNNING,
	FIBER_PARKED,
	FIBER_READY /* its wait is over */
};

enum wait_state {
	WAIT_ARMED,
	WAIT_FIRED, /* on its way to the shard */
	WAIT_ORPHAN /* the shard is gone */
};

struct fiber_wait {
	struct future_listener listener;
	_Atomic uint32_t state; /* enum wait_state */
	struct shard *shard;
	struct fiber *fiber; /* that waits for it, or gave up waiting; NULL: that request is over */
	/* No reference: the handler has one while it waits, and a wait that was given up must not keep the future from
	 * ending when nobody can complete it any more. */
	struct far_future *future;
	struct fiber_wait *next;                     /* resumed, free list */
	struct fiber_wait *stale_next, **stale_prev; /* fiber's list of those that it gave up */
	struct fiber_wait *list_next, **list_prev;   /* pool's list of those that are armed or on their way */
	struct far_buf *buf;                         /* its memory */
};

struct fiber {
	struct shard_timer timer; /* of a wait with a limit */
	struct fiber *next;       /* free list, ready list */
	struct shard *shard;
	uint8_t state;             /* enum fiber_state */
	bool cancelled;            /* waits end at once from now on */
	bool ended;                /* its handler is done */
	struct fiber_wait *wait;   /* it is parked for */
	struct fiber_wait *stale;  /* given up before the future was done: another wait for that takes them up again */
	struct flow_frame *frames; /* flows that it runs in, innermost first; NULL: none */
	struct stack_context back; /* the flow that runs it, while it runs */
	struct shard_context *context; /* top of its part of the chain, while it is parked */
	struct stack_context stack;
	/* what it runs */
	const struct message_handler *message; /* NULL: a typed function, req.fn */
	const struct message_handler *oneway;  /* what `message` stands for, when it is a one-way's */
	const uint8_t *body;
	uint64_t body_len;
	struct far_buf *buf; /* of the body beyond `line`, and the strings */
	char *strings;
	size_t strings_bytes;
	struct far_req req;
	alignas(64) uint8_t line[FAR_LINE_PAYLOAD]; /* a small body, followed by */
	char line_strings[FAR_LINE_PAYLOAD + FAR_ARGS_MAX];
};

/** Copies the request and runs its handler until it ends or waits. Refuses with FAR_RESOURCE. */
void fiber_start(struct far_req *req, const struct message_handler *m, const uint8_t *body, uint64_t len);
/** Runs fibers whose wait is over; returns how many. */
unsigned fiber_run_ready(struct shard *s);
/** Takes in the waits that other threads ended. */
unsigned fiber_take_resumed(struct shard *s);
/** Nobody waits for its answer any more: its wait ends, and so will those that follow. */
void fiber_cancel(struct fiber *fb);
/** The body of its request. */
static inline void fiber_body(const struct fiber *fb, struct kept_body *out)
{
	*out = (struct kept_body){fb->body, fb->body_len, fb->buf};
}
/** shard_wait() on a fiber. */
int fiber_wait(struct fiber *fb, struct far_future *f, uint64_t until);
/** Parks for `ns`; 0: until other work has had its turn. */
int fiber_pause(struct fiber *fb, uint64_t ns);
/** Cancels all and runs them until they have ended, at most until `give_up`. Returns how many have not. */
uint32_t fiber_end_all(struct shard *s, uint64_t give_up);

static inline struct fiber_pool *fiber_pool_of(const struct shard *s)
{
	return atomic_load_explicit(&((struct shard *)(uintptr_t)s)->fibers, memory_order_acquire);
}

#endif
