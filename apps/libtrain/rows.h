/* SPDX-License-Identifier: BSD-3-Clause */
/** Sums of gradients, dense and sparse. Any thread. */
#ifndef FAR_LIBTRAIN_ROWS_H
#define FAR_LIBTRAIN_ROWS_H

#include "node.h"

/** Makes a sparse gradient of a tensor of this dtype and shape dense. `name`: of the operator, in errors. */
enum far_status rows_to_dense(struct far_pool *pool, const char *name, struct gradient *g,
			      const struct far_tensor *table, struct far_err *err);
/** Sums rows with the same index: the result has each index once, in ascending order. */
enum far_status rows_sum(struct far_pool *pool, const struct far_tensor *index, const struct far_tensor *rows,
			 uint64_t table_rows, struct gradient *out, struct far_err *err);
/** Adds `g` to `into`, gradients of a tensor like `of`. Takes `g`: it is none afterwards. */
enum far_status gradient_add(struct far_pool *pool, const struct far_tensor *of, struct gradient *into,
			     struct gradient *g, struct far_err *err);
/** Makes the elements the gradient's own, dense memory. */
enum far_status gradient_own(struct far_pool *pool, struct gradient *g, struct far_err *err);

#endif
