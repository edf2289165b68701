/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations of datagrams, with and without bulk. Poller; verbs_wake(): any thread. */
#include "nic/verbs/bulk.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Completion events acknowledged at once; the call takes a lock, which nobody else uses. */
#define EVENTS_UNACKED_MAX (1u << 20)

static int verbs_attach(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_dest *dest = verbs_dest_of(verbs_queue_of(queue), peer);
	if (!dest || dest->attached)
		return -EINVAL;
	dest->attached = true;
	return 0;
}

/* ---- transmit ---- */

/* Sends complete in order: a completion also completes all sends before it. */
static void reap(struct verbs_queue *q)
{
	struct ibv_wc wc[VERBS_BURST];
	bool broken = false;
	int n = ibv_poll_cq(q->tx_cq, VERBS_BURST, wc);
	for (int i = 0; i < n; i++) {
		uint32_t number = (uint32_t)wc[i].wr_id;
		broken |= wc[i].status != IBV_WC_SUCCESS;
		if (wc[i].wr_id >> 32 != q->epoch || number - q->tx_done >= q->tx_posted - q->tx_done) {
			verbs_count(&q->counters.malformed, 1);
			continue;
		}
		while (q->tx_done != number + 1)
			q->tx_free[q->tx_free_n++] = q->tx_order[q->tx_done++ % VERBS_TX_ORDER];
	}
	if (__builtin_expect(broken || n < 0, 0))
		verbs_queue_broken(q);
}

/* False: the queue pair is broken and belongs to the control thread. */
static bool push(struct verbs_queue *q)
{
	struct ibv_send_wr *bad = NULL;
	int error = ibv_post_send(q->qp, q->tx_first, &bad);
	if (__builtin_expect(!error, 1)) {
		q->tx_posted = q->tx_next;
		q->tx_first = q->tx_last = NULL;
		q->tx_ring_full = false;
		return true;
	}
	q->tx_first = bad ? bad : q->tx_first;
	q->tx_posted = (uint32_t)q->tx_first->wr_id;
	q->tx_ring_full = true;
	if (error == ENOMEM || error == -ENOMEM) /* drivers differ in the sign */
		return true;
	verbs_queue_broken(q);
	return false;
}

static void verbs_flush(struct nic_queue *queue)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	if (!verbs_enter(q))
		return;
	if (q->tx_first && !push(q))
		return;
	if (q->tx_free_n < VERBS_TX_SLOTS)
		reap(q);
}

/* Posted packets may use the address handles after a detach; packets that were not posted may not. */
static void verbs_detach(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest = verbs_dest_of(q, peer);
	if (!dest || !dest->attached)
		return;
	dest->attached = false;
	if (q->tx_first)
		verbs_flush(queue);
	if (q->tx_first)
		verbs_queue_broken(q);
}

static int verbs_tx_reserve(struct nic_queue *queue, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest = verbs_dest_of(q, peer);
	if (__builtin_expect(!dest || !dest->attached, 0))
		return -EPIPE;
	if (__builtin_expect(body_len > dest->body_max, 0))
		return -EMSGSIZE;
	if (__builtin_expect(!q->tx_free_n, 0)) {
		verbs_flush(queue);
		if (!q->tx_free_n)
			return -EAGAIN;
	}
	verbs_tx_take(q, dest, peer, body_len, tx);
	return 0;
}

uint32_t verbs_tx_room(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest = verbs_dest_of(q, peer);
	return dest && dest->attached ? q->tx_free_n : 0;
}

uint64_t verbs_tx_bytes_max(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_dest *dest = verbs_dest_of(verbs_queue_of(queue), peer);
	return dest ? dest->body_max : 0;
}

void verbs_tx_cancel(struct nic_queue *queue, struct nic_tx *tx)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	q->tx_free[q->tx_free_n++] = (uint16_t)tx->cookie;
}

