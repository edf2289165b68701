/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Table of keys and values behind the store. Control thread of rank 0.
 *
 * Each change has a number, and the entries are in the order of their last change. A reader that stores the number up
 * to which it has read finds the keys that changed since, each once with its present value, however far behind it is.
 * Deleted keys stay in that order while a reader may need them (kv_deleted_keep()).
 */
#ifndef FAR_CONTROL_KV_H
#define FAR_CONTROL_KV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kv;
struct kv_entry;

/** Borrowed bytes. */
struct kv_bytes {
	const uint8_t *data;
	size_t len;
};

/** Creates a table of at most `keys_max` keys. NULL: no memory. */
struct kv *kv_create(size_t keys_max);
void kv_destroy(struct kv *kv);
/** Keys in the table, deleted ones excluded. */
size_t kv_count(const struct kv *kv);

/** A hash with the table's secret: a client cannot choose keys of one hash. */
uint64_t kv_hash(const struct kv *kv, const void *data, size_t len);
/** Entries that lookups have compared so far. */
uint64_t kv_probes(const struct kv *kv);

/** Sets a key: 0; -ENOSPC: a new key would exceed the bound; -ENOMEM. The caller bounds the lengths. */
int kv_set(struct kv *kv, struct kv_bytes key, struct kv_bytes value);
/** Reads a key: 0 with the value, valid until the next write to the table; -ENOENT. */
int kv_get(const struct kv *kv, struct kv_bytes key, struct kv_bytes *value);
/** Adds to a decimal number, 0 when missing: 0 with the sum; -EINVAL (no number), -ERANGE, -ENOSPC, -ENOMEM. */
int kv_add(struct kv *kv, struct kv_bytes key, int64_t delta, int64_t *sum);
/**
 * Sets when the key holds `expected`, or is missing and `expected` is empty: 0; otherwise -EEXIST with the value held
 * (empty when missing). -ENOSPC, -ENOMEM.
 */
int kv_cas(struct kv *kv, struct kv_bytes key, struct kv_bytes expected, struct kv_bytes value, struct kv_bytes *held);
/** The owner that kv_own() has set; 0: none, or the key is missing. Deletion of the key clears it. */
uint64_t kv_owner(const struct kv *kv, struct kv_bytes key);
void kv_own(struct kv *kv, struct kv_bytes key, uint64_t owner);
/** Deletes a key: 0 or -ENOENT. */
int kv_delete(struct kv *kv, struct kv_bytes key);

/** The same for a reason, which readers of changes see. */
int kv_delete_for(struct kv *kv, struct kv_bytes key, uint64_t why);

/** Number of the last change; 0: none. */
uint64_t kv_changes(const struct kv *kv);

/** A key that changed; the bytes are valid until the next write to the table. */
struct kv_change {
	uint64_t number;
	struct kv_bytes key, value;
	bool deleted;
	uint64_t why; /* of a deleted key: as kv_delete_for() was given; else 0 */
};

/** The oldest change after number `after`; NULL: none. Costs a step for each change after it. */
const struct kv_entry *kv_changes_after(const struct kv *kv, uint64_t after);
/** Fills *out with the change and returns the next one; NULL: none. No write to the table in between. */
const struct kv_entry *kv_change_read(const struct kv_entry *at, struct kv_change *out);
/** Sets whether deleted keys are kept; false frees those that were. They count among `keys_max`. */
void kv_deleted_keep(struct kv *kv, bool keep);
/** Frees deleted keys up to this change; returns how many are left. */
size_t kv_deleted_forget(struct kv *kv, uint64_t upto);

#endif
