/* SPDX-License-Identifier: BSD-3-Clause */
/** Compression of gradients on their way to other workers. Any thread. */
#ifndef FAR_LIBTRAIN_COMPRESS_H
#define FAR_LIBTRAIN_COMPRESS_H

#include "node.h"

struct far_compressor;
/** NULL: nothing. */
struct far_compressor *compressor_ref(struct far_compressor *compressor);
void far_compressor_free(struct far_compressor *compressor);

/**
 * Makes `g`, which is set, what is sent to a worker for a slot. Sets `*packed` if that is not the gradient itself, but
 *   bf16:  values of this dtype, for f32 or f64; rows keep their index;
 *   top-k: values [k] and index i32 [k], the positions of these elements in ascending order; the others are 0.
 */
enum far_status compress(struct far_compressor *compressor, int32_t rank, uint64_t slot, struct gradient *g,
			 bool *packed, struct far_err *err);

/** Whether these are of compress(), for a variable like `of`. `index` NULL: there is none. */
bool is_compressed(const struct far_tensor *of, const struct far_tensor *values, const struct far_tensor *index);
/** Makes the gradient of them, from a worker that may send anything. */
enum far_status decompress(struct far_pool *pool, const struct far_tensor *of, const struct far_tensor *values,
			   const struct far_tensor *index, struct gradient *out, struct far_err *err);
/** Whether a received gradient fits the variable. INVALID: it does not, or a row is not in the table. */
enum far_status check_gradient(const struct far_tensor *of, const struct far_tensor *values,
			       const struct far_tensor *index, struct far_err *err);

#endif
