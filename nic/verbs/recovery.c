/* SPDX-License-Identifier: BSD-3-Clause */
/** Recovery of a queue pair in the error state: some devices, soft-RoCE among them, enter it when a packet cannot be
 * sent. Poller, off the fast path. The poller stops using it, the control thread resets it (events.c), and the poller
 * continues with empty rings. Packets in flight are lost. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

void verbs_signal(int event_fd)
{
	uint64_t one = 1;
	/* It fails only if the counter is at its maximum; then the descriptor is readable. */
	if (write(event_fd, &one, sizeof one) < 0)
		return;
}

/* Drops the packets that wait for flush(). */
static void drop_waiting(struct verbs_queue *q)
{
	verbs_count(&q->counters.dropped, q->tx_next - q->tx_posted);
	while (q->tx_next != q->tx_posted)
		q->tx_free[q->tx_free_n++] = q->tx_order[--q->tx_next % VERBS_TX_ORDER];
	q->tx_first = q->tx_last = NULL;
	q->tx_ring_full = false;
}

/* Drops the packets that the device had. */
static void drop_posted(struct verbs_queue *q)
{
	while (q->tx_done != q->tx_posted)
		q->tx_free[q->tx_free_n++] = q->tx_order[q->tx_done++ % VERBS_TX_ORDER];
	q->tx_unsignalled = 0;
}

void verbs_queue_broken(struct verbs_queue *q)
{
	uint32_t runs = VERBS_RUNNING;
	drop_waiting(q);
	/* Otherwise the control thread releases the device already. */
	if (atomic_compare_exchange_strong_explicit(&q->state, &runs, VERBS_BROKEN, memory_order_release,
						    memory_order_relaxed))
		verbs_signal(q->port->event_fd);
}

int verbs_rx_fill(struct verbs_queue *q)
{
	struct ibv_recv_wr *first = NULL, *bad;
	for (uint32_t i = 0; i < q->rx_n; i++)
		q->rx_posted[i] = true;
	for (uint32_t i = 0; i < q->held; i++)
		q->rx_posted[q->rx_held[i]] = false;
	for (uint32_t i = q->rx_n; i-- > 0;) {
		if (!q->rx_posted[i])
			continue;
		q->rx_wr[i].wr_id = (uint64_t)q->epoch << 32 | i;
		q->rx_wr[i].next = first;
		first = &q->rx_wr[i];
	}
	if (!first)
		return 0;
	return q->port->on.rc ? -ibv_post_srq_recv(q->rc->srq, first, &bad) : -ibv_post_recv(q->qp, first, &bad);
}

static void drain(struct ibv_cq *cq)
{
	struct ibv_wc wc[VERBS_BURST];
	while (ibv_poll_cq(cq, VERBS_BURST, wc) > 0)
		;
}

/* Continues after the reset with empty rings. */
static bool resume(struct verbs_queue *q)
{
	uint32_t repaired = VERBS_RECOVERED;
	drain(q->rx_cq);
	drain(q->tx_cq);
	drop_waiting(q);
	drop_posted(q);
	q->epoch++;
	bool filled = verbs_rx_fill(q) == 0;
	if (!atomic_compare_exchange_strong_explicit(&q->state, &repaired, VERBS_RUNNING, memory_order_release,
						     memory_order_relaxed))
		return false; /* VERBS_RELEASING: processed by the next call */
	if (!filled)
		verbs_queue_broken(q);
	return filled;
}

bool verbs_enter_slow_path(struct verbs_queue *q)
{
	switch ((enum verbs_state)atomic_load_explicit(&q->state, memory_order_acquire)) {
	case VERBS_RUNNING:
		return true;
	case VERBS_RECOVERED:
		return resume(q);
	case VERBS_RELEASING:
		drop_waiting(q);
		drop_posted(q);
		if (q->rc)
			verbs_rc_drop_all(q);
		atomic_store_explicit(&q->state, VERBS_RELEASED, memory_order_release);
		verbs_signal(q->port->event_fd);
		return false;
	case VERBS_BROKEN:
	case VERBS_RELEASED:
		return false;
	}
	return false;
}
