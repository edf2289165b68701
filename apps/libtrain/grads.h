/* SPDX-License-Identifier: BSD-3-Clause */
/** Gradients of leaves. Any thread. */
#ifndef FAR_LIBTRAIN_GRADS_H
#define FAR_LIBTRAIN_GRADS_H

#include "node.h"

/* A leaf and its gradient. */
struct grad_entry {
	struct far_var *leaf; /* referred to; NULL: a free slot of the table */
	struct gradient *gradient;
};

/** Adds `g`, which it takes: it is none afterwards. Runs the leaf's hooks FAR_HOOK_AFTER. */
enum far_status grads_accumulate(struct far_grads *grads, struct far_var *leaf, struct gradient *g,
				 struct far_err *err);
/** Bytes of gradients that had several owners, or memory that is not of the pool. */
uint64_t grads_bytes_copied(struct far_grads *grads);
struct far_pool *grads_pool(const struct far_grads *grads);

/** Runs the hooks of an output. `var`: the leaf, or NULL. */
enum far_status hooks_run(const struct hook *hooks, enum far_hook_when when, unsigned output, struct far_var *var,
			  struct gradient *g, struct far_err *err);

/** Position for `key` in a table of `capacity` slots, a power of two: open addressing, linear probing. */
static inline size_t slot_of(const void *key, size_t capacity)
{
	uint64_t h = (uint64_t)(uintptr_t)key * 0x9e3779b97f4a7c15u;
	return (size_t)(h >> 32) & (capacity - 1);
}

#endif