static int verbs_tx_commit(struct nic_queue *queue, struct nic_tx *tx)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	const struct verbs_dest *dest = tx->driver_data;
	uint16_t slot = (uint16_t)tx->cookie;
	struct ibv_send_wr *wr = &q->tx_wr[slot];
	if (__builtin_expect(!verbs_enter(q), 0)) {
		verbs_tx_cancel(queue, tx);
		verbs_count(&q->counters.dropped, 1);
		return 0;
	}
	q->tx_sge[slot].length = (uint32_t)tx->body_len;
	wr->num_sge = tx->body_len > 0;
	wr->wr_id = (uint64_t)q->epoch << 32 | q->tx_next;
	wr->next = NULL;
	wr->send_flags = tx->body_len <= q->inline_max ? IBV_SEND_INLINE : 0;
	if (++q->tx_unsignalled == VERBS_SIGNAL_EVERY) {
		wr->send_flags |= IBV_SEND_SIGNALED;
		q->tx_unsignalled = 0;
	}
	wr->wr.ud.ah = dest->ah[tx->priority <= NIC_PRIORITY_MAX ? tx->priority : NIC_PRIORITY_MAX];
	wr->wr.ud.remote_qpn = dest->qpn;
	wr->wr.ud.remote_qkey = dest->qkey;
	q->tx_order[q->tx_next++ % VERBS_TX_ORDER] = slot;
	if (q->tx_last)
		q->tx_last->next = wr;
	else
		q->tx_first = wr;
	q->tx_last = wr;
	verbs_count(&q->counters.tx_packets, 1);
	verbs_count(&q->counters.tx_bytes, tx->body_len);
	return 0;
}

/* ---- receive ---- */

/* Posts the slots of the previous burst. */
static bool give_back(struct verbs_queue *q)
{
	struct ibv_recv_wr *bad;
	uint32_t n = q->held;
	q->held = 0;
	for (uint32_t i = 0; i < n; i++) {
		uint16_t slot = q->rx_held[i];
		q->rx_posted[slot] = true;
		q->rx_wr[slot].wr_id = (uint64_t)q->epoch << 32 | slot;
		q->rx_wr[slot].next = i + 1 < n ? &q->rx_wr[q->rx_held[i + 1]] : NULL;
	}
	if (__builtin_expect(ibv_post_recv(q->qp, &q->rx_wr[q->rx_held[0]], &bad), 0)) {
		verbs_queue_broken(q);
		return false;
	}
	return true;
}

/* Validates completions, too: there are many devices, some in software. */
static bool read_one(struct verbs_queue *q, const struct ibv_wc *wc, struct nic_pkt *pkt)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	if (wc->wr_id >> 32 != q->epoch || slot >= q->rx_n || !q->rx_posted[slot]) {
		verbs_count(&q->counters.malformed, 1);
		return false;
	}
	q->rx_posted[slot] = false;
	q->rx_held[q->held++] = (uint16_t)slot;
	if (wc->status != IBV_WC_SUCCESS)
		return false;
	if (wc->opcode != IBV_WC_RECV || wc->byte_len < VERBS_GRH_BYTES ||
	    wc->byte_len > VERBS_GRH_BYTES + q->port->mtu) {
		verbs_count(&q->counters.malformed, 1);
		return false;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM) { /* never sent by this driver */
		verbs_count(&q->counters.unexpected, 1);
		return false;
	}
	const uint8_t *body = q->memory + (size_t)slot * q->rx_stride + VERBS_RX_BODY_AT;
	uint32_t len = wc->byte_len - VERBS_GRH_BYTES;
	*pkt = (struct nic_pkt){.head = body, .body = len ? body : NULL, .body_len = len, .peer = NIC_PEER_NONE};
	verbs_count(&q->counters.rx_bytes, len);
	return true;
}

static unsigned verbs_recv(struct nic_queue *queue, struct nic_pkt *pkts, unsigned max)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct ibv_wc wc[VERBS_BURST];
	bool broken = false;
	unsigned n = 0;
	if (__builtin_expect(!verbs_enter(q), 0))
		return 0;
	if (q->held && !give_back(q))
		return 0;
	if (__builtin_expect(q->tx_ring_full, 0)) {
		verbs_flush(queue);
		if (!verbs_enter(q)) /* broken by the flush */
			return 0;
	}
	int got = ibv_poll_cq(q->rx_cq, (int)(max < VERBS_BURST ? max : VERBS_BURST), wc);
	for (int i = 0; i < got; i++) {
		broken |= wc[i].status != IBV_WC_SUCCESS;
		n += read_one(q, &wc[i], &pkts[n]);
	}
	if (__builtin_expect(broken || got < 0, 0))
		verbs_queue_broken(q);
	if (n)
		verbs_count(&q->counters.rx_packets, n);
	return n;
}

