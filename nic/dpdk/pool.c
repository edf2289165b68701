/* SPDX-License-Identifier: BSD-3-Clause */
/** Mbuf pools, one per queue. Created by the control thread, used by the queue's poller. Any thread may poll a shard in
 * turn; registering each with EAL would give it a per-pool cache in which mbufs get stuck, and EAL has 128 thread ids.
 * But one thread at a time polls a queue, and the drivers used here allocate and free mbufs within its bursts only. So
 * the pool itself replaces that cache: a stack without atomics. */
#include "nic/dpdk/dpdk.h"

#include <stdlib.h>
#include <sys/mman.h>

#define STACK_OPS "farcall_stack"

/* The free objects of a pool: at[0, n); the last one is taken first. */
struct stack {
	unsigned n, room;
	dpdk_pool_taken_fn *taken; /* NULL: nobody watches */
	void *ctx;
	void *at[];
};

static int stack_alloc(struct rte_mempool *mp)
{
	struct stack *s = malloc(sizeof *s + mp->size * sizeof *s->at);
	if (!s)
		return -ENOMEM;
	s->n = 0;
	s->taken = NULL;
	s->room = mp->size;
	mp->pool_data = s;
	return 0;
}

static void stack_free(struct rte_mempool *mp)
{
	free(mp->pool_data);
}

static int stack_put(struct rte_mempool *mp, void *const *objects, unsigned n)
{
	struct stack *s = mp->pool_data;
	if (n > s->room - s->n)
		return -ENOBUFS;
	for (unsigned i = 0; i < n; i++)
		s->at[s->n + i] = objects[i];
	s->n += n;
	return 0;
}

static int stack_get(struct rte_mempool *mp, void **objects, unsigned n)
{
	struct stack *s = mp->pool_data;
	if (n > s->n)
		return -ENOBUFS;
	for (unsigned i = 0; i < n; i++)
		objects[i] = s->at[s->n - 1 - i];
	s->n -= n;
	if (__builtin_expect(s->taken != NULL, 0) && n == 1)
		s->taken(s->ctx, objects[0]);
	return 0;
}

static unsigned stack_count(const struct rte_mempool *mp)
{
	const struct stack *s = mp->pool_data;
	return s->n;
}

static const struct rte_mempool_ops stack_ops = {
	.name = STACK_OPS,
	.alloc = stack_alloc,
	.free = stack_free,
	.enqueue = stack_put,
	.dequeue = stack_get,
	.get_count = stack_count,
};

/* DPDK has 16 slots for mempool ops, and Debian's drivers take 14. If none is left, DPDK's single-producer,
 * single-consumer ring is as safe, with fewer cache hits. */
static const char *stack_name(void)
{
	static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
	static const char *name;
	pthread_mutex_lock(&mutex);
	if (!name)
		name = rte_mempool_register_ops(&stack_ops) < 0 ? "ring_sp_sc" : STACK_OPS;
	pthread_mutex_unlock(&mutex);
	return name;
}

static void memory_free(struct rte_mempool_memhdr *chunk, void *bytes)
{
	munmap(chunk->addr, (size_t)(uintptr_t)bytes);
}

/* Allocates the pool's memory by mmap, so that it grows and shrinks with the ports; EAL's heap is fixed at start
 * (--no-huge). Not usable for DMA. */
static int populate(struct rte_mempool *mp)
{
	size_t page = 4096, bytes = (size_t)mp->size * (mp->header_size + mp->elt_size + mp->trailer_size) + 2 * page;
	bytes = (bytes + page - 1) / page * page;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (at == MAP_FAILED)
		return -ENOMEM;
	int n = rte_mempool_populate_iova(mp, at, RTE_BAD_IOVA, bytes, memory_free, (void *)(uintptr_t)bytes);
	if (n <= 0)
		munmap(at, bytes);
	return n == (int)mp->size ? 0 : -ENOMEM;
}

static void shift_data(struct rte_mempool *mp, void *shift, void *object, unsigned index)
{
	struct rte_mbuf *m = object;
	unsigned by = *(unsigned *)shift;
	(void)mp;
	(void)index;
	m->buf_addr = (char *)m->buf_addr + by;
	m->buf_iova += by;
}

struct rte_mempool *dpdk_pool_create(const char *name, unsigned n, unsigned room, unsigned shift, bool shared,
				     bool for_dma)
{
	unsigned buf = RTE_PKTMBUF_HEADROOM + shift + room;
	struct rte_pktmbuf_pool_private private = {.mbuf_data_room_size = (uint16_t)(RTE_PKTMBUF_HEADROOM + room)};
	if (buf > UINT16_MAX)
		return NULL;
	struct rte_mempool *mp =
		rte_mempool_create_empty(name, n, (unsigned)sizeof(struct rte_mbuf) + buf, 0, sizeof private,
					 SOCKET_ID_ANY, for_dma ? 0 : RTE_MEMPOOL_F_NO_IOVA_CONTIG);
	if (!mp)
		return NULL;
	if (rte_mempool_set_ops_byname(mp, shared ? "ring_mp_mc" : stack_name(), NULL) < 0)
		goto fail;
	rte_pktmbuf_pool_init(mp, &private);
	if (for_dma ? rte_mempool_populate_default(mp) < 0 : populate(mp) < 0)
		goto fail;
	rte_mempool_obj_iter(mp, rte_pktmbuf_init, NULL);
	if (shift)
		rte_mempool_obj_iter(mp, shift_data, &shift);
	return mp;
fail:
	rte_mempool_free(mp);
	return NULL;
}

bool dpdk_pool_is_stack(const struct rte_mempool *mp)
{
	return rte_mempool_get_ops(mp->ops_index)->get_count == stack_count;
}

void dpdk_pool_watch(struct rte_mempool *mp, dpdk_pool_taken_fn *taken, void *ctx)
{
	struct stack *s = mp->pool_data;
	s->taken = taken;
	s->ctx = ctx;
}

uint64_t dpdk_pool_bytes(const struct rte_mempool *mp)
{
	return (uint64_t)mp->populated_size * (mp->header_size + mp->elt_size + mp->trailer_size);
}
