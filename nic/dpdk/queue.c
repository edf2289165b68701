/* SPDX-License-Identifier: BSD-3-Clause */
/** Queue operations: converts device frames to and from packets of the engine. Poller; dpdk_wake(): any thread. */
#include "nic/dpdk/dpdk.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#define RAW_MAGIC UINT64_C(0x6661726361772121)
#define RETRY_NS  UINT64_C(1000000) /* the device had no room: retry after this time */
/* Timer of a sleeping queue that nothing else wakes: the longest that a packet may wait. */
#define WAKE_TIMER_NS 500000L
#define HEAD_MAX      FRAME_V6_BYTES
#define RAW_BYTES     16u

static struct dpdk_queue *queue_of(struct nic_queue *q)
{
	return (struct dpdk_queue *)q;
}

static struct dpdk_dest *dest_of(struct dpdk_queue *q, uint32_t peer)
{
	struct dpdk_dest *dest = peer < DPDK_DESTS_MAX ? q->port->dests[peer] : NULL;
	return dest && dest->queue == q ? dest : NULL;
}

static uint64_t body_max(const struct dpdk_dest *dest)
{
	return atomic_load_explicit(&dest->body_max, memory_order_relaxed);
}

static int dpdk_attach(struct nic_queue *queue, uint32_t peer)
{
	struct dpdk_dest *dest = dest_of(queue_of(queue), peer);
	if (!dest || dest->attached)
		return -EINVAL;
	dest->attached = true;
	return 0;
}

static void dpdk_detach(struct nic_queue *queue, uint32_t peer)
{
	struct dpdk_dest *dest = dest_of(queue_of(queue), peer);
	if (dest)
		dest->attached = false;
}

/* ---- transmit ---- */

static void drop_backlog(struct dpdk_queue *q)
{
	for (unsigned i = 0; i < q->tx_queues_n; i++) {
		struct dpdk_tx_queue *tx_queue = &q->tx_queues[i];
		if (tx_queue->n)
			rte_pktmbuf_free_bulk(tx_queue->m, tx_queue->n);
		tx_queue->n = 0;
	}
	dpdk_count(&q->counters.dropped, q->waiting);
	q->waiting = 0;
}

/* Hands the frames of all transmit queues to the device. Inside dpdk_enter(). */
static void tx_burst(struct dpdk_queue *q)
{
	for (unsigned i = 0; i < q->tx_queues_n; i++) {
		struct dpdk_tx_queue *tx_queue = &q->tx_queues[i];
		if (!tx_queue->n)
			continue;
		uint16_t sent = rte_eth_tx_burst(q->ethdev, tx_queue->ring, tx_queue->m, tx_queue->n);
		q->waiting -= sent;
		tx_queue->n = (uint16_t)(tx_queue->n - sent);
		if (__builtin_expect(tx_queue->n, 0))
			memmove(tx_queue->m, tx_queue->m + sent, tx_queue->n * sizeof *tx_queue->m);
	}
}

static void dpdk_flush(struct nic_queue *queue)
{
	struct dpdk_queue *q = queue_of(queue);
	if (!q->waiting)
		return;
	if (dpdk_enter(q)) {
		tx_burst(q);
		dpdk_leave(q);
	} else if (atomic_load_explicit(&q->port->shut, memory_order_relaxed) == DPDK_DOWN) {
		drop_backlog(q);
	}
	if (q->referred)
		dpdk_refer_end(q);
}

/* Free entries of the destination's transmit queue; `kept` of them are withheld, for urgent packets. */
static unsigned tx_queue_room(const struct dpdk_queue *q, const struct dpdk_dest *dest, unsigned kept)
{
	unsigned room =
		dest->tx_queue ? DPDK_TX_MAX + DPDK_TX_URGENT - dest->tx_queue->n : forward_room(dest->forward_ring);
	unsigned taken = q->open + (dest->tx_queue ? kept : 0);
	return room > taken ? room - taken : 0;
}

static int dpdk_tx_reserve(struct nic_queue *queue, uint32_t peer, uint64_t body_len, struct nic_tx *tx)
{
	struct dpdk_queue *q = queue_of(queue);
	struct dpdk_dest *dest = dest_of(q, peer);
	void *m;
	if (__builtin_expect(!dest || !dest->attached, 0))
		return -EPIPE;
	if (__builtin_expect(body_len > body_max(dest), 0))
		return -EMSGSIZE;
	if (__builtin_expect(!tx_queue_room(q, dest, 0), 0)) {
		dpdk_flush(queue);
		if (!tx_queue_room(q, dest, 0))
			return -EAGAIN;
	}
	if (__builtin_expect(rte_mempool_generic_get(q->pool, &m, 1, NULL) < 0, 0))
		return -ENOBUFS;
	tx->head = tx->head_room;
	tx->body = (uint8_t *)((struct rte_mbuf *)m)->buf_addr + q->body_at;
	tx->body_len = body_len;
	tx->cookie = (uint64_t)(uintptr_t)m;
	tx->driver_data = dest;
	tx->peer = peer;
	tx->priority = 0;
	q->open++;
	return 0;
}

