/* SPDX-License-Identifier: BSD-3-Clause */
/** Packets are in the mbufs of the dpdk driver's pools. Main thread of each process. */
#include "in_place.h"

#include <rte_mempool.h>
#include <string.h>

struct question {
	const char *at;
	bool found;
};

static void look_at_chunk(struct rte_mempool *pool, void *arg, struct rte_mempool_memhdr *chunk, unsigned index)
{
	struct question *q = arg;
	const char *from = chunk->addr;
	q->found |= q->at >= from && q->at < from + chunk->len;
}

static void look_at_pool(struct rte_mempool *pool, void *arg)
{
	if (strncmp(pool->name, "farcall-", 8) == 0)
		rte_mempool_mem_iter(pool, look_at_chunk, arg);
}

bool in_place_is_packet(const void *at)
{
	struct question q = {at, false};
	rte_mempool_walk(look_at_pool, &q);
	return q.found;
}
