/* SPDX-License-Identifier: BSD-3-Clause */
/** The view: the worker and the shard that own each partition. A view does not change once it is made. Any thread. */
#ifndef PSV_VIEW_H
#define PSV_VIEW_H

#include "pst_hash.h"
#include <assert.h>
#include <farcall/ps.h>

struct psv_view {
	struct psv_view *older; /* of the same holder, which frees them together */
	uint64_t epoch;
	uint32_t slots;
	struct far_to slot[FAR_PS_SHARDS_MAX];
	uint16_t owner[FAR_PS_PARTITIONS]; /* slot of a partition */
};

/** Bytes of the longest encoded view. */
#define PSV_VIEW_BYTES_MAX (16u + 12u * FAR_PS_SHARDS_MAX)

/** Divides the partitions over the shards of the workers named. INVALID, UNKNOWN_WORKER, RESOURCE. */
enum far_status psv_view_make(struct far_agent *agent, const char *const *servers, size_t n, uint64_t epoch,
			      struct psv_view **out, struct far_err *err);

/** Encoded: epoch (u64), runs (u32), 0 (u32), then of each run its first partition (u32), worker (i32), shard (u32); a
 * run ends at the next one's first partition. `bytes` has room for PSV_VIEW_BYTES_MAX. Returns the length. */
size_t psv_view_encode(const struct psv_view *view, void *bytes);
/** Decodes what a peer sent. NULL: it is no view, or there is no memory. */
struct psv_view *psv_view_decode(const void *bytes, size_t len);

/** Slot of a shard; -1: it owns nothing. */
int psv_view_slot(const struct psv_view *view, struct far_to shard);

/** Frees a view and the older ones. */
void psv_views_free(struct psv_view *view);

static_assert(FAR_PS_PARTITIONS == PST_PARTITIONS, "a partition is one of the index");

static inline unsigned psv_slot_of(const struct psv_view *view, uint64_t hash)
{
	return view->owner[pst_partition(hash)];
}

#endif
