/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Functions and optimizers that a process has registered, by name. A record is found and used by the threads that poll
 * shards, without a lock; it is never freed, and a later registration under its name takes it over.
 */
#ifndef PSV_FUNCTIONS_H
#define PSV_FUNCTIONS_H

#include <farcall/ps.h>
#include <stdatomic.h>

struct psv_function {
	char name[FAR_PS_NAME_MAX]; /* never changes */
	_Atomic bool registered;    /* last of all fields that are written; with `users` it is a lock of readers */
	_Atomic unsigned users;     /* shards that use it just now */
	union {
		struct far_ps_fn fn;
		struct far_ps_rule_fn rule;
	};
};

/** The function of this name, held until psv_function_put(). NULL: there is none. Any thread. */
struct psv_function *psv_function_get(const char *name);
/** Likewise an optimizer. */
struct psv_function *psv_rule_get(const char *name);
/** Holds one that was found before. False: it is not registered any more. */
bool psv_function_hold(struct psv_function *f);
void psv_function_put(struct psv_function *f);

/** The values of a reduction before the first key; of FAR_PS_EACH zeros. */
void psv_reduce_begin(enum far_ps_reduce reduce, size_t n, double *to);
/** Takes `from` [width] into a reduction. */
void psv_reduce(enum far_ps_reduce reduce, unsigned width, double *to, const double *from);

/** Floats of state of a row of an optimizer. */
uint64_t psv_rule_state(const struct psv_function *f, unsigned dim);

#endif
