/* SPDX-License-Identifier: BSD-3-Clause */
/** Memory of a pool: blocks of a few sizes, kept when they are given back. Any thread. */
#ifndef FAR_LIBTRAIN_POOL_H
#define FAR_LIBTRAIN_POOL_H

#include <farcall/autograd.h>

/** A block of `bytes`, aligned to 64, not initialized. NULL: the limit is reached, or the system has no memory. */
void *pool_take(struct far_pool *pool, size_t bytes);
/** The same, zeroed. */
void *pool_zero(struct far_pool *pool, size_t bytes);
/** Gives a block back to its pool. NULL: nothing. */
void pool_give(void *block);
/** Makes `*array` of `*capacity` elements of `size` bytes larger than `n` elements. False: no memory, nothing changed.
 */
bool pool_grow(struct far_pool *pool, void **array, size_t *capacity, size_t n, size_t size);
/** The same; `*array` may be `few`, memory of the caller for the first elements, which is not given back. */
bool pool_grow_few(struct far_pool *pool, void **array, size_t *capacity, size_t n, size_t size, const void *few);

#endif
