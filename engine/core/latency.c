/* SPDX-License-Identifier: BSD-3-Clause */
/** Latency of sampled calls: the calls under way, and a histogram of logarithmic buckets. Shard thread. */
#include "core/latency.h"

#include "core/shard.h"

#include <stdlib.h>

bool latency_init(struct latency *l, uint32_t every, uint32_t calls)
{
	l->every = every;
	l->random = 0x9e3779b9;
	l->bucket = calloc(LATENCY_BUCKETS, sizeof *l->bucket);
	l->pending_since = shard_zeroed(calls, sizeof *l->pending_since);
	l->left = latency_next(l);
	return l->bucket && l->pending_since;
}

void latency_free(struct latency *l)
{
	free(l->bucket);
	shard_zeroed_free(l->pending_since);
}

uint64_t latency_bucket_end(unsigned i)
{
	i++;
	if (i < 2u << LATENCY_SUB_BITS)
		return i;
	unsigned exponent = (i >> LATENCY_SUB_BITS) - 1;
	return (uint64_t)(i - (exponent << LATENCY_SUB_BITS)) << exponent;
}
