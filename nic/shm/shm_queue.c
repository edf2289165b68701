/* SPDX-License-Identifier: BSD-3-Clause */
/** The sending side of a queue, and its operation table. Poller; shm_wake(): any thread. shm_recv.c explains how flush
 * pairs with the consumer. */
#include "nic/shm/shm.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* Bodies of this size and more are published when committed, so that the peer reads one while the next is written;
 * smaller ones wait for the flush. */
#define SHM_PUBLISH_BYTES 16384u

#define SLOTS_AHEAD 16u

#define RETURN_BLOCK_BITS     18u
#define RETURN_WORD(i, block) ((((i) / SHM_RETURNS + 1) << RETURN_BLOCK_BITS) | (block))

static struct shm_queue *queue_of(struct nic_queue *q)
{
	return (struct shm_queue *)q;
}

static struct shm_link *transport_of(struct shm_queue *q, uint32_t peer)
{
	struct shm_link *link = peer < SHM_PEERS_MAX ? q->port->links[peer] : NULL;
	return link && link->attached_to == q ? link : NULL;
}

static int shm_attach(struct nic_queue *nq, uint32_t peer)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = peer < SHM_PEERS_MAX ? q->port->links[peer] : NULL;
	if (!link || link->queue != q || link->attached_to || !link->peer_bells)
		return -EINVAL;
	link->attached_to = q;
	shm_hot_attach(q, link);
	return 0;
}

static void shm_detach(struct nic_queue *nq, uint32_t peer)
{
	struct shm_queue *q = queue_of(nq);
	struct shm_link *link = transport_of(q, peer);
	if (!link)
		return;
	shm_hot_detach(q, link);
	for (uint32_t i = 0; i < q->dirty_n; i++)
		if (q->dirty[i] == link) {
			q->dirty[i] = q->dirty[--q->dirty_n];
			break;
		}
	link->dirty = false;
	link->attached_to = NULL;
}

static void shm_release(struct nic_queue *nq, uint32_t peer, uint64_t cookie)
{
	struct shm_link *link = transport_of(queue_of(nq), peer);
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
	for (uint32_t i = 0; i < q->hot_n; i++) {
		take_returns(q, q->hot[i]);
		shm_bulk_trim(&q->hot[i]->bulk);
	}
}

static void read_head(struct shm_link *link)
{
	uint32_t head = atomic_load_explicit(&link->tx->consumer.head, memory_order_acquire);
	/* Accepts only a step forward, within what was written. */
	if (head - link->tx_head_seen <= SHM_SLOTS && link->tail - head <= SHM_SLOTS)
		link->tx_head_seen = head;
}

static bool ring_full(struct shm_link *link)
{
	if (link->tail - link->tx_head_seen < SHM_SLOTS)
		return false;
	read_head(link);
	return link->tail - link->tx_head_seen >= SHM_SLOTS;
}

static uint32_t shm_tx_room(struct nic_queue *nq, uint32_t peer)
{
	struct shm_link *link = transport_of(queue_of(nq), peer);
	if (!link)
		return 0;
	read_head(link);
	return SHM_SLOTS - (link->tail - link->tx_head_seen);
}

/* Prefetches a line that will be written soon; the consumer has read it, so writing needs it exclusively. */
static inline void prefetch_for_write(const void *line)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw %0" : : "m"(*(const char *)line));
#else
	__builtin_prefetch(line, 1, 3);
#endif
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
	struct shm_link *link = transport_of(q, peer);
	if (__builtin_expect(!link, 0))
		return -EPIPE;
	if (__builtin_expect(link->tail - link->tx_head_seen >= SHM_SLOTS, 0) && ring_full(link))
		return -EAGAIN;
	struct shm_slot *slots = link->tx->slots; /* read before *tx is written, which may alias it for the compiler */
	uint32_t tail = link->tail, head_bytes = q->head_bytes;
	tx->peer = peer;
	tx->driver_data = link;
	tx->body_len = body_len;
	if (__builtin_expect(body_len > q->inline_max, 0))
		return reserve_bulk(q, link, body_len, tx);
	struct shm_slot *slot = &slots[SHM_SLOT_OF(tail)];
	tx->cookie = 0;
	tx->head = slot->bytes;
	tx->body = slot->bytes + head_bytes;
	prefetch_for_write(&slots[SHM_SLOT_OF(tail + SLOTS_AHEAD)]);
	return 0;
}

