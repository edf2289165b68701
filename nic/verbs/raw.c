/* SPDX-License-Identifier: BSD-3-Clause */
/** Raw packets on a queue's own queue pair and buffers, for `farcall perf`: the floor without the engine. A burst is
 * one post, and receive buffers are reposted at once. Poller. */
#include "nic/verbs/verbs.h"

#include <errno.h>
#include <string.h>

#define RAW_MAGIC UINT64_C(0x6661726361772121)
#define RAW_BYTES 16u

static struct ibv_send_wr *prepare(struct verbs_queue *q, const struct verbs_dest *dest, uint64_t number,
				   unsigned bytes)
{
	uint16_t slot = q->tx_free[--q->tx_free_n];
	struct ibv_send_wr *wr = &q->tx_wr[slot];
	uint64_t payload[2] = {RAW_MAGIC, number};
	memcpy(q->tx_memory + (size_t)slot * q->tx_stride, payload, sizeof payload);
	q->tx_sge[slot].length = bytes;
	wr->num_sge = 1;
	wr->wr_id = (uint64_t)q->epoch << 32 | q->tx_next;
	wr->next = NULL;
	wr->send_flags = bytes <= q->inline_max ? IBV_SEND_INLINE : 0;
	if (++q->tx_unsignalled == VERBS_SIGNAL_EVERY) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		q->tx_unsignalled = 0;
	}
	wr->wr.ud.ah = dest->ah[0];
	wr->wr.ud.remote_qpn = dest->qpn;
	wr->wr.ud.remote_qkey = dest->qkey;
	q->tx_order[q->tx_next++ % VERBS_TX_ORDER] = slot;
	return wr;
}

/* Takes back the slots of packets that the device did not take. */
static void take_back(struct verbs_queue *q, uint32_t from)
{
	while (q->tx_next != from) {
		uint16_t slot = q->tx_order[--q->tx_next % VERBS_TX_ORDER];
		q->tx_free[q->tx_free_n++] = slot;
		q->tx_unsignalled =
			q->tx_wr[slot].send_flags & IBV_SEND_SIGNALED ? VERBS_SIGNAL_EVERY - 1 : q->tx_unsignalled - 1;
	}
}

static unsigned raw_tx(struct nic_queue *queue, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct verbs_queue *q = (struct verbs_queue *)queue;
	struct verbs_dest *dest = peer < VERBS_DESTS_MAX ? q->port->dests[peer] : NULL;
	struct ibv_send_wr *chain = NULL, *last = NULL, *bad = NULL;
	if (!dest || dest->queue != q || !dest->attached || bytes < RAW_BYTES || bytes > dest->body_max)
		return 0;
	if (q->tx_free_n < n || q->tx_first)
		queue->ops->flush(queue);
	if (!verbs_enter(q) || q->tx_first)
		return 0;
	n = n < q->tx_free_n ? n : q->tx_free_n;
	for (unsigned i = 0; i < n; i++) {
		struct ibv_send_wr *wr = prepare(q, dest, first + i, bytes);
		if (last)
			last->next = wr;
		else
			chain = wr;
		last = wr;
	}
	int error = n ? ibv_post_send(q->qp, chain, &bad) : 0;
	uint32_t before = q->tx_posted;
	q->tx_posted = error ? (uint32_t)(bad ? bad : chain)->wr_id : q->tx_next;
	take_back(q, q->tx_posted);
	if (error && error != ENOMEM && error != -ENOMEM)
		verbs_queue_broken(q);
	return q->tx_posted - before;
}

/* Chains the buffers of valid completions, to be reposted. */
static bool read_raw(struct verbs_queue *q, const struct ibv_wc *wc, struct ibv_recv_wr **chain, uint64_t *last)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	uint64_t payload[2] = {0};
	if (wc->wr_id >> 32 != q->epoch || slot >= q->rx_n || !q->rx_posted[slot])
		return false;
	q->rx_wr[slot].next = *chain;
	*chain = &q->rx_wr[slot];
	if (wc->status == IBV_WC_SUCCESS && wc->byte_len >= VERBS_GRH_BYTES + RAW_BYTES)
		memcpy(payload, q->memory + (size_t)slot * q->rx_stride + VERBS_RX_BODY_AT, sizeof payload);
	if (payload[0] != RAW_MAGIC)
		return false;
	*last = payload[1];
	return true;
}

static unsigned raw_rx(struct nic_queue *queue, unsigned max, uint64_t *last)
{
	struct verbs_queue *q = (struct verbs_queue *)queue;
	struct ibv_wc wc[VERBS_BURST];
	struct ibv_recv_wr *chain = NULL, *bad;
	struct nic_pkt none[1];
	unsigned raw = 0;
	bool broken = false;
	if (q->held)
		queue->ops->recv(queue, none, 0); /* reposts the buffers of the previous burst */
	if (!verbs_enter(q))
		return 0;
	int got = ibv_poll_cq(q->rx_cq, (int)(max < VERBS_BURST ? max : VERBS_BURST), wc);
	for (int i = 0; i < got; i++) {
		broken |= wc[i].status != IBV_WC_SUCCESS;
		raw += read_raw(q, &wc[i], &chain, last);
	}
	if (chain)
		broken |= ibv_post_recv(q->qp, chain, &bad) != 0;
	if (broken || got < 0)
		verbs_queue_broken(q);
	return raw;
}

const struct nic_raw_ops verbs_raw_ops = {.tx = raw_tx, .rx = raw_rx};