static uint32_t dpdk_tx_room(struct nic_queue *queue, uint32_t peer)
{
	struct dpdk_queue *q = queue_of(queue);
	struct dpdk_dest *dest = dest_of(q, peer);
	if (!dest || !dest->attached)
		return 0;
	unsigned room = tx_queue_room(q, dest, DPDK_TX_URGENT), mbufs = rte_mempool_avail_count(q->pool);
	return room < mbufs ? room : mbufs;
}

static uint64_t dpdk_tx_bytes_max(struct nic_queue *queue, uint32_t peer)
{
	struct dpdk_dest *dest = dest_of(queue_of(queue), peer);
	return dest ? body_max(dest) : 0;
}

static void count_sent(struct dpdk_queue *q, uint64_t len)
{
	dpdk_count(&q->counters.tx_packets, 1);
	dpdk_count(&q->counters.tx_bytes, len);
}

static int commit_forwarded(struct dpdk_queue *q, const struct dpdk_dest *dest, struct rte_mbuf *m,
			    const struct nic_tx *tx)
{
	if (!forward_room(dest->forward_ring))
		return -EAGAIN;
	forward_put(dest->forward_ring, tx->body, (uint32_t)tx->body_len);
	q->open--;
	rte_mbuf_raw_free(m);
	count_sent(q, tx->body_len);
	return 0;
}

static int dpdk_tx_commit(struct nic_queue *queue, struct nic_tx *tx)
{
	struct dpdk_queue *q = queue_of(queue);
	const struct dpdk_dest *dest = tx->driver_data;
	struct rte_mbuf *m = (struct rte_mbuf *)(uintptr_t)tx->cookie;
	unsigned len = (unsigned)tx->body_len, head = dest->path.len;
	if (__builtin_expect(!dest->tx_queue, 0))
		return commit_forwarded(q, dest, m, tx);
	/* tx_reserve() did not know the priority, so the urgent entries are checked here. */
	if (__builtin_expect(dest->tx_queue->n >= DPDK_TX_MAX, 0) && tx->priority < NIC_PRIORITY_MAX) {
		dpdk_flush(queue);
		if (dest->tx_queue->n >= DPDK_TX_MAX)
			return -EAGAIN;
	}
	q->open--;
	m->ol_flags = q->tx_flags;
	frame_write(tx->body - head, &dest->path, len, tx->body, q->sum);
	uint8_t tos = nic_dscp_of(&q->port->args.dscp, tx->priority);
	if (tos)
		frame_set_class(tx->body - head, &dest->path, tos);
	if (__builtin_expect(dest->nexthop != NULL, 0))
		frame_set_mac(tx->body - head, atomic_load_explicit(&dest->nexthop->mac, memory_order_relaxed));
	if (__builtin_expect(q->tag != 0, 0)) {
		dpdk_tag_put(tx->body - head, q->tag);
		head += DPDK_TAG_BYTES;
	}
	m->data_off = (uint16_t)(q->body_at - head);
	m->data_len = (uint16_t)(head + len);
	m->pkt_len = head + len;
	m->tx_offload = q->tx_offload;
	if (m->next) {
		m->data_len = (uint16_t)(m->data_len - m->next->data_len);
		q->referred += m->next->data_len;
	}
	dest->tx_queue->m[dest->tx_queue->n++] = m;
	q->waiting++;
	count_sent(q, len);
	if (__builtin_expect(q->referred >= DPDK_REFERRED_MAX, 0))
		dpdk_flush(queue);
	return 0;
}

static void dpdk_tx_cancel(struct nic_queue *queue, struct nic_tx *tx)
{
	struct dpdk_queue *q = queue_of(queue);
	q->open--;
	rte_pktmbuf_free((struct rte_mbuf *)(uintptr_t)tx->cookie);
}

/* ---- receive ---- */

static void free_held(struct dpdk_queue *q)
{
	for (unsigned i = 0; i < q->held; i++)
		rte_pktmbuf_free(q->rx[i]);
	q->held = 0;
}

