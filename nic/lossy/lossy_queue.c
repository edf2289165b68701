/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations. Packets that are not disturbed pass through without a copy. Poller. */
#include "nic/lossy/lossy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

uint64_t lossy_now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * UINT64_C(1000000000) + (uint64_t)ts.tv_nsec;
}

static struct lossy_queue *queue_of(struct nic_queue *q)
{
	return (struct lossy_queue *)q;
}

static struct nic_queue *lower_of(struct nic_queue *q)
{
	return queue_of(q)->lower;
}

/* Returns a peer of ours that is attached, else NULL. */
static struct lossy_peer *peer_of(const struct lossy_queue *q, uint32_t peer)
{
	struct lossy_peer *p = peer < q->port->peers_max ? &q->port->peers[peer] : NULL;
	return p && p->attached && p->ours ? p : NULL;
}

static int lossy_attach(struct nic_queue *nq, uint32_t peer)
{
	struct lossy_queue *q = queue_of(nq);
	if (peer >= q->port->peers_max || !q->port->peers[peer].ours)
		return -EINVAL;
	int error = q->lower->ops->attach(q->lower, peer);
	if (!error) {
		q->port->peers[peer].attached = true;
		q->port->peers[peer].sent = 0;
	}
	return error;
}

static void lossy_detach(struct nic_queue *nq, uint32_t peer)
{
	struct lossy_queue *q = queue_of(nq);
	struct lossy_peer *p = peer_of(q, peer);
	if (!p)
		return;
	lossy_held_forget(q, peer);
	p->attached = false;
	q->lower->ops->detach(q->lower, peer);
}

/* ---- receiving ---- */

static void send_due(struct lossy_queue *q)
{
	uint64_t now = lossy_now();
	if (now >= q->due && lossy_held_send(q, now))
		q->lower->ops->flush(q->lower);
}

static unsigned counted(struct lossy_queue *q, const struct nic_pkt *pkts, unsigned n)
{
	uint64_t bytes = 0;
	for (unsigned i = 0; i < n; i++)
		bytes += pkts[i].head ? pkts[i].body_len : 0;
	if (n) {
		lossy_count(&q->count.rx_packets, n);
		lossy_count(&q->count.rx_bytes, bytes);
	}
	return n;
}

static unsigned lossy_recv(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct lossy_queue *q = queue_of(nq);
	if (q->due != UINT64_MAX && !q->small_open)
		send_due(q);
	return counted(q, pkts, q->lower->ops->recv(q->lower, pkts, max));
}

static void lossy_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->release(lower, peer, cookie);
}

/* ---- receiving over a connected driver: from accepted connections, too ---- */

/* Attaches new accepted connections, also those that have ended meanwhile: they may have sent something. */
static void follow_changes(struct lossy_queue *q)
{
	uint32_t changes = atomic_load_explicit(&q->changes, memory_order_acquire); /* pairs with listen() */
	if (changes == q->changes_seen)
		return;
	q->changes_seen = changes;
	q->leaving_n = 0;
	for (uint32_t i = 0; i < q->port->peers_max; i++) {
		struct lossy_peer *p = &q->port->peers[i];
		uint8_t listened = atomic_load_explicit(&p->listened, memory_order_acquire);
		if (!listened || p->queue != q->index)
			continue;
		if (!p->attached)
			p->attached = q->lower->ops->attach(q->lower, i) == 0;
		q->leaving_n += listened == LOSSY_LEAVE;
	}
}

/* Detaches accepted connections that have ended and are read completely. */
static void leave(struct lossy_queue *q)
{
	q->leaving_n = 0;
	for (uint32_t i = 0; i < q->port->peers_max; i++) {
		struct lossy_peer *p = &q->port->peers[i];
		if (atomic_load_explicit(&p->listened, memory_order_acquire) != LOSSY_LEAVE || p->queue != q->index)
			continue;
		if (p->attached)
			q->lower->ops->detach(q->lower, i);
		p->attached = false;
		atomic_store_explicit(&p->listened, 0, memory_order_release); /* pairs with drop_left() */
	}
}

static void give_back(struct lossy_queue *q)
{
	for (uint32_t i = 0; i < q->given_n; i++)
		q->lower->ops->release(q->lower, q->given[i].peer, q->given[i].cookie);
	q->given_n = 0;
}

