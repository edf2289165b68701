/* SPDX-License-Identifier: BSD-3-Clause */
/** Pools of mbufs: a stack for one thread, where frames lie, and what watches it. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <string.h>

enum { N = 8, ROOM = 1600 };

static void setup(void)
{
	struct nic_err err;
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
}

TestSuite(dpdk_pool, .init = setup);

static struct rte_mempool *pool(const char *name, unsigned shift, bool shared)
{
	struct rte_mempool *mp = dpdk_pool_create(name, N, ROOM, shift, shared, false);
	cr_assert_not_null(mp);
	return mp;
}

static struct rte_mbuf *take(struct rte_mempool *mp)
{
	void *object;
	return rte_mempool_generic_get(mp, &object, 1, NULL) < 0 ? NULL : object;
}

static void give(struct rte_mempool *mp, struct rte_mbuf *m)
{
	void *object = m;
	rte_mempool_generic_put(mp, &object, 1, NULL);
}

/* Each mbuf once; the one that was given back last comes first. */
static void takes_and_gives(struct rte_mempool *mp, bool stack)
{
	struct rte_mbuf *m[N];
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < N; i++) {
			m[i] = take(mp);
			cr_assert_not_null(m[i]);
			for (unsigned k = 0; k < i; k++)
				cr_assert_neq(m[i], m[k]);
			memset(rte_pktmbuf_mtod(m[i], void *), (int)i, ROOM);
		}
		cr_assert_null(take(mp));
		for (unsigned i = 0; i < N; i++) /* none lies in another */
			cr_assert_eq(rte_pktmbuf_mtod(m[i], uint8_t *)[ROOM - 1], i);
		cr_assert_eq(rte_mempool_avail_count(mp), 0u);
		for (unsigned i = 0; i < N; i++)
			give(mp, m[i]);
		cr_assert_eq(rte_mempool_avail_count(mp), (unsigned)N);
		if (!stack)
			continue;
		struct rte_mbuf *last = take(mp);
		cr_assert_eq(last, m[N - 1]);
		give(mp, last);
	}
}

Test(dpdk_pool, last_in_first_out)
{
	struct rte_mempool *mp = pool("a", 0, false);
	takes_and_gives(mp, dpdk_pool_is_stack(mp));
	cr_assert_geq(dpdk_pool_bytes(mp), (uint64_t)N * (sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM + ROOM));
	rte_mempool_free(mp);
}

Test(dpdk_pool, for_several_threads)
{
	struct rte_mempool *mp = pool("b", 0, true);
	cr_assert_not(dpdk_pool_is_stack(mp));
	takes_and_gives(mp, false);
	rte_mempool_free(mp);
}

/* A frame of `room` bytes fits behind the headroom, moved by the shift. */
Test(dpdk_pool, where_frames_lie)
{
	static const unsigned shifts[] = {0, 2, 22, 54};
	for (unsigned i = 0; i < 4; i++) {
		struct rte_mempool *mp = pool("c", shifts[i], false);
		struct rte_mbuf *m = take(mp);
		cr_assert_eq(rte_pktmbuf_data_room_size(mp), RTE_PKTMBUF_HEADROOM + ROOM);
		cr_assert_eq((uint8_t *)m->buf_addr, (uint8_t *)m + sizeof *m + shifts[i]);
		cr_assert_eq(m->buf_len, RTE_PKTMBUF_HEADROOM + ROOM);
		cr_assert_leq((uint8_t *)m->buf_addr + m->buf_len, (uint8_t *)m + mp->elt_size);
		give(mp, m);
		rte_mempool_free(mp);
	}
}

Test(dpdk_pool, that_cannot_be)
{
	cr_assert_null(dpdk_pool_create("d", 1, UINT16_MAX, 0, false, false), "no mbuf is so large");
	struct rte_mempool *mp = pool("e", 0, false);
	cr_assert_null(dpdk_pool_create("e", 1, ROOM, 0, false, false), "the name is taken");
	rte_mempool_free(mp);
	mp = pool("e", 0, false);
	rte_mempool_free(mp);
}

static unsigned seen;
static struct rte_mbuf *last_seen;

static void watch(void *ctx, struct rte_mbuf *m)
{
	cr_assert_eq(ctx, &seen);
	last_seen = m;
	seen++;
}

/* Of those that are taken one by one, as DPDK's memif does. */
Test(dpdk_pool, watched)
{
	void *some[2];
	struct rte_mempool *mp = pool("f", 0, false);
	if (!dpdk_pool_is_stack(mp))
		cr_skip_test("this DPDK has no slot for another kind of mempool");
	dpdk_pool_watch(mp, watch, &seen);
	struct rte_mbuf *m = take(mp);
	cr_assert(seen == 1 && last_seen == m);
	cr_assert_eq(rte_mempool_generic_get(mp, some, 2, NULL), 0);
	cr_assert_eq(seen, 1u);
	rte_mempool_generic_put(mp, some, 2, NULL);
	give(mp, m);
	cr_assert_eq(seen, 1u);
	dpdk_pool_watch(mp, NULL, NULL);
	give(mp, take(mp));
	cr_assert_eq(seen, 1u);
	rte_mempool_free(mp);
}
