/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Operations of a queue except sending and receiving: attached peers, room for messages, sleep; and the orders of the
 * control thread. Poller.
 */
#include "transport/port.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

static struct link_queue *queue_of(struct nic_queue *q)
{
	return (struct link_queue *)q;
}

static inline struct link_peer *attached_peer(const struct link_queue *q, uint32_t peer)
{
	struct link_peer *p = peer < FAR_LINK_PEERS_MAX ? q->peers[peer] : NULL;
	return p && p->attached ? p : NULL;
}

/* ---- reports to the control thread ---- */

void link_news_post(struct link_queue *q, struct link_peer *p, enum link_news news)
{
	/* Pairs with news_take() in setup.c: the bit of the set is added last and taken first. */
	atomic_fetch_or_explicit(&p->news, news, memory_order_release);
	if (link_board_set(&q->news, p->index))
		link_port_signal(q->port);
}

void link_peer_dead(struct link_queue *q, struct link_peer *p, int error)
{
	if (p->dead)
		return;
	p->dead = true;
	link_grants_end_all(q, p);
	atomic_store_explicit(&p->why, (int16_t)error, memory_order_relaxed);
	link_news_post(q, p, LINK_NEWS_DOWN);
}

/* ---- orders of the control thread ---- */

static void peer_open(struct link_queue *q, struct link_peer *p)
{
	q->peers[p->index] = p;
	if (p->index >= q->peers_end)
		q->peers_end = p->index + 1;
	if (!p->opened && !p->loop) {
		p->lower_peer = p->address;
		p->opened = q->ops->attach(q->lower, p->lower_peer) == 0;
	}
}

static void peer_reroute(struct link_queue *q, struct link_peer *p)
{
	uint32_t own = p->current_path ? p->paths->path[0].lower_peer : p->lower_peer;
	if (p->opened && own != p->address) {
		q->ops->detach(q->lower, own);
		bool attached = q->ops->attach(q->lower, p->address) == 0;
		if (p->paths)
			p->paths->path[0] = (struct link_way){.via = q, .lower_peer = p->address, .attached = attached};
		if (p->current_path == 0) {
			p->lower_peer = p->address;
			p->opened = attached;
		}
	}
	link_news_post(q, p, LINK_NEWS_MOVED);
}

/* The kick waits for the flush: packets for the peer may not be committed below yet. */
void link_kick(struct link_queue *q, struct link_peer *p)
{
	if (!p->via->ops->kick || p->via->port->lower_caps.wake || p->kick || !p->opened)
		return;
	p->kick = true;
	q->kicks[q->kicks_n++] = p;
}

void link_flush_rest(struct link_queue *q)
{
	for (uint32_t i = 0; i < q->siblings_n && q->abroad_n; i++) {
		struct link_queue *s = q->siblings[i];
		if (!s->unflushed)
			continue;
		s->unflushed = false;
		s->ops->flush(s->lower);
	}
	for (uint32_t i = 0; i < q->kicks_n; i++) {
		struct link_peer *p = q->kicks[i];
		p->kick = false;
		if (p->via->ops->kick)
			p->via->ops->kick(p->via->lower, p->lower_peer);
	}
	q->kicks_n = 0;
}

static void peer_setup(struct link_queue *q, struct link_peer *p)
{
	if (!atomic_load_explicit(&p->setup_full, memory_order_acquire)) /* pairs with setup_post() */
		return;
	if (p->opened)
		link_send_raw(p, p->setup->packet, p->setup->packet_len);
	link_kick(q, p);
	atomic_store_explicit(&p->setup_full, false, memory_order_release);
}

