/* SPDX-License-Identifier: BSD-3-Clause */
/** The poller's part of a connection, off the fast path, and the lists of transmit slots: each slot is free, reserved,
 * waits for a connection to its remote queue, or is in a connection's list `out` until it completes or the queue pair
 * is destroyed. Poller. */
#include "nic/verbs/bulk.h"

#include <string.h>

static void slot_free(struct verbs_queue *q, uint16_t slot)
{
	q->rc->slot_conn[slot] = VERBS_SLOT_NONE;
	q->tx_free[q->tx_free_n++] = slot;
}

/* ---- packets that wait for a connection ---- */

static void request_conn(struct verbs_remote *r)
{
	r->is_requested = true;
	verbs_notify_control(r->queue, r->queue->rc, &r->to_control);
}

void verbs_rc_request_conn(struct verbs_remote *r)
{
	if (!r->is_requested)
		request_conn(r);
}

void verbs_rc_wait(struct verbs_remote *r, uint16_t slot)
{
	struct verbs_rcq *rcq = r->queue->rc;
	rcq->slot_next[slot] = VERBS_SLOT_NONE;
	if (!r->is_waiting) {
		r->is_waiting = true;
		r->wait_first = slot;
		r->next_waiting = NULL;
		*rcq->waiting_last = r;
		rcq->waiting_last = &r->next_waiting;
	} else {
		rcq->slot_next[r->wait_last] = slot;
	}
	r->wait_last = slot;
	if (!r->is_requested)
		request_conn(r);
}

/* Takes the remote queue off the list; its packets, from wait_first on, belong to the caller. */
static bool stop_waiting(struct verbs_remote *r)
{
	struct verbs_rcq *rcq = r->queue->rc;
	if (!r->is_waiting)
		return false;
	r->is_waiting = false;
	for (struct verbs_remote **at = &rcq->waiting; *at; at = &(*at)->next_waiting)
		if (*at == r) {
			*at = r->next_waiting;
			if (rcq->waiting_last == &r->next_waiting)
				rcq->waiting_last = at;
			break;
		}
	return true;
}

void verbs_rc_drop_waiting(struct verbs_remote *r)
{
	struct verbs_queue *q = r->queue;
	uint16_t next;
	if (!stop_waiting(r))
		return;
	for (uint16_t slot = r->wait_first; slot != VERBS_SLOT_NONE; slot = next) {
		next = q->rc->slot_next[slot];
		slot_free(q, slot);
		verbs_count(&q->counters.dropped, 1);
	}
}

static void send_backlog(struct verbs_remote *r)
{
	uint16_t next;
	r->is_requested = false;
	if (!stop_waiting(r))
		return;
	for (uint16_t slot = r->wait_first; slot != VERBS_SLOT_NONE; slot = next) {
		next = r->queue->rc->slot_next[slot];
		verbs_rc_chain(r->conn, slot);
	}
}

/* ---- usable connections ---- */

/* Sends by this connection from now on; earlier ones stay usable for when it ends. */
static void put_to_use(struct verbs_conn *c)
{
	c->is_usable = true;
	c->next_usable = c->remote->conn;
	c->remote->conn = c;
}

/* The control thread sets up no connection while one is CONN_UP, so another usable one takes over. */
static void put_out_of_use(struct verbs_conn *c)
{
	if (!c->is_usable)
		return;
	c->is_usable = false;
	for (struct verbs_conn **at = &c->remote->conn; *at; at = &(*at)->next_usable)
		if (*at == c) {
			*at = c->next_usable;
			break;
		}
}

/* The connection failed or has ended: requests another one for the packets that wait. */
static void request_again(struct verbs_remote *r)
{
	r->is_requested = false;
	if (!r->conn && r->is_waiting)
		request_conn(r);
}

/* ---- transmit ---- */

void verbs_rc_chain(struct verbs_conn *c, uint16_t slot)
{
	struct verbs_queue *q = c->queue;
	struct verbs_rcq *rcq = q->rc;
	struct ibv_send_wr *wr = &q->tx_wr[slot];
	wr->wr_id = (uint64_t)c->generation << 32 | (uint32_t)c->index << 16 | slot;
	wr->next = NULL;
	wr->send_flags = wr->num_sge && q->tx_sge[slot].length <= c->inline_max ? IBV_SEND_INLINE : 0;
	rcq->slot_conn[slot] = c->index;
	rcq->slot_next[slot] = VERBS_SLOT_NONE;
	if (c->out_first == VERBS_SLOT_NONE)
		c->out_first = slot;
	else
		rcq->slot_next[c->out_last] = slot;
	c->out_last = slot;
	if (c->last)
		c->last->next = wr;
	else
		c->first = wr;
	c->last = wr;
	if (!c->is_dirty) {
		c->is_dirty = true;
		c->next_dirty = rcq->dirty;
		rcq->dirty = c;
	}
}

