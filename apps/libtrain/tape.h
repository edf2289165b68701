/* SPDX-License-Identifier: BSD-3-Clause */
/** A tape: applies operators and records their derivatives. One thread at a time. */
#ifndef FAR_LIBTRAIN_TAPE_H
#define FAR_LIBTRAIN_TAPE_H

#include "node.h"

/**
 * Applies `op` to inputs[0, n); NULL: that input is missing. outs[i] NULL: output i is not wanted as a
 * variable. Sets *outs[0, m), to NULL after an error, which the tape keeps. m <= NODE_OUTPUTS_MAX.
 */
enum far_status tape_apply(struct far_tape *tape, const struct op *op, const struct params *p,
			   struct far_var *const *inputs, size_t n, struct far_var **const *outs, size_t m);
/** The same with one output, which it returns. */
struct far_var *tape_one(struct far_tape *tape, const struct op *op, const struct params *p,
			 struct far_var *const *inputs, size_t n);

/** The tape keeps `var`, with the caller's reference. Returns `var`. */
struct far_var *tape_adopt(struct far_tape *tape, struct far_var *var);

/* Pointers of a call with `n` inputs: on the stack, or in memory of the pool. */
struct pointers {
	const void *few[NODE_INPUTS];
	const void **many;
};
/** NULL: no memory. */
const void **pointers_take(struct pointers *p, struct far_pool *pool, size_t n);
void pointers_give(struct pointers *p);

/** Runs `fn` with the workspace that it needs, in `*call->work`. `name`: of the operator. */
enum far_status call_with_work(struct far_pool *pool, const char *name, call_fn *fn, const struct call *call,
			       struct far_err *err);

#endif
