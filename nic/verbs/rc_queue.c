/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations of a port that sends packets over connections. Poller. */
#include "nic/verbs/rc.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static bool has_mail(const struct verbs_queue *q)
{
	return atomic_load_explicit(&q->rc->to_poller, memory_order_relaxed) != NULL;
}

static int rc_attach(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_dest *dest = verbs_dest_of(verbs_queue_of(queue), peer);
	if (!dest || dest->attached)
		return -EINVAL;
	dest->attached = true;
	dest->remote->attached++;
	return 0;
}

/* ---- transmit ---- */

/* siw writes to its TCP socket in this call, on the calling thread, which gets SIGPIPE if the peer is gone. */
__attribute__((cold, noinline)) static int post_unharmed(struct ibv_qp *qp, struct ibv_send_wr *first,
							 struct ibv_send_wr **bad)
{
	static const struct timespec at_once;
	sigset_t pipe, before, pending;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	sigpending(&pending);
	bool was_there = sigismember(&pending, SIGPIPE) == 1;
	pthread_sigmask(SIG_BLOCK, &pipe, &before);
	int error = ibv_post_send(qp, first, bad);
	while (!was_there && sigtimedwait(&pipe, NULL, &at_once) < 0 && errno == EINTR)
		;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return error;
}

static int post(struct verbs_queue *q, struct ibv_qp *qp, struct ibv_send_wr *first, struct ibv_send_wr **bad)
{
	return __builtin_expect(q->port->limits.vendor_id == VERBS_VENDOR_SIW, 0) ? post_unharmed(qp, first, bad)
										  : ibv_post_send(qp, first, bad);
}

static void push(struct verbs_queue *q, struct verbs_conn *c)
{
	struct ibv_send_wr *first = c->first, *bad;
	uint32_t tick = atomic_load_explicit(&q->rc->tick, memory_order_relaxed) + 1;
	c->last->send_flags |= IBV_SEND_SIGNALED; /* completes all sends before it */
	c->first = c->last = NULL;
	/* The slots come back in phase CONN_DESTROYED. */
	if (__builtin_expect(post(q, c->qp, first, &bad), 0))
		verbs_rc_broken(c);
	atomic_store_explicit(&q->rc->tick, tick, memory_order_relaxed);
	atomic_store_explicit(&c->used, tick, memory_order_relaxed);
}

static void rc_flush(struct nic_queue *queue)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	if (!verbs_enter(q))
		return;
	if (__builtin_expect(has_mail(q), 0))
		verbs_rc_read_mail(q, false);
	for (struct verbs_conn *c = q->rc->dirty, *next; c; c = next) {
		next = c->next_dirty;
		c->is_dirty = false;
		push(q, c);
	}
	q->rc->dirty = NULL;
	/* Always poll completions: a failed one is the only sign of a broken connection. */
	if (q->tx_free_n < VERBS_TX_RING)
		verbs_rc_reap(q);
}

static void rc_detach(struct nic_queue *queue, uint32_t peer)
{
	struct verbs_dest *dest = verbs_dest_of(verbs_queue_of(queue), peer);
	if (!dest || !dest->attached)
		return;
	dest->attached = false;
	if (--dest->remote->attached == 0)
		verbs_rc_drop_waiting(dest->remote);
}

/* Drops the packets that have waited longest for a connection. */
static bool make_room(struct verbs_queue *q)
{
	rc_flush(&q->base);
	if (!q->tx_free_n && q->rc->waiting)
		verbs_rc_drop_waiting(q->rc->waiting);
	return q->tx_free_n > 0;
}

static int rc_tx_reserve(struct nic_queue *queue, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct verbs_dest *dest = verbs_dest_of(q, peer);
	if (__builtin_expect(!dest || !dest->attached, 0))
		return -EPIPE;
	if (__builtin_expect(body_len > dest->body_max, 0))
		return -EMSGSIZE;
	if (__builtin_expect(!q->tx_free_n, 0) && !make_room(q))
		return -EAGAIN;
	verbs_tx_take(q, dest, peer, body_len, tx);
	return 0;
}