/* Frees the slots up to `slot`; VERBS_SLOT_NONE: all. */
static void release_slots(struct verbs_queue *q, struct verbs_conn *c, uint16_t slot)
{
	while (c->out_first != VERBS_SLOT_NONE) {
		uint16_t one = c->out_first;
		c->out_first = q->rc->slot_next[one];
		slot_free(q, one);
		if (one == slot)
			return;
	}
}

static void take_completion(struct verbs_queue *q, const struct ibv_wc *wc)
{
	uint16_t slot = (uint16_t)wc->wr_id, index = (uint16_t)(wc->wr_id >> 16);
	struct verbs_conn *c = index < q->rc->conns_n ? &q->rc->conns[index] : NULL;
	if (c && c->bulk && wc->wr_id >> 32 == c->generation) {
		verbs_bulk_completed(c, wc);
		return;
	}
	if (!c || wc->wr_id >> 32 != c->generation || slot >= VERBS_TX_RING || q->rc->slot_conn[slot] != index) {
		verbs_count(&q->counters.malformed, 1);
		return;
	}
	release_slots(q, c, slot);
	if (wc->status != IBV_WC_SUCCESS)
		verbs_rc_broken(c);
}

static struct ibv_cq *cq_of(const struct verbs_queue *q)
{
	return q->rc->cq ? q->rc->cq : q->tx_cq;
}

void verbs_rc_reap(struct verbs_queue *q)
{
	struct ibv_wc wc[VERBS_BURST];
	int n = ibv_poll_cq(cq_of(q), VERBS_BURST, wc);
	for (int i = 0; i < n; i++)
		take_completion(q, &wc[i]);
}

static void reap_all(struct verbs_queue *q)
{
	struct ibv_wc wc[VERBS_BURST];
	int n;
	while ((n = ibv_poll_cq(cq_of(q), VERBS_BURST, wc)) > 0)
		for (int i = 0; i < n; i++)
			take_completion(q, &wc[i]);
}

/* ---- phases ---- */

void verbs_rc_broken(struct verbs_conn *c)
{
	if (atomic_load_explicit(&c->broken, memory_order_relaxed))
		return;
	atomic_store_explicit(&c->broken, true, memory_order_release);
	put_out_of_use(c);
	verbs_notify_control(c->queue, c->queue->rc, &c->to_control);
}

bool verbs_rc_first_packet(struct verbs_queue *q, uint32_t qpn)
{
	/* The mail was sent before the peer could send. */
	if (atomic_load_explicit(&q->rc->to_poller, memory_order_acquire))
		verbs_rc_read_mail(q, false);
	for (struct verbs_conn **at = &q->rc->awaiting_first; *at; at = &(*at)->next_awaiting) {
		struct verbs_conn *c = *at;
		if (c->qpn != qpn)
			continue;
		*at = c->next_awaiting;
		c->awaits_first = false;
		if (!c->close_acked && !atomic_load_explicit(&c->broken, memory_order_relaxed)) {
			put_to_use(c);
			send_backlog(c->remote);
		}
		return true;
	}
	return false;
}

/* Expects the first packet of an accepted connection. Called for its first mail, even if it is to be closed at once:
 * the packet may have arrived. */
static void await_first_packet(struct verbs_queue *q, struct verbs_conn *c)
{
	if (c->active || c->is_announced || c->bulk)
		return;
	c->is_announced = c->awaits_first = true;
	c->qpn = c->qp->qp_num; /* the queue pair is destroyed before its last completion is processed */
	c->next_awaiting = q->rc->awaiting_first;
	q->rc->awaiting_first = c;
}

/* The accepting side must not send first: an empty packet permits it to send. */
static void become_ready(struct verbs_queue *q, struct verbs_conn *c)
{
	if (c->is_ready || atomic_load_explicit(&c->broken, memory_order_relaxed))
		return;
	c->is_ready = true;
	if (c->bulk) {
		put_to_use(c);
		c->remote->is_requested = false;
		return;
	}
	if (!q->tx_free_n) {
		verbs_rc_reap(q);
		if (!q->tx_free_n && q->rc->waiting && q->rc->waiting != c->remote)
			verbs_rc_drop_waiting(q->rc->waiting);
	}
	uint16_t slot;
	if (q->tx_free_n) {
		slot = q->tx_free[--q->tx_free_n];
	} else if (c->remote->is_waiting && c->remote->wait_first != c->remote->wait_last) {
		slot = c->remote->wait_first; /* drops one of its own packets */
		c->remote->wait_first = q->rc->slot_next[slot];
		verbs_count(&q->counters.dropped, 1);
	} else { /* no slot: without the first packet the connection is useless */
		verbs_rc_broken(c);
		return;
	}
	put_to_use(c);
	q->tx_sge[slot].length = 0;
	q->tx_wr[slot].num_sge = 0;
	verbs_rc_chain(c, slot);
	send_backlog(c->remote);
}

static void unlist_dirty(struct verbs_rcq *rcq, struct verbs_conn *c)
{
	for (struct verbs_conn **at = &rcq->dirty; c->is_dirty && *at; at = &(*at)->next_dirty)
		if (*at == c) {
			*at = c->next_dirty;
			c->is_dirty = false;
			break;
		}
}

