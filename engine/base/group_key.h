/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The key of a worker's group, shared by its control thread, transports and drivers: one struct for each worker, which
 * outlives its ports. A NULL pointer to it means security=none. Any thread.
 */
#ifndef FAR_BASE_GROUP_KEY_H
#define FAR_BASE_GROUP_KEY_H

#include "base/auth.h"

#include <stdatomic.h>

/**
 * `key` is the group's key bound to the group's name. A key that the group makes for itself is known once the store has
 * proven it, before the worker's addresses are published and before the first connect(). Packets that arrive earlier
 * are not from members, and are dropped.
 */
struct group_key {
	_Atomic bool known;  /* false → true, once. Writer: control thread, release; pairs with group_key_get() */
	struct auth_key key; /* constant once known */
};

/** The key; NULL: not known yet. */
static inline const struct auth_key *group_key_get(const struct group_key *g)
{
	bool known = atomic_load_explicit(&((struct group_key *)g)->known, memory_order_acquire);
	return known ? &g->key : NULL;
}

/** Sets the key, from the group's key as in its file, once. Control thread, or before it starts. */
static inline void group_key_set(struct group_key *g, const struct auth_key *key, const char *group)
{
	auth_derive(&g->key, key, "group", group);
	atomic_store_explicit(&g->known, true, memory_order_release);
}

#endif