/* Ports with bulk: events of bulk follow the packets. */
static unsigned recv_both(struct nic_queue *queue, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = verbs_recv(queue, pkts, max);
	return n + verbs_bulk_recv(verbs_queue_of(queue), pkts + n, max - n);
}

/* Received packets have no cookie. */
void verbs_release(struct nic_queue *queue, uint32_t peer, uint64_t cookie)
{
	(void)queue;
	(void)peer;
	(void)cookie;
}

/* ---- sleep ---- */

static void verbs_arm(struct nic_queue *queue)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	if (!verbs_enter(q))
		return;
	/* Failed sends raise no event: check before the sleep. */
	if (q->tx_done != q->tx_posted)
		reap(q);
	if (verbs_enter(q) && ibv_req_notify_cq(q->rx_cq, 0))
		verbs_queue_broken(q);
}

static void arm_both(struct nic_queue *queue)
{
	verbs_arm(queue);
	if (atomic_load_explicit(&verbs_queue_of(queue)->state, memory_order_acquire) < VERBS_RELEASING)
		verbs_bulk_arm(verbs_queue_of(queue));
}

/* An armed completion queue may make the descriptor readable once more, without effect. */
void verbs_disarm(struct nic_queue *queue)
{
	(void)queue;
}

int verbs_wake_fd(const struct nic_queue *queue)
{
	return ((const struct verbs_queue *)queue)->epoll_fd;
}

void verbs_wake_clear(struct nic_queue *queue)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	uint64_t count;
	struct ibv_cq *cq;
	void *ctx;
	/* EAGAIN: the other descriptor was readable. */
	if (read(q->event_fd, &count, sizeof count) < 0)
		count = 0;
	if (atomic_load_explicit(&q->state, memory_order_relaxed) == VERBS_RELEASED)
		return;
	if (ibv_get_cq_event(q->channel, &cq, &ctx))
		return;
	uint32_t *unacked = cq == q->rx_cq ? &q->events_unacked : &q->rc->events_unacked;
	if (++*unacked == EVENTS_UNACKED_MAX) {
		ibv_ack_cq_events(cq, *unacked);
		*unacked = 0;
	}
}

void verbs_wake(struct nic_queue *queue)
{
	verbs_signal(verbs_queue_of(queue)->event_fd);
}

static uint64_t verbs_deadline(const struct nic_queue *queue)
{
	return ((const struct verbs_queue *)queue)->tx_ring_full ? verbs_now() + VERBS_RETRY_NS : UINT64_MAX;
}

const struct nic_queue_ops verbs_queue_ops = {
	.attach = verbs_attach,
	.detach = verbs_detach,
	.recv = verbs_recv,
	.release = verbs_release,
	.tx_reserve = verbs_tx_reserve,
	.tx_room = verbs_tx_room,
	.tx_bytes_max = verbs_tx_bytes_max,
	.tx_commit = verbs_tx_commit,
	.tx_cancel = verbs_tx_cancel,
	.flush = verbs_flush,
	.arm = verbs_arm,
	.disarm = verbs_disarm,
	.wake_fd = verbs_wake_fd,
	.wake_clear = verbs_wake_clear,
	.wake = verbs_wake,
	.deadline = verbs_deadline,
	.raw = &verbs_raw_ops,
};

const struct nic_queue_ops verbs_bulk_queue_ops = {
	.attach = verbs_attach,
	.detach = verbs_detach,
	.recv = recv_both,
	.release = verbs_release,
	.tx_reserve = verbs_tx_reserve,
	.tx_room = verbs_tx_room,
	.tx_bytes_max = verbs_tx_bytes_max,
	.tx_commit = verbs_tx_commit,
	.tx_cancel = verbs_tx_cancel,
	.flush = verbs_flush,
	.arm = arm_both,
	.disarm = verbs_disarm,
	.wake_fd = verbs_wake_fd,
	.wake_clear = verbs_wake_clear,
	.wake = verbs_wake,
	.deadline = verbs_deadline,
	.raw = &verbs_raw_ops,
	.bulk = &verbs_bulk_ops,
};
