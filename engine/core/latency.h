/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Latency of calls, measured for one call in `every`: from the request in its packet to the answer, on the caller's
 * shard. A call that is not measured reads no clock. Shard thread.
 */
#ifndef FAR_CORE_LATENCY_H
#define FAR_CORE_LATENCY_H

#include <stdbool.h>
#include <stdint.h>

#define LATENCY_SUB_BITS 3u /* each power of two has 8 buckets: a percentile is at most 12.5 % too high */
#define LATENCY_BUCKETS  (38u << LATENCY_SUB_BITS) /* up to 2^40 ns, 18 minutes; longer ones are in the last */
#define LATENCY_OPEN_MAX 64u                       /* calls that are measured at once; more are not */

struct latency_open {
	uint32_t slot; /* of the call + 1; 0: free */
	uint64_t since;
};

struct latency {
	uint32_t every; /* 0: none is measured */
	uint32_t left;  /* calls to the next one that is measured, it included, beyond those of shard.due_left */
	uint32_t random;
	uint32_t open_n;         /* calls that are measured now */
	uint64_t sum_ns, n;      /* of all measured calls */
	uint64_t *bucket;        /* LATENCY_BUCKETS */
	uint64_t *pending_since; /* by call slot, ns: valid for calls that were pending at a reading of the clock */
	struct latency_open open[LATENCY_OPEN_MAX];
};

/** false: no memory. */
bool latency_init(struct latency *l, uint32_t every, uint32_t calls);
void latency_free(struct latency *l);
/** Least latency that is not in bucket `i`. */
uint64_t latency_bucket_end(unsigned i);

/** Bucket of a latency. */
static inline unsigned latency_bucket(uint64_t ns)
{
	if (ns < 2u << LATENCY_SUB_BITS)
		return (unsigned)ns;
	unsigned exponent = 63u - (unsigned)__builtin_clzll(ns) - LATENCY_SUB_BITS;
	unsigned i = (exponent << LATENCY_SUB_BITS) + (unsigned)(ns >> exponent);
	return i < LATENCY_BUCKETS ? i : LATENCY_BUCKETS - 1;
}

/** Calls between two that are measured: `every` - 1 on average, at random, or nearly all. */
static inline uint32_t latency_next(struct latency *l)
{
	if (!l->every)
		return INT32_MAX;
	l->random ^= l->random << 13;
	l->random ^= l->random >> 17;
	l->random ^= l->random << 5;
	return l->random % (2 * l->every - 1);
}

/** Starts the measurement of the call in `slot`. false: its place is in use by another. */
static inline bool latency_begin(struct latency *l, uint32_t slot, uint64_t now)
{
	struct latency_open *o = &l->open[slot % LATENCY_OPEN_MAX];
	if (o->slot)
		return false;
	*o = (struct latency_open){slot + 1, now};
	l->open_n++;
	return true;
}

/** Ends it. */
static inline void latency_end(struct latency *l, uint32_t slot, uint64_t now)
{
	struct latency_open *o = &l->open[slot % LATENCY_OPEN_MAX];
	uint64_t ns = now - o->since;
	o->slot = 0;
	l->open_n--;
	l->sum_ns += ns;
	l->n++;
	l->bucket[latency_bucket(ns)]++;
}

#endif