/* Turns packets of a connected driver into those of a datagram driver: no peer, valid until the next recv(). */
static void make_datagrams(struct lossy_queue *q, struct nic_pkt *pkts, unsigned n)
{
	static const uint8_t no_head[1];
	for (unsigned i = 0; i < n; i++) {
		struct nic_pkt *pkt = &pkts[i];
		if (!pkt->head) {
			lossy_count(&q->count.rx_malformed, 1);
			*pkt = (struct nic_pkt){.head = no_head};
		} else if (pkt->cookie) {
			q->given[q->given_n].peer = pkt->peer;
			q->given[q->given_n++].cookie = pkt->cookie;
		}
		pkt->cookie = 0;
		pkt->peer = NIC_PEER_NONE;
	}
}

static unsigned lossy_recv_listening(struct nic_queue *nq, struct nic_pkt *pkts, unsigned max)
{
	struct lossy_queue *q = queue_of(nq);
	if (q->due != UINT64_MAX && !q->small_open)
		send_due(q);
	give_back(q);
	follow_changes(q);
	unsigned n = q->lower->ops->recv(q->lower, pkts, max < LOSSY_BURST_MAX ? max : LOSSY_BURST_MAX);
	if (n == 0 && max && q->leaving_n)
		leave(q);
	make_datagrams(q, pkts, n);
	return counted(q, pkts, n);
}

static void lossy_release_none(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	(void)nq;
	(void)peer;
	(void)cookie; /* no packet has a cookie */
}

/* ---- sending ---- */

/* Room for a packet to a peer that has ended: the packet is lost. */
static int reserve_void(struct lossy_queue *q, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	int slot = lossy_slot_fill(q, NULL, 0, 0);
	if (slot < 0)
		return -ENOBUFS;
	tx->peer = peer;
	tx->body_len = body_len;
	tx->head = tx->head_room;
	tx->body = lossy_slot(q, slot);
	tx->cookie = (uint64_t)slot;
	tx->driver_data = q;
	return 0;
}

static int lossy_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct lossy_queue *q = queue_of(nq);
	struct lossy_peer *p = peer_of(q, peer);
	if (!p)
		return -EPIPE;
	if (body_len > q->port->caps.body_bytes_max)
		return -EMSGSIZE;
	if (atomic_load_explicit(&p->dead, memory_order_relaxed))
		return reserve_void(q, peer, body_len, tx);
	int error = q->lower->ops->tx_reserve(q->lower, peer, body_len, tx);
	if (error)
		return error;
	tx->priority = 0;
	if (q->port->head_bytes)
		memset(tx->head, 0, q->port->head_bytes);
	q->small_open = body_len <= q->port->caps.inline_bytes_max && q->port->caps.inline_bytes_max;
	return 0;
}

static int lossy_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct lossy_queue *q = queue_of(nq);
	q->small_open = false;
	if (tx->driver_data == q) {
		lossy_slot_free(q, (int)tx->cookie);
		lossy_count(&q->count.tx_dropped, 1);
		return 0;
	}
	if (!q->quiet)
		return lossy_disturb(q, tx);
	uint64_t bytes = tx->body_len;
	int error = q->lower->ops->tx_commit(q->lower, tx);
	if (error)
		return error;
	lossy_count(&q->count.tx_packets, 1);
	lossy_count(&q->count.tx_bytes, bytes);
	return 0;
}

static void lossy_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct lossy_queue *q = queue_of(nq);
	q->small_open = false;
	if (tx->driver_data == q)
		lossy_slot_free(q, (int)tx->cookie);
	else
		q->lower->ops->tx_cancel(q->lower, tx);
}

static uint32_t lossy_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct lossy_queue *q = queue_of(nq);
	struct lossy_peer *p = peer_of(q, peer);
	if (!p)
		return 0;
	if (atomic_load_explicit(&p->dead, memory_order_relaxed))
		return q->free_n;
	return q->lower->ops->tx_room(q->lower, peer);
}

static uint64_t lossy_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	struct lossy_queue *q = queue_of(nq);
	uint64_t theirs = q->lower->ops->tx_bytes_max(q->lower, peer), ours = q->port->caps.body_bytes_max;
	return theirs < ours ? theirs : ours;
}

static void lossy_flush(struct nic_queue *nq)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->flush(lower);
}

