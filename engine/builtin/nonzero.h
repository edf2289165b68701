/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * far::nonzero: the indexes of a tensor's elements that are not 0, as an i64 tensor with one row per element and one
 * column per dimension, in row-major order. NaN is not 0, -0.0 is. A scalar tensor has 1 or 0 rows without columns.
 * Inline on a shard.
 */
#ifndef FAR_BUILTIN_NONZERO_H
#define FAR_BUILTIN_NONZERO_H

#include <farcall/agent.h>

enum far_status nonzero_call(struct far_req *req, const struct far_val *args, size_t n, void *user);

#endif
