/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key of a worker's group, as its control core, transports and drivers share it: one struct for each worker, which
 * outlives its ports. A pointer to it that is NULL stands for security=none.
 */
#ifndef FAR_BASE_GROUP_KEY_H
#define FAR_BASE_GROUP_KEY_H

#include "base/auth.h"

#include <stdatomic.h>

/**
 * `key` is the group's key bound to the group's name. A key that the group makes for itself is known once the store has
 * proven it: before the worker's addresses are published and before the first connect(). What arrives earlier comes
 * from no member and is dropped.
 */
struct group_key {
	_Atomic bool known;  /* false → true, once. Writer: the control core, release; pairs with group_key_get() */
	struct auth_key key; /* constant once known */
};

/** NULL: not known yet. Any thread. */
static inline const struct auth_key *group_key_get(const struct group_key *g)
{
	bool known = atomic_load_explicit(&((struct group_key *)g)->known, memory_order_acquire);
	return known ? &g->key : NULL;
}

/** `key` is the group's key as its file has it. Control core, or before there is one; once. */
static inline void group_key_set(struct group_key *g, const struct auth_key *key, const char *group)
{
	auth_derive(&g->key, key, "group", group);
	atomic_store_explicit(&g->known, true, memory_order_release);
}

#endif
