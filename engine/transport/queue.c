/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Operations of a queue except sending and receiving: attached peers, room for messages, sleep; and the orders of the
 * control thread. Poller.
 */
#include "transport/queue.h"

#include "transport/auth.h"
#include "transport/borrow.h"
#include "transport/control.h"
#include "transport/lane.h"
#include "transport/rings.h"
#include "transport/schedule.h"
#include "transport/send.h"
#include "transport/setup.h"
#include "transport/timer.h"

#include <errno.h>
#include <unistd.h>

static struct transport_queue *queue_of(struct nic_queue *q)
{
	return (struct transport_queue *)q;
}

static inline struct transport_peer *attached_peer(const struct transport_queue *q, uint32_t peer)
{
	struct transport_peer *p = peer < FAR_TRANSPORT_PEERS_MAX ? q->peers[peer] : NULL;
	return p && p->attached ? p : NULL;
}

/* ---- reports to the control thread ---- */

void transport_report_post(struct transport_queue *q, struct transport_peer *p, enum transport_report news)
{
	/* Pairs with news_take() in setup.c: the bit of the set is added last and taken first. */
	atomic_fetch_or_explicit(&p->news, news, memory_order_release);
	if (transport_peer_set_add(&q->news, p->index))
		transport_port_signal(q->port);
}

void transport_peer_dead(struct transport_queue *q, struct transport_peer *p, int error)
{
	if (p->dead)
		return;
	p->dead = true;
	transport_grants_end_all(q, p);
	atomic_store_explicit(&p->why, (int16_t)error, memory_order_relaxed);
	transport_report_post(q, p, TRANSPORT_REPORT_DOWN);
}

/* ---- orders of the control thread ---- */

static void peer_open(struct transport_queue *q, struct transport_peer *p)
{
	q->peers[p->index] = p;
	if (p->index >= q->peers_end)
		q->peers_end = p->index + 1;
	if (!p->opened && !p->loop) {
		p->lower_peer = p->address;
		p->opened = q->ops->attach(q->lower, p->lower_peer) == 0;
	}
}

static void peer_reroute(struct transport_queue *q, struct transport_peer *p)
{
	uint32_t own = p->current_path ? p->paths->path[0].lower_peer : p->lower_peer;
	if (p->opened && own != p->address) {
		q->ops->detach(q->lower, own);
		bool attached = q->ops->attach(q->lower, p->address) == 0;
		if (p->paths)
			p->paths->path[0] =
				(struct transport_path){.via = q, .lower_peer = p->address, .attached = attached};
		if (p->current_path == 0) {
			p->lower_peer = p->address;
			p->opened = attached;
		}
	}
	transport_report_post(q, p, TRANSPORT_REPORT_REROUTED);
}

/* The kick waits for the flush: packets for the peer may not be committed below yet. */
void transport_kick(struct transport_queue *q, struct transport_peer *p)
{
	if (!p->via->ops->kick || p->via->port->lower_caps.wake || p->kick || !p->opened)
		return;
	p->kick = true;
	q->kicks[q->kicks_n++] = p;
}

void transport_flush_rest(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->siblings_n && q->failed_over_n; i++) {
		struct transport_queue *s = q->siblings[i];
		if (!s->unflushed)
			continue;
		s->unflushed = false;
		s->ops->flush(s->lower);
	}
	for (uint32_t i = 0; i < q->kicks_n; i++) {
		struct transport_peer *p = q->kicks[i];
		p->kick = false;
		if (p->via->ops->kick)
			p->via->ops->kick(p->via->lower, p->lower_peer);
	}
	q->kicks_n = 0;
}

static void peer_setup(struct transport_queue *q, struct transport_peer *p)
{
	if (!atomic_load_explicit(&p->setup_full, memory_order_acquire)) /* pairs with setup_post() */
		return;
	if (p->opened)
		transport_send_raw(p, p->setup->packet, p->setup->packet_len);
	transport_kick(q, p);
	atomic_store_explicit(&p->setup_full, false, memory_order_release);
}