static struct nic_pkt packet(const uint8_t *body, uint64_t len)
{
	return (struct nic_pkt){.head = body, .body = len ? body : NULL, .body_len = len, .peer = NIC_PEER_NONE};
}

/* Receives packets from the forward rings. */
static unsigned recv_forwarded(struct dpdk_queue *q, unsigned forward_rings, struct nic_pkt *pkts, unsigned max)
{
	unsigned n = 0;
	uint32_t len;
	for (unsigned i = 0; i < forward_rings; i++) {
		struct forward_ring *l = atomic_load_explicit(&q->forward_rings[i], memory_order_acquire);
		const uint8_t *body;
		if (!l)
			continue;
		forward_release(l);
		while (n < max && (body = forward_next(l, &len))) {
			pkts[n++] = packet(body, len);
			dpdk_count(&q->counters.rx_bytes, len);
		}
	}
	return n;
}

/* Receives up to `max` frames from the device. The ring polled first changes, so that none starves. */
static unsigned rx_burst(struct dpdk_queue *q, unsigned max)
{
	unsigned n = 0;
	for (unsigned i = 0; i < q->rx_rings && n < max; i++) {
		uint16_t ring = (uint16_t)(q->rx_first + q->rx_next * q->rx_step);
		n += rte_eth_rx_burst(q->ethdev, ring, q->rx + n, (uint16_t)(max - n));
		if (q->rx_rings > 1)
			q->rx_next = (uint16_t)(q->rx_next + 1 == q->rx_rings ? 0 : q->rx_next + 1);
	}
	return n;
}

/* Wakes a queue of this port if it sleeps, after something was put into one of its rings. */
static void wake_queue(struct dpdk_queue *q)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (atomic_load_explicit(&q->asleep, memory_order_relaxed))
		eventfd_write(q->wake.event, 1);
}

/* Copies a packet of another queue, received by our ring, into its forward ring. */
static void forward_packet(struct dpdk_queue *q, unsigned queue, const uint8_t *body, uint32_t len)
{
	struct dpdk_queue *to = q->port->queues[queue];
	struct forward_ring *l = atomic_load_explicit(&to->forward_rings[q->index], memory_order_relaxed);
	if (len > l->slot_bytes - l->body_at || !forward_room(l)) {
		dpdk_count(&q->counters.missed, 1);
		return;
	}
	forward_put(l, body, len);
	wake_queue(to);
}

/* Removes our VLAN tag and moves the start of the frame. False: another tag, or none. */
__attribute__((cold, noinline)) static bool strip_vlan(const struct dpdk_queue *q, uint8_t **frame, unsigned *len)
{
	uint32_t tag;
	if (*len < FRAME_MAC_BYTES + DPDK_TAG_BYTES)
		return false;
	memcpy(&tag, *frame + 12, sizeof tag);
	((uint8_t *)&tag)[2] &= 0x0f; /* without the priority bits */
	if (tag != q->tag)
		return false;
	*frame = dpdk_tag_take(*frame);
	*len -= DPDK_TAG_BYTES;
	return true;
}

static bool read_frame(struct dpdk_queue *q, struct rte_mbuf *m, struct nic_pkt *pkt)
{
	const uint64_t right = RTE_MBUF_F_RX_IP_CKSUM_GOOD | RTE_MBUF_F_RX_L4_CKSUM_GOOD;
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	unsigned len = m->data_len;
	struct frame_in in;
	if (__builtin_expect(q->tag != 0, 0) && !strip_vlan(q, &frame, &len)) {
		dpdk_count(&q->counters.unexpected, 1);
		return false;
	}
	enum frame_verdict verdict = frame_read(frame, len, &q->me, q->queues_n, (m->ol_flags & right) == right, &in);
	/* Several segments: larger than any packet that we send. */
	if (verdict == FRAME_MALFORMED || (verdict == FRAME_OURS && m->nb_segs != 1)) {
		dpdk_count(&q->counters.malformed, 1);
		return false;
	}
	if (verdict == FRAME_UNEXPECTED) {
		if (q->exception_path && m->nb_segs == 1)
			dpdk_neighbour_rx(q, frame, len);
		dpdk_count(&q->counters.unexpected, 1);
		return false;
	}
	/* Under RSS a packet of another queue is delivered here: the transport notifies its sender, which tries another
	 * path. */
	if (__builtin_expect(in.queue != q->index, 0) && q->forwards_rx) {
		forward_packet(q, in.queue, frame + in.payload, in.len);
		return false;
	}
	*pkt = packet(frame + in.payload, in.len);
	dpdk_count(&q->counters.rx_bytes, in.len);
	return true;
}