static void peer_start(struct link_queue *q, struct link_peer *p)
{
	if (p->started)
		return;
	p->started = true;
	p->rx_acked = p->again_first = p->rx_next;
	p->una = p->next = q->port->config.first_packet;
	p->path.reorder = FAR_LINK_REORDER;
	link_bulk_window(p, p->window ? p->window : FAR_LINK_WINDOW);
	p->unchecked &= q->unchecked;
	p->bulk &= q->ops->bulk != NULL && !p->loop;
	uint32_t often =
		q->port->ring && q->port->ring / 4 < FAR_LINK_ACK_EVERY ? q->port->ring / 4 : FAR_LINK_ACK_EVERY;
	p->ack_every = (uint8_t)(often ? often : 1);
	link_bulk_forget(p);
	p->wanted = true;
	p->confirmed = p->loop || !p->accepted;
	p->special = !p->confirmed;
	p->told_asleep = !q->port->lower_caps.wake;
	uint64_t lower = p->loop ? LINK_BODY_MAX : q->ops->tx_bytes_max(q->lower, p->lower_peer);
	uint64_t most = lower < p->packet_max_there ? lower : p->packet_max_there;
	p->payload_max = most > LINK_PACKET_MIN ? (uint32_t)(most - LINK_HEAD) : LINK_PACKET_MIN - LINK_HEAD;
}

static void list_remove(struct link_peer **list, uint32_t *n, const struct link_peer *p)
{
	for (uint32_t i = 0; i < *n; i++)
		if (list[i] == p) {
			list[i] = list[--*n];
			return;
		}
}