static void peer_start(struct transport_queue *q, struct transport_peer *p)
{
	if (p->started)
		return;
	p->started = true;
	p->rx_acked = p->retransmitted_first = p->rx_next;
	p->una = p->next = q->port->config.first_packet;
	p->path.reorder = FAR_TRANSPORT_REORDER;
	transport_bulk_window(p, p->window ? p->window : FAR_TRANSPORT_WINDOW);
	p->unchecked = p->agreed;
	p->bulk &= q->ops->bulk != NULL && !p->loop;
	uint32_t often = q->port->ring && q->port->ring / 4 < FAR_TRANSPORT_ACK_EVERY ? q->port->ring / 4
										      : FAR_TRANSPORT_ACK_EVERY;
	p->ack_every = (uint8_t)(often ? often : 1);
	transport_unscheduled_reset(p);
	p->wanted = true;
	p->confirmed = p->loop || !p->accepted;
	p->special = !p->confirmed;
	p->sleep_sent = !q->port->lower_caps.wake;
	uint64_t lower = p->loop ? TRANSPORT_BODY_MAX : q->ops->tx_bytes_max(q->lower, p->lower_peer);
	uint64_t most = lower < p->remote_packet_max ? lower : p->remote_packet_max;
	p->payload_max = most > TRANSPORT_PACKET_MIN ? (uint32_t)(most - TRANSPORT_HEAD_BYTES)
						     : TRANSPORT_PACKET_MIN - TRANSPORT_HEAD_BYTES;
}

static void list_remove(struct transport_peer **list, uint32_t *n, const struct transport_peer *p)
{
	for (uint32_t i = 0; i < *n; i++)
		if (list[i] == p) {
			list[i] = list[--*n];
			return;
		}
}

static void backlog_remove(struct transport_queue *q, struct transport_peer *p)
{
	struct transport_peer **at = &q->backlog_first, *before = NULL;
	while (*at && *at != p) {
		before = *at;
		at = &before->rings->next_backlog;
	}
	if (!*at)
		return;
	*at = p->rings->next_backlog;
	if (q->backlog_last == p)
		q->backlog_last = before;
	p->backlogged = false;
}

void transport_queue_end(struct transport_queue *q, struct transport_peer *p)
{
	q->lane_at[p->index] = NULL;
	if (p->opened) {
		uint8_t bye[TRANSPORT_HEAD_BYTES + sizeof(struct wire_reject)];
		if (p->started) {
			struct transport_reject no = {.error = 0};
			uint32_t len = transport_reject_write(bye, WIRE_CLOSE, p->remote_id, p->remote_token, &no);
			transport_tag_write(transport_session_key(p), bye, len, q->port->id, NULL, p->via->crc);
			transport_send_raw(p, bye, len);
			transport_flush(&q->base);
			if (p->via->ops->kick && p->remote_asleep)
				p->via->ops->kick(p->via->lower, p->lower_peer);
		}
		if (p->via->unflushed) /* a reject that detach() might lose */
			transport_flush(&q->base);
	}
	transport_paths_detach(q, p);
	p->opened = false;
	transport_messages_drop(q, p);
	list_remove(q->acks, &q->acks_n, p);
	list_remove(q->kicks, &q->kicks_n, p);
	list_remove(q->awake, &q->awake_n, p);
	if (p->active) {
		q->actives[p->active_at] = q->actives[--q->actives_n];
		q->actives[p->active_at]->active_at = p->active_at;
		p->active = false;
	}
	backlog_remove(q, p);
	transport_rings_give(q, p);
	p->attached = p->started = false;
	q->peers[p->index] = NULL;
}

static void order_serve(struct transport_queue *q, struct transport_peer *p, uint32_t due)
{
	if (due & TRANSPORT_ORDER_OPEN)
		peer_open(q, p);
	if (due & TRANSPORT_ORDER_REROUTE)
		peer_reroute(q, p);
	if (due & TRANSPORT_ORDER_START)
		peer_start(q, p);
	if (due & TRANSPORT_ORDER_SETUP)
		peer_setup(q, p);
	if (due & TRANSPORT_ORDER_PATHS && p->started)
		transport_paths_attach(q, p);
	if (due / TRANSPORT_ORDER_MISROUTED && p->started && !p->dead)
		transport_path_report_misrouted(p, due);
	if (due & TRANSPORT_ORDER_ACK && p->started && !p->loop && !p->dead)
		transport_ack_soon(q, p);
	if (due & TRANSPORT_ORDER_DEAD && p->started)
		transport_peer_dead(q, p, atomic_load_explicit(&p->dead_why, memory_order_relaxed));
	if (due & TRANSPORT_ORDER_CLOSE) {
		transport_queue_end(q, p);
		transport_report_post(q, p, TRANSPORT_REPORT_CLOSED);
	}
}

void transport_orders_run(struct transport_queue *q)
{
	uint32_t i;
	while ((i = transport_peer_set_take(&q->orders)) != UINT32_MAX) {
		struct transport_peer *p = q->port->peers[i];
		order_serve(q, p, atomic_exchange_explicit(&p->due, 0, memory_order_acquire));
	}
}

static inline void orders_check(struct transport_queue *q)
{
	if (__builtin_expect(transport_peer_set_any(&q->orders), 0))
		transport_orders_run(q);
}

/* ---- peers ---- */