static void unlist_unheard(struct verbs_rcq *rcq, struct verbs_conn *c)
{
	for (struct verbs_conn **at = &rcq->awaiting_first; c->awaits_first && *at; at = &(*at)->next_awaiting)
		if (*at == c) {
			*at = c->next_awaiting;
			c->awaits_first = false;
			break;
		}
}

/* Acknowledges the close. False: a packet in one of its buffers may still be in use. */
static bool ack_close(struct verbs_queue *q, struct verbs_conn *c, bool drained)
{
	if (!c->close_acked) {
		c->close_acked = true;
		unlist_dirty(q->rc, c);
		c->first = c->last = NULL;
		put_out_of_use(c);
		request_again(c->remote);
	}
	if (q->rc->per_conn_buffers && !drained)
		return false;
	verbs_phase_set(c, CONN_CLOSE_ACKED);
	verbs_notify_control(q, q->rc, &c->to_control);
	return true;
}

/* Reclaims the buffers. False: completions of its own buffers may be pending, one may be in use, or its first packet is
 * still to be received. */
static bool reclaim(struct verbs_queue *q, struct verbs_conn *c, bool drained)
{
	if (!c->destroyed) {
		c->destroyed = true;
		reap_all(q); /* pending completions carry its index */
		release_slots(q, c, VERBS_SLOT_NONE);
		if (c->bulk)
			verbs_bulk_conn_destroyed(c);
	}
	if ((q->rc->per_conn_buffers || c->awaits_first) && !drained)
		return false;
	unlist_unheard(q->rc, c);
	for (uint32_t i = 0; q->rc->per_conn_buffers && i < 1u << VERBS_OWN_SHIFT; i++)
		q->rx_posted[((uint32_t)c->index << VERBS_OWN_SHIFT) + i] = false;
	c->is_announced = c->is_ready = c->close_acked = c->destroyed = false;
	verbs_phase_set(c, CONN_NONE);
	verbs_notify_control(q, q->rc, &c->to_control);
	return true;
}

/* `drained`: since the mail was read the receive queue was found empty, and its packets have been read. */
static void handle_conn(struct verbs_queue *q, struct verbs_conn *c, bool drained)
{
	bool done = true;
	enum verbs_conn_phase phase = verbs_phase(c);
	if (phase != CONN_NONE)
		await_first_packet(q, c);
	switch (phase) {
	case CONN_CONNECTED:
		become_ready(q, c);
		break;
	case CONN_CLOSE_REQUESTED:
		done = ack_close(q, c, drained);
		break;
	case CONN_DESTROYED:
		done = reclaim(q, c, drained);
		break;
	case CONN_ACCEPTED:
		if (c->bulk)
			become_ready(q, c);
		break;
	case CONN_NONE:
	case CONN_CLOSE_ACKED:
		break;
	}
	if (!done && !c->is_deferred) { /* a phase may be notified twice: mail can be read between the change and its
					   notification */
		c->is_deferred = true;
		c->next_deferred = q->rc->deferred;
		q->rc->deferred = c;
		q->rc->emptied = false;
	}
}

static void handle_remote(struct verbs_remote *r)
{
	if (!atomic_exchange_explicit(&r->gave_up, false, memory_order_acq_rel) || r->conn)
		return;
	verbs_rc_drop_waiting(r);
	r->is_requested = false;
}

void verbs_rc_read_mail(struct verbs_queue *q, bool drained)
{
	struct verbs_rcq *rcq = q->rc;
	struct verbs_conn *deferred = drained && rcq->emptied ? rcq->deferred : NULL;
	if (deferred)
		rcq->deferred = NULL;
	for (struct verbs_conn *next; deferred; deferred = next) {
		next = deferred->next_deferred;
		deferred->is_deferred = false;
		handle_conn(q, deferred, true);
	}
	/* The control thread may free an entry that was cleared, unless it sees this flag. */
	atomic_store_explicit(&rcq->reading_mail, true, memory_order_relaxed);
	for (struct verbs_mail *n = verbs_mail_take(&rcq->to_poller), *next; n; n = next) {
		next = n->next;
		verbs_mail_clear(n);
		if (n->is_conn)
			handle_conn(q, (struct verbs_conn *)n, false);
		else
			handle_remote((struct verbs_remote *)n);
	}
	/* Pairs with verbs_remotes_sweep(). */
	atomic_store_explicit(&rcq->reading_mail, false, memory_order_release);
}

void verbs_rc_drop_all(struct verbs_queue *q)
{
	while (q->rc->waiting)
		verbs_rc_drop_waiting(q->rc->waiting);
	for (unsigned i = 0; i < q->rc->conns_n; i++) {
		struct verbs_conn *c = &q->rc->conns[i];
		c->first = c->last = NULL;
		release_slots(q, c, VERBS_SLOT_NONE);
		put_out_of_use(c);
	}
	q->rc->dirty = NULL;
}