/* Another queue held the shared ring. A queue about to sleep has not polled it: wake it again. */
__attribute__((cold, noinline)) static void rearm(struct dpdk_queue *q)
{
	if (atomic_load_explicit(&q->asleep, memory_order_relaxed))
		host_wake_signal(&q->wake);
}

static unsigned dpdk_recv(struct nic_queue *queue, struct nic_pkt *pkts, unsigned max)
{
	struct dpdk_queue *q = queue_of(queue);
	unsigned n = 0;
	if (q->held)
		free_held(q);
	if (max > DPDK_BURST)
		max = DPDK_BURST;
	unsigned forward_rings = atomic_load_explicit(&q->forward_rings_n, memory_order_relaxed);
	if (__builtin_expect(forward_rings, 0))
		n = recv_forwarded(q, forward_rings, pkts, max);
	unsigned end = 0;
	bool placing = q->places && dpdk_places_begin(q);
	if (q->exception_path && exception_next(&q->exception_path->out))
		dpdk_neighbour_send(q);
	if (__builtin_expect(dpdk_enter(q), 1)) {
		if (q->waiting)
			tx_burst(q);
		end = rx_burst(q, max - n);
		dpdk_leave(q);
	} else {
		dpdk_flush(queue); /* drops the frames if there is no peer */
		if (q->turn)
			rearm(q);
	}
	if (__builtin_expect(placing, 0))
		dpdk_places_end(q);
	q->held = (uint16_t)end;
	for (unsigned i = 0; i < end; i++) {
		if (i + 1 < end)
			rte_prefetch0(rte_pktmbuf_mtod(q->rx[i + 1], void *));
		if (!read_frame(q, q->rx[i], &pkts[n]))
			continue;
		if (__builtin_expect(placing, 0))
			dpdk_place_packet(q, i, n, &pkts[n]);
		n++;
	}
	if (n)
		dpdk_count(&q->counters.rx_packets, n);
	return n;
}

/* Received packets have no cookie. */
static void dpdk_release(struct nic_queue *queue, uint32_t peer, uint64_t cookie)
{
	(void)queue;
	(void)peer;
	(void)cookie;
}

/* ---- sleep ---- */

/* These devices have no receive interrupt: kicks, which are always enabled, or a timer wake the queue. Other queues of
 * the port check `asleep` after they fill a forward ring; the caller polls these rings after this. */
