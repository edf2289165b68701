/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * Receive placement (nic_queue_ops.rx_place) for memif: its driver copies each frame out of shared memory into an mbuf,
 * which it takes from our pool before it. While it does so, mbufs have their bytes in the caller's memory, such that
 * the part of the frame behind the heads comes to lie in its place. The heads lie over the bytes in front of the place:
 * those are saved when the mbuf is taken. When the next one is taken the frame is complete; its heads move into the
 * mbuf's own memory, and the saved bytes return. A frame that does not fit its place moves there as a whole. Poller;
 * dpdk_places_open(): control thread.
 */
#include "nic/dpdk/dpdk.h"

#include <stdlib.h>
#include <string.h>

/* Heads of a frame and of the transport, rounded up. */
#define HEADS_BYTES 144u

struct dpdk_places {
	/* The offer, for the next recv(). */
	uint32_t n;     /* 0: none */
	uint32_t heads; /* bytes of a frame in front of its place */
	uint32_t bytes, each, before;
	uint8_t *at;
	/* The burst under way: mbufs in the order in which the device took them. */
	uint32_t room;  /* bytes that the device may write to an mbuf */
	uint32_t taken; /* in mbufs[] */
	struct rte_mbuf *mbufs[DPDK_BURST];
	bool placed[DPDK_BURST]; /* its bytes are in its place */
	bool open;               /* the last one has its bytes there, and its heads over those in saved[] */
	uint8_t saved[HEADS_BYTES];
};

static uint8_t *place(const struct dpdk_places *w, uint32_t i)
{
	return w->at + (size_t)i * w->each;
}

/* Start of an mbuf's own memory (rte_pktmbuf_init() and the pool's shift). */
static uint8_t *own_memory(const struct dpdk_queue *q, struct rte_mbuf *m)
{
	return (uint8_t *)m + sizeof *m + q->port->rx_shift;
}

/* By constant sizes, which need no call. */
static inline void copy_heads(uint8_t *to, const uint8_t *from)
{
	static_assert(HEADS_BYTES == 64 + 64 + 16, "");
	memcpy(to, from, 64);
	memcpy(to + 64, from + 64, 64);
	memcpy(to + 128, from + 128, 16);
}

/* True if the device cannot write outside of the offer, whatever the length of the frame. */
static bool fits(const struct dpdk_places *w, uint32_t i)
{
	return i < w->n && (i ? w->each : w->before) >= HEADS_BYTES &&
	       (uint64_t)i * w->each + w->room <= (uint64_t)w->bytes + w->heads;
}

/* Decides by its heads whether the frame stays in its place: one of ours without a checksum. */
static bool stays(const struct dpdk_queue *q, const struct rte_mbuf *m, const uint8_t *frame)
{
	const struct dpdk_places *w = q->places;
	const uint8_t *udp = frame + q->port->head_len - FRAME_UDP_BYTES;
	return m->data_len >= w->heads && m->data_len <= w->heads + w->each && frame_load16(udp + 6) == 0 &&
	       frame_load16(udp + 2) == frame_be16((uint16_t)(q->me.port + q->index));
}

/* Ends the frame of the last mbuf that was taken. */
static void end_last(struct dpdk_queue *q)
{
	struct dpdk_places *w = q->places;
	if (!w->open)
		return;
	uint32_t i = w->taken - 1;
	struct rte_mbuf *m = w->mbufs[i];
	uint8_t *frame = place(w, i) - w->heads;
	m->buf_addr = own_memory(q, m);
	w->placed[i] = stays(q, m, frame);
	if (w->placed[i])
		copy_heads(rte_pktmbuf_mtod(m, uint8_t *), frame);
	else
		memcpy(rte_pktmbuf_mtod(m, uint8_t *), frame, m->data_len);
	copy_heads(place(w, i) - HEADS_BYTES, w->saved);
	w->open = false;
}

/* The device takes an mbuf out of the pool, for the next frame. */
static void taken(void *ctx, struct rte_mbuf *m)
{
	struct dpdk_queue *q = ctx;
	struct dpdk_places *w = q->places;
	end_last(q);
	if (w->taken == DPDK_BURST)
		return;
	uint32_t i = w->taken++;
	w->mbufs[i] = m;
	w->placed[i] = false;
	if (!fits(w, i))
		return;
	copy_heads(w->saved, place(w, i) - HEADS_BYTES);
	m->buf_addr = place(w, i) - w->heads - RTE_PKTMBUF_HEADROOM;
	w->open = true;
}

void dpdk_rx_place(struct nic_queue *queue, uint32_t head, uint8_t *at, uint32_t bytes, uint32_t each, uint32_t before)
{
	struct dpdk_queue *q = (struct dpdk_queue *)queue;
	struct dpdk_places *w = q->places;
	uint32_t heads = q->port->head_len + head;
	if (!w || heads > HEADS_BYTES)
		return;
	w->n = (bytes + each - 1) / each;
	w->heads = heads;
	w->at = at;
	w->bytes = bytes;
	w->each = each;
	w->before = before;
}

bool dpdk_places_begin(struct dpdk_queue *q)
{
	q->places->taken = 0;
	if (!q->places->n)
		return false;
	dpdk_pool_watch(q->pool, taken, q);
	return true;
}

void dpdk_places_end(struct dpdk_queue *q)
{
	end_last(q);
	dpdk_pool_watch(q->pool, NULL, NULL);
	q->places->n = 0;
}

void dpdk_place_packet(const struct dpdk_queue *q, uint32_t mbuf, uint32_t number, struct nic_pkt *pkt)
{
	const struct dpdk_places *w = q->places;
	uint32_t head = w->heads - q->port->head_len, i = mbuf;
	while (i < w->taken && w->mbufs[i] != q->rx[mbuf]) /* a frame before it has several */
		i++;
	if (i == w->taken || !w->placed[i] || pkt->body_len <= head)
		return;
	if (number == i)
		pkt->head = place(w, i);
	else
		memcpy((uint8_t *)(uintptr_t)pkt->body + head, place(w, i), pkt->body_len - head);
}

int dpdk_places_open(struct dpdk_queue *q, struct nic_err *err)
{
	/* Frames of IPv6 have checksums. */
	if (q->me.v6 || q->tag || !dpdk_pool_is_stack(q->pool))
		return 0;
	q->places = calloc(1, sizeof *q->places);
	if (!q->places)
		return dpdk_error(err, -ENOMEM, "dpdk: out of memory");
	q->places->room = rte_pktmbuf_data_room_size(q->pool) - RTE_PKTMBUF_HEADROOM;
	return 0;
}
