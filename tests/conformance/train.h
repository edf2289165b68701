/* SPDX-License-Identifier: BSD-3-Clause */
/** Workers that train: a test joins with a far_train, and what it holds is gone everywhere at its end.
 * Main thread of each process. */
#ifndef CONFORM_TRAIN_H
#define CONFORM_TRAIN_H

#include "conform.h"

#include <farcall/train.h>

extern struct far_train *train;
extern struct far_pool *pool;
extern struct far_tape *tape; /* of the body */
extern const char *train_test;

void train_join(const char *here);
void train_leave(const char *here);

#define TRAIN(group, name)                                                                                             \
	static void group##_##name##_train(void);                                                                      \
	CONFORM_BARE(group, name)                                                                                      \
	{                                                                                                              \
		train_test = #name;                                                                                    \
		train_join(HERE);                                                                                      \
		group##_##name##_train();                                                                              \
		train_leave(HERE);                                                                                     \
	}                                                                                                              \
	static void group##_##name##_train(void)

/** A leaf [rows, cols] of f32 with each element x, freed after the test. */
struct far_var *leaf_of(size_t rows, size_t cols, double x, bool grad);
/** A leaf [rows, cols] with elements that differ. */
struct far_var *ramp(size_t rows, size_t cols, double from);
struct far_context *begin(void);
/** Sends a variable. */
struct far_val sent(struct far_context *c, struct far_var *v);
/** Calls `fn` on a worker with variables; the variable of the result is the tape's. */
struct far_var *call_vars(const char *here, struct far_context *c, const char *to, const char *fn,
			  const struct far_val *args, size_t n);
/** Arguments of CALL_VAR(): two variables. */
#define PAIR(c, a, b)            ((struct far_val[]){sent(c, a), sent(c, b)}), 2
#define CALL_VAR(c, to, fn, ...) call_vars(HERE, c, to, fn, __VA_ARGS__)
/** The variable of a reference. */
struct far_var *fetch_var(const char *here, struct far_context *c, struct far_rref *r);
#define FETCH_VAR(c, r) fetch_var(HERE, c, r)
struct far_var *total(struct far_var *x);
/** Runs far_backward() from one root, with success. */
void backward(const char *here, struct far_context *c, struct far_var *root);
#define BACKWARD(c, root) backward(HERE, c, root)
/** The gradient of a leaf in the context is that in `grads`, which a local pass made, to the last bit; or x each. */
void same_gradient(const char *here, struct far_context *c, struct far_var *leaf, struct far_grads *grads);
void gradient_is(const char *here, struct far_context *c, struct far_var *leaf, double x);
#define GRADIENT_IS(c, leaf, x)        gradient_is(HERE, c, leaf, x)
#define SAME_GRADIENT(c, leaf, grads_) same_gradient(HERE, c, leaf, grads_)
bool has_gradient(struct far_context *c, struct far_var *leaf);
/** What a worker holds of a context: variables sent and received. */
void counts_on(const char *here, const char *worker, struct far_context *c, uint64_t sent, uint64_t received);
#define COUNTS_ON(worker, c, sent_, received_) counts_on(HERE, worker, c, sent_, received_)
/** Waits until no worker holds any context. */
void gone_everywhere(const char *here);
#define GONE() gone_everywhere(HERE)

#endif
