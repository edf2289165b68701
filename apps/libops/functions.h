/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Handlers of the functions of far::, and what they share. On a shard, or on a thread of the pool for
 * FAR_KIND_BLOCKING. The elements of arguments are the caller's memory: it may write them meanwhile. So no handler
 * relies on an element that it reads twice.
 */
#ifndef FAR_LIBOPS_FUNCTIONS_H
#define FAR_LIBOPS_FUNCTIONS_H

#include "builtin/ops_module.h"
#include "space.h"

/** A handler far::NAME; `user` is the struct ops_host. */
#define FUNCTION(name)                                                                                                 \
	enum far_status ops_call_##name(struct far_req *req, const struct far_val *args,                               \
					__attribute__((unused)) size_t n, void *user)
/* Element-wise: functions_arithmetic.c. */
FUNCTION(add);
FUNCTION(sub);
FUNCTION(mul);
FUNCTION(div);
FUNCTION(min);
FUNCTION(max);
FUNCTION(neg);
FUNCTION(relu);
FUNCTION(sigmoid);
FUNCTION(tanh);
FUNCTION(exp);
FUNCTION(log);
FUNCTION(sqrt);
/* functions_nonzero.c */
FUNCTION(nonzero);

extern const struct ops_module far_ops_module;

/** The dtype of the result of two tensors; the table is in functions_arithmetic.c. */
enum far_dtype ops_promote(enum far_dtype a, enum far_dtype b);

#endif