static int transport_attach(struct nic_queue *nq, uint32_t peer)
{
	struct transport_queue *q = queue_of(nq);
	orders_check(q);
	struct transport_peer *p = peer < FAR_TRANSPORT_PEERS_MAX ? q->peers[peer] : NULL;
	if (!p || !p->started || p->attached || p->detached)
		return -EINVAL;
	struct transport_rings *r = p->rings;
	p->attached = true;
	/* Messages that arrived before. */
	while (r && r->held_first) {
		struct transport_message *m = r->held_first;
		r->held_first = m->next;
		m->next = NULL;
		*q->ready_last = m;
		q->ready_last = &m->next;
		p->ready_n++;
	}
	if (r)
		r->held_last = &r->held_first;
	return 0;
}

static void transport_detach(struct nic_queue *nq, uint32_t peer)
{
	struct transport_queue *q = queue_of(nq);
	struct transport_peer *p = attached_peer(q, peer);
	if (!p)
		return;
	p->attached = false;
	transport_lane_leave(q, p);
	transport_messages_drop(q, p);
	/* What arrives until drop() is discarded; CLOSE ends the connection then. */
	p->detached = true;
}

void transport_peer_activate(struct transport_queue *q, struct transport_peer *p)
{
	p->active = true;
	p->active_at = q->actives_n;
	p->fresh = true;
	p->heard = false;
	q->actives[q->actives_n++] = p;
}

static void transport_set_liveness_callback(struct nic_queue *nq, bool (*awaits_reply)(void *ctx, uint32_t peer),
					    void *ctx)
{
	struct transport_queue *q = queue_of(nq);
	q->awaits_reply = awaits_reply;
	q->awaits_reply_ctx = ctx;
}

static void transport_set_placement(struct nic_queue *nq, nic_placement_fn *place, void *ctx)
{
	struct transport_queue *q = queue_of(nq);
	q->place = place;
	q->place_ctx = ctx;
}

/* ---- room ---- */

static int transport_tx_zero_copy(struct nic_queue *nq, uint32_t peer, const void *body, uint64_t body_len, void *owner,
				  struct nic_tx *tx)
{
	struct transport_queue *q = queue_of(nq);
	struct transport_peer *p = attached_peer(q, peer);
	if (!p)
		return -EPIPE;
	if (body_len > TRANSPORT_BODY_MAX)
		return -EMSGSIZE;
	if (p->out_bytes + body_len > FAR_TRANSPORT_OUT_BYTES)
		return -ENOBUFS;
	struct transport_message *m = p->out_n < FAR_TRANSPORT_SLOTS
					      ? transport_message_zero_copy(q, p, body, (uint32_t)body_len, owner)
					      : NULL;
	if (!m)
		return -EAGAIN;
	*tx = (struct nic_tx){.head = (uint8_t *)&m->head,
			      .body = m->body,
			      .body_len = body_len,
			      .cookie = 1,
			      .driver_data = m,
			      .peer = peer,
			      .order = NIC_ORDER_ALL};
	return 0;
}

static int transport_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct transport_queue *q = queue_of(nq);
	struct transport_peer *p = attached_peer(q, peer);
	if (__builtin_expect(!p, 0))
		return -EPIPE;
	if (__builtin_expect(body_len > TRANSPORT_INLINE_BYTES, 0)) {
		if (body_len > TRANSPORT_BODY_MAX)
			return -EMSGSIZE;
		if (p->out_bytes + body_len > FAR_TRANSPORT_OUT_BYTES)
			return -ENOBUFS;
	}
	if (__builtin_expect(p->out_n >= FAR_TRANSPORT_SLOTS, 0))
		return -EAGAIN;
	struct transport_message *m = transport_message_out(q, p, (uint32_t)body_len);
	if (__builtin_expect(!m, 0)) /* acknowledgements will free memory */
		return body_len <= TRANSPORT_INLINE_BYTES ? -EAGAIN : p->out_bytes ? -ENOBUFS : -ENOMEM;
	tx->head = (uint8_t *)&m->head;
	tx->body = m->body;
	tx->body_len = body_len;
	tx->cookie = 1;
	tx->driver_data = m;
	tx->peer = peer;
	tx->order = NIC_ORDER_ALL;
	return 0;
}

static uint32_t transport_tx_room(struct nic_queue *nq, uint32_t peer)
{
	const struct transport_peer *p = attached_peer(queue_of(nq), peer);
	return p && p->out_n < FAR_TRANSPORT_SLOTS ? FAR_TRANSPORT_SLOTS - p->out_n : 0;
}

static uint64_t transport_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	(void)nq;
	(void)peer;
	return TRANSPORT_BODY_MAX;
}

