/* SPDX-License-Identifier: BSD-3-Clause */
/** Log-linear latency histogram. One writer. Any thread, one at a time. */
#include "hist.h"
#include <math.h>
#include <string.h>

void hist_reset(struct hist *h)
{
	memset(h, 0, sizeof *h);
}

void hist_merge(struct hist *into, const struct hist *from)
{
	for (uint32_t i = 0; i < HIST_BUCKETS; i++)
		into->bucket[i] += from->bucket[i];
	into->count += from->count;
	if (from->max > into->max)
		into->max = from->max;
}

/* The middle of a bucket. */
static uint64_t bucket_value(uint32_t i)
{
	if (i < (1u << (HIST_SUB_BITS + 1)))
		return i;
	uint32_t shift = (i >> HIST_SUB_BITS) - 1;
	uint64_t low = (uint64_t)((i & ((1u << HIST_SUB_BITS) - 1)) + (1u << HIST_SUB_BITS)) << shift;
	return low + ((UINT64_C(1) << shift) >> 1);
}

uint64_t hist_quantile(const struct hist *h, double q)
{
	if (h->count == 0)
		return 0;
	/* The nearest rank; the small reduction keeps 0.99 * 100 from becoming rank 100. */
	double want = ceil(q * (double)h->count - 1e-9);
	uint64_t rank = want < 1 ? 1 : want >= (double)h->count ? h->count : (uint64_t)want;
	if (rank == h->count)
		return h->max;
	uint64_t seen = 0;
	for (uint32_t i = 0; i < HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen >= rank) {
			uint64_t v = bucket_value(i);
			return v < h->max ? v : h->max;
		}
	}
	return h->max;
}
