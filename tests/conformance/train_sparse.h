/* SPDX-License-Identifier: BSD-3-Clause */
/** Sparse matrices of workers that train: two buffers each, the positions and a variable of the values. */
#ifndef CONFORM_TRAIN_SPARSE_H
#define CONFORM_TRAIN_SPARSE_H

#include "train.h"

/* A matrix as a list of coordinates, which may repeat: what two matrices have is their sum. */
struct matrix {
	struct far_var *at;     /* i64 [n, 2], without a gradient */
	struct far_var *values; /* [n] */
	struct far_var *leaf;   /* of matrix_of(): what the values are made of */
};

/** A matrix [2, 3] with three elements around `from`; `grad`: of the values. */
struct matrix matrix_of(double from, bool grad);
/** The sum of a[0, n). */
struct matrix matrix_sum(struct far_tape *tape, const struct matrix *a, size_t n);
/** A list [positions, values] for a call; `items` has room for it. */
struct far_val matrix_sent(struct far_context *c, const struct matrix *m, struct far_val items[2]);
struct matrix matrix_read(struct far_tape *on, struct far_context *c, const struct far_val *v);

far_fn sparse_sum, sparse_nested, sparse_bounce, sparse_add_rref;

#endif