static int transport_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct transport_message *m = tx->driver_data;
	struct transport_peer *p = attached_peer(queue_of(nq), tx->peer);
	if (__builtin_expect(!p, 0))
		return -EPIPE;
	if (__builtin_expect(p->out_n >= FAR_TRANSPORT_SLOTS, 0))
		return -EAGAIN;
	if (p->rings && transport_lane_written(p->rings) && !transport_lane_flush(queue_of(nq), p))
		return -EAGAIN;
	m->order = tx->order;
	if (__builtin_expect(m->borrowed, 0))
		transport_borrow_send(queue_of(nq), p, m);
	else
		transport_send(queue_of(nq), p, m);
	return 0;
}

static void transport_prefetch(struct nic_queue *nq, uint32_t peer)
{
	const struct transport_queue *q = queue_of(nq);
	if (peer >= FAR_TRANSPORT_PEERS_MAX || !q->peers[peer])
		return;
	transport_peer_fetch(q->peers[peer]);
	__builtin_prefetch(&q->lane_at[peer]);
}

static void transport_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct transport_queue *q = queue_of(nq);
	transport_message_out_free(q, attached_peer(q, tx->peer), tx->driver_data);
}

/* ---- sleep ---- */

/* Sends an ACK with ASLEEP to the peers in queue->awake. A peer that misses it kicks when it retransmits. */
static void announce_sleep(struct transport_queue *q)
{
	for (uint32_t i = 0; i < q->awake_n; i++) {
		struct transport_peer *p = q->awake[i];
		p->sleep_sent = true;
		if (!p->dead)
			transport_send_ack(q, p);
	}
	q->awake_n = 0;
}

static void transport_arm(struct nic_queue *nq)
{
	struct transport_queue *q = queue_of(nq);
	q->look = q->armed = true;
	/* Send pending ACKs now: a timer would have to wake the queue for them. */
	for (uint32_t i = 0; i < q->actives_n; i++)
		if (q->actives[i]->owed)
			transport_ack_soon(q, q->actives[i]);
	transport_delayed_acks_run(q, UINT64_MAX);
	if (!q->port->lower_caps.wake)
		q->asleep_flag = WIRE_ASLEEP;
	transport_send_acks(q);
	announce_sleep(q);
	transport_flush(nq);
	q->ops->arm(q->lower);
}

static void transport_disarm(struct nic_queue *nq)
{
	struct transport_queue *q = queue_of(nq);
	q->asleep_flag = 0;
	q->armed = false;
	q->look = true;
	q->ops->disarm(q->lower);
}

static int transport_wake_fd(const struct nic_queue *nq)
{
	const struct transport_queue *q = (const struct transport_queue *)nq;
	return q->ops->wake_fd(q->lower);
}

static void transport_wake_clear(struct nic_queue *nq)
{
	queue_of(nq)->ops->wake_clear(queue_of(nq)->lower);
}

static void transport_wake(struct nic_queue *nq)
{
	queue_of(nq)->ops->wake(queue_of(nq)->lower);
}

/* ---- raw packets of the device below ---- */

static unsigned transport_raw_tx(struct nic_queue *nq, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct transport_queue *q = queue_of(nq);
	const struct transport_peer *p = attached_peer(q, peer);
	return p && p->opened && p->current_path == 0 ? q->ops->raw->tx(q->lower, p->lower_peer, first, n, bytes) : 0;
}

static unsigned transport_raw_rx(struct nic_queue *nq, unsigned max, uint64_t *last)
{
	struct transport_queue *q = queue_of(nq);
	return q->ops->raw->rx(q->lower, max, last);
}

const struct nic_raw_ops transport_raw_ops = {.tx = transport_raw_tx, .rx = transport_raw_rx};

const struct nic_queue_ops transport_queue_ops = {
	.attach = transport_attach,
	.detach = transport_detach,
	.recv = transport_recv,
	.release = transport_release,
	.tx_reserve = transport_tx_reserve,
	.tx_zero_copy = transport_tx_zero_copy,
	.tx_borrow = transport_tx_borrow,
	.tx_room = transport_tx_room,
	.tx_bytes_max = transport_tx_bytes_max,
	.tx_commit = transport_tx_commit,
	.tx_cancel = transport_tx_cancel,
	.flush = transport_flush,
	.arm = transport_arm,
	.disarm = transport_disarm,
	.wake_fd = transport_wake_fd,
	.wake_clear = transport_wake_clear,
	.wake = transport_wake,
	.deadline = transport_deadline,
	.set_liveness_callback = transport_set_liveness_callback,
	.set_placement = transport_set_placement,
	.prefetch = transport_prefetch,
	.lane = transport_lane,
};
