/* SPDX-License-Identifier: BSD-3-Clause */
/** Three workers that train in one process, and what tests of their gradients share.
 * Handlers: shard threads, fibers and threads of the agent. */
#ifndef TRAIN_GRADIENTS_H
#define TRAIN_GRADIENTS_H

#include "check.h"

#include <farcall/train.h>

/* The trainer; the server; a worker that has no compression. */
enum { TRAINER, SERVER, OLD, WORKERS };

#define WAIT_NS (10 * FAR_SEC) /* of a call that must not hang */

extern struct far_train *trains[WORKERS];
extern struct far_pool *pool;
struct far_agent *agent_of(int rank);
const struct far_function *gradient_functions(size_t *n);

static inline const char *name_of(int rank)
{
	static const char *const names[WORKERS] = {"worker0", "worker1", "worker2"};
	return names[rank];
}

#define OK(call) CHECK_STATUS(call, FAR_OK, &err)

/* A step of a worker: a context of its own, and a tape. */
struct step {
	int rank;
	struct far_context *context;
	struct far_tape *tape;
};

static inline struct step step_begin(int rank)
{
	struct step s = {.rank = rank};
	struct far_err err;
	OK(far_context_begin(trains[rank], &s.context, &err));
	OK(far_tape_new(pool, &s.tape, &err));
	return s;
}

static inline void step_end(struct step *s)
{
	far_tape_free(s->tape);
	far_context_end(s->context);
}

/** A leaf of these elements, for far_var_free(). */
static inline struct far_var *leaf_of(const float *elements, uint64_t n, bool grad)
{
	struct far_tensor x = far_tensor_1d(FAR_F32, (void *)(uintptr_t)elements, n);
	struct far_var *var;
	struct far_err err;
	OK(far_var_new(pool, &x, grad, &var, &err));
	return var;
}

/** Calls `function` of a worker with args[0, n). */
static inline struct far_var *call_var(struct step *s, int to, const char *function, const struct far_val *args,
				       size_t n)
{
	struct far_err err;
	struct far_val out;
	OK(far_rpc_sync(agent_of(s->rank), name_of(to), function, args, n, NULL, &out, &err));
	struct far_var *var = far_tape_recv(s->tape, s->context, &out);
	far_val_fini(&out);
	OK(far_tape_status(s->tape, &err));
	return var;
}

static inline struct far_val send_var(struct step *s, struct far_var *var)
{
	struct far_err err;
	struct far_val v = far_context_send(s->context, var, &err);
	CHECK(v.type != FAR_TYPE_NONE);
	return v;
}

static inline enum far_status backward_of(struct step *s, struct far_var *y, struct far_err *err)
{
	struct far_var *root = far_tape_sum(s->tape, y, NULL, 0, false);
	CHECK_STATUS(far_tape_status(s->tape, err), FAR_OK, err);
	return far_backward(s->context, &root, 1, NULL, WAIT_NS, err);
}

static inline const float *gradient_of(struct step *s, struct far_var *leaf)
{
	struct far_gradient g;
	CHECK(far_grads_get(far_context_grads(s->context), leaf, &g) && g.values.dtype == FAR_F32);
	return g.values.data;
}

far_fn compressed_handler, holds_handler, relays_handler;

/** Answers with `y`, and ends the step of a handler. */
enum far_status answer(struct far_req *req, struct step *s, struct far_var *y);
/** The counts of the step's context on a worker. */
struct far_context_counts counts_on(const struct step *s, int rank);

void hooks_make_calls(void);
void a_hop_is_one_call(void);
void copies_count(void);
void long_steps_are_known(void);
void second_part_passes_through(void);
void gradients_share_messages(void);
void leaves_keep_requests(void);
void views_are_sent(void);
void gradients_wait_for_no_function(void);
void gradients_arrive_while_others_run(void);
void errors_wait_for_hooks(void);
void threads_train_together(void);
void bf16_rounds_to_nearest(void);
void top_k_feeds_errors_back(void);
void old_workers_are_named(void);
void bad_bytes_are_refused(void);

#endif
