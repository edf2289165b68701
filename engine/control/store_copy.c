/* SPDX-License-Identifier: BSD-3-Clause */
/* A member's copy of the application's keys in a store of tcp://. Control thread of each member. */
#include "control/store_copy.h"

#include "base/limits.h"
#include "base/mutant.h"

#include <errno.h>
#include <stddef.h>

static void copy_replace(struct store_copy *copy, struct kv *kv)
{
	kv_destroy(copy->kv);
	copy->kv = kv;
	copy->next = NULL;
}

void store_copy_free(struct store_copy *copy)
{
	kv_destroy(copy->next);
	copy_replace(copy, NULL);
	copy->version = 0;
}

static void copy_begin(struct store_copy *copy)
{
	kv_destroy(copy->next);
	copy->next = kv_create(FAR_STORE_KEYS_MAX);
	if (!copy->next)
		store_copy_free(copy); /* without a copy, no change is acknowledged: the store finds another backup */
}

/* A change that has no room ends the copy. */
static void copy_change(struct store_copy *copy, const struct store_msg *m)
{
	struct kv *kv = copy->next ? copy->next : copy->kv;
	struct kv_bytes key = {m->key, m->key_len};
	int rc = !kv                     ? 0
		 : m->status == STORE_OK ? kv_set(kv, key, (struct kv_bytes){m->value, m->value_len})
					 : kv_delete(kv, key);
	if (rc && rc != -ENOENT)
		store_copy_free(copy);
}

uint64_t store_copy_take(struct store_copy *copy, const struct store_msg *m)
{
	if (m->key_len) {
		copy_change(copy, m);
		return 0;
	}
	if (m->status == STORE_MISSING)
		copy_begin(copy);
	else if (m->status != STORE_OK)
		store_copy_free(copy);
	if (m->status != STORE_OK)
		return 0;
	if (copy->next)
		copy_replace(copy, copy->next);
	copy->version = copy->kv ? (uint64_t)m->number : 0;
	return copy->version;
}
