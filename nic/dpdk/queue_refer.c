/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Sends the end of a packet from where it lies (nic_queue_ops.tx_refer), to memif, which copies within its burst. The
 * frame has two segments, the second without memory of its own. memif joins them, so the peer receives one. Poller.
 */
#include "nic/dpdk/dpdk.h"

#include <stdio.h>
#include <string.h>

int dpdk_refer_open(struct dpdk_queue *q, struct nic_err *err)
{
	char name[RTE_MEMPOOL_NAMESIZE];
	static _Atomic unsigned serial;
	snprintf(name, sizeof name, "farcall-tails-%u", atomic_fetch_add_explicit(&serial, 1, memory_order_relaxed));
	q->tails = dpdk_pool_create(name, q->tx_queues_n * (DPDK_TX_MAX + DPDK_TX_URGENT), 0, 0, false, false);
	return q->tails ? 0 : dpdk_error(err, -ENOMEM, "dpdk: out of memory");
}

void dpdk_tx_refer(struct nic_queue *queue, struct nic_tx *tx, const void *bytes, uint32_t len)
{
	struct dpdk_queue *q = (struct dpdk_queue *)queue;
	const struct dpdk_dest *dest = tx->driver_data;
	struct rte_mbuf *m = (struct rte_mbuf *)(uintptr_t)tx->cookie, *tail;
	void *object;
	/* The queues of one port copy the body from one place. */
	if (!dest->tx_queue || rte_mempool_generic_get(q->tails, &object, 1, NULL) < 0) {
		memcpy(tx->body + tx->body_len - len, bytes, len);
		return;
	}
	tail = object;
	tail->buf_addr = (void *)(uintptr_t)bytes;
	tail->data_off = 0;
	tail->ol_flags = 0;
	tail->data_len = (uint16_t)len;
	tail->pkt_len = len;
	m->next = tail;
	m->nb_segs = 2;
}

static void copy_tail(struct rte_mbuf *m)
{
	struct rte_mbuf *tail = m->next;
	memcpy(rte_pktmbuf_mtod_offset(m, uint8_t *, m->data_len), rte_pktmbuf_mtod(tail, uint8_t *), tail->data_len);
	m->data_len = (uint16_t)(m->data_len + tail->data_len);
	m->next = NULL;
	m->nb_segs = 1;
	rte_pktmbuf_free(tail);
}

void dpdk_refer_end(struct dpdk_queue *q)
{
	for (unsigned i = 0; i < q->tx_queues_n; i++)
		for (unsigned k = 0; k < q->tx_queues[i].n; k++)
			if (q->tx_queues[i].m[k]->next)
				copy_tail(q->tx_queues[i].m[k]);
	q->referred = 0;
}