/* Returns 0, so that a caller can tail-call it. */
__attribute__((noinline)) static int publish(struct shm_link *link)
{
	/* In reverse order: a consumer that polls the first slot then finds the whole burst, and does not compete for
	 * lines being written. */
	for (uint32_t i = link->tail; i-- != link->tail_published;)
		atomic_store_explicit(&link->tx->slots[SHM_SLOT_OF(i)].word, link->words[i % SHM_UNPUBLISHED_MAX],
				      memory_order_release);
	link->tail_published = link->tail;
	return 0;
}

/* The common end of both kinds of commit. */
static inline int commit_word(struct shm_queue *q, struct shm_link *link, uint32_t word)
{
	uint32_t i = link->tail;
	link->words[i % SHM_UNPUBLISHED_MAX] = SHM_LAP_OF(i) | word;
	link->tail = i + 1;
	if (!link->dirty) {
		link->dirty = true;
		q->dirty[q->dirty_n++] = link;
	}
	if (__builtin_expect(i + 1 - link->tail_published == SHM_UNPUBLISHED_MAX, 0))
		return publish(link);
	return 0;
}

/* Commits a packet with its body in the bulk area; writes the rest of its slot. */
__attribute__((noinline)) static int commit_bulk(struct shm_queue *q, struct shm_link *link, struct nic_tx *tx)
{
	if (ring_full(link))
		return -EAGAIN;
	struct shm_slot *slot = &link->tx->slots[SHM_SLOT_OF(link->tail)];
	struct shm_bulk_ref ref = {.len = tx->body_len, .block = (uint32_t)(tx->cookie - 1)};
	memcpy(slot->bytes, tx->head_room, q->head_bytes);
	memcpy(slot->bytes + SHM_REF_OFFSET, &ref, sizeof ref);
	return commit_word(q, link, SHM_WORD_BULK);
}

static int shm_tx_commit(struct nic_queue *nq, struct nic_tx *tx)
{
	struct shm_queue *q = queue_of(nq);
	if (__builtin_expect(tx->cookie != 0, 0)) {
		int error = commit_bulk(q, tx->driver_data, tx);
		if (!error && tx->body_len >= SHM_PUBLISH_BYTES)
			publish(tx->driver_data);
		return error;
	}
	return commit_word(q, tx->driver_data, (uint32_t)tx->body_len);
}

static void shm_tx_cancel(struct nic_queue *nq, struct nic_tx *tx)
{
	struct shm_link *link = transport_of(queue_of(nq), tx->peer);
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
	atomic_store_explicit(&link->peer_bells->byte[link->peer_bell], 1, memory_order_relaxed);
	return true;
}

static void wake_sleepers(struct shm_queue *q, uint32_t rung)
{
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_arm */
	for (uint32_t i = 0; i < rung; i++)
		if (atomic_load_explicit(&q->dirty[i]->peer_bells->asleep, memory_order_relaxed))
			wake_peer(q->dirty[i]);
}

static void shm_flush(struct nic_queue *nq)
{
	struct shm_queue *q = queue_of(nq);
	uint32_t n = q->dirty_n, rung = 0;
	if (n == 0)
		return;
	for (uint32_t i = 0; i < n; i++)
		publish(q->dirty[i]);
	atomic_thread_fence(memory_order_seq_cst); /* pairs with shm_arm, and the sweep of shm_recv */
	for (uint32_t i = 0; i < n; i++) {
		struct shm_link *link = q->dirty[i];
		link->dirty = false;
		uint32_t state = atomic_load_explicit(&link->tx->consumer.rx_state, memory_order_relaxed);
		if (__builtin_expect(state != SHM_RX_POLLING, 0) && notify_consumer(link, state))
			q->dirty[rung++] = link;
	}
	q->dirty_n = 0;
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
	.flush = shm_flush,
	.arm = shm_arm,
	.disarm = shm_disarm,
	.wake_fd = shm_wake_fd,
	.wake_clear = shm_wake_clear,
	.wake = shm_wake,
	.tx_bytes_max = shm_tx_bytes_max,
	.deadline = shm_deadline,
	.trim = shm_trim,
};
