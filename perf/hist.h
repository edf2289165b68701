/* SPDX-License-Identifier: BSD-3-Clause */
/** Log-linear histogram of nanoseconds: exact below 512, within 1/256 above, up to 2^40 (18 minutes). One writer.
 * Any thread, one at a time. */
#ifndef PERF_HIST_H
#define PERF_HIST_H

#include <stdint.h>

#define HIST_SUB_BITS 8 /* 256 buckets for each power of two */
#define HIST_MAX_BITS 40
#define HIST_BUCKETS  ((HIST_MAX_BITS - HIST_SUB_BITS + 1) << HIST_SUB_BITS)

struct hist {
	uint64_t count;
	uint64_t max; /* exact */
	uint64_t bucket[HIST_BUCKETS];
};

void hist_reset(struct hist *h);
void hist_merge(struct hist *into, const struct hist *from);
/** The value that a share `q` of [0, 1] of the samples does not exceed; 0 of an empty histogram. */
uint64_t hist_quantile(const struct hist *h, double q);

/** Bucket of a value; the last one takes all that is larger. */
static inline uint32_t hist_bucket(uint64_t v)
{
	if (v >> HIST_MAX_BITS)
		return HIST_BUCKETS - 1;
	if (v < (1u << (HIST_SUB_BITS + 1)))
		return (uint32_t)v;
	uint32_t shift = 63 - HIST_SUB_BITS - (uint32_t)__builtin_clzll(v);
	return (shift << HIST_SUB_BITS) + (uint32_t)(v >> shift);
}

static inline void hist_record(struct hist *h, uint64_t v)
{
	h->bucket[hist_bucket(v)]++;
	h->count++;
	if (v > h->max)
		h->max = v;
}

#endif
