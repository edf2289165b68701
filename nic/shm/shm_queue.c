/* SPDX-License-Identifier: BSD-3-Clause */
/** The sending side of a queue, and its operation table. Poller; shm_wake(): any thread. shm_recv.c explains how flush
 * pairs with the consumer. */
#include "nic/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Bodies of this size and more are published when committed, so that the peer reads one while the next is written, or
 * computed; smaller ones wait for the flush. At 64 in flight bodies of 1 KiB lose a seventh of their rate by that,
 * those of 2 KiB nothing (perf/NOTES.md, 97). */
#define SHM_PUBLISH_BYTES 1088u

#define RETURN_BLOCK_BITS     18u
#define RETURN_WORD(i, block) ((((i) / SHM_RETURNS + 1) << RETURN_BLOCK_BITS) | (block))

static struct shm_queue *queue_of(struct nic_queue *q)
{
	return (struct shm_queue *)q;
}

static int shm_attach(struct nic_queue *nq, uint32_t peer)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = peer < SHM_PEERS_MAX ? q->port->links[peer] : NULL;
	if (!link || link->queue != q || link->attached_to || !link->peer_bells)
		return -EINVAL;
	link->attached_to = q;
	link->lane.user = NULL;
	shm_hot_attach(q, link);
	return 0;
}

static void shm_detach(struct nic_queue *nq, uint32_t peer)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = shm_attached_link(q, peer);
	if (!link)
		return;
	shm_hot_detach(q, link);
	lane_publish(&link->lane);
	for (uint32_t i = 0; i < q->base.lanes.dirty_n; i++)
		if (q->dirty[i] == &link->lane) {
			q->dirty[i] = q->dirty[--q->base.lanes.dirty_n];
			break;
		}
	link->lane.dirty = false;
	link->attached_to = NULL;
}

static void shm_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct shm_link *link = shm_attached_link(queue_of(nq), peer);
	if (!link || !cookie)
		return;
	uint32_t i = link->returns_written++;
	atomic_store_explicit(&link->rx->returns[i % SHM_RETURNS], RETURN_WORD(i, (uint32_t)(cookie - 1)),
			      memory_order_release);
}

static void take_returns(struct shm_queue *q, struct shm_link *link)
{
	for (unsigned n = 0; n < SHM_RETURNS; n++) {
		uint32_t i = link->returns_read;
		uint32_t word = atomic_load_explicit(&link->tx->returns[i % SHM_RETURNS], memory_order_acquire);
		if ((word ^ RETURN_WORD(i, 0)) >> RETURN_BLOCK_BITS)
			return;
		link->returns_read++;
		if (!shm_bulk_free(&link->bulk, word & ((1u << RETURN_BLOCK_BITS) - 1)))
			q->invalid_returns++;
	}
}

static void shm_trim(struct nic_queue *nq)
{
	struct shm_queue *q = queue_of(nq);
	for (uint32_t i = 0; i < q->base.lanes.hot_n; i++) {
		struct shm_link *link = link_of(q->hot[i]);
		take_returns(q, link);
		shm_bulk_trim(&link->bulk);
	}
}

static void read_head(struct shm_link *link)
{
	uint32_t head = atomic_load_explicit(&link->tx->consumer.head, memory_order_acquire);
	uint32_t unread = (lane_written(&link->lane) - head) & LANE_COUNT_MASK;
	/* Accepts only a step forward, within what was written. */
	if (unread <= LANE_LINES && LANE_LINES - unread > link->lane.room)
		link->lane.room = LANE_LINES - unread;
}

static bool ring_full(struct shm_link *link)
{
	if (link->lane.room)
		return false;
	read_head(link);
	return !link->lane.room;
}

static uint32_t shm_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct shm_link *link = shm_attached_link(queue_of(nq), peer);
	if (!link)
		return 0;
	read_head(link);
	return link->lane.room;
}

/* Out of line, so that small packets do not pay for its registers. */
__attribute__((noinline)) static int reserve_bulk(struct shm_queue *q, struct shm_link *link, uint64_t body_len,
						  struct nic_tx *tx)
{
	if (body_len > SHM_BODY_MAX)
		return -EMSGSIZE;
	take_returns(q, link);
	uint32_t block = shm_bulk_alloc(&link->bulk, body_len);
	if (block == SHM_NIL)
		return link->bulk.in_use ? -ENOBUFS : -ENOMEM;
	tx->head = tx->head_room;
	tx->body = link->tx_bulk + (uint64_t)block * SHM_BLOCK;
	tx->cookie = (uint64_t)block + 1;
	return 0;
}

static int shm_tx_reserve(struct nic_queue *nq, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = shm_attached_link(q, peer);
	if (__builtin_expect(!link, 0))
		return -EPIPE;
	if (__builtin_expect(!link->lane.room, 0) && ring_full(link))
		return -EAGAIN;
	struct nic_line *line =
		link->lane.tx_next; /* read before *tx is written, which may alias it for the compiler */
	uint32_t head_bytes = q->head_bytes;
	tx->peer = peer;
	tx->driver_data = link;
	tx->body_len = body_len;
	if (__builtin_expect(body_len > q->inline_max, 0))
		return reserve_bulk(q, link, body_len, tx);
	tx->cookie = 0;
	tx->head = line->bytes;
	tx->body = line->bytes + head_bytes;
	return 0;
}