/* ---- sleeping ---- */

static void lossy_arm(struct nic_queue *nq)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->arm(lower);
}

static void lossy_disarm(struct nic_queue *nq)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->disarm(lower);
}

static int lossy_wake_fd(const struct nic_queue *nq)
{
	const struct nic_queue *lower = ((const struct lossy_queue *)nq)->lower;
	return lower->ops->wake_fd(lower);
}

static void lossy_wake_clear(struct nic_queue *nq)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->wake_clear(lower);
}

static void lossy_wake(struct nic_queue *nq)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->wake(lower);
}

static void lossy_kick(struct nic_queue *nq, uint32_t peer)
{
	struct nic_queue *lower = lower_of(nq);
	lower->ops->kick(lower, peer);
}

static uint64_t lossy_deadline(const struct nic_queue *nq)
{
	const struct lossy_queue *q = (const struct lossy_queue *)nq;
	uint64_t theirs = q->lower->ops->deadline(q->lower);
	return q->due < theirs ? q->due : theirs;
}

/* ---- raw packets: not disturbed ---- */

static unsigned raw_tx(struct nic_queue *nq, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct nic_queue *lower = lower_of(nq);
	return lower->ops->raw->tx(lower, peer, first, n, bytes);
}

static unsigned raw_rx(struct nic_queue *nq, unsigned max, uint64_t *last)
{
	struct nic_queue *lower = lower_of(nq);
	return lower->ops->raw->rx(lower, max, last);
}

static const struct nic_raw_ops raw_ops = {.tx = raw_tx, .rx = raw_rx};

static const struct nic_queue_ops queue_ops = {
	.attach = lossy_attach,
	.detach = lossy_detach,
	.recv = lossy_recv,
	.release = lossy_release,
	.tx_reserve = lossy_tx_reserve,
	.tx_room = lossy_tx_room,
	.tx_bytes_max = lossy_tx_bytes_max,
	.tx_commit = lossy_tx_commit,
	.tx_cancel = lossy_tx_cancel,
	.flush = lossy_flush,
	.arm = lossy_arm,
	.disarm = lossy_disarm,
	.wake_fd = lossy_wake_fd,
	.wake_clear = lossy_wake_clear,
	.wake = lossy_wake,
	.deadline = lossy_deadline,
};

/* ---- control thread ---- */

struct lossy_queue *lossy_queue_new(struct lossy_port *port, unsigned index)
{
	const struct lossy_args *a = &port->args;
	struct lossy_queue *q = calloc(1, sizeof *q);
	if (!q)
		return NULL;
	/* Only the pages become memory that held packets ever used. */
	q->slot_bytes = ((size_t)port->caps.body_bytes_max + 63) / 64 * 64;
	q->slots = mmap(NULL, LOSSY_HELD_MAX * q->slot_bytes, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (q->slots == MAP_FAILED) {
		free(q);
		return NULL;
	}
	q->port = port;
	q->index = index;
	q->lower = port->lower->ops->queue(port->lower, index);
	q->ops = queue_ops;
	if (port->connected) {
		q->ops.recv = lossy_recv_listening;
		q->ops.release = lossy_release_none;
	}
	if (q->lower->ops->kick)
		q->ops.kick = lossy_kick;
	if (q->lower->ops->raw)
		q->ops.raw = &raw_ops;
	q->base.ops = &q->ops;
	q->random = a->seed ^ (index + UINT64_C(1)) * UINT64_C(0xd6e8feb86659fd93);
	q->due = UINT64_MAX;
	q->quiet = !(a->drop | a->duplicate | a->delay | a->reorder | a->corrupt);
	while (q->free_n < LOSSY_HELD_MAX) {
		q->free[q->free_n] = (uint16_t)(LOSSY_HELD_MAX - 1 - q->free_n);
		q->free_n++;
	}
	return q;
}

void lossy_queue_free(struct lossy_queue *q)
{
	if (!q)
		return;
	if (q->port->connected) {
		give_back(q);
		for (uint32_t i = 0; i < q->port->peers_max; i++) {
			struct lossy_peer *p = &q->port->peers[i];
			if (!p->ours && p->attached && p->queue == q->index)
				q->lower->ops->detach(q->lower, i);
		}
	}
	munmap(q->slots, LOSSY_HELD_MAX * q->slot_bytes);
	free(q);
}
