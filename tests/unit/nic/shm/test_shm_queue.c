/* SPDX-License-Identifier: BSD-3-Clause */
/** The fast path of shm, and what a hostile peer can write into the shared memory: nothing it does may lead out of it.
 * The test's thread, and threads that it starts. */
#include "shm_pair.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pthread.h>
#include <string.h>

/* Of these the area holds four and nothing else. */
enum { WHOLE = 16 << 20 };

static struct test_port a, b;
static uint32_t to_b, to_a; /* a's name for b, b's name for a */

static void setup(void)
{
	shm_dir_setup();
	test_port_open(&a, 1);
	test_port_open(&b, 2);
	test_ports_connect(&a, &b, &to_b, &to_a);
}

static void teardown(void)
{
	test_port_close(&a);
	test_port_close(&b);
	shm_dir_teardown();
}

TestSuite(shm_queue, .init = setup, .fini = teardown);

static struct shm_link *link_at(const struct test_port *p, uint32_t peer)
{
	return ((struct shm_port *)(void *)p->port)->links[peer];
}

static struct shm_queue *queue_at(const struct test_port *p)
{
	return ((struct shm_port *)(void *)p->port)->queues[0];
}

static int send_bytes(struct test_port *p, uint32_t peer, uint32_t tag, uint64_t len)
{
	struct nic_tx tx;
	int error = p->q->ops->tx_reserve(p->q, peer, len, &tx);
	if (error)
		return error;
	memset(tx.head, 0, 28);
	memcpy(tx.head, &tag, sizeof tag);
	if (len)
		memset(tx.body, (int)(tag & 0xff), tx.body_len);
	return p->q->ops->tx_commit(p->q, &tx);
}

static unsigned receive(struct test_port *p, struct nic_pkt *pkts, unsigned max)
{
	return p->q->ops->recv(p->q, pkts, max);
}

static uint32_t tag_of(const struct nic_pkt *pkt)
{
	uint32_t tag;
	memcpy(&tag, pkt->head, sizeof tag);
	return tag;
}

static void flush(struct test_port *p)
{
	p->q->ops->flush(p->q);
}

Test(shm_queue, sizes_around_the_line)
{
	static const uint64_t sizes[] = {0, 1, 31, 32, 33, 64, 255, 256, 257, 100000, SHM_BODY_MAX};
	struct nic_pkt pkt;
	for (uint32_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		cr_assert_eq(send_bytes(&a, to_b, i + 1, sizes[i]), 0);
		flush(&a);
		cr_assert_eq(receive(&b, &pkt, 1), 1u);
		cr_assert_eq(tag_of(&pkt), i + 1);
		cr_assert_eq(pkt.body_len, sizes[i]);
		cr_assert_eq(pkt.peer, to_a);
		cr_assert_eq(pkt.cookie != 0, sizes[i] > 32);
		cr_assert_eq((uintptr_t)pkt.body % (sizes[i] > 32 ? 64 : 32), 0u);
		for (uint64_t k = 0; k < sizes[i]; k += 1 + sizes[i] / 100)
			cr_assert_eq(pkt.body[k], (i + 1) & 0xff);
		if (pkt.cookie)
			b.q->ops->release(b.q, to_a, pkt.cookie);
	}
	cr_assert_eq(send_bytes(&a, to_b, 0, SHM_BODY_MAX + 1), -EMSGSIZE);
	cr_assert_eq(send_bytes(&a, to_b, 0, UINT64_MAX), -EMSGSIZE);
	cr_assert_eq(send_bytes(&a, to_b + 1, 0, 1), -EPIPE);
	cr_assert_eq(send_bytes(&a, UINT32_MAX, 0, 1), -EPIPE);
}

Test(shm_queue, ring_full_and_recovery)
{
	struct nic_pkt pkts[64];
	uint32_t sent = 0, got = 0;
	while (send_bytes(&a, to_b, sent, 8) == 0)
		sent++;
	cr_assert_eq(sent, SHM_SLOTS);
	cr_assert_eq(send_bytes(&a, to_b, 0, 1000), -EAGAIN);
	flush(&a);
	for (int round = 0; round < 20; round++) {
		unsigned n;
		link_at(&a, to_b)->lane.prefetches = round % 2; /* of the claims, the two ways */
		while ((n = receive(&b, pkts, 64)))
			for (unsigned i = 0; i < n; i++)
				cr_assert_eq(tag_of(&pkts[i]), got++);
		cr_assert_eq(got, sent);
		while (send_bytes(&a, to_b, sent, 8) == 0)
			sent++;
		cr_assert_gt(sent, got);
		flush(&a);
	}
}