static void backlog_remove(struct link_queue *q, struct link_peer *p)
{
	struct link_peer **at = &q->backlog_first, *before = NULL;
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

/* Sends BYE and releases everything that the poller has of the peer. */
static void peer_close(struct link_queue *q, struct link_peer *p)
{
	if (p->opened) {
		static const uint8_t none[AUTH_NONCE_BYTES];
		uint8_t bye[LINK_HEAD + sizeof(struct wire_no)];
		if (p->started) {
			uint32_t len = link_no_write(bye, WIRE_BYE, p->id_there, p->token_there, 0, 0, none);
			link_seal(link_session_key(p), bye, len, q->port->id, NULL, p->via->crc);
			link_send_raw(p, bye, len);
			link_flush(&q->base);
			if (p->via->ops->kick && p->asleep_there)
				p->via->ops->kick(p->via->lower, p->lower_peer);
		}
		if (p->via->unflushed) /* a reject that detach() might lose */
			link_flush(&q->base);
	}
	link_ways_detach(q, p);
	p->opened = false;
	link_messages_drop(q, p);
	list_remove(q->acks, &q->acks_n, p);
	list_remove(q->kicks, &q->kicks_n, p);
	list_remove(q->awake, &q->awake_n, p);
	if (p->active) {
		q->actives[p->active_at] = q->actives[--q->actives_n];
		q->actives[p->active_at]->active_at = p->active_at;
		p->active = false;
	}
	backlog_remove(q, p);
	link_rings_give(q, p);
	p->attached = p->started = false;
	q->peers[p->index] = NULL;
}

static void order_serve(struct link_queue *q, struct link_peer *p, uint32_t due)
{
	if (due & LINK_DUE_OPEN)
		peer_open(q, p);
	if (due & LINK_DUE_MOVE)
		peer_reroute(q, p);
	if (due & LINK_DUE_START)
		peer_start(q, p);
	if (due & LINK_DUE_SETUP)
		peer_setup(q, p);
	if (due & LINK_DUE_WAY && p->started)
		link_ways_attach(q, p);
	if (due / LINK_DUE_ASTRAY && p->started && !p->dead)
		link_way_astray(p, due);
	if (due & LINK_DUE_ACK && p->started && !p->loop && !p->dead)
		link_ack_soon(q, p);
	if (due & LINK_DUE_DEAD && p->started)
		link_peer_dead(q, p, atomic_load_explicit(&p->dead_why, memory_order_relaxed));
	if (due & LINK_DUE_CLOSE) {
		peer_close(q, p);
		link_news_post(q, p, LINK_NEWS_CLOSED);
	}
}

void link_orders_serve(struct link_queue *q)
{
	uint32_t i;
	while ((i = link_board_take(&q->orders)) != UINT32_MAX) {
		struct link_peer *p = q->port->peers[i];
		order_serve(q, p, atomic_exchange_explicit(&p->due, 0, memory_order_acquire));
	}
}

static inline void orders_check(struct link_queue *q)
{
	if (__builtin_expect(link_board_any(&q->orders), 0))
		link_orders_serve(q);
}

void link_queue_end(struct link_queue *q, struct link_peer *p)
{
	peer_close(q, p);
}

/* ---- peers ---- */

static int link_attach(struct nic_queue *nq, uint32_t peer)
{
	struct link_queue *q = queue_of(nq);
	orders_check(q);
	struct link_peer *p = peer < FAR_LINK_PEERS_MAX ? q->peers[peer] : NULL;
	if (!p || !p->started || p->attached || p->detached)
		return -EINVAL;
	struct link_rings *r = p->rings;
	p->attached = true;
	/* Messages that arrived before. */
	while (r && r->held_first) {
		struct link_message *m = r->held_first;
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

static void link_detach(struct nic_queue *nq, uint32_t peer)
{
	struct link_queue *q = queue_of(nq);
	struct link_peer *p = attached_peer(q, peer);
	if (!p)
		return;
	p->attached = false;
	link_messages_drop(q, p);
	/* What arrives until drop() is discarded; BYE ends the connection then. */
	p->detached = true;
}

void link_peer_activate(struct link_queue *q, struct link_peer *p)
{
	p->active = true;
	p->active_at = q->actives_n;
	p->fresh = true;
	p->heard = false;
	q->actives[q->actives_n++] = p;
}

static void link_watch(struct nic_queue *nq, bool (*owes)(void *ctx, uint32_t peer), void *ctx)
{
	struct link_queue *q = queue_of(nq);
	q->owes = owes;
	q->owes_ctx = ctx;
}

static void link_placing(struct nic_queue *nq, nic_place_fn *place, void *ctx)
{
	struct link_queue *q = queue_of(nq);
	q->place = place;
	q->place_ctx = ctx;
}

/* ---- room ---- */

static int link_tx_lend(struct nic_queue *nq, uint32_t peer, const void *body, uint64_t body_len, void *owner,
			struct nic_tx *tx)
{
	struct link_queue *q = queue_of(nq);
	struct link_peer *p = attached_peer(q, peer);
	if (!p)
		return -EPIPE;
	if (body_len > LINK_BODY_MAX)
		return -EMSGSIZE;
	if (p->out_bytes + body_len > FAR_LINK_OUT_BYTES)
		return -ENOBUFS;
	struct link_message *m =
		p->out_n < FAR_LINK_SLOTS ? link_message_lent(q, p, body, (uint32_t)body_len, owner) : NULL;
	if (!m)
		return -EAGAIN;
	*tx = (struct nic_tx){.head = (uint8_t *)&m->head,
			      .body = m->body,
			      .body_len = body_len,
			      .cookie = 1,
			      .link = m,
			      .peer = peer,
			      .order = NIC_ORDER_ALL};
	return 0;
}

static int link_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct link_queue *q = queue_of(nq);
	struct link_peer *p = attached_peer(q, peer);
	if (__builtin_expect(!p, 0))
		return -EPIPE;
	if (__builtin_expect(body_len > LINK_ROOM, 0)) {
		if (body_len > LINK_BODY_MAX)
			return -EMSGSIZE;
		if (p->out_bytes + body_len > FAR_LINK_OUT_BYTES)
			return -ENOBUFS;
	}
	if (__builtin_expect(p->out_n >= FAR_LINK_SLOTS, 0))
		return -EAGAIN;
	struct link_message *m = link_message_out(q, p, (uint32_t)body_len);
	if (__builtin_expect(!m, 0)) /* acknowledgements will free memory */
		return body_len <= LINK_ROOM ? -EAGAIN : p->out_bytes ? -ENOBUFS : -ENOMEM;
	tx->head = (uint8_t *)&m->head;
	tx->body = m->body;
	tx->body_len = body_len;
	tx->cookie = 1;
	tx->link = m;
	tx->peer = peer;
	tx->order = NIC_ORDER_ALL;
	return 0;
}

static uint32_t link_tx_room(struct nic_queue *nq, uint32_t peer)
{
	const struct link_peer *p = attached_peer(queue_of(nq), peer);
	return p && p->out_n < FAR_LINK_SLOTS ? FAR_LINK_SLOTS - p->out_n : 0;
}

static uint64_t link_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	(void)nq;
	(void)peer;
	return LINK_BODY_MAX;
}

static int link_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct link_message *m = tx->link;
	struct link_peer *p = attached_peer(queue_of(nq), tx->peer);
	if (__builtin_expect(!p, 0))
		return -EPIPE;
	if (__builtin_expect(p->out_n >= FAR_LINK_SLOTS, 0))
		return -EAGAIN;
	m->order = tx->order;
	link_send(queue_of(nq), p, m);
	return 0;
}