/* Commits a packet with its body in the bulk area; writes the rest of its slot. */
__attribute__((noinline)) static int commit_bulk(struct shm_queue *q, struct shm_link *link, struct nic_tx *tx)
{
	if (ring_full(link))
		return -EAGAIN;
	struct nic_line *line = link->lane.tx_next;
	struct shm_bulk_ref ref = {.len = tx->body_len, .block = (uint32_t)(tx->cookie - 1)};
	memcpy(line->bytes, tx->head_room, q->head_bytes);
	memcpy(line->bytes + SHM_REF_OFFSET, &ref, sizeof ref);
	lane_put(&q->base.lanes, &link->lane, LANE_BULK);
	if (tx->body_len >= SHM_PUBLISH_BYTES)
		lane_publish(&link->lane);
	return 0;
}

static int shm_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = tx->driver_data;
	if (__builtin_expect(tx->cookie != 0, 0))
		return commit_bulk(q, link, tx);
	lane_put(&q->base.lanes, &link->lane, (uint32_t)tx->body_len);
	return 0;
}

static void shm_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct shm_link *link = shm_attached_link(queue_of(nq), tx->peer);
	if (link && tx->cookie)
		shm_bulk_free(&link->bulk, (uint32_t)(tx->cookie - 1));
}

static void wake_fd_write(int fd)
{
	uint64_t one = 1;
	ssize_t n;
	do
		n = write(fd, &one, sizeof one);
	while (n < 0 && errno == EINTR);
	/* EAGAIN: the counter is at its maximum, so the descriptor is readable. */
}

static void wake_peer(const struct shm_link *link)
{
	if (link->wake_fd >= 0)
		wake_fd_write(link->wake_fd);
}

/* Notifies the consumer according to its state, which may be any value; true if its doorbell was set. */
__attribute__((noinline)) static bool notify_consumer(const struct shm_link *link, uint32_t state)
{
	if (state == SHM_RX_ASLEEP)
		wake_peer(link);
	if (state != SHM_RX_DOORBELL)
		return false;
	shm_bell_ring(link->peer_bells, link->peer_bell);
	return true;
}

static void wake_sleepers(struct shm_queue *q, uint32_t rung)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_arm */
	for (uint32_t i = 0; i < rung; i++)
		if (atomic_load_explicit(&link_of(q->dirty[i])->peer_bells->asleep, memory_order_relaxed))
			wake_peer(link_of(q->dirty[i]));
}

static void shm_flush(struct nic_queue *nq)
{
	struct shm_queue *q = queue_of(nq);
	uint32_t n = q->base.lanes.dirty_n, rung = 0;
	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		lane_publish(q->dirty[i]);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_arm, and the sweep of shm_recv */
	for (uint32_t i = 0; i < n; i++) {
		struct shm_link *link = link_of(q->dirty[i]);
		link->lane.dirty = false;
		uint32_t state = atomic_load_explicit(&link->tx->consumer.rx_state, memory_order_relaxed);
		if (__builtin_expect(state != SHM_RX_POLLING, 0) && notify_consumer(link, state))
			q->dirty[rung++] = &link->lane;
	}
	q->base.lanes.dirty_n = 0;
	if (__builtin_expect(rung != 0, 0))
		wake_sleepers(q, rung);
}

static int shm_wake_fd(const struct nic_queue *nq)
{
	return ((const struct shm_queue *)nq)->wake_fd;
}

static void shm_wake_clear(struct nic_queue *nq)
{
	uint64_t count;
	ssize_t n = read(queue_of(nq)->wake_fd, &count, sizeof count);
	(void)n; /* EAGAIN: nothing to clear */
}

static void shm_wake(struct nic_queue *nq)
{
	wake_fd_write(queue_of(nq)->wake_fd);
}

static uint64_t shm_tx_bytes_max(struct nic_queue *nq, uint32_t peer)
{
	(void)nq;
	(void)peer;
	return SHM_BODY_MAX;
}

static void shm_lane(struct nic_queue *nq, uint32_t peer, struct nic_lane **at)
{
	struct shm_link *link = shm_attached_link(queue_of(nq), peer);
	if (link)
		*at = &link->lane;
}

static uint64_t shm_deadline(const struct nic_queue *nq)
{
	(void)nq;
	return UINT64_MAX;
}

const struct nic_queue_ops shm_queue_ops = {
	.attach = shm_attach,
	.detach = shm_detach,
	.recv = shm_recv,
	.release = shm_release,
	.tx_reserve = shm_tx_reserve,
	.tx_room = shm_tx_room,
	.tx_commit = shm_tx_commit,
	.tx_cancel = shm_tx_cancel,
	.tx_copy = shm_tx_copy,
	.flush = shm_flush,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.wake_fd = shm_wake_fd,
	.wake_clear = shm_wake_clear,
	.wake = shm_wake,
	.tx_bytes_max = shm_tx_bytes_max,
	.deadline = shm_deadline,
	.trim = shm_trim,
	.peer_pulls = shm_peer_pulls,
	.pull = shm_pull,
	.refer = shm_refer,
	.map = shm_map,
	.unmap = shm_unmap_hold,
	.lane = shm_lane,
	.recv_lane = shm_recv_lane,
	.recv_cold = shm_recv_cold,
};