Test(shm_queue, bulk_full_and_recovery)
{
	struct nic_pkt pkts[8];
	for (int round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 4; i++)
			cr_assert_eq(send_bytes(&a, to_b, i, WHOLE), 0);
		cr_assert_eq(send_bytes(&a, to_b, 9, 1000), -ENOBUFS);
		cr_assert_eq(send_bytes(&a, to_b, 4, 32), 0, "small ones still go");
		flush(&a);
		cr_assert_eq(receive(&b, pkts, 8), 5u);
		for (int i = 3; i >= 0; i--)
			b.q->ops->release(b.q, to_a, pkts[i].cookie);
	}
}

Test(shm_queue, cancel_gives_memory_back)
{
	struct nic_tx tx[4], one;
	for (int round = 0; round < 5; round++) {
		for (int i = 0; i < 4; i++)
			cr_assert_eq(a.q->ops->tx_reserve(a.q, to_b, WHOLE, &tx[i]), 0);
		cr_assert_eq(a.q->ops->tx_reserve(a.q, to_b, 100, &one), -ENOBUFS);
		for (int i = 0; i < 4; i++)
			a.q->ops->tx_cancel(a.q, &tx[i]);
	}
	cr_assert_eq(a.q->ops->tx_reserve(a.q, to_b, 3, &one), 0);
	a.q->ops->tx_cancel(a.q, &one);
	flush(&a);
	struct nic_pkt pkt;
	cr_assert_eq(receive(&b, &pkt, 1), 0u);
}

Test(shm_queue, more_than_2_to_20_laps)
{
	struct nic_pkt pkts[32];
	uint32_t got = 0;
	/* The lap is 20 bits: start just before its end. */
	struct shm_link *tx = link_at(&a, to_b), *rx = link_at(&b, to_a);
	tx->lane.tx_lap = rx->lane.rx_lap = UINT32_C(0xffffe000);
	atomic_store(&tx->tx->consumer.head, lane_written(&tx->lane));
	for (uint32_t i = 0; i < 8 * SHM_SLOTS; i++) {
		cr_assert_eq(send_bytes(&a, to_b, i, 4), 0);
		if (i % 16 != 15)
			continue;
		flush(&a);
		unsigned n = receive(&b, pkts, 32);
		cr_assert_eq(n, 16u, "at %u", i);
		for (unsigned k = 0; k < n; k++)
			cr_assert_eq(tag_of(&pkts[k]), got++);
	}
}

Test(shm_queue, loopback)
{
	uint32_t self, same;
	struct nic_pkt pkts[4];
	test_ports_connect(&a, &a, &self, &same);
	cr_assert_eq(send_bytes(&a, self, 1, 10), 0);
	cr_assert_eq(send_bytes(&a, self, 2, 10000), 0);
	flush(&a);
	cr_assert_eq(receive(&a, pkts, 4), 2u);
	cr_assert_eq(tag_of(&pkts[0]), 1u);
	cr_assert_eq(pkts[1].body_len, 10000u);
	a.q->ops->release(a.q, self, pkts[1].cookie);
	for (int i = 0; i < 100; i++) {
		cr_assert_eq(send_bytes(&a, self, 3, WHOLE), 0, "memory comes back");
		flush(&a);
		cr_assert_eq(receive(&a, pkts, 4), 1u);
		a.q->ops->release(a.q, self, pkts[0].cookie);
	}
}

/* ---- hostile writes ---- */

static void slot_write(struct shm_link *link, uint32_t word, const struct shm_bulk_ref *ref)
{
	struct nic_line *slot = link->lane.tx_next++;
	link->lane.room--;
	link->lane.tx_left--;
	memset(slot->bytes, 0xee, sizeof slot->bytes);
	if (ref)
		memcpy(slot->bytes + SHM_REF_OFFSET, ref, sizeof *ref);
	atomic_store(&slot->word, LANE_LAP_ONE | word);
}

