/* SPDX-License-Identifier: BSD-3-Clause */
/** Receive placement: a device that takes mbufs one by one writes frames into the caller's memory.
 * The test's thread. */
#include "nic/dpdk/dpdk.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum {
	HEAD = 8,
	HEADS = FRAME_V4_BYTES + HEAD,
	EACH = 200,
	PLACES = 4,
	BYTES = PLACES * EACH,
	ROOM = 256,
	BEFORE = 144
};

static struct dpdk_port p = {.head_len = FRAME_V4_BYTES, .rx_shift = 22};
static struct dpdk_queue q = {.port = &p, .index = 3, .me = {.port = 7471}};
static uint8_t memory[BEFORE + BYTES + 64], *const at = memory + BEFORE;
static struct nic_err err;

static void setup(void)
{
	cr_assert_eq(dpdk_eal_start(0, false, &err), 0, "%s", err.text);
	q.pool = dpdk_pool_create("places", 64, ROOM, p.rx_shift, false, false);
	cr_assert_not_null(q.pool);
	if (!dpdk_pool_is_stack(q.pool))
		cr_skip_test("this DPDK has no slot for another kind of mempool");
	cr_assert_eq(dpdk_places_open(&q, &err), 0, "%s", err.text);
	cr_assert_not_null(q.places);
	memset(memory, '.', sizeof memory);
}

static void teardown(void)
{
	free(q.places);
	rte_mempool_free(q.pool);
}

TestSuite(dpdk_queue_place, .init = setup, .fini = teardown);

/* The device writes a frame with a body of `len` bytes. */
static void receive(unsigned i, unsigned len, uint16_t sum, uint16_t port)
{
	void *object;
	cr_assert_eq(rte_mempool_generic_get(q.pool, &object, 1, NULL), 0);
	struct rte_mbuf *m = object;
	m->data_off = RTE_PKTMBUF_HEADROOM;
	m->next = NULL;
	m->nb_segs = 1;
	m->data_len = (uint16_t)(FRAME_V4_BYTES + len);
	m->pkt_len = m->data_len;
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *), *udp = frame + FRAME_V4_BYTES - FRAME_UDP_BYTES;
	memset(frame, 'H', FRAME_V4_BYTES);
	frame_store16(udp + 2, frame_be16(port));
	frame_store16(udp + 6, sum);
	memset(frame + FRAME_V4_BYTES, 'a' + (int)i, len);
	q.rx[i] = m;
}

/* As recv() makes a packet of it. */
static struct nic_pkt packet(unsigned i, unsigned number)
{
	struct rte_mbuf *m = q.rx[i];
	uint8_t *body = rte_pktmbuf_mtod(m, uint8_t *) + FRAME_V4_BYTES;
	struct nic_pkt pkt = {.head = body, .body = body, .body_len = m->data_len - (uint64_t)FRAME_V4_BYTES};
	cr_assert_eq((uint8_t *)m->buf_addr, (uint8_t *)m + sizeof *m + p.rx_shift, "it has its own memory again");
	dpdk_place_packet(&q, i, number, &pkt);
	return pkt;
}

static void is_complete(const struct nic_pkt *pkt, unsigned i, unsigned len)
{
	bool placed = pkt->head != pkt->body;
	cr_assert_eq(pkt->body_len, (uint64_t)len);
	for (unsigned k = 0; k < len; k++)
		cr_assert_eq(placed && k >= HEAD ? pkt->head[k - HEAD] : pkt->body[k], 'a' + i, "byte %u", k);
}

static void begin(void)
{
	dpdk_rx_place(&q.base, HEAD, at, BYTES, EACH, BEFORE);
	cr_assert(dpdk_places_begin(&q));
}

static void memory_around_is_kept(void)
{
	for (unsigned i = 0; i < BEFORE; i++)
		cr_assert_eq(memory[i], '.', "in front, %u", i);
	for (unsigned i = 0; i < 64; i++)
		cr_assert_eq(at[BYTES + i], '.', "behind, %u", i);
}