static void dpdk_arm(struct nic_queue *queue)
{
	struct dpdk_queue *q = queue_of(queue);
	atomic_store_explicit(&q->asleep, 1, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	if (q->wake.timer >= 0)
		host_wake_timer_set(&q->wake, WAKE_TIMER_NS);
}

static void dpdk_disarm(struct nic_queue *queue)
{
	struct dpdk_queue *q = queue_of(queue);
	atomic_store_explicit(&q->asleep, 0, memory_order_relaxed);
	if (q->wake.timer >= 0)
		host_wake_timer_set(&q->wake, 0);
}

static int dpdk_wake_fd(const struct nic_queue *queue)
{
	return ((const struct dpdk_queue *)queue)->wake.fd;
}

static void dpdk_wake_clear(struct nic_queue *queue)
{
	struct dpdk_queue *q = queue_of(queue);
	/* A kick: the packet may be in the ring of another queue that sleeps. */
	if (host_wake_clear(&q->wake) && q->forwards_rx)
		for (unsigned i = 0; i < q->queues_n; i++)
			if (i != q->index)
				wake_queue(q->port->queues[i]);
}

static void dpdk_wake(struct nic_queue *queue)
{
	host_wake_signal(&queue_of(queue)->wake);
}

static void dpdk_kick(struct nic_queue *queue, uint32_t peer)
{
	struct dpdk_queue *q = queue_of(queue);
	struct dpdk_dest *dest = dest_of(q, peer);
	if (!dest)
		return;
	if (!dest->tx_queue) {
		eventfd_write(dest->forward_wake, 1);
	} else if (dest->kick.len) {
		host_kick_send(q->sender, &dest->kick);
		dpdk_count(&q->counters.kicks, 1);
	}
}

static uint64_t dpdk_deadline(const struct nic_queue *queue)
{
	const struct dpdk_queue *q = (const struct dpdk_queue *)queue;
	return q->waiting ? dpdk_now() + RETRY_NS : UINT64_MAX;
}

/* ---- raw packets ---- */

static uint64_t sum_words(const uint8_t *bytes, unsigned len)
{
	uint64_t sum = 0, word;
	for (; len >= sizeof word; bytes += sizeof word, len -= (unsigned)sizeof word) {
		memcpy(&word, bytes, sizeof word);
		sum += word;
	}
	return sum;
}

static unsigned raw_tx(struct nic_queue *queue, uint32_t peer, uint64_t first, unsigned n, unsigned bytes)
{
	struct dpdk_queue *q = queue_of(queue);
	struct dpdk_dest *dest = dest_of(q, peer);
	struct rte_mbuf *burst[DPDK_BURST];
	uint8_t head[HEAD_MAX] = {0};
	if (!dest || !dest->tx_queue || q->tag || bytes < RAW_BYTES || bytes > body_max(dest))
		return 0;
	n = n < DPDK_BURST ? n : DPDK_BURST;
	unsigned head_len = frame_write(head, &dest->path, bytes, head, FRAME_SUM_PSEUDO);
	if (rte_mempool_generic_get(q->pool, (void **)burst, n, NULL) < 0)
		return 0;
	for (unsigned i = 0; i < n; i++) {
		struct rte_mbuf *m = burst[i];
		uint8_t *at = (uint8_t *)m->buf_addr + q->body_at;
		uint64_t payload[2] = {RAW_MAGIC, first + i};
		memcpy(at - head_len, head, head_len);
		memcpy(at, payload, sizeof payload);
		memset(at + sizeof payload, (int)(first + i), bytes - sizeof payload);
		m->ol_flags = 0;
		m->data_off = (uint16_t)(q->body_at - head_len);
		m->data_len = (uint16_t)(head_len + bytes);
		m->pkt_len = head_len + bytes;
	}
	unsigned sent = 0;
	if (dpdk_enter(q)) {
		sent = rte_eth_tx_burst(q->ethdev, dest->tx_queue->ring, burst, (uint16_t)n);
		dpdk_leave(q);
	}
	for (unsigned i = sent; i < n; i++)
		rte_pktmbuf_free(burst[i]);
	return sent;
}

static unsigned raw_rx(struct nic_queue *queue, unsigned max, uint64_t *last)
{
	struct dpdk_queue *q = queue_of(queue);
	unsigned head_len = q->port->head_len, raw = 0;
	free_held(q);
	if (!dpdk_enter(q))
		return 0;
	unsigned n = rx_burst(q, max < DPDK_BURST ? max : DPDK_BURST);
	dpdk_leave(q);
	for (unsigned i = 0; i < n; i++) {
		uint64_t payload[2] = {0};
		if (q->rx[i]->data_len >= head_len + sizeof payload)
			memcpy(payload, rte_pktmbuf_mtod_offset(q->rx[i], uint8_t *, head_len), sizeof payload);
		if (payload[0] == RAW_MAGIC) {
			*last = payload[1];
			q->raw_sum += sum_words(rte_pktmbuf_mtod_offset(q->rx[i], uint8_t *, head_len),
						q->rx[i]->data_len - head_len);
			raw++;
		}
		rte_pktmbuf_free(q->rx[i]);
	}
	return raw;
}

static const struct nic_raw_ops raw_ops = {.tx = raw_tx, .rx = raw_rx};

/* With and without kicks; `refer`, `place`: the device copies within its burst. */
#define QUEUE_OPS(how, refer, place)                                                                                   \
	{                                                                                                              \
		.attach = dpdk_attach, .detach = dpdk_detach, .recv = dpdk_recv, .release = dpdk_release,              \
		.tx_reserve = dpdk_tx_reserve, .tx_room = dpdk_tx_room, .tx_bytes_max = dpdk_tx_bytes_max,             \
		.tx_commit = dpdk_tx_commit, .tx_cancel = dpdk_tx_cancel, .flush = dpdk_flush, .arm = dpdk_arm,        \
		.disarm = dpdk_disarm, .wake_fd = dpdk_wake_fd, .wake_clear = dpdk_wake_clear, .wake = dpdk_wake,      \
		.kick = how, .deadline = dpdk_deadline, .raw = &raw_ops, .tx_refer = refer, .rx_place = place,         \
	}

const struct nic_queue_ops dpdk_queue_ops = QUEUE_OPS(dpdk_kick, NULL, NULL);
const struct nic_queue_ops dpdk_timer_queue_ops = QUEUE_OPS(NULL, NULL, NULL);
const struct nic_queue_ops dpdk_memif_queue_ops = QUEUE_OPS(dpdk_kick, dpdk_tx_refer, dpdk_rx_place);
