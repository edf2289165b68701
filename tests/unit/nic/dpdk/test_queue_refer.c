/* SPDX-License-Identifier: BSD-3-Clause */
/** The end of a packet is sent from where it lies, or copied where that cannot be. The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <string.h>

enum { BODY = 300, TAIL = 200, ROOM = 1600 };

static struct dpdk_tx_queue ring;
static struct dpdk_queue q = {.tx_queues = &ring, .tx_queues_n = 1};
static struct dpdk_dest dest = {.tx_queue = &ring};
static struct rte_mempool *pool;
static uint8_t bytes[TAIL];
static struct nic_err err;

static void setup(void)
{
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
	pool = dpdk_pool_create("packets", 400, ROOM, 0, false, false);
	cr_assert_not_null(pool);
	cr_assert_eq(dpdk_refer_open(&q, &err), 0, "%s", err.text);
	memset(bytes, 't', sizeof bytes);
}

static void teardown(void)
{
	rte_mempool_free(q.tails);
	rte_mempool_free(pool);
}

TestSuite(dpdk_queue_refer, .init = setup, .fini = teardown);

/* A packet whose first part is written; of `tx` what refer() reads. */
static struct rte_mbuf *packet(struct nic_tx *tx)
{
	void *object;
	cr_assert_eq(rte_mempool_generic_get(pool, &object, 1, NULL), 0);
	struct rte_mbuf *m = object;
	rte_pktmbuf_reset(m);
	*tx = (struct nic_tx){
		.cookie = (uintptr_t)m, .body = rte_pktmbuf_mtod(m, uint8_t *), .body_len = BODY, .driver_data = &dest};
	memset(tx->body, 'h', BODY - TAIL);
	memset(tx->body + BODY - TAIL, '.', TAIL);
	return m;
}

static bool is_whole(const struct rte_mbuf *m)
{
	const uint8_t *at = rte_pktmbuf_mtod(m, const uint8_t *);
	for (unsigned i = 0; i < BODY; i++)
		if (at[i] != (i < BODY - TAIL ? 'h' : 't'))
			return false;
	return true;
}

Test(dpdk_queue_refer, two_segments)
{
	struct nic_tx tx;
	struct rte_mbuf *m = packet(&tx);
	dpdk_tx_refer(&q.base, &tx, bytes, TAIL);
	struct rte_mbuf *tail = m->next;
	cr_assert(tail && m->nb_segs == 2 && !tail->next);
	cr_assert(rte_pktmbuf_mtod(tail, uint8_t *) == bytes && tail->data_len == TAIL && tail->pkt_len == TAIL);
	cr_assert_eq(tx.body[BODY - 1], '.', "nothing was copied");
	rte_pktmbuf_free(m);
	cr_assert_eq(rte_mempool_avail_count(q.tails), DPDK_TX_MAX + DPDK_TX_URGENT);
}

/* What still waits when the caller wants its memory back has the bytes itself. */
Test(dpdk_queue_refer, ends_with_a_copy)
{
	struct nic_tx tx;
	for (unsigned i = 0; i < 10; i++) {
		struct rte_mbuf *m = packet(&tx);
		if (i % 3)
			dpdk_tx_refer(&q.base, &tx, bytes, TAIL);
		m->data_len = i % 3 ? BODY - TAIL : BODY;
		ring.m[ring.n++] = m;
	}
	q.referred = true;
	dpdk_refer_end(&q);
	cr_assert_not(q.referred);
	memset(bytes, 'x', sizeof bytes);
	for (unsigned i = 0; i < 10; i++) {
		struct rte_mbuf *m = ring.m[i];
		cr_assert(!m->next && m->nb_segs == 1 && m->data_len == BODY);
		cr_assert_eq(is_whole(m), i % 3 != 0);
		rte_pktmbuf_free(m);
	}
	cr_assert_eq(rte_mempool_avail_count(q.tails), DPDK_TX_MAX + DPDK_TX_URGENT);
	dpdk_refer_end(&(struct dpdk_queue){.tx_queues_n = 0});
}

/* Between queues of one port, and when there are no more tails: copied at once. */
Test(dpdk_queue_refer, copied_at_once)
{
	struct nic_tx tx;
	struct rte_mbuf *m = packet(&tx);
	dest.tx_queue = NULL;
	dpdk_tx_refer(&q.base, &tx, bytes, TAIL);
	cr_assert(is_whole(m) && !m->next && m->nb_segs == 1);
	rte_pktmbuf_free(m);
	dest.tx_queue = &ring;
	struct rte_mbuf *all[DPDK_TX_MAX + DPDK_TX_URGENT];
	for (unsigned i = 0; i < DPDK_TX_MAX + DPDK_TX_URGENT; i++) {
		all[i] = packet(&tx);
		dpdk_tx_refer(&q.base, &tx, bytes, TAIL);
		cr_assert_not_null(all[i]->next, "%u", i);
	}
	m = packet(&tx);
	dpdk_tx_refer(&q.base, &tx, bytes, TAIL);
	cr_assert(is_whole(m) && !m->next);
	rte_pktmbuf_free(m);
	for (unsigned i = 0; i < DPDK_TX_MAX + DPDK_TX_URGENT; i++)
		rte_pktmbuf_free(all[i]);
}