static void free_all(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		rte_pktmbuf_free(q.rx[i]);
	cr_assert_eq(rte_mempool_avail_count(q.pool), 64u);
}

/* The last place is too near to the end: the device could write beyond it, whatever the frame is. */
Test(dpdk_queue_place, in_their_places)
{
	begin();
	for (unsigned i = 0; i < PLACES; i++)
		receive(i, HEAD + EACH - i, 0, 7474);
	dpdk_places_end(&q);
	for (unsigned i = 0; i < PLACES; i++) {
		struct nic_pkt pkt = packet(i, i);
		cr_assert_eq(pkt.head != pkt.body, i < PLACES - 1, "%u", i);
		if (i < PLACES - 1)
			cr_assert_eq(pkt.head, at + i * EACH);
		is_complete(&pkt, i, HEAD + EACH - i);
		cr_assert_eq(rte_pktmbuf_mtod(q.rx[i], uint8_t *)[0], 'H', "its heads are in the mbuf");
	}
	memory_around_is_kept();
	free_all(PLACES);
}

/* Frames with a checksum, of another port or size, are moved into their mbufs. */
Test(dpdk_queue_place, moved_out)
{
	begin();
	receive(0, HEAD + EACH, 5, 7474);
	receive(1, HEAD + EACH, 0, 7471);
	receive(2, HEAD - 1, 0, 7474);
	dpdk_places_end(&q);
	static const unsigned len[] = {HEAD + EACH, HEAD + EACH, HEAD - 1};
	for (unsigned i = 0; i < 3; i++) {
		struct nic_pkt pkt = packet(i, i);
		cr_assert_eq(pkt.head, pkt.body);
		is_complete(&pkt, i, len[i]);
	}
	memory_around_is_kept();
	free_all(3);
	begin();
	receive(0, HEAD + EACH + 1, 0, 7474);
	dpdk_places_end(&q);
	struct nic_pkt pkt = packet(0, 0);
	cr_assert_eq(pkt.head, pkt.body);
	is_complete(&pkt, 0, HEAD + EACH + 1);
	free_all(1);
}

/* A frame before it is no packet: its place is the next one's, so it is copied behind its head. */
Test(dpdk_queue_place, another_number)
{
	begin();
	receive(0, HEAD + EACH, 0, 7474);
	receive(1, HEAD + EACH, 0, 7474);
	dpdk_places_end(&q);
	struct nic_pkt pkt = packet(1, 0);
	cr_assert_eq(pkt.head, pkt.body);
	is_complete(&pkt, 1, HEAD + EACH);
	free_all(2);
}

/* An offer is of one burst, and needs room for the heads in front of each place. */
Test(dpdk_queue_place, offers)
{
	cr_assert_not(dpdk_places_begin(&q));
	begin();
	dpdk_places_end(&q);
	cr_assert_not(dpdk_places_begin(&q));
	dpdk_rx_place(&q.base, 1000, at, BYTES, EACH, BEFORE); /* heads that are too large */
	cr_assert_not(dpdk_places_begin(&q));
	dpdk_rx_place(&q.base, HEAD, at, BYTES, EACH, BEFORE - 1);
	cr_assert(dpdk_places_begin(&q));
	receive(0, HEAD + EACH, 0, 7474);
	receive(1, HEAD + EACH, 0, 7474);
	dpdk_places_end(&q);
	struct nic_pkt first = packet(0, 0), second = packet(1, 1);
	cr_assert_eq(first.head, first.body);
	cr_assert_eq(second.head, at + EACH);
	memory_around_is_kept();
	free_all(2);
}

Test(dpdk_queue_place, none_with_checksums_or_tags)
{
	struct dpdk_queue other = q;
	other.places = NULL;
	other.me.v6 = 1;
	cr_assert_eq(dpdk_places_open(&other, &err), 0);
	cr_assert_null(other.places);
	other.me.v6 = 0;
	other.tag = 5;
	cr_assert_eq(dpdk_places_open(&other, &err), 0);
	cr_assert_null(other.places);
	dpdk_rx_place(&other.base, HEAD, at, BYTES, EACH, BEFORE); /* has no effect */
}