static int rc_tx_commit(struct nic_queue *queue, struct nic_tx *tx)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	const struct verbs_dest *dest = tx->driver_data;
	struct verbs_remote *r = dest->remote;
	uint16_t slot = (uint16_t)tx->cookie;
	if (__builtin_expect(!verbs_enter(q), 0)) {
		verbs_tx_cancel(queue, tx);
		verbs_count(&q->counters.dropped, 1);
		return 0;
	}
	q->tx_sge[slot].length = (uint32_t)tx->body_len;
	q->tx_wr[slot].num_sge = tx->body_len > 0;
	if (__builtin_expect(r->conn != NULL, 1))
		verbs_rc_chain(r->conn, slot);
	else
		verbs_rc_wait(r, slot);
	verbs_count(&q->counters.tx_packets, 1);
	verbs_count(&q->counters.tx_bytes, tx->body_len);
	return 0;
}

/* ---- receive ---- */

/* Keeps rx_held[from, held) for the next try. */
static void keep_held(struct verbs_queue *q, uint32_t from)
{
	q->held -= from;
	memmove(q->rx_held, q->rx_held + from, q->held * sizeof *q->rx_held);
}

static void give_back_shared(struct verbs_queue *q)
{
	struct ibv_recv_wr *bad = NULL;
	for (uint32_t i = 0; i < q->held; i++) {
		uint16_t slot = q->rx_held[i];
		q->rx_posted[slot] = true;
		q->rx_wr[slot].wr_id = slot;
		q->rx_wr[slot].next = i + 1 < q->held ? &q->rx_wr[q->rx_held[i + 1]] : NULL;
	}
	if (__builtin_expect(!ibv_post_srq_recv(q->rc->srq, &q->rx_wr[q->rx_held[0]], &bad), 1)) {
		q->held = 0;
		return;
	}
	uint32_t from = 0;
	while (bad && from < q->held && &q->rx_wr[q->rx_held[from]] != bad)
		from++;
	for (uint32_t i = from; i < q->held; i++)
		q->rx_posted[q->rx_held[i]] = false;
	keep_held(q, from);
}

/* Posts each slot to its own connection. Slots of a closed connection are posted again with the next one of the same
 * index. */
static void give_back_own(struct verbs_queue *q)
{
	struct ibv_recv_wr *bad;
	for (uint32_t i = 0; i < q->held; i++) {
		uint16_t slot = q->rx_held[i];
		struct verbs_conn *c = &q->rc->conns[slot >> VERBS_OWN_SHIFT];
		enum verbs_conn_phase phase = verbs_phase(c);
		if (phase != CONN_ACCEPTED && phase != CONN_CONNECTED)
			continue;
		q->rx_posted[slot] = true;
		q->rx_wr[slot].wr_id = (uint64_t)c->generation << 32 | slot;
		q->rx_wr[slot].next = NULL;
		if (ibv_post_recv(c->qp, &q->rx_wr[slot], &bad)) {
			q->rx_posted[slot] = false;
			verbs_rc_broken(c);
		}
	}
	q->held = 0;
}