static void link_expect(struct nic_queue *nq, uint32_t peer)
{
	const struct link_queue *q = queue_of(nq);
	if (peer < FAR_LINK_PEERS_MAX && q->peers[peer])
		link_peer_fetch(q->peers[peer]);
}

static void link_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct link_queue *q = queue_of(nq);
	link_message_out_free(q, attached_peer(q, tx->peer), tx->link);
}

/* ---- sleep ---- */

/* Sends an ACK with ASLEEP to the peers in queue->awake. A peer that misses it kicks when it retransmits. */
static void announce_sleep(struct link_queue *q)
{
	for (uint32_t i = 0; i < q->awake_n; i++) {
		struct link_peer *p = q->awake[i];
		p->told_asleep = true;
		if (!p->dead)
			link_send_ack(q, p);
	}
	q->awake_n = 0;
}

static void link_arm(struct nic_queue *nq)
{
	struct link_queue *q = queue_of(nq);
	q->look = q->armed = true;
	/* Send pending ACKs now: a timer would have to wake the queue for them. */
	for (uint32_t i = 0; i < q->actives_n; i++)
		if (q->actives[i]->owed)
			link_ack_soon(q, q->actives[i]);
	link_owing_run(q, UINT64_MAX);
	if (!q->port->lower_caps.wake)
		q->asleep_mark = WIRE_ASLEEP;
	link_send_acks(q);
	announce_sleep(q);
	link_flush(nq);
	q->ops->arm(q->lower);
}

static void link_disarm(struct nic_queue *nq)
{
	struct link_queue *q = queue_of(nq);
	q->asleep_mark = 0;
	q->armed = false;
	q->look = true;
	q->ops->disarm(q->lower);
}

static int link_wake_fd(const struct nic_queue *nq)
{
	const struct link_queue *q = (const struct link_queue *)nq;
	return q->ops->wake_fd(q->lower);
}

static void link_wake_clear(struct nic_queue *nq)
{
	queue_of(nq)->ops->wake_clear(queue_of(nq)->lower);
}

static void link_wake(struct nic_queue *nq)
{
	queue_of(nq)->ops->wake(queue_of(nq)->lower);
}

/* ---- raw packets of the device below ---- */

static unsigned link_raw_tx(struct nic_queue *nq, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct link_queue *q = queue_of(nq);
	const struct link_peer *p = attached_peer(q, peer);
	return p && p->opened && p->current_path == 0 ? q->ops->raw->tx(q->lower, p->lower_peer, first, n, bytes) : 0;
}

static unsigned link_raw_rx(struct nic_queue *nq, unsigned max, uint64_t *last)
{
	struct link_queue *q = queue_of(nq);
	return q->ops->raw->rx(q->lower, max, last);
}

const struct nic_raw_ops link_raw_ops = {.tx = link_raw_tx, .rx = link_raw_rx};

const struct nic_queue_ops link_queue_ops = {
	.attach = link_attach,
	.detach = link_detach,
	.recv = link_recv,
	.release = link_release,
	.tx_reserve = link_tx_reserve,
	.tx_lend = link_tx_lend,
	.tx_room = link_tx_room,
	.tx_bytes_max = link_tx_bytes_max,
	.tx_commit = link_tx_commit,
	.tx_cancel = link_tx_cancel,
	.flush = link_flush,
	.arm = link_arm,
	.disarm = link_disarm,
	.wake_fd = link_wake_fd,
	.wake_clear = link_wake_clear,
	.wake = link_wake,
	.deadline = link_deadline,
	.watch = link_watch,
	.placing = link_placing,
	.expect = link_expect,
};
