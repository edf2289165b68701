/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The floor of a table: an array of rows whose row number is the key, on huge pages where the system grants them, and
 * an array of optimizer state beside it. One thread at a time.
 */
#ifndef PERF_PS_FLAT_H
#define PERF_PS_FLAT_H

#include "apps/libps/pst_slabs.h"
#include <stdint.h>

struct ps_flat {
	size_t bytes;            /* of each array */
	char *at[2];             /* rows, state */
	struct pst_slabs arr[2]; /* the same, as the kernels of the tables read them; each is one slab */
};

/** Zeros for `rows` rows of `row_bytes` bytes, faulted in. 0 or -ENOMEM. */
int ps_flat_open(struct ps_flat *f, uint64_t rows, uint32_t row_bytes);
void ps_flat_close(struct ps_flat *f);

/** Copies the rows of n keys to `out`, with prefetch. `row_bytes` may be another size than at the beginning, as long as
 * the keys are in the array. */
void ps_flat_pull(const struct ps_flat *f, const uint64_t *keys, uint32_t n, uint32_t row_bytes, void *out);

#define PS_FLAT_KEYS_MAX 4096u /* of a push */
#define PS_FLAT_DIM_MAX  256u  /* elements of its rows, a multiple of 16 */

/** Adagrad in one pass: n gradients of f32 to rows of `row_bytes`, PS_FLAT_DIM_MAX elements at most. */
void ps_flat_push(const struct ps_flat *f, const uint64_t *keys, uint32_t n, uint32_t row_bytes, const float *grads);

#endif
