/* SPDX-License-Identifier: BSD-3-Clause */
/** Rules of optimizers over blocks of elements in f64, and short steps. Any thread. */
#ifndef FAR_LIBTRAIN_RULES_H
#define FAR_LIBTRAIN_RULES_H

#include <farcall/optim.h>

#define RULE_STATES_MAX 3

/* A step of a parameter. */
struct step {
	const struct far_optimizer_opts *opts;
	uint64_t t;                      /* from 1 */
	double correction1, correction2; /* 1 - beta1^t, 1 - beta2^t */
};

/** Updates w[0, n), and state[k][0, n). `g` may be overwritten. */
typedef void rule_fn(const struct step *step, double *w, double *g, double *const *state, size_t n);

struct rule {
	rule_fn *apply; /* NULL: row-wise */
	unsigned states;
	bool sparse; /* takes sparse gradients */
};

/** The rule of checked options. */
struct rule rule_of(const struct far_optimizer_opts *opts);
/** Value of state `k` before the first step. */
double rule_initial(const struct far_optimizer_opts *opts, unsigned k);
/** Checks hyperparameters. */
enum far_status rule_check(const struct far_optimizer_opts *opts, struct far_err *err);

/** far_optimizer_step(), for threads that may not be held up. False: it is long, or another step runs; nothing was
 * done. */
bool optimizer_step_short(struct far_optimizer *optimizer, struct far_grads *grads, enum far_status *status,
			  struct far_err *err);

#endif
