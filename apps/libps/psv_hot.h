/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * The keys of a table that are used most, of a sample: one use in PSV_HOT_SAMPLE is counted. Counts are those of
 * Space-Saving within small sets: a key that is counted for the first time takes the place of the least one of its set
 * and goes on from its count. The thread that polls the shard.
 */
#ifndef PSV_HOT_H
#define PSV_HOT_H

#include "pst_hash.h"
#include <stddef.h>

#define PSV_HOT_SAMPLE 61u /* no divisor of common numbers of keys, so that each position has its turn */
#define PSV_HOT_SETS   64u
#define PSV_HOT_WAYS   8u
#define PSV_HOT_KEYS   (PSV_HOT_SETS * PSV_HOT_WAYS)
#define PSV_HOT_RECENT 65536u /* counted uses after which all counts are halved */

/* As in replies. */
struct psv_hot_key {
	uint64_t key;
	uint64_t uses; /* of the sample; 0: none */
};

struct psv_hot {
	struct psv_hot_key set[PSV_HOT_SETS][PSV_HOT_WAYS];
	uint32_t skip;    /* keys until the next one that is counted */
	uint32_t counted; /* since the counts were halved */
};

/** Counts the uses of n keys. */
void psv_hot_use(struct psv_hot *h, const uint64_t *keys, uint32_t n);

/** Copies the keys that have uses to out[PSV_HOT_KEYS], with uses of all keys estimated; returns their number. */
size_t psv_hot_list(const struct psv_hot *h, struct psv_hot_key *out);

#endif