/* Whatever was bogus is reported without a byte of it; what follows arrives. */
static void expect_next_is_good(unsigned bogus)
{
	struct nic_pkt pkts[64];
	cr_assert_lt(bogus, 64u);
	cr_assert_eq(send_bytes(&a, to_b, 77, 5), 0);
	flush(&a);
	cr_assert_eq(receive(&b, pkts, 64), bogus + 1);
	for (unsigned i = 0; i < bogus; i++) {
		cr_assert_null(pkts[i].head);
		cr_assert_null(pkts[i].body);
		cr_assert_eq(pkts[i].body_len, 0u);
		cr_assert_eq(pkts[i].cookie, 0u);
		cr_assert_eq(pkts[i].peer, to_a);
	}
	cr_assert_eq(tag_of(&pkts[bogus]), 77u);
	cr_assert_eq(queue_at(&b)->invalid_packets, bogus);
}

Test(shm_queue, lengths_beyond_the_line)
{
	unsigned bogus = 0;
	for (uint32_t len = 33; len <= LANE_LEN_MASK; len++, bogus++)
		slot_write(link_at(&a, to_b), len, NULL);
	expect_next_is_good(bogus);
}

Test(shm_queue, references_out_of_the_area)
{
	static const struct shm_bulk_ref refs[] = {
		{.len = 1, .block = SHM_BLOCKS},
		{.len = 1, .block = UINT32_MAX},
		{.len = SHM_BODY_MAX + 1, .block = 0},
		{.len = UINT64_MAX, .block = 0},
		{.len = UINT64_MAX - 255, .block = 1},
		{.len = SHM_BLOCK + 1, .block = SHM_BLOCKS - 1},
		{.len = SHM_BODY_MAX, .block = SHM_BLOCKS - 1},
	};
	unsigned n = sizeof refs / sizeof *refs;
	for (unsigned i = 0; i < n; i++)
		slot_write(link_at(&a, to_b), LANE_BULK, &refs[i]);
	expect_next_is_good(n);
}

Test(shm_queue, a_reference_to_the_last_byte_is_readable)
{
	struct nic_pkt pkt;
	struct shm_bulk_ref ref = {.len = SHM_BLOCK, .block = SHM_BLOCKS - 1};
	slot_write(link_at(&a, to_b), LANE_BULK, &ref);
	cr_assert_eq(receive(&b, &pkt, 1), 1u);
	cr_assert_eq(((const volatile uint8_t *)pkt.body)[SHM_BLOCK - 1], 0);
	b.q->ops->release(b.q, to_a, pkt.cookie);
}

Test(shm_queue, laps_that_are_not_awaited)
{
	struct nic_pkt pkt;
	struct nic_line *slot = &link_at(&a, to_b)->tx->slots[0];
	static const uint32_t words[] = {0, 2 * LANE_LAP_ONE | 4, LANE_LAP_MASK | 4, 0x7f};
	for (unsigned i = 0; i < 4; i++) {
		atomic_store(&slot->word, words[i]);
		cr_assert_eq(receive(&b, &pkt, 1), 0u);
	}
	atomic_store(&slot->word, LANE_LAP_ONE | 4);
	cr_assert_eq(receive(&b, &pkt, 1), 1u);
}

Test(shm_queue, heads_that_lie)
{
	struct shm_link *tx = link_at(&a, to_b);
	while (send_bytes(&a, to_b, 1, 4) == 0)
		;
	static const uint32_t lies[] = {SHM_SLOTS + 1, 5000, UINT32_MAX, 0x80000000u};
	for (unsigned i = 0; i < 4; i++) {
		atomic_store(&tx->tx->consumer.head, lies[i]);
		cr_assert_eq(send_bytes(&a, to_b, 1, 4), -EAGAIN, "a lie of %u was believed", lies[i]);
	}
	atomic_store(&tx->tx->consumer.head, 1);
	cr_assert_eq(send_bytes(&a, to_b, 1, 4), 0);
	cr_assert_eq(send_bytes(&a, to_b, 1, 4), -EAGAIN);
	atomic_store(&tx->tx->consumer.head, 0); /* backwards */
	cr_assert_eq(send_bytes(&a, to_b, 1, 4), -EAGAIN);
}