/* Validates completions, too: there are many devices, some in software. */
static bool read_one(struct verbs_queue *q, const struct ibv_wc *wc, struct nic_pkt *pkt)
{
	uint32_t slot = (uint32_t)wc->wr_id;
	uint64_t generation =
		q->rc->per_conn_buffers && slot < q->rx_n ? q->rc->conns[slot >> VERBS_OWN_SHIFT].generation : 0;
	if (slot >= q->rx_n || wc->wr_id >> 32 != generation || !q->rx_posted[slot]) {
		verbs_count(&q->counters.malformed, 1);
		return false;
	}
	q->rx_posted[slot] = false;
	if (__builtin_expect(wc->status != IBV_WC_SUCCESS,
			     0)) { /* the connection has ended; its own buffers stay with it */
		if (q->rc->per_conn_buffers)
			verbs_rc_broken(&q->rc->conns[slot >> VERBS_OWN_SHIFT]);
		else
			q->rx_held[q->held++] = (uint16_t)slot;
		return false;
	}
	q->rx_held[q->held++] = (uint16_t)slot;
	if (wc->opcode != IBV_WC_RECV || wc->byte_len > q->port->mtu) {
		verbs_count(&q->counters.malformed, 1);
		return false;
	}
	if (wc->wc_flags & IBV_WC_WITH_IMM) { /* never sent by this driver */
		verbs_count(&q->counters.unexpected, 1);
		return false;
	}
	uint32_t len = wc->byte_len;
	if (!len && verbs_rc_first_packet(q, wc->qp_num))
		return false;
	const uint8_t *body = q->memory + (size_t)slot * q->rx_stride + VERBS_RX_BODY_AT;
	*pkt = (struct nic_pkt){.head = body, .body = len ? body : NULL, .body_len = len, .peer = NIC_PEER_NONE};
	verbs_count(&q->counters.rx_bytes, len);
	return true;
}

static unsigned rc_recv(struct nic_queue *queue, struct nic_pkt *pkts, unsigned max)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	struct ibv_wc wc[VERBS_BURST];
	unsigned n = 0;
	if (__builtin_expect(!verbs_enter(q), 0))
		return 0;
	if (q->held && q->rc->per_conn_buffers)
		give_back_own(q);
	else if (q->held)
		give_back_shared(q);
	const struct verbs_conn *dirty = q->rc->dirty; /* not empty: the caller flushes */
	if (__builtin_expect(has_mail(q) || q->rc->deferred, 0))
		verbs_rc_read_mail(q, true);
	int most = (int)(max < VERBS_BURST ? max : VERBS_BURST), got = ibv_poll_cq(q->rx_cq, most, wc);
	q->rc->emptied = got < most;
	for (int i = 0; i < got; i++)
		n += read_one(q, &wc[i], &pkts[n]);
	/* Sends packets that waited for a connection, since the caller may not flush. */
	if (__builtin_expect(q->rc->dirty && !dirty, 0))
		rc_flush(queue);
	if (n) {
		verbs_count(&q->counters.rx_packets, n);
		return n;
	}
	if (q->tx_free_n < VERBS_TX_RING)
		verbs_rc_reap(q);
	/* More may lie behind packets that were not handed out, and deferred mail needs another pass. */
	if (__builtin_expect(got > 0 || q->rc->deferred, 0))
		verbs_signal(q->event_fd);
	return 0;
}

/* ---- sleep ---- */

static void rc_arm(struct nic_queue *queue)
{
	struct verbs_queue *q = verbs_queue_of(queue);
	if (!verbs_enter(q))
		return;
	/* Failed sends raise no event: check before the sleep, so that they are sent by another connection. */
	if (q->tx_free_n < VERBS_TX_RING)
		verbs_rc_reap(q);
	if (ibv_req_notify_cq(q->rx_cq, 0))
		verbs_signal(q->event_fd); /* the queue cannot be woken: prevent the sleep */
}

static uint64_t rc_deadline(const struct nic_queue *queue)
{
	(void)queue;
	return UINT64_MAX;
}

const struct nic_queue_ops verbs_rc_queue_ops = {
	.attach = rc_attach,
	.detach = rc_detach,
	.recv = rc_recv,
	.release = verbs_release,
	.tx_reserve = rc_tx_reserve,
	.tx_room = verbs_tx_room,
	.tx_bytes_max = verbs_tx_bytes_max,
	.tx_commit = rc_tx_commit,
	.tx_cancel = verbs_tx_cancel,
	.flush = rc_flush,
	.arm = rc_arm,
	.disarm = verbs_disarm,
	.wake_fd = verbs_wake_fd,
	.wake_clear = verbs_wake_clear,
	.wake = verbs_wake,
	.deadline = rc_deadline,
};
