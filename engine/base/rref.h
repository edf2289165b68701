/* SPDX-License-Identifier: BSD-3-Clause */
/** What anyone may know of a remote reference: its names, and how it is counted. What it is:
 * features/references/rref.h. */
#ifndef FAR_BASE_RREF_H
#define FAR_BASE_RREF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A name that is given once: by a shard of one life of a worker, and counted there. `life`: bits 48–63 rank, the others
 * of its incarnation. `number`: bits 56–63 the shard that gave it, 48–55 of a reference the owner's shard, the others a
 * count from 1 on, of which 10^8 names in a second take a month.
 */
struct rref_id {
	uint64_t life, number;
};

#define RREF_COUNT_BITS 48u
#define RREF_COUNT_MASK ((UINT64_C(1) << RREF_COUNT_BITS) - 1)

static inline uint64_t rref_life(uint32_t rank, uint64_t incarnation)
{
	return (uint64_t)rank << RREF_COUNT_BITS | (incarnation & RREF_COUNT_MASK);
}

static inline uint32_t rref_rank(uint64_t life)
{
	return (uint32_t)(life >> RREF_COUNT_BITS);
}

static inline unsigned rref_giver_shard(struct rref_id id)
{
	return (unsigned)(id.number >> 56);
}

static inline unsigned rref_owner_shard(struct rref_id id)
{
	return (unsigned)(id.number >> RREF_COUNT_BITS & 0xff);
}

/** What a reference begins with. */
struct rref_base {
	_Atomic uint32_t refs;              /* RREF_POSTED, and how many hold it; any thread */
	void (*ended)(struct rref_base *r); /* nobody holds it, as told by who was the last, once */
	struct rref_id id;
	uint64_t owner; /* life of the worker that has the value */
};

#define RREF_POSTED (UINT32_C(1) << 31) /* `ended` was called, and has not decided yet */

static inline void rref_ref(struct rref_base *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

/** One step decides who calls `ended`: after it, nobody else may touch what may be gone. */
static inline void rref_unref(struct rref_base *r)
{
	uint32_t refs = atomic_load_explicit(&r->refs, memory_order_relaxed), left;
	do
		left = refs - 1 ? refs - 1 : RREF_POSTED;
	while (!atomic_compare_exchange_weak_explicit(&r->refs, &refs, left, memory_order_acq_rel,
						      memory_order_relaxed));
	if (refs == 1)
		r->ended(r);
}

#define RREF_TEXT_MAX 96

/** "RRef(created_on=1, shard=0, local_id=9, owner=2)", into buf; returns buf. */
const char *rref_text(const struct rref_base *r, char *buf, size_t len);

#endif
