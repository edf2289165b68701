/* SPDX-License-Identifier: BSD-3-Clause */
/** Identifiers and reference counts of remote references, for code above and below features/references/rref.h. Any
 * thread. */
#ifndef FAR_BASE_RREF_H
#define FAR_BASE_RREF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

/**
 * A unique identifier, made by a shard of one incarnation of a worker. `incarnation`: the creating worker: bits 48–63
 * rank, bits 0–47 of its incarnation. `number`: bits 56–63 the creating shard, bits 48–55 the owner's shard (of a
 * reference), bits 0–47 a count from 1 on, which lasts a month at 10^8 identifiers per second.
 */
struct rref_id {
	uint64_t incarnation, number;
};

#define RREF_COUNT_BITS 48u
#define RREF_COUNT_MASK ((UINT64_C(1) << RREF_COUNT_BITS) - 1)

static inline uint64_t rref_incarnation(uint32_t rank, uint64_t incarnation)
{
	return (uint64_t)rank << RREF_COUNT_BITS | (incarnation & RREF_COUNT_MASK);
}

static inline uint32_t rref_rank(uint64_t incarnation)
{
	return (uint32_t)(incarnation >> RREF_COUNT_BITS);
}

static inline unsigned rref_creator_shard(struct rref_id id)
{
	return (unsigned)(id.number >> 56);
}

static inline unsigned rref_owner_shard(struct rref_id id)
{
	return (unsigned)(id.number >> RREF_COUNT_BITS & 0xff);
}

/** First member of each reference. */
struct rref_base {
	_Atomic uint32_t refs;              /* local references, or RREF_RELEASING; any thread */
	void (*ended)(struct rref_base *r); /* called once by the thread that drops the last local reference */
	struct rref_id id;
	uint64_t owner; /* the worker that has the value, as rref_id.incarnation */
};

#define RREF_RELEASING (UINT32_C(1) << 31) /* `ended` was called; its shard has not released the reference yet */

static inline void rref_ref(struct rref_base *r)
{
	atomic_fetch_add_explicit(&r->refs, 1, memory_order_relaxed);
}

/** Drops a reference. The same atomic operation that drops the last one selects the caller of `ended`: another thread
 * must not touch the object after it, since it may be freed. */
static inline void rref_unref(struct rref_base *r)
{
	uint32_t refs = atomic_load_explicit(&r->refs, memory_order_relaxed), left;
	do
		left = refs - 1 ? refs - 1 : RREF_RELEASING;
	while (!atomic_compare_exchange_weak_explicit(&r->refs, &refs, left, memory_order_acq_rel,
						      memory_order_relaxed));
	if (refs == 1)
		r->ended(r);
}

#define RREF_TEXT_MAX 96

/** "RRef(created_on=1, shard=0, local_id=9, owner=2)", into buf; returns buf. */
const char *rref_text(const struct rref_base *r, char *buf, size_t len);

#endif
