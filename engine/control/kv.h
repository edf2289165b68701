/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Table of keys and values behind the store. Control core of rank 0.
 *
 * Keys lie in the order of their last change, each change with a number of its own: whoever remembers the number up to
 * which it has looked finds what changed since, each key once with what it holds now, however far behind it is. Deleted
 * keys stay in that order as long as somebody may have to be told (kv_deleted_keep()).
 */
#ifndef FAR_CONTROL_KV_H
#define FAR_CONTROL_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv;
struct kv_entry;

/** Bytes borrowed from whoever owns them. */
struct kv_bytes {
	const uint8_t *data;
	size_t len;
};

/** At most `keys_max` keys. NULL when there is no memory. */
struct kv *kv_create(size_t keys_max);
void kv_destroy(struct kv *kv);
/** Keys that are there. */
size_t kv_count(const struct kv *kv);

/** A hash with the table's secret: only who has that can find two keys of one hash. */
uint64_t kv_hash(const struct kv *kv, const void *data, size_t len);
/** Entries that look-ups have compared so far. */
uint64_t kv_probes(const struct kv *kv);

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
/** Who the key belongs to, as kv_own() has noted; 0: nobody, or it is missing. Deleting it ends that. */
uint64_t kv_owner(const struct kv *kv, struct kv_bytes key);
void kv_own(struct kv *kv, struct kv_bytes key, uint64_t owner);
/** 0 or -ENOENT. */
int kv_delete(struct kv *kv, struct kv_bytes key);

/** Number of the last change; 0: there was none. */
uint64_t kv_changes(const struct kv *kv);

/** A key that changed; the bytes are readable until the table is written to. */
struct kv_change {
	uint64_t number;
	struct kv_bytes key, value;
	bool deleted;
};

/** The oldest of the changes after number `after`, to walk on from; NULL: there is none. Its cost is their count. */
const struct kv_entry *kv_changes_after(const struct kv *kv, uint64_t after);
/** What it is; returns the next one. The table must not be written to in between. */
const struct kv_entry *kv_change_read(const struct kv_entry *at, struct kv_change *out);
/** Deleted keys are kept from now on, or not; false forgets those that are. They count among `keys_max`. */
void kv_deleted_keep(struct kv *kv, bool keep);
/** Forgets deleted keys up to this change. Returns how many are left. */
size_t kv_deleted_forget(struct kv *kv, uint64_t upto);

#endif