Test(shm_queue, returns_that_lie)
{
	struct shm_link *tx = link_at(&a, to_b);
	/* Blocks that were never handed out, each said as many times as the ring has room. */
	for (uint32_t i = 0; i < SHM_RETURNS; i++)
		atomic_store(&tx->tx->returns[i], (i / SHM_RETURNS + 1) << 18 | ((i * 7919) & 0x3ffff));
	for (int i = 0; i < 4; i++)
		cr_assert_eq(send_bytes(&a, to_b, 1, WHOLE), 0);
	cr_assert_eq(send_bytes(&a, to_b, 1, 100), -ENOBUFS, "memory appeared from nowhere");
	cr_assert_eq(queue_at(&a)->invalid_returns, SHM_RETURNS);
}

Test(shm_queue, the_same_block_returned_twice)
{
	struct nic_pkt pkts[4];
	for (int i = 0; i < 4; i++)
		cr_assert_eq(send_bytes(&a, to_b, 1, WHOLE), 0);
	flush(&a);
	cr_assert_eq(receive(&b, pkts, 4), 4u);
	for (int i = 0; i < 3; i++)
		b.q->ops->release(b.q, to_a, pkts[0].cookie);
	cr_assert_eq(send_bytes(&a, to_b, 1, WHOLE), 0);
	cr_assert_eq(send_bytes(&a, to_b, 1, WHOLE), -ENOBUFS);
	cr_assert_gt(queue_at(&a)->invalid_returns, 0u);
}

/* ---- a peer that rewrites what is being read ---- */

static _Atomic bool stop;

static void *rewrite(void *arg)
{
	struct shm_direction *d = arg;
	uint64_t seed = 3;
	while (!atomic_load(&stop)) {
		for (uint32_t k = 0; k < 4096; k++) {
			seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407;
			uint32_t i = (uint32_t)(seed >> 40) % SHM_SLOTS;
			struct nic_line *slot = &d->slots[i];
			/* In turn a good and a bogus reference, and every word that the reader may be waiting for. */
			struct shm_bulk_ref ref = {.len = seed & 1 ? 300 : seed >> 20,
						   .block = seed & 2 ? 3 : (uint32_t)(seed >> 30)};
			memcpy(slot->bytes + SHM_REF_OFFSET, &ref, sizeof ref);
			atomic_store_explicit(&slot->word,
					      (seed >> 8) % 64 * LANE_LAP_ONE | (uint32_t)(seed >> 16 & 0x7f),
					      memory_order_relaxed);
			atomic_store_explicit(&d->consumer.head, (uint32_t)(seed >> 32), memory_order_relaxed);
			atomic_store_explicit(&d->returns[i], (uint32_t)(seed >> 9), memory_order_relaxed);
		}
	}
	return NULL;
}

__attribute__((no_sanitize("thread"))) static void read_all(const struct nic_pkt *pkt)
{
	static volatile uint8_t sink;
	cr_assert(pkt->body_len <= SHM_BODY_MAX);
	cr_assert(pkt->body == NULL ||
		  (pkt->body >= (const uint8_t *)link_at(&b, to_a)->map &&
		   pkt->body + pkt->body_len <= (const uint8_t *)link_at(&b, to_a)->map + SHM_TOTAL_BYTES));
	if (pkt->body_len)
		sink = pkt->body[0] ^ pkt->body[pkt->body_len - 1];
	(void)sink;
}

Test(shm_queue, double_fetch, .timeout = 240)
{
	struct nic_pkt pkts[16];
	pthread_t t[2];
	pthread_create(&t[0], NULL, rewrite, link_at(&b, to_a)->rx);
	pthread_create(&t[1], NULL, rewrite, link_at(&b, to_a)->tx);
	unsigned got = 0;
	/* On few cores the writers may not have begun yet. */
	for (unsigned i = 0; i < 100000 || got < 200; i++) {
		/* The lap that would be awaited is let go on, or the reader would soon be beyond what is written. */
		if (i % 64 == 0)
			link_at(&b, to_a)->lane.rx_lap = (i / LANE_LINES % 60 + 1) * LANE_LAP_ONE;
		unsigned n = receive(&b, pkts, 16);
		for (unsigned k = 0; k < n; k++) {
			read_all(&pkts[k]);
			if (pkts[k].cookie)
				b.q->ops->release(b.q, to_a, pkts[k].cookie);
		}
		got += n;
		send_bytes(&b, to_a, 1, i % 3 ? 10 : 5000);
		flush(&b);
	}
	atomic_store(&stop, true);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}
