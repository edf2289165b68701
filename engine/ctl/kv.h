/* SPDX-License-Identifier: BSD-3-Clause */
/** Table of keys and values behind the store. Control core of rank 0. */
#ifndef FAR_CTL_KV_H
#define FAR_CTL_KV_H

#include <stddef.h>
#include <stdint.h>

struct kv;

/** Bytes borrowed from whoever owns them. */
struct kv_bytes {
	const uint8_t *data;
	size_t len;
};

/** At most `keys_max` keys. NULL when there is no memory. */
struct kv *kv_create(size_t keys_max);
void kv_destroy(struct kv *kv);
size_t kv_count(const struct kv *kv);

/** 0; -ENOSPC when a new key would exceed the bound; -ENOMEM. Lengths are the caller's to bound. */
int kv_set(struct kv *kv, struct kv_bytes key, struct kv_bytes value);
/** 0 with the value, readable until the table is written to; -ENOENT. */
int kv_get(const struct kv *kv, struct kv_bytes key, struct kv_bytes *value);
/** Adds to a decimal number, 0 when missing: 0 with the sum; -EINVAL (no number), -ERANGE, -ENOSPC, -ENOMEM. */
int kv_add(struct kv *kv, struct kv_bytes key, int64_t delta, int64_t *sum);
/**
 * Sets when the key holds `expected`, or is missing and `expected` is empty: 0; otherwise -EEXIST with the value held
 * (empty when missing). -ENOSPC, -ENOMEM.
 */
int kv_cas(struct kv *kv, struct kv_bytes key, struct kv_bytes expected, struct kv_bytes value, struct kv_bytes *held);
/** 0 or -ENOENT. */
int kv_delete(struct kv *kv, struct kv_bytes key);

#endif
