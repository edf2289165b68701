/* SPDX-License-Identifier: BSD-3-Clause */
/** Contexts, and the state of an agent. Any thread. */
#ifndef FAR_LIBTRAIN_TRAIN_H
#define FAR_LIBTRAIN_TRAIN_H

#include "pass.h"
#include "wire.h"

#include <farcall/train.h>
#include <pthread.h>

struct far_train {
	struct far_pool *pool;
	uint64_t (*now_ns)(void);          /* of the monotonic clock */
	_Atomic(struct far_agent *) agent; /* set by the first handler, or by far_train_init_rpc() */
	pthread_mutex_t lock;              /* of all below */
	bool joined;                       /* far_train_init_rpc() was called */
	struct far_context *contexts;
	uint64_t next;        /* number of the next context of this worker; 0: none has begun */
	unsigned open;        /* contexts of this worker that are not freed */
	struct token *tokens; /* variables on their way into a far::Parameter of this worker */
	int64_t tokens_made;
};

/* Received variables that require a gradient, of one worker. */
struct origin {
	struct origin *next;
	int32_t rank;
	uint64_t received;
};

struct far_context {
	struct far_train *train;
	struct far_context *next; /* in train->contexts */
	uint64_t id;
	_Atomic unsigned refs; /* one of the list */
	_Atomic bool ended;
	bool owned;         /* begun by this worker */
	struct hold *holds; /* train->lock: workers that wait for its end */
	struct far_grads *grads;

	pthread_mutex_t lock; /* of all below, and of the nodes while a pass runs */
	struct wire **sent;   /* variables by their numbers - 1; those without a gradient too */
	size_t sent_n, sent_capacity;
	uint64_t sent_grad, received;      /* of those that require a gradient */
	struct origin *origins;            /* what `received` came from */
	uint64_t forwards;                 /* wire_forwards() before the first of them */
	struct far_compressor *compressor; /* of gradients that are sent; NULL: none */
	struct spread *spreads;            /* passes in progress */
	uint64_t passes_begun;
	uint64_t spreads_made;

	/* Of all passes, for far_context_counts. */
	_Atomic uint64_t messages_sent, gradients_sent, bytes_sent, bytes_copied, bytes_kept;
};

/** The agent, in a handler. */
struct far_agent *train_agent(struct far_train *train, const struct far_req *req);
struct far_context *context_ref(struct far_context *context);
/** A reference to the context if it is here. NULL: it is not. */
struct far_context *context_here(struct far_train *train, uint64_t id);
enum far_status context_check(const struct far_context *context, struct far_err *err);

/** Adds "error on node N (NAME): " to the text. */
void error_on_node(struct far_agent *agent, int32_t rank, struct far_err *err);

/* Handlers of this library. */
far_fn context_hold_handler, pass_expect_handler, pass_gradient_handler, pass_large_handler, pass_packed_handler,
	pass_packed_large_handler, pass_run_handler, pass_finish_handler, pass_abort_handler;

/** Received variables of a worker that require a gradient; with context->lock. */
uint64_t context_received(const struct far_context *context, int32_t rank);
/** Passes in progress; with context->lock. */
uint64_t spreads_count(const struct far_context *context);
/** Frees the passes of a context. */
void spreads_free(struct far_context *context);

#endif
